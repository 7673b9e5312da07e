import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from agent2.errors import NotEnoughData
from agent2.stats.aggregates import iqm, iqm_value, mean_over_tasks, median_over_tasks, optimality_gap
from stats import rliable_golden as golden

tables = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 6), st.integers(1, 6)),
    elements=st.floats(-3.0, 3.0, allow_nan=False).map(lambda value: round(value, 3)),
)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_iqm_of_eight_scores_is_the_mean_of_the_middle_four():
    assert iqm_value([[1, 2], [3, 4], [5, 6], [7, 100]]) == pytest.approx((3 + 4 + 5 + 6) / 4)
    assert iqm_value([[0.3]]) == pytest.approx(0.3)


def test_values_equal_those_of_rliable():
    x, y = golden.X_RT, golden.Y_RT
    assert iqm_value(x) == pytest.approx(golden.IQM_X, abs=1e-9)
    assert iqm_value(y) == pytest.approx(golden.IQM_Y, abs=1e-9)
    assert mean_over_tasks(x, rng(), 10).estimate.value == pytest.approx(golden.MEAN_X, abs=1e-9)
    assert median_over_tasks(x, rng(), 10).estimate.value == pytest.approx(golden.MEDIAN_X, abs=1e-9)
    assert median_over_tasks(y, rng(), 10).estimate.value == pytest.approx(golden.MEDIAN_Y, abs=1e-9)
    assert optimality_gap(x, rng(), 10).estimate.value == pytest.approx(golden.GAP_X, abs=1e-9)
    assert optimality_gap(x, rng(), 10, gamma=0.5).estimate.value == pytest.approx(golden.GAP_X_HALF, abs=1e-9)


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (iqm, golden.IQM_INTERVAL),
        (mean_over_tasks, golden.MEAN_INTERVAL),
        (median_over_tasks, golden.MEDIAN_INTERVAL),
        (optimality_gap, golden.GAP_INTERVAL),
    ],
)
def test_intervals_equal_those_of_rliable_to_monte_carlo_error(aggregate, expected):
    result = aggregate(golden.X_RT, rng(), 200_000)
    assert [result.estimate.low, result.estimate.high] == pytest.approx(expected, abs=0.003)


def test_values_equal_the_rliable_package_where_it_imports():
    metrics = pytest.importorskip("rliable.metrics", exc_type=Exception)
    scores = rng(3).normal(size=(7, 5))
    assert iqm_value(scores) == pytest.approx(metrics.aggregate_iqm(scores), abs=1e-9)
    assert optimality_gap(scores, rng(), 10).estimate.value == pytest.approx(
        metrics.aggregate_optimality_gap(scores), abs=1e-9
    )
    assert median_over_tasks(scores, rng(), 10).estimate.value == pytest.approx(
        metrics.aggregate_median(scores), abs=1e-9
    )


def test_the_mean_interval_approaches_the_normal_one():
    scores = rng(1).normal(size=(20, 10))
    result = mean_over_tasks(scores, rng(2), 20_000)
    half_width = 1.96 * np.sqrt(scores.var(axis=0).mean() / 20 / 10)
    assert result.estimate.low == pytest.approx(result.estimate.value - half_width, abs=0.1 * half_width)
    assert result.estimate.high == pytest.approx(result.estimate.value + half_width, abs=0.1 * half_width)


def test_a_missing_score_is_counted_and_is_no_zero():
    scores = [[1.0, 2.0], [1.0, np.nan], [1.0, 2.0]]
    result = mean_over_tasks(scores, rng(), 1000)
    assert (result.estimate.value, result.estimate.low, result.estimate.high, result.estimate.n_missing) == (
        1.5,
        1.5,
        1.5,
        1,
    )
    assert "1 missing" in str(result)
    assert iqm([[1.0, None], [3.0, 2.0]], rng(), 100).estimate.n_missing == 1


def test_tasks_weigh_the_same_in_the_mean_however_many_runs_are_missing():
    assert mean_over_tasks([[0.0, 1.0], [0.0, np.nan], [0.0, np.nan]], rng(), 10).estimate.value == 0.5


def test_equal_scores_have_an_interval_of_no_width():
    for aggregate in (iqm, mean_over_tasks, median_over_tasks):
        result = aggregate(np.full((4, 3), -0.25), rng(), 100)
        assert (result.estimate.value, result.estimate.low, result.estimate.high) == (-0.25, -0.25, -0.25)


def test_a_task_of_zero_variance_adds_no_width():
    spread = rng(5).normal(size=(10, 1))
    alone = mean_over_tasks(spread, rng(), 20_000)
    beside = mean_over_tasks(np.hstack([spread, np.ones((10, 1))]), rng(), 20_000)
    assert beside.estimate.high - beside.estimate.low == pytest.approx(
        (alone.estimate.high - alone.estimate.low) / 2, rel=0.05
    )


def test_one_task_is_enough_and_few_runs_are_warned_about():
    result = iqm([[0.1], [0.2], [0.4]], rng(), 1000)
    assert (result.estimate.n, result.n_tasks) == (3, 1)
    assert "fewer than 10 runs" in str(result)
    assert iqm(np.arange(10.0)[:, None], rng(), 100).warning == ""


def test_one_run_has_a_value_but_no_interval():
    assert iqm_value([[0.1, 0.2, 0.3, 0.4]]) == pytest.approx(0.25)
    with pytest.raises(NotEnoughData, match="at least 2"):
        iqm([[0.1, 0.2]], rng())


@pytest.mark.parametrize("scores", [[], [[]], np.empty((0, 3)), np.empty((3, 0))])
def test_an_empty_table_is_refused(scores):
    with pytest.raises((NotEnoughData, ValueError)):
        iqm(scores, rng())


def test_a_task_without_scores_is_refused_by_name():
    with pytest.raises(NotEnoughData, match=r"columns \[1\]"):
        iqm([[0.1, np.nan], [0.2, np.nan]], rng())


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="infinite"):
        iqm([[0.1, np.inf], [0.2, 0.1]], rng())
    with pytest.raises(ValueError, match="runs x tasks"):
        iqm([0.1, 0.2], rng())
    with pytest.raises(ValueError, match="n_replicates"):
        iqm([[0.1], [0.2]], rng(), 0)
    with pytest.raises(ValueError, match="gamma"):
        optimality_gap([[0.1], [0.2]], rng(), gamma=np.nan)
    with pytest.raises(ValueError, match="confidence"):
        iqm([[0.1], [0.2]], rng(), 10, 1.0)


def test_the_optimality_gap_of_scores_at_gamma_is_zero_and_grows_beyond_one_for_negative_scores():
    assert optimality_gap([[1.0, 5.0], [2.0, 1.0]], rng(), 100).estimate.value == 0.0
    assert optimality_gap([[-1.0], [-2.0]], rng(), 100).estimate.value == 2.5


@settings(max_examples=40, deadline=None)
@given(tables, st.randoms(use_true_random=False))
def test_aggregates_do_not_depend_on_the_order_of_runs(scores, random):
    shuffled = np.array(scores)
    for task in range(scores.shape[1]):
        column = shuffled[:, task].tolist()
        random.shuffle(column)
        shuffled[:, task] = column
    for aggregate in (iqm, mean_over_tasks, median_over_tasks, optimality_gap):
        assert aggregate(scores, rng(), 20).estimate.value == pytest.approx(
            aggregate(shuffled, rng(), 20).estimate.value, abs=1e-12
        )


@settings(max_examples=40, deadline=None)
@given(tables)
def test_values_and_intervals_stay_within_the_scores(scores):
    for aggregate in (iqm, mean_over_tasks, median_over_tasks):
        result = aggregate(scores, rng(), 50)
        tolerance = 1e-9
        assert scores.min() - tolerance <= result.estimate.low <= result.estimate.high <= scores.max() + tolerance
        assert scores.min() - tolerance <= result.estimate.value <= scores.max() + tolerance


@settings(max_examples=40, deadline=None)
@given(tables, st.floats(0.1, 2.0))
def test_raising_a_score_never_lowers_the_iqm(scores, rise):
    raised = scores.copy()
    raised[0, 0] += rise
    assert iqm_value(raised) >= iqm_value(scores) - 1e-12


def test_runs_that_are_missing_do_not_hide_that_they_are_few():
    scores = np.arange(24.0).reshape(12, 2)
    scores[3:, 1] = np.nan
    assert "fewer than 10 runs" in iqm(scores, rng(), 100).warning
