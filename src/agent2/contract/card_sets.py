"""The cards of one checkpoint, wherever they lie: one card, a folder of cards, or the folder of an evaluation.

Promises: cards are told apart by benchmark and split as their headers say, not by folder names; two cards of one
benchmark and split in a set are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent2.cards.card import CardHeader
from agent2.cards.reader import CARD_FILE, read_header
from agent2.contract.protocol import IncomparableError, field_differences, require_comparable
from agent2.errors import ConfigError

CARDS, BASELINE, CHECKPOINT = "cards", "baseline", "checkpoint"


@dataclass(frozen=True, slots=True)
class CardSet:
    """Cards of one checkpoint."""

    name: str
    """The checkpoint's name on its cards."""
    where: Path
    cards: Mapping[str, Path]
    """"<benchmark> / <split>" -> folder, sorted."""
    headers: Mapping[str, CardHeader]


def is_evaluation(folder: Path) -> bool:
    """Whether the folder was written by an evaluation, with the cards of both sides."""
    return (folder / CARDS / BASELINE).is_dir() and (folder / CARDS / CHECKPOINT).is_dir()


def find_cards(folder: Path, side: str = CHECKPOINT) -> CardSet:
    """The cards of one checkpoint.

    folder: a card, a folder that holds cards, or an evaluation, of which `side` is taken. Raises ConfigError if
    there are none, CardError for one that cannot be read.
    """
    if (folder / CARD_FILE).is_file():
        found = [folder]
    else:
        top = folder / CARDS / side if is_evaluation(folder) else folder
        found = sorted(path.parent for path in top.glob(f"*/{CARD_FILE}"))
    if not found:
        raise ConfigError(
            f"{folder}: no cards there; pass a card, a folder of cards or the folder of an evaluation "
            "(agent2 cards list finds cards)"
        )
    cards: dict[str, Path] = {}
    headers: dict[str, CardHeader] = {}
    for path in found:
        header = read_header(path)
        key = f"{header.protocol.benchmark} / {header.protocol.split.value}"
        if key in cards:
            raise ConfigError(f"{folder}: {cards[key].name} and {path.name} are both of {key}; name one of the cards")
        cards[key], headers[key] = path, header
    names = sorted({header.checkpoint_name for header in headers.values()})
    if len(names) > 1:
        raise ConfigError(f"{folder}: holds cards of several checkpoints ({', '.join(names)}); pass one side's folder")
    return CardSet(names[0], folder, dict(sorted(cards.items())), headers)


def common_cards(old: CardSet, new: CardSet) -> list[str]:
    """What both sets hold, comparable. Raises ConfigError for nothing, IncomparableError naming the field."""
    common = [key for key in old.cards if key in new.cards]
    if not common:
        raise ConfigError(
            f"{old.where} has {', '.join(old.cards)}, {new.where} has {', '.join(new.cards)}; nothing is in both: "
            "evaluate both on the same split"
        )
    for key in common:
        before, after = old.headers[key], new.headers[key]
        require_comparable(before.protocol, after.protocol, (str(old.cards[key]), str(new.cards[key])))
        if before.reporting != after.reporting:
            differences = field_differences(_plain(before), _plain(after), "reporting")
            raise IncomparableError(
                f"{key}: {old.cards[key]} and {new.cards[key]} differ in {'; '.join(map(str, differences))}; "
                "regrade one of them under the rule of the other"
            )
    return common


def _plain(header: CardHeader) -> dict[str, object]:
    rule = header.reporting
    return {name: getattr(rule, name) for name in rule.__dataclass_fields__}
