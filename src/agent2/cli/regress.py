"""`agent2 regress`: items lost and gained between two checkpoints."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agent2.contract.regress import ChangedItem

MAX_CELL = 60
WITHHELD = "(withheld)"


def regress(
    old: Annotated[Path, typer.Argument(help="A card, a folder of cards, or the folder of an evaluation.")],
    new: Annotated[Path | None, typer.Argument(help="The same; default: the two sides of the evaluation OLD.")] = None,
    allowed: Annotated[int, typer.Option("--allow", min=0, help="Number of items that may be lost or weakened.")] = 0,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print as JSON with full answers, except to hidden items (docs/json-output.md)."),
    ] = False,
) -> None:
    """List lost, weakened and gained items with both answers; exit 1 if more than --allow were lost or weakened.

    Answers to hidden items are withheld.
    """
    import msgspec

    from agent2.cli.show import print_table
    from agent2.contract.card_sets import BASELINE, find_cards, is_evaluation
    from agent2.contract.regress import regress as regress_sets
    from agent2.errors import ConfigError

    if new is None and not is_evaluation(old):
        find_cards(old)  # a folder without cards is the mistake to name first
        raise ConfigError(f"{old}: nothing to compare it with; pass NEW, or the folder of an evaluation")
    before = find_cards(old) if new is not None else find_cards(old, BASELINE)
    found = regress_sets(before, find_cards(new if new is not None else old))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        groups = {
            "lost": found.lost,
            "weakened: fewer attempts pass": found.weakened,
            "unknown: no score now": found.unknown,
            "won": found.won,
        }
        for title, items in groups.items():
            if items:
                columns = ["benchmark / split", "item", "score", "old answer", "new answer"]
                print_table(columns, [_row(item) for item in items], f"{title}: {len(items)}")
        typer.echo(
            f"{found.old} -> {found.new}: {len(found.lost)} lost, {len(found.weakened)} weakened and {len(found.won)} "
            f"won of {found.n_compared} items "
            f"({found.n_passed_before} passed before; {len(found.unknown)} of them have no score now); "
            f"{allowed} may be lost"
        )
        if found.withheld:
            typer.echo(f"withheld: {found.withheld}")
    if not found.is_within(allowed):
        raise typer.Exit(1)


def _row(item: "ChangedItem") -> list[str]:
    from agent2.reports.text import clean

    new = "missing" if item.new_score is None else f"{item.new_score:g}"
    score = f"{item.old_score:g} -> {new}"
    texts = [WITHHELD if text is None else text for text in (item.old_answer, item.new_answer)]
    answers = [clean(" ".join(text.split()), MAX_CELL) for text in texts]
    return [item.benchmark, clean(item.item_id), score, *answers]
