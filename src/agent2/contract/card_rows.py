"""One card as rows: for each measure and item, sums over attempts, and how many attempts had no number.

Promises: a card is read once, whatever the number of measures; the order in which rollouts finished changes no bit;
memory grows with items (with rollouts where items have several attempts); a card that is not finished or is damaged
raises CardError.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent2.cards import folder
from agent2.cards.aggregate import counted_value
from agent2.cards.card import CardHeader
from agent2.cards.reader import iter_rollouts
from agent2.contract.rollout_numbers import MeasureRule, is_broken, is_left_out, nearest_view, number_of
from agent2.errors import CardError, Fault
from agent2.records import ScoredRollout


@dataclass(slots=True)
class Row:
    """One measure at one item."""

    total: float = 0.0
    whole: float = 0.0
    n: int = 0
    """Attempts with a number."""
    n_missing: int = 0


@dataclass(slots=True)
class CardRows:
    """What evidence needs of one card."""

    header: CardHeader
    rows: dict[str, dict[str, Row]]
    """Measure -> item -> row."""
    problems: dict[str, str]
    """Measure -> why the card has no such number."""
    n_rollouts: int = 0
    n_clean: int = 0
    n_model_faults: int = 0
    """Rollouts that the model itself broke off: logits that are not numbers, a template that fails, no room."""
    model_fault: str = ""
    """Reason of the first of them."""
    labels: Counter[str] = field(default_factory=Counter)
    attempts: dict[str, list[float]] = field(default_factory=dict)
    """Item -> its counted scores in the order of its attempts; only where an item has several."""

    @property
    def clean_share(self) -> float | None:
        """Share of rollouts in which nobody but the model failed; None for an empty card."""
        return self.n_clean / self.n_rollouts if self.n_rollouts else None


def read_rows(path: Path, measures: Sequence[MeasureRule]) -> CardRows:
    """Read a finished card once. Raises CardError if it is open, short of its plan or damaged."""
    card = folder.load_card(path)
    planned = card.header.planned_rollouts
    if card.state == "open":
        raise CardError(f"{path}: the card is not finished; resume its evaluation, then decide")
    found = CardRows(card.header, {measure.name: {} for measure in measures}, {})
    views: set[str] = set()
    has_attempts = card.header.protocol.attempts > 1
    for record in _by_attempt(path) if has_attempts else iter_rollouts(path):
        found.n_rollouts += 1
        broken = is_broken(record)
        score = None if broken else counted_value(record, card.header.reporting)
        found.n_clean += not broken
        if record.rollout.fault is Fault.MODEL:
            found.n_model_faults += 1
            found.model_fault = found.model_fault or record.rollout.reason
        found.labels.update(set(record.score.labels))
        views.update(record.score.views)
        item = record.rollout.item_id
        for measure in measures:
            if is_left_out(measure, score):
                continue
            row = found.rows[measure.name].setdefault(item, Row())
            number = None if broken else number_of(measure, record, score)
            if number is None:
                row.n_missing += 1
            else:
                row.total, row.whole, row.n = row.total + number[0], row.whole + number[1], row.n + 1
        if has_attempts and record.score.value is not None:
            found.attempts.setdefault(item, []).append(record.score.value)
    found.rows = {name: dict(sorted(rows.items())) for name, rows in found.rows.items()}
    found.attempts = dict(sorted(found.attempts.items()))
    if planned is not None and planned != found.n_rollouts:
        raise CardError(f"{path}: contains {found.n_rollouts} of {planned} planned rollouts; evaluate again")
    for measure in measures:
        lacking = [name for name in measure.views if name not in views]
        if measure.is_reported:
            found.problems[measure.name] = "no rollout carries it; give it in a report"
        elif lacking and found.n_rollouts:
            hint = nearest_view(lacking[0], sorted(views))
            found.problems[measure.name] = f"no score of {card.header.protocol.benchmark} has {lacking[0]!r}; {hint}"
    return found


def _by_attempt(path: Path) -> list[ScoredRollout]:
    """The rollouts in the order of their attempts, so that sums do not depend on which one finished first."""
    return sorted(iter_rollouts(path), key=lambda record: (record.rollout.item_id, record.rollout.attempt))
