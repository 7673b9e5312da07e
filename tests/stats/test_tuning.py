import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.gains import choose_incumbent, incumbent_curve, mean_incumbent_curve, tuning_gap

TUNING = {"slow": {1: 0.4, 2: 0.5}, "fast": {1: 0.9, 2: 0.7}}


def test_the_gap_is_the_tuning_mean_minus_the_test_mean():
    result = tuning_gap(TUNING, {11: 0.5, 12: 0.7, 13: 0.6})
    assert result.incumbent == "fast"
    assert result.tune_mean == pytest.approx(0.8)
    assert result.test.value == pytest.approx(0.6)
    assert result.gap.value == pytest.approx(0.2)
    half = stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3)
    assert (result.test.low, result.test.high) == pytest.approx((0.6 - half, 0.6 + half))
    welch = stats.ttest_ind([0.9, 0.7], [0.5, 0.7, 0.6], equal_var=False).confidence_interval(0.95)
    assert (result.gap.low, result.gap.high) == pytest.approx((welch.low, welch.high))
    assert "n=3" in str(result) and "best of 2" in str(result)


def test_the_best_of_many_equal_configurations_overfits_its_seeds():
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(50):
        tuning = {str(c): dict(enumerate(rng.normal(0, 1, 3))) for c in range(30)}
        gaps.append(tuning_gap(tuning, dict(enumerate(rng.normal(0, 1, 5), start=100))).gap.value)
    assert np.mean(gaps) > 0.8  # the largest of 30 means of 3: about 2.04 / sqrt 3


def test_shared_seeds_are_refused():
    with pytest.raises(ValueError, match=r"seeds \[2\] are both"):
        tuning_gap(TUNING, {2: 0.5, 12: 0.7})


def test_conventions_at_the_edges():
    flat = tuning_gap({"a": {1: 0.5}}, {2: 0.5, 3: 0.5})
    assert (flat.gap.value, flat.gap.low, flat.gap.high) == (0.0, 0.0, 0.0)
    assert choose_incumbent({"a": {1: 0.5}, "b": {1: 0.5}}) == "a"
    assert choose_incumbent({"a": {1: -2.0}, "b": {1: -1.0}}) == "b"


def test_bad_tuning_is_refused():
    with pytest.raises(NotEnoughData, match="no configuration"):
        tuning_gap({}, {1: 0.5, 2: 0.5})
    with pytest.raises(NotEnoughData, match="at least 2 test seeds"):
        tuning_gap(TUNING, {3: 0.5})
    with pytest.raises(NotEnoughData, match="tuning scores of slow"):
        choose_incumbent({"slow": {1: math.nan}})
    with pytest.raises(NotEnoughData, match="empty"):
        choose_incumbent({"slow": {}})
    with pytest.raises(ValueError, match="use the same"):
        choose_incumbent({"a": {1: 0.5}, "b": {2: 0.5}})
    with pytest.raises(ValueError, match="confidence"):
        tuning_gap(TUNING, {3: 0.5, 4: 0.5}, confidence=95)


def test_the_anytime_curve_holds_the_best_so_far():
    curve = incumbent_curve([1, 2, 3, 4], [0.5, 0.4, 0.7, 0.7])
    assert curve.costs_T.tolist() == [1, 3, 6, 10]
    assert curve.best_T.tolist() == [0.5, 0.5, 0.7, 0.7]
    assert curve.incumbents_T.tolist() == [0, 0, 2, 2]
    assert (curve.at(0.5), curve.at(1), curve.at(5.9), curve.at(99)) == (None, 0.5, 0.5, 0.7)
    assert "n=4" in str(curve)


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(-5, 5)), min_size=1, max_size=20))
def test_the_incumbent_never_gets_worse(trials):
    costs, means = zip(*trials, strict=True)
    curve = incumbent_curve(costs, means)
    assert np.all(np.diff(curve.best_T) >= 0)
    assert curve.best_T[-1] == max(means)
    assert [means[i] for i in curve.incumbents_T] == curve.best_T.tolist()


def test_searches_are_averaged_on_a_grid_of_cost():
    curves = [incumbent_curve([1, 1], [0.2, 0.6]), incumbent_curve([2], [0.4])]
    assert mean_incumbent_curve(curves, [2, 5]).tolist() == pytest.approx([0.5, 0.5])
    with pytest.raises(NotEnoughData, match="1 of 2 searches"):
        mean_incumbent_curve(curves, [1, 5])
    with pytest.raises(NotEnoughData):
        mean_incumbent_curve([], [1])
    with pytest.raises(ValueError, match="positive"):
        incumbent_curve([0], [0.5])
    with pytest.raises(ValueError, match="match"):
        incumbent_curve([1, 2], [0.5])
    with pytest.raises(NotEnoughData, match="empty"):
        incumbent_curve([], [])
