"""Metrics of a suite: what a number is called, where it comes from, which way is better, what it decides.

Promises: rates are 0 to 1 in code and percent only in text; a change is told in percentage points for rates and
in percent of the old value for everything else, and what was told can be read back (`contract.changes`).
Does NOT compute numbers (`contract.measures` does) and has no weighted total: a suite has one primary metric.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from pydantic import Field, model_validator

from agent2.config import StrictModel
from agent2.errors import ConfigError, unknown_name


class Role(StrEnum):
    """What a metric is for."""

    PRIMARY = "primary"
    """The one number that has to get better; a suite has exactly one."""
    HARD_GATE = "hard_gate"
    """Must stay within a limit, whatever the primary metric gains."""
    REGRESSION_GATE = "regression_gate"
    """Must not get worse by more than its margin."""
    DIAGNOSTIC = "diagnostic"
    """Read by people and by gates that name it."""


class Unit(StrEnum):
    """What kind of number a metric is; decides how a change is told."""

    RATE = "rate"
    """0 to 1; shown in percent, its change in percentage points."""
    LENGTH = "length"
    """Tokens, characters, steps; the change in percent of the old value, as for all that follow."""
    COUNT = "count"
    NUMBER = "number"
    MONEY = "money"


class Direction(StrEnum):
    """Which way is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "none"
    """Neither by itself; only limits apply."""


class MetricSpec(StrictModel):
    """One number of a suite, for the baseline and for the checkpoint."""

    name: str = Field(pattern=r"^[A-Za-z][\w@.^-]*$")
    """The field in reports: `gsm8k_exact_match`."""
    benchmark: str | None = None
    """Whose rollouts it is computed from; None: those of all benchmarks that have the measure, taken together."""
    measure: str = "score"
    """Which number of the rollouts; the names are in `contract.measures`."""
    split: str | None = None
    """The benchmark's split; None: as the evaluation's role says."""
    role: Role = Role.DIAGNOSTIC
    unit: Unit = Unit.RATE
    direction: Direction = Direction.HIGHER
    scope: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9_]*$")
    """The tasks that a regression of this metric alone concerns (`chart_tasks`): blocks only those."""
    is_safety: bool = False
    """Any worsening pauses training and asks for a human."""
    is_required: bool = True
    """False: a report may lack it altogether; the gates that read it are then not evaluated, and without a safety
    metric `release` is out of reach. Half of it (one side missing) is bad evidence all the same."""
    alias: list[str] = Field(default_factory=list)
    """Other names that reports use for it."""

    @model_validator(mode="after")
    def _is_consistent(self) -> "MetricSpec":
        if self.role is Role.PRIMARY and self.direction is Direction.NONE:
            raise ValueError(f"primary metric {self.name!r} needs a direction; say which way is better")
        if self.role is Role.PRIMARY and (self.scope is not None or not self.is_required):
            raise ValueError(f"primary metric {self.name!r} is required and has no scope; remove both keys")
        if self.is_safety and self.direction is Direction.NONE:
            raise ValueError(f"safety metric {self.name!r} needs a direction; a violation rate is 'lower'")
        return self

    def worsening(self, old: float, new: float) -> float:
        """How much worse `new` is, in the metric's own units: above 0 is worse, below 0 better, 0 without direction."""
        if self.direction is Direction.NONE:
            return 0.0
        return old - new if self.direction is Direction.HIGHER else new - old


def primary_of(metrics: Sequence[MetricSpec]) -> MetricSpec:
    """The one primary metric. Raises ConfigError if there is none or more than one."""
    primary = [metric for metric in metrics if metric.role is Role.PRIMARY]
    if len(primary) != 1:
        names = ", ".join(metric.name for metric in primary) or "none"
        raise ConfigError(f"metrics: exactly one primary metric is needed, got {names}; set the role of one of them")
    return primary[0]


def metrics_by_name(metrics: Iterable[MetricSpec]) -> dict[str, MetricSpec]:
    """Name and every alias -> metric. Raises ConfigError for a name that appears twice."""
    table: dict[str, MetricSpec] = {}
    for metric in metrics:
        for name in (metric.name, *metric.alias):
            if name in table:
                raise ConfigError(f"metrics: name {name!r} appears twice; a name or alias belongs to one metric")
            table[name] = metric
    return table


def metric_named(metrics: Iterable[MetricSpec], name: str, where: str = "") -> MetricSpec:
    """The metric of that name or alias. Raises ConfigError naming the nearest one."""
    table = metrics_by_name(metrics)
    if name not in table:
        raise unknown_name("metric", name, table, where)
    return table[name]
