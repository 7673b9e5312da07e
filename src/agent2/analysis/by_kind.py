"""A card's score for each kind of its items, such as the subjects of a set of questions (`task_type` in the state)."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent2.cards.aggregate import summarize
from agent2.cards.reader import iter_rollouts, read_header
from agent2.records import ScoredRollout
from agent2.stats.estimates import Estimate

STATE_KEY = "task_type"
NOT_STATED = "kind not stated"


@dataclass(frozen=True, slots=True)
class KindScore:
    """The score of the items of one kind."""

    kind: str
    n_items: int
    n_missing: int
    """Of their rollouts."""
    score: Estimate | None
    """None: all of them are missing."""


def scores_by_kind(card: Path) -> tuple[KindScore, ...]:
    """One row for each kind, by name; empty where fewer than two kinds are stated. Raises CardError for a damaged card.

    Rollouts that ended before their item could state its kind are of the kind `NOT_STATED`.
    """
    records = list(iter_rollouts(card))
    kinds = _kinds(records)
    if len(set(kinds.values())) < 2:
        return ()
    by_kind: dict[str, list[ScoredRollout]] = {}
    for record in records:
        by_kind.setdefault(kinds.get(record.rollout.item_id, NOT_STATED), []).append(record)
    rule = read_header(card).reporting
    rows = []
    for kind in sorted(by_kind):
        summary = summarize(by_kind[kind], rule)
        rows.append(KindScore(kind, summary.n_items, summary.n_missing, summary.score))
    return tuple(rows)


def _kinds(records: Iterable[ScoredRollout]) -> dict[str, str]:
    """Item -> its kind, from any of its rollouts that states one."""
    stated = ((record.rollout.item_id, record.rollout.state.get(STATE_KEY)) for record in records)
    return {item: kind for item, kind in stated if isinstance(kind, str)}
