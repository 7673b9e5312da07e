import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.aggregates import performance_profile, probability_of_improvement, probability_of_improvement_value
from stats import rliable_golden as golden

tables = hnp.arrays(np.float64, st.tuples(st.integers(2, 5), st.just(3)), elements=st.integers(-4, 4).map(float))


def rng(seed=0):
    return np.random.default_rng(seed)


def test_the_profile_and_its_band_equal_those_of_rliable():
    profile = performance_profile(golden.X_RT, golden.THRESHOLDS, rng(), 50_000)
    assert [estimate.value for estimate in profile.share] == pytest.approx(golden.PROFILE_X, abs=1e-9)
    low, high = zip(*(estimate.interval for estimate in profile.share), strict=True)
    assert low == pytest.approx(golden.PROFILE_LOW, abs=1e-9)  # the shares are twentieths: no noise is left
    assert high == pytest.approx(golden.PROFILE_HIGH, abs=1e-9)


def test_the_probability_of_improvement_equals_that_of_rliable():
    x, y = golden.X_RT, golden.Y_RT
    assert probability_of_improvement_value(x, y) == pytest.approx(golden.X_BEATS_Y, abs=1e-9)
    assert probability_of_improvement_value(y, x) == pytest.approx(golden.Y_BEATS_X, abs=1e-9)
    result = probability_of_improvement(x, y, rng(), 50_000)
    assert [result.estimate.low, result.estimate.high] == pytest.approx(golden.X_BEATS_Y_INTERVAL, abs=0.01)
    assert result.estimate.value == pytest.approx(golden.X_BEATS_Y, abs=1e-9)


def test_the_rliable_package_agrees_where_it_imports():
    metrics = pytest.importorskip("rliable.metrics", exc_type=Exception)
    x, y = rng(1).normal(size=(6, 4)), rng(2).normal(size=(5, 4))
    assert probability_of_improvement_value(x, y) == pytest.approx(metrics.probability_of_improvement(x, y), abs=1e-9)


def test_a_threshold_that_is_a_score_is_not_passed_by_it():
    profile = performance_profile([[0.1, 0.5], [0.5, 0.9]], [0.5, 0.0, 0.9], rng(), 100)
    assert [estimate.value for estimate in profile.share] == [0.25, 1.0, 0.0]
    assert [estimate.interval for estimate in profile.share[1:]] == [(1.0, 1.0), (0.0, 0.0)]
    assert "above 0" in str(profile)
    assert "n=2" in str(profile) and "2 tasks" in str(profile)


def test_the_band_of_one_task_is_binomial():
    scores = (np.arange(20.0) < 14)[:, None]
    profile = performance_profile(scores.astype(float), [0.5], rng(), 50_000)
    tails = stats.binom.ppf([0.025, 0.975], 20, 0.7) / 20
    assert [profile.share[0].low, profile.share[0].high] == pytest.approx(tails)


def test_ties_count_half_and_the_two_directions_add_up():
    assert probability_of_improvement_value([[1.0], [2.0]], [[1.0], [0.0]]) == pytest.approx((0.5 + 1 + 1 + 1) / 4)
    assert probability_of_improvement_value([[1.0], [1.0]], [[1.0]]) == 0.5


def test_a_certain_improvement_has_an_interval_of_no_width():
    result = probability_of_improvement([[2.0], [3.0]], [[0.0], [1.0], [-1.0]], rng(), 500)
    assert (result.estimate.value, result.estimate.low, result.estimate.high, result.estimate.n) == (1.0, 1.0, 1.0, 2)


def test_missing_runs_are_counted_on_both_sides():
    result = probability_of_improvement([[2.0, np.nan], [3.0, 1.0]], [[0.0, 0.0], [np.nan, 0.0]], rng(), 50)
    assert (result.estimate.n_missing, result.estimate.value) == (2, 1.0)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="tasks"):
        probability_of_improvement([[1.0, 2.0], [1.0, 2.0]], [[1.0], [2.0]], rng())
    with pytest.raises(NotEnoughData, match="scores_y_RT has one run"):
        probability_of_improvement([[1.0], [2.0]], [[1.0]], rng())
    with pytest.raises(NotEnoughData, match="thresholds"):
        performance_profile([[1.0], [2.0]], [], rng())
    with pytest.raises(NotEnoughData, match="thresholds"):
        performance_profile([[1.0], [2.0]], [np.nan], rng())
    with pytest.raises(NotEnoughData):
        performance_profile([[1.0, 2.0]], [0.5], rng())


@settings(max_examples=40, deadline=None)
@given(tables)
def test_a_profile_falls_and_stays_between_zero_and_one(scores):
    profile = performance_profile(scores, np.linspace(-5, 5, 11), rng(), 50)
    shares = [estimate.value for estimate in profile.share]
    assert (shares[0], shares[-1]) == (1.0, 0.0)
    for values in (shares, [estimate.low for estimate in profile.share], [estimate.high for estimate in profile.share]):
        assert (np.diff(values) <= 1e-12).all()
        assert 0.0 <= min(values) <= max(values) <= 1.0


@settings(max_examples=40, deadline=None)
@given(tables, tables)
def test_improvement_and_its_reverse_add_to_one(x, y):
    probability, reverse = probability_of_improvement_value(x, y), probability_of_improvement_value(y, x)
    assert probability + reverse == pytest.approx(1.0)
    by_scipy = [stats.mannwhitneyu(x[:, t], y[:, t]).statistic / (len(x) * len(y)) for t in range(3)]
    assert probability == pytest.approx(np.mean(by_scipy))


def test_missing_runs_do_not_hide_that_they_are_few():
    scores = np.arange(24.0).reshape(12, 2)
    scores[3:, 1] = np.nan
    profile = performance_profile(scores, [5.0], rng(), 100)
    assert "fewer than 10 runs" in profile.warning
    assert "9 missing" in str(profile)
    assert "fewer than 10 runs" in probability_of_improvement(np.ones((12, 2)), scores, rng(), 100).warning
