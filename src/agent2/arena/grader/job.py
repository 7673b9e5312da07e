"""What the grader and its evaluating child say to each other: one job in, one outcome out, both JSON.

The hidden items travel in the job, so the child never needs the installation secret.
"""

from collections import Counter
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from agent2.cards.card import CardSummary, Counting
from agent2.config import StrictModel
from agent2.errors import Fault
from agent2.records import Item, Split


class ScoringMachine(StrictModel):
    """What checkpoints are played on when they are scored. The precision is part of the protocol."""

    gpu: int | None = Field(default=None, ge=0)
    """Number of the GPU, as in /dev/nvidia<number>; None: the CPU."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    max_batch: int = Field(default=64, ge=1)
    """Most prompts that run at once."""

    @property
    def device(self) -> str:
        """As torch names it; the process sees no GPU but this one."""
        return "cpu" if self.gpu is None else "cuda"

    @property
    def gpus(self) -> tuple[int, ...]:
        """What the sandbox has to show."""
        return () if self.gpu is None else (self.gpu,)


class EvaluationJob(StrictModel):
    """One checkpoint to be played on one list of items."""

    checkpoint: Path
    """A folder that nobody else writes: a snapshot, or a base model."""
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
    discard_card: bool = False
    """Begin anew instead of continuing what is there."""
    machine: ScoringMachine = ScoringMachine()
    threads: int = Field(default=1, ge=1)


class EvaluationOutcome(StrictModel):
    """What came of a job: a score or a fault, never both."""

    value: float | None = Field(default=None, ge=0, le=1)
    """Mean over items; None exactly when there is a fault."""
    low: float | None = None
    high: float | None = None
    n_items: int = 0
    n_missing: int = 0
    weights_digest: str | None = None
    """Of what was played: of the merged model, where an adapter was submitted."""
    fault: Fault | None = None
    reason: str = ""
    """Why there is no score, one sentence."""
    is_resumable: bool = False
    """The card holds good rollouts, so that another try may continue it."""

    @model_validator(mode="after")
    def _score_or_fault(self) -> Self:
        has_score = None not in (self.value, self.low, self.high, self.weights_digest)
        if has_score == (self.fault is not None):
            raise ValueError(f"an outcome is a score or a fault; got value {self.value} and fault {self.fault}")
        return self


class EvaluationStopped(Exception):
    """The grader was stopped while an evaluation ran; there is no verdict and it must run again."""


def outcome_of(summary: CardSummary, weights_digest: str, max_missing: int) -> EvaluationOutcome:
    """What a finished card says: its score, or a fault when too many rollouts have none."""
    if summary.value is None or summary.n_missing > max_missing:
        faults = Counter(drop.fault for drop in summary.drops if drop.counted is Counting.MISSING)
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
