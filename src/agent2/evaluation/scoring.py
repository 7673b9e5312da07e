"""The scoring stage: verdicts on rollouts that were played, without the model that played them.

    play -> rollouts (a played card, verdicts pending) -> score -> scored card

A scorer declares how it works (`records.ScoringWork`). An inline one judges each rollout as it is played. One that
works in batches (a judge behind an endpoint) or in sandboxes (programs that a model wrote) judges a played card
afterwards: `score_card`, also behind `agent2 cards rescore`. Pairs of cards: `evaluation.rescoring`.

Promises: a rollout that failed is never shown to a scorer, its verdict follows from the fault table, and one whose
thought was cut off has no answer, which is 0 whatever the scorer; whatever a
scorer does wrong (it raises, hangs, answers too few or impossible scores) is a missing score with a fault on that
rollout, never a zero, and costs the others nothing; a fault that allows it is tried once more, visibly; verdicts are
on the new card as they come, so that a stage that was killed is resumed and judges only the rest.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from agent2.cards.card import CardHeader, CardSummary
from agent2.cards.folder import card_exists, load_card
from agent2.cards.reader import iter_rollouts, read_summary
from agent2.cards.writer import CardWriter, require_same_evaluation
from agent2.errors import FAULT_POLICY, Agent2Error, CardError, ConfigError, Fault
from agent2.files import scratch_folder
from agent2.llm.thoughts import CUT_OFF
from agent2.plugins import place_of
from agent2.records import (
    BatchScorer,
    Item,
    Rollout,
    RolloutStatus,
    Score,
    ScoredRollout,
    Scorer,
    ScoringMode,
    ScoringWork,
    StopReason,
    added_costs,
    place_of_item,
    work_of,
)
from agent2.sandbox.backends import Sandbox, sandbox_here
from agent2.scorers.sandboxed import SandboxBatchScorer, SandboxRunner, SandboxScorer

logger = logging.getLogger(__name__)

PlayedItem = tuple[Item, Rollout]
JudgeBatch = Callable[[Sequence[PlayedItem]], Sequence[Score]]
UnitT = TypeVar("UnitT")
VerdictT = TypeVar("VerdictT")
Progress = Callable[[int, int], None]
"""Called with (rollouts on the card, rollouts planned) after each one that is safe on the card."""

GIVE_UP_AFTER = 20
"""Rollouts in a row without a verdict through a judge or infrastructure fault: the judge is gone, the stage ends."""
POLL_S = 0.2
"""How often `stop` and deadlines are looked at while no verdict comes."""


class ScoringFailed(Agent2Error):
    """No verdicts can be had at present; those on the card stay, and the same call resumes."""

    fault = Fault.INFRASTRUCTURE


class ScoringStopped(Exception):
    """The stage was stopped; verdicts on the card stay."""


class Until(threading.Event):
    """An event that is also set when another one is, or at a deadline; for `is_set` only, `wait` knows neither."""

    def __init__(self, event: threading.Event, ends_at: float = math.inf) -> None:
        """ends_at: of time.monotonic."""
        super().__init__()
        self._event = event
        self._ends_at = ends_at

    def is_set(self) -> bool:
        """Whether it is time to stop."""
        return super().is_set() or self._event.is_set() or time.monotonic() >= self._ends_at


@dataclass(frozen=True, slots=True)
class ScoringResources:
    """What scorers that run programs outside this process may use, and the event that stops them."""

    sandbox: Sandbox = field(default_factory=sandbox_here)
    scratch: Path | None = None
    """Folder for programs while they run; None: a temporary one."""
    hidden: tuple[Path, ...] = ()
    """Host paths that no program may see."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set: the stage ends soon with ScoringStopped."""


def score_played(
    played_items: Iterable[PlayedItem], scorer: Scorer, resources: ScoringResources | None = None
) -> Iterator[ScoredRollout]:
    """A verdict on every rollout, in order for an inline scorer, else as they come.

    Raises what `require_scorer` raises for a scorer that is not inline, and ScoringStopped.
    """
    work = work_of(scorer)
    if work.mode is ScoringMode.INLINE:
        for item, rollout in played_items:
            yield ScoredRollout(rollout, score_without_scorer(rollout) or score_rollout(scorer, item, rollout))
        return
    resources = resources or ScoringResources()
    require_scorer(scorer, resources)
    with _judge_of(scorer, resources) as judge:
        for (_, rollout), score in in_batches(played_items, judge, work, resources.stop):
            yield ScoredRollout(rollout, score)


def score_card(
    source: Path,
    target: Path,
    header: CardHeader,
    items: Mapping[str, Item],
    scorer: Scorer,
    *,
    resources: ScoringResources | None = None,
    on_progress: Progress | None = None,
) -> CardSummary:
    """Judge the rollouts of a finished card anew and put them, with their verdicts, on another one.

    header: of the new card. items: by id, those of the card at least. Where `GIVE_UP_AFTER` rollouts in a row, or all
    of them, get no verdict through a judge or infrastructure fault, the stage ends without putting them on the card.
    A new card that is finished is read and not judged again. Raises CardError if `source` is not finished or `target`
    is of another evaluation, ScoringFailed when giving up, ScoringStopped, and what `require_scorer` raises.
    """
    require_scorer(scorer, resources)
    if load_card(source).state != "closed":
        raise CardError(f"{source}: is not finished, so some rollouts may be missing; resume its evaluation first")
    writer, done = open_card(target, header)
    if writer is None:
        return read_summary(target)
    with writer:
        rollouts = (record.rollout for record in iter_rollouts(source))
        pending = (
            (_item(source, items, rollout), rollout)
            for rollout in rollouts
            if (rollout.item_id, rollout.attempt) not in done
        )
        scored = score_played(pending, scorer, resources)
        for record in unless_unjudged(scored, is_resumed=bool(done)):
            writer.append(record)
            if on_progress is not None:
                on_progress(writer.n_rollouts, header.planned_rollouts or 0)
        return writer.close()


def _item(card: Path, items: Mapping[str, Item], rollout: Rollout) -> Item:
    if rollout.item_id not in items:
        raise CardError(f"{card}: item {rollout.item_id!r} is not among the items that it is scored on; evaluate again")
    return items[rollout.item_id]


def open_card(path: Path, header: CardHeader) -> tuple[CardWriter | None, set[tuple[str, int]]]:
    """A writer, and the rollouts (item id, attempt) on its card; no writer if the card is finished.

    Raises CardError for a card of another evaluation.
    """
    if not card_exists(path):
        return CardWriter(path, header), set()
    card = load_card(path)
    if card.state == "closed":
        require_same_evaluation(path, card.header, header)
        return None, set()
    return CardWriter.resume(path, header)


def require_scorer(scorer: object, resources: ScoringResources | None = None) -> None:
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
        (resources or ScoringResources()).sandbox.require()


def score_without_scorer(rollout: Rollout) -> Score | None:
    """The verdict on a rollout that failed, from the fault table, or has no answer; None: the scorer decides.

    There is no answer where the message that ended the episode is a thought without an end. Where a cap ended it, its
    state may deserve a score all the same.
    """
    if rollout.fault is None:
        if rollout.status is RolloutStatus.COMPLETED and rollout.turns and rollout.turns[-1].is_thought_cut_off:
            at_limit = rollout.turns[-1].stop_reason is StopReason.LENGTH
            why = "was cut off at the token limit" if at_limit else "never ended"
            return Score(0.0, f"the thought before the answer {why}, so there is no answer", labels=(CUT_OFF,))
        return None
    if FAULT_POLICY[rollout.fault].counts_against_model:
        return Score(0.0, f"counts as a failure of the model: {rollout.reason}")
    return Score(None, rollout.reason, rollout.fault)


def score_rollout(scorer: Scorer, item: Item, rollout: Rollout) -> Score:
    """The verdict on a finished rollout; judged once more, visibly, after a fault that allows a retry."""
    first = _score_once(scorer, item, rollout)
    if first.fault is None or not FAULT_POLICY[first.fault].retry:
        return first
    return _judged_twice(first, _score_once(scorer, item, rollout))


def _score_once(scorer: Scorer, item: Item, rollout: Rollout) -> Score:
    try:
        score = scorer.score(item, rollout)
    except Exception as error:  # recorded as a fault on the card
        return _score_of_error(scorer.name, item, error)
    return _valid(scorer.name, item, score)


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
    remaining = iter(units)
    in_flight: dict[Future[Sequence[VerdictT]], tuple[Sequence[UnitT], float]] = {}
    while True:
        n_free = work.concurrency - len(in_flight)
        for batch in _deal(list(islice(remaining, work.batch_size * n_free)), n_free):
            deadline = math.inf if work.timeout_s is None else time.monotonic() + work.timeout_s
            in_flight[_start(partial(judge, batch))] = (batch, deadline)
        if not in_flight:
            return
        judged, _ = wait(in_flight, timeout=POLL_S, return_when=FIRST_COMPLETED)
        # Threads that still judge are left behind: a judge cannot be interrupted, and their verdicts are not used.
        if stop.is_set():
            raise ScoringStopped
        for future in [future for future in in_flight if future in judged]:
            batch, _ = in_flight.pop(future)
            yield from zip(batch, future.result(), strict=True)
        now = time.monotonic()
        # Whatever is done by now is in time: this thread may have been the one that was held up.
        overdue = [future for future, (_, deadline) in in_flight.items() if now >= deadline and not future.done()]
        for future in overdue:
            batch, _ = in_flight.pop(future)
            late = Score(None, f"no verdict within {work.timeout_s:g} seconds", Fault.JUDGE)
            yield from ((unit, late) for unit in batch)


def _deal(units: Sequence[UnitT], n_batches: int) -> list[Sequence[UnitT]]:
    """So many batches, or one a unit, dealt out like cards: neighbours, which cost alike, go to different ones."""
    return [units[first::n_batches] for first in range(min(n_batches, len(units)))]


def _start(judge: Callable[[], Sequence[VerdictT]]) -> Future[Sequence[VerdictT]]:
    """Judge in a daemon thread; one of an executor that hangs would keep the process from ending."""
    future: Future[Sequence[VerdictT]] = Future()

    def run() -> None:
        try:
            future.set_result(judge())
        except BaseException as error:  # a future that is never set would be waited for without end
            future.set_exception(error)

    threading.Thread(target=run, name="scoring", daemon=True).start()
    return future


def unless_all_are_lost(
    records: Iterator[ScoredRollout],
    limit: int,
    is_lost: Callable[[ScoredRollout], bool],
    error_for: Callable[[Sequence[ScoredRollout]], Agent2Error],
    *,
    is_resumed: bool = False,
) -> Iterator[ScoredRollout]:
    """The records; lost ones are held back until one that was not lost comes.

    Raises `error_for(lost)` once `limit` were lost in a row, or where all were; is_resumed: an earlier call has yielded
    some that were not.
    """
    lost: list[ScoredRollout] = []
    has_verdicts = is_resumed
    # Held back, not dropped: whether lost rollouts belong on the card is known when the next one comes.
    for record in records:
        if is_lost(record):
            lost.append(record)
            if len(lost) >= limit:
                raise error_for(lost)
            continue
        has_verdicts = True
        yield from lost
        lost.clear()
        yield record
    if lost and not has_verdicts:
        raise error_for(lost)
    yield from lost


def unless_unjudged(records: Iterator[ScoredRollout], *, is_resumed: bool) -> Iterator[ScoredRollout]:
    """The records. Raises ScoringFailed after `GIVE_UP_AFTER` in a row without a verdict, or if none has one."""
    return unless_all_are_lost(records, GIVE_UP_AFTER, _is_unjudged, _scoring_failed, is_resumed=is_resumed)


def _is_unjudged(record: ScoredRollout) -> bool:
    return record.rollout.fault is None and record.score.fault in (Fault.JUDGE, Fault.INFRASTRUCTURE)


def _scoring_failed(lost: Sequence[ScoredRollout]) -> ScoringFailed:
    return ScoringFailed(
        f"{len(lost)} rollouts in a row got no verdict, the last one because: {lost[-1].score.reason}; they are not on "
        "the card, and what was judged before them is: fix the cause and run the same command again"
    )


@contextmanager
def _judge_of(scorer: Scorer, resources: ScoringResources) -> Iterator[JudgeBatch]:
    """How batches are judged while the block lasts; a judge that raises nothing."""
    if work_of(scorer).mode is ScoringMode.BATCH:
        judge = scorer.score_batch if isinstance(scorer, BatchScorer) else _one_by_one(scorer.score)
        yield partial(_verdicts, scorer.name, judge)
        return
    assert isinstance(scorer, SandboxScorer)  # `require_scorer` made sure
    with sandbox_runner(resources) as runner:
        if isinstance(scorer, SandboxBatchScorer):
            judge = partial(scorer.score_batch_on, runner)
        else:
            judge = _one_by_one(partial(scorer.score_on, runner))
        yield partial(_verdicts, scorer.name, judge)


@contextmanager
def sandbox_runner(resources: ScoringResources) -> Iterator[SandboxRunner]:
    """A runner of untrusted programs; programs that still run when the block ends are ended."""
    with scratch_folder("scoring-", resources.scratch) as scratch:
        # Set on leaving, so that programs of threads that were left behind end as well.
        ended = Until(resources.stop)
        try:
            yield SandboxRunner(resources.sandbox, scratch, resources.hidden, ended)
        finally:
            ended.set()


def _one_by_one(score: Callable[[Item, Rollout], Score]) -> JudgeBatch:
    return lambda batch: [score(item, rollout) for item, rollout in batch]


def _verdicts(name: str, judge: JudgeBatch, batch: Sequence[PlayedItem]) -> list[Score]:
    """One verdict for each rollout, whatever the judge does."""
    to_judge = [(item, rollout) for item, rollout in batch if score_without_scorer(rollout) is None]
    verdicts = iter(_judge_batch(name, judge, to_judge))
    scores = []
    for item, rollout in batch:
        score = score_without_scorer(rollout)
        if score is None:
            score = next(verdicts)
            if score.fault is not None and FAULT_POLICY[score.fault].retry:
                score = _judged_twice(score, _judge_batch(name, judge, [(item, rollout)])[0])
        scores.append(score)
    return scores


def _judge_batch(name: str, judge: JudgeBatch, batch: Sequence[PlayedItem]) -> list[Score]:
    """A judge's verdicts; where it breaks over several rollouts, each is judged alone."""
    if not batch:
        return []
    try:
        scores = list(judge(batch))
        if len(scores) != len(batch):
            raise ValueError(f"{len(scores)} verdicts on {len(batch)} rollouts")
    except BaseException as error:  # the boundary of its thread: nothing above would report a SystemExit
        if len(batch) > 1:
            return [score for played_item in batch for score in _judge_batch(name, judge, [played_item])]
        return [_score_of_error(name, batch[0][0], error)]
    return [_valid(name, item, score) for (item, _), score in zip(batch, scores, strict=True)]


def _score_of_error(name: str, item: Item, error: BaseException) -> Score:
    """A missing score with a fault for the card: one broken verdict must not cost the others."""
    logger.info("scorer %s failed on item %s", name, item.id, exc_info=error)
    fault = Fault.INFRASTRUCTURE if getattr(error, "fault", None) is Fault.INFRASTRUCTURE else Fault.JUDGE
    reason = f"scorer {name} raised {type(error).__name__}: {error}{place_of(error)}{place_of_item(item)}"
    return Score(None, reason, fault)


def _valid(name: str, item: Item, score: Score) -> Score:
    """The score, or a missing one with a judge fault where it may not be put on a card."""
    try:  # a plug-in may return anything: a number, None, a score whose value is a word
        value = score.value
        if (value is None) != (score.fault is not None):
            reason = f"scorer {name} gave score {value} with fault {score.fault}{place_of_item(item)}"
            return Score(None, reason, Fault.JUDGE)
        if value is not None and not 0.0 <= value <= 1.0:  # NaN included
            reason = f"scorer {name} gave {value}, scores lie between 0 and 1{place_of_item(item)}"
            return Score(None, reason, Fault.JUDGE)
        if not score.reason.isascii():
            # A lone surrogate, which a reason may quote from an answer, cannot be written to a card.
            score = structs.replace(score, reason=score.reason.encode("utf-8", "replace").decode())
        if score.fault is Fault.JUDGE and not score.reason.endswith(place_of_item(item)):
            score = structs.replace(score, reason=f"{score.reason}{place_of_item(item)}")
    except Exception as error:  # recorded as a fault on the card
        return _score_of_error(name, item, error)
    return score


def _judged_twice(first: Score, second: Score) -> Score:
    before = "with the same outcome" if second.reason == first.reason else f"the first time: {first.reason}"
    reason = f"{second.reason} (judged twice; {before})"
    return structs.replace(second, reason=reason, views={**second.views, **added_costs(first.views, second.views)})
