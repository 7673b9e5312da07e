"""`agent2 compare` and `agent2 regress`: checkpoints side by side, item by item."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agent2.contract.card_sets import CardSet
    from agent2.contract.compare import ChangedItem, ComparedCard, Comparison


def compare(
    baseline: Annotated[Path, typer.Argument(help="A card, a folder of cards, or the folder of an evaluation.")],
    candidates: Annotated[
        list[Path] | None, typer.Argument(help="The same, one per candidate; default: the two sides of the evaluation.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the comparison as JSON (docs/json-output.md).")
    ] = False,
) -> None:
    """Compare candidates with one baseline: paired by item, corrected for multiple comparisons, with noise and cost."""
    import msgspec

    from agent2.cli.show import print_table
    from agent2.contract.compare import compare as compare_sets

    old, new = _sides(baseline, candidates or [])
    found = compare_sets(old, new)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
        return
    columns = ["candidate", "benchmark / split", "score", "difference [95%]", "p (Holm)", "noise", "cost", "outcome"]
    print_table(columns, [_row(row) for row in found.rows], f"against {found.baseline}")
    typer.echo(_explained(found))


def _sides(baseline: Path, candidates: list[Path]) -> tuple["CardSet", list["CardSet"]]:
    from agent2.contract.card_sets import BASELINE, find_cards, is_evaluation
    from agent2.errors import ConfigError

    if candidates:
        return find_cards(baseline), [find_cards(path) for path in candidates]
    if not is_evaluation(baseline):
        find_cards(baseline)  # a folder without cards is the mistake to name first
        raise ConfigError(f"{baseline}: nothing to compare it with; pass a candidate, or the folder of an evaluation")
    return find_cards(baseline, BASELINE), [find_cards(baseline)]


def _row(row: "ComparedCard") -> list[str]:
    from agent2.contract.changes import tell_change
    from agent2.contract.metrics import Unit
    from agent2.stats.estimates import POINTS

    score, pair = row.score, row.score.paired
    told = tell_change(score.old, score.new, Unit.RATE)
    missing = score.n_missing_old + score.n_missing_new
    interval = "-"
    if pair is not None:
        interval = f"{POINTS.estimate(pair.change)} n={pair.change.n}"
        interval += f", {score.n_missing_old} + {score.n_missing_new} missing" if missing else ""
    return [
        row.candidate,
        row.benchmark,
        told,
        interval,
        "-" if row.p_corrected is None else f"{row.p_corrected:.2g}",
        "not known" if score.noise is None else f"+-{100 * score.noise:.1f}",
        "-" if row.cost_ratio is None else f"x{row.cost_ratio:.2f}",
        f"{row.outcome.value}: {row.why}",
    ]


def _explained(found: "Comparison") -> str:
    noise = (
        ""
        if any(row.score.noise is not None for row in found.rows)
        else "; noise is known only where the baseline has several attempts per item"
    )
    return (
        f"Differences in points, paired by item; p corrected for {found.n_family} comparisons (Holm); cost: tokens "
        f"per rollout, new over old{noise}."
    )


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
    from agent2.contract.compare import regress as regress_sets
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
                print_table(columns, [_change_row(item) for item in items], f"{title}: {len(items)}")
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


def _change_row(item: "ChangedItem") -> list[str]:
    from agent2.reports.text import clean

    new = "missing" if item.new_score is None else f"{item.new_score:g}"
    score = f"{item.old_score:g} -> {new}"
    texts = [WITHHELD if text is None else text for text in (item.old_answer, item.new_answer)]
    answers = [clean(" ".join(text.split()), MAX_CELL) for text in texts]
    return [item.benchmark, clean(item.item_id), score, *answers]
