import math

import numpy as np
import pytest

from agent2.errors import NotEnoughData
from agent2.stats import comparisons
from agent2.stats.comparisons import (
    Claim,
    judge,
    mcnemar_p,
    noise_band,
    over_items_and_seeds,
    paired_difference,
    sign_flip_p,
)
from agent2.stats.estimates import Estimate, PairedDifference


def rng(seed=0):
    return np.random.default_rng(seed)


def test_mcnemar_matches_the_hand_computed_binomial_tail():
    assert mcnemar_p(9, 1) == pytest.approx(2 * (1 + 10) / 2**10)
    assert mcnemar_p(1, 9) == mcnemar_p(9, 1)
    assert mcnemar_p(3, 3) == 1.0
    assert mcnemar_p(0, 0) == 1.0


def test_the_difference_is_first_minus_second():
    result = paired_difference([1, 1, 1, 0], [0, 0, 1, 0], rng())
    assert result.change.value == 0.5
    assert result.change.n == 4
    assert "exact McNemar" in result.change.method
    assert result.p_value == pytest.approx(0.5)  # two discordant pairs, both for a: 2 * 1/4


def test_the_interval_approaches_the_normal_one_of_paired_differences():
    draws = rng(1)
    a, b = (draws.random(2000) < 0.7).astype(float), (draws.random(2000) < 0.5).astype(float)
    result = paired_difference(a, b, rng(2), 20_000)
    half_width = 1.96 * (a - b).std() / math.sqrt(2000)
    assert result.change.low == pytest.approx(result.change.value - half_width, abs=0.1 * half_width)
    assert result.change.high == pytest.approx(result.change.value + half_width, abs=0.1 * half_width)


def test_pairing_removes_the_spread_between_items():
    b = np.linspace(0.0, 0.8, 50)
    result = paired_difference(b + 0.1, b, rng())
    assert result.change.low == pytest.approx(0.1)
    assert result.change.high == pytest.approx(0.1)


def test_equal_scores_differ_by_nothing():
    result = paired_difference([1, 0, 1], [1, 0, 1], rng())
    assert (result.change.value, result.change.low, result.change.high, result.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_partial_scores_are_tested_by_sign_flips():
    result = paired_difference([0.5, 0.7, 0.9], [0.4, 0.6, 0.8], rng())
    assert "sign flips" in result.change.method


def test_sign_flips_approach_the_exact_permutation_p():
    # all eight differences equal: only the two sign vectors "all +" and "all -" are as extreme: p = 2/256
    assert sign_flip_p(np.full(8, 0.1), rng(), 40_000) == pytest.approx(2 / 256, rel=0.2)


def test_sign_flips_are_never_impossible_and_certain_without_difference():
    assert sign_flip_p(np.full(60, 1.0), rng(), 999) == pytest.approx(1 / 1000)
    assert sign_flip_p(np.zeros(5), rng(), 100) == 1.0


def test_sign_flip_p_values_are_spread_evenly_when_nothing_differs():
    draws = rng(3)
    p_values = [sign_flip_p(draws.normal(size=30), draws, 200) for _ in range(300)]
    assert np.mean(np.array(p_values) < 0.1) == pytest.approx(0.1, abs=0.06)


def test_memory_chunks_do_not_change_the_kind_of_result(monkeypatch):
    monkeypatch.setattr(comparisons, "CHUNK_ELEMENTS", 10)
    assert sign_flip_p(np.full(8, 0.1), rng(), 20_000) == pytest.approx(2 / 256, rel=0.3)


def test_scores_of_other_items_cannot_be_paired():
    with pytest.raises(ValueError, match="2 items, scores_b 1"):
        paired_difference([1, 0], [1], rng())


@pytest.mark.parametrize("scores", [([], []), ([1.0, float("nan")], [1.0, 0.0])])
def test_missing_scores_are_not_enough_data(scores):
    with pytest.raises(NotEnoughData):
        paired_difference(*scores, rng())


def test_the_noise_band_approaches_the_known_spread_of_two_independent_evaluations():
    scores = (rng(4).random((40, 500)) < 0.3).astype(float)
    band = noise_band(scores, rng(5), 4000)
    expected = 1.96 * math.sqrt(2 * 0.3 * 0.7 / 500)
    assert band.half_width == pytest.approx(expected, rel=0.1)
    assert band.n_replicates == 4000


def test_the_noise_band_does_not_widen_with_the_luck_of_two_runs():
    first, second = np.zeros(500), np.zeros(500)
    second[:60] = 1.0  # one run was luckier on every item that is unsure
    expected = 1.96 * math.sqrt(60 / 500 / 500)
    assert noise_band(np.stack([first, second]), rng(6), 4000).half_width == pytest.approx(expected, rel=0.1)


def test_the_band_of_greedy_play_comes_from_drawing_the_items_again():
    alike = np.tile((np.arange(140) < 42).astype(float), (4, 1))  # 30% of 140 games, the same in all four runs
    band = noise_band(alike, rng())
    assert (band.over, band.half_width) == ("items", pytest.approx(0.080, abs=0.001))  # the longer arm of Wilson's
    assert noise_band(np.zeros((4, 140)), rng()).half_width == pytest.approx(0.0267, abs=0.001)  # 0 of 140 is not sure
    parts = np.tile(rng(7).random(200), (2, 1))
    assert noise_band(parts, rng()).half_width == pytest.approx(1.96 * parts[0].std() / math.sqrt(200), rel=0.1)


def pair_of(delta, low, high, p_value):
    return PairedDifference(Estimate(delta, low, high, 50), p_value)


@pytest.mark.parametrize(
    ("pair", "options", "claim"),
    [
        (pair_of(3.0, 1.0, 5.0, 0.01), {}, Claim.BETTER),
        (pair_of(3.0, 1.0, 5.0, 0.01), {"is_higher_better": False}, Claim.WORSE),
        (pair_of(-3.0, -5.0, -1.0, 0.01), {}, Claim.WORSE),
        (pair_of(3.0, 1.0, 5.0, 0.07), {}, Claim.UNCLEAR),  # the interval alone is not enough
        (pair_of(-3.0, -5.0, -1.0, 1.0), {}, Claim.UNCLEAR),
        (pair_of(3.0, -0.1, 6.0, 0.04), {}, Claim.UNCLEAR),  # nor is the p-value
        (pair_of(3.0, 1.0, 5.0, 0.01), {"band": 3.5}, Claim.UNCLEAR),
        (pair_of(3.0, 1.0, 5.0, 0.01), {"band": 0.0}, Claim.BETTER),  # a band of 0 says nothing, for nor against
        (pair_of(3.0, 1.0, 5.0, 0.01), {"p_value": 0.2}, Claim.UNCLEAR),  # corrected for many comparisons
        (pair_of(0.0, 0.0, 0.0, 1.0), {}, Claim.UNCLEAR),
        (pair_of(3.0, 1.0, 5.0, math.nan), {}, Claim.UNCLEAR),
    ],
)
def test_better_and_worse_need_interval_p_value_and_band(pair, options, claim):
    judged = judge(pair, **options)
    assert judged.claim is claim and judged.why


def test_two_levels_match_the_hand_computed_analysis_of_variance():
    table = np.array([[3.0, 1.0], [1.0, 1.0], [2.0, 1.0]])  # 3 seeds x 2 items
    difference = over_items_and_seeds(table)
    # mean 1.5; MS seeds 0.5, items 1.5, rest 0.5: variance (0.5 + 1.5 - 0.5) / 6 = 0.25
    # degrees of freedom 1.5^2 / (0.5^2/2 + 1.5^2/1 + 0.5^2/2) = 0.9, taken as 1: t = 12.706
    assert difference.change.value == pytest.approx(1.5)
    assert difference.change.high - difference.change.value == pytest.approx(12.706 * 0.5, rel=1e-3)
    assert difference.p_value == pytest.approx(0.2048, abs=1e-3)


def test_seeds_that_agree_leave_the_error_over_items_with_few_degrees_of_freedom():
    items = rng(8).normal(size=300)
    difference = over_items_and_seeds(np.tile(items, (3, 1)))
    assert difference.change.high - difference.change.low == pytest.approx(
        2 * 2.306 * items.std(ddof=1) / math.sqrt(300), rel=1e-3
    )


def test_equal_differences_are_as_sure_as_their_number():
    assert over_items_and_seeds(np.ones((2, 3))).p_value == 0.25
    assert over_items_and_seeds(np.zeros((2, 3))).p_value == 1.0


@pytest.mark.parametrize("table", [np.zeros((1, 9)), np.zeros((9, 1)), np.zeros(9), [[1.0, math.nan], [1.0, 1.0]]])
def test_one_seed_or_a_gap_makes_no_interval_over_both(table):
    with pytest.raises(NotEnoughData):
        over_items_and_seeds(table)


@pytest.mark.parametrize(("n_seeds", "n_items"), [(2, 100), (3, 300), (5, 100)])
@pytest.mark.parametrize(("seed_sd", "item_sd", "rest_sd"), [(0.08, 0.1, 0.5), (0.0, 0.3, 0.5), (0.05, 0.0, 0.3)])
def test_the_interval_over_items_and_seeds_covers(n_seeds, n_items, seed_sd, item_sd, rest_sd):
    draws, hits = rng(9), 0
    for _ in range(400):
        table = 0.1 + seed_sd * draws.normal(size=(n_seeds, 1)) + item_sd * draws.normal(size=(1, n_items))
        difference = over_items_and_seeds(table + rest_sd * draws.normal(size=(n_seeds, n_items)))
        hits += difference.change.low <= 0.1 <= difference.change.high
    assert hits / 400 >= 0.92  # 95% less three standard errors of the simulation


@pytest.mark.parametrize("scores", [[[1.0, 0.0]], [1.0, 0.0], [[], []], [[1.0], [float("nan")]]])
def test_one_replicate_or_no_items_make_no_noise_band(scores):
    with pytest.raises(NotEnoughData):
        noise_band(scores, rng())


def test_a_noise_band_says_what_stands_behind_it():
    band = noise_band([[1.0, 0.0, 1.0]] * 3 + [[0.0, 0.0, 1.0]], rng(), 100)
    assert (band.n_runs, band.n_items) == (4, 3)
    assert "(95%, over items and sampling seeds; n=3 items x 4 runs, 100 resampled comparisons)" in str(band)
