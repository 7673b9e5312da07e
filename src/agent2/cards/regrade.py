"""A card's numbers under another reporting rule, without a model; nothing here changes a card.

Rollouts are read once for both rules, and stored numbers that the rollouts do not reproduce under the card's own rule
are named. What a rule cannot change (how the scorer judged) stays as it was.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent2.cards.aggregate import Tally, kinds_of
from agent2.cards.card import CardHeader, CardSummary, ReportingRule, rule_changes
from agent2.cards.folder import load_card
from agent2.cards.reader import summary_differences, tally_of


@dataclass(frozen=True, slots=True)
class RegradeChange:
    """One rollout that counts differently under the new rule."""

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
    n_changed: Mapping[str, int]
    """Rollouts that count differently, by the kinds that the rules treat differently."""
    n_items_changed: int
    """Items whose score differs, whatever the cause."""
    changed: Sequence[RegradeChange]
    """The first rollouts that count differently, as many as were requested, in the order of the card."""

    @property
    def changes(self) -> dict[str, tuple[str, str]]:
        """Fields of the rule that differ, old and new."""
        return rule_changes(self.header.reporting, self.rule)


def regrade(path: Path, rule: ReportingRule | None = None, max_changes: int | None = 0) -> Regrade:
    """The numbers of a card under a rule, its own if None, beside those under its own.

    max_changes: how many of the rollouts that count differently to list; None: all. Raises CardError if the card is
    damaged.
    """
    card = load_card(path)
    card_rule = card.header.reporting
    tally = tally_of(path, card)
    rule = rule or card_rule
    old = tally.summary()
    stored = card.summary
    new = old if rule == card_rule else tally.summary(rule)
    n_changed, changed = _changes(tally, card_rule, rule, max_changes)
    return Regrade(
        card=path,
        header=card.header,
        rule=rule,
        old=old,
        new=new,
        differs_from_stored=[] if stored is None else summary_differences(stored, old),
        has_stored=stored is not None,
        n_changed=n_changed,
        n_items_changed=sum(old.item_scores[item] != new.item_scores[item] for item in old.item_scores),
        changed=changed,
    )


def _changes(
    tally: Tally, card_rule: ReportingRule, rule: ReportingRule, max_changes: int | None
) -> tuple[dict[str, int], list[RegradeChange]]:
    """The number of rollouts that count differently, by kinds, and the first of them."""
    before, after = tally.counted(card_rule), tally.counted(rule)
    is_same = (before == after) | (np.isnan(before) & np.isnan(after))
    rows = np.flatnonzero(~is_same)
    differing_kinds = set(rule_changes(card_rule, rule))
    marks = tally.marks()
    reasons = {
        mark: ", ".join(kind for kind in kinds_of(mark) if kind in differing_kinds)
        for mark in np.unique(marks[rows]).tolist()
    }
    n_by_reason = Counter(reasons[mark] for mark in marks[rows].tolist())
    listed = rows[:max_changes].tolist()
    changes = [
        RegradeChange(item_id, attempt, _none_if_nan(before[row]), _none_if_nan(after[row]), reasons[int(marks[row])])
        for row, (item_id, attempt) in zip(listed, tally.attempts_at(listed), strict=True)
    ]
    return dict(sorted(n_by_reason.items())), changes


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
