"""Judgement cards: one checkpoint's answers against another's, item by item, as a pairwise scorer judged them.

A judgement card is a card as any other (written durably, validated, queried, paged), in which a line is one
comparison: the rollout is that of the new side, its state holds the answer of the old side and what the judge said in
either order (`state["orders"]`), and the score is the points of the new side: 1 it won, 0 it lost, 0.5 a tie, the mean
over both orders. Its value is a win rate, so what it is to be compared with is `BASELINE` = 0.5 by definition, not
another card. Its lock names both cards (`lock["judgement"]`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent2.cards.reader import iter_rollouts, read_header, read_totals
from agent2.errors import CardError
from agent2.records import Emits, JsonValue
from agent2.stats.estimates import Estimate

BASELINE = 0.5
"""The win rate of a checkpoint against itself."""
JUDGEMENT = "judgement"
"""Key of the lock that makes a card a judgement."""
FLIP = "position_flip"
"""Label of a comparison in which either order had the answer that was shown first (or second) win."""
FIRST_SHOWN = "first_shown_points"
"""View: the mean points of the answer that was shown first; 0.5 without position bias."""

EMITS = Emits(views=frozenset({"shown_first", "shown_second", FIRST_SHOWN}), labels=frozenset({FLIP}))
"""What a comparison has besides its points, whichever scorer judged it."""


@dataclass(frozen=True, slots=True)
class PairwiseJudgement:
    """What a judgement card says."""

    new: Mapping[str, JsonValue]
    """The card whose side's points are counted, as `lock["judgement"]` names it."""
    old: Mapping[str, JsonValue]
    scorer: str
    settings: Mapping[str, JsonValue]
    win_rate: Estimate | None
    """Of the new side, ties as one half; None: no comparison has a verdict. To be held against `BASELINE`."""
    n_wins: int
    n_ties: int
    n_losses: int
    n_missing: int
    """Comparisons without a verdict; in no other number."""
    n_flips: int
    """Comparisons whose verdict turned with the order."""
    first_shown: float | None
    """Mean points of the answer that was shown first, over comparisons that the judge was asked about; 0.5 without
    position bias, None: it was asked about none."""


def read_judgement(card: Path) -> PairwiseJudgement:
    """The numbers of a finished judgement card. Raises CardError for a card of another kind, or one not finished."""
    header, totals = read_header(card), read_totals(card)
    told = header.lock.get(JUDGEMENT)
    if told is None:
        raise CardError(f"{card}: is not a judgement of two cards; make one with agent2 cards judge OLD NEW")
    values: list[float] = []
    first: list[float] = []
    n_flips = 0
    for record in iter_rollouts(card):
        if record.score.value is not None:
            values.append(record.score.value)
        if (shown := record.score.views.get(FIRST_SHOWN)) is not None:
            first.append(shown)
        n_flips += FLIP in record.score.labels
    return PairwiseJudgement(
        new=told["new"],
        old=told["old"],
        scorer=header.protocol.scorer,
        settings=told["settings"],
        win_rate=totals.score,
        n_wins=sum(value > BASELINE for value in values),
        n_ties=sum(value == BASELINE for value in values),
        n_losses=sum(value < BASELINE for value in values),
        n_missing=totals.n_missing,
        n_flips=n_flips,
        first_shown=sum(first) / len(first) if first else None,
    )
