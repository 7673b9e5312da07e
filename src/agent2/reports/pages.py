"""The report of one trial: report.json for programs, report.md and report.html for people.

The HTML page is one file without scripts that asks the network for nothing; its content security policy
forbids both, should hostile text ever get past the escaping. The JSON holds every number of the pages.

What a terminal shows of a replay: submissions beside those of the source, and requests that differed.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jinja2

from agent2.arena.analysis.verdicts import Analysis
from agent2.arena.evidence import TrialEvidence
from agent2.arena.recording import ReplayReport, SubmissionReplay
from agent2.files import write_json, write_text
from agent2.reports.charts import curves_svg, llm_svg, standalone, trajectory_svg
from agent2.reports.text import DASH, Column, Table, breakable, clean, markdown, markdown_lines
from agent2.reports.trial_view import headline, summary_lines, trial_view

MAX_DIFFERENCES = 5
MAX_LINES = 40
"""Of one request's difference."""


def replay_table(report: ReplayReport) -> Table[SubmissionReplay]:
    """Each submission of a replay beside the recorded one."""
    return Table(
        (
            Column("submission", lambda one: str(one.number)),
            Column("code", _code_words),
            Column("checkpoint", lambda one: _words(one.recorded_weights, one.replayed_weights)),
            Column("files that differ", lambda one: clean(", ".join(one.changed_files)) or DASH),
        ),
        report.submissions,
    )


def difference_lines(report: ReplayReport) -> list[str]:
    """The first differing requests as unified diffs."""
    lines = []
    for row in report.differences[:MAX_DIFFERENCES]:
        expected = row.get("expected")
        words = "is none that was recorded" if expected is None else f"is not the recorded one ({expected})"
        lines.append(clean(f"request {row.get('id', '?')} {words}:"))
        text = str(row.get("diff", "")).splitlines()
        lines += [f"  {clean(line, 200)}" for line in text[:MAX_LINES]]
        lines += [f"  ... {len(text) - MAX_LINES} more lines"] if len(text) > MAX_LINES else []
    hidden = len(report.differences) - MAX_DIFFERENCES
    return [*lines, *([f"... and {hidden} more requests that differ"] if hidden > 0 else [])]


def call_words(report: ReplayReport) -> list[str]:
    """How many requests there were, and what the comparison came to."""
    calls = f"{report.n_replayed_calls} LLM calls replayed, {report.n_recorded_calls} recorded"
    differ = f"{len(report.differences)} of them differ" if report.differences else "all as recorded"
    words = [f"{calls}, {differ}"]
    if report.cut is not None:
        words.append(clean(report.cut))
    words.append("replay: the same" if report.is_same else "replay: NOT the same as the recording")
    return words


def _code_words(one: SubmissionReplay) -> str:
    return "same" if one.is_same_tree else _words(one.recorded_tree, one.replayed_tree)


def _words(recorded: str | None, replayed: str | None) -> str:
    if recorded == replayed:
        return "same" if recorded is not None else "none in either"
    if recorded is None or replayed is None:
        return "only in the replay" if recorded is None else "not in the replay"
    return f"DIFFERS ({recorded[:10]} -> {replayed[:10]})"


__all__ = ["ReportPaths", "headline", "summary_lines", "write_report"]

FORMAT = "agent2-report-2"
"""Version 1 had numbers with intervals as flat fields, and the headline as a mapping of words."""
SYMBOLS = {"pass": "✓", "partial": "◐", "fail": "✗", "unknown": "?"}


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
    drawn = {"trajectory": trajectory_svg(evidence), "curves": curves_svg(evidence), "llm": llm_svg(evidence)}
    figures = {name: svg for name, svg in drawn.items() if svg is not None}
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
    """Everything that the pages show, as plain JSON values; texts of agents stand as they were written."""
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


def render(template: str, fields: dict[str, Any]) -> str:
    """A packaged template filled in; HTML is escaped by the engine, Markdown by the `md` filter."""
    engine = jinja2.Environment(
        loader=jinja2.PackageLoader("agent2.reports", "templates"),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",), default=False),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    engine.filters |= {"md": markdown, "md_lines": markdown_lines, "soft": breakable}
    engine.globals["symbols"] = SYMBOLS
    return engine.get_template(template).render(fields)


def _training_logs(evidence: TrialEvidence) -> list[dict[str, Any]]:
    """Each training log by its length and its last line."""
    logs: dict[str, dict[str, Any]] = {}
    for point in evidence.metrics:
        n_before = logs.get(point.file, {"n_points": 0})["n_points"]
        last = {"last_step": point.step, "last_values": dict(point.values)}
        logs[point.file] = {"file": point.file, "n_points": n_before + 1, **last}
    return list(logs.values())
