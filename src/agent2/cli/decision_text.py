"""Printing a decision in the terminal."""

import typer

from agent2.cli.show import print_table
from agent2.contract.decision import Decision
from agent2.contract.findings import Finding
from agent2.reports.text import clean

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
