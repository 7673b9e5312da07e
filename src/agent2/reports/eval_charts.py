"""The figure of a suite evaluation as inline SVG: the change of every metric with its 95% interval."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from agent2.contract.evidence import Evidence, MetricEvidence
from agent2.contract.metrics import Direction, MetricSpec, Role, Unit
from agent2.reports.charts import BLUE, GREEN, INK, MUTED, ORANGE, as_svg, drawing
from agent2.reports.text import clean
from agent2.stats.comparisons import Claim, judge

ROW_INCHES = 0.34
STYLES = {
    "better": (GREEN, "^"),
    "worse": (ORANGE, "v"),
    "unclear": (MUTED, "o"),
    "neither": (BLUE, "s"),
}
"""How sure a change is -> colour and marker."""


@dataclass(frozen=True, slots=True)
class _Bar:
    label: str
    change: float
    """In points for rates, in percent of the old value for the rest."""
    low: float | None
    high: float | None
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
    with drawing(8.2, 1.2 + ROW_INCHES * max(n_rows, 3)) as figure:
        every_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (title, bars) in zip(every_axes, panels, strict=True):
            _draw(axes, title, bars)
        seen = dict.fromkeys(bar.kind for _, bars in panels for bar in bars)
        handles = [every_axes[0].plot([], [], STYLES[kind][1], color=STYLES[kind][0], label=kind)[0] for kind in seen]
        figure.legend(handles, list(seen), loc="outside upper left", ncols=4, fontsize=9)
        n = sum(len(bars) for _, bars in panels)
        return as_svg(figure, "change", f"Change of {n} metrics from baseline to checkpoint with 95% intervals")


def _bar(spec: MetricSpec, evidence: Evidence, is_rate: bool) -> _Bar | None:
    found = evidence.metrics.get(spec.name)
    if found is None or not found.is_complete or (spec.unit is Unit.RATE) is not is_rate:
        return None
    old, new = found.values()
    if not is_rate and old == 0.0:
        return None
    scale = 100.0 if is_rate else 100.0 / abs(old)
    low, high = (None, None) if found.paired is None else (scale * found.paired.low, scale * found.paired.high)
    mark = " *" if spec.role is Role.PRIMARY else ""
    return _Bar(clean(f"{spec.name}{mark}", 44), scale * (new - old), low, high, change_kind(spec, found))


def change_kind(spec: MetricSpec, found: MetricEvidence) -> str:
    """Better, worse or unclear as `judge` says; "neither" for a metric without direction."""
    if spec.direction is Direction.NONE:
        return "neither"
    if found.paired is None:
        return Claim.UNCLEAR.value
    return judge(found.paired, found.noise, is_higher_better=spec.direction is Direction.HIGHER).claim.value


def _draw(axes: Axes, title: str, bars: Sequence[_Bar]) -> None:
    axes.patch.set_alpha(0)
    axes.axvline(0, color=MUTED, linewidth=1.2, linestyle=(0, (5, 3)))
    for place, bar in enumerate(bars):
        colour, marker = STYLES[bar.kind]
        error = None if bar.low is None or bar.high is None else [[bar.change - bar.low], [bar.high - bar.change]]
        if error is not None:
            error = [[max(0.0, side) for side in part] for part in error]
        axes.errorbar([bar.change], [-place], xerr=error, fmt=marker, color=colour, capsize=3, markersize=7)
    axes.set_yticks([-place for place in range(len(bars))], [bar.label for bar in bars], fontsize=9, color=INK)
    axes.set_ylim(-len(bars) + 0.4, 0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"change, {title}")
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.margins(x=0.12)
