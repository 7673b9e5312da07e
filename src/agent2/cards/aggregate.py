"""From scored rollouts to the numbers of a card.

Promises: the result depends on the set of rollouts and the rule only, not on the order in which they
finished; a missing score is counted and listed and never becomes a zero. Intervals made by bootstrap are
the same again under the numpy version that the card's lock names.
"""

import math
from collections.abc import Iterable

import numpy as np

from agent2.cards.card import CardSummary, Counting, Drop, ReportingRule
from agent2.errors import CardError, Fault
from agent2.records import RolloutStatus, ScoredRollout
from agent2.stats.estimates import Estimate, bootstrap_mean, wilson


def summarize(records: Iterable[ScoredRollout], rule: ReportingRule) -> CardSummary:
    """The card's numbers under a rule. Raises CardError if an attempt comes twice."""
    tally = Tally(rule)
    for record in records:
        tally.add(record)
    return tally.summary()


def counted_value(record: ScoredRollout, rule: ReportingRule) -> float | None:
    """What a rollout contributes to its item's mean under the rule; None: its score is missing.

    A score that could not be produced stays missing under any rule, unless the model is to blame.
    """
    rollout, value = record.rollout, record.score.value
    if rollout.fault is Fault.MODEL:
        return _counted(value, rule.model_fault)
    if rollout.status is RolloutStatus.TURN_CAP and value is not None:
        return _counted(value, rule.turn_cap)
    return value


class Tally:
    """Takes rollouts one at a time and keeps only what the summary needs."""

    def __init__(self, rule: ReportingRule) -> None:
        self.n_rollouts = 0
        self._rule = rule
        self._values: dict[tuple[str, int], float | None] = {}
        self._seconds: list[float] = []
        self._faults: dict[str, int] = {}
        self._drops: list[Drop] = []
        self._n_turns = 0
        self._n_retries = 0
        self._prompt_tokens = 0
        self._completion_tokens = 0

    def has(self, item_id: str, attempt: int) -> bool:
        """Whether this attempt was added already."""
        return (item_id, attempt) in self._values

    def done(self) -> set[tuple[str, int]]:
        """Every (item, attempt) added so far."""
        return set(self._values)

    def add(self, record: ScoredRollout) -> None:
        """Count one rollout. Raises CardError, and counts nothing, if its attempt was added already."""
        rollout = record.rollout
        key = (rollout.item_id, rollout.attempt)
        if key in self._values:
            raise CardError(
                f"item {rollout.item_id!r} attempt {rollout.attempt} is in the card already; each attempt is one line"
            )
        value = self._values[key] = counted_value(record, self._rule)
        self.n_rollouts += 1
        self._n_turns += len(rollout.turns)
        self._n_retries += rollout.retries
        usage = rollout.usage
        self._prompt_tokens += usage.prompt_tokens
        self._completion_tokens += usage.completion_tokens
        self._seconds.append(usage.seconds)
        fault = rollout.fault or record.score.fault
        if fault is not None:
            self._faults[fault.value] = self._faults.get(fault.value, 0) + 1
        if fault is not None or value is None:
            self._drops.append(_drop(record, fault, value))

    def summary(self) -> CardSummary:
        """The numbers so far."""
        by_item: dict[str, list[float]] = {}
        for (item_id, _), value in self._values.items():
            scores = by_item.setdefault(item_id, [])
            if value is not None:
                scores.append(value)
        item_scores = {
            item_id: math.fsum(scores) / len(scores) if scores else None for item_id, scores in sorted(by_item.items())
        }
        scored = [value for value in item_scores.values() if value is not None]
        estimate = self._estimate(scored)
        return CardSummary(
            value=estimate.value if estimate else None,
            low=estimate.low if estimate else None,
            high=estimate.high if estimate else None,
            method=estimate.method if estimate else "no item has a score",
            n_items=len(scored),
            n_rollouts=self.n_rollouts,
            n_missing=sum(value is None for value in self._values.values()),
            items_missing=[item_id for item_id, value in item_scores.items() if value is None],
            item_scores=item_scores,
            faults=dict(sorted(self._faults.items())),
            n_turns=self._n_turns,
            n_retries=self._n_retries,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            seconds=math.fsum(self._seconds),
            drops=sorted(self._drops, key=lambda drop: (drop.item_id, drop.attempt)),
        )

    def _estimate(self, scored: list[float]) -> Estimate | None:
        """The mean over items; items are the units, so attempts at one item are never counted as independent."""
        if not scored:
            return None
        if all(value in (0.0, 1.0) for value in scored):
            return wilson(int(sum(scored)), len(scored), self._rule.confidence)
        rng = np.random.default_rng(self._rule.bootstrap_seed)
        return bootstrap_mean(scored, rng, self._rule.n_replicates, self._rule.confidence)


def _drop(record: ScoredRollout, fault: Fault | None, value: float | None) -> Drop:
    rollout = record.rollout
    counted = Counting.MISSING if value is None else Counting.ZERO
    reason = f"left out by the rule: {rollout.status.value}" if fault is None else record.score.reason
    return Drop(rollout.item_id, rollout.attempt, fault, reason, counted)


def _counted(value: float | None, counting: Counting) -> float | None:
    if counting is Counting.MISSING:
        return None
    return 0.0 if counting is Counting.ZERO else value
