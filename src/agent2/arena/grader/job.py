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

from agent2.arena.evidence import AS_ON_CARD
from agent2.arena.spec import ScoringMachine
from agent2.cards.card import CardSummary, CountAs
from agent2.config import StrictModel
from agent2.errors import Fault
from agent2.records import Item, Split
from agent2.stats.estimates import Estimate

MAX_COUNT = 2**31
"""No card has so many items or rollouts."""
MAX_REASON_CHARS = 4_000


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
    threads: int = Field(default=1, ge=1)


class EvaluationOutcome(StrictModel):
    """The outcome of a job: a score or a fault, never both; neither where it was only played.

    It comes from a process that read hostile weights, so every field is held to what it can be; pydantic raises
    ValidationError for anything else.
    """

    value: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    """Mean over items; None when there is a fault, or no verdict yet."""
    low: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    high: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    n_items: int = Field(default=0, ge=0, le=MAX_COUNT)
    n_missing: int = Field(default=0, ge=0, le=MAX_COUNT)
    weights_digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Of what was played: of the merged model, where an adapter was submitted."""
    is_played: bool = False
    """The card is finished, its verdicts are pending."""
    fault: Fault | None = None
    reason: str = ""
    """Why there is no score, one sentence."""
    is_resumable: bool = False
    """The card holds good rollouts, so that another try may continue it."""

    @field_validator("reason")
    @classmethod
    def _short(cls, reason: str) -> str:
        return reason[:MAX_REASON_CHARS]

    @model_validator(mode="after")
    def _score_or_fault(self) -> Self:
        has_score = None not in (self.value, self.low, self.high, self.weights_digest)
        if (has_score, self.is_played, self.fault is not None).count(True) != 1:
            raise ValueError(f"an outcome is a score or a fault; got value {self.value} and fault {self.fault}")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"the interval from {self.low} to {self.high} is empty")
        return self

    @property
    def score(self) -> Estimate | None:
        """The accuracy over items; None with a fault, and while verdicts are pending."""
        if self.value is None:
            return None
        return Estimate(self.value, self.low, self.high, self.n_items, self.n_missing, AS_ON_CARD)


class EvaluationStopped(Exception):
    """The grader was stopped while an evaluation ran; there is no verdict and it must run again."""


def outcome_of(summary: CardSummary, weights_digest: str, max_missing: int) -> EvaluationOutcome:
    """What a finished card says: its score, or a fault when too many rollouts have none."""
    if summary.value is None or summary.n_missing > max_missing:
        faults = Counter(drop.fault for drop in summary.drops if drop.counted is CountAs.MISSING)
        fault = faults.most_common(1)[0][0] if faults else Fault.INFRASTRUCTURE
        return EvaluationOutcome(
            n_items=summary.n_items,
            n_missing=summary.n_missing,
            fault=fault,
            reason=(
                f"{summary.n_missing} of {summary.n_rollouts} answers could not be scored (fault of the {fault}), "
                f"at most {max_missing} may be missing; submit again"
            ),
        )
    return EvaluationOutcome(
        value=summary.value,
        low=summary.low,
        high=summary.high,
        n_items=summary.n_items,
        n_missing=summary.n_missing,
        weights_digest=weights_digest,
    )


def answer_job(run: Callable[[EvaluationJob], EvaluationOutcome]) -> None:
    """Read a job, run it, print its outcome. A bug in `run` ends the process without an outcome."""
    answer_handle = os.dup(1)
    os.set_inheritable(answer_handle, False)
    os.dup2(2, 1)  # what libraries print to standard output must not be taken for the outcome
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    outcome = run(EvaluationJob.model_validate_json(sys.stdin.buffer.read()))
    with os.fdopen(answer_handle, "wb") as file:
        file.write(outcome.model_dump_json().encode())
