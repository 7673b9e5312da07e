"""The scoring stage: verdicts on rollouts that were played, without the model that played them.

    play -> rollouts (a played card, verdicts pending) -> score -> scored card

A scorer declares how it works (`records.ScoringWork`). An inline one judges each rollout as it is played. One that
works in batches (a judge behind an endpoint) or in sandboxes (programs that a model wrote) judges a played card
afterwards: `score_card`, also behind `agent2 cards rescore`. Pairs of cards: `evaluation.rescoring`.

Promises: a rollout that failed is never shown to a scorer, its verdict follows from the fault table; whatever a
scorer does wrong (it raises, hangs, answers too few or impossible scores) is a missing score with a fault on that
rollout, never a zero, and costs the others nothing; a fault that allows it is tried once more, visibly; verdicts are
on the new card as they come, so that a stage that was killed is resumed and judges only the rest.
"""

import logging
import math
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

from agent2.cards.card import CardHeader, CardSummary
from agent2.cards.folder import card_exists, load_card
from agent2.cards.reader import iter_rollouts, read_summary
from agent2.cards.writer import CardWriter, require_same_evaluation
from agent2.errors import FAULT_POLICY, Agent2Error, CardError, ConfigError, Fault
from agent2.records import (
    COST_PREFIX,
    BatchScorer,
    Item,
    Rollout,
    Score,
    ScoredRollout,
    Scorer,
    ScoringMode,
    ScoringWork,
    work_of,
)
from agent2.sandbox.backends import Sandbox, sandbox_here
from agent2.scorers.sandboxed import Bench, SandboxBatchScorer, SandboxScorer

logger = logging.getLogger(__name__)

Played = tuple[Item, Rollout]
JudgeBatch = Callable[[Sequence[Played]], Sequence[Score]]
UnitT = TypeVar("UnitT")
VerdictT = TypeVar("VerdictT")
Progress = Callable[[int, int], None]
"""Called with (rollouts on the card, rollouts planned) after each one that is safe on the card."""

GIVE_UP_AFTER = 20
"""Verdicts in a row that judge or infrastructure kept from being: a judge that is gone ends the stage."""
POLL_S = 0.2


class ScoringFailed(Agent2Error):
    """Verdicts cannot be had at present; what was judged is kept, and the same call resumes."""

    fault = Fault.INFRASTRUCTURE


class ScoringStopped(Exception):
    """The stage was asked to stop; what was judged is kept."""


class Until(threading.Event):
    """An event that is set by itself, with another one, or when its time has come; to be asked, not waited for."""

    def __init__(self, other: threading.Event, ends_at: float = math.inf) -> None:
        """ends_at: of time.monotonic."""
        super().__init__()
        self._other = other
        self._ends_at = ends_at

    def is_set(self) -> bool:
        """Whether it is time to stop."""
        return super().is_set() or self._other.is_set() or time.monotonic() >= self._ends_at


@dataclass(frozen=True, slots=True)
class ScoringPlace:
    """Where scorers may work that do so outside this process."""

    sandbox: Sandbox = field(default_factory=sandbox_here)
    scratch: Path | None = None
    """Folder for programs while they run; None: a temporary one."""
    hidden: tuple[Path, ...] = ()
    """Host paths that no program may see."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set: the stage ends soon with ScoringStopped."""


def score_played(
    played: Iterable[Played], scorer: Scorer, place: ScoringPlace | None = None
) -> Iterator[ScoredRollout]:
    """A verdict on every rollout, in order for an inline scorer, else as they come.

    Raises what `require_scorer` raises for a scorer that is not inline, and ScoringStopped.
    """
    work = work_of(scorer)
    if work.mode is ScoringMode.INLINE:
        for item, rollout in played:
            yield ScoredRollout(rollout, score_of_failed(rollout) or score_rollout(scorer, item, rollout))
        return
    place = place or ScoringPlace()
    require_scorer(scorer, place)
    with _judge_of(scorer, place) as judge:
        for (_, rollout), score in in_batches(played, judge, work, place.stop):
            yield ScoredRollout(rollout, score)


def score_card(
    source: Path,
    target: Path,
    header: CardHeader,
    items: Mapping[str, Item],
    scorer: Scorer,
    *,
    place: ScoringPlace | None = None,
    on_progress: Progress | None = None,
) -> CardSummary:
    """Judge the rollouts of a finished card anew and put them, with their verdicts, on another one.

    header: of the new card. items: by id, those of the card at least. `GIVE_UP_AFTER` verdicts in a row that judge or
    infrastructure kept from being, or all of them, end the stage without being put on the card.
    A new card that is finished is read and not judged again. Raises CardError if `source` is not finished or `target`
    is of another evaluation, ScoringFailed when giving up, ScoringStopped, and what `require_scorer` raises.
    """
    require_scorer(scorer, place)
    if load_card(source).state != "closed":
        raise CardError(f"{source}: is not finished, so some rollouts may be missing; resume its evaluation first")
    writer, done = open_card(target, header)
    if writer is None:
        return read_summary(target)
    with writer:
        rollouts = (record.rollout for record in iter_rollouts(source))
        waiting = ((_item(source, items, one), one) for one in rollouts if (one.item_id, one.attempt) not in done)
        scored = score_played(waiting, scorer, place)
        for record in unless_unjudged(scored, is_resumed=bool(done)):
            writer.append(record)
            if on_progress is not None:
                on_progress(writer.n_rollouts, header.planned_rollouts or 0)
        return writer.close()


def _item(card: Path, items: Mapping[str, Item], rollout: Rollout) -> Item:
    if rollout.item_id not in items:
        raise CardError(f"{card}: item {rollout.item_id!r} is none of those that it is scored on; evaluate again")
    return items[rollout.item_id]


def open_card(path: Path, header: CardHeader) -> tuple[CardWriter | None, set[tuple[str, int]]]:
    """A writer and what its card holds already; no writer if the card is finished.

    Raises CardError for a card of another evaluation.
    """
    if not card_exists(path):
        return CardWriter(path, header), set()
    card = load_card(path)
    if card.state == "closed":
        require_same_evaluation(path, card.header, header)
        return None, set()
    return CardWriter.resume(path, header)


def require_scorer(scorer: object, place: ScoringPlace | None = None) -> None:
    """Refuse a scorer that cannot work, before anything long is done.

    Raises ConfigError for one that is not what its mode says, or compares pairs; SandboxError if it needs a sandbox
    that does not work on this host.
    """
    name, mode = getattr(scorer, "name", type(scorer).__name__), work_of(scorer).mode
    if callable(getattr(scorer, "prefer", None)):
        raise ConfigError(f"scorer {name} compares two rollouts and cannot score one card; use: agent2 cards judge")
    method = "score_on" if mode is ScoringMode.SANDBOX else "score"
    is_batch = mode is ScoringMode.BATCH and isinstance(scorer, BatchScorer)
    if not is_batch and not callable(getattr(scorer, method, None)):
        raise ConfigError(f"scorer {name} works in the mode {mode.value!r} and has no method {method}; add it")
    if mode is ScoringMode.SANDBOX:
        (place or ScoringPlace()).sandbox.require()


def score_of_failed(rollout: Rollout) -> Score | None:
    """The verdict on a rollout that could not be played to an end, from the fault table; None: it was."""
    if rollout.fault is None:
        return None
    if FAULT_POLICY[rollout.fault].counts_against_model:
        return Score(0.0, f"counts as a failure of the model: {rollout.reason}")
    return Score(None, rollout.reason, rollout.fault)


def score_rollout(scorer: Scorer, item: Item, rollout: Rollout) -> Score:
    """The verdict on a finished rollout; judged once more, visibly, after a fault that allows a retry."""
    try:
        first = _checked(scorer.name, scorer.score(item, rollout))
    except Exception as error:
        first = _raised(scorer.name, item, error)
    if first.fault is None or not FAULT_POLICY[first.fault].retry:
        return first
    try:
        second = _checked(scorer.name, scorer.score(item, rollout))
    except Exception as error:
        second = _raised(scorer.name, item, error)
    return _judged_twice(first, second)


def in_batches(
    units: Iterable[UnitT],
    judge: Callable[[Sequence[UnitT]], Sequence[VerdictT]],
    work: ScoringWork,
    stop: threading.Event,
) -> Iterator[tuple[UnitT, VerdictT | Score]]:
    """Every unit with its verdict as it comes; batches are judged side by side, each in a thread of its own.

    A batch that is overdue is missing with a judge fault; its thread is left behind. Raises ScoringStopped soon after
    `stop` is set, and what `judge` raises.
    """
    waiting, numbers = iter(units), count()
    answers: queue.SimpleQueue[tuple[int, Sequence[VerdictT] | BaseException]] = queue.SimpleQueue()
    in_flight: dict[int, tuple[Sequence[UnitT], float]] = {}

    def work_on(number: int, batch: Sequence[UnitT]) -> None:
        try:
            answers.put((number, judge(batch)))
        except BaseException as error:  # a thread that only died would be waited for without end
            answers.put((number, error))

    while True:
        n_free = work.concurrency - len(in_flight)
        taken = list(islice(waiting, work.batch_size * n_free))
        n_batches = min(n_free, len(taken))  # dealt out like cards: neighbours, which cost alike, go to different ones
        for place in range(n_batches):
            batch, number = taken[place::n_batches], next(numbers)
            in_flight[number] = (batch, math.inf if work.timeout_s is None else time.monotonic() + work.timeout_s)
            threading.Thread(target=work_on, args=(number, batch), name="scoring", daemon=True).start()
        if not in_flight:
            return
        try:
            number, scores = answers.get(timeout=POLL_S)
        except queue.Empty:
            number, scores = -1, ()
        if stop.is_set():
            raise ScoringStopped
        if isinstance(scores, BaseException):
            raise scores
        if number in in_flight:  # else it came after its time
            answered, _ = in_flight.pop(number)
            yield from zip(answered, scores, strict=True)
        for number in [key for key, (_, ends_at) in in_flight.items() if time.monotonic() >= ends_at]:
            overdue, _ = in_flight.pop(number)
            late = Score(None, f"no verdict within {work.timeout_s:g} seconds", Fault.JUDGE)
            yield from ((unit, late) for unit in overdue)


def unless_all_are_lost(
    records: Iterator[ScoredRollout],
    limit: int,
    is_lost: Callable[[ScoredRollout], bool],
    gave_up: Callable[[Sequence[ScoredRollout]], Agent2Error],
    *,
    is_resumed: bool = False,
) -> Iterator[ScoredRollout]:
    """The records; lost ones are held back until one that was not lost comes.

    Raises what `gave_up` makes of them once `limit` were lost in a row, or all that there were; is_resumed: others came
    through before.
    """
    lost: list[ScoredRollout] = []
    has_come_through = is_resumed
    for record in records:
        if is_lost(record):
            lost.append(record)
            if len(lost) >= limit:
                raise gave_up(lost)
            continue
        has_come_through = True
        yield from lost
        lost.clear()
        yield record
    if lost and not has_come_through:
        raise gave_up(lost)
    yield from lost


def unless_unjudged(records: Iterator[ScoredRollout], *, is_resumed: bool) -> Iterator[ScoredRollout]:
    """The records. Raises ScoringFailed after `GIVE_UP_AFTER` in a row without a verdict, or if none has one."""
    return unless_all_are_lost(records, GIVE_UP_AFTER, _is_unjudged, _gave_up, is_resumed=is_resumed)


def _is_unjudged(record: ScoredRollout) -> bool:
    return record.rollout.fault is None and record.score.fault in (Fault.JUDGE, Fault.INFRASTRUCTURE)


def _gave_up(lost: Sequence[ScoredRollout]) -> ScoringFailed:
    return ScoringFailed(
        f"{len(lost)} rollouts in a row got no verdict, the last one because: {lost[-1].score.reason}; they are not on "
        "the card, and what was judged before them is: fix the cause and run the same command again"
    )


@contextmanager
def _judge_of(scorer: Scorer, place: ScoringPlace) -> Iterator[JudgeBatch]:
    """How batches are judged while the block lasts; a judge that raises nothing."""
    if work_of(scorer).mode is ScoringMode.BATCH:
        each = scorer.score_batch if isinstance(scorer, BatchScorer) else _one_by_one(scorer.score)
        yield lambda batch: _verdicts(scorer.name, each, batch)
        return
    assert isinstance(scorer, SandboxScorer)  # `require_scorer` looked
    name = scorer.name
    with bench_at(place) as bench:
        if isinstance(scorer, SandboxBatchScorer):
            at_once: JudgeBatch = partial(scorer.score_batch_on, bench)
        else:
            at_once = _one_by_one(partial(scorer.score_on, bench))
        yield lambda batch: _verdicts(name, at_once, batch)


@contextmanager
def bench_at(place: ScoringPlace) -> Iterator[Bench]:
    """A bench for programs; those that still run when the block ends are ended."""
    with tempfile.TemporaryDirectory(prefix="scoring-", dir=place.scratch, ignore_cleanup_errors=True) as scratch:
        ended = Until(place.stop)
        try:
            yield Bench(place.sandbox, Path(scratch), place.hidden, ended)
        finally:
            ended.set()


def _one_by_one(score: Callable[[Item, Rollout], Score]) -> JudgeBatch:
    return lambda batch: [score(item, rollout) for item, rollout in batch]


def _verdicts(name: str, judge: JudgeBatch, batch: Sequence[Played]) -> list[Score]:
    """One verdict for each rollout, whatever the judge does."""
    found = {place: score_of_failed(rollout) for place, (_, rollout) in enumerate(batch)}
    asked = [place for place, score in found.items() if score is None]
    found |= zip(asked, _asked(name, judge, [batch[place] for place in asked]), strict=True)
    scores = []
    for unit, score in zip(batch, found.values(), strict=True):
        assert score is not None
        if unit[1].fault is None and score.fault is not None and FAULT_POLICY[score.fault].retry:
            score = _judged_twice(score, _asked(name, judge, [unit])[0])
        scores.append(score)
    return scores


def _asked(name: str, judge: JudgeBatch, batch: Sequence[Played]) -> list[Score]:
    """What a judge says once; where it breaks over several, each is asked about alone."""
    if not batch:
        return []
    try:
        scores = list(judge(batch))
        if len(scores) != len(batch):
            raise ValueError(f"{len(scores)} verdicts on {len(batch)} rollouts")
    except BaseException as error:  # the boundary of its thread: SystemExit included, nobody else would hear of it
        if len(batch) > 1:
            return [score for unit in batch for score in _asked(name, judge, [unit])]
        return [_raised(name, batch[0][0], error)]
    return [_checked(name, score) for score in scores]


def _raised(name: str, item: Item, error: BaseException) -> Score:
    """The boundary that records a fault on the card: one broken verdict must not cost the others."""
    logger.info("scorer %s failed on item %s", name, item.id, exc_info=error)
    fault = Fault.INFRASTRUCTURE if getattr(error, "fault", None) is Fault.INFRASTRUCTURE else Fault.JUDGE
    return Score(None, f"scorer {name} raised {type(error).__name__}: {error}", fault)


def _checked(name: str, score: Score) -> Score:
    """The score as it may be put on a card."""
    value = score.value
    if (value is None) != (score.fault is not None):
        return Score(None, f"scorer {name} gave score {value} with fault {score.fault}", Fault.JUDGE)
    if value is not None and not 0.0 <= value <= 1.0:  # NaN included
        return Score(None, f"scorer {name} gave {value}, scores lie between 0 and 1", Fault.JUDGE)
    return score


def _judged_twice(first: Score, second: Score) -> Score:
    reason = f"{second.reason} (judged twice; the first time: {first.reason})"
    return replace(second, reason=reason, views={**second.views, **added_costs(first.views, second.views)})


def added_costs(*views: Mapping[str, float | None]) -> dict[str, float | None]:
    """What several verdicts cost together; unknown where one of them is."""
    costs: dict[str, float | None] = {}
    for name in sorted({name for one in views for name in one if name.startswith(COST_PREFIX)}):
        values = [one.get(name) for one in views]
        known = [value for value in values if value is not None]
        costs[name] = sum(known) if len(known) == len(values) else None
    return costs
