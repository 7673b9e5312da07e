"""The grader of one trial: takes submissions in, one worker thread scores them in order.

Promises: whatever was accepted is on disk and gets exactly one verdict, also when the harness is killed and
started again; a score that could not be produced is a fault with a reason, never 0.0; an infrastructure
fault is tried once more and the agent is informed. Submissions may arrive at the same time; each one that
arrived before the deadline counts as in time, however long its copy takes. Every accepted submission is charged,
whatever comes of it, and all evaluations of submissions together have a time (`GraderSettings.grading_s`), so that
no submission can be made to cost more than its agent has.

An attempt that was cut short by the harness's death before it was accepted was never acknowledged, leaves
no record and no number. Does NOT choose the final checkpoint and does not speak HTTP (see `server`).
"""

import errno
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from agent2.arena.evidence import SubmissionRecord, SubmissionState
from agent2.arena.grader.evaluator import (
    CheckpointEvaluator,
    Evaluate,
    EvaluationFailed,
    EvaluationRequest,
    GraderSettings,
    log_of,
    score_of,
)
from agent2.arena.grader.job import LATER, EvaluationOutcome, EvaluationStopped
from agent2.arena.grader.store import Arrival, ChargedVerdict, GraderStore
from agent2.arena.grader.submission import Admit, admit, drop_ballast, remove_folder, take_snapshot
from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError, Fault, SubmissionError
from agent2.evaluation.engine import score_answers
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import Split
from agent2.stats.estimates import Estimate

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 10_000
"""Attempts recorded in one trial; a flood beyond it is refused without a record."""
MAX_NOTE = 2_000
MAX_PATH = 4_096
MAX_KEY = 200
"""Characters of a note, of a path and of an idempotency key."""
MAX_ESCAPE = 10
"""Characters by which one that is not valid Unicode is written."""
MAX_TRIES = 3
"""To evaluate, or to record, one submission before it is closed with a fault."""
PAUSE_S = 2.0
"""Between these tries, and while the grader has no room (its disk is full)."""
SHORT_OF_ROOM = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)

DoneT = TypeVar("DoneT")


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to one attempt to submit."""

    number: int
    is_accepted: bool
    is_closed: bool
    """Refused because the deadline or the budget is over: trying again cannot help."""
    reason: str


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The answer to one request for judgements."""

    scores: Sequence[float]
    """Of the replies, in their order; 0 to 1."""
    n_charged: int
    """Replies that had not been judged before."""
    n_left: int | None
    """Judgements that the budget still has; None: no limit."""


class Grader:
    """Accepts, scores and remembers submissions."""

    def __init__(
        self,
        settings: GraderSettings,
        evaluate: Evaluate,
        on_submit: Callable[[int], str | None] | None = None,
        check: Admit = admit,
    ):
        """Open the record of the trial, an earlier one included.

        evaluate: `evaluator.ChildEvaluator` outside of tests. on_submit: called with the number of each
        submission before its snapshot is taken; returns the code revision in the workspace, if any.
        check: judges each copy; `submission.ContainedAdmission` outside of tests.
        """
        self.settings = settings
        self.deadline = settings.deadline
        self.baseline: Estimate | None = None
        """The base model on test_public; part of answers once the trial has set it."""
        self._base = inspect_checkpoint(settings.base)
        self._store = GraderStore(settings.paths.grader_db)
        self._on_submit = on_submit
        self._check = check
        # one submission at a time: its number and its place in the budget are read long before it is recorded
        self._intake = threading.Lock()
        self._judging = threading.Lock()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._evaluator = CheckpointEvaluator(settings, evaluate, self._stop)
        self._is_open = True
        self._n_arriving = 0
        self.n_verdicts = 0
        """Grows with each verdict since the start, so that a waiting request need not ask the record."""
        self._worker: threading.Thread | None = None

    def start(self) -> None:
        """Begin to score; what an earlier run accepted and did not finish comes first."""
        if self._worker is not None:
            raise RuntimeError("the grader was started already")
        self._worker = threading.Thread(target=self._run_worker, name="grader", daemon=True)
        self._worker.start()

    def submit(self, model_path: str, note: str = "", key: str = "") -> Receipt:
        """Take a checkpoint in, or record why not. Returns when the copy is on disk and checked.

        key: idempotency key; an attempt sent again with the same key is the same attempt, charged once, also after
        the deadline. Raises SubmissionError, without a record, after `MAX_ATTEMPTS` attempts and for a key that was
        used for another path.
        """
        received_at = self.deadline.now()
        with self._changed:  # together: `drain` and `stop` wait for every arrival that they found open
            was_open = self._is_open and not self.deadline.is_over
            self._n_arriving += 1
        try:
            with self._intake:
                path, key = _storable(model_path, MAX_PATH), _storable(key, MAX_KEY)
                return self._earlier_receipt(key, path) or self._record_attempt(
                    path, _storable(note, MAX_NOTE), key, received_at, was_open
                )
        finally:
            with self._changed:
                self._n_arriving -= 1
                self._changed.notify_all()

    def judge(self, answers: Sequence[tuple[str, str]]) -> Verdicts:
        """Verdicts on replies to visible items, by the judge that scores hidden ones; returns when they are on disk.

        answers: id of an item, and a reply. A reply that was judged before costs nothing, also after a restart, so
        that a request whose answer was lost can be sent again. Raises ConfigError for an id that is not one of a
        visible item; SubmissionError, and nothing is charged, when the time or the budget is over or a verdict cannot
        be had.
        """
        items, budget = self.settings.judged, self.settings.max_judgements
        if self.settings.judge is None:
            raise SubmissionError("this task has no judge to ask: its scorer is installed here, see ASSIGNMENT.md")
        if self.deadline.is_over or not self._is_open:
            raise SubmissionError("the deadline is over; replies are no longer judged")
        pairs = [(item_id, _storable(reply, len(reply) * MAX_ESCAPE)) for item_id, reply in answers]
        if (unknown_id := next((item_id for item_id, _ in pairs if item_id not in items), None)) is not None:
            raise ConfigError(
                f"{unknown_id[:100]!r} is not the id of a row of train.jsonl or dev.jsonl; send one of those"
            )
        with self._judging:  # one request at a time, so that two cannot spend the same rest of the budget
            values = self._store.judgements(pairs)
            fresh = [pair for pair in dict.fromkeys(pairs) if pair not in values]
            n_used = self._store.n_judgements()
            if budget is not None and n_used + len(fresh) > budget:
                raise SubmissionError(
                    f"{len(fresh)} new replies were sent and {budget - n_used} of {budget} judgements are left; "
                    "nothing was charged"
                )
            if fresh:
                benchmark = load_benchmark(self.settings.benchmark)
                scores = score_answers(
                    benchmark, [(items[item_id], [reply]) for item_id, reply in fresh], scorer=self.settings.judge
                )
                if (missing := next((score for score in scores if score.value is None), None)) is not None:
                    raise SubmissionError(f"the judge gave no verdict ({missing.reason}); nothing was charged")
                charged = [
                    ChargedVerdict(item_id, reply, float(score.value or 0.0), score.reason)
                    for (item_id, reply), score in zip(fresh, scores, strict=True)
                ]
                self._store.add_judgements(charged, self.deadline.now())
                values |= {(verdict.item, verdict.reply): verdict.value for verdict in charged}
        n_left = None if budget is None else budget - n_used - len(fresh)
        return Verdicts([values[pair] for pair in pairs], len(fresh), n_left)

    def wait(self, number: int, timeout_s: float) -> SubmissionRecord | None:
        """The submission once it has a verdict, or as it is after `timeout_s`. None: there is no such number."""
        ends_at = time.monotonic() + timeout_s
        with self._changed:
            while True:
                record = self._store.get(number)
                seconds_left = ends_at - time.monotonic()
                if record is None or record.state is not SubmissionState.ACCEPTED or seconds_left <= 0:
                    return record
                self._changed.wait(seconds_left)

    def get(self, number: int) -> SubmissionRecord | None:
        """One submission; None if there is none of that number."""
        return self._store.get(number)

    def all(self) -> list[SubmissionRecord]:
        """Every attempt, in the order of arrival."""
        return self._store.all()

    def page(self, before: int, limit: int) -> list[SubmissionRecord]:
        """The last `limit` attempts with a number below `before`, in the order of arrival."""
        return self._store.page(before, limit)

    def count(self) -> int:
        """How many attempts are recorded."""
        return self._store.count()

    def best(self) -> SubmissionRecord | None:
        """The highest public score, of equal ones the earliest; None if nothing is scored."""
        return self._store.best()

    def remarks(self, number: int) -> list[str]:
        """What the agent should know about a submission, one sentence each."""
        return self._store.remarks(number)

    def drain(self, timeout_s: float) -> bool:
        """Accept no more and wait until everything accepted has its verdict; False if that took too long."""
        ends_at = time.monotonic() + timeout_s
        with self._changed:
            self._is_open = False
            while self._n_arriving or self._store.next_accepted() is not None:
                seconds_left = ends_at - time.monotonic()
                if seconds_left <= 0:
                    return False
                self._changed.wait(seconds_left)
        return True

    @property
    def is_stopped(self) -> bool:
        """Nothing is scored any more."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End the worker and its child; what has no verdict yet keeps its place for the next start."""
        self._stop.set()
        with self._changed:
            self._is_open = False
            self._changed.notify_all()
        if self._worker is not None:
            self._worker.join()
        with self._changed:
            while self._n_arriving:  # what arrived in time is recorded before the file is closed
                self._changed.wait()
            self._store.close()

    def evaluate_checkpoint(
        self, path: Path, split: Split, card: Path, name: str, *, attempts: int | None = None
    ) -> Estimate:
        """Score a checkpoint that the trial itself asks about (base or final) in the caller's thread.

        name: what the card calls it. attempts: rollouts for each item, as the benchmark says by default.
        Raises EvaluationFailed when it ends in a fault, twice where the fault table allows a retry, and
        EvaluationStopped when `stop` is called meanwhile.
        """
        outcome = self._evaluator.evaluate(EvaluationRequest(path, split, card, name, attempts))
        if outcome.fault is not None:
            # nobody submitted it, so the outcome's advice says nothing here
            longer = "; a new trial has longer ones with --set evaluation_timeout_s=SECONDS" * outcome.is_timeout
            resume = f"resume with {self.settings.paths.resume_command}"
            printed = f"; what it printed is in {log_of(card)}" if log_of(card).is_file() else ""
            raise EvaluationFailed(f"{name} on {split}: {outcome.reason}{longer}{printed}; {resume}", outcome.fault)
        return score_of(outcome)

    def _earlier_receipt(self, key: str, model_path: str) -> Receipt | None:
        """The receipt of the attempt that was sent with this key; None: there was no such attempt."""
        earlier = self._store.sent_with(key) if key else None
        if earlier is None:
            return None
        number, is_closed = earlier
        record = self._store.get(number)
        if record is None:
            return None
        if record.model_path != model_path:
            raise SubmissionError(
                f"key {key!r} was used for submission {record.number} of {record.model_path}; send a new key with each "
                "submission"
            )
        return Receipt(record.number, record.state is not SubmissionState.REJECTED, is_closed, record.reason)

    def _record_attempt(self, model_path: str, note: str, key: str, received_at: float, was_open: bool) -> Receipt:
        number = self._store.next_number()
        if number > MAX_ATTEMPTS:
            raise SubmissionError(f"{MAX_ATTEMPTS} attempts are recorded already; no more are taken")
        refusal = self._why_closed(was_open)
        if refusal is not None:
            arrival = Arrival(number, received_at, model_path, note, None, fault=Fault.SUBMITTER, reason=refusal)
        else:
            arrival = self._copy_and_check(number, received_at, model_path, note)
        self._store.add(replace(arrival, key=key, is_closed=refusal is not None))
        return Receipt(number, arrival.fault is None, refusal is not None, arrival.reason)

    def _why_closed(self, was_open: bool) -> str | None:
        if not was_open:
            return "the deadline is over; submissions are no longer taken"
        limit = self.settings.max_submissions
        if limit is not None and self._store.n_charged() >= limit:
            return f"the budget of {limit} submissions is used up; the best of them counts"
        if self._time_left() <= 0:
            return f"{self._time_is_up()}; the best submission so far counts"
        return None

    def _time_left(self) -> float:
        """Seconds that evaluations of submissions may still take."""
        limit = self.settings.grading_s
        return math.inf if limit is None else limit - self._store.grading_time()

    def _time_is_up(self) -> str:
        return f"the {self.settings.grading_s:g} seconds for the grading of all submissions are used up"

    def _copy_and_check(self, number: int, received_at: float, model_path: str, note: str) -> Arrival:
        """What to record of a submission: accepted with its digests, or rejected with the reason."""
        paths = self.settings.paths
        remove_folder(paths.submission(number))  # of an attempt that was never acknowledged
        revision, remarks = self._revision(number)
        arrival = Arrival(number, received_at, model_path, note, revision)
        fault = Fault.SUBMITTER
        try:
            snapshot = take_snapshot(paths.workspace, model_path, paths.snapshot(number), self.settings.limits)
            admission = self._check(snapshot, self._base, model_path)
            ballast = drop_ballast(snapshot, admission.files)
        except SubmissionError as error:
            reason = str(error)
        except OSError as error:
            logger.exception("submission %d: the snapshot could not be stored", number)
            fault = Fault.INFRASTRUCTURE
            reason = (
                f"the grader could not store the snapshot ({os.strerror(error.errno or 0)}); the checkpoint is "
                "not to blame; submit again later"
            )
        except Exception as error:  # boundary: files of an agent's making must not cost the attempt its record
            logger.exception("submission %d: the snapshot could not be checked", number)
            fault = Fault.INFRASTRUCTURE
            reason = f"the folder could not be checked ({type(error).__name__}); save it again with save_pretrained"
        else:
            return replace(
                arrival,
                remarks=(*remarks, *admission.remarks, *ballast),
                weights_digest=admission.weights_digest,
                content_digest=admission.content_digest,
                is_base_copy=admission.is_base_copy,
            )
        remove_folder(paths.submission(number))
        return replace(arrival, remarks=tuple(remarks), fault=fault, reason=reason)

    def _revision(self, number: int) -> tuple[str | None, list[str]]:
        if self._on_submit is None:
            return None, []
        try:
            return self._on_submit(number), []
        except Exception:  # the recorder reads what an agent wrote; its failure must not cost a submission
            logger.exception("submission %d: the code revision could not be recorded", number)
            return None, ["the code revision in the workspace could not be recorded"]

    def _run_worker(self) -> None:
        while True:
            with self._changed:
                number = self._store.next_accepted()
                if self._stop.is_set():
                    return
                if number is None:
                    self._changed.wait()
                    continue
            try:
                self._score_submission(number)
            except EvaluationStopped:
                return
            with self._changed:  # wakes those that wait for this verdict, and `drain`
                self.n_verdicts += 1
                self._changed.notify_all()

    def _score_submission(self, number: int) -> None:
        """Evaluate once, then record the outcome.

        Raises EvaluationStopped when the grader is stopped before there is a record.
        """
        paths = self.settings.paths
        card = paths.submission_card(number)
        request = EvaluationRequest(paths.snapshot(number), Split.TEST_PUBLIC, card, f"submission-{number}")
        began = time.monotonic()

        def time_left() -> float:
            return self._time_left() - (time.monotonic() - began)

        def evaluate() -> EvaluationOutcome:
            if time_left() <= 0:
                return EvaluationOutcome(fault=Fault.SUBMITTER, reason=f"not evaluated: {self._time_is_up()}")
            return self._evaluator.evaluate(request, lambda remark: self._store.add_remark(number, remark), time_left)

        outcome = self._with_retries(number, evaluate)
        if outcome is None:
            outcome = _grader_fault("the evaluation broke down again and again on the grader's side")
        # before the verdict: a kill between the two charges the time of this evaluation twice, but never not at all
        seconds = time.monotonic() - began
        self._with_retries(number, lambda: self._store.add_grading_time(number, seconds))
        is_recorded = self._with_retries(number, lambda: self._record(number, request, outcome))
        if is_recorded is None:  # the outcome cannot be recorded: record that instead
            unusable = _grader_fault("what the evaluation returned cannot be recorded")
            is_recorded = self._with_retries(number, lambda: self._record(number, request, unusable))
        if is_recorded is None:
            raise EvaluationStopped

    def _with_retries(self, number: int, step: Callable[[], DoneT]) -> DoneT | None:
        """What a step returns; None if it fails `MAX_TRIES` times.

        A grader without disk, memory or descriptors waits until it has some: that is not a verdict. Raises
        EvaluationStopped when the grader is stopped meanwhile.
        """
        n_failed = 0
        while n_failed < MAX_TRIES:
            if self._stop.is_set():
                raise EvaluationStopped
            try:
                return step()
            except EvaluationStopped:
                raise
            except Exception as error:  # boundary: one submission must not stop the grading of the others
                logger.exception("submission %d: no verdict could be recorded", number)
                n_failed += not _is_short_of_room(error)
                self._stop.wait(PAUSE_S)
        return None

    def _record(self, number: int, request: EvaluationRequest, outcome: EvaluationOutcome) -> bool:
        """Give the verdict; True, which `_with_retries` needs to tell it from a failure."""
        now = self.deadline.now()
        if outcome.fault is not None:
            reason = self._evaluator.reason_for_agent(outcome.reason_for_submitter, request)
            self._store.set_failed(number, outcome.fault, reason, now)
            return True
        digest = outcome.weights_digest or ""
        is_copy = digest == self._base.weights_digest
        card = os.path.relpath(request.card, self.settings.paths.root)
        self._store.set_scored(number, score_of(outcome), now, card=card, weights_digest=digest, is_base_copy=is_copy)
        return True


def _grader_fault(reason: str) -> EvaluationOutcome:
    return EvaluationOutcome(fault=Fault.INFRASTRUCTURE, reason=reason, advice=LATER)


def _is_short_of_room(error: Exception) -> bool:
    """Whether the grader itself lacks disk, memory or descriptors, which may pass."""
    if isinstance(error, sqlite3.OperationalError | MemoryError):
        return True
    return isinstance(error, OSError) and error.errno in SHORT_OF_ROOM


def _storable(text: str, limit: int) -> str:
    """Any text that an agent may have sent, as it is stored: valid Unicode of limited length."""
    return text.encode("utf-8", "backslashreplace").decode()[:limit]
