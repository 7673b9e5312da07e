"""The end of `agent2 run` and its siblings: write the report and print its headline."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agent2.errors import MachineLacks

if TYPE_CHECKING:
    from agent2.arena.analysis.verdicts import Analysis
    from agent2.arena.evidence import TrialEvidence


def print_result(root: Path) -> None:
    """Compute the report from the trial's folder, print the headline and the path of the report.

    Raises MachineLacks if the agent was stopped because something of ours failed: the report says so as well.
    """
    from agent2.arena.evidence import AgentEnd
    from agent2.cli.show import print_path, print_table
    from agent2.reports.pages import headline

    evidence, analysis, page = write_trial_report(root)
    print_table(["", ""], [list(row) for row in headline(evidence, analysis)])
    print_path("report", page)
    if evidence.agent_end is AgentEnd.INFRASTRUCTURE:
        raise MachineLacks(
            f"{root}: the harness failed, not the agent: {evidence.agent_end_reason}; run the trial again"
        )


def write_trial_report(root: Path) -> "tuple[TrialEvidence, Analysis, Path]":
    """Compute the report from the trial's folder; returns its content and the path of its page."""
    from agent2.arena.analysis.analyse import analyse
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.paths import TrialPaths
    from agent2.reports.pages import write_report

    evidence = read_evidence(root)
    analysis = analyse(evidence)
    return evidence, analysis, write_report(evidence, analysis, TrialPaths(root).report).html


def print_replay(root: Path) -> bool:
    """Compare a replay with its source and print the differences; returns whether there are none."""
    from agent2.arena.paths import TrialPaths
    from agent2.arena.replay import DIFFERENCES, compare_replay
    from agent2.cli.show import print_path, print_table
    from agent2.reports.replay_view import call_words, difference_lines, submission_rows

    report = compare_replay(root)
    print_table(["submission", "code", "checkpoint", "files that differ"], submission_rows(report))
    for line in difference_lines(report):
        typer.echo(line)
    for line in call_words(report):
        typer.echo(line)
    paths = TrialPaths(root)
    if report.differences:
        print_path("request differences", paths.llm / DIFFERENCES)
    print_path("replay", paths.replay_json)
    return report.is_same
