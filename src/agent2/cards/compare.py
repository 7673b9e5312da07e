"""Comparison of cards: which ones may be compared, and what is behind the difference of two scores.

    Did it learn, or avoid failure samples?        paired items, and how far the lost ones could move the difference
    Is success up, or did cost double?             tokens, turns and seconds a rollout, and tokens a success
    Is the process steadier, or the rules changed? faults, retries, flips between attempts; rule and protocol by field

Two scores may be compared exactly when their evaluation protocols are equal; then their digests are equal too. A digest
says only that something differs, this module says what: `sampling.temperature 0.0 against 0.6`. A set of cards
(`CardSet`) is one card, a folder of cards, or one side of an evaluation.

Promises: every number is computed from the rollouts under each card's own rule; a missing score is never a zero, the
bounds say what it could be at worst and at best. Cards are distinguished by benchmark and split as their headers say,
not by folder names; two cards of one benchmark and split in a set are refused.

Does NOT correct for many comparisons: `agent2 compare` and gates do. There is no "nearly comparable". Which rollouts
belong together is decided by `contract.compare`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import msgspec
import numpy as np

from agent2.cards.aggregate import Tally, counted_value
from agent2.cards.card import CardHeader, ReportingRule
from agent2.cards.reader import CARD_FILE, iter_rollouts, read_header
from agent2.errors import Agent2Error, ConfigError, NotEnoughData, quoted
from agent2.records import EvaluationProtocol, JsonValue, canonical_json, digest_of
from agent2.stats.comparisons import judge, paired_evidence
from agent2.stats.estimates import POINTS, PairedDifference

ABSENT = "(absent)"
"""Stands for a value where one side has no such field."""
ORDER = " (order)"
"""Ends the name of a difference that is only in the order of a list of named entries."""
CARDS, BASELINE, CHECKPOINT = "cards", "baseline", "checkpoint"


@dataclass(frozen=True, slots=True)
class Process:
    """Cost and stability of one side's rollouts; means over rollouts."""

    n_rollouts: int
    n_items: int
    """With a score."""
    n_missing: int
    """Rollouts without a score."""
    faults: Mapping[str, int]
    retry_rate: float
    turns: float
    tokens: float
    seconds: float
    tokens_per_success: float | None
    """All tokens over the sum of scores; None without a success."""
    flip_share: float | None
    """Items solved by some attempts and not by others, of those with several; None with one attempt each."""


@dataclass(frozen=True, slots=True)
class CardComparison:
    """What changed from old to new."""

    difference: PairedDifference
    """New minus old over items with a score on both sides; the same numbers as those of `agent2 compare`."""
    bounds: tuple[float, float]
    """Mean difference over all items if every missing score were the worst for the new side, and the best."""
    only_old: Sequence[str]
    """Items with a score on that side only."""
    only_new: Sequence[str]
    won: Sequence[str]
    """Items better than before."""
    lost: Sequence[str]
    old: Process
    new: Process
    rule_changes: Sequence[str]
    """Fields of the reporting rule that differ, with both values."""
    protocol_changes: Sequence[str]

    def answers(self) -> dict[str, str]:
        """The three questions, one sentence each."""
        return {
            "learned or avoided failures": _learned(self),
            "success or cost": _cost(self),
            "process or rules": _process(self),
        }


def compare_cards(old: Path, new: Path) -> CardComparison:
    """Compare two cards.

    Raises CardError for an unreadable card, NotEnoughData if fewer than two items have a score on both sides.
    """
    old_side, new_side = _Side(old), _Side(new)
    common = sorted(old_side.scores.keys() & new_side.scores.keys())
    if len(common) < 2:
        raise NotEnoughData(
            f"{old} and {new}: {len(common)} items have a score on both cards, 2 are needed; "
            "compare cards of one benchmark"
        )
    difference = paired_evidence(old_side.scores, new_side.scores)
    assert difference is not None  # two items at least
    all_items = sorted(old_side.items | new_side.items)
    return CardComparison(
        difference=difference,
        bounds=(_bound(old_side, new_side, all_items, 1.0, 0.0), _bound(old_side, new_side, all_items, 0.0, 1.0)),
        only_old=sorted(old_side.scores.keys() - new_side.scores.keys()),
        only_new=sorted(new_side.scores.keys() - old_side.scores.keys()),
        won=[item for item in common if new_side.scores[item] > old_side.scores[item]],
        lost=[item for item in common if new_side.scores[item] < old_side.scores[item]],
        old=old_side.process(),
        new=new_side.process(),
        rule_changes=_differing(old_side.header.reporting, new_side.header.reporting),
        protocol_changes=_differing(old_side.header.protocol, new_side.header.protocol),
    )


class _Side:
    """One card, read once."""

    def __init__(self, path: Path) -> None:
        self.header: CardHeader = read_header(path)
        rule: ReportingRule = self.header.reporting
        tally, values = Tally(rule), dict[str, list[float]]()
        self.items: set[str] = set()
        self._faults: dict[str, int] = {}
        self._sums = np.zeros(5)
        self._n = self._n_missing = 0
        for record in iter_rollouts(path):
            rollout = record.rollout
            tally.add(record)
            self.items.add(rollout.item_id)
            value = counted_value(record, rule)
            if value is None:
                self._n_missing += 1
            else:
                values.setdefault(rollout.item_id, []).append(value)
            fault = rollout.fault or record.score.fault
            if fault is not None:
                self._faults[fault.value] = self._faults.get(fault.value, 0) + 1
            usage = rollout.usage
            tokens = usage.prompt_tokens + usage.completion_tokens
            self._sums += (rollout.retries > 0, len(rollout.turns), tokens, usage.seconds, value or 0.0)
            self._n += 1
        self.scores = {item: value for item, value in tally.summary().item_scores.items() if value is not None}
        self._attempts = values

    def process(self) -> Process:
        """The means. Raises ZeroDivisionError for no rollouts, which `compare_cards` has ruled out."""
        retry_rate, turns, tokens, seconds, _ = (self._sums / self._n).tolist()
        total_tokens, successes = float(self._sums[2]), float(self._sums[4])
        several = [attempts for attempts in self._attempts.values() if len(attempts) > 1]
        return Process(
            n_rollouts=self._n,
            n_items=len(self.scores),
            n_missing=self._n_missing,
            faults=dict(sorted(self._faults.items())),
            retry_rate=retry_rate,
            turns=turns,
            tokens=tokens,
            seconds=seconds,
            tokens_per_success=total_tokens / successes if successes else None,
            flip_share=sum(len(set(attempts)) > 1 for attempts in several) / len(several) if several else None,
        )


def _bound(old: _Side, new: _Side, items: Sequence[str], old_missing: float, new_missing: float) -> float:
    """Mean difference with missing items filled in."""
    return float(np.mean([new.scores.get(i, new_missing) - old.scores.get(i, old_missing) for i in items]))


def _differing(left: object, right: object) -> list[str]:
    """`name: old value -> new value` for each field of two equal records that differs."""
    return [
        f"{spec.name}: {getattr(left, spec.name)} -> {getattr(right, spec.name)}"
        for spec in fields(left)  # type: ignore[arg-type]
        if digest_of(getattr(left, spec.name)) != digest_of(getattr(right, spec.name))
    ]


def _learned(comparison: CardComparison) -> str:
    change = comparison.difference.change
    verdict = f"{judge(comparison.difference)}: {POINTS.estimate(change)} points on {change.n} items with both scores"
    items = f"{len(comparison.won)} items better, {len(comparison.lost)} worse"
    # an item without a score before is one that only the new card has scored
    n_before, n_after = len(comparison.only_new), len(comparison.only_old)
    if not (n_before or n_after or comparison.new.n_missing or comparison.old.n_missing):
        return f"{verdict}; {items}; no score is missing on either side"
    return (
        f"{verdict}; {items}; items without a score: {n_before} before, {n_after} after: "
        f"with them the difference is between {' and '.join(map(POINTS.number, comparison.bounds))}"
    )


def _cost(comparison: CardComparison) -> str:
    parts = [
        f"{name} {_ratio(getattr(comparison.old, key), getattr(comparison.new, key))}"
        for name, key in (("tokens", "tokens"), ("turns", "turns"), ("seconds", "seconds"))
    ]
    old, new = comparison.old.tokens_per_success, comparison.new.tokens_per_success
    per_success = "not defined without a success" if old is None or new is None else _ratio(old, new)
    success = f"success {POINTS.number(comparison.difference.change.value)} points"
    return f"{success}; a rollout costs {', '.join(parts)}; tokens a success {per_success}"


def _process(comparison: CardComparison) -> str:
    rules = "; ".join([*comparison.rule_changes, *comparison.protocol_changes]) or "none changed"
    flips = (
        "one attempt an item, stability not known"
        if comparison.old.flip_share is None or comparison.new.flip_share is None
        else f"items with mixed attempts {comparison.old.flip_share:.1%} -> {comparison.new.flip_share:.1%}"
    )
    retries = f"retries {comparison.old.retry_rate:.1%} -> {comparison.new.retry_rate:.1%}"
    faults = f"faults {sum(comparison.old.faults.values())} -> {sum(comparison.new.faults.values())}"
    return f"rules: {rules}; {flips}; {retries}; {faults}"


def _ratio(old: float, new: float) -> str:
    change = f" ({new / old - 1:+.1%})" if old else ""
    return f"{old:.4g} -> {new:.4g}{change}"


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
        raise ConfigError(
            f"{folder}: no cards there; pass a card, a folder of cards or the folder of an evaluation "
            "(agent2 cards list finds cards)"
        )
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
