"""What the grader and its evaluating child exchange: one job in, one outcome out, both JSON.

The hidden items travel in the job, so the child never needs the installation secret. The job is all of standard input;
standard output is kept for the outcome alone, and whatever libraries print goes to standard error.
"""

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from agent2.arena.spec import ScoringMachine
from agent2.cards.card import CardSummary, CountAs
from agent2.config import StrictModel
from agent2.errors import Fault
from agent2.records import Item, Split
from agent2.stats.estimates import Estimate

MAX_COUNT = 2**31
"""No card has so many items or rollouts."""
LATER = "submit again later"
"""Advice after what is no fault of the checkpoint."""
MAX_REASON_CHARS = 4_000
MAX_METHOD_CHARS = 200
"""Of the words on how an interval was made."""


class EvaluationJob(StrictModel):
    """One checkpoint to be played on one list of items."""

    checkpoint: Path
    """A folder that no other process writes: a snapshot, or a base model."""
    base: Path
    """The base model: its config, tokenizer and chat template are used for scoring, whatever was submitted."""
    name: str
    """What the card calls the checkpoint, "submission-3"."""
    benchmark: str
    split: Split
    items: tuple[Item, ...]
    card: Path
    """Folder of the card; an unfinished one of the same evaluation is continued."""
    scratch: Path
    """Empty folder for temporary files; removed by the parent."""
    seed: int
    attempts: int | None = Field(default=None, ge=1)
    """Rollouts for each item; None: as the benchmark says."""
    max_missing: int = Field(default=0, ge=0)
    """More rollouts without a score than this make the evaluation a failed one."""
    timeout_s: float | None = Field(default=None, gt=0)
    """Seconds that this evaluation may take where that is less than the evaluator allows; None: as it allows."""
    plays_only: bool = False
    """Leave the verdicts pending: the grader scores the card itself, outside the sandbox that plays."""
    discard_card: bool = False
    """Restart instead of continuing what is there."""
    machine: ScoringMachine = ScoringMachine()
    engine_folder: Path | None = None
    """Where the child finds the environment of the machine's engine; None: it plays itself."""
    threads: int = Field(default=1, ge=1)


class EvaluationOutcome(StrictModel):
    """The outcome of a job: a score or a fault, never both; neither where it was only played.

    It comes from a process that read hostile weights, so every field is held to what it can be; pydantic raises
    ValidationError for anything else.
    """

    score: Estimate | None = None
    """Mean over items, as on the card; None when there is a fault, or no verdict yet."""
    weights_digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Of what was played: of the merged model, where an adapter was submitted."""
    is_played: bool = False
    """The card is finished, its verdicts are pending."""
    fault: Fault | None = None
    reason: str = ""
    """Why there is no score, one sentence."""
    advice: str = ""
    """What whoever submitted the checkpoint may do; says nothing to a trial that asks about its own checkpoints."""
    is_timeout: bool = False
    """The evaluation took longer than one may."""
    is_resumable: bool = False
    """The card holds good rollouts, so that another try may continue it."""

    @field_validator("reason", "advice")
    @classmethod
    def _short(cls, text: str) -> str:
        return text[:MAX_REASON_CHARS]

    @property
    def reason_for_submitter(self) -> str:
        """The reason, and what to do about it."""
        return "; ".join(filter(None, (self.reason, self.advice)))

    @field_validator("score")
    @classmethod
    def _rate_with_interval(cls, score: Estimate | None) -> Estimate | None:
        if score is None:
            return None
        if not all(end is not None and 0.0 <= end <= 1.0 for end in (score.value, score.low, score.high)):
            raise ValueError("a score and both ends of its interval are numbers from 0 to 1")
        if not (0 <= score.n <= MAX_COUNT and 0 <= score.n_missing <= MAX_COUNT):
            raise ValueError(f"n={score.n} and n_missing={score.n_missing} have to be 0 to {MAX_COUNT}")
        if len(score.method) > MAX_METHOD_CHARS:
            raise ValueError(f"the method of the interval has more than {MAX_METHOD_CHARS} characters")
        return score

    @model_validator(mode="after")
    def _score_or_fault(self) -> Self:
        has_score = self.score is not None and self.weights_digest is not None
        is_half = self.score is not None and not has_score
        if is_half or (has_score, self.is_played, self.fault is not None).count(True) != 1:
            raise ValueError(f"an outcome is a score or a fault; got score {self.score} and fault {self.fault}")
        return self


class EvaluationStopped(Exception):
    """The grader was stopped while an evaluation ran; there is no verdict and it must run again."""


def outcome_of(summary: CardSummary, weights_digest: str, max_missing: int) -> EvaluationOutcome:
    """What a finished card says: its score, or a fault when too many rollouts have none."""
    if summary.score is None or summary.n_missing > max_missing:
        faults = Counter(drop.fault for drop in summary.drops if drop.counted is CountAs.MISSING)
        fault = faults.most_common(1)[0][0] if faults else Fault.INFRASTRUCTURE
        return EvaluationOutcome(
            fault=fault,
            reason=(
                f"{summary.n_missing} of {summary.n_rollouts} answers could not be scored (fault of the {fault}), "
                f"at most {max_missing} may be missing"
            ),
            advice="submit again",
        )
    return EvaluationOutcome(score=summary.score, weights_digest=weights_digest)


def answer_job(run: Callable[[EvaluationJob], EvaluationOutcome]) -> None:
    """Read a job, run it, print its outcome. A bug in `run` ends the process without an outcome."""
    answer_handle = os.dup(1)
    os.set_inheritable(answer_handle, False)
    os.dup2(2, 1)  # what libraries print to standard output must not be taken for the outcome
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    outcome = run(EvaluationJob.model_validate_json(sys.stdin.buffer.read()))
    with os.fdopen(answer_handle, "wb") as file:
        file.write(outcome.model_dump_json().encode())
