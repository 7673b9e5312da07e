import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.estimates import UNIT
from agent2.stats.gains import incumbent_curve, mean_incumbent_curve


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
    assert [estimate.value for estimate in mean_incumbent_curve(curves, [2, 5])] == pytest.approx([0.5, 0.5])
    half = stats.t.ppf(0.975, 1) * 0.1
    assert mean_incumbent_curve(curves, [2])[0].interval == pytest.approx((0.5 - half, 0.5 + half))
    assert mean_incumbent_curve(curves, [2], UNIT)[0].interval == (0.0, 1.0), "rates stay rates"
    assert mean_incumbent_curve(curves[:1], [2])[0].low is None, "one search says nothing of the spread"
    with pytest.raises(NotEnoughData, match="1 of 2 searches"):
        mean_incumbent_curve(curves, [1, 5])
    with pytest.raises(NotEnoughData):
        mean_incumbent_curve([], [1])
    with pytest.raises(ValueError, match="negative"):
        incumbent_curve([-1], [0.5])
    with pytest.raises(ValueError, match="match"):
        incumbent_curve([1, 2], [0.5])
    with pytest.raises(NotEnoughData, match="empty"):
        incumbent_curve([], [])


def test_what_is_known_at_the_start_costs_nothing_and_is_the_first_incumbent():
    curve = incumbent_curve([3, 2], [0.1, 0.5], start=0.3)
    assert curve.costs_T.tolist() == [0, 3, 5] and curve.best_T.tolist() == [0.3, 0.3, 0.5]
    assert incumbent_curve([], [], start=0.3).at(9) == 0.3
