"""The report of a suite evaluation: report.yaml and report.json in the known fields, report.md and report.html.

The YAML and JSON files hold the same: `agent2 decide` reads either and comes to the same decision on a machine
without torch. Equal cards give equal bytes in every file: no times, no paths of the machine. The HTML page is one
file without scripts that asks the network for nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2.contract.report_write import report_dict, write_report
from agent2.evaluation.outcome import SuiteOutcome, evaluation_section
from agent2.reports.charts import standalone
from agent2.reports.eval_charts import change_svg
from agent2.reports.eval_view import (
    ATTEMPT_NAMES,
    COST_NAMES,
    DROP_NAMES,
    METRIC_NAMES,
    PROTOCOL_NAMES,
    eval_view,
)
from agent2.reports.pages import render, write_text


@dataclass(frozen=True, slots=True)
class EvalReportPaths:
    """The files of a report."""

    yaml: Path
    json: Path
    markdown: Path
    html: Path
    figure: Path | None
    """None: no metric has a number on both sides."""


def write_eval_report(outcome: SuiteOutcome, out: Path) -> EvalReportPaths:
    """Write all files of the report into `out`; existing ones are replaced."""
    report: dict[str, Any] = report_dict(outcome.suite.metrics, outcome.evidence, outcome.decision)
    report["evaluation"] = evaluation_section(outcome)
    figure = change_svg(outcome.suite.metrics, outcome.evidence)
    fields = {
        "view": eval_view(outcome),
        "figure": figure,
        "metric_names": METRIC_NAMES,
        "cost_names": COST_NAMES,
        "attempt_names": ATTEMPT_NAMES,
        "drop_names": DROP_NAMES,
        "protocol_names": PROTOCOL_NAMES,
    }
    paths = EvalReportPaths(
        yaml=out / "report.yaml",
        json=out / "report.json",
        markdown=out / "report.md",
        html=out / "report.html",
        figure=out / "change.svg" if figure is not None else None,
    )
    write_report(paths.yaml, report)
    write_report(paths.json, report)
    write_text(paths.markdown, render("eval.md.j2", fields))
    write_text(paths.html, render("eval.html.j2", fields))
    if figure is not None and paths.figure is not None:
        write_text(paths.figure, standalone(figure))
    return paths
