"""What a decision is made from: numbers of two checkpoints with what stands behind them.

Promises: plain data; a number that is not known is None, never 0; nothing here knows thresholds. Evidence comes
from cards (`contract.measures`) or from a report file (`contract.report_file`) and is the only thing that
`contract.decision` looks at, so a decision can be made again from a kept report, without a model.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent2.stats.estimates import PairedDifference

NO_METRICS: Mapping[str, "MetricEvidence"] = {}


@dataclass(frozen=True, slots=True)
class MetricEvidence:
    """One metric on both sides; "old" is the baseline, "new" the checkpoint."""

    name: str
    old: float | None
    new: float | None
    """Rates 0 to 1; None: not known, NaN never."""
    n_items: int | None = None
    """Items behind the numbers (with a value on both sides, where sides are paired); None: no counts known."""
    n_missing_old: int = 0
    """Items asked for without a value on that side."""
    n_missing_new: int = 0
    clean_old: float | None = None
    """Share of rollouts in which nobody but the model failed, 0 to 1; None: not known."""
    clean_new: float | None = None
    paired: PairedDifference | None = None
    noise: float | None = None
    """Half-width of the noise band: how far a checkpoint is from itself."""
    source: str = "report"
    """Where the numbers come from: a report, or cards."""
    problem: str = ""
    """Why there is no usable number, where that is known."""

    @property
    def is_complete(self) -> bool:
        """Both sides are known, finite numbers."""
        return all(value is not None and math.isfinite(value) for value in (self.old, self.new))

    def values(self) -> tuple[float, float]:
        """Old and new. Raises ValueError if a side is missing; ask `is_complete` first."""
        if self.old is None or self.new is None or not self.is_complete:
            raise ValueError(f"{self.name}: a side is missing")
        return self.old, self.new


@dataclass(frozen=True, slots=True)
class Change:
    """A number before and after, such as the training reward."""

    old: float
    new: float

    @property
    def rose(self) -> bool:
        """Strictly more than before."""
        return self.new > self.old

    @property
    def fell(self) -> bool:
        """Strictly less than before."""
        return self.new < self.old


@dataclass(frozen=True, slots=True)
class TrainingSignals:
    """Averages of training logs at the baseline's time and now; None: not known."""

    reward: Change | None = None
    kl: Change | None = None
    entropy: Change | None = None


@dataclass(frozen=True, slots=True)
class SpotCheck:
    """A human's look at scored rollouts."""

    by: str
    """Who looked."""
    n: int
    """Rollouts judged."""
    n_agree: int
    """Rollouts on which the human agreed with the scorer."""
    note: str = ""

    @property
    def agreement(self) -> float:
        """Share of agreement, 0 to 1; 0 for nothing judged."""
        return self.n_agree / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a decision may look at."""

    checkpoint: str
    baseline: str | None
    """None: no control group."""
    metrics: Mapping[str, MetricEvidence]
    """By name, on the split `split`."""
    suite: str | None = None
    split: str | None = None
    """The split of `metrics`; None: not said, which is never private."""
    role: str | None = None
    """`dev`, `nightly` or `candidate`; a candidate without private evidence is insufficient."""
    private_metrics: Mapping[str, MetricEvidence] = field(default_factory=lambda: NO_METRICS)
    """The same names on test_private, where it was evaluated besides."""
    history: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Metric -> values of earlier evaluations, oldest first, without this one."""
    training: TrainingSignals = TrainingSignals()
    badcases: Mapping[str, int] | None = None
    """Badcase class -> rollouts of the checkpoint; None: not looked for."""
    declared_labels: frozenset[str] | None = None
    """Every badcase class that the scorers can give; None: not known (a report, a foreign scorer)."""
    from_cards: bool = False
    """The numbers were computed from rollouts here, not read from a report, which anybody can write."""
    confirmed_actions: Mapping[str, int] = field(default_factory=dict)
    """Dangerous action -> rollouts in which a human confirmed it."""
    spot_check: SpotCheck | None = None
    incomparable: tuple[str, ...] = ()
    """Protocol differences between the two sides, one clause each: "gsm8k: sampling.temperature 0.0 against 0.6"."""
    broken: tuple[str, ...] = ()
    """Why a side is not a working model, one sentence each: most of its rollouts ended in faults of its own."""
    notes: tuple[str, ...] = ()
    """What the reader of a decision should know: ignored fields, skipped benchmarks."""

    def private_evidence(self) -> Mapping[str, MetricEvidence]:
        """The numbers on test_private, wherever they are kept; empty if there are none."""
        return self.metrics if self.split == "test_private" else self.private_metrics
