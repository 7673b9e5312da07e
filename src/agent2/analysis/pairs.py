"""The rollouts of two cards side by side, paired by item and attempt, as many at a time as a page shows.

Read by SQL from the tables of the cards, so that a page of a million pairs costs no more than its rows. A rollout that
one card lacks has no score there. Does NOT say whether a difference is more than chance: `analysis.compare` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agent2.analysis.card_scores import PASSES_AT, QUESTION_TEXT
from agent2.cards.query import CardQueries

KINDS: Mapping[str, str] = {
    "lost": f"old >= {PASSES_AT} and new < {PASSES_AT}",
    "won": f"old < {PASSES_AT} and new >= {PASSES_AT}",
    "both failed": f"old < {PASSES_AT} and new < {PASSES_AT}",
    "both passed": f"old >= {PASSES_AT} and new >= {PASSES_AT}",
    "no score": "old is null or new is null",
}
"""What can be listed -> the condition."""
ALL = ""
"""In place of a kind: every pair."""
PAIRED = (
    "select coalesce(a.item_id, b.item_id) item_id, coalesce(a.attempt, b.attempt) attempt, a.line line, "
    "b.line old_line, coalesce(a.record, b.record) record, a.counted new, b.counted old, "
    "coalesce(nullif(a.answer, ''), a.reason) new_answer, coalesce(nullif(b.answer, ''), b.reason) old_answer "
    "from (select * from rollouts where card = ?) a "
    "full join (select * from rollouts where card = ?) b on a.item_id = b.item_id and a.attempt = b.attempt"
)


@dataclass(frozen=True, slots=True)
class PairedRollouts:
    """One attempt at one item on both cards."""

    item_id: str
    attempt: int
    line: int | None
    """Of the new card; None: it lacks the rollout."""
    scores: tuple[float | None, float | None]
    """Counted ones, of the new card and of the old; None: missing."""
    answers: tuple[str | None, str | None]
    """Of an episode without a final answer the scorer's reason."""
    old_line: int | None = None
    """Of the old card; None: it lacks the rollout."""


@dataclass(frozen=True, slots=True)
class PairFilter:
    """Which pairs are listed."""

    kind: str = ALL
    """One of `KINDS`, or `ALL`."""
    text: str = ""
    """Listed are pairs that contain it; in lower case it matches any case."""
    in_new_answers: bool = True
    """Whether the text is looked for in the answers of the new card, beside the item's id."""
    in_old_answers: bool = True
    in_questions: bool = False
    """Whether questions are searched, too, which are in the records."""

    def clause(self) -> tuple[str, list[str]]:
        """The SQL condition, and the values of its parameters."""
        conditions, values = ([f"({KINDS[self.kind]})"] if self.kind else []), []
        if self.text:
            columns = ["item_id"]
            columns += ["new_answer"] if self.in_new_answers else []
            columns += ["old_answer"] if self.in_old_answers else []
            parts = [self._contains(column) for column in columns]
            values = [self.text] * len(columns)
            if self.in_questions:  # the stored JSON first, which is fast
                parts.append(f"({self._contains('record')} and {self._contains(QUESTION_TEXT)})")
                values += [msgspec.json.encode(self.text).decode()[1:-1], self.text]
            conditions.append(f"({' or '.join(parts)})")
        return (f"where {' and '.join(conditions)}" if conditions else ""), values

    def _contains(self, column: str) -> str:
        return f"contains({column if self.text != self.text.lower() else f'lower({column})'}, ?)"


class RolloutPairs:
    """The pairs of two finished cards."""

    def __init__(self, new: Path, old: Path) -> None:
        self._cards = [str(new), str(old)]
        self._tables = CardQueries([new, old])

    def counts(self) -> dict[str, int]:
        """How many pairs are of each kind, and of all (`ALL`)."""
        parts = ", ".join(f"count(*) filter (where {condition})" for condition in KINDS.values())
        row = self._rows(f"select {parts}, count(*) from ({PAIRED})", (), 0, 1)[0]
        return dict(zip((*KINDS, ALL), row, strict=True))

    def count(self, pair_filter: PairFilter) -> int:
        """How many pairs a filter lists."""
        where, values = pair_filter.clause()
        n_pairs: int = self._rows(f"select count(*) from ({PAIRED}) {where}", values, 0, 1)[0][0]
        return n_pairs

    def page(self, pair_filter: PairFilter, start: int, n: int) -> list[PairedRollouts]:
        """Pairs of a filter in the order of the new card's lines, those that it lacks last."""
        where, values = pair_filter.clause()
        columns = "item_id, attempt, line, old_line, new, old, new_answer, old_answer"
        sql = f"select {columns} from ({PAIRED}) {where} order by line nulls last, item_id, attempt"
        return [
            PairedRollouts(item_id, int(attempt), line, (new, old), (new_answer, old_answer), old_line)
            for item_id, attempt, line, old_line, new, old, new_answer, old_answer in self._rows(sql, values, start, n)
        ]

    def _rows(self, sql: str, values: Sequence[str], start: int, n: int) -> tuple[tuple[Any, ...], ...]:
        rows: tuple[tuple[Any, ...], ...] = self._tables.page(sql, start, n, [*self._cards, *values]).rows
        return rows
