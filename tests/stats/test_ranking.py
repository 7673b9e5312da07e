import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from agent2.errors import NotEnoughData
from agent2.stats.ranking import (
    bradley_terry,
    bradley_terry_bootstrap,
    collect_matches,
    strength_replicates,
    win_rates_against,
    win_table,
)


def strengths(ranking):
    return tuple(estimate.value for estimate in ranking.strength)


def rng(seed=0):
    return np.random.default_rng(seed)


def simulated(strength, n, seed=0, share_drawn=0.0):
    draws = rng(seed)
    pairs = np.array([draws.permutation(len(strength))[:2] for _ in range(n)])
    chance = special.expit(strength[pairs[:, 0]] - strength[pairs[:, 1]])
    scores = (draws.random(n) < chance).astype(float)
    scores[draws.random(n) < share_drawn] = 0.5
    return collect_matches(pairs[:, 0], pairs[:, 1], scores, len(strength))


def fit_by_scipy(wins):
    def minus_log_likelihood(free):
        strength = np.append(free, -free.sum())
        return -(wins * special.log_expit(strength[:, None] - strength)).sum()

    free = optimize.minimize(minus_log_likelihood, np.zeros(len(wins) - 1), method="BFGS", options={"gtol": 1e-9}).x
    return np.append(free, -free.sum())


def test_two_models_have_the_log_odds_and_its_textbook_error():
    ranking = bradley_terry(collect_matches([0] * 100, [1] * 100, [1.0] * 75 + [0.0] * 25, 2))
    assert strengths(ranking) == pytest.approx((math.log(3) / 2, -math.log(3) / 2))
    error = math.sqrt(1 / (100 * 0.75 * 0.25)) / 2  # of half a log-odds
    assert ranking.strength[0].high - ranking.strength[0].value == pytest.approx(1.95996 * error, rel=1e-5)
    assert ranking.order == (0, 1)
    assert "n=100 matches" in str(ranking)


@pytest.mark.parametrize("share_drawn", [0.0, 0.4])
def test_strengths_equal_a_maximum_likelihood_fit_by_scipy(share_drawn):
    matches = simulated(np.array([1.5, 0.5, 0.0, -0.3, -2.0]), 400, share_drawn=share_drawn)
    assert strengths(bradley_terry(matches)) == pytest.approx(fit_by_scipy(win_table(matches)), abs=1e-5)


def test_strong_differences_are_fitted_too():
    matches = collect_matches([0, 0, 1], [1, 1, 0], [1.0, 1.0 - 1e-7, 0.0], 2)
    assert bradley_terry(matches).strength[0].value == pytest.approx(math.log((3 - 1e-7) / 1e-7) / 2, rel=1e-6)


def test_true_strengths_lie_in_their_intervals_about_as_often_as_said():
    true = np.array([0.8, 0.2, -0.3, -0.7])
    inside = []
    for seed in range(100):
        ranking = bradley_terry(simulated(true, 200, seed))
        inside.append(
            (np.array([estimate.low for estimate in ranking.strength]) <= true)
            & (true <= np.array([estimate.high for estimate in ranking.strength]))
        )
    assert 0.9 <= np.mean(inside) <= 0.99


def test_bootstrap_intervals_approach_fishers():
    matches = simulated(np.array([0.5, 0.0, -0.5]), 600)
    fisher, resampled = bradley_terry(matches), bradley_terry_bootstrap(matches, rng(1), 1000)
    assert strengths(resampled) == strengths(fisher)
    assert [estimate.low for estimate in resampled.strength] == pytest.approx(
        [estimate.low for estimate in fisher.strength], abs=0.05
    )
    assert [estimate.high for estimate in resampled.strength] == pytest.approx(
        [estimate.high for estimate in fisher.strength], abs=0.05
    )
    assert resampled.warning == ""


def test_bootstrap_intervals_are_the_central_share_of_the_replicates():
    matches = simulated(np.array([0.5, 0.0, -0.5]), 300)
    ranking = bradley_terry_bootstrap(matches, rng(2), 200, confidence=0.8)
    ends = np.quantile(strength_replicates(matches, rng(2), 200), [0.1, 0.9], axis=0)
    assert [[estimate.low for estimate in ranking.strength], [estimate.high for estimate in ranking.strength]] == [
        pytest.approx(ends[0]),
        pytest.approx(ends[1]),
    ]


def test_a_model_that_never_lost_is_named():
    matches = collect_matches([0, 0, 1, 2], [1, 2, 2, 1], [1, 1, 1, 1], 3)
    with pytest.raises(NotEnoughData, match=r"models \[0\] won every match"):
        bradley_terry(matches)
    ranking = bradley_terry(matches, prior=0.1)
    assert ranking.order[0] == 0
    assert "prior of 0.1 draws a pair" in str(ranking)


def test_a_model_that_never_won_is_named():
    matches = collect_matches([0, 0, 1, 1], [1, 2, 2, 0], [1, 1, 1, 1], 3)
    with pytest.raises(NotEnoughData, match=r"models \[2\] lost every match"):
        bradley_terry(matches)


def test_models_that_never_met_are_named():
    with pytest.raises(NotEnoughData, match="2 parts that never met"):
        bradley_terry(collect_matches([0, 1, 2, 3], [1, 0, 3, 2], [1, 1, 1, 1], 4))
    with pytest.raises(NotEnoughData, match=r"models \[2\]"):
        bradley_terry(collect_matches([0, 1], [1, 0], [1, 1], 3))


def test_replicates_that_do_not_determine_the_strengths_are_counted():
    matches = collect_matches([0] * 5, [1] * 5, [1, 1, 1, 1, 0], 2)
    ranking = bradley_terry_bootstrap(matches, rng(), 1000)
    left_out = int(ranking.warning.split()[0])
    assert left_out == pytest.approx(1000 * (0.8**5 + 0.2**5), abs=60)
    assert bradley_terry_bootstrap(matches, rng(), 200, prior=0.5).warning == ""


def test_only_draws_make_equal_strengths():
    ranking = bradley_terry(collect_matches([0, 1, 2], [1, 2, 0], [0.5] * 3, 3))
    assert strengths(ranking) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)


def test_win_rates_against_a_baseline_follow_from_the_strengths():
    ranking = bradley_terry(collect_matches([0] * 4, [1] * 4, [1, 1, 1, 0], 2))
    assert win_rates_against(ranking, 1) == pytest.approx((0.75, 0.5))
    with pytest.raises(ValueError, match="baseline"):
        win_rates_against(ranking, 2)


def test_bad_arguments_are_refused():
    matches = collect_matches([0, 1], [1, 0], [1, 1], 2)
    for prior in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="prior"):
            bradley_terry(matches, prior=prior)
    with pytest.raises(ValueError, match="confidence"):
        bradley_terry(matches, confidence=0.0)
    with pytest.raises(ValueError, match="n_replicates"):
        strength_replicates(matches, rng(), 0)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.permutations(range(4)))
def test_renaming_the_models_renames_the_strengths(seed, names):
    matches = simulated(np.array([0.5, 0.2, -0.1, -0.6]), 60, seed, share_drawn=0.3)
    renamed = np.array(names)
    again = collect_matches(renamed[matches.first_M], renamed[matches.second_M], matches.score_M, 4)
    original, of_renamed = strengths(bradley_terry(matches, prior=0.1)), strengths(bradley_terry(again, prior=0.1))
    assert [of_renamed[names[model]] for model in range(4)] == pytest.approx(original, abs=1e-8)
    assert sum(original) == pytest.approx(0.0, abs=1e-9)


def test_replicates_are_fitted_in_chunks_of_bounded_size(monkeypatch):
    matches = simulated(np.array([0.5, 0.0, -0.5]), 60)
    together = strength_replicates(matches, rng(1), 50)
    monkeypatch.setattr("agent2.stats.ranking.CHUNK_ELEMENTS", 30)
    assert strength_replicates(matches, rng(1), 50) == pytest.approx(together, abs=1e-9)


def test_no_usable_replicate_is_an_error():
    matches = collect_matches([0, 1], [1, 0], [1, 1], 2)  # half of the replicates hold one of the two matches twice
    refused = 0
    for seed in range(20):
        try:
            assert strength_replicates(matches, rng(seed), 1).shape == (1, 2)
        except NotEnoughData as error:
            refused += "none of 1" in str(error)
    assert 3 <= refused <= 17
