"""Small figures of the app's own pages: values over runs or steps, with intervals and marks, as drawing coordinates.

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
MOST_DOTS = 60
"""Points up to which each has a dot beside the line."""
MOST_BINS = 12


@dataclass(frozen=True, slots=True)
class PlotValue:
    """One value; a gap in the line where it is None."""

    x: float
    value: float | None
    interval: tuple[float, float] | None = None
    tooltip: str = ""
    is_hollow: bool = False
    """Drawn as not comparable with the others."""


@dataclass(frozen=True, slots=True)
class PlotPoint:
    """Coordinates of a value in the drawing."""

    x: float
    y: float
    arm: tuple[float, float] | None
    """Where its interval begins and ends, downwards."""
    tooltip: str
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
    """Positions of vertical lines, and what each is."""
    has_dots: bool
    description: str
    """For screen readers."""


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
    # every `step`-th value, and always the last
    drawn_values = [*values[::step], *(values[-1:] if step > 1 and (len(values) - 1) % step else ())]
    ends = [
        end
        for point in drawn_values
        for end in (point.value, *(point.interval or ()))
        if end is not None and math.isfinite(end)
    ]
    xs = [point.x for point in drawn_values] + [x for x, _ in marks]
    first, last = x_range or ((min(xs), max(xs)) if xs else (0.0, 1.0))
    y_ticks = _ticks(min(ends, default=0.0), max(ends, default=1.0))
    low, high = y_ticks[0], y_ticks[-1]

    def across(x: float) -> float:
        return round(
            (LEFT + RIGHT) / 2 if last <= first else LEFT + 6 + (RIGHT - LEFT - 12) * (x - first) / (last - first), 1
        )

    def up(y: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * (y - low) / (high - low), 1)

    def formatted(value: float) -> str:
        return f"{100 * value:.4g}%" if is_percent else f"{value:.4g}"

    points, path, is_begun = [], [], False
    for point in drawn_values:
        if point.value is None or not math.isfinite(point.value):
            is_begun = False
            continue
        arm = None if point.interval is None else (up(point.interval[0]), up(point.interval[1]))
        tooltip = point.tooltip or f"{point.x:g}: {formatted(point.value)}"
        points.append(PlotPoint(across(point.x), up(point.value), arm, tooltip, point.is_hollow))
        path.append(f"{'L' if is_begun else 'M'}{across(point.x)} {up(point.value)}")
        is_begun = True
    x_ticks = [tick for tick in _ticks(first, last) if first <= tick <= last] if last > first else [first]
    if all(float(x).is_integer() for x in xs):
        x_ticks = [tick for tick in x_ticks if float(tick).is_integer()]
    present = [point for point in drawn_values if point.value is not None]
    description = f"{title}: {len(present)} values"
    if present:
        description += f", {formatted(present[0].value or 0.0)} first, {formatted(present[-1].value or 0.0)} last"
    if marks:
        description += f"; marked: {', '.join(name for _, name in marks)}"
    return PlotPanel(
        title=title,
        points=tuple(points),
        path=" ".join(path),
        x_ticks=tuple((across(tick), f"{tick:g}") for tick in x_ticks),
        y_ticks=tuple((up(tick), formatted(tick)) for tick in y_ticks),
        marks=tuple((across(x), name) for x, name in marks),
        has_dots=len(points) <= MOST_DOTS,
        description=description,
    )


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers that cover a range."""
    span = high - low if high > low else max(abs(high), 1.0) * 0.2
    rough = span / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    last += first == last
    return [round(number * step, 12) for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class HistogramBin:
    """Values from low to high."""

    label: str
    n: int
    share: float
    """Of the fullest bin, in percent."""


def histogram(values: Sequence[float]) -> tuple[HistogramBin, ...]:
    """How often each value occurs; more than `MOST_BINS` different values are counted in as many equal ranges."""
    # scores that differ only by rounding error are one value
    rounded = np.round(np.asarray(values, dtype=np.float64), 9)
    different, counts = np.unique(rounded, return_counts=True)
    names = [f"{value:.4g}" for value in different]
    if different.size > MOST_BINS:
        edges = np.round(np.linspace(different[0], different[-1], MOST_BINS + 1), 9)
        counts, _ = np.histogram(rounded, edges)
        names = [f"{low:.3g}–{high:.3g}" for low, high in itertools.pairwise(edges.tolist())]
    fullest = int(counts.max(initial=1))
    return tuple(HistogramBin(name, int(n), round(100 * n / fullest, 1)) for name, n in zip(names, counts, strict=True))
