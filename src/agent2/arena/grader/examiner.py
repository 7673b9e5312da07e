"""Puts one checkpoint to the test: builds the job, retries what may be retried, and words what went wrong.

An evaluation that cannot be produced ends in a fault with a reason; nothing here turns one into a number.
"""

import logging
import math
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent2.arena.agent_phase import Deadline
from agent2.arena.evidence import SplitScore
from agent2.arena.grader.admission import without_host_paths
from agent2.arena.grader.evaluator import Evaluate
from agent2.arena.grader.job import EvaluationJob, EvaluationOutcome, EvaluationStopped, ScoringMachine
from agent2.arena.grader.snapshot import SnapshotLimits
from agent2.arena.paths import TrialPaths
from agent2.errors import FAULT_POLICY, Agent2Error, Fault, SandboxError
from agent2.records import Item, Split

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GraderSettings:
    """What one grader works with."""

    paths: TrialPaths
    base: Path
    """Folder of the base model."""
    benchmark: str
    items: Mapping[Split, Sequence[Item]]
    """The hidden items, in order; never leave the harness and its evaluating children."""
    deadline: Deadline
    max_submissions: int | None = None
    """Accepted submissions, whatever came of them."""
    grading_s: float | None = None
    """Seconds that all evaluations of submissions may take together; None: no limit."""
    limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    seed: int = 0
    threads: int = 1
    machine: ScoringMachine = field(default_factory=ScoringMachine)
    max_missing: int = 0
    """Rollouts without a score that a score may have."""


@dataclass(frozen=True, slots=True)
class ExamQuestion:
    """Which checkpoint is to be scored on what."""

    checkpoint: Path
    split: Split
    card: Path
    """Folder that the card is written to."""
    name: str
    """What the card calls the checkpoint."""
    attempts: int | None = None
    """Rollouts for each item; None: as the benchmark says."""


class EvaluationFailed(Agent2Error):
    """An evaluation that the trial itself asked for ended in a fault."""

    def __init__(self, message: str, fault: Fault):
        super().__init__(message)
        self.fault = fault


class Examiner:
    """Evaluates checkpoints of one trial."""

    def __init__(self, settings: GraderSettings, evaluate: Evaluate, stop: threading.Event):
        self._settings = settings
        self._evaluate = evaluate
        self._stop = stop

    def examine(
        self,
        question: ExamQuestion,
        tell: Callable[[str], None] = lambda remark: None,
        time_left: Callable[[], float] | None = None,
    ) -> EvaluationOutcome:
        """Evaluate, once more after a fault that the fault table allows to retry.

        tell: takes one sentence for the agent. time_left: asked before each try how many seconds it may take; a try
        for which none are left is not made. Raises EvaluationStopped when the grader is stopped.
        """
        job = self._job(question)
        first = self._evaluate_once(_limited(job, time_left))
        if first.fault is None or not FAULT_POLICY[first.fault].retry:
            return first
        if time_left is not None and time_left() <= 0:
            return first
        tell(f"evaluated twice: the first evaluation ended in a fault of the {first.fault}")
        logger.warning("%s on %s: tried once more after: %s", job.name, job.split, first.reason)
        second = job.model_copy(update={"discard_card": not first.is_resumable})
        return self._evaluate_once(_limited(second, time_left))

    def _evaluate_once(self, job: EvaluationJob) -> EvaluationOutcome:
        _remove(job.scratch)
        job.scratch.mkdir(parents=True)
        try:
            return self._evaluate(job, self._stop)
        except EvaluationStopped:
            raise
        except Exception as error:  # the boundary that records the fault: nobody's answer was seen
            logger.exception("%s on %s could not be evaluated", job.name, job.split)
            why = str(error) if isinstance(error, SandboxError) else type(error).__name__
            reason = f"the evaluation could not be run ({why}); submit again later"
            return EvaluationOutcome(fault=Fault.INFRASTRUCTURE, reason=reason)
        finally:
            _remove(job.scratch)

    def score(self, outcome: EvaluationOutcome, card: Path) -> SplitScore:
        """The outcome as it is recorded. Raises EvaluationFailed if it has no value."""
        if outcome.value is None or outcome.low is None or outcome.high is None:
            raise EvaluationFailed("the evaluation returned no value", Fault.INFRASTRUCTURE)
        return SplitScore(
            value=outcome.value,
            low=outcome.low,
            high=outcome.high,
            n_items=outcome.n_items,
            n_missing=outcome.n_missing,
            card=os.path.relpath(card, self._settings.paths.root),
        )

    def fit_for_agent(self, reason: str, question: ExamQuestion) -> str:
        """A reason without paths of the host."""
        names = [
            (_scratch(question.card), "scratch"),
            (question.checkpoint, "the checkpoint"),
            (self._settings.paths.root, "the trial"),
        ]
        return without_host_paths(reason, names, self._settings.base)

    def _job(self, question: ExamQuestion) -> EvaluationJob:
        settings = self._settings
        return EvaluationJob(
            checkpoint=question.checkpoint,
            base=settings.base,
            name=question.name,
            benchmark=settings.benchmark,
            split=question.split,
            items=tuple(settings.items[question.split]),
            card=question.card,
            scratch=_scratch(question.card),
            seed=settings.seed,
            attempts=question.attempts,
            max_missing=settings.max_missing,
            threads=settings.threads,
            machine=settings.machine,
        )


def _limited(job: EvaluationJob, time_left: Callable[[], float] | None) -> EvaluationJob:
    """The job with what is left of the grading time."""
    left = math.inf if time_left is None else max(1.0, time_left())
    return job if left == math.inf else job.model_copy(update={"timeout_s": left})


def _scratch(card: Path) -> Path:
    return card.with_name(f".{card.name}.scratch")


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
