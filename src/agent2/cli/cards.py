"""`agent2 cards`: the kept evidence behind every number."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Rollout cards.", no_args_is_help=True)
MAX_CELL = 80


@app.command("list")
def list_cards(folder: Annotated[Path, typer.Argument(help="Folder to look below.")] = Path("trials")) -> None:
    """List the cards below a folder with their scores."""
    from agent2.cards.reader import CARD_FILE, read_header, read_summary
    from agent2.cli.show import print_table
    from agent2.errors import CardError, ConfigError

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; name the folder of a trial, a sweep, or one above them")
    rows = []
    for path in sorted(found.parent for found in folder.rglob(CARD_FILE)):
        try:
            header, summary = read_header(path), read_summary(path)
        except CardError as error:
            rows.append([str(path), "", "", str(error)])
            continue
        score = "-" if summary.value is None else f"{summary.value:.3f} [{summary.low:.3f}, {summary.high:.3f}]"
        protocol = f"{header.protocol.benchmark} / {header.protocol.split.value}"
        rows.append([str(path), protocol, score, f"{summary.n_items} items, {summary.n_missing} missing"])
    print_table(["card", "benchmark / split", "score [95%]", "n"], rows)


@app.command("show")
def show(
    card: Annotated[Path, typer.Argument(help="Folder of a card.")],
    start: Annotated[int, typer.Option(help="First rollout to show.")] = 0,
    n: Annotated[int, typer.Option("--n", help="How many rollouts to show.")] = 10,
) -> None:
    """Show a card's summary and one page of its rollouts."""
    from agent2.cards.reader import read_header, read_page, read_summary
    from agent2.cli.show import print_path, print_table
    from agent2.errors import ConfigError

    if start < 0 or n < 0:
        raise ConfigError(f"--start {start}, --n {n}: neither may be negative")
    header, summary = read_header(card), read_summary(card)
    score = "none" if summary.value is None else f"{summary.value:.4f} [{summary.low:.4f}, {summary.high:.4f}]"
    rows = [
        ["checkpoint", f"{header.checkpoint_name} ({header.checkpoint_digest[:16]})"],
        ["protocol", f"{header.protocol.benchmark} {header.protocol.split.value} ({header.protocol.digest[:16]})"],
        ["score [95%]", score],
        ["items", f"{summary.n_items}; {summary.n_rollouts} rollouts, {summary.n_missing} missing"],
        ["tokens", str(summary.tokens)],
    ]
    print_table(["field", "value"], rows)
    page = [
        [
            str(start + place),
            _short(" / ".join(message.content for message in scored.rollout.prompt)),
            _short(" / ".join(turn.action for turn in scored.rollout.turns)),
            "missing" if scored.score.value is None else f"{scored.score.value:g}",
            _short(scored.score.reason),
        ]
        for place, scored in enumerate(read_page(card, start, n))
    ]
    print_table(["#", "prompt", "completion", "score", "reason"], page)
    print_path("card", card)


@app.command("validate")
def validate(card: Annotated[Path, typer.Argument(help="Folder of a card.")]) -> None:
    """Check every byte of a card against its digests and its numbers; exit 1 if something is wrong."""
    from agent2.cards.reader import CARD_FILE, validate_card
    from agent2.cli.show import print_path
    from agent2.errors import ConfigError

    if not (card / CARD_FILE).is_file():
        raise ConfigError(f"{card}: no {CARD_FILE} there; name the folder of a card (agent2 cards list finds them)")
    problems = validate_card(card)
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    print_path("valid card", card)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_CELL else flat[: MAX_CELL - 1] + "…"
