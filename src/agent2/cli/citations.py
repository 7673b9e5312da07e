"""`agent2 cards citations`: cited addresses of the web, checked against what the episodes saw and a recording."""

from pathlib import Path
from typing import Annotated

import typer

from agent2.cli.show import AsJson, print_json, print_path, print_table
from agent2.texts import counted

SHOWN = 10


def citations(
    card: Annotated[Path, typer.Argument(help="Folder of a card.")],
    pages: Annotated[
        Path | None,
        typer.Option("--pages", help="Recorded pages: JSON lines with url, status and text, or a browser's .har file."),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=0, help="How many addresses to show that are not sound.")] = SHOWN,
    as_json: AsJson = False,
) -> None:
    """Check the addresses that answers cite: seen, opened, about the sentence that cites them. Nothing is fetched."""
    from agent2.analysis.citations import SHARES, citations_of_card, read_pages
    from agent2.reports.text import clean
    from agent2.stats.estimates import PERCENT

    report = citations_of_card(card, None if pages is None else read_pages(pages))
    if as_json:
        print_json(report)
        return
    left_out = f", {report.n_left_out} left out: a fault ended them" if report.n_left_out else ""
    typer.echo(f"{report.n_citing} of {counted(report.n_rollouts, 'rollout')} cite an address of the web{left_out}")
    if report.n_cited:
        rows = [[name, PERCENT.estimate(report.shares[name], "not known"), SHARES[name]] for name in SHARES]
        print_table(["cited addresses", "mean over items", "that"], rows)
        listed = ", ".join(f"{name} {count}" for name, count in report.counts.items())
        typer.echo(f"{counted(report.n_cited, 'cited URL')}: {listed}; {report.n_irrelevant} about something else")
        scores = ["none" if score is None else f"{score:.3f}" for score in (report.score_sound, report.score_unsound)]
        typer.echo(f"mean score of rollouts whose addresses are all sound: {scores[0]}; of the others: {scores[1]}")
    examples = [
        [
            f"{entry.item_id}#{entry.attempt}",
            "about something else" if entry.cited.is_relevant is False else entry.cited.state.value,
            clean(entry.cited.url, 120),
            clean(entry.cited.sentence, 120),
        ]
        for entry in report.unsound[:n]
    ]
    if examples:
        print_table(["rollout", "is", "address", "cited for"], examples)
    print_path("card", card)
