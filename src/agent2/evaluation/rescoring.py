"""A finished card judged or played again: its stored rollouts, a scorer or a world as it is now, no model.

Promises: the card that is judged again is never changed; the new one names the card that it comes from, the scorer
and its settings; so does its protocol, so that it is comparable only with cards judged the same way. To count the same
verdicts otherwise, see `cards.regrade`. `play_again` compares observations and final state with the world as it
is now; it does NOT compare what the model was sent under a context policy.

`judge_cards` compares the rollouts of two finished cards side by side. Promises: each pair is shown in both orders, so
that a judge that prefers the first answer gains nothing by it, and a verdict that changes with the order is marked; a
side whose model failed loses without the judge, and two failed sides are a tie; where one side's rollout is missing for
any other reason, or the judge fails twice in one order, the comparison is missing with that fault, never a loss.
Resumable after a kill, as every card.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase

from msgspec import structs

from agent2 import __version__, installation
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.trial_judge import with_drawn_judge
from agent2.cards.card import IMPORTED, CardHeader, CardSummary, ReportingRule
from agent2.cards.folder import CARD_JSON, card_exists, file_digest, load_card, restore_replaced
from agent2.cards.imports.foreign_log import OPTIONS
from agent2.cards.judgement import BASELINE, FIRST_SHOWN, FLIP, JUDGEMENT
from agent2.cards.reader import finished_header, iter_rollouts
from agent2.errors import FAULT_POLICY, CardError, ConfigError, Fault, quoted
from agent2.evaluation.engine import Attempt, play_by
from agent2.evaluation.first_items import FIRST_LOOK, first_items
from agent2.evaluation.runner import JUDGE_DRAW, UNSCORED, judged_by, software_lock
from agent2.evaluation.scoring import (
    PlayedItem,
    Progress,
    ScoringResources,
    open_card,
    require_scorer,
    score_card,
    score_played,
    unless_unjudged,
)
from agent2.evaluation.stored_answers import items_of_stored
from agent2.pictures import copy_beside
from agent2.records import (
    HIDDEN_SPLITS,
    Benchmark,
    Environment,
    Item,
    JsonValue,
    PairScorer,
    Preference,
    Rollout,
    RolloutStatus,
    Score,
    Scorer,
    ScoringMode,
    Usage,
    added_costs,
    digest_of,
    work_of,
)

RESCORED = "rescored"
"""Key of the lock under which a rescored card names its source."""
OLD, NEW = "old", "new"

_Pair = tuple[Item, Rollout, Rollout]
"""An item and two rollouts of it, in the order in which they are shown."""


def rescore(
    source: Path,
    target: Path,
    scorer: Scorer | None = None,
    settings: Mapping[str, JsonValue] | None = None,
    benchmark: Benchmark | None = None,
    *,
    resources: ScoringResources | None = None,
    on_progress: Progress | None = None,
) -> CardSummary:
    """Judge a finished card's rollouts again and write them, with the new verdicts, on another card.

    scorer: None: the benchmark's own. settings: of the scorer, for the record. benchmark: None: the one that the card
    names; an imported card with a scorer needs none: its items are its prompts, with the targets of the log. An
    unfinished `target` of the same call is resumed.
    Raises CardError for a card that is open, damaged or of another format, and for a `target` that is taken;
    ConfigError for items that are no longer those of the card, and for a scorer of another kind or one that judges
    by a state that the rollouts do not hold; what `score_card` raises.
    """
    header = finished_header(source)
    if benchmark is None and scorer is not None and IMPORTED in header.lock:
        rollouts = (record.rollout for record in iter_rollouts(source))
        items = {rollout.item_id: _item_of(rollout, header) for rollout in rollouts}
    else:
        benchmark = benchmark if benchmark is not None else benchmark_of(source, header)
        scorer = scorer if scorer is not None else benchmark.scorer()
        items = items_of(source, header, benchmark)
    require_scorer(scorer, resources)
    require_state(source, header, scorer)
    new = rescored_header(source, header, scorer, settings or {})
    _require_free(target, new)
    copy_beside(source, target)
    return score_card(source, target, new, items, scorer, resources=resources, on_progress=on_progress)


def play_again(item: Item, rollout: Rollout, make_environment: Callable[[], Environment]) -> str:
    """Replay a rollout's actions in a fresh world; the first difference as a sentence, empty if there is none.

    The opening, each observation, the end and the parts of the final state are compared; of a rollout that failed, the
    turns that it has. Raises ConfigError if the rollout is of another item.
    """
    if rollout.item_id != item.id:
        raise ConfigError(f"the rollout is of item {rollout.item_id!r}, not {item.id!r}; pass the item that was played")
    actions = iter([turn.action for turn in rollout.turns])
    attempts = [Attempt(item, rollout.attempt, rollout.seed)]
    max_turns = max(1, len(rollout.turns))
    ((_, again),) = play_by(lambda *_: next(actions, ""), attempts, make_environment, max_turns, retries=0)
    if again.prompt and (old_opening := list(rollout.prompt)) != (new_opening := list(again.prompt)):
        return f"the opening was {quoted(old_opening)}, and is {quoted(new_opening)} now"
    for number, turn in enumerate(rollout.turns, 1):
        if number > len(again.turns):
            return f"turn {number}: {again.reason or 'the episode is over before it'}"
        if (reply := again.turns[number - 1].observation) != turn.observation:
            return f"turn {number}: the observation was {quoted(turn.observation)}, and is {quoted(reply)} now"
        if again.turns[number - 1].pictures != turn.pictures:
            return f"turn {number}: the observation has other pictures now"
    if rollout.status is RolloutStatus.FAILED:
        return ""
    if (rollout.status is RolloutStatus.COMPLETED) != (again.status is RolloutStatus.COMPLETED):
        return f"the episode ended with status {rollout.status}, and with {again.status} now"
    for name in sorted({*rollout.state, *again.state}):
        if (before := rollout.state.get(name)) != (after := again.state.get(name)):
            return f"the final state's {name} was {quoted(before)}, and is {quoted(after)} now"
    return ""


def benchmark_of(card: Path, header: CardHeader) -> Benchmark:
    """The benchmark that a card names, of a trial's card with the judge that the trial drew.

    Raises ConfigError if it is not installed here.
    """
    try:
        return with_drawn_judge(load_benchmark(header.protocol.benchmark_name), str(header.lock.get(JUDGE_DRAW, "")))
    except ConfigError as error:
        raise ConfigError(
            f"{card}: its items come from {header.protocol.benchmark!r}, and that cannot be loaded ({error}); name the "
            "benchmark with --benchmark"
        ) from error


def items_of(card: Path, header: CardHeader, benchmark: Benchmark) -> dict[str, Item]:
    """The items that a card was played on, by id. Raises ConfigError if the benchmark has others now."""
    protocol = header.protocol
    planned, look = header.planned_rollouts, header.lock.get(FIRST_LOOK)
    if planned is None or planned % protocol.attempts:
        n_items = len({record.rollout.item_id for record in iter_rollouts(card)})
    else:
        n_items = planned // protocol.attempts
    whole_set = items_of_stored(benchmark, header)
    # Hidden items are selected under the secret; another installation would make others.
    secret = installation.secret() if protocol.split in HIDDEN_SPLITS and whole_set is None else None
    # A first look chooses by a hash among `of` items: a selection of its own number of items would be another one.
    n_available = look.get("of") if isinstance(look, Mapping) else None
    n_selected = n_available if isinstance(n_available, int) and n_available > n_items else n_items
    items = benchmark.items(protocol.split, n_selected, secret) if whole_set is None else whole_set
    items = list(first_items(items, None if look is None else n_items))
    if digest_of(list(items)) != protocol.items_digest:
        why = " or were chosen under another installation's secret" if secret is not None else ""
        raise ConfigError(
            f"{card}: was played on {n_items} items of {protocol.benchmark} {protocol.split.value}, and "
            f"{benchmark.name}-v{benchmark.version} gives others now: they were selected otherwise{why}; use the "
            "version and installation that played it, or name the benchmark with --benchmark"
        )
    return {item.id: item for item in items}


def require_state(card: Path, header: CardHeader, scorer: object) -> None:
    """Raises ConfigError if a scorer judges by a world's final state that a card's rollouts do not hold."""
    needed: frozenset[str] = getattr(scorer, "needs_state", frozenset())
    for record in iter_rollouts(card) if needed else ():
        if record.rollout.fault is None and (lacking := sorted(needed - record.rollout.state.keys())):
            raise ConfigError(
                f"{card}: scorer {getattr(scorer, 'name', '')} judges by the final state of a world "
                f"({', '.join(lacking)}), and this card's, {header.protocol.environment}, left none: item "
                f"{record.rollout.item_id!r}; choose another scorer"
            )


def rescored_header(source: Path, header: CardHeader, scorer: Scorer, settings: Mapping[str, JsonValue]) -> CardHeader:
    """The header of a rescored card."""
    judged = judged_by(header, scorer)
    judge_digest = judged.protocol.judge_digest if JUDGE_DRAW in judged.lock else ""
    protocol = replace(judged.protocol, judge_digest=digest_of(dict(settings)) if settings else judge_digest)
    provenance = {
        **card_identity(source, header),
        "scorer": protocol.scorer,
        "settings": dict(settings),
        "agent2": __version__,
        "software": software_lock(),
    }
    return replace(header, protocol=protocol, lock={**judged.lock, RESCORED: provenance}, created_at=time.time())


def card_identity(card: Path, header: CardHeader) -> dict[str, JsonValue]:
    """How another card names this one: by digests, and by names for readers."""
    return {
        "card": card.name,
        "card_digest": file_digest(card / CARD_JSON),
        "checkpoint_name": header.checkpoint_name,
        "checkpoint_digest": header.checkpoint_digest,
        "protocol_digest": header.protocol.digest,
        "was_scored_by": header.protocol.scorer if header.protocol.scorer != UNSCORED else None,
    }


def _require_free(target: Path, header: CardHeader) -> None:
    """Raises CardError for a card that is finished, or was begun from other cards."""
    restore_replaced(target)
    if not card_exists(target):
        return
    stored = load_card(target)
    if stored.state == "closed":
        raise CardError(f"{target}: holds a finished card already, and none is overwritten; choose another folder")
    if _sources(stored.header) != _sources(header):
        raise CardError(f"{target}: holds an unfinished card that is made from other cards; choose another folder")


def _sources(header: CardHeader) -> list[JsonValue]:
    """Digests of the cards that a card was made from."""
    judged = header.lock.get(JUDGEMENT, {})
    sources = (header.lock.get(RESCORED, {}), judged.get(OLD, {}), judged.get(NEW, {}))
    return [source.get("card_digest") for source in sources]


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

    settings: of the scorer, for the record. items: by id, for a judge that needs their references; None: made from the
    prompts on the cards. An unfinished `target` of the same call is resumed.
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
    _require_free(target, header)
    writer, done = open_card(target, header)
    assert writer is not None  # `_require_free` refuses a finished card
    with writer:
        old_rollouts = {
            (rollout.item_id, rollout.attempt): rollout for rollout in (record.rollout for record in iter_rollouts(old))
        }
        adapter = _BatchPairAdapter if callable(getattr(scorer, "prefer_batch", None)) else _PairAdapter
        pairs = adapter(scorer, old_rollouts)
        pending = pairs.comparisons(new, headers[NEW], items, done)
        for record in unless_unjudged(score_played(pending, pairs), is_resumed=bool(done)):
            writer.append(record)
            if on_progress is not None:
                on_progress(writer.n_rollouts, header.planned_rollouts or 0)
        return writer.close()


class _PairAdapter:
    """A pairwise scorer as the scoring stage takes it: the rollout that it is given represents a pair."""

    def __init__(self, scorer: PairScorer, old_rollouts: Mapping[tuple[str, int], Rollout]) -> None:
        self.name, self.version, self.work = scorer.name, scorer.version, work_of(scorer)
        self._scorer = scorer
        self._old_rollouts = old_rollouts
        self._new_rollouts: dict[tuple[str, int], Rollout] = {}

    def comparisons(
        self, card: Path, header: CardHeader, items: Mapping[str, Item] | None, done: set[tuple[str, int]]
    ) -> Iterator[PlayedItem]:
        """Each pair as one rollout, that of the new side with the old side's answer in its state."""
        for rollout in (record.rollout for record in iter_rollouts(card)):
            key = (rollout.item_id, rollout.attempt)
            if key in done:
                continue
            self._new_rollouts[key] = rollout
            item = items[rollout.item_id] if items is not None else _item_of(rollout, header)
            yield item, _combined(self._old_rollouts.get(key), rollout)

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The points of the new side: the mean of both orders."""
        return self._scores([(item, rollout)], self._one_by_one)[0]

    def _one_by_one(self, pairs: Sequence[_Pair]) -> list[Preference]:
        return [self._scorer.prefer(*pair) for pair in pairs]

    def _scores(
        self, batch: Sequence[PlayedItem], prefer: Callable[[Sequence[_Pair]], Sequence[Preference]]
    ) -> list[Score]:
        sides = [
            (self._old_rollouts[key], self._new_rollouts[key])
            for key in ((rollout.item_id, rollout.attempt) for _, rollout in batch)
        ]
        decided = [_score_of_broken(old, new) for old, new in sides]
        to_judge: list[_Pair] = []
        for (item, _), (old, new), score in zip(batch, sides, decided, strict=True):
            if score is None:
                # Both orders of a pair, neighbours in the batch: `remaining` below takes them two at a time.
                to_judge += [(item, new, old), (item, old, new)]
        preferences = prefer(to_judge) if to_judge else ()
        if len(preferences) != len(to_judge):
            raise ValueError(f"{len(preferences)} verdicts on {len(to_judge)} pairs")
        remaining = iter(preferences)
        return [score or _of_both_orders(next(remaining), next(remaining)) for score in decided]


class _BatchPairAdapter(_PairAdapter):
    """The same for a pairwise scorer that is given many pairs at once."""

    def score_batch(self, batch: Sequence[PlayedItem]) -> list[Score]:
        """One verdict for each pair."""
        return self._scores(batch, self._scorer.prefer_batch)  # type: ignore[attr-defined]


def _score_of_broken(old: Rollout, new: Rollout) -> Score | None:
    """The verdict on a pair in which a model broke; None: neither did."""
    if old.fault is None and new.fault is None:
        return None
    if old.fault is new.fault:
        return Score(0.5, "both models broke")
    points = float(old.fault is not None)
    return Score(points, "the model of the " + ("old side" if points else "new side") + " broke")


def _of_both_orders(first: Preference, second: Preference) -> Score:
    """The points of the new side. first: with it shown first; second: with it shown second."""
    views = added_costs(first.views, second.views)
    missing = [
        Score(None, f"{shown_first_side} shown first: {problem}", preference.fault or Fault.JUDGE, views)
        for shown_first_side, preference in ((NEW, first), (OLD, second))
        if (problem := _problem(preference)) is not None
    ]
    if missing:
        # The judge's own answer decides: where one order was unreadable, the other one need not be asked for again.
        return next((score for score in missing if score.fault is not Fault.INFRASTRUCTURE), missing[0])
    shown_first, shown_second = first.first or 0.0, 1.0 - (second.first or 0.0)
    value = (shown_first + shown_second) / 2
    verb = "wins" if value > BASELINE else "loses" if value < BASELINE else "ties"
    flips = (shown_first - BASELINE) * (shown_second - BASELINE) < 0
    return Score(
        value,
        f"{NEW} {verb}: {shown_first:g} shown first ({first.reason}), {shown_second:g} shown second ({second.reason})",
        views={
            **views,
            "shown_first": shown_first,
            "shown_second": shown_second,
            FIRST_SHOWN: (shown_first + 1.0 - shown_second) / 2,
        },
        labels=tuple(dict.fromkeys((*((FLIP,) if flips else ()), *first.labels, *second.labels))),
    )


def _problem(preference: Preference) -> str | None:
    """Why a preference cannot be used; None: it can."""
    points, fault = preference.first, preference.fault
    if points is None and fault is not None:
        return preference.reason
    if points is None or fault is not None:
        return f"preference {points} with fault {fault}"
    return None if 0.0 <= points <= 1.0 else f"preference {points}, which is not between 0 and 1"


def _combined(old: Rollout | None, new: Rollout) -> Rollout:
    """The rollout that represents a pair; failed where one side is missing for no fault of its model."""
    state = {
        NEW: {"answer": new.answer, "state": dict(new.state)},
        OLD: None if old is None else {"answer": old.answer, "actions": [turn.action for turn in old.turns]},
    }
    pair = structs.replace(
        new, status=RolloutStatus.COMPLETED, state=state, usage=Usage(), fault=None, reason="", retries=0
    )
    if old is None:
        reason = "the old card has no such rollout"
        return structs.replace(pair, status=RolloutStatus.FAILED, fault=Fault.INFRASTRUCTURE, reason=reason)
    for side, rollout in ((OLD, old), (NEW, new)):
        if rollout.fault is not None and not FAULT_POLICY[rollout.fault].counts_against_model:
            return structs.replace(
                pair, status=RolloutStatus.FAILED, fault=rollout.fault, reason=f"{side}: {rollout.reason}"
            )
    return pair


def _item_of(rollout: Rollout, header: CardHeader) -> Item:
    """An item with what an imported card has of it: the prompt, and the log's target and options where it states them.

    A target that is a list holds all accepted answers; a number is the place of an option, counted from 0.
    """
    prompt = "\n\n".join(message.text for message in rollout.prompt)
    options, target = rollout.state.get(OPTIONS), rollout.state.get("target")
    accepted = [str(text) for text in (target if isinstance(target, list) else [target]) if text is not None]
    if options and isinstance(target, int) and 0 <= target < min(len(options), len(ascii_uppercase)):
        accepted = [ascii_uppercase[target]]
    payload = {OPTIONS: options} if options else {}
    if accepted[1:]:
        payload["accepted"] = accepted[1:]
    return Item(rollout.item_id, header.protocol.split, prompt, accepted[0] if accepted else None, payload)


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
    compared_with = {"settings": dict(settings), "checkpoint": old.checkpoint_digest, "protocol": old.protocol.digest}
    protocol = replace(new.protocol, scorer=f"{scorer.name}-v{scorer.version}", judge_digest=digest_of(compared_with))
    judgement = {
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
        lock={**software_lock(), JUDGEMENT: judgement},
        created_at=time.time(),
        seed=new.seed,
        planned_rollouts=new.planned_rollouts,
    )
