"""Rank intervals: hand-computed cases, and the truth is covered in simulated sweeps."""

import numpy as np
import pytest

from agent2.arena.analysis.leaderboard import make_leaderboard
from agent2.errors import NotEnoughData
from agent2.stats.estimates import ITEMS, ITEMS_AND_SEEDS, Estimate, PairedDifference
from agent2.stats.ranking import difference_of_samples, mean_difference, rank_intervals
from pool_builders import simulation


def pair(delta, p_value):
    return PairedDifference(Estimate(delta, None, None, 10), p_value)


def test_who_was_shown_to_be_better_stands_above_and_the_rest_is_left_open():
    intervals = rank_intervals(3, {(0, 1): pair(0.3, 0.001), (0, 2): pair(0.3, 0.001), (1, 2): pair(0.05, 0.6)})
    assert [(interval.text, interval.tier) for interval in intervals] == [("1", 1), ("2-3", 2), ("2-3", 2)]


def test_equal_stacks_share_all_ranks_and_one_tier():
    intervals = rank_intervals(3, {(a, b): pair(0.0, 1.0) for a in range(3) for b in range(a)})
    assert {(interval.text, interval.tier) for interval in intervals} == {("1-3", 1)}


def test_many_pairs_need_more_evidence_than_one():
    alone = rank_intervals(2, {(0, 1): pair(0.2, 0.02)})
    among = rank_intervals(
        4, {(a, b): pair(0.2, 0.02 if (a, b) == (0, 1) else 0.9) for a in range(4) for b in range(a + 1, 4)}
    )
    assert alone[1].tier == 2
    assert among[1].tier == 1


def test_runs_that_differ_make_the_difference_less_sure_than_items_alone():
    rng = np.random.default_rng(1)
    calm = (rng.random((4, 80)) < 0.5).astype(float)
    lucky = np.vstack([np.ones((2, 80)), np.zeros((2, 80))])
    sure, unsure = difference_of_samples(calm, calm), difference_of_samples(lucky, calm)
    assert unsure.variance > 10 * sure.variance
    assert unsure.over == ITEMS_AND_SEEDS


def test_one_run_says_that_its_luck_is_not_known_and_one_item_says_nothing():
    assert difference_of_samples(np.ones((1, 5)), np.zeros((3, 5))).over == ITEMS
    with pytest.raises(NotEnoughData):
        difference_of_samples(np.ones((2, 1)), np.zeros((2, 1)))


def test_swapping_the_sides_turns_the_interval_round():
    rng = np.random.default_rng(2)
    a, b = rng.random((3, 40)), rng.random((3, 40))
    difference, swapped = (mean_difference([difference_of_samples(*sides)]) for sides in ((a, b), (b, a)))
    assert difference.change.interval == pytest.approx(tuple(-end for end in reversed(swapped.change.interval)))
    assert difference.p_value == pytest.approx(swapped.p_value)


def test_ranks_and_tiers_cover_the_truth_in_simulated_sweeps():
    simulator = simulation()
    rng = np.random.default_rng(7)
    verdicts = []
    for _ in range(25):
        sweep = simulator.simulate(rng, n_stacks=5, n_runs=3, n_items=60)
        verdicts.append(simulator.covered(simulator.ranked(sweep.verdicts_KTRI), sweep))
    assert np.mean(verdicts, axis=(0, 1)).min() >= 0.95


def test_the_simulation_ranks_as_the_leaderboard_does_and_notices_ranks_that_are_too_sure():
    simulator = simulation()
    sweep = simulator.simulate(np.random.default_rng(7), n_stacks=5, n_runs=3, n_items=60)
    boards = simulator.ranked(sweep.verdicts_KTRI)
    assert simulator.boards_of(make_leaderboard(simulator.pool_of(sweep))) == boards
    assert set(boards) == {*simulator.TASKS, "static", "interactive"}
    sure = [None] * 5
    for rank, stack in enumerate(np.argsort(-sweep.verdicts_KTRI[:, 0].mean(axis=(1, 2))), start=1):
        sure[stack] = simulator.RankInterval(rank, rank, rank)
    assert simulator.covers(sure, sweep.truth_KT[:, 0]) == (False, False)
