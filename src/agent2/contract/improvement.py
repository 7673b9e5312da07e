"""Did the primary metric get better, and is that shown or only seen?

Shown means: on the same items, `stats.comparisons.judge` calls the paired difference better (interval, p-value and,
where it is known, noise band). A difference of two percentages without pairs is seen, not shown; `release` asks for
the first.
"""

from enum import StrEnum

from agent2.contract.evidence import MetricEvidence
from agent2.contract.findings import SLACK
from agent2.contract.metrics import Direction, MetricSpec
from agent2.contract.rules_metric import worsening
from agent2.stats.comparisons import Claim, judge


class Improvement(StrEnum):
    """What may be said of a metric."""

    SHOWN = "yes, shown on paired items"
    SEEN = "yes by the numbers alone, not shown: no paired items"
    NOT_SHOWN = "not shown: unclear on paired items"
    NONE = "no"
    UNKNOWN = "unknown"


def improvement(metric: MetricSpec, found: MetricEvidence | None) -> Improvement:
    """How far the metric is known to be better than the control group's."""
    if found is None or not found.is_complete:
        return Improvement.UNKNOWN
    pair = found.paired
    if pair is None:
        return Improvement.SEEN if worsening(metric, found) < -SLACK else Improvement.NONE
    claim = judge(pair, found.noise, is_higher_better=metric.direction is Direction.HIGHER).claim
    if claim is Claim.UNCLEAR:
        return Improvement.NONE if pair.low == pair.high == 0.0 else Improvement.NOT_SHOWN
    return Improvement.SHOWN if claim is Claim.BETTER else Improvement.NONE


def told_improvement(metric: MetricSpec, found: MetricEvidence | None) -> str:
    """As a sentence begins: `not shown: unclear on paired items (p = 0.07), by the primary metric`."""
    state = improvement(metric, found)
    why = ""
    if state is Improvement.NOT_SHOWN and found is not None and found.paired is not None:
        why = f" ({judge(found.paired, found.noise).why})"
    return f"{state.value}{why}, by the primary metric"


def lacking_improvement(primary: MetricSpec, found: MetricEvidence | None) -> list[str]:
    """Why a release is not yet earned by improvement, one sentence; empty if it is shown."""
    state = improvement(primary, found)
    if state is Improvement.SHOWN:
        return []
    return [f"{primary.name} is not shown to be better on private items ({state.value})"]
