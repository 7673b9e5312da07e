"""The figure of a monitored run as inline SVG: one small panel for each series, dangers marked where they began."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from agent2.monitor.series import MEANING, Series
from agent2.monitor.signals import Signal
from agent2.monitor.watch import Watch
from agent2.reports.charts import BLUE, GREEN, INK, MUTED, ORANGE, as_svg, drawing
from agent2.reports.text import clean

MAX_PANELS = 12
MAX_POINTS = 400
COLUMNS = 3


def monitor_svg(watch: Watch) -> str:
    """Benchmarks first, then the series that detectors read, then the rest, 12 panels at most."""
    shown = _chosen(watch)
    n_rows = -(-len(shown) // COLUMNS)
    with drawing(9.6, 0.4 + 1.9 * n_rows) as figure:
        panels = figure.subplots(n_rows, COLUMNS, squeeze=False)
        for axes, series in zip(panels.flat, shown, strict=False):
            _panel(axes, series, [s for s in watch.signals if series.name in s.series], series.name in watch.benchmarks)
        for axes in list(panels.flat)[len(shown) :]:
            axes.set_visible(False)
        return as_svg(figure, "monitor", f"{len(shown)} series of the run; vertical lines mark danger signals")


def _chosen(watch: Watch) -> list[Series]:
    names = [name for name in watch.benchmarks if name in watch.log.series]
    names += [name for name in MEANING if name in watch.log.series and name not in names]
    names += [name for name in sorted(watch.log.series) if name not in names]
    return [watch.log.series[name] for name in names[:MAX_PANELS]]


def _panel(axes: Axes, series: Series, signals: Sequence[Signal], is_benchmark: bool) -> None:
    kept = np.unique(np.linspace(0, len(series) - 1, min(len(series), MAX_POINTS)).round().astype(np.int64))
    colour, marker = (GREEN, "o") if is_benchmark else (BLUE, "")
    axes.patch.set_alpha(0)
    axes.plot(series.steps[kept], series.values[kept], color=colour, marker=marker, markersize=3.5, linewidth=1.3)
    for signal in signals:
        axes.axvline(signal.step, color=ORANGE, linewidth=1.4, linestyle=(0, (4, 2)))
        axes.annotate(
            clean(signal.danger.value.replace("_", " "), 40), (signal.step, 1.0), xycoords=("data", "axes fraction"),
            xytext=(-3, -3), textcoords="offset points", rotation=90, ha="right", va="top", fontsize=7.5, color=ORANGE,
        )  # fmt: skip
    axes.set_title(clean(series.name, 40), fontsize=9.5, color=INK, loc="left", fontweight="bold")
    axes.tick_params(labelsize=8, colors=MUTED)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.margins(y=0.12)
