"""`agent2 cards`: the stored evidence behind every number."""

from pathlib import Path
from typing import Annotated

import typer

from agent2.cli import card_regrade, card_scoring, card_tools
from agent2.cli.show import AsJson

app = typer.Typer(
    help="List, show, query, validate, regrade, rescore, compare and import rollout cards.",
    no_args_is_help=True,
)
app.command("regrade")(card_regrade.regrade)
app.command("rescore")(card_scoring.rescore)
app.command("judge")(card_scoring.judge)
app.command("replay")(card_tools.replay)
app.command("compare")(card_tools.compare)
app.command("import")(card_tools.import_log)
MAX_CELL = 80


@app.command("list")
def list_cards(
    folder: Annotated[Path, typer.Argument(help="Folder to search.")] = Path("trials"), as_json: AsJson = False
) -> None:
    """List the cards below a folder with their scores."""
    from agent2.cards.folder import cards_below
    from agent2.cards.reader import read_header, read_totals
    from agent2.cli.show import print_json, print_table
    from agent2.errors import CardError, ConfigError

    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: no such folder; pass the folder of a trial, a sweep or an evaluation, or one above"
        )
    rows = []
    for path in cards_below(folder):
        try:
            header, summary = read_header(path), read_totals(path)
        except CardError as error:
            rows.append([str(path), "", "", str(error)])
            continue
        score = "-" if summary.value is None else f"{summary.value:.3f} [{summary.low:.3f}, {summary.high:.3f}]"
        protocol = f"{header.protocol.benchmark} / {header.protocol.split.value}"
        rows.append([str(path), protocol, score, f"{summary.n_items} items, {summary.n_missing} missing"])
    if as_json:
        print_json([dict(zip(("card", "benchmark_split", "score", "n"), row, strict=True)) for row in rows])
        return
    if not rows:
        typer.echo(f"no cards below {folder}")
        return
    print_table(["card", "benchmark / split", "score [95%]", "n"], rows)


@app.command("show")
def show(
    card: Annotated[Path, typer.Argument(help="Folder of a card.")],
    start: Annotated[int, typer.Option(help="First rollout to show.")] = 0,
    n: Annotated[int, typer.Option("--n", help="How many rollouts to show.")] = 10,
    item: Annotated[str | None, typer.Option("--id", help="Show all rollouts of this item in full.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a card's summary and one page of its rollouts, or one item's rollouts."""
    from agent2.cards.reader import find_rollouts, read_header, read_page, read_totals
    from agent2.cli.show import print_json, print_path, print_table
    from agent2.errors import ConfigError

    if start < 0 or n < 0:
        raise ConfigError(f"--start {start}, --n {n}: neither may be negative")
    if as_json:
        found = [one for _, one in find_rollouts(card, item)] if item is not None else read_page(card, start, n)
        print_json({"header": read_header(card), "totals": read_totals(card), "rollouts": found})
        return
    if item is not None:
        _show_item(card, item)
        return
    header, summary = read_header(card), read_totals(card)
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
            _score(scored.score.value),
            _short(scored.score.reason),
        ]
        for place, scored in enumerate(read_page(card, start, n))
    ]
    print_table(["#", "prompt", "completion", "score", "reason"], page)
    print_path("card", card)


def _show_item(card: Path, item: str) -> None:
    """Every attempt at one item: what was said, and the verdict."""
    from agent2.cards.reader import find_rollouts
    from agent2.cli.show import print_path, print_table
    from agent2.errors import ConfigError

    found = find_rollouts(card, item)
    if not found:
        raise ConfigError(f"{card}: no rollout of item {item!r}; agent2 cards query finds items by any column")
    for line, scored in found:
        rollout, score = scored.rollout, scored.score
        rows = [[message.role, message.content] for message in rollout.prompt]
        for turn in rollout.turns:
            rows.append(["model", turn.action])
            if turn.observation is not None:
                rows.append(["world", turn.observation])
        if rollout.reason:
            rows.append(["fault", f"{rollout.fault}: {rollout.reason}"])
        rows += [["answer", rollout.answer or ""], ["score", f"{_score(score.value)}: {score.reason}"]]
        if score.labels:
            rows.append(["labels", ", ".join(score.labels)])
        title = f"{item}, attempt {rollout.attempt} (rollout {line} of the card): {rollout.status.value}"
        print_table(["", ""], rows, title)
    print_path("card", card)


@app.command("query")
def query(
    sql: Annotated[str, typer.Argument(help="One SELECT over the tables rollouts and cards (docs/cards.md).")],
    folders: Annotated[list[Path], typer.Argument(help="Cards, or folders above them.")],
    start: Annotated[int, typer.Option(help="First row to show.")] = 0,
    n: Annotated[int, typer.Option("--n", help="How many rows to show.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON lines (docs/json-output.md).")] = False,
) -> None:
    """Query all finished cards below some folders in SQL, page by page."""
    import msgspec

    from agent2.cards.query import CardQueries
    from agent2.cli.show import print_table

    with CardQueries(folders) as cards:
        page = cards.page(sql, start, n)
        for path in cards.skipped:
            typer.echo(f"{path}: skipped, its evaluation is not finished", err=True)
    if as_json:
        for row in page.rows:
            typer.echo(msgspec.json.encode(dict(zip(page.columns, row, strict=True)), enc_hook=str))
        return
    print_table(page.columns, [["" if cell is None else _short(str(cell)) for cell in row] for row in page.rows])
    last = start + len(page.rows)
    typer.echo(f"rows {start} to {last}; more: --start {last}" if page.has_more else f"rows {start} to {last}, the end")


@app.command("export")
def export(
    card: Annotated[Path, typer.Argument(help="Folder of a card.")],
    out: Annotated[Path, typer.Argument(help="File to write: .parquet, .jsonl or .csv.")],
) -> None:
    """Write a card's rollouts with all their turns, in the format of the file's suffix; includes hidden items."""
    from agent2.cards.export import export_rollouts
    from agent2.cards.reader import read_header
    from agent2.cli.show import print_path
    from agent2.records import HIDDEN_SPLITS

    n_rollouts = export_rollouts(card, out)
    split = read_header(card).protocol.split
    if split in HIDDEN_SPLITS:
        typer.echo(
            f"{out} contains hidden items ({split.value}) in full: keep it out of prompts and training data", err=True
        )
    print_path(f"{n_rollouts} rollouts", out)


@app.command("validate")
def validate(
    card: Annotated[Path, typer.Argument(help="A card, or a folder with cards, such as an evaluation or a trial.")],
) -> None:
    """Check cards against their digests and recompute their numbers; exit 1 if something is wrong."""
    from agent2.cards.folder import cards_below
    from agent2.cards.reader import validate_card
    from agent2.cli.show import print_path
    from agent2.errors import ConfigError

    paths = list(cards_below(card)) if card.is_dir() else []
    if not paths:
        raise ConfigError(
            f"{card}: no card.json there or below; pass a card or a folder that contains some (see agent2 cards list)"
        )
    problems = [problem for path in paths for problem in validate_card(path)]
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    print_path("valid card" if paths == [card] else f"{len(paths)} valid cards", card)


def _score(value: float | None) -> str:
    return "missing" if value is None else f"{value:g}"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_CELL else flat[: MAX_CELL - 1] + "…"
