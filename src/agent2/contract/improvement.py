"""Did the primary metric get better, and is that shown or only seen?

Shown means: on the same items, the whole 95% interval of the paired difference lies on the better side. A difference
of two percentages without pairs is seen, not shown; `release` asks for the first (L14, C40).
"""

from enum import StrEnum

from agent2.contract.evidence import MetricEvidence
from agent2.contract.findings import SLACK
from agent2.contract.metrics import Direction, MetricSpec
from agent2.contract.rules_metric import worsening


class Improvement(StrEnum):
    """What may be said of a metric."""

    SHOWN = "yes, shown on paired items"
    SEEN = "yes by the numbers alone, not shown: no paired items"
    NOT_SHOWN = "not shown: the interval of the difference holds 0"
    NONE = "no"
    UNKNOWN = "unknown"


def improvement(metric: MetricSpec, found: MetricEvidence | None) -> Improvement:
    """How far the metric is known to be better than the control group's."""
    if found is None or not found.is_complete:
        return Improvement.UNKNOWN
    pair = found.paired
    if pair is None:
        return Improvement.SEEN if worsening(metric, found) < -SLACK else Improvement.NONE
    low, high = (pair.low, pair.high) if metric.direction is Direction.HIGHER else (-pair.high, -pair.low)
    if low > SLACK:
        return Improvement.SHOWN
    return Improvement.NONE if high <= SLACK else Improvement.NOT_SHOWN


def told_improvement(metric: MetricSpec, found: MetricEvidence | None) -> str:
    """As a sentence begins: `not shown: the interval of the difference holds 0, by the primary metric`."""
    return f"{improvement(metric, found).value}, by the primary metric"


def lacking_improvement(primary: MetricSpec, found: MetricEvidence | None) -> list[str]:
    """Why a release is not yet earned by improvement, one sentence; empty if it is shown."""
    state = improvement(primary, found)
    if state is Improvement.SHOWN:
        return []
    return [f"{primary.name} is not shown to be better on private items ({state.value})"]
