"""Small figures of the app's own pages: values over runs or steps, with intervals and marks, as drawing coordinates.

The template draws them as inline SVG (`web.html.j2`), so that they follow the page's colours, fit a phone and cost no
plotting library, which takes longer to load than the page. Figures of reports: `agent2.reports.charts`.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

WIDTH, HEIGHT = 320.0, 150.0
WIDE, TALL = 560.0, 220.0
"""Size of a figure that is read closely; the letters of both are of one size on the page."""
LEFT, TOP = 44.0, 10.0
"""Where the axes begin, or later for long numbers; they end `RIGHT_MARGIN` and `BOTTOM_MARGIN` before the edge."""
RIGHT_MARGIN, BOTTOM_MARGIN = 10.0, 26.0
LETTER = 7.0
"""Width of a digit at an axis."""
MOST_POINTS = 400
MOST_DOTS = 60
"""Points up to which each has a dot beside the line."""
MOST_BINS = 12
SPARK_WIDTH, SPARK_HEIGHT = 84.0, 20.0
MOST_SPARK_POINTS = 42


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
class PlotLine:
    """One line of a figure."""

    points: tuple[PlotPoint, ...]
    path: str
    """Through the values, broken where one is missing."""
    tone: int
    """Number of its colour and dash, which stands for one run in all figures of a page."""
    has_dots: bool


@dataclass(frozen=True, slots=True)
class PlotPanel:
    """One figure, ready to be drawn."""

    title: str
    lines: tuple[PlotLine, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    marks: tuple[tuple[float, str], ...]
    """Positions of vertical lines, and what each is."""
    description: str
    """For screen readers."""
    axis_x: float
    """Where the axes begin."""
    width: float
    height: float


def panel(
    title: str,
    values: Sequence[PlotValue],
    *,
    x_range: tuple[float, float] | None = None,
    marks: Sequence[tuple[float, str]] = (),
    is_percent: bool = False,
    is_wide: bool = False,
) -> PlotPanel:
    """Values from left to right. x_range: of several panels on one axis. Thinned to `MOST_POINTS`."""
    return overlay(title, {"": values}, x_range=x_range, marks=marks, is_percent=is_percent, is_wide=is_wide)


def overlay(
    title: str,
    runs: Mapping[str, Sequence[PlotValue]],
    *,
    x_range: tuple[float, float] | None = None,
    marks: Sequence[tuple[float, str]] = (),
    is_percent: bool = False,
    is_wide: bool = False,
) -> PlotPanel:
    """Several runs in one figure: name -> values. The number of a run is its tone; an empty one keeps its number."""
    width, height = (WIDE, TALL) if is_wide else (WIDTH, HEIGHT)
    right, bottom = width - RIGHT_MARGIN, height - BOTTOM_MARGIN
    drawn_runs = {name: _thinned(values) for name, values in runs.items()}
    points_drawn = [point for values in drawn_runs.values() for point in values]
    ends = [
        end
        for point in points_drawn
        for end in (point.value, *(point.interval or ()))
        if end is not None and math.isfinite(end)
    ]
    xs = [point.x for point in points_drawn] + [x for x, _ in marks]
    first, last = x_range or ((min(xs), max(xs)) if xs else (0.0, 1.0))
    y_ticks = _ticks(min(ends, default=0.0), max(ends, default=1.0))
    low, high = y_ticks[0], y_ticks[-1]

    def formatted(value: float) -> str:
        return f"{100 * value:.4g}%" if is_percent else f"{value:.4g}"

    axis_x = max(LEFT, 8 + LETTER * max(len(formatted(tick)) for tick in y_ticks))

    def across(x: float) -> float:
        share = 0.5 if last <= first else (x - first) / (last - first)
        return round(axis_x + 6 + (right - axis_x - 12) * share, 1)

    def up(y: float) -> float:
        return round(bottom - (bottom - TOP) * (y - low) / (high - low), 1)

    def line(name: str, values: Sequence[PlotValue], tone: int) -> PlotLine:
        points, path, is_begun = [], [], False
        for point in values:
            if point.value is None or not math.isfinite(point.value):
                is_begun = False
                continue
            arm = None if point.interval is None else (up(point.interval[0]), up(point.interval[1]))
            tooltip = point.tooltip or f"{f'{name}, ' if name else ''}{point.x:g}: {formatted(point.value)}"
            points.append(PlotPoint(across(point.x), up(point.value), arm, tooltip, point.is_hollow))
            path.append(f"{'L' if is_begun else 'M'}{across(point.x)} {up(point.value)}")
            is_begun = True
        return PlotLine(tuple(points), " ".join(path), tone, len(points) <= MOST_DOTS)

    x_ticks = [tick for tick in _ticks(first, last) if first <= tick <= last] if last > first else [first]
    if all(float(x).is_integer() for x in xs):
        x_ticks = [tick for tick in x_ticks if float(tick).is_integer()]
    descriptions = []
    for name, values in drawn_runs.items():
        present = [point.value for point in values if point.value is not None]
        text = f"{f'{name}, ' if name else ''}{len(present)} values"
        if present:
            text += f", {formatted(present[0])} first, {formatted(present[-1])} last"
        descriptions.append(text)
    description = f"{title}: {'; '.join(descriptions)}"
    if marks:
        description += f"; marked: {', '.join(name for _, name in marks)}"
    return PlotPanel(
        title=title,
        lines=tuple(line(name, values, tone) for tone, (name, values) in enumerate(drawn_runs.items())),
        x_ticks=tuple((across(tick), f"{tick:g}") for tick in x_ticks),
        y_ticks=tuple((up(tick), formatted(tick)) for tick in y_ticks),
        marks=tuple((across(x), name) for x, name in marks),
        description=description,
        axis_x=axis_x,
        width=width,
        height=height,
    )


def _thinned(values: Sequence[PlotValue]) -> list[PlotValue]:
    """Every n-th value, so that at most `MOST_POINTS` are left, and always the last."""
    step = -(-len(values) // MOST_POINTS) if values else 1
    return [*values[::step], *(values[-1:] if step > 1 and (len(values) - 1) % step else ())]


def spark(values: Sequence[float | None]) -> str:
    """The path of a line of `SPARK_WIDTH` by `SPARK_HEIGHT` without axes, from lowest to highest value.

    Empty for fewer than two values, which have no course. Missing values and those that are not finite are left out.
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if len(finite) < 2:
        return ""
    step = -(-len(finite) // MOST_SPARK_POINTS)
    points_drawn = [*finite[::step], *(finite[-1:] if (len(finite) - 1) % step else ())]
    low, span = min(points_drawn), max(points_drawn) - min(points_drawn)

    def height(value: float) -> float:
        return SPARK_HEIGHT / 2 if not span else 1 + (SPARK_HEIGHT - 2) * (1 - (value - low) / span)

    across = (SPARK_WIDTH - 2) / (len(points_drawn) - 1)
    return " ".join(
        f"{'L' if place else 'M'}{1 + across * place:.1f} {height(value):.1f}"
        for place, value in enumerate(points_drawn)
    )


def _ticks(low: float, high: float) -> list[float]:
    """Two to six round numbers that cover a range; of one value, that is drawn between two of its own size."""
    span = high - low if high > low else max(abs(high), 1e-9) * 0.2 if high else 0.2
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
