"""The forest plot of a sweep as inline SVG: one line for each trial, grouped by agent."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from agent2.arena.sweep_records import AgentSummary, SweepRow
from agent2.reports.charts import BLUE, GREEN, INK, MUTED, as_svg, drawing
from agent2.reports.text import clean
from agent2.stats.comparisons import Claim

MAX_LINES = 120
ROW_INCHES = 0.24


def forest_svg(rows: Sequence[SweepRow], summaries: Sequence[AgentSummary] = ()) -> str:
    """Paired gain of every trial with its 95% interval over items; a trial without a gain says so.

    The mean of each agent has the interval of its summary: over items and seeds, where it has several.
    """
    means = {f"{summary.agent} · {summary.task}": summary for summary in summaries}
    groups: dict[str, list[SweepRow]] = {}
    for row in rows[:MAX_LINES]:
        groups.setdefault(f"{row.agent} · {row.task}", []).append(row)
    n_lines = sum(len(members) + 1.6 for members in groups.values())
    with drawing(8.2, 1.0 + ROW_INCHES * max(n_lines, 3)) as figure:
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        axes.axvline(0, color=MUTED, linewidth=1.2, linestyle=(0, (5, 3)))
        height, ticks, labels = 0.0, [], []
        for name, members in groups.items():
            axes.annotate(
                clean(name, 60), (0, height), xycoords=("axes fraction", "data"), xytext=(-8, 0),
                textcoords="offset points", ha="right", va="center", fontweight="bold", color=INK, fontsize=10,
            )  # fmt: skip
            gains = [row.gain_points for row in members if row.gain_points is not None]
            if gains:
                mean, summary = sum(gains) / len(gains), means.get(name)
                axes.plot([mean], [height], "D", color=GREEN, markersize=7)
                if summary is not None and summary.low_points is not None and summary.high_points is not None:
                    axes.hlines(height, summary.low_points, summary.high_points, color=GREEN, linewidth=2)
            for row in members:
                height -= 1
                ticks.append(height)
                labels.append(f"seed {row.seed}")
                _draw(axes, row, height)
            height -= 1.6
        axes.set_yticks(ticks, labels, fontsize=9)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(height + 0.6, 0.9)
        axes.set_xlabel(
            "gain on private items, points (95%; trials: over items, diamonds: means, over items and seeds)"
        )
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.margins(x=0.08)
        return as_svg(figure, "forest", f"Gain of {len(rows)} trials by agent with 95% intervals")


def _draw(axes: Axes, row: SweepRow, height: float) -> None:
    gain, low, high = row.gain_points, row.low_points, row.high_points
    if gain is None:
        words = row.result.replace("_", " ") or row.state
        axes.annotate(clean(words, 60), (0, height), xytext=(6, 0), textcoords="offset points", va="center",
                      color=MUTED, fontsize=9)  # fmt: skip
        return
    style: dict[str, Any] = {
        "color": BLUE,
        "markersize": 6,
        "markerfacecolor": BLUE if row.claim in {Claim.BETTER, Claim.WORSE} else "none",
    }
    if low is None or high is None:
        axes.plot([gain], [height], "s", **style)
        axes.annotate(clean(row.result.replace("_", " "), 60), (gain, height), xytext=(8, 0),
                      textcoords="offset points", va="center", color=MUTED, fontsize=9)  # fmt: skip
        return
    axes.errorbar([gain], [height], xerr=[[gain - low], [high - gain]], fmt="o", capsize=2.5, **style)
