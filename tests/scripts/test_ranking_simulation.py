"""`benchmarks/leaderboard.py --failed`: what a failed trial counts as, and that the leaderboard's own code agrees."""

import numpy as np
import pytest

from agent2.arena.analysis.leaderboard import make_leaderboard
from pool_builders import simulation

N_STACKS, N_RUNS = 4, 6


@pytest.fixture(scope="module")
def script():
    return simulation()


@pytest.fixture(scope="module")
def failed(script):
    rng = np.random.default_rng(0)
    return script.with_failures(script.simulate(rng, N_STACKS, N_RUNS, 40), rng, 0.4)


def test_an_agents_failure_has_the_base_models_verdicts_and_no_trial_is_lost_twice(failed):
    assert failed.is_agents_KTR.any() and failed.is_lost_KTR.any()
    assert not (failed.is_agents_KTR & failed.is_lost_KTR).any()
    for stack, task, run in np.argwhere(failed.is_agents_KTR):
        assert np.array_equal(failed.sweep.verdicts_KTRI[stack, task, run], failed.sweep.base_TAI[task, 0])


def test_the_truth_of_a_stack_that_never_fails_is_its_own_score_and_others_lie_nearer_to_the_base(script, failed):
    plain = script.simulate(np.random.default_rng(0), N_STACKS, N_RUNS, 40).truth_KT
    assert failed.sweep.truth_KT[0, 0] == plain[0, 0]
    # the worst one fails in half of the trials that are not lost: 0.4 / 0.8
    assert failed.sweep.truth_KT[-1, 0] == pytest.approx((plain[-1, 0] + script.BASE) / 2)


def test_the_leaderboard_ranks_a_sweep_with_failures_as_the_simulation_does(script, failed):
    board = make_leaderboard(script.pool_of(failed.sweep, failed))
    assert script.boards_of(board) == script.ranked_runs(failed.sweep.verdicts_KTRI, ~failed.is_lost_KTR)
    counted = [trial.is_counted for trial in board.trials]
    assert counted.count(False) == failed.is_lost_KTR.sum()
