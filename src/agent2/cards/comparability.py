"""Which cards may be compared: protocols field by field, and the cards of one checkpoint.

Two scores may be compared exactly when their evaluation protocols are equal; then their digests are equal too. A digest
says only that something differs, this module says what: `sampling.temperature 0.0 against 0.6`. There is no "nearly
comparable". A set of cards (`CardSet`) is one card, a folder of cards, or one side of an evaluation; cards are
distinguished by benchmark and split as their headers say, not by folder names, and two cards of one benchmark and split
in a set are refused.

Does NOT compare scores: `analysis.compare` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from agent2.cards.card import CardHeader
from agent2.cards.reader import CARD_FILE, read_header
from agent2.errors import Agent2Error, ConfigError, quoted
from agent2.records import EvaluationProtocol, JsonValue, canonical_json

ABSENT = "(absent)"
"""Stands for a value where one side has no such field."""
ORDER = " (order)"
"""Ends the name of a difference that is only in the order of a list of named entries."""
CARDS, BASELINE, CHECKPOINT = "cards", "baseline", "checkpoint"


class IncomparableError(Agent2Error):
    """Two results were produced under different protocols; nothing may be concluded from their difference."""


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field that is not equal on two sides."""

    field: str
    """Dotted path; an entry of a list of named entries is written `benchmarks[gsm8k]`."""
    left: JsonValue
    right: JsonValue

    @property
    def left_text(self) -> str:
        """The left value as text."""
        return _as_text(self.left)

    @property
    def right_text(self) -> str:
        """The right value as text."""
        return _as_text(self.right)

    def __str__(self) -> str:
        """One clause of a sentence."""
        return f"{self.field} {self.left_text} against {self.right_text}"


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
    inserted entry does not make all later ones differ; another order of the same names is one difference of its
    own. Other lists are compared as a whole. A field that one side lacks has the value `ABSENT` there.
    """
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = [*left, *(key for key in right if key not in left)]
        differences = []
        for key in keys:
            path = f"{field}.{key}" if field else str(key)
            differences += field_differences(left.get(key, ABSENT), right.get(key, ABSENT), path)
        return differences
    named_left, named_right = _by_name(left), _by_name(right)
    if named_left is not None and named_right is not None and (named_left or named_right):
        return _differences_by_name(named_left, named_right, field)
    # not ==, for which 1, 1.0 and True are equal though their digests differ
    return [] if canonical_json(left) == canonical_json(right) else [FieldDifference(field, left, right)]


def _differences_by_name(
    left: Mapping[str, JsonValue], right: Mapping[str, JsonValue], field: str
) -> list[FieldDifference]:
    names = [*left, *(name for name in right if name not in left)]
    differences = [
        difference
        for name in names
        for difference in field_differences(left.get(name, ABSENT), right.get(name, ABSENT), f"{field}[{name}]")
    ]
    if set(left) == set(right) and list(left) != list(right):
        differences.append(FieldDifference(f"{field}{ORDER}", list(left), list(right)))
    return differences


def _by_name(value: JsonValue) -> dict[str, JsonValue] | None:
    """The entries of a list by their `name`; None if the value is anything else."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    if not all(isinstance(entry, Mapping) and isinstance(entry.get("name"), str) for entry in value):
        return None
    table = {entry["name"]: entry for entry in value}
    return table if len(table) == len(value) else None


def _as_text(value: JsonValue) -> str:
    return value if value == ABSENT else quoted(value)


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


def _why_no_cards(folder: Path) -> str:
    finished = sorted((folder / CARDS).glob(f"**/{CARD_FILE}"))
    if finished:
        return f"is a first look, or not finished; pass one of its cards ({finished[0].parent}), or repeat the command"
    if (folder / CARDS).is_dir():
        return "no card is finished yet; resume the evaluation with the same command"
    return (
        "no cards there; pass a card, a folder of cards or the folder of an evaluation (agent2 cards list finds cards)"
    )


def find_cards(folder: Path, side: str = CHECKPOINT) -> CardSet:
    """The cards of one checkpoint.

    folder: a card, a folder that holds cards, or an evaluation, of which `side` is taken. Raises ConfigError if
    there are none, CardError for one that cannot be read.
    """
    if (folder / CARD_FILE).is_file():
        paths = [folder]
    else:
        top = folder / CARDS / side if is_evaluation(folder) else folder
        paths = sorted(path.parent for path in top.glob(f"*/{CARD_FILE}"))
    if not paths:
        raise ConfigError(f"{folder}: {_why_no_cards(folder)}")
    cards: dict[str, Path] = {}
    headers: dict[str, CardHeader] = {}
    for path in paths:
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
    """The keys of the cards that are in both sets.

    Raises ConfigError if there are none, IncomparableError, naming the fields, for a pair that may not be compared.
    """
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
            differences = field_differences(asdict(before.reporting), asdict(after.reporting), "reporting")
            raise IncomparableError(
                f"{key}: {old.cards[key]} and {new.cards[key]} differ in {'; '.join(map(str, differences))}; "
                "regrade one of them under the rule of the other"
            )
    return common
