"""A card's numbers under another reporting rule, computed from its rollouts without a model.

Promises: rollouts are read once for both rules; under the card's own rule every stored number comes out again, and
what does not is named; nothing is written. What a rule cannot change (how the scorer judged) stays as it was.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agent2.cards import folder
from agent2.cards.aggregate import Tally, kinds_of
from agent2.cards.card import CardHeader, CardSummary, ReportingRule, rule_changes
from agent2.cards.reader import summary_differences, tally_of


@dataclass(frozen=True, slots=True)
class Move:
    """One rollout that counts otherwise under the new rule."""

    item_id: str
    attempt: int
    old: float | None
    """None: missing."""
    new: float | None
    why: str
    """The kinds of the rollout about which the rules differ, `turn_cap, empty`."""


@dataclass(frozen=True, slots=True)
class Regrade:
    """One card under two rules."""

    card: Path
    header: CardHeader
    rule: ReportingRule
    """The new one."""
    old: CardSummary
    """Computed from the rollouts under the card's own rule."""
    new: CardSummary
    differs_from_stored: Sequence[str]
    """Fields of the stored summary that the rollouts do not give; empty when all are reproduced, or for an open card,
    which has none."""
    has_stored: bool
    """Whether the card has a summary to compare with."""
    moved: Mapping[str, int]
    """Rollouts that count otherwise, by why."""
    n_items_moved: int
    """Items whose score is another one, whatever the cause."""
    moves: Sequence[Move]
    """The first of them, as many as were asked for, in the order of the card."""

    @property
    def changes(self) -> dict[str, tuple[str, str]]:
        """Fields of the rule that differ, old and new."""
        return rule_changes(self.header.reporting, self.rule)


def regrade(path: Path, rule: ReportingRule | None = None, most_moves: int | None = 0) -> Regrade:
    """The numbers of a card under a rule, its own if None, beside those under its own.

    most_moves: how many moved rollouts to list; None: all. Raises CardError if the card is damaged.
    """
    card = folder.load_card(path)
    own = card.header.reporting
    tally = tally_of(path, card)
    rule = rule or own
    old = tally.summary()
    stored = card.summary
    new = old if rule == own else tally.summary(rule)
    why, moves = _moves(tally, own, rule, most_moves)
    return Regrade(
        card=path,
        header=card.header,
        rule=rule,
        old=old,
        new=new,
        differs_from_stored=[] if stored is None else summary_differences(stored, old),
        has_stored=stored is not None,
        moved=why,
        n_items_moved=sum(old.item_scores[item] != new.item_scores[item] for item in old.item_scores),
        moves=moves,
    )


def _moves(
    tally: Tally, own: ReportingRule, rule: ReportingRule, most: int | None
) -> tuple[dict[str, int], list[Move]]:
    before, after = tally.counted(own), tally.counted(rule)
    rows = _differing(before, after)
    differ = set(rule_changes(own, rule))
    marks = tally.marks()
    why = Counter(_why(int(mark), differ) for mark in marks[rows])
    shown = rows if most is None else rows[:most]
    moves = [
        Move(item_id, attempt, _number(before[row]), _number(after[row]), _why(int(marks[row]), differ))
        for row, (item_id, attempt) in zip(shown.tolist(), tally.attempts_at(shown.tolist()), strict=True)
    ]
    return dict(sorted(why.items())), moves


def _differing(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.intp]:
    are_equal = (before == after) | (np.isnan(before) & np.isnan(after))
    return np.flatnonzero(~are_equal)


def _why(marks: int, differ: set[str]) -> str:
    return ", ".join(kind for kind in kinds_of(marks) if kind in differ)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
