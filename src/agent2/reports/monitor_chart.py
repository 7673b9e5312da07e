"""The figures of a monitored run as inline SVG: one small panel for each series, dangers marked where they began.

Each panel is a figure of its own, so that a page can set as many side by side as there is room for. What a mark
means is written above the panel, where nothing is drawn.
"""

import numpy as np
from matplotlib.axes import Axes

from agent2.monitor.series import MEANING, Series
from agent2.monitor.watch import Watch
from agent2.reports.charts import BLUE, GREEN, INK, MUTED, ORANGE, as_svg, drawing
from agent2.reports.text import clean

MAX_PANELS = 12
MAX_POINTS = 400
COLUMNS = 3
TITLE_CHARACTERS = 40
LINE_POINTS = 10.5
"""Height of a line of danger names."""


def monitor_svg(watch: Watch) -> str:
    """Benchmarks first, then the series that detectors read, then the rest, 12 panels at most."""
    shown = _chosen(watch)
    n_rows = max(1, -(-len(shown) // COLUMNS))
    with drawing(9.6, 0.4 + 1.9 * n_rows) as figure:
        panels = figure.subplots(n_rows, COLUMNS, squeeze=False)
        for axes, series in zip(panels.flat, shown, strict=False):
            draw_panel(axes, series, watch)
        for axes in list(panels.flat)[len(shown) :]:
            axes.set_visible(False)
        return as_svg(figure, "monitor", f"{len(shown)} series of the run; vertical lines mark danger signals")


def panel_svgs(watch: Watch) -> list[str]:
    """The panels of `monitor_svg`, each by itself."""
    figures = []
    for number, series in enumerate(_chosen(watch)):
        n_lines = sum(series.name in signal.series for signal in watch.signals)
        with drawing(3.3, 1.95 + n_lines * LINE_POINTS / 72) as figure:
            draw_panel(figure.subplots(), series, watch)
            figures.append(as_svg(figure, f"panel-{number}", f"{series.name} over {len(series)} logged steps"))
    return figures


def _chosen(watch: Watch) -> list[Series]:
    names = [name for name in watch.benchmarks if name in watch.log.series]
    names += [name for name in MEANING if name in watch.log.series and name not in names]
    names += [name for name in sorted(watch.log.series) if name not in names]
    return [watch.log.series[name] for name in names[:MAX_PANELS]]


def draw_panel(axes: Axes, series: Series, watch: Watch) -> None:
    """One series, with a dashed line where each danger in it was raised and its name and step above the axes."""
    kept = np.unique(np.linspace(0, len(series) - 1, min(len(series), MAX_POINTS)).round().astype(np.int64))
    colour, marker = (GREEN, "o") if series.name in watch.benchmarks else (BLUE, "")
    axes.patch.set_alpha(0)
    axes.plot(series.steps[kept], series.values[kept], color=colour, marker=marker, markersize=3.5, linewidth=1.3)
    signals = sorted((s for s in watch.signals if series.name in s.series), key=lambda s: s.step)
    for signal in signals:
        axes.axvline(signal.step, color=ORANGE, linewidth=1.4, linestyle=(0, (4, 2)))
    words = [clean(f"{s.step}: {s.danger.value.replace('_', ' ')}", TITLE_CHARACTERS) for s in signals]
    for line, text in enumerate(reversed(words)):
        axes.annotate(
            text, (0.0, 1.0), xycoords="axes fraction", xytext=(0, 4 + line * LINE_POINTS), textcoords="offset points",
            ha="left", va="bottom", fontsize=8, color=ORANGE,
        )  # fmt: skip
    axes.set_title(
        clean(series.name, TITLE_CHARACTERS), fontsize=9.5, color=INK, loc="left", fontweight="bold",
        pad=5 + len(words) * LINE_POINTS,
    )  # fmt: skip
    axes.tick_params(labelsize=8, colors=MUTED)
    axes.locator_params(axis="x", nbins=5)
    axes.locator_params(axis="y", nbins=5)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.margins(y=0.12)
