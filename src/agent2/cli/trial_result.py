"""What `agent2 run` and `agent2 demo` do at the end of a trial: write the report and print its head."""

from pathlib import Path


def print_result(root: Path) -> None:
    """Compute the report from the trial's folder, print the headline and the path of the report."""
    from agent2.arena.analysis.analyse import analyse
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.paths import TrialPaths
    from agent2.cli.show import print_path, print_table
    from agent2.reports.pages import headline, write_report

    evidence = read_evidence(root)
    analysis = analyse(evidence)
    written = write_report(evidence, analysis, TrialPaths(root).report)
    print_table(["", ""], [list(row) for row in headline(evidence, analysis)])
    print_path("report", written.html)
