"""`agent2 decide`: the decision from a report or from the cards of an evaluation.

Printing a decision in the terminal.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.show import print_table
from agent2.contract.decision import Decision
from agent2.contract.findings import Finding
from agent2.reports.text import clean

if TYPE_CHECKING:
    from agent2.contract.evidence import Evidence
    from agent2.contract.suite import Suite


LONG = 2000
"""Most characters shown of a sentence; a report is untrusted text."""


def print_decision(decision: Decision) -> None:
    """Print the gates as a table, then the three outputs with their reasons."""
    rows = [
        [finding.gate, finding.state.value.upper() if finding.fired else finding.state.value, *_cells(finding)]
        for finding in decision.findings
    ]
    print_table(["gate", "outcome", "on", "inputs", "rule and evidence"], rows)
    _print_list("problems found by the evidence gate", decision.problems)
    baseline = clean(decision.baseline or "no control group")
    typer.echo(f"checkpoint        {clean(decision.checkpoint)} against {baseline}")
    typer.echo(f"evidence gate     {'fired' if decision.problems else 'passed'}")
    typer.echo(f"judged by         {decision.basis}")
    typer.echo(f"training action   {decision.training_action.value}")
    typer.echo(f"release decision  {decision.release}")
    if decision.also:
        typer.echo(f"also fired        {', '.join(decision.also)}")
    if not decision.problems:  # else they were printed as the evidence gate
        _print_list("because", decision.reasons)
        _print_list("what would change it", decision.would_change)
    _print_list("next data", decision.next_data)
    answers = decision.answers
    rows = [
        ["Did capabilities improve?", answers.capabilities_improved],
        ["Are preferences aligned?", answers.preferences_aligned],
        ["Is the reward distorted?", answers.reward_distorted],
        ["May training go on?", answers.may_continue_training],
        ["May it be deployed?", answers.may_be_deployed],
    ]
    print_table(["question", "answer"], [[question, clean(answer, LONG)] for question, answer in rows])
    _print_list("notes", decision.notes)


def _cells(finding: Finding) -> list[str]:
    told = "; ".join((finding.rule, finding.evidence, *finding.problems))
    return [clean(finding.on), clean(", ".join(finding.inputs), LONG), clean(told, LONG)]


def _print_list(title: str, sentences: tuple[str, ...]) -> None:
    if sentences:
        typer.echo(f"{title}:")
        for sentence in sentences:
            typer.echo(f"  - {clean(sentence, LONG)}")


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
