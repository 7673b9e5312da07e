import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.estimates import UNIT, measure, measure_by_item, ratio_of_sums, wilson

GAPS = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=30)


def test_verdicts_get_wilsons_interval_and_missing_ones_are_counted():
    estimate = measure([1, 0, None, True, float("nan")], "accuracy", UNIT)
    expected = wilson(2, 3)
    assert (estimate.value, estimate.low, estimate.high) == (expected.value, expected.low, expected.high)
    assert (estimate.n, estimate.n_missing, estimate.method) == (3, 2, "Wilson")
    assert str(estimate) == f"0.6667 [{expected.low:.4f}, {expected.high:.4f}] (n=3, 2 missing, Wilson)"


def test_other_values_get_students_interval():
    values = [0.1, 0.4, 0.7, 0.35]
    estimate = measure(values, "score")
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (estimate.low, estimate.high) == pytest.approx((low, high))


def test_the_interval_stays_within_the_bounds():
    estimate = measure([0.0, 0.9, 0.95, 1.0], "score", UNIT)
    assert estimate.low is not None and estimate.low >= 0.0 and estimate.high == 1.0


def test_one_value_has_no_interval():
    estimate = measure([0.5], "score")
    assert (estimate.value, estimate.low, estimate.high) == (0.5, None, None)
    assert str(estimate) == "0.5000 (n=1, no interval)"


def test_equal_values_that_are_no_verdicts_have_width_0():
    estimate = measure([0.5, 0.5, 0.5], "score")
    assert (estimate.low, estimate.high) == (0.5, 0.5)


@pytest.mark.parametrize("values", [[], [None], [float("nan"), None]])
def test_nothing_there_is_not_enough_data(values):
    with pytest.raises(NotEnoughData, match=f"{len(values)} missing"):
        measure(values, "score")


@pytest.mark.parametrize(
    ("values", "message"),
    [([0.5, 1.5], "between 0 and 1"), ([-0.1], "between"), ([math.inf], "infinity"), ([[1, 0]], "vector")],
)
def test_values_that_cannot_be_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        measure(values, "score", UNIT)


def test_many_attempts_at_one_item_are_one_unit():
    estimate = measure_by_item([1, 1, 0, 0, None, 1], ["a", "a", "b", "b", "b", "c"], "success", UNIT)
    assert (estimate.value, estimate.n, estimate.n_missing, estimate.method) == (pytest.approx(2 / 3), 3, 1, "Wilson")


def test_an_item_without_values_is_left_out():
    estimate = measure_by_item([1, None, None], ["a", "b", "b"], "success", UNIT)
    assert (estimate.value, estimate.n, estimate.n_missing) == (1.0, 1, 2)


def test_items_must_match_values():
    with pytest.raises(ValueError, match="one id for each"):
        measure_by_item([1, 0], ["a"], "success")


def test_a_ratio_weighs_events_not_runs():
    ratio = ratio_of_sums([1, 9], [1, 19], "valid calls")
    assert ratio.value == pytest.approx(0.5)
    assert ratio.n == 2


def test_a_ratio_of_equal_wholes_has_the_interval_of_the_mean():
    parts, wholes = [1, 2, 3, 3], [4, 4, 4, 4]
    ratio, plain = ratio_of_sums(parts, wholes, "rate"), measure(np.array(parts) / 4, "rate")
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((plain.value, plain.low, plain.high))


def test_a_ratio_ignores_runs_without_events_and_counts_missing_ones():
    ratio = ratio_of_sums([1, 0, None, 2], [2, 0, 3, 2], "rate")
    assert (ratio.value, ratio.n, ratio.n_missing) == (0.75, 2, 1)


def test_a_ratio_clusters_by_item():
    ratio = ratio_of_sums([1, 0, 2], [2, 2, 4], "rate", ["a", "a", "b"])
    assert (ratio.value, ratio.n) == (pytest.approx(3 / 8), 2)
    assert ratio_of_sums([1, 1], [2, 2], "rate", ["a", "a"]).low is None


def test_a_ratio_without_events_is_not_enough_data():
    with pytest.raises(NotEnoughData, match="no events"):
        ratio_of_sums([0, None], [0, 4], "rate")


@pytest.mark.parametrize(
    ("parts", "wholes", "items"),
    [([3], [2], None), ([-1], [2], None), ([1], [2, 2], None), ([1], [2], ["a", "b"]), ([1], [math.inf], None)],
)
def test_counts_that_cannot_be_are_refused(parts, wholes, items):
    with pytest.raises(ValueError):
        ratio_of_sums(parts, wholes, "rate", items)


@given(GAPS, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_a_mean_is_bounded_counts_all_and_ignores_order(values, shuffler):
    n_missing = sum(value is None for value in values)
    if n_missing == len(values):
        return
    estimate = measure(values, "score", UNIT)
    shuffled = shuffler.sample(values, len(values))
    assert 0.0 <= estimate.value <= 1.0
    assert estimate.n + estimate.n_missing == len(values)
    assert measure(shuffled, "score", UNIT).value == pytest.approx(estimate.value)
    if estimate.low is not None and estimate.high is not None:
        assert estimate.low <= estimate.value + 1e-12 and estimate.value <= estimate.high + 1e-12


@pytest.mark.parametrize(("parts", "n_success"), [([0, 0, 0], 0), ([5, 4, 9], 3)])
def test_a_ratio_of_nothing_or_everything_is_as_unsure_as_its_units(parts, n_success):
    ratio = ratio_of_sums(parts, [5, 4, 9], "rate")
    sure = wilson(n_success, 3)
    assert (ratio.low, ratio.high, ratio.n) == (sure.low, sure.high, 3)
