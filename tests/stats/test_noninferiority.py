import math

import numpy as np
import pytest
from scipy import optimize, stats

from agent2.errors import NotEnoughData
from agent2.stats.comparisons import NonInferiorityOutcome, noninferiority, tango_interval, tango_z


def verdicts(n_both, n_only_new, n_only_reference, n_neither):
    new = [1] * (n_both + n_only_new) + [0] * (n_only_reference + n_neither)
    reference = [1] * n_both + [0] * n_only_new + [1] * n_only_reference + [0] * n_neither
    return new, reference


@pytest.mark.parametrize(("n_only_a", "n_only_b", "n"), [(3, 9, 50), (12, 1, 40), (5, 5, 100)])
@pytest.mark.parametrize("delta", [-0.3, -0.05, 0.1])
def test_the_score_uses_the_most_likely_rates_with_that_difference(n_only_a, n_only_b, n, delta):
    def minus_log_likelihood(rate_b):
        parts = [(n_only_a, rate_b + delta), (n_only_b, rate_b), (n - n_only_a - n_only_b, 1 - 2 * rate_b - delta)]
        return -sum(count * math.log(rate) for count, rate in parts if count)

    bounds = (max(0.0, -delta) + 1e-12, (1 - delta) / 2 - 1e-12)
    rate_b = optimize.minimize_scalar(minus_log_likelihood, bounds=bounds, method="bounded", options={"xatol": 1e-12}).x
    error = math.sqrt((2 * rate_b + delta - delta**2) / n)
    assert tango_z(n_only_a, n_only_b, n, delta) == pytest.approx(((n_only_a - n_only_b) / n - delta) / error, rel=1e-4)


def test_the_score_at_no_difference_is_mcnemars():
    assert tango_z(9, 3, 40, 0.0) == pytest.approx((9 - 3) / math.sqrt(9 + 3))


def test_the_interval_ends_where_the_score_is_the_quantile():
    low, high = tango_interval(9, 3, 40)
    assert tango_z(9, 3, 40, low) == pytest.approx(1.95996, abs=1e-4)
    assert tango_z(9, 3, 40, high) == pytest.approx(-1.95996, abs=1e-4)
    assert tango_interval(3, 9, 40) == pytest.approx((-high, -low))


def test_no_discordant_item_still_leaves_the_hand_computed_doubt():
    z2 = stats.norm.ppf(0.975) ** 2
    low, high = tango_interval(0, 0, 50)
    assert high == pytest.approx(z2 / (50 + z2))  # n d / (1 - d) = z^2
    assert low == -high


def test_discordant_items_all_on_one_side_reach_the_end_of_the_range():
    assert tango_interval(5, 0, 5)[1] == 1.0
    assert tango_interval(0, 5, 5)[0] == -1.0


def test_many_items_without_a_drop_are_non_inferior():
    result = noninferiority(*verdicts(800, 50, 50, 100), margin=0.03)
    assert result.outcome is NonInferiorityOutcome.NON_INFERIOR
    assert result.p_value < 0.025
    assert "n=1000" in str(result)
    assert str(result).startswith("non-inferior at margin 0.03")


def test_few_items_without_a_drop_are_inconclusive_not_non_inferior():
    result = noninferiority([1] * 20, [1] * 20, margin=0.03)
    assert result.outcome is NonInferiorityOutcome.INCONCLUSIVE
    assert result.delta == 0.0


def test_a_drop_beyond_the_margin_is_inferior():
    assert noninferiority(*verdicts(300, 5, 150, 45), margin=0.05).outcome is NonInferiorityOutcome.INFERIOR


def test_the_p_value_is_one_sided():
    n, n_new, n_reference = 100, 6, 9
    low, _ = tango_interval(n_new, n_reference, n)
    result = noninferiority(*verdicts(70, n_new, n_reference, 15), margin=-low)
    assert result.p_value == pytest.approx(0.025, rel=1e-4)


@pytest.mark.parametrize("margin", [0.02, 0.05, 0.2])
def test_outcome_and_p_value_agree(margin):
    result = noninferiority(*verdicts(70, 6, 9, 15), margin=margin)
    assert (result.outcome is NonInferiorityOutcome.NON_INFERIOR) == (result.p_value < 0.025)


def test_other_scores_use_the_t_test_of_scipy():
    new = np.random.default_rng(0).normal(0.5, 0.2, size=40)
    reference = np.random.default_rng(1).normal(0.5, 0.2, size=40)
    result = noninferiority(new, reference, margin=0.1)
    test = stats.ttest_1samp(new - reference, -0.1, alternative="greater")
    assert result.p_value == pytest.approx(test.pvalue)
    expected = stats.ttest_1samp(new - reference, 0.0).confidence_interval()
    assert (result.low, result.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_equal_differences_of_other_scores_are_warned_about():
    result = noninferiority([0.25, 0.5], [0.5, 0.75], margin=0.5)
    assert (result.low, result.high, result.p_value) == (-0.25, -0.25, 0.0)
    assert "no width" in str(result)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="pair them"):
        noninferiority([1, 0], [1], margin=0.1)
    for margin in (0.0, -0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="margin"):
            noninferiority([1, 0], [1, 1], margin=margin)
    with pytest.raises(ValueError, match="confidence"):
        noninferiority([1, 0], [1, 1], margin=0.1, confidence=0.0)
    with pytest.raises(NotEnoughData, match="at least 2"):
        noninferiority([0.5], [0.4], margin=0.1)
    with pytest.raises(NotEnoughData, match="empty"):
        noninferiority([], [], margin=0.1)
    with pytest.raises(NotEnoughData, match="missing"):
        noninferiority([1, math.nan], [1, 1], margin=0.1)
    with pytest.raises(NotEnoughData):
        tango_interval(0, 0, 0)
    with pytest.raises(ValueError, match="cannot be"):
        tango_interval(3, 3, 5)
