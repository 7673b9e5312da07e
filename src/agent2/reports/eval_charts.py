"""The figure of an evaluation's report: what changed from baseline to checkpoint, with intervals.

Loads nothing of trials or training: an evaluation is reported without them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes

from agent2.contract.metrics import Evidence, MetricSpec, Role, Unit, change_kind
from agent2.reports.style import BLUE, GREEN, INK, MUTED, ORANGE, arms, as_svg, drawing
from agent2.reports.text import clean
from agent2.stats.estimates import Estimate

METRIC_ROW_INCHES = 0.34
STYLES = {
    "better": (GREEN, "^"),
    "worse": (ORANGE, "v"),
    "unclear": (MUTED, "o"),
    "neither": (BLUE, "s"),
}
"""Kind of a change -> colour and marker."""


@dataclass(frozen=True, slots=True)
class _Bar:
    label: str
    change: Estimate
    """In points for rates, in percent of the old value for the rest."""
    kind: str


def change_svg(metrics: Sequence[MetricSpec], evidence: Evidence) -> str | None:
    """Rates on the left in points, everything else on the right in percent of the old value; None without numbers."""
    panels = [
        (title, bars)
        for title, is_rate in (("points", True), ("% of the old value", False))
        if (bars := [bar for spec in metrics if (bar := _bar(spec, evidence, is_rate)) is not None])
    ]
    if not panels:
        return None
    n_rows = max(len(bars) for _, bars in panels)
    with drawing(8.2, 1.2 + METRIC_ROW_INCHES * max(n_rows, 3)) as figure:
        every_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (title, bars) in zip(every_axes, panels, strict=True):
            _draw_changes(axes, title, bars)
        kinds = dict.fromkeys(bar.kind for _, bars in panels for bar in bars)
        handles = [every_axes[0].plot([], [], STYLES[kind][1], color=STYLES[kind][0], label=kind)[0] for kind in kinds]
        figure.legend(handles, list(kinds), loc="outside upper left", ncols=4, fontsize=9)
        n = sum(len(bars) for _, bars in panels)
        return as_svg(figure, "change", f"Change of {n} metrics from baseline to checkpoint with 95% intervals")


def _bar(spec: MetricSpec, evidence: Evidence, is_rate: bool) -> _Bar | None:
    metric = evidence.metrics.get(spec.name)
    if metric is None or not metric.is_complete or (spec.unit is Unit.RATE) is not is_rate:
        return None
    old, new = metric.values()
    if not is_rate and old == 0.0:
        return None
    scale = 100.0 if is_rate else 100.0 / abs(old)
    paired_change = (
        metric.paired.change if metric.paired is not None else Estimate(0.0, None, None, metric.n_items or 0)
    )
    change = replace(paired_change.scaled(scale), value=scale * (new - old))
    mark = " *" if spec.role is Role.PRIMARY else ""
    return _Bar(clean(f"{spec.name}{mark}", 44), change, change_kind(spec, metric))


def _draw_changes(axes: Axes, title: str, bars: Sequence[_Bar]) -> None:
    axes.patch.set_alpha(0)
    axes.axvline(0, color=MUTED, linewidth=1.2, linestyle=(0, (5, 3)))
    for row, bar in enumerate(bars):
        colour, marker = STYLES[bar.kind]
        error = None if bar.change.low is None else [[arm] for arm in arms(bar.change)]
        axes.errorbar([bar.change.value], [-row], xerr=error, fmt=marker, color=colour, capsize=3, markersize=7)
    axes.set_yticks([-row for row in range(len(bars))], [bar.label for bar in bars], fontsize=9, color=INK)
    axes.set_ylim(-len(bars) + 0.4, 0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"change, {title}")
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.margins(x=0.12)
