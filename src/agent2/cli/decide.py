"""`agent2 decide`: the decision from a report or from the cards of an evaluation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agent2.contract.evidence import Evidence
    from agent2.contract.suite import Suite


def decide(
    report: Annotated[Path, typer.Argument(help="Report (.yaml, .json), or the folder of an evaluation.")],
    suite: Annotated[str, typer.Option("--suite", help="Name of a packaged suite, or a .yaml file.")],
    history: Annotated[
        Path | None, typer.Option("--history", help="YAML of earlier values, oldest first: `metric: [..]`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON (docs/json-output.md).")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Also write report and decision to this file.")] = None,
) -> None:
    """Recompute the decision on a checkpoint; exit 0 for `release` and `candidate`, 1 for anything else."""
    import json
    from dataclasses import replace

    from agent2.cli.decision_text import print_decision
    from agent2.cli.show import print_path
    from agent2.contract.decision import decide as decide_on
    from agent2.contract.report_file import read_history, with_history
    from agent2.contract.report_write import decision_dict, report_dict, write_report
    from agent2.contract.suite_files import load_suite

    contract = load_suite(suite)
    evidence = _evidence(report, contract)
    if history is not None:
        evidence = with_history(evidence, read_history(history, contract.metrics))
    if evidence.suite is not None and contract.name not in evidence.suite:
        note = f"the report was made under suite {evidence.suite} and decided under {contract.id}"
        evidence = replace(evidence, notes=(*evidence.notes, note))
    decision = decide_on(contract.metrics, contract.gates, evidence, contract.failure_taxonomy)
    if out is not None:
        write_report(out, report_dict(contract.metrics, evidence, decision))
    if as_json:
        typer.echo(json.dumps(decision_dict(decision), indent=1, ensure_ascii=False))
    else:
        print_decision(decision)
        if out is not None:
            print_path("report", out)
    if not decision.passes:
        raise typer.Exit(1)


def _evidence(report: Path, contract: "Suite") -> "Evidence":
    """What a report file says; for the folder of an evaluation, what its cards say, with the report's context."""
    from dataclasses import replace

    from agent2.contract.report_file import read_report
    from agent2.contract.suite import hold_prerequisites

    if not report.is_dir():
        return hold_prerequisites(contract, read_report(report, contract.metrics, contract.baseline))
    from agent2.evaluation.outcome import read_outcome  # not needed for a report: keeps that fast

    file = report / "report.yaml"
    known = read_report(file, contract.metrics) if file.exists() else None
    if known is not None:
        known = replace(known, metrics={}, private_metrics={}, notes=())
    evidence = read_outcome(report, known).evidence
    return replace(evidence, notes=(*evidence.notes, "every number was recomputed from the cards"))
