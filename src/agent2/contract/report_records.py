"""The sections of a report file beside its metrics, as strict records; an unknown key in one is an error.

Metrics themselves are top-level fields (`gsm8k_exact_match: 72.4% -> 77.9% (+5.5)`), so the top level allows any
key here and `contract.report_file` judges the rest.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agent2.config import StrictModel
from agent2.contract.metrics import Unit
from agent2.stats.comparisons import mcnemar_p
from agent2.stats.noninferiority import tango_interval
from agent2.stats.paired import PairedEvidence

MOST_ITEMS = 1_000_000_000
"""More items than any suite has: a larger count is a slip of the keyboard."""
Count = Annotated[int, Field(ge=0, le=MOST_ITEMS)]
AGREEMENT = 1e-6
"""A stated interval may differ by this much from the one that its own counts give."""


class PairedRecord(StrictModel):
    """The paired difference new - old; from `n`, `n_won` and `n_lost` everything else follows."""

    n: int = Field(ge=1, le=MOST_ITEMS)
    n_won: Count | None = None
    n_lost: Count | None = None
    delta: float | None = Field(default=None, allow_inf_nan=False)
    low: float | None = Field(default=None, allow_inf_nan=False)
    high: float | None = Field(default=None, allow_inf_nan=False)
    p_value: float | None = Field(default=None, ge=0.0, le=1.0)
    sd: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    method: str = "as reported"

    @model_validator(mode="after")
    def _is_whole(self) -> "PairedRecord":
        stated = (self.delta, self.low, self.high, self.p_value)
        if (self.n_won is None) != (self.n_lost is None):
            raise ValueError("n_won and n_lost belong together; give both")
        if self.n_won is None or self.n_lost is None:
            if None in stated:
                raise ValueError("give n_won and n_lost, or all of delta, low, high and p_value")
            if not float(self.low or 0.0) <= float(self.delta or 0.0) <= float(self.high or 0.0):
                raise ValueError(f"delta={self.delta} is outside its interval [{self.low}, {self.high}]")
        elif self.n_won + self.n_lost > self.n:
            raise ValueError(f"{self.n_won} won and {self.n_lost} lost are more than n={self.n} items")
        else:
            self._agrees(self.n_won, self.n_lost)
        return self

    def _agrees(self, n_won: int, n_lost: int) -> None:
        made = _from_counts(self.n, n_won, n_lost)
        for name in ("delta", "low", "high", "p_value"):
            said, real = getattr(self, name), getattr(made, name)
            if said is not None and abs(said - real) > AGREEMENT:
                raise ValueError(f"{name}={said} is not what the counts give ({real:.6f}); remove it or fix it")

    def evidence(self) -> PairedEvidence:
        """As the rules read it."""
        if self.n_won is not None and self.n_lost is not None:
            return _from_counts(self.n, self.n_won, self.n_lost)
        return PairedEvidence(
            delta=float(self.delta or 0.0),
            low=float(self.low or 0.0),
            high=float(self.high or 0.0),
            n=self.n,
            p_value=1.0 if self.p_value is None else self.p_value,
            method=self.method,
            sd=self.sd,
        )


class MetricRecord(StrictModel):
    """What stands behind one metric of a report."""

    old: float | None = None
    new: float | None = None
    """The exact values behind the rounded ones of the field; rates 0 to 1."""
    n_items: Count | None = None
    n_missing_old: Count = 0
    n_missing_new: Count = 0
    clean_old: float | None = Field(default=None, ge=0.0, le=1.0)
    clean_new: float | None = Field(default=None, ge=0.0, le=1.0)
    paired: PairedRecord | None = None
    noise: float | None = Field(default=None, ge=0.0)
    source: str = "report"
    problem: str = ""

    def contradicts(self, old: float | None, new: float | None, unit: Unit) -> str | None:
        """Which side's exact value is not the rounded one of the report's field; None if both agree."""
        for side, exact, reported in (("old", self.old, old), ("new", self.new, new)):
            if exact is None or reported is None:
                continue
            allowed = 0.00051 if unit is Unit.RATE else max(0.51, 0.006 * abs(exact)) if exact >= 10 else 0.06
            if abs(exact - reported) > allowed:
                return side
        return None


class TrainingRecord(StrictModel):
    """Averages of the training log, each as `old -> new`."""

    reward: str | None = None
    kl: str | None = None
    entropy: str | None = None


class SpotCheckRecord(StrictModel):
    """A human's look at scored rollouts."""

    by: str = Field(min_length=1)
    n: Count
    n_agree: Count
    note: str = ""

    @model_validator(mode="after")
    def _counts_fit(self) -> "SpotCheckRecord":
        if self.n_agree > self.n:
            raise ValueError(f"n_agree={self.n_agree} is more than n={self.n}")
        return self


class ReportRecord(BaseModel):
    """The top level of a report: the keys that are not metrics; every other key is taken for one."""

    model_config = ConfigDict(extra="allow", frozen=True)

    checkpoint: str
    baseline: str | None = None
    suite: str | None = None
    split: str | None = None
    role: str | None = None
    badcase_top: list[Any] | dict[str, Any] | None = None
    badcase_clusters: list[Any] | dict[str, Any] | None = None
    badcases: dict[str, Count] | None = None
    """All classes with their counts; the other two keys may be cut after the largest."""
    declared_labels: list[str] | None = None
    """Every class that the scorers can give, so that an absent class is known to have been looked for."""
    evidence: dict[str, MetricRecord] = Field(default_factory=dict)
    private: dict[str, Any] = Field(default_factory=dict)
    """Metric -> change on test_private."""
    private_evidence: dict[str, MetricRecord] = Field(default_factory=dict)
    history: dict[str, list[Any]] = Field(default_factory=dict)
    training: TrainingRecord = TrainingRecord()
    confirmed_actions: dict[str, int] = Field(default_factory=dict)
    spot_check: SpotCheckRecord | None = None
    incomparable: list[str] = Field(default_factory=list)
    broken: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    evaluation: Any = None
    """How the numbers came about, for readers; no rule looks at it."""
    primary_metric: Any = None
    regressions: Any = None


def _from_counts(n: int, n_won: int, n_lost: int) -> PairedEvidence:
    low, high = tango_interval(n_won, n_lost, n)
    return PairedEvidence(
        delta=(n_won - n_lost) / n,
        low=low,
        high=high,
        n=n,
        p_value=mcnemar_p(n_won, n_lost),
        method="Tango score interval, exact McNemar",
        n_won=n_won,
        n_lost=n_lost,
    )
