"""Judgement cards: one checkpoint's answers against another's, item by item, as a pairwise scorer judged them.

A judgement card is a card like any other (written durably, validated, queried, paged), in which a line is one
comparison: the rollout is that of the new side, its state holds the answer of the old side and the judge's reply in
either order (`state["orders"]`), and the score is the points of the new side: 1 it won, 0 it lost, 0.5 a tie, the mean
over both orders. Its value is a win rate, so it is compared with `BASELINE` = 0.5 by definition, not with another card.
Its lock names both cards (`lock["judgement"]`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent2.cards.reader import iter_rollouts, read_header, read_totals
from agent2.errors import CardError
from agent2.records import JsonValue, ScoredRollout, ScorerOutput
from agent2.stats.estimates import Estimate

if TYPE_CHECKING:
    from agent2.stats.length_control import LengthControlled

BASELINE = 0.5
"""The win rate of a checkpoint against itself."""
JUDGEMENT = "judgement"
"""Key of the lock that makes a card a judgement."""
FLIP = "position_flip"
"""Label of a comparison in which the answer that was shown first won in both orders, or the second in both."""
FIRST_SHOWN = "first_shown_points"
"""View: the mean points of the answer that was shown first; 0.5 without position bias."""

REPLY_CHARS, REFERENCE_CHARS = "reply_chars", "reference_chars"
"""Views of a scorer that compares one answer with a reference: the lengths of both, for `length_controlled_of`."""
FEWEST_FOR_DIFFICULTY = 3
"""Number of cards of the same items from which on the items' difficulty is estimated."""

EMITS = ScorerOutput(views=frozenset({"shown_first", "shown_second", FIRST_SHOWN}), labels=frozenset({FLIP}))
"""What a comparison has besides its points, whichever scorer judged it."""


@dataclass(frozen=True, slots=True)
class PairwiseJudgement:
    """The numbers of a judgement card."""

    new: Mapping[str, JsonValue]
    """The card whose side's points are counted, as `lock["judgement"]` names it."""
    old: Mapping[str, JsonValue]
    scorer: str
    settings: Mapping[str, JsonValue]
    win_rate: Estimate | None
    """Of the new side, ties as one half; None: no comparison has a verdict. Compare it with `BASELINE`."""
    n_wins: int
    n_ties: int
    n_losses: int
    n_missing: int
    """Comparisons without a verdict; in no other number."""
    n_flips: int
    """Comparisons whose verdict changed with the order."""
    first_shown: float | None
    """Mean points of the answer that was shown first, over comparisons that the judge was asked about; 0.5 without
    position bias, None: it was asked about none."""


def read_judgement(card: Path) -> PairwiseJudgement:
    """The numbers of a finished judgement card. Raises CardError for a card of another kind, or one not finished."""
    header, totals = read_header(card), read_totals(card)
    judgement = header.lock.get(JUDGEMENT)
    if judgement is None:
        raise CardError(f"{card}: is not a judgement of two cards; make one with agent2 cards judge OLD NEW")
    values: list[float] = []
    first: list[float] = []
    n_flips = 0
    for record in iter_rollouts(card):
        if record.score.value is not None:
            values.append(record.score.value)
        if (points := record.score.views.get(FIRST_SHOWN)) is not None:
            first.append(points)
        n_flips += FLIP in record.score.labels
    return PairwiseJudgement(
        new=judgement["new"],
        old=judgement["old"],
        scorer=header.protocol.scorer,
        settings=judgement["settings"],
        win_rate=totals.score,
        n_wins=sum(value > BASELINE for value in values),
        n_ties=sum(value == BASELINE for value in values),
        n_losses=sum(value < BASELINE for value in values),
        n_missing=totals.n_missing,
        n_flips=n_flips,
        first_shown=sum(first) / len(first) if first else None,
    )


def judged_pairs(cards: Sequence[Path]) -> Iterator[tuple[str, str, str, float | None]]:
    """(new checkpoint, old checkpoint, item, points of the new one) of every comparison of some judgement cards.

    Checkpoints are named as on their cards, with the start of their digest where two share a name; points are None
    without a verdict. Raises CardError for a card of another kind.
    """
    sides_by_card = {}
    digests: dict[str, set[str]] = {}
    for card in cards:
        sides = sides_by_card[card] = read_header(card).lock.get(JUDGEMENT) or {}
        if not sides:
            raise CardError(f"{card}: is not a judgement of two cards; make one with agent2 cards judge OLD NEW")
        for side in (sides["new"], sides["old"]):
            digests.setdefault(str(side["checkpoint_name"]), set()).add(str(side["checkpoint_digest"]))

    def name_of(side: Mapping[str, JsonValue]) -> str:
        name, digest = str(side["checkpoint_name"]), str(side["checkpoint_digest"])
        return name if len(digests[name]) == 1 else f"{name}@{digest[:6]}"

    for card, sides in sides_by_card.items():
        new, old = name_of(sides["new"]), name_of(sides["old"])
        for record in iter_rollouts(card):
            yield new, old, record.rollout.item_id, record.score.value


def length_controlled_of(
    cards: Sequence[Path], difficulty: Mapping[str, float] | None = None
) -> list["LengthControlled"]:
    """The length-controlled win rate of each card: of judgements, or of answers scored against a reference.

    difficulty: of the items by id, where it is known. None: estimated from all cards together where there are at least
    `FEWEST_FOR_DIFFICULTY` (they have to be of the same items, against the same old side), and else left out of the
    model. Raises CardError for a card without the lengths of both answers, for cards of different items, and for an
    item whose difficulty is not given; also what `stats.length_control.length_controlled` raises.
    """
    from agent2.stats.length_control import estimate_difficulty, length_controlled, standardised  # loads scipy

    columns = [_preferences(card) for card in cards]
    items = sorted(columns[0])
    for card, preferences in zip(cards, columns, strict=True):
        if sorted(preferences) != items:
            raise CardError(f"{card}: is of other items or attempts than {cards[0]}; give cards of the same ones")
    rows = [tuple(zip(*(preferences[key] for key in items), strict=True)) for preferences in columns]
    hardness: Sequence[float] | None = None
    if difficulty is not None:
        if missing := next((item for item, _ in items if item not in difficulty), None):
            raise CardError(f"{cards[0]}: the difficulty of item {missing} is not given; add it, or leave all out")
        hardness = [difficulty[item] for item, _ in items]
    elif len(cards) >= FEWEST_FOR_DIFFICULTY:
        slopes = [standardised(new, old) for _, new, old in rows]
        hardness = list(estimate_difficulty([preferred for preferred, _, _ in rows], slopes))
    return [length_controlled(preferred, new, old, hardness) for preferred, new, old in rows]


def _preferences(card: Path) -> dict[tuple[str, int], tuple[float, float, float]]:
    """(item, attempt) -> points of the answer (NaN without a verdict), its length and that of the opposing one."""
    is_judgement = JUDGEMENT in read_header(card).lock
    preferences = {}
    for record in iter_rollouts(card):
        value = float("nan") if record.score.value is None else record.score.value
        lengths = _judged_lengths(record) if is_judgement else _viewed_lengths(record)
        if lengths is None and record.score.value is not None:
            raise CardError(
                f"{card}: rollout {record.rollout.item_id} has no lengths of two answers; give a judgement card "
                f"(agent2 cards judge), or a card whose scorer gives the views {REPLY_CHARS} and {REFERENCE_CHARS}"
            )
        preferences[record.rollout.item_id, record.rollout.attempt] = (value, *(lengths or (0.0, 0.0)))
    return preferences


def _judged_lengths(record: ScoredRollout) -> tuple[float, float] | None:
    new, old = record.rollout.state.get("new"), record.rollout.state.get("old")
    if new is None or old is None:
        return None
    new_answer = new["answer"] if new["answer"] is not None else "".join(turn.action for turn in record.rollout.turns)
    old_answer = old["answer"] if old["answer"] is not None else "".join(old["actions"])
    return float(len(new_answer)), float(len(old_answer))


def _viewed_lengths(record: ScoredRollout) -> tuple[float, float] | None:
    new, old = record.score.views.get(REPLY_CHARS), record.score.views.get(REFERENCE_CHARS)
    return None if new is None or old is None else (new, old)
