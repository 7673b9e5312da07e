"""`agent2 cards regrade`: recompute cards under their own or another reporting rule, without a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from agent2.cards.card import CardSummary, ReportingRule
    from agent2.cards.regrade import Regrade

COUNTINGS = {"count": "as_scored", "zero": "zero", "drop": "missing"}
ATTEMPTS = ("mean", "first", "any", "all")
COVERED = {
    "timeouts": ("turn_cap", "time_cap"),
    "empty": ("empty",),
    "truncated": ("truncated",),
    "crashes": ("environment_fault",),
    "model_faults": ("model_fault",),
}
"""Option -> fields of the rule that it sets."""


def regrade(  # noqa: PLR0913 - one option of the command line each
    card: Annotated[Path, typer.Argument(help="A card, or a folder with cards, such as an evaluation or a trial.")],
    timeouts: Annotated[
        str | None, typer.Option(help="Rollouts stopped by the turn cap or time limit: count, zero or drop.")
    ] = None,
    empty: Annotated[str | None, typer.Option(help="Rollouts with only blank messages: count, zero or drop.")] = None,
    truncated: Annotated[
        str | None, typer.Option(help="Rollouts whose last message was cut off: count, zero or drop.")
    ] = None,
    crashes: Annotated[str | None, typer.Option(help="Rollouts whose environment crashed: zero or drop.")] = None,
    model_faults: Annotated[str | None, typer.Option(help="Rollouts whose model failed: count, zero or drop.")] = None,
    attempts: Annotated[str | None, typer.Option(help="Several attempts at an item: mean, first, any or all.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write both summaries and every changed rollout as JSON.")
    ] = None,
) -> None:
    """Recompute a card under another rule; without options under its own, exit 1 if a stored number differs."""
    from agent2.cards.folder import cards_below
    from agent2.cards.regrade import regrade as regrade_card
    from agent2.cli.show import print_path, print_table
    from agent2.contract.card_sets import is_evaluation
    from agent2.errors import ConfigError

    given = {"timeouts": timeouts, "empty": empty, "truncated": truncated, "crashes": crashes}
    changes = _changes({**given, "model_faults": model_faults}, attempts)
    paths = list(cards_below(card)) if card.is_dir() else []
    if not paths:
        raise ConfigError(
            f"{card}: no cards there; pass a card or a folder that contains some (agent2 cards list finds them)"
        )
    if out is not None and out.exists():
        raise ConfigError(f"{out}: already exists; choose another name or delete it")
    found = []
    for path in paths:
        found.append(regrade_card(path, _rule(path, changes), most_moves=None if out is not None else 0))
        if found[-1].changes and (len(paths) == 1 or found[-1].n_items_moved):
            _print_regrade(found[-1])
        elif changes and not found[-1].changes:
            typer.echo(f"{path}: its own rule already counts that way: {_number(found[-1].old)}")
    wrong = [line for regraded in found for line in _differences(regraded)]
    if not changes and is_evaluation(card):
        wrong += _report_differences(card)
    for line in wrong:
        typer.echo(line)
    if len(found) > 1:
        rows = [[str(one.card), _number(one.old), _number(one.new), _moved(one)] for one in found]
        print_table(["card", "own rule", "new rule" if changes else "again", "rollouts moved"], rows)
    if not changes and not wrong:
        what = f"every stored number of {len(found)} card(s)" + (" and of the report" if is_evaluation(card) else "")
        typer.echo(f"{what} was reproduced from the rollouts")
    if out is not None:
        _write(out, found)
        print_path("regrade", out)
    if wrong:
        raise typer.Exit(1)


def _changes(given: Mapping[str, str | None], attempts: str | None) -> dict[str, Any]:
    """Fields of the rule that the options set. Raises ConfigError for an unknown word."""
    from agent2.cards.card import Counting
    from agent2.errors import ConfigError, unknown_name

    changes: dict[str, Any] = {}
    for name, word in given.items():
        if word is None:
            continue
        flag = f"--{name.replace('_', '-')}"
        if word not in COUNTINGS:
            raise unknown_name("way to count", word, COUNTINGS, flag)
        if name == "crashes" and word == "count":
            raise ConfigError(f"{flag} count: a crashed environment leaves no score to count; choose zero or drop")
        changes |= dict.fromkeys(COVERED[name], Counting(COUNTINGS[word]))
    if attempts is not None:
        if attempts not in ATTEMPTS:
            raise unknown_name("way to combine attempts", attempts, ATTEMPTS, "--attempts")
        changes["over_attempts"] = attempts
    return changes


def _rule(path: Path, changes: Mapping[str, Any]) -> "ReportingRule":
    from dataclasses import replace

    from agent2.cards.reader import read_header

    return replace(read_header(path).reporting, **changes)


def _print_regrade(found: "Regrade") -> None:
    from agent2.cli.show import print_table

    rows = [
        ["rule", "", "; ".join(f"{name}: {old} -> {new}" for name, (old, new) in found.changes.items())],
        ["score [95%]".replace("95", f"{100 * found.rule.confidence:g}"), _number(found.old), _number(found.new)],
        ["items with a score", str(found.old.n_items), str(found.new.n_items)],
        ["rollouts without a score", str(found.old.n_missing), str(found.new.n_missing)],
        ["rollouts moved", "", _moved(found)],
        ["items moved", "", f"{found.n_items_moved} of {len(found.old.item_scores)}"],
    ]
    print_table(["", "own rule", "new rule"], rows, str(found.card))


def _moved(found: "Regrade") -> str:
    return ", ".join(f"{count} {why}" for why, count in found.moved.items()) or "none"


def _number(summary: "CardSummary") -> str:
    if summary.value is None or summary.low is None or summary.high is None:
        return "none"
    return f"{summary.value:.4f} [{summary.low:.4f}, {summary.high:.4f}]"


def _differences(found: "Regrade") -> list[str]:
    return [f"{found.card}: summary.{name} is not what the rollouts give" for name in found.differs_from_stored]


def _report_differences(folder: Path) -> list[str]:
    """Fields of an evaluation's report that its cards do not give; a report that is not there has none."""
    from agent2.cli.report_check import report_differences

    return [f"{folder / 'report.json'}: {place}" for place in report_differences(folder)]


def _write(out: Path, found: "list[Regrade]") -> None:
    """Both summaries and every moved rollout of each card."""
    import msgspec

    plain = [
        {
            "card": str(one.card),
            "checkpoint": one.header.checkpoint_name,
            "rule": {"own": one.header.reporting, "new": one.rule},
            "old": one.old,
            "new": one.new,
            "moved": one.moved,
            "n_items_moved": one.n_items_moved,
            "moves": one.moves,
        }
        for one in found
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(msgspec.json.encode(plain) + b"\n")
