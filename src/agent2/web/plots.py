"""Small figures of the app's own pages: values over runs or steps, with intervals and marks, as places in a drawing.

The template draws them as inline SVG (`web.html.j2`), so that they follow the page's colours, fit a phone and cost no
plotting library, which takes longer to load than the page. Figures of reports: `agent2.reports.charts`.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WIDTH, HEIGHT = 320.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 310.0, 10.0, 124.0
MOST_POINTS = 400
MOST_BINS = 12


@dataclass(frozen=True, slots=True)
class PlotValue:
    """One value; a gap in the line where it is None."""

    x: float
    value: float | None
    interval: tuple[float, float] | None = None
    words: str = ""
    """What a pointer that rests on it is told."""
    is_hollow: bool = False
    """Drawn as not comparable with the others."""


@dataclass(frozen=True, slots=True)
class PlotPoint:
    """A value's place in the drawing."""

    x: float
    y: float
    arm: tuple[float, float] | None
    """Where its interval begins and ends, downwards."""
    words: str
    is_hollow: bool


@dataclass(frozen=True, slots=True)
class PlotPanel:
    """One figure, ready to be drawn."""

    title: str
    points: tuple[PlotPoint, ...]
    path: str
    """Of the line through the values, broken where one is missing."""
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    marks: tuple[tuple[float, str], ...]
    """Places of vertical lines, and what each is."""
    has_dots: bool
    words: str
    """For who does not see it."""


def panel(
    title: str,
    values: Sequence[PlotValue],
    *,
    x_range: tuple[float, float] | None = None,
    marks: Sequence[tuple[float, str]] = (),
    is_percent: bool = False,
) -> PlotPanel:
    """Values from left to right. x_range: of several panels on one axis. Thinned to `MOST_POINTS`."""
    step = -(-len(values) // MOST_POINTS) if values else 1
    kept = [*values[::step], *(values[-1:] if step > 1 and (len(values) - 1) % step else ())]
    known = [
        end for one in kept for end in (one.value, *(one.interval or ())) if end is not None and math.isfinite(end)
    ]
    xs = [one.x for one in kept] + [place for place, _ in marks]
    first, last = x_range or ((min(xs), max(xs)) if xs else (0.0, 1.0))
    y_ticks = _ticks(min(known, default=0.0), max(known, default=1.0))
    low, high = y_ticks[0], y_ticks[-1]

    def across(x: float) -> float:
        return round(
            (LEFT + RIGHT) / 2 if last <= first else LEFT + 6 + (RIGHT - LEFT - 12) * (x - first) / (last - first), 1
        )

    def up(y: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (y - low) / (high - low), 1)

    def told(value: float) -> str:
        return f"{100 * value:.4g}%" if is_percent else f"{value:.4g}"

    points, path, is_begun = [], [], False
    for one in kept:
        if one.value is None or not math.isfinite(one.value):
            is_begun = False
            continue
        arm = None if one.interval is None else (up(one.interval[0]), up(one.interval[1]))
        words = one.words or f"{one.x:g}: {told(one.value)}"
        points.append(PlotPoint(across(one.x), up(one.value), arm, words, one.is_hollow))
        path.append(f"{'L' if is_begun else 'M'}{across(one.x)} {up(one.value)}")
        is_begun = True
    places = [one for one in _ticks(first, last) if first <= one <= last] if last > first else [first]
    if all(float(x).is_integer() for x in xs):
        places = [one for one in places if float(one).is_integer()]
    said = [one for one in kept if one.value is not None]
    words = f"{title}: {len(said)} values" + (
        f", {told(said[0].value or 0.0)} first, {told(said[-1].value or 0.0)} last" if said else ""
    )
    return PlotPanel(
        title=title,
        points=tuple(points),
        path=" ".join(path),
        x_ticks=tuple((across(one), f"{one:g}") for one in places),
        y_ticks=tuple((up(one), told(one)) for one in y_ticks),
        marks=tuple((across(place), name) for place, name in marks),
        has_dots=len(points) <= 60,
        words=words + (f"; marked: {', '.join(name for _, name in marks)}" if marks else ""),
    )


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers that cover a range."""
    span = high - low if high > low else max(abs(high), 1.0) * 0.2
    rough = span / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * one for one in (1, 2, 5, 10) if size * one >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    last += first == last
    return [round(number * step, 12) for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class HistogramBin:
    """Values from low to high."""

    words: str
    n: int
    share: float
    """Of the fullest bin, in percent."""


def histogram(values: Sequence[float]) -> tuple[HistogramBin, ...]:
    """How often each value comes; from more than `MOST_BINS` different ones on, in as many equal ranges."""
    rounded = np.round(np.asarray(values, dtype=np.float64), 9)
    different, counts = np.unique(rounded, return_counts=True)
    names = [f"{one:.4g}" for one in different]
    if different.size > MOST_BINS:
        edges = np.round(np.linspace(different[0], different[-1], MOST_BINS + 1), 9)
        counts, _ = np.histogram(rounded, edges)
        names = [f"{low:.3g}–{high:.3g}" for low, high in itertools.pairwise(edges.tolist())]
    most = int(counts.max(initial=1))
    return tuple(HistogramBin(name, int(n), round(100 * n / most, 1)) for name, n in zip(names, counts, strict=True))
