"""Figures of trials and sweeps, as inline SVG or in a given figure.

Colours, fonts and files: `agent2.reports.style`.
"""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from agent2.arena.analysis.process import scored_submissions
from agent2.arena.analysis.route import logged_training
from agent2.arena.evidence import MetricPoint, SubmissionState, TrialEvidence
from agent2.arena.sweep_records import AgentSummary, SweepRow
from agent2.llm.gateway.recording import ExchangeOutcome
from agent2.reports.style import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, arms, as_svg, drawing
from agent2.reports.text import clean
from agent2.stats.comparisons import Claim

TRAJECTORY_INCHES = (8.2, 3.6)
MAX_CURVES = 4
MIN_SPAN = 30.0
"""Points of the score axis that are always shown."""
FAR_SHARE = 0.5
"""Share of the time allowed that was used, below which the deadline is not on the axis."""
TIME_UNITS = ((180.0, 1.0, "seconds"), (3 * 3600.0, 60.0, "minutes"), (math.inf, 3600.0, "hours"))
"""(shorter than, seconds of one unit, its name)"""
MAX_CURVE_POINTS = 400
MAX_CALLS = 2_000
MAX_LINES = 120
FOREST_ROW_INCHES = 0.24


def trajectory_svg(evidence: TrialEvidence) -> str:
    """Public score of every submission over time, beside the base's, with the deadline and the final mark."""
    with drawing(*TRAJECTORY_INCHES) as figure:
        draw_trajectory(figure, evidence)
        n_scored = len(scored_submissions(evidence))
        return as_svg(figure, "trajectory", f"Scores of {n_scored} submissions over time, with the base model's score")


def draw_trajectory(figure: FigureBase, evidence: TrialEvidence) -> None:
    """The figure of `trajectory_svg`, or one panel of several."""
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    allowed = evidence.deadline - evidence.started_at
    time_shown_s = allowed if _is_deadline_near(evidence) else evidence.ended_at - evidence.started_at
    unit, unit_name = time_unit(time_shown_s)
    base = evidence.base_public.scaled(100)
    axes.axhspan(*base.interval, color=MUTED, alpha=0.14, linewidth=0)
    axes.axhline(base.value, color=MUTED, linewidth=1.4, linestyle=(0, (5, 3)), label="base model, 95% band")
    _draw_submissions(axes, evidence, unit)
    _draw_final(axes, evidence, unit)
    _draw_deadline(axes, evidence, unit)
    _give_room(axes)
    axes.set_xlabel(f"{unit_name} since the agent started")
    axes.set_ylabel("score, %")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3, fontsize=9)


def curves_svg(evidence: TrialEvidence) -> str | None:
    """Reward or loss of the training logs over steps; None if no log has either."""
    series = _training_series(evidence.metrics)
    if not series:
        return None
    with drawing(8.2, 2.9) as figure:
        panels = figure.subplots(1, len(series), squeeze=False)[0]
        for axes, colour, (label, points) in zip(panels, (BLUE, ORANGE, GREEN, PURPLE), series, strict=False):
            axes.patch.set_alpha(0)
            axes.plot([x for x, _ in points], [y for _, y in points], color=colour, linewidth=1.6)
            axes.set_title(label, fontsize=9, loc="left", color=INK)
            axes.set_xlabel("step")
            axes.grid(axis="y")
        return as_svg(figure, "curves", f"Training metrics over steps: {', '.join(label for label, _ in series)}")


def time_unit(seconds: float) -> tuple[float, str]:
    """(seconds of a unit, its name) that suits a span of time."""
    return next((unit, name) for limit_s, unit, name in TIME_UNITS if seconds < limit_s)


def _is_deadline_near(evidence: TrialEvidence) -> bool:
    """Whether the agent used so much of its time that the deadline fits into the figure."""
    return evidence.ended_at - evidence.started_at >= FAR_SHARE * (evidence.deadline - evidence.started_at)


def _draw_deadline(axes: Axes, evidence: TrialEvidence, unit: float) -> None:
    """The deadline as a line, or as a label where the line would squeeze everything else."""
    allowed_s = evidence.deadline - evidence.started_at
    deadline_unit, unit_name = time_unit(allowed_s)
    allowed = allowed_s / unit
    used = (evidence.ended_at - evidence.started_at) / unit
    is_far = not _is_deadline_near(evidence)
    reach = 1.25 * used if is_far else max(allowed, used)
    if not is_far:
        axes.axvline(allowed, color=MUTED, linewidth=1.2, linestyle=(0, (2, 2)))
    label = f"deadline at {allowed_s / deadline_unit:g} {unit_name} →" if is_far else "deadline"
    axes.annotate(
        label, (reach if is_far else allowed, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3),
        textcoords="offset points", ha="right", va="bottom", color=MUTED, fontsize=9,
    )  # fmt: skip
    axes.set_xlim(0, reach if is_far else 1.03 * reach)


def _give_room(axes: Axes) -> None:
    """At least `MIN_SPAN` points of height, so that a flat trial does not look dramatic."""
    low, high = axes.get_ylim()
    room = max(0.0, MIN_SPAN - (high - low)) / 2
    axes.set_ylim(max(low - room, -2.0), min(high + room, 102.0))


def _draw_submissions(axes: Axes, evidence: TrialEvidence, unit: float) -> None:
    scored = scored_submissions(evidence)
    start = evidence.started_at
    for copies, marker, colour, label in ((False, "o", BLUE, "submission"), (True, "D", PURPLE, "copy of the base")):
        chosen = [(s, s.score.scaled(100)) for s in scored if s.is_base_copy is copies and s.score is not None]
        if not chosen:
            continue
        values = [score.value for _, score in chosen]
        bars = list(zip(*(arms(score) for _, score in chosen), strict=True))
        times = [(submission.received_at - start) / unit for submission, _ in chosen]
        axes.errorbar(times, values, yerr=bars, fmt=marker, color=colour, capsize=3, markersize=6, label=label)
        for time, value, (submission, _) in zip(times, values, chosen, strict=True):
            axes.annotate(str(submission.number), (time, value), xytext=(7, 4), textcoords="offset points", fontsize=9)
    if len(scored) > 1:
        steps = [((s.received_at - start) / unit, 100 * s.score.value) for s in scored if s.score is not None]
        best = [max(value for _, value in steps[: last + 1]) for last in range(len(steps))]
        axes.step([time for time, _ in steps], best, where="post", color=BLUE, alpha=0.45, linewidth=1.2)
    if not evidence.submissions:
        axes.text(0.5, 0.62, "no submission", transform=axes.transAxes, ha="center", color=MUTED, fontsize=11)
    unscored = [s for s in evidence.submissions if s.state in {SubmissionState.REJECTED, SubmissionState.FAILED}]
    if unscored:
        times = [(s.received_at - start) / unit for s in unscored]
        bottom = 100 * evidence.base_public.interval[0] - 2
        axes.plot(times, [bottom] * len(times), "x", color=ORANGE, markersize=8, label="refused or failed (no score)")


def _draw_final(axes: Axes, evidence: TrialEvidence, unit: float) -> None:
    """Final checkpoint and base on the private items, where the agent's phase ended."""
    end = (evidence.ended_at - evidence.started_at) / unit
    marks = (
        (evidence.final_private, GREEN, GREEN, f"final on private items (submission {evidence.final_submission})"),
        (evidence.base_private, MUTED, "none", "base on private items"),
    )
    for score, colour, fill, label in marks:
        if score is not None:
            percent = score.scaled(100)
            axes.errorbar(
                [end], [percent.value], yerr=[[arm] for arm in arms(percent)], fmt="*", color=colour,
                markerfacecolor=fill, capsize=3, markersize=12, label=label,
            )  # fmt: skip


def _training_series(metrics: Sequence[MetricPoint]) -> list[tuple[str, list[tuple[float, float]]]]:
    """Reward, loss or the first metric of each training log, thinned for the figure."""
    logs = logged_training(metrics)
    # trainers write a second copy of their log beside the first; it would draw every curve twice
    methods = {log.method for log in logs if not log.file.endswith("trainer_state.json")}
    series = []
    for log in logs:
        if log.method in methods and log.file.endswith("trainer_state.json"):
            continue
        main_keys = [key for key in log.keys if key.rpartition("/")[2] in {"reward", "loss"}] or list(log.keys)
        key = next((key for key in main_keys if key == "reward"), main_keys[0])
        points = [
            (float(p.step if p.step is not None else index), p.values[key])
            for index, p in enumerate(p for p in metrics if p.file == log.file and key in p.values)
        ]
        if len(points) > 1:
            label = clean(f"{key} ({log.file})", 60)
            series.append((label, points[:: max(1, len(points) // MAX_CURVE_POINTS)]))
    return series[:MAX_CURVES]


def llm_svg(evidence: TrialEvidence) -> str | None:
    """Calls as bars over time, those that failed in another colour, and tokens so far; None without a call."""
    calls = evidence.llm.calls[:MAX_CALLS] if evidence.llm is not None else ()
    if not calls:
        return None
    with drawing(8.2, 2.6) as figure:
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        unit, unit_name = time_unit(evidence.ended_at - evidence.started_at)
        start = evidence.started_at
        for colour, label, is_whole in ((BLUE, "answered", True), (ORANGE, "not answered in full", False)):
            if chosen := [call for call in calls if (call.outcome == ExchangeOutcome.OK) is is_whole]:
                begins = [(call.t - start) / unit for call in chosen]
                lengths = [(call.seconds or 0.0) / unit for call in chosen]
                axes.barh([call.number for call in chosen], lengths, left=begins, color=colour, height=0.8, label=label)
                axes.plot(begins, [call.number for call in chosen], "|", color=colour, markersize=9)
        axes.set_ylabel("call")
        axes.set_xlabel(f"{unit_name} since the agent started")
        axes.set_xlim(left=0)
        tokens = axes.twinx()
        sums, total = [], 0
        for call in calls:
            total += call.tokens.total
            sums.append(total)
        ends = [(call.t + (call.seconds or 0.0) - start) / unit for call in calls]
        tokens.step(ends, sums, where="post", color=GREEN, linewidth=1.6, label="tokens so far")
        tokens.set_ylabel("tokens")
        tokens.set_ylim(bottom=0)
        tokens.spines["right"].set_visible(True)
        pairs = [axis.get_legend_handles_labels() for axis in (axes, tokens)]
        figure.legend(
            pairs[0][0] + pairs[1][0], pairs[0][1] + pairs[1][1], loc="outside upper left", ncols=3, fontsize=9
        )
        return as_svg(figure, "llm", f"{len(calls)} LLM calls over time, {total} tokens")


def forest_svg(rows: Sequence[SweepRow], summaries: Sequence[AgentSummary] = ()) -> str:
    """Paired gain of every trial with its 95% interval over items; a trial without a gain is labelled with the reason.

    The mean of each agent has the interval of its summary: over items and seeds, where it has several.
    """
    means = {f"{summary.agent} · {summary.task}": summary for summary in summaries}
    groups: dict[str, list[SweepRow]] = {}
    for row in rows[:MAX_LINES]:
        groups.setdefault(f"{row.agent} · {row.task}", []).append(row)
    n_lines = sum(len(members) + 1.6 for members in groups.values())
    with drawing(8.2, 1.0 + FOREST_ROW_INCHES * max(n_lines, 3)) as figure:
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        axes.axvline(0, color=MUTED, linewidth=1.2, linestyle=(0, (5, 3)))
        height, ticks, labels = 0.0, [], []
        for name, members in groups.items():
            axes.annotate(
                clean(name, 60), (0, height), xycoords=("axes fraction", "data"), xytext=(-8, 0),
                textcoords="offset points", ha="right", va="center", fontweight="bold", color=INK, fontsize=10,
            )  # fmt: skip
            gains = [100 * row.gain.value for row in members if row.gain is not None]
            if gains:
                claim = means[name].claim if name in means else ""
                colour = {Claim.BETTER.value: GREEN, Claim.WORSE.value: ORANGE}.get(claim, MUTED)
                axes.plot([sum(gains) / len(gains)], [height], "D", color=colour, markersize=7)
                mean = means[name].mean_gain if name in means else None
                if mean is not None and mean.low is not None:
                    axes.hlines(height, *mean.scaled(100).interval, color=colour, linewidth=2)
            for row in members:
                height -= 1
                ticks.append(height)
                labels.append(f"seed {row.seed}")
                _draw_forest(axes, row, height)
            height -= 1.6
        axes.set_yticks(ticks, labels, fontsize=9)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(height + 0.6, 0.9)
        axes.set_xlabel("gain on private items, points, with 95% intervals (diamonds: means)")
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.margins(x=0.08)
        return as_svg(figure, "forest", f"Gain of {len(rows)} trials by agent with 95% intervals")


def _draw_forest(axes: Axes, row: SweepRow, height: float) -> None:
    if row.gain is None:
        reason = row.result.replace("_", " ") or row.state
        axes.annotate(clean(reason, 60), (0, height), xytext=(6, 0), textcoords="offset points", va="center",
                      color=MUTED, fontsize=9)  # fmt: skip
        return
    style: dict[str, Any] = {
        "color": BLUE,
        "markersize": 6,
        "markerfacecolor": BLUE if row.claim in {Claim.BETTER, Claim.WORSE} else "none",
    }
    gain = row.gain.scaled(100)
    if gain.low is None:
        axes.plot([gain.value], [height], "s", **style)
        axes.annotate(clean(row.result.replace("_", " "), 60), (gain.value, height), xytext=(8, 0),
                      textcoords="offset points", va="center", color=MUTED, fontsize=9)  # fmt: skip
        return
    axes.errorbar([gain.value], [height], xerr=[[arm] for arm in arms(gain)], fmt="o", capsize=2.5, **style)
