"""A log that grows line by line is the log that is made at once: points, notes, figures and trends."""

import math

import numpy as np
import pytest

from agent2.monitor.series import MEDIAN_POINTS, GrowingLog, Reading, Series, assemble, trend


def readings_of(seed, n=100):
    """Two quantities with relaunches, repeated steps and values that are not finite."""
    rng = np.random.default_rng(seed)
    readings, step = [], 0
    for i in range(n):
        step = max(0, step - int(rng.integers(1, 30))) if rng.random() < 0.05 else step + int(rng.integers(0, 4))
        for name in ("reward", "kl"):
            value = float(rng.choice([math.nan, math.inf])) if rng.random() < 0.03 else float(rng.normal())
            readings.append(Reading(step, name, round(value, 1) if seed % 2 else value, f"line {i}"))
    return readings


def points_of(readings, name):
    """What `assemble` promises of one series, said in the shortest way."""
    points = {r.step: r.value for r in readings if r.name == name and math.isfinite(r.value)}
    return sorted(points.items())


def figures_of(series):
    return [
        series.highest(),
        series.lowest(but_last=2),
        series.mean_squared_difference(1, but_last=3),
        series.mean_squared_difference(2),
        series.highest_median(but_last=3),
        series.highest_mean(8),
        series.last_mean(8),
        trend(series, None),
        trend(series, 20),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_a_log_line_by_line_is_the_log_at_once_to_the_last_bit(seed):
    readings = readings_of(seed)
    growing = GrowingLog("run")
    for n in range(0, len(readings), 2):
        growing.extend(readings[n : n + 2])
        live, whole = growing.view(), assemble("run", readings[: n + 2])
        assert (live.notes, live.not_finite) == (whole.notes, whole.not_finite)
        assert list(live.series) == list(whole.series)
        for name, series in whole.series.items():
            expected = points_of(readings[: n + 2], name)
            for log in (live, whole):
                assert list(zip(log.series[name].steps, log.series[name].values, strict=True)) == expected
            if len(series) >= 12 and n % 5 == 0:
                assert figures_of(live.series[name]) == figures_of(series)


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_what_numpy_makes_of_the_values(seed):
    series = assemble("run", readings_of(seed)).series["reward"]
    values = series.values
    medians = [np.median(values[i - MEDIAN_POINTS + 1 : i + 1]) for i in range(MEDIAN_POINTS - 1, len(values))]
    means = np.convolve(values, np.full(8, 1 / 8), mode="valid")
    assert series.highest() == values.max() and series.highest(but_last=2) == values[:-2].max()
    assert series.lowest() == values.min() and series.lowest(but_last=5) == values[:-5].min()
    assert series.mean_squared_difference(1, but_last=3) == pytest.approx(np.mean(np.diff(values[:-3]) ** 2))
    assert series.mean_squared_difference(2, but_last=2) == pytest.approx(np.mean(np.diff(values[:-2], n=2) ** 2))
    assert series.highest_median(but_last=3) == max(medians[:-3])
    assert series.highest_mean(8) == pytest.approx(means.max()) and series.last_mean(8) == pytest.approx(means[-1])


def test_a_series_until_a_step_has_the_figures_of_its_own_points():
    values = np.array([1.0, 5.0, 2.0, 9.0, 3.0, 4.0, 7.0, 0.0])
    series = Series("reward", np.arange(8), values)
    assert series.highest() == 9.0
    earlier = series.until(2)
    assert (earlier.highest(), earlier.lowest(), earlier.mean_squared_difference(1)) == (5.0, 1.0, (16 + 9) / 2)
    assert trend(series, None) != trend(series.until(6), None)
    assert trend(series.until(6), None) == trend(Series("reward", np.arange(7), values[:7]), None)


def test_a_rewritten_step_changes_the_figures_from_there_on():
    log = GrowingLog("run")
    log.extend(Reading(step, "reward", value, "") for step, value in enumerate([1.0, 9.0, 2.0, 3.0]))
    assert log.view().series["reward"].highest() == 9.0
    log.extend([Reading(1, "reward", 0.0, "")])
    series = log.view().series["reward"]
    assert (series.highest(), series.lowest(), series.values.tolist()) == (3.0, 0.0, [1.0, 0.0, 2.0, 3.0])
    log.extend([Reading(3, "reward", -1.0, "")])
    assert log.view().series["reward"].lowest() == -1.0


def test_a_snapshot_stays_when_the_log_goes_on():
    log = GrowingLog("run")
    log.extend([Reading(1, "reward", 0.5, ""), Reading(2, "reward", 0.6, "")])
    kept = log.snapshot()
    log.extend([Reading(1, "reward", 0.9, ""), Reading(3, "reward", 0.7, "")])
    assert kept.series["reward"].values.tolist() == [0.5, 0.6] and kept.notes == ()
    assert log.view().series["reward"].values.tolist() == [0.9, 0.6, 0.7]
