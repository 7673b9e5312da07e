"""The reports of one trial, and the form of a spot check: JSON, Markdown and HTML.

A page is one HTML file that loads nothing from the network and, but for the form, has no script; its content security
policy forbids both, in case hostile text ever gets past the escaping. The JSON contains every number of the pages.
"""

import base64
import hashlib
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from agent2.analysis.rater_agreement import Sample
from agent2.analysis.spot_check import form_rows
from agent2.arena.analysis.verdicts import Analysis
from agent2.arena.evidence import TrialEvidence
from agent2.arena.recording import ReplayReport, SubmissionReplay
from agent2.files import write_json, write_text
from agent2.reports.charts import curves_svg, llm_svg, trajectory_svg
from agent2.reports.headline import headline
from agent2.reports.style import standalone
from agent2.reports.text import DASH, Column, Table, clean, clean_lines, render
from agent2.reports.trial_view import trial_view

FORMAT = "agent2-report-2"
"""Version 1 had numbers with intervals as flat fields, and the headline as a mapping of texts."""
MAX_DIFFERENCES = 5
MAX_LINES = 40
"""Of one request's difference."""


def replay_table(report: ReplayReport) -> Table[SubmissionReplay]:
    """Each submission of a replay beside the recorded one."""
    return Table(
        (
            Column("submission", lambda submission: str(submission.number)),
            Column(
                "code",
                lambda submission: (
                    "same"
                    if submission.is_same_tree
                    else _digest_change(submission.recorded_tree, submission.replayed_tree)
                ),
            ),
            Column(
                "checkpoint",
                lambda submission: _digest_change(submission.recorded_weights, submission.replayed_weights),
            ),
            Column("files that differ", lambda submission: clean(", ".join(submission.changed_files)) or DASH),
        ),
        report.submissions,
    )


def difference_lines(report: ReplayReport) -> list[str]:
    """The first differing requests as unified diffs."""
    lines = []
    for row in report.differences[:MAX_DIFFERENCES]:
        expected = row.get("expected")
        reason = "was not recorded" if expected is None else f"is not the recorded one ({expected})"
        lines.append(clean(f"request {row.get('id', '?')} {reason}:"))
        text = str(row.get("diff", "")).splitlines()
        lines += [f"  {clean(line, 200)}" for line in text[:MAX_LINES]]
        lines += [f"  ... {len(text) - MAX_LINES} more lines"] if len(text) > MAX_LINES else []
    hidden = len(report.differences) - MAX_DIFFERENCES
    return [*lines, *([f"... and {hidden} more requests that differ"] if hidden > 0 else [])]


def call_words(report: ReplayReport) -> list[str]:
    """Number of requests, how many differ, what was left to judge, and the result of the comparison."""
    totals = f"{report.n_replayed_calls} LLM calls replayed, {report.n_recorded_calls} recorded"
    differ = f"{len(report.differences)} of them differ" if report.differences else "all as recorded"
    lines = [f"{totals}, {differ}"]
    if (remains := report.workspace) is not None:
        change = _digest_change(remains.recorded_tree, remains.replayed_tree)
        files = f": {', '.join(remains.changed_files)}" if remains.changed_files else ""
        lines.append(clean(f"workspace at the end: {change}{files}"))
    if report.cut is not None:
        lines.append(clean(report.cut))
    lines.append("replay: the same" if report.is_same else "replay: NOT the same as the recording")
    return lines


def _digest_change(recorded: str | None, replayed: str | None) -> str:
    if recorded == replayed:
        return "same" if recorded is not None else "none in either"
    if recorded is None or replayed is None:
        return "only in the replay" if recorded is None else "not in the replay"
    return f"DIFFERS ({recorded[:10]} -> {replayed[:10]})"


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """The files of a report."""

    json: Path
    markdown: Path
    html: Path
    figures: tuple[Path, ...]


def write_report(evidence: TrialEvidence, analysis: Analysis, out_dir: Path) -> ReportPaths:
    """Write all files of the report into `out_dir` (made if missing); existing ones are replaced."""
    out_dir.mkdir(parents=True, exist_ok=True)
    drawings = {"trajectory": trajectory_svg(evidence), "curves": curves_svg(evidence), "llm": llm_svg(evidence)}
    figures = {name: svg for name, svg in drawings.items() if svg is not None}
    fields = {"view": trial_view(evidence, analysis), "figures": figures}
    paths = ReportPaths(
        json=out_dir / "report.json",
        markdown=out_dir / "report.md",
        html=out_dir / "report.html",
        figures=tuple(out_dir / f"{name}.svg" for name in figures),
    )
    for path, svg in zip(paths.figures, figures.values(), strict=True):
        write_text(path, standalone(svg))
    write_json(paths.json, report_record(evidence, analysis))
    write_text(paths.markdown, render("trial.md.j2", fields))
    write_text(paths.html, render("trial.html.j2", fields))
    return paths


def report_record(evidence: TrialEvidence, analysis: Analysis) -> dict[str, Any]:
    """Everything that the pages show, as plain JSON values; texts of agents are unchanged."""
    left_out = {"task", "revisions", "agent_files", "metrics", "agent_log_tail"}
    trial = {key: getattr(evidence, key) for key in evidence.__dataclass_fields__ if key not in left_out}
    return {
        "format": FORMAT,
        "trial": {**trial, "task": evidence.task.model_dump(mode="json")},
        "analysis": asdict(analysis),
        "route_label": analysis.route.label,
        "training_logs": _training_logs(evidence),
        "headline": asdict(headline(evidence, analysis)),
    }


def spot_check_page(sample: Sample) -> str:
    """The form of a spot check as one HTML file, which needs no network and sends nothing.

    Its content security policy allows this one script by its digest, so that no judged text can bring another.
    """
    script = (resources.files("agent2.reports") / "templates" / "spot_check.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    fields = {
        "sample": sample,
        "rows": [{key: clean_lines(value) if isinstance(value, str) else value for key, value in row.items()}
                 for row in form_rows(sample)],
        "text_fields": ("question", "reference", "answer", "first", "second"),
        "verdicts": sample.allowed_verdicts,
        "question": "which answer is better" if sample.is_pairwise else "whether the answer is right",
        "script": script,
        "script_digest": digest,
    }  # fmt: skip
    return render("spot_check.html.j2", fields)


def _training_logs(evidence: TrialEvidence) -> list[dict[str, Any]]:
    """Each training log by its length and its last line."""
    logs: dict[str, dict[str, Any]] = {}
    for point in evidence.metrics:
        n_before = logs.get(point.file, {"n_points": 0})["n_points"]
        last = {"last_step": point.step, "last_values": dict(point.values)}
        logs[point.file] = {"file": point.file, "n_points": n_before + 1, **last}
    return list(logs.values())
