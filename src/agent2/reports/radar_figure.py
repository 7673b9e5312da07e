"""Drawing of radar charts: polygons, labels, bars of the means, and the files of a figure with its numbers."""

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
    make_radar,
    radar_csv,
    radar_page,
    scaled,
)
from agent2.reports.style import DASHES, INK, MARKERS, MUTED, SERIES_COLOURS, check_formats, drawing, save_figure
from agent2.reports.text import clean

MAX_LEVEL_LABELS = 20
"""Axes up to which labels are horizontal; more have them along the axes."""
MAX_NOTES = 4
"""Lines below a figure; the rest is in its page and CSV."""
WIDTH, HEIGHT = 7.6, 6.4
"""Inches of a figure with up to 20 axes."""
FACE, GRID_COLOUR, SUBTITLE_COLOUR = "#fbfbfd", "#cbd5e1", "#475569"
TITLE_SIZE, SUBTITLE_SIZE, LABEL_SIZE = 13.0, 9.0, 9.0


@dataclass(frozen=True, slots=True)
class RadarLook:
    """Sizes, colours and marks of the series in one `RadarStyle`."""

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


def draw_radar(axes: PolarAxes, chart: ScaledRadar) -> None:
    """Draw one radar: first axis at the top, clockwise, each series a closed polygon with gaps where values lack."""
    radar, look = chart.radar, LOOKS[chart.radar.style]
    angles = [2.0 * math.pi * index / len(radar.axes) for index in range(len(radar.axes))]
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
    for number, (name, points) in enumerate(chart.points.items()):
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
    for corner_angles, radii in _filled_areas(angles, values):
        axes.fill(corner_angles, radii, color=style["color"], alpha=0.08)


def _filled_areas(angles: Sequence[float], values: Sequence[float]) -> Iterator[tuple[list[float], list[float]]]:
    """Areas to fill: the whole polygon, or a wedge from the centre for each run of neighbours that have values."""
    has_value = [not math.isnan(value) for value in values]
    if all(has_value):
        yield [*angles, angles[0]], [*values, values[0]]
        return
    n = len(values)
    for start in range(n):
        if not has_value[start] or has_value[start - 1]:
            continue
        run = [start]
        while has_value[(run[-1] + 1) % n]:
            run.append((run[-1] + 1) % n)
        if len(run) > 1:
            corner_angles = [angles[start], *(angles[index] for index in run), angles[run[-1]]]
            yield corner_angles, [0.0, *(values[index] for index in run), 0.0]


def _write_labels(axes: PolarAxes, angles: Sequence[float], radar_axes: Sequence[RadarAxis]) -> None:
    """Name the axes outside the rim, with labels that begin there, so that long ones do not cover it."""
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


def _write_texts(axes: PolarAxes, chart: ScaledRadar, *, shows_source: bool) -> None:
    """Title and subtitle above the radar; legend, notes and source below it.

    Their positions depend on the extent of the labels, so call it after `tight_layout`.
    """
    radar = chart.radar
    extent, to_axes = axes.get_tightbbox(), axes.transAxes.inverted()
    if extent is None:
        return
    centred: dict[str, Any] = {"ha": "center", "transform": axes.transAxes}
    top, bottom = (float(to_axes.transform((0.0, y))[1]) for y in (extent.y1, extent.y0))
    if radar.subtitle:
        text = "\n".join(textwrap.wrap(clean(radar.subtitle, 300), 90))
        below = axes.text(0.5, top + 0.02, text, va="bottom", fontsize=SUBTITLE_SIZE, color=SUBTITLE_COLOUR, **centred)
        top = float(to_axes.transform((0.0, below.get_window_extent().y1))[1])
    title = "\n".join(textwrap.wrap(clean(radar.title, 200), 60))
    axes.text(0.5, top + 0.02, title, va="bottom", fontsize=TITLE_SIZE, fontweight="bold", **centred)
    columns = min(3, len(chart.points))
    legend = axes.legend(loc="upper center", bbox_to_anchor=(0.5, bottom), ncol=columns, frameon=False)
    lines = chart.notes[:MAX_NOTES]
    lines += [f"and {len(chart.notes) - MAX_NOTES} more, in the table"] if len(chart.notes) > MAX_NOTES else []
    lines += [radar.source] if radar.source and shows_source else []
    if lines:
        text = "\n".join(part for line in lines for part in textwrap.wrap(clean(line, 300), 110))
        notes_top = float(to_axes.transform((0.0, legend.get_window_extent().y0))[1])
        axes.text(0.5, notes_top - 0.01, text, va="top", fontsize=8, color=MUTED, **centred)


def radar_figure(chart: ScaledRadar, figure: Figure, beside: ScaledRadar | None = None) -> None:
    """Draw a radar, or two (`beside` on the left), into an empty figure of `figure_size`."""
    charts = [chart] if beside is None else [beside, chart]
    panels = figure.subplots(1, len(charts), squeeze=False, subplot_kw={"projection": "polar"})[0]
    for axes, panel_chart in zip(panels, charts, strict=True):
        draw_radar(axes, panel_chart)
    figure.tight_layout(pad=2.0)
    for axes, panel_chart in zip(panels, charts, strict=True):
        _write_texts(axes, panel_chart, shows_source=beside is not None or panel_chart.radar.style is RadarStyle.SAFE)


def figure_size(chart: ScaledRadar, beside: ScaledRadar | None = None) -> tuple[float, float]:
    """Inches; many axes get more room."""
    factor = 1.0 + 0.35 * max(0, len(chart.radar.axes) - 20) / 20
    return WIDTH * factor * (1 if beside is None else 2), HEIGHT * factor


def overall_figure(chart: ScaledRadar, figure: Figure) -> None:
    """Bars of the mean over all axes; a series with gaps has no bar and a note instead."""
    look = LOOKS[chart.radar.style]
    axes = figure.add_subplot()
    axes.set_facecolor(FACE)
    names = list(chart.points)
    for row, name in enumerate(names):
        mean = chart.overall(name)
        if mean is None:
            n_lacking = sum(point.value is None for point in chart.points[name])
            text = f"no mean: no value on {n_lacking} of {len(chart.radar.axes)} axes"
            axes.annotate(text, (0, row), xytext=(4, 0), textcoords="offset points", va="center", color=MUTED)
            continue
        axes.barh(row, mean, height=0.62, color=look.colours[row % len(look.colours)])
        background = {"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 1.0}  # covers the grid lines
        axes.annotate(
            f"{mean:.1f}",
            (mean, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            bbox=background,
        )
    axes.set_yticks(range(len(names)), [clean(name, 40) for name in names])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.invert_yaxis()
    axes.set_xlim(LOWEST, HIGHEST)
    axes.grid(axis="x", color=GRID_COLOUR)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"mean over {len(chart.radar.axes)} axes, 0 to 100")
    subtitle = "\n".join(textwrap.wrap(clean(chart.radar.subtitle, 300), 100))
    figure.suptitle(subtitle or " ", fontsize=SUBTITLE_SIZE, color=SUBTITLE_COLOUR)
    title = clean(f"{chart.radar.title}: overall", 120)
    figure.text(0.5, 1.0, title, ha="center", va="bottom", fontsize=TITLE_SIZE, fontweight="bold")


def write_radar(radar: Radar, out: Path, formats: Sequence[str], beside: Radar | None = None) -> list[Path]:
    """Write figure, raw table (CSV) and page (Markdown: tables, notes, actions) into a folder; returns the paths.

    beside: another radar of the same axes, on the left of the same figure. Raises ConfigError if its axes differ.
    """
    chart, beside_chart = scaled(radar), None
    if beside is not None:
        if [axis.name for axis in beside.axes] != [axis.name for axis in radar.axes]:
            raise ConfigError(
                f"--beside: {beside.title!r} has other axes than {radar.title!r}; two radars are comparable "
                "only with the same axes in the same order"
            )
        beside_chart = scaled(beside)
    out.mkdir(parents=True, exist_ok=True)
    with drawing(*figure_size(chart, beside_chart), is_file=True, layout=None) as figure:
        radar_figure(chart, figure, beside_chart)
        written = save_figure(figure, out / radar.file, formats)
    if radar.overall:
        with drawing(7.6, 1.5 + 0.42 * len(radar.series), is_file=True) as figure:
            overall_figure(chart, figure)
            written += save_figure(figure, out / f"{radar.file}-overall", formats)
    table, page = out / f"{radar.file}.csv", out / f"{radar.file}.md"
    write_text(table, radar_csv([chart] if beside_chart is None else [beside_chart, chart]))
    write_text(page, radar_page(chart))
    return [*written, table, page]


def plot_paper_radar(
    title: str,
    metrics: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    output_path: str | Path,
    subtitle: str | None = None,
) -> None:
    """Draw one radar in the style of the reference figures, in the format of the file's ending.

    metrics: the axes, first one at the top, clockwise. series: name -> a number of 0 to 100 for each axis; None is a
    gap. Raises ConfigError for numbers that do not fit the axes, or another ending than png, svg or pdf.
    """
    path = Path(output_path)
    axes = [{"name": metric.replace("\n", " "), "label": metric} for metric in metrics]
    fields = {"title": title, "subtitle": subtitle or "", "style": "reference", "axes": axes}
    radar = make_radar({**fields, "series": {name: list(values) for name, values in series.items()}}, str(path))
    chart = scaled(radar)
    path.parent.mkdir(parents=True, exist_ok=True)
    with drawing(*figure_size(chart), is_file=True, layout=None) as figure:
        radar_figure(chart, figure)
        save_figure(figure, path.with_suffix(""), check_formats([path.suffix.removeprefix(".")]))
