"""Series of a training run: one quantity over optimiser steps, with the figures and trends that are read from it.

A log grows line by line (`GrowingLog`) or is made of all its readings at once (`assemble`), by the same code. What is
read from all points so far (the best value, the noise, the best running median) is computed once for each point and
kept, so judging one more line costs the same however long the log is, and gives the same number to the last bit whether
the points came one by one or together. A reading at an earlier step, as after a relaunch, is put in its place; figures
are computed anew from there on.

Kendall's rank test (scipy) says whether there is a trend, Theil and Sen's median slope (scipy) how steep; both
are robust to outliers. Values of neighbouring steps are correlated in real runs, so the test is a filter with a known
error only for independent noise: the detectors never rely on it alone.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

MAD_TO_SIGMA = 1.4826
"""Makes the median absolute deviation of a Gaussian its standard deviation."""
MIN_TREND_POINTS = 6
MAX_TREND_POINTS = 200
"""Of one trend: the median slope costs the square of it."""
MEDIAN_POINTS = 3
"""Of the running median."""
_FIRST_ROOM = 64
"""Points that a column has room for at first; it doubles when they are more."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Direction of a window of a series."""

    slope: float
    """Median slope, units of the series a step."""
    p_value: float
    start: float
    """Median of the window's first points (a tenth, at least three): seen values, never the fitted line's."""
    end: float
    """The same of its last points."""

    def rises(self, p: float) -> bool:
        """Whether it goes up, at level p."""
        return self.slope > 0 and self.p_value < p

    def falls(self, p: float) -> bool:
        """Whether it goes down, at level p."""
        return self.slope < 0 and self.p_value < p


def _means(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    n_windows = len(values) - window + 1
    total = np.zeros(n_windows)
    for offset in range(window):  # in this order for one window as for many, which no sum or convolution promises
        total += values[offset : offset + n_windows]
    return total / window


_Terms = Callable[[NDArray[np.float64], int], NDArray[np.float64]]
_FIGURES: Mapping[str, tuple[_Terms, np.ufunc]] = {
    "highest": (lambda values, window: values, np.maximum),
    "lowest": (lambda values, window: values, np.minimum),
    "squared_differences": (lambda values, window: np.diff(values, n=window - 1) ** 2, np.add),
    "highest_median": (lambda values, window: np.median(sliding_window_view(values, window), axis=1), np.maximum),
    "highest_mean": (_means, np.maximum),
}
"""Name -> a term for each window of values, and how the terms so far are put together."""


class RunningFigures:
    """Figures of the first n points of one series, for each n; each is begun when it is first asked for."""

    __slots__ = ("_figures", "trends")

    def __init__(self) -> None:
        self._figures: dict[tuple[str, int], tuple[NDArray[np.float64], int]] = {}
        """(name, window) -> the figures, and the number of points that they have been computed for."""
        self.trends: dict[int | None, tuple[int, Trend | None]] = {}
        """Window -> number of points and their latest trend, which several detectors and gates ask for."""

    def of_first(self, n_points: int, values: NDArray[np.float64], name: str, window: int) -> float:
        """The figure of the first n_points of the values; they are at least `window`, the points of one term."""
        figures, n_done = self._figures.get((name, window), (np.empty(0), 0))
        if n_points > n_done:
            make_terms, ufunc = _FIGURES[name]
            begin, end = max(n_done, window - 1), len(values)
            terms = make_terms(values[begin - window + 1 :], window)
            if n_done >= window:
                # Accumulated from the last figure on, never summed pairwise as np.sum does: the order of the additions,
                # and so the last bit, must not depend on how many points came together.
                terms = np.concatenate((figures[begin - 1 : begin], terms))
                begin -= 1
            figures = _with_room(figures, end)
            figures[begin:end] = ufunc.accumulate(terms)
            self._figures[name, window] = figures, end
        return float(figures[n_points - 1])

    def keep_first(self, n_points: int) -> None:
        """Forget what was computed with any point after the first n_points: they have changed."""
        self.trends.clear()
        for key, (figures, n_done) in self._figures.items():
            self._figures[key] = figures, min(n_done, n_points)


def _with_room(array: NDArray[Any], n_points: int) -> NDArray[Any]:
    if n_points <= len(array):
        return array
    larger = np.empty(max(_FIRST_ROOM, 2 * n_points), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity over a run; steps strictly ascending, values finite."""

    name: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    running: RunningFigures = field(default_factory=RunningFigures, repr=False, compare=False)
    """Shared by all series that are the first points of one, whatever their number."""

    def __len__(self) -> int:
        return len(self.steps)

    def until(self, step: int) -> "Series":
        """What was known at a step, itself included."""
        n = int(np.searchsorted(self.steps, step, side="right"))
        return Series(self.name, self.steps[:n], self.values[:n], self.running)

    def copy(self) -> "Series":
        """The same points, which stay as they are when the log goes on."""
        return Series(self.name, self.steps.copy(), self.values.copy())

    def highest(self, *, but_last: int = 0) -> float:
        """The highest value, without those of the last points."""
        return self._figure("highest", 1, but_last)

    def lowest(self, *, but_last: int = 0) -> float:
        """The lowest value, without those of the last points."""
        return self._figure("lowest", 1, but_last)

    def mean_squared_difference(self, order: int, *, but_last: int = 0) -> float:
        """Mean square of the differences of an order, from one point to the next; needs more points than `order`."""
        n_differences = len(self) - but_last - order
        return self._figure("squared_differences", order + 1, but_last) / n_differences

    def highest_median(self, *, but_last: int = 0) -> float:
        """The highest running median of `MEDIAN_POINTS` points."""
        return self._figure("highest_median", MEDIAN_POINTS, but_last)

    def highest_mean(self, n_points: int) -> float:
        """The highest running mean of n_points points."""
        return self._figure("highest_mean", n_points, 0)

    def last_mean(self, n_points: int) -> float:
        """The running mean of the last n_points points, as `highest_mean` computes it."""
        return float(_means(self.values[-n_points:], n_points)[0])

    def _figure(self, name: str, window: int, but_last: int) -> float:
        return self.running.of_first(len(self) - but_last, self.values, name, window)


@dataclass(frozen=True, slots=True)
class Reading:
    """One number of a log."""

    step: int
    name: str
    value: float
    where: str
    """Line or record, for messages."""


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """All series of one run."""

    name: str
    series: Mapping[str, Series]
    notes: Sequence[str] = field(default_factory=tuple)
    """What the reader corrected or left out: steps out of order, values that are not numbers."""
    not_finite: Sequence[Reading] = ()
    """The first NaN or infinity of each quantity; they are in no series."""

    def get(self, name: str) -> Series | None:
        """The series of a name; None if the run did not log it."""
        return self.series.get(name)

    @property
    def last_step(self) -> int:
        """The latest step of any series."""
        return max((int(series.steps[-1]) for series in self.series.values() if len(series)), default=0)

    def until(self, step: int) -> "TrainingLog":
        """The run as it was known at a step."""
        cut = {name: series.until(step) for name, series in self.series.items()}
        broken = tuple(reading for reading in self.not_finite if reading.step <= step)
        return TrainingLog(self.name, {name: s for name, s in cut.items() if len(s)}, self.notes, broken)


class _Column:
    """The points of one series so far, with room for more."""

    __slots__ = ("_n_points", "_name", "_running", "_steps", "_values", "last_step", "steps_logged")

    def __init__(self, name: str) -> None:
        self._name = name
        self._steps: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._values: NDArray[np.float64] = np.empty(0)
        self._n_points = 0
        self._running = RunningFigures()
        self.steps_logged: set[int] = set()
        self.last_step: int | None = None

    def put(self, step: int, value: float) -> None:
        """A new point, or another value of the one at this step."""
        n = self._n_points
        is_after_all = n == 0 or step > self._steps[n - 1]
        index = n if is_after_all else int(np.searchsorted(self._steps[:n], step))
        if is_after_all or self._steps[index] != step:
            self._steps, self._values = _with_room(self._steps, n + 1), _with_room(self._values, n + 1)
            self._steps[index + 1 : n + 1] = self._steps[index:n]
            self._values[index + 1 : n + 1] = self._values[index:n]
            self._n_points = n + 1
        self._steps[index], self._values[index] = step, value
        if not is_after_all:
            self._running.keep_first(index)

    def series(self) -> Series:
        """The points so far; valid until the next `put`."""
        return Series(self._name, self._steps[: self._n_points], self._values[: self._n_points], self._running)


class GrowingLog:
    """The log of a run that goes on.

    Steps out of order are sorted; of two readings at one step the later logged one counts; values that are not
    finite are left out. The notes report all three, with the first occurrence.
    """

    def __init__(self, name: str, notes: Sequence[str] = ()) -> None:
        self._name = name
        self._notes = notes
        self._columns: dict[str, _Column] = {}
        self._occurrences: dict[str, tuple[int, str]] = {}
        self._not_finite: dict[str, Reading] = {}

    def extend(self, readings: Iterable[Reading]) -> None:
        """Add readings in the order in which they were logged."""
        finite = [reading for reading in readings if self._admit(reading)]
        for reading in sorted(finite, key=lambda r: r.step):  # stable, and spares a long log that is out of order
            self._columns[reading.name].put(reading.step, reading.value)

    def _admit(self, reading: Reading) -> bool:
        """Note what is odd about a reading; False: it is no point of its series."""
        column = self._columns.get(reading.name)
        if column is None:
            column = self._columns[reading.name] = _Column(reading.name)
        if not math.isfinite(reading.value):
            self._count(f"{reading.name}: value is {reading.value}, left out", reading.where)
            first = self._not_finite.setdefault(reading.name, reading)
            self._not_finite[reading.name] = min(first, reading, key=lambda r: r.step)
            return False
        if column.last_step is not None and reading.step < column.last_step:
            self._count(f"{reading.name}: steps out of order, sorted", reading.where)
        if reading.step in column.steps_logged:
            self._count(f"{reading.name}: a step appears twice, the later line counts", reading.where)
        column.steps_logged.add(reading.step)
        column.last_step = reading.step if column.last_step is None else max(reading.step, column.last_step)
        return True

    def _count(self, text: str, where: str) -> None:
        n, first = self._occurrences.get(text, (0, where))
        self._occurrences[text] = (n + 1, first)

    def view(self) -> TrainingLog:
        """The log so far, at no cost; valid until more is added (`snapshot` stays)."""
        series = {name: column.series() for name, column in self._columns.items() if column.steps_logged}
        remarks = [f"{text} ({n} times, first at {where})" for text, (n, where) in self._occurrences.items()]
        not_finite = tuple(sorted(self._not_finite.values(), key=lambda r: r.step))
        return TrainingLog(self._name, series, (*self._notes, *remarks), not_finite)

    def snapshot(self) -> TrainingLog:
        """The log so far, as it stays."""
        view = self.view()
        series = {name: series.copy() for name, series in view.series.items()}
        return TrainingLog(view.name, series, view.notes, view.not_finite)


def assemble(name: str, readings: Iterable[Reading], notes: Sequence[str] = ()) -> TrainingLog:
    """The log of readings in the order in which they were logged, as `GrowingLog` keeps it."""
    log = GrowingLog(name, notes)
    log.extend(readings)
    return log.view()


def trend(series: Series, window: int | None) -> Trend | None:
    """Of the last `window` points, or of all since the start (None), thinned evenly to `MAX_TREND_POINTS`.

    None with fewer than `MIN_TREND_POINTS`, or if all are equal.
    """
    n_points, latest = series.running.trends.get(window, (0, None))
    if n_points != len(series):
        latest = _trend(series, window)
        series.running.trends[window] = len(series), latest
    return latest


def _trend(series: Series, window: int | None) -> Trend | None:
    from scipy import stats  # half a second to load, and every program of an agent that may stop early loads this

    n_points = len(series) if window is None else min(window, len(series))
    if n_points < MIN_TREND_POINTS:
        return None
    first = len(series) - n_points
    spread = series.highest() - series.lowest() if first == 0 else np.ptp(series.values[first:])
    if spread == 0:
        return None
    indices = np.arange(first, len(series))
    if n_points > MAX_TREND_POINTS:
        indices = first + np.linspace(0, n_points - 1, MAX_TREND_POINTS).round().astype(np.int64)
    steps, values = series.steps[indices].astype(np.float64), series.values[indices]
    slope = stats.theilslopes(values, steps)[0]
    p_value = float(stats.kendalltau(steps, values).pvalue)
    n_ends = max(3, len(values) // 10)
    return Trend(float(slope), p_value, float(np.median(values[:n_ends])), float(np.median(values[-n_ends:])))


def median_before_end(series: Series, n_points: int, back: int = 0) -> float:
    """Median of the n_points that end `back` points before the last one; of what there is if there are fewer."""
    end = max(1, len(series) - back)
    return float(np.median(series.values[max(0, end - n_points) : end]))


def reference(series: Series, n_points: int) -> float | None:
    """Median of the first n_points; None while there are fewer."""
    return float(np.median(series.values[:n_points])) if len(series) >= n_points else None


def robust_spread(values: NDArray[np.float64]) -> tuple[float, float]:
    """(median, robust standard deviation)."""
    median = float(np.median(values))
    return median, float(np.median(np.abs(values - median))) * MAD_TO_SIGMA
