"""What changed beside the score: refusals, repetition, length, cost, calibration, other wordings.

Every number is of both sides on the same items, with the paired difference and its interval; what a card cannot give
is "not measured", with the reason. Refusal and repetition are rules of thumb (`scorers.failure_detectors`).

By difficulty and by class of the base's failures, items are sorted by every other attempt of the base, and the base is
measured on the others: sorted and measured by the same attempts, the base looks worse on items that it failed than
it is. With one attempt an item there are no such groups.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agent2.analysis.boundary import GROUPS, NO_CLASS
from agent2.analysis.hacking_signatures import SIGNATURES, signatures_of
from agent2.analysis.thinking_marks import checks_itself, has_thoughts, reconsiders, thought_characters
from agent2.analysis.wordings import MARK, Reworded, under_wordings, wordings_of
from agent2.cards.aggregate import counted_value
from agent2.cards.comparability import CardSet, common_cards
from agent2.cards.reader import iter_rollouts, read_header
from agent2.contract.metrics import Unit
from agent2.environments.likelihood import BY
from agent2.records import RolloutStatus, ScoredRollout
from agent2.scorers.failure_detectors import is_refusal, is_repetitive
from agent2.scorers.process.statistics import process_of
from agent2.stats.calibration import Stated, compare_calibration_errors
from agent2.stats.comparisons import paired_evidence
from agent2.stats.estimates import COUNTS, UNIT, Estimate, PairedDifference, measure

REFUSAL, REPETITION, TOKENS, CHARACTERS = "refusal rate", "repetition", "answer tokens", "answer characters"
TURNS, CALLS, READ, SECONDS = "turns", "tool calls", "tokens read", "seconds"
CHECKS, RECONSIDERS, THOUGHTS = "checks itself", "reconsiders", "thought characters"
BRIER, ECE = "Brier score", "calibration error (ECE)"
ALL_RIGHT, CHANGES = "right under every wording", "verdict changes with the wording"
CONFIDENCE = "confidence"
"""View of a score with the model's confidence that its answer is right, 0 to 1."""
MIN_GROUP = 5
"""Items of a class below which nothing is said of it."""
NOTHING_WRITTEN = "the answer is chosen by likelihood, so nothing is written"
NOT_COUNTED = "the number of tokens that were read is not known for every rollout"
NOT_TIMED = "no rollout has a time"
NO_CONFIDENCE = f"no score has a view '{CONFIDENCE}', and no answer was chosen by likelihood"
GRADED = "scores are graded, not right or wrong"
NO_WORDINGS = f"no item is there under other wordings (an id such as q1{MARK}2 beside q1), and no --reworded is given"
ONE_ATTEMPT = "one attempt an item: the base would be sorted by the attempt that is measured"

Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BehaviourGroup:
    """Items of one difficulty, or of one class of the base's failures."""

    name: str
    n_items: int
    change: PairedDifference | None
    """None: too few items."""


@dataclass(frozen=True, slots=True)
class BehaviourMeasure:
    """One number of both sides."""

    name: str
    unit: Unit
    old: Estimate | None = None
    new: Estimate | None = None
    change: PairedDifference | None = None
    """Candidate - baseline, on items that have the number on both sides."""
    by_difficulty: tuple[BehaviourGroup, ...] = ()
    by_class: tuple[BehaviourGroup, ...] = ()
    problem: str = ""
    """Why it is not measured; empty: it is."""


@dataclass(frozen=True, slots=True)
class CardBehaviour:
    """One benchmark of a candidate beside its baseline."""

    candidate: str
    benchmark: str
    measures: tuple[BehaviourMeasure, ...]
    groups_problem: str
    """Why nothing is sorted by difficulty and class; empty: it is."""


@dataclass(slots=True)
class _Attempt:
    """What one rollout gives."""

    value: float | None
    labels: tuple[str, ...]
    numbers: dict[str, float]
    confidence: float | None


@dataclass(slots=True)
class _Side:
    """The attempts of a card by item, and what it cannot give."""

    items: dict[str, list[_Attempt]] = field(default_factory=dict)
    n_written: int = 0
    n_by_likelihood: int = 0
    n_without_tokens: int = 0
    n_without_read: int = 0
    """Rollouts of which nobody counted the tokens that the model read."""
    is_episodic: bool = False
    """Some rollout has several turns or calls a tool."""
    is_timed: bool = False
    has_thoughts: bool = False
    signatures: set[str] = field(default_factory=set)
    """Signatures of reward hacking that some rollout bears."""
    is_graded: bool = False

    def numbers(self, name: str, start: int = 0, step: int = 1) -> dict[str, float]:
        """Item -> mean over its attempts, or over every `step`-th of them."""
        means = {}
        for item, attempts in self.items.items():
            values = [attempt.numbers[name] for attempt in attempts[start::step] if name in attempt.numbers]
            if values:
                means[item] = float(np.mean(values)) if len(values) > 1 else values[0]
        return means

    def stated(self) -> Stated:
        """The answers that have a confidence and a verdict."""
        answers = [
            (item, attempt.confidence, attempt.value == 1.0)
            for item, attempts in self.items.items()
            for attempt in attempts
            if attempt.confidence is not None and attempt.value is not None
        ]
        return Stated(*(list(column) for column in zip(*answers, strict=True))) if answers else Stated([], [], [])


def behaviours(base: CardSet, candidate: CardSet, reworded: Reworded | None = None) -> list[CardBehaviour]:
    """Every benchmark that both sides have. reworded: cards of the same items under other wordings.

    Raises as `common_cards` and `Reworded.cards_for`, CardError for a damaged card.
    """
    return [
        behaviour(
            (base.cards[key], candidate.cards[key]),
            candidate.name,
            key,
            reworded.cards_for(base.cards[key], candidate.cards[key]) if reworded is not None else None,
            with_time=True,
        )
        for key in common_cards(base, candidate)
    ]


def behaviour(
    cards: tuple[Path, Path],
    candidate: str,
    benchmark: str,
    reworded: tuple[Path, Path] | None = None,
    *,
    with_time: bool = False,
) -> CardBehaviour:
    """The measures of two cards of one benchmark and protocol, the baseline's first.

    reworded: cards of the same items under other wordings, of both sides. with_time: seconds too, which differ each
    time that the same answers are played.
    """
    old, new = map(_read, cards)
    n_attempts = min((len(attempts) for side in (old, new) for attempts in side.items.values()), default=0)
    difficulty, classes = _sorted_items(old) if n_attempts > 1 else ({}, {})
    names = [(REFUSAL, Unit.RATE), (REPETITION, Unit.RATE), _length(old, new)]
    measures = [_measure(name, unit, old, new, (difficulty, classes)) for name, unit in names]
    measures += _cost(old, new, (difficulty, classes), with_time=with_time)
    measures += _thinking(old, new, (difficulty, classes))
    # A signature that nobody bears needs no line.
    bearable = [name for name in SIGNATURES if name in old.signatures | new.signatures]
    measures += [_measure(_signature(name), Unit.RATE, old, new, (difficulty, classes)) for name in bearable]
    measures += _calibration(old, new, (difficulty, classes))
    measures += _robustness(cards, reworded)
    return CardBehaviour(candidate, benchmark, tuple(measures), "" if n_attempts > 1 else ONE_ATTEMPT)


def _read(card: Path) -> _Side:
    reporting = read_header(card).reporting
    by_attempt: dict[str, dict[int, _Attempt]] = {}
    side = _Side()
    for record in iter_rollouts(card):
        rollout = record.rollout
        value = counted_value(record, reporting)
        side.is_graded |= value not in (None, 0.0, 1.0)
        attempt = _Attempt(value, tuple(record.score.labels), {}, None)
        by_attempt.setdefault(rollout.item_id, {})[rollout.attempt] = attempt
        if rollout.status is RolloutStatus.FAILED:
            continue
        _add_cost(side, attempt, record)
        attempt.confidence = stated_confidence(record)
        if "logprobs" in rollout.state:
            side.n_by_likelihood += 1
        else:
            side.n_written += 1
            _add_conduct(side, attempt, record)
            attempt.numbers |= {REFUSAL: float(is_refusal(record)), REPETITION: float(is_repetitive(record))}
            attempt.numbers[CHARACTERS] = float(sum(len(turn.action) for turn in rollout.turns))
            if not rollout.usage.completion_tokens and attempt.numbers[CHARACTERS]:  # a script counts no tokens
                side.n_without_tokens += 1
            else:
                attempt.numbers[TOKENS] = float(rollout.usage.completion_tokens or 0)
        if attempt.confidence is not None and value in (0.0, 1.0):
            attempt.numbers[BRIER] = (attempt.confidence - value) ** 2
    side.items = {
        item: [attempts[number] for number in sorted(attempts)] for item, attempts in sorted(by_attempt.items())
    }
    return side


def _add_conduct(side: _Side, attempt: _Attempt, record: ScoredRollout) -> None:
    signatures = signatures_of(record)
    side.signatures.update(signatures)
    side.has_thoughts |= has_thoughts(record)
    attempt.numbers |= {_signature(name): float(name in signatures) for name in SIGNATURES}
    attempt.numbers |= {CHECKS: float(checks_itself(record)), RECONSIDERS: float(reconsiders(record))}
    attempt.numbers[THOUGHTS] = float(thought_characters(record))


def _signature(name: str) -> str:
    return f"signature {name}"


def _add_cost(side: _Side, attempt: _Attempt, record: ScoredRollout) -> None:
    usage, process = record.rollout.usage, process_of(record.rollout)
    attempt.numbers |= {TURNS: float(process.turns), CALLS: float(process.calls), SECONDS: usage.seconds}
    side.is_episodic |= process.turns > 1 or process.calls > 0
    side.is_timed |= usage.seconds > 0
    if usage.prompt_tokens:
        attempt.numbers[READ] = float(usage.prompt_tokens)
    elif record.rollout.turns:
        side.n_without_read += 1


def stated_confidence(record: ScoredRollout) -> float | None:
    """The confidence in an answer: the view of that name, else the share of likelihood of the answer that was chosen.

    None: neither is there. The shares are of the likelihoods as the benchmark compares them (by bytes or tokens).
    """
    view = record.score.views.get(CONFIDENCE)
    if view is not None:
        return view if 0.0 <= view <= 1.0 else None
    state = record.rollout.state
    logprobs = state.get("logprobs")
    if not isinstance(logprobs, list) or len(logprobs) < 2 or state.get("by") not in BY:
        return None
    stored = {"bytes": state.get("n_bytes"), "tokens": state.get("n_tokens")}
    lengths: Any = stored.get(state["by"], [1] * len(logprobs))
    try:
        values = [float(logprob) / max(1, int(length)) for logprob, length in zip(logprobs, lengths, strict=True)]
    except (TypeError, ValueError):  # a card of somebody else may hold anything here
        return None
    best = max(values)
    return 1.0 / sum(math.exp(value - best) for value in values) if all(map(math.isfinite, values)) else None


def _cost(
    old: _Side, new: _Side, groups: tuple[Mapping[str, str], Mapping[str, str]], *, with_time: bool
) -> Sequence[BehaviourMeasure]:
    """What an item took beside the tokens of its answer; turns and calls only where there can be several."""
    measures = []
    if old.is_episodic or new.is_episodic:
        measures += [_measure(name, Unit.LENGTH, old, new, groups) for name in (TURNS, CALLS)]
    problems = {READ: NOT_COUNTED if old.n_without_read or new.n_without_read else ""}
    if with_time:
        problems[SECONDS] = "" if old.is_timed and new.is_timed else NOT_TIMED
    for name, problem in problems.items():
        measures.append(
            BehaviourMeasure(name, Unit.LENGTH, problem=problem)
            if problem
            else _measure(name, Unit.LENGTH, old, new, groups)
        )
    return measures


def _thinking(
    old: _Side, new: _Side, groups: tuple[Mapping[str, str], Mapping[str, str]]
) -> Sequence[BehaviourMeasure]:
    """Marks of thinking; length of thoughts only where somebody has any."""
    measures = [_measure(name, Unit.RATE, old, new, groups) for name in (CHECKS, RECONSIDERS)]
    if old.has_thoughts or new.has_thoughts:
        measures.append(_measure(THOUGHTS, Unit.LENGTH, old, new, groups))
    return measures


def _length(old: _Side, new: _Side) -> tuple[str, Unit]:
    """Tokens where all are known, else characters."""
    return (CHARACTERS if old.n_without_tokens or new.n_without_tokens else TOKENS), Unit.LENGTH


def _measure(
    name: str, unit: Unit, old: _Side, new: _Side, groups: tuple[Mapping[str, str], Mapping[str, str]]
) -> BehaviourMeasure:
    before, after = old.numbers(name), new.numbers(name)
    common = sorted(before.keys() & after.keys())
    if not common:
        wrote = old.n_written and new.n_written
        problem = "no item has it on both sides" if wrote or not old.n_by_likelihood else NOTHING_WRITTEN
        return BehaviourMeasure(name, unit, problem=problem)
    bounds = UNIT if unit is Unit.RATE else COUNTS
    first = old.numbers(name, 1, 2)
    difficulty, classes = (_grouped(by_item, first, after) for by_item in groups)
    order = {group: index for index, (group, _) in enumerate(GROUPS)}
    return BehaviourMeasure(
        name,
        unit,
        old=measure([before[item] for item in common], name, bounds),
        new=measure([after[item] for item in common], name, bounds),
        change=paired_evidence(before, after),
        by_difficulty=tuple(sorted(difficulty, key=lambda group: order[group.name])),
        by_class=tuple(sorted(classes, key=lambda group: (-group.n_items, group.name))),
    )


def _grouped(group_of: Mapping[str, str], old: Numbers, new: Numbers) -> Iterable[BehaviourGroup]:
    members: dict[str, list[str]] = {}
    for item, group in group_of.items():
        if item in old and item in new:
            members.setdefault(group, []).append(item)
    for group, items in members.items():
        change = None
        if len(items) >= MIN_GROUP:
            change = paired_evidence(*({item: side[item] for item in items} for side in (old, new)))
        yield BehaviourGroup(group, len(items), change)


def _sorted_items(base: _Side) -> tuple[dict[str, str], dict[str, str]]:
    """Item -> difficulty, and failed item -> most frequent class, both by every other attempt from the first on."""
    difficulty, classes = {}, {}
    for item, attempts in base.items.items():
        judging = [attempt for attempt in attempts[::2] if attempt.value is not None]
        if not judging:
            continue
        share = float(np.mean([attempt.value for attempt in judging]))
        difficulty[item] = next(name for name, limit in GROUPS if share < limit or share == limit == 0.0)
        failed = [attempt for attempt in judging if attempt.value != 1.0]
        if failed:
            counts = Counter(label for attempt in failed for label in attempt.labels or (NO_CLASS,))
            classes[item] = min(counts, key=lambda label: (-counts[label], label))
    return difficulty, classes


def _calibration(
    old: _Side, new: _Side, groups: tuple[Mapping[str, str], Mapping[str, str]]
) -> Sequence[BehaviourMeasure]:
    stated = old.stated(), new.stated()
    problem = ""
    if any(not side.items for side in stated):
        problem = NO_CONFIDENCE
    elif old.is_graded or new.is_graded:
        problem = GRADED
    elif len({*stated[0].items} & {*stated[1].items}) < 2:
        problem = "fewer than two items have a confidence on both sides"
    if problem:
        return [BehaviourMeasure(name, Unit.RATE, problem=problem) for name in (BRIER, ECE)]
    errors = compare_calibration_errors(*stated)
    return [
        _measure(BRIER, Unit.RATE, old, new, groups),
        BehaviourMeasure(ECE, Unit.RATE, errors.old, errors.new, errors.change),
    ]


def _robustness(cards: tuple[Path, Path], reworded: tuple[Path, Path] | None) -> Sequence[BehaviourMeasure]:
    """Whether a verdict holds under other wordings; items with the same wordings on both sides."""
    if reworded is None:
        sides = [wordings_of(card) for card in cards]
    else:
        sides = [under_wordings(*pair) for pair in zip(cards, reworded, strict=True)]
    common = {item for item in sides[0].keys() & sides[1].keys() if sides[0][item].keys() == sides[1][item].keys()}
    if len(common) < 2:
        return [BehaviourMeasure(name, Unit.RATE, problem=NO_WORDINGS) for name in (ALL_RIGHT, CHANGES)]
    measures = []
    for name, is_so in ((ALL_RIGHT, all), (CHANGES, lambda verdicts: len({*verdicts}) > 1)):
        old, new = ({item: float(is_so([*side[item].values()])) for item in sorted(common)} for side in sides)
        estimates = [measure([*numbers.values()], name, UNIT) for numbers in (old, new)]
        measures.append(BehaviourMeasure(name, Unit.RATE, estimates[0], estimates[1], change=paired_evidence(old, new)))
    return measures
