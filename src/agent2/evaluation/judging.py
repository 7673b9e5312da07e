"""Pairwise scoring: the rollouts of two finished cards side by side, in both orders, onto a judgement card.

Promises: each pair is shown twice with the places swapped, so that a judge that likes the first answer gains nothing
by it, and a verdict that turns with the order is marked; a side whose model broke loses without the judge, both broken
is a tie; where one side's rollout is missing for any other reason, or the judge fails twice in one order, the
comparison is missing with that fault, never a loss. Resumed where it stood after a kill, as every card.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agent2 import __version__
from agent2.cards.card import CardHeader, CardSummary, ReportingRule
from agent2.cards.folder import card_exists, load_card
from agent2.cards.judgement import BASELINE, FIRST_SHOWN, FLIP, JUDGEMENT
from agent2.cards.reader import iter_rollouts
from agent2.errors import FAULT_POLICY, CardError, ConfigError, Fault
from agent2.evaluation.rescoring import card_identity, finished_header, require_state
from agent2.evaluation.runner import software_lock
from agent2.evaluation.scoring import (
    Played,
    Progress,
    added_costs,
    open_card,
    score_played,
    unless_unjudged,
)
from agent2.records import (
    Item,
    JsonValue,
    PairScorer,
    Preference,
    Rollout,
    RolloutStatus,
    Score,
    ScoringMode,
    Usage,
    digest_of,
    work_of,
)

OLD, NEW = "old", "new"
_Pair = tuple[Item, Rollout, Rollout]
"""An item and two rollouts of it, in the order in which they are shown."""


def judge_cards(
    old: Path,
    new: Path,
    target: Path,
    scorer: PairScorer,
    settings: Mapping[str, JsonValue] | None = None,
    items: Mapping[str, Item] | None = None,
    on_progress: Progress | None = None,
) -> CardSummary:
    """Compare the rollouts of two cards and write a judgement card; its value is the win rate of `new`.

    settings: what the scorer was made with, for the record. items: by id, for a judge that needs their references;
    None: made from the prompts on the cards. A `target` that this began and did not finish is resumed.
    Raises CardError for a card that is open, damaged, or a judgement itself, and for a `target` that is taken;
    ConfigError for two cards of other items or attempts and for a scorer that compares nothing; ScoringStopped.
    """
    _require_pairwise(scorer)
    headers = {OLD: finished_header(old), NEW: finished_header(new)}
    _require_same_items(old, new, headers)
    for card, header in ((old, headers[OLD]), (new, headers[NEW])):
        require_state(card, header, scorer)
    sides = {OLD: card_identity(old, headers[OLD]), NEW: card_identity(new, headers[NEW])}
    header = _header(headers, sides, scorer, settings or {})
    _require_free(target, sides)
    writer, done = open_card(target, header)
    assert writer is not None  # `_require_free` looked
    with writer:
        olds = {(one.item_id, one.attempt): one for one in (record.rollout for record in iter_rollouts(old))}
        pairs = (_PairBatches if callable(getattr(scorer, "prefer_batch", None)) else _Pairs)(scorer, olds)
        waiting = pairs.comparisons(new, headers[NEW], items, done)
        for record in unless_unjudged(score_played(waiting, pairs), is_resumed=bool(done)):
            writer.append(record)
            if on_progress is not None:
                on_progress(writer.n_rollouts, header.planned_rollouts or 0)
        return writer.close()


class _Pairs:
    """A pairwise scorer as the scoring stage takes it: the rollout that it is given stands for a pair."""

    def __init__(self, scorer: PairScorer, olds: Mapping[tuple[str, int], Rollout]) -> None:
        self.name, self.version, self.work = scorer.name, scorer.version, work_of(scorer)
        self._scorer = scorer
        self._olds = olds
        self._news: dict[tuple[str, int], Rollout] = {}

    def comparisons(
        self, card: Path, header: CardHeader, items: Mapping[str, Item] | None, done: set[tuple[str, int]]
    ) -> Iterator[Played]:
        """Each pair as one rollout, that of the new side with the old side's answer in its state."""
        for rollout in (record.rollout for record in iter_rollouts(card)):
            key = (rollout.item_id, rollout.attempt)
            if key in done:
                continue
            self._news[key] = rollout
            item = items[rollout.item_id] if items is not None else _item(rollout, header)
            yield item, _as_one(self._olds.get(key), rollout)

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The points of the new side: the mean of both orders."""
        return self._scores([(item, rollout)], self._one_by_one)[0]

    def _one_by_one(self, pairs: Sequence[_Pair]) -> list[Preference]:
        return [self._scorer.prefer(*pair) for pair in pairs]

    def _scores(
        self, batch: Sequence[Played], prefer: Callable[[Sequence[_Pair]], Sequence[Preference]]
    ) -> list[Score]:
        sides = [(self._olds[key], self._news[key]) for key in ((one.item_id, one.attempt) for _, one in batch)]
        known = [_broken_side(old, new) for old, new in sides]
        asked: list[_Pair] = []
        for (item, _), (old, new), score in zip(batch, sides, known, strict=True):
            if score is None:
                asked += [(item, new, old), (item, old, new)]
        orders = prefer(asked) if asked else ()
        if len(orders) != len(asked):
            raise ValueError(f"{len(orders)} verdicts on {len(asked)} pairs")
        answers = iter(orders)
        return [score or _of_both_orders(next(answers), next(answers)) for score in known]


class _PairBatches(_Pairs):
    """The same for a pairwise scorer that is given many pairs at once."""

    def score_batch(self, batch: Sequence[Played]) -> list[Score]:
        """One verdict for each pair."""
        return self._scores(batch, self._scorer.prefer_batch)  # type: ignore[attr-defined]


def _broken_side(old: Rollout, new: Rollout) -> Score | None:
    """The verdict where a model broke; None: both answers are there."""
    if old.fault is None and new.fault is None:
        return None
    if old.fault is new.fault:
        return Score(0.5, "both models broke")
    points = float(old.fault is not None)
    return Score(points, "the model of the " + ("old side" if points else "new side") + " broke")


def _of_both_orders(first: Preference, second: Preference) -> Score:
    """The points of the new side. first: with it shown first; second: with it shown second."""
    views = added_costs(first.views, second.views)
    for place, order in ((NEW, first), (OLD, second)):
        if (problem := _problem(order)) is not None:
            return Score(None, f"{place} shown first: {problem}", order.fault or Fault.JUDGE, views)
    shown_first, shown_second = first.first or 0.0, 1.0 - (second.first or 0.0)
    value = (shown_first + shown_second) / 2
    word = "wins" if value > BASELINE else "loses" if value < BASELINE else "ties"
    flips = (shown_first - BASELINE) * (shown_second - BASELINE) < 0
    return Score(
        value,
        f"{NEW} {word}: {shown_first:g} shown first ({first.reason}), {shown_second:g} shown second ({second.reason})",
        views={
            **views,
            "shown_first": shown_first,
            "shown_second": shown_second,
            FIRST_SHOWN: (shown_first + 1.0 - shown_second) / 2,
        },
        labels=tuple(dict.fromkeys((*((FLIP,) if flips else ()), *first.labels, *second.labels))),
    )


def _problem(order: Preference) -> str | None:
    """Why a verdict cannot be used; None: it can."""
    if order.first is None or order.fault is not None:
        return (
            order.reason
            if order.first is None and order.fault is not None
            else (f"preference {order.first} with fault {order.fault}")
        )
    return None if 0.0 <= order.first <= 1.0 else f"preference {order.first}, which is not between 0 and 1"


def _as_one(old: Rollout | None, new: Rollout) -> Rollout:
    """The rollout that stands for a pair; failed where one side is missing for no fault of its model."""
    state = {
        NEW: {"answer": new.answer, "state": dict(new.state)},
        OLD: None if old is None else {"answer": old.answer, "actions": [turn.action for turn in old.turns]},
    }
    pair = replace(new, status=RolloutStatus.COMPLETED, state=state, usage=Usage(), fault=None, reason="", retries=0)
    if old is None:
        reason = "the old card has no such rollout"
        return replace(pair, status=RolloutStatus.FAILED, fault=Fault.INFRASTRUCTURE, reason=reason)
    for side, rollout in ((OLD, old), (NEW, new)):
        if rollout.fault is not None and not FAULT_POLICY[rollout.fault].counts_against_model:
            return replace(pair, status=RolloutStatus.FAILED, fault=rollout.fault, reason=f"{side}: {rollout.reason}")
    return pair


def _item(rollout: Rollout, header: CardHeader) -> Item:
    """An item as the card knows it: what the model was shown."""
    return Item(rollout.item_id, header.protocol.split, "\n\n".join(message.content for message in rollout.prompt))


def _require_pairwise(scorer: PairScorer) -> None:
    name, mode = getattr(scorer, "name", type(scorer).__name__), work_of(scorer).mode
    if not callable(getattr(scorer, "prefer", None)):
        raise ConfigError(f"scorer {name} scores one card at a time and compares nothing; use: agent2 cards rescore")
    if mode is ScoringMode.SANDBOX:
        raise ConfigError(f"scorer {name}: a pairwise scorer works inline or in the mode 'batch'; change its work")


def _require_same_items(old: Path, new: Path, headers: Mapping[str, CardHeader]) -> None:
    """Raises ConfigError unless both cards were played on the same items as often, CardError for a judgement card."""
    for card, header in ((old, headers[OLD]), (new, headers[NEW])):
        if JUDGEMENT in header.lock:
            raise CardError(f"{card}: is a judgement of two cards already; name the cards that were played")
    first, second = headers[OLD].protocol, headers[NEW].protocol
    names = ("benchmark", "split", "items_digest", "attempts")
    if differing := [name for name in names if getattr(first, name) != getattr(second, name)]:
        raise ConfigError(
            f"{old} and {new}: are of other items ({', '.join(differing)} differ), so there is nothing to compare; "
            "evaluate both checkpoints on the same ones"
        )


def _header(
    headers: Mapping[str, CardHeader],
    sides: Mapping[str, Mapping[str, JsonValue]],
    scorer: PairScorer,
    settings: Mapping[str, JsonValue],
) -> CardHeader:
    old, new = headers[OLD], headers[NEW]
    against = {"settings": dict(settings), "checkpoint": old.checkpoint_digest, "protocol": old.protocol.digest}
    protocol = replace(new.protocol, scorer=f"{scorer.name}-v{scorer.version}", judge_digest=digest_of(against))
    told = {
        **sides,
        "scorer": protocol.scorer,
        "settings": dict(settings),
        "baseline": BASELINE,
        "agent2": __version__,
    }
    return CardHeader(
        checkpoint_name=f"{new.checkpoint_name} against {old.checkpoint_name}",
        checkpoint_digest=new.checkpoint_digest,
        protocol=protocol,
        reporting=ReportingRule(),
        lock={**software_lock(), JUDGEMENT: told},
        created_at=time.time(),
        seed=new.seed,
        planned_rollouts=new.planned_rollouts,
    )


def _require_free(target: Path, sides: Mapping[str, Mapping[str, JsonValue]]) -> None:
    """Raises CardError for a card that is finished, or was begun from other cards."""
    if not card_exists(target):
        return
    stored = load_card(target)
    if stored.state == "closed":
        raise CardError(f"{target}: holds a finished card already, and none is overwritten; choose another folder")
    begun = stored.header.lock.get(JUDGEMENT, {})
    if any(begun.get(side, {}).get("card_digest") != identity["card_digest"] for side, identity in sides.items()):
        raise CardError(f"{target}: holds an unfinished card that is not made from these two; choose another folder")
