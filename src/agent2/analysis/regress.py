"""Items lost, weakened, won and failed by two checkpoints, by id, with both answers where the items may be seen.

Promises: items are paired by id, never by position; an item that passed before and has no score now is neither kept nor
lost but unknown, and counts against the allowance; so does one that still passes with far fewer of its attempts (5 of 5
before, 3 of 5 now). Items that only one side has are counted. Answers to hidden items are withheld: a result is passed
on and printed, and an answer can give its item away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent2.analysis.card_scores import PASSES_AT, ItemScores, read_scores
from agent2.cards.comparability import CardSet, common_cards
from agent2.cards.reader import read_summary
from agent2.records import HIDDEN_SPLITS

WEAKENED_BY = 0.4
"""An item that still passes is weakened when the mean of its attempts fell by this much: two of five. One attempt of
three or more is luck as likely as not."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ChangedItem:
    """One item and its verdict on both sides."""

    benchmark: str
    item_id: str
    old_score: float
    new_score: float | None
    old_answer: str | None
    """Of the attempt that shows the verdict best: one that passed where the item passed, else one that failed; None:
    withheld, since the item is hidden."""
    new_answer: str | None


@dataclass(frozen=True, slots=True)
class Regression:
    """Every changed item of two sets of cards."""

    old: str
    new: str
    lost: tuple[ChangedItem, ...]
    """Passed before, fail now."""
    won: tuple[ChangedItem, ...]
    unknown: tuple[ChangedItem, ...]
    """Passed before, no score now."""
    weakened: tuple[ChangedItem, ...]
    """Pass still, but the mean of their attempts fell by `WEAKENED_BY` or more."""
    both_failed: tuple[ChangedItem, ...]
    """Failed before, fail now."""
    n_passed_before: int
    n_compared: int
    """Items with a score on both sides."""
    n_only_one_side: int
    """Items that one side was never asked."""
    withheld: str = ""
    """What was left out, and why; empty: nothing."""

    def is_within(self, allowed: int) -> bool:
        """Whether no more items were lost, were weakened or became unknown than allowed."""
        return len(self.lost) + len(self.weakened) + len(self.unknown) <= allowed


def regress(old: CardSet, new: CardSet, passes_at: float = PASSES_AT) -> Regression:
    """Pair every item of the benchmarks that both sets have.

    Raises ConfigError without a common benchmark, IncomparableError naming the field, CardError for a card that is
    unfinished or damaged.
    """
    lost: list[ChangedItem] = []
    won: list[ChangedItem] = []
    unknown: list[ChangedItem] = []
    weakened: list[ChangedItem] = []
    both_failed: list[ChangedItem] = []
    n_passed_before = n_compared = n_one_sided = 0
    for key in common_cards(old, new):
        before, after = _items(old.cards[key]), _items(new.cards[key])
        is_hidden = old.headers[key].protocol.split in HIDDEN_SPLITS
        n_one_sided += len(before.keys() ^ after.keys())
        for item_id in sorted(before.keys() & after.keys()):
            old_item, new_item = before[item_id], after[item_id]
            old_score, new_score = old_item.mean, new_item.mean
            if old_score is None:
                continue
            passed = old_score >= passes_at
            n_passed_before += passed
            answers = [None if is_hidden else _answer(item, passes_at) for item in (old_item, new_item)]
            changed = ChangedItem(key, item_id, old_score, new_score, *answers)
            if new_score is None:
                unknown += [changed] if passed else []
                continue
            n_compared += 1
            if passed and new_score < passes_at:
                lost.append(changed)
            elif not passed and new_score >= passes_at:
                won.append(changed)
            elif passed and old_score - new_score >= WEAKENED_BY - _ROUNDING:
                weakened.append(changed)
            elif not passed:
                both_failed.append(changed)
        unasked = _never_asked(key, before, after, passes_at, is_hidden=is_hidden)
        n_passed_before += len(unasked)
        unknown += unasked
    changes = (tuple(lost), tuple(won), tuple(unknown), tuple(weakened), tuple(both_failed))
    hidden = [key for key in common_cards(old, new) if old.headers[key].protocol.split in HIDDEN_SPLITS]
    return Regression(old.name, new.name, *changes, n_passed_before, n_compared, n_one_sided, _withheld(hidden))


def _withheld(hidden: Sequence[str]) -> str:
    if not hidden:
        return ""
    return (
        f"answers to the items of {', '.join(hidden)}: they are hidden, and an answer can give its item away; "
        "the cards have them (agent2 cards show CARD --id ITEM)"
    )


def _never_asked(
    key: str,
    before: Mapping[str, ItemScores],
    after: Mapping[str, ItemScores],
    passes_at: float,
    *,
    is_hidden: bool,
) -> Sequence[ChangedItem]:
    """Items that passed before and were not put to the new checkpoint."""
    unasked = []
    for item_id in sorted(before.keys() - after.keys()):
        item = before[item_id]
        if item.mean is not None and item.mean >= passes_at:
            answers = (None, None) if is_hidden else (_answer(item, passes_at), "")
            unasked.append(ChangedItem(key, item_id, item.mean, None, *answers))
    return unasked


def _items(card: Path) -> Mapping[str, ItemScores]:
    read_summary(card)  # refuses an unfinished card
    return read_scores(card, with_answers=True).items


def _answer(item: ItemScores, passes_at: float) -> str:
    """The answer of an attempt on the same side of the threshold as the item."""
    if item.mean is not None:
        for value, text in zip(item.values, item.answers, strict=True):
            if value is not None and (value >= passes_at) == (item.mean >= passes_at):
                return text
    return item.answers[0] if item.answers else ""
