"""Which cards may be compared: the cards of one checkpoint, and the field in which two protocols differ.

A set is one card, a folder of cards, or the folder of an evaluation. Promises: cards are distinguished by benchmark and
split as their headers say, not by folder names; two cards of one benchmark and split in a set are refused.

Two scores may be compared exactly when their evaluation protocols are equal; then their digests are equal too. A digest
says only that something differs, this module says what: `sampling.temperature 0.0 against 0.6`. Does NOT repair
anything: there is no "nearly comparable". Which rollouts belong together is the business of `contract.compare`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent2.cards.card import CardHeader
from agent2.cards.reader import CARD_FILE, read_header
from agent2.errors import Agent2Error, ConfigError, shown
from agent2.records import EvaluationProtocol, JsonValue, canonical_json

ABSENT = "(absent)"
"""Stands for a value where one side has no such field."""
ORDER = " (order)"
"""Ends the name of a difference that is nothing but the order of a list of named things."""


class IncomparableError(Agent2Error):
    """Two results were produced under different protocols; nothing may be concluded from their difference."""


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field that is not equal on two sides."""

    field: str
    """Dotted path; an entry of a list of named things is written `benchmarks[gsm8k]`."""
    left: JsonValue
    right: JsonValue

    @property
    def told_left(self) -> str:
        """The left value as text."""
        return _told(self.left)

    @property
    def told_right(self) -> str:
        """The right value as text."""
        return _told(self.right)

    def __str__(self) -> str:
        """One clause of a sentence."""
        return f"{self.field} {self.told_left} against {self.told_right}"


def protocol_differences(left: EvaluationProtocol, right: EvaluationProtocol) -> list[FieldDifference]:
    """Every field in which two protocols differ, in the order of their fields; empty exactly when digests agree."""
    return field_differences(msgspec.to_builtins(left), msgspec.to_builtins(right))


def require_comparable(
    left: EvaluationProtocol, right: EvaluationProtocol, names: tuple[str, str] = ("baseline", "candidate")
) -> None:
    """Refuse to compare results of different protocols.

    names: what the two sides are called in the message.
    Raises IncomparableError naming every field that differs and both its values.
    """
    differences = protocol_differences(left, right)
    if differences:
        listed = "; ".join(map(str, differences))
        raise IncomparableError(
            f"{left.benchmark}: {names[0]} and {names[1]} are incomparable, their protocols differ in {listed}; "
            "evaluate both under one protocol"
        )


def field_differences(left: JsonValue, right: JsonValue, field: str = "") -> list[FieldDifference]:
    """Every leaf in which two JSON values differ.

    Mappings are compared key by key. Lists whose entries all have a `name` are compared by name, so that an
    entry put in front does not make all others differ; another order of the same names is one difference of its
    own. Other lists are compared as wholes. A field that one side lacks has the value `ABSENT` there.
    """
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = [*left, *(key for key in right if key not in left)]
        found = []
        for key in keys:
            path = f"{field}.{key}" if field else str(key)
            found += field_differences(left.get(key, ABSENT), right.get(key, ABSENT), path)
        return found
    named_left, named_right = _by_name(left), _by_name(right)
    if named_left is not None and named_right is not None and (named_left or named_right):
        return _differences_by_name(named_left, named_right, field)
    return [] if canonical_json(left) == canonical_json(right) else [FieldDifference(field, left, right)]


def _differences_by_name(
    left: Mapping[str, JsonValue], right: Mapping[str, JsonValue], field: str
) -> list[FieldDifference]:
    names = [*left, *(name for name in right if name not in left)]
    found = [
        difference
        for name in names
        for difference in field_differences(left.get(name, ABSENT), right.get(name, ABSENT), f"{field}[{name}]")
    ]
    if set(left) == set(right) and list(left) != list(right):
        found.append(FieldDifference(f"{field}{ORDER}", list(left), list(right)))
    return found


def _by_name(value: JsonValue) -> dict[str, JsonValue] | None:
    """The entries of a list of named things; None if it is something else."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    if not all(isinstance(entry, Mapping) and isinstance(entry.get("name"), str) for entry in value):
        return None
    table = {entry["name"]: entry for entry in value}
    return table if len(table) == len(value) else None


def _told(value: JsonValue) -> str:
    return value if value == ABSENT else shown(value)


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
