"""Figures of a trial report as inline SVG: score trajectory and training curves.

The drawings take their colours from the page (CSS variables with fallbacks), so one figure serves light and
dark; `standalone` gives the form for a file, in fixed colours on white. Series differ in marker and dash as well as
in a colour-blind-safe hue. Deterministic: equal input gives equal bytes. Labels that an agent chose are cleaned and
never read as mathematics.

Labels stay text, drawn with the reader's fonts. In scripts that DejaVu Sans lacks (Chinese, Japanese, Korean, ...) they
are measured with an installed font that has them; where there is none, a line under the figure says so.
"""

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, get_font
from matplotlib.text import Text

from agent2.arena.analysis.metric_signals import logged_training
from agent2.arena.analysis.process import scored_submissions
from agent2.arena.evidence import MetricPoint, SubmissionState, TrialEvidence
from agent2.reports.text import clean

INK, MUTED, GRID = "#010203", "#010204", "#010205"
BLUE, ORANGE, GREEN, PURPLE = "#010206", "#010207", "#010208", "#010209"
PAGE_COLOURS = {
    INK: "var(--ink, #1b1f24)",
    MUTED: "var(--muted, #59636e)",
    GRID: "var(--line, #d9dee3)",
    BLUE: "var(--blue, #0072b2)",
    ORANGE: "var(--orange, #d55e00)",
    GREEN: "var(--green, #00815b)",
    PURPLE: "var(--purple, #a5568a)",
}
"""Stand-ins that matplotlib draws with -> what the page fills in (hues after Okabe and Ito)."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "agent2",
    "font.family": ["sans-serif"],
    "font.size": 10,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
}
MAX_CURVES = 4
MIN_SPAN = 30.0
FAR_SHARE = 0.5
TIME_UNITS = ((180.0, 1.0, "seconds"), (3 * 3600.0, 60.0, "minutes"), (math.inf, 3600.0, "hours"))
"""(shorter than, seconds of one unit, its name)"""
MAX_CURVE_POINTS = 400
MAX_LACKING = 8
NOT_FOR_LABELS = ("DejaVu", "STIXNon", "STIXSize", "cm", "Last Resort")
"""Font families that matplotlib brings for formulas, and the one that has a box for everything."""


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """A figure in the style of the reports; sizes in inches. The style holds inside the `with` only."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.patch.set_alpha(0)
        yield figure


def as_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an <svg> element with ids of its own; call inside `drawing`."""
    buffer = io.StringIO()
    choose_fonts(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")  # the figure says it
        warnings.filterwarnings("ignore", r"Matplotlib currently does not support .* natively")
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(xlink:href="|url\()#', rf"\1#{name}-", svg)
    for stand_in, colour in PAGE_COLOURS.items():
        svg = svg.replace(stand_in, colour)
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def standalone(svg: str) -> str:
    """The figure for a file of its own: in fixed colours on white, since no page fills in a colour there."""
    return re.sub(r"var\(--\w+, (#\w+)\)", r"\1", svg).replace("<svg ", '<svg style="background: #ffffff" ', 1)


def choose_fonts(figure: Figure) -> None:
    """Give labels beyond DejaVu Sans installed fonts that have their characters, else say which have none."""
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and not text.get_text().isascii()]
    known = _characters_of(matplotlib.get_data_path() + "/fonts/ttf/DejaVuSans.ttf")
    lacking = {mark for text in texts for mark in text.get_text() if not mark.isspace()} - known
    if not lacking:
        return
    without = set(lacking)
    families = []
    for entry in sorted(
        fontManager.ttflist, key=lambda entry: (entry.style != "normal", entry.weight != 400, entry.name)
    ):
        if not without:
            break
        if entry.name.startswith(NOT_FOR_LABELS) or entry.name in families:
            continue
        if found := without & _characters_of(entry.fname):
            families.append(entry.name)
            without -= found
    for text in texts:
        if lacking & set(text.get_text()):
            text.set_fontfamily(["DejaVu Sans", *families, "sans-serif"])
    if without:
        shown = " ".join(sorted(without)[:MAX_LACKING])
        more = f" and {len(without) - MAX_LACKING} more" if len(without) > MAX_LACKING else ""
        words = f"Drawn without a font for {shown}{more}: spacing is estimated, the viewer's own fonts show the labels."
        figure.supxlabel(words, x=0.01, ha="left", fontsize=7.5, color=MUTED)


def _characters_of(font: str) -> set[str]:
    """What a font file can draw; nothing if it cannot be read."""
    try:
        return {chr(code) for code in get_font(font).get_charmap()}
    except (OSError, RuntimeError):
        return set()


def trajectory_svg(evidence: TrialEvidence) -> str:
    """Public score of every submission over time, beside the base's, with the deadline and the final mark."""
    with drawing(8.2, 3.6) as figure:
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        allowed = evidence.deadline - evidence.started_at
        shown = allowed if _is_deadline_near(evidence) else evidence.ended_at - evidence.started_at
        unit, unit_name = time_unit(shown)
        _draw_base(axes, evidence)
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
        n_scored = len(scored_submissions(evidence))
        return as_svg(figure, "trajectory", f"Scores of {n_scored} submissions over time, with the base model's score")


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
    """Seconds of the unit to tell a span in, and its name."""
    return next((unit, name) for most, unit, name in TIME_UNITS if seconds < most)


def _is_deadline_near(evidence: TrialEvidence) -> bool:
    """The agent used so much of its time that the deadline fits into the figure."""
    return evidence.ended_at - evidence.started_at >= FAR_SHARE * (evidence.deadline - evidence.started_at)


def _draw_deadline(axes: Axes, evidence: TrialEvidence, unit: float) -> None:
    """The deadline as a line, or as words when it is so far off that the line would squeeze everything else."""
    given = evidence.deadline - evidence.started_at
    its_unit, its_name = time_unit(given)
    allowed = given / unit
    used = (evidence.ended_at - evidence.started_at) / unit
    is_far = not _is_deadline_near(evidence)
    reach = 1.25 * used if is_far else max(allowed, used)
    if not is_far:
        axes.axvline(allowed, color=MUTED, linewidth=1.2, linestyle=(0, (2, 2)))
    words = f"deadline at {given / its_unit:g} {its_name} →" if is_far else "deadline"
    axes.annotate(
        words, (reach if is_far else allowed, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3),
        textcoords="offset points", ha="right", va="bottom", color=MUTED, fontsize=9,
    )  # fmt: skip
    axes.set_xlim(0, reach if is_far else 1.03 * reach)


def _give_room(axes: Axes) -> None:
    """At least `MIN_SPAN` points of height, so that a flat trial does not look dramatic."""
    low, high = axes.get_ylim()
    room = max(0.0, MIN_SPAN - (high - low)) / 2
    axes.set_ylim(max(low - room, -2.0), min(high + room, 102.0))


def _draw_base(axes: Axes, evidence: TrialEvidence) -> None:
    base = evidence.base_public
    axes.axhspan(100 * base.low, 100 * base.high, color=MUTED, alpha=0.14, linewidth=0)
    axes.axhline(100 * base.value, color=MUTED, linewidth=1.4, linestyle=(0, (5, 3)), label="base model, 95% band")


def _draw_submissions(axes: Axes, evidence: TrialEvidence, unit: float) -> None:
    scored = scored_submissions(evidence)
    start = evidence.started_at
    for copies, marker, colour, label in ((False, "o", BLUE, "submission"), (True, "D", PURPLE, "copy of the base")):
        chosen = [(s, s.score) for s in scored if s.is_base_copy is copies and s.score is not None]
        if not chosen:
            continue
        values = [100 * score.value for _, score in chosen]
        bars = [
            [100 * (score.value - score.low) for _, score in chosen],
            [100 * (score.high - score.value) for _, score in chosen],
        ]
        times = [(submission.received_at - start) / unit for submission, _ in chosen]
        axes.errorbar(times, values, yerr=bars, fmt=marker, color=colour, capsize=3, markersize=6, label=label)
        for time, value, (submission, _) in zip(times, values, chosen, strict=True):
            axes.annotate(str(submission.number), (time, value), xytext=(7, 4), textcoords="offset points", fontsize=9)
    if len(scored) > 1:
        steps = [((s.received_at - start) / unit, 100 * s.score.value) for s in scored if s.score is not None]
        best = [max(value for _, value in steps[: place + 1]) for place in range(len(steps))]
        axes.step([time for time, _ in steps], best, where="post", color=BLUE, alpha=0.45, linewidth=1.2)
    unscored = [s for s in evidence.submissions if s.state in {SubmissionState.REJECTED, SubmissionState.FAILED}]
    if unscored:
        times = [(s.received_at - start) / unit for s in unscored]
        bottom = 100 * evidence.base_public.low - 2
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
            bars = [[100 * (score.value - score.low)], [100 * (score.high - score.value)]]
            axes.errorbar(
                [end], [100 * score.value], yerr=bars, fmt="*", color=colour, markerfacecolor=fill,
                capsize=3, markersize=12, label=label,
            )  # fmt: skip


def _training_series(metrics: Sequence[MetricPoint]) -> list[tuple[str, list[tuple[float, float]]]]:
    """The telling metric of each training log, thinned to what a figure can show."""
    logs = logged_training(metrics)
    # trainers keep a second copy of their log beside the first; it would draw every curve twice
    own = {log.method for log in logs if not log.file.endswith("trainer_state.json")}
    series = []
    for log in logs:
        if log.method in own and log.file.endswith("trainer_state.json"):
            continue
        wanted = [key for key in log.keys if key.rpartition("/")[2] in {"reward", "loss"}] or list(log.keys)
        key = next((key for key in wanted if key == "reward"), wanted[0])
        points = [
            (float(p.step if p.step is not None else place), p.values[key])
            for place, p in enumerate(p for p in metrics if p.file == log.file and key in p.values)
        ]
        if len(points) > 1:
            label = clean(f"{key} ({log.file})", 60)
            series.append((label, points[:: max(1, len(points) // MAX_CURVE_POINTS)]))
    return series[:MAX_CURVES]
