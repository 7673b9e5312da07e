"""Radar charts drawn: the polygons, their words, bars of the means, and the files of a figure with its numbers."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes

from agent2.errors import ConfigError
from agent2.files import write_text
from agent2.reports.radar import (
    HIGHEST,
    LOWEST,
    Radar,
    RadarAxis,
    RadarPoint,
    RadarStyle,
    ScaledRadar,
    made_radar,
    radar_csv,
    radar_page,
    scaled,
)
from agent2.reports.style import DASHES, INK, MARKERS, MUTED, SERIES_COLOURS, check_formats, drawing, save_figure
from agent2.reports.text import clean

MAX_LEVEL_LABELS = 20
"""More axes have their names written along them."""
MAX_NOTES = 4
"""Lines below a figure; the rest is in its page and CSV."""
WIDTH, HEIGHT = 7.6, 6.4
"""Inches of a figure with up to 20 axes."""
FACE, GRID_COLOUR, SUBTITLE_COLOUR = "#fbfbfd", "#cbd5e1", "#475569"
TITLE_SIZE, SUBTITLE_SIZE, LABEL_SIZE = 13.0, 9.0, 9.0


@dataclass(frozen=True, slots=True)
class RadarLook:
    """In what the styles of a radar differ: points, colours and marks of its series."""

    line_width: float = 2.4
    marker_size: float = 3.2
    colours: tuple[str, ...] = SERIES_COLOURS
    markers: tuple[str, ...] = MARKERS
    dashes: tuple[Any, ...] = DASHES


LOOKS = {
    RadarStyle.SAFE: RadarLook(line_width=2.0, marker_size=5.0),
    RadarStyle.REFERENCE: RadarLook(
        colours=("#2b6cb0", "#c53030", "#2f855a", "#6b46c1"), markers=("o",), dashes=("-",)
    ),
}


def draw_radar(axes: PolarAxes, found: ScaledRadar) -> None:
    """Draw one radar: first axis at the top, clockwise, each series a closed polygon with gaps where values lack."""
    radar, look = found.radar, LOOKS[found.radar.style]
    angles = [2.0 * math.pi * place / len(radar.axes) for place in range(len(radar.axes))]
    axes.set_facecolor(FACE)
    axes.set_theta_offset(math.pi / 2.0)
    axes.set_theta_direction(-1)
    axes.set_ylim(LOWEST, HIGHEST)
    rings = range(20, 101, 20)
    axes.set_yticks(rings, [str(ring) for ring in rings], fontsize=8.0)
    axes.tick_params(axis="y", labelcolor="#64748b")
    _write_labels(axes, angles, radar.axes)
    axes.grid(color=GRID_COLOUR, linewidth=0.9)
    axes.spines["polar"].set_color("#94a3b8")
    for number, (name, points) in enumerate(found.points.items()):
        _draw_polygon(axes, angles, points, number, name, look)


def _draw_polygon(
    axes: PolarAxes, angles: Sequence[float], points: Sequence[RadarPoint], number: int, name: str, look: RadarLook
) -> None:
    values = [math.nan if point.drawn is None else point.drawn for point in points]
    style: dict[str, Any] = {
        "color": look.colours[number % len(look.colours)],
        "linewidth": look.line_width,
        "linestyle": look.dashes[number % len(look.dashes)],
        "marker": look.markers[number % len(look.markers)],
        "markersize": look.marker_size,
    }
    axes.plot([*angles, angles[0]], [*values, values[0]], label=clean(name, 60), clip_on=False, **style)
    for turn, reach in _pieces(angles, values):
        axes.fill(turn, reach, color=style["color"], alpha=0.08)


def _pieces(angles: Sequence[float], values: Sequence[float]) -> Iterator[tuple[list[float], list[float]]]:
    """Areas to fill: the whole polygon, or a wedge from the centre for each run of neighbours that have values."""
    there = [not math.isnan(value) for value in values]
    if all(there):
        yield [*angles, angles[0]], [*values, values[0]]
        return
    n = len(values)
    for start in range(n):
        if not there[start] or there[start - 1]:
            continue
        run = [start]
        while there[(run[-1] + 1) % n]:
            run.append((run[-1] + 1) % n)
        if len(run) > 1:
            turns = [angles[start], *(angles[place] for place in run), angles[run[-1]]]
            yield turns, [0.0, *(values[place] for place in run), 0.0]


def _write_labels(axes: PolarAxes, angles: Sequence[float], radar_axes: Sequence[RadarAxis]) -> None:
    """Name the axes outside the rim, where labels begin, so that long ones do not cover it; many follow their axes."""
    labels = [_label(axis) for axis in radar_axes]
    if len(labels) <= MAX_LEVEL_LABELS:
        axes.set_xticks(angles, labels, fontsize=LABEL_SIZE)
        axes.tick_params(axis="x", labelcolor=INK, pad=-3)
        for text, angle in zip(axes.get_xticklabels(), angles, strict=True):
            across, up = math.sin(angle), math.cos(angle)
            text.set_horizontalalignment("center" if abs(across) < 0.1 else "left" if across > 0 else "right")
            text.set_verticalalignment("center" if abs(up) < 0.5 else "bottom" if up > 0 else "top")
        return
    axes.set_xticks(angles, [""] * len(angles))
    for label, angle in zip(labels, angles, strict=True):
        is_right = angle <= math.pi
        degrees = math.degrees(math.pi / 2.0 - angle) + (0.0 if is_right else 180.0)
        axes.text(
            angle, 103.0, label, rotation=degrees, rotation_mode="anchor", ha="left" if is_right else "right",
            va="center", fontsize=LABEL_SIZE - 2.0, color=INK,
        )  # fmt: skip


def _label(axis: RadarAxis) -> str:
    if axis.label:
        return "\n".join(clean(line, 40) for line in axis.label.split("\n")[:3])
    lines = textwrap.wrap(clean(axis.name, 200), 16)
    return "\n".join([*lines[:2], lines[2] + ("…" if len(lines) > 3 else "")] if len(lines) > 2 else lines)


def _write_words(axes: PolarAxes, found: ScaledRadar, *, shows_source: bool) -> None:
    """Title and subtitle above what is drawn; legend, gaps, values beyond their axis and source below it.

    Where that is follows from the labels, so the layout has to be settled.
    """
    radar = found.radar
    drawn, to_axes = axes.get_tightbbox(), axes.transAxes.inverted()
    if drawn is None:
        return
    middle: dict[str, Any] = {"ha": "center", "transform": axes.transAxes}
    top, bottom = (float(to_axes.transform((0.0, y))[1]) for y in (drawn.y1, drawn.y0))
    if radar.subtitle:
        words = "\n".join(textwrap.wrap(clean(radar.subtitle, 300), 90))
        below = axes.text(0.5, top + 0.02, words, va="bottom", fontsize=SUBTITLE_SIZE, color=SUBTITLE_COLOUR, **middle)
        top = float(to_axes.transform((0.0, below.get_window_extent().y1))[1])
    title = "\n".join(textwrap.wrap(clean(radar.title, 200), 60))
    axes.text(0.5, top + 0.02, title, va="bottom", fontsize=TITLE_SIZE, fontweight="bold", **middle)
    columns = min(3, len(found.points))
    legend = axes.legend(loc="upper center", bbox_to_anchor=(0.5, bottom), ncol=columns, frameon=False)
    lines = found.notes[:MAX_NOTES]
    lines += [f"and {len(found.notes) - MAX_NOTES} more, in the table"] if len(found.notes) > MAX_NOTES else []
    lines += [radar.source] if radar.source and shows_source else []
    if lines:
        words = "\n".join(part for line in lines for part in textwrap.wrap(clean(line, 300), 110))
        under = float(to_axes.transform((0.0, legend.get_window_extent().y0))[1])
        axes.text(0.5, under - 0.01, words, va="top", fontsize=8, color=MUTED, **middle)


def radar_figure(found: ScaledRadar, figure: Figure, beside: ScaledRadar | None = None) -> None:
    """Draw a radar, or two side by side (the other one on the left), into an empty figure of `figure_size`."""
    every = [found] if beside is None else [beside, found]
    panels = figure.subplots(1, len(every), squeeze=False, subplot_kw={"projection": "polar"})[0]
    for axes, one in zip(panels, every, strict=True):
        draw_radar(axes, one)
    figure.tight_layout(pad=2.0)
    for axes, one in zip(panels, every, strict=True):
        _write_words(axes, one, shows_source=beside is not None or one.radar.style is RadarStyle.SAFE)


def figure_size(found: ScaledRadar, beside: ScaledRadar | None = None) -> tuple[float, float]:
    """Inches; many axes get more room."""
    factor = 1.0 + 0.35 * max(0, len(found.radar.axes) - 20) / 20
    return WIDTH * factor * (1 if beside is None else 2), HEIGHT * factor


def overall_figure(found: ScaledRadar, figure: Figure) -> None:
    """Bars of the mean over all axes; a series that lacks one has no bar and says which."""
    look = LOOKS[found.radar.style]
    axes = figure.add_subplot()
    axes.set_facecolor(FACE)
    names = list(found.points)
    for place, name in enumerate(names):
        mean = found.overall(name)
        if mean is None:
            n_lacking = sum(point.value is None for point in found.points[name])
            words = f"no mean: no value on {n_lacking} of {len(found.radar.axes)} axes"
            axes.annotate(words, (0, place), xytext=(4, 0), textcoords="offset points", va="center", color=MUTED)
            continue
        axes.barh(place, mean, height=0.62, color=look.colours[place % len(look.colours)])
        clear = {"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 1.0}  # of the grid's lines
        axes.annotate(
            f"{mean:.1f}", (mean, place), xytext=(4, 0), textcoords="offset points", va="center", color=INK, bbox=clear
        )
    axes.set_yticks(range(len(names)), [clean(name, 40) for name in names])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.invert_yaxis()
    axes.set_xlim(LOWEST, HIGHEST)
    axes.grid(axis="x", color=GRID_COLOUR)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"mean over {len(found.radar.axes)} axes, 0 to 100")
    subtitle = "\n".join(textwrap.wrap(clean(found.radar.subtitle, 300), 100))
    figure.suptitle(subtitle or " ", fontsize=SUBTITLE_SIZE, color=SUBTITLE_COLOUR)
    title = clean(f"{found.radar.title}: overall", 120)
    figure.text(0.5, 1.0, title, ha="center", va="bottom", fontsize=TITLE_SIZE, fontweight="bold")


def write_radar(radar: Radar, out: Path, formats: Sequence[str], beside: Radar | None = None) -> list[Path]:
    """Write figure, raw table (CSV) and page (Markdown: tables, notes, actions) into a folder; returns the paths.

    beside: another radar of the same axes, on the left of the same figure. Raises ConfigError if its axes are others.
    """
    found, other = scaled(radar), None
    if beside is not None:
        if [axis.name for axis in beside.axes] != [axis.name for axis in radar.axes]:
            raise ConfigError(
                f"--beside: {beside.title!r} has other axes than {radar.title!r}; two radars are comparable "
                "only with the same axes in the same order"
            )
        other = scaled(beside)
    out.mkdir(parents=True, exist_ok=True)
    with drawing(*figure_size(found, other), is_file=True, layout=None) as figure:
        radar_figure(found, figure, other)
        written = save_figure(figure, out / radar.file, formats)
    if radar.overall:
        with drawing(7.6, 1.5 + 0.42 * len(radar.series), is_file=True) as figure:
            overall_figure(found, figure)
            written += save_figure(figure, out / f"{radar.file}-overall", formats)
    table, page = out / f"{radar.file}.csv", out / f"{radar.file}.md"
    write_text(table, radar_csv([found] if other is None else [other, found]))
    write_text(page, radar_page(found))
    return [*written, table, page]


def plot_paper_radar(
    title: str,
    metrics: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    output_path: str | Path,
    subtitle: str | None = None,
) -> None:
    """Draw one radar in the style of the reference figures; the file's ending says the format.

    metrics: the axes, first one at the top, clockwise. series: name -> a number of 0 to 100 for each axis; None is a
    gap. Raises ConfigError for numbers that do not fit the axes, or another ending than png, svg or pdf.
    """
    path = Path(output_path)
    axes = [{"name": metric.replace("\n", " "), "label": metric} for metric in metrics]
    fields = {"title": title, "subtitle": subtitle or "", "style": "reference", "axes": axes}
    radar = made_radar({**fields, "series": {name: list(values) for name, values in series.items()}}, str(path))
    found = scaled(radar)
    path.parent.mkdir(parents=True, exist_ok=True)
    with drawing(*figure_size(found), is_file=True, layout=None) as figure:
        radar_figure(found, figure)
        save_figure(figure, path.with_suffix(""), check_formats([path.suffix.removeprefix(".")]))
