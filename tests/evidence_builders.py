"""Small suites and evidence for tests of gates and decisions; name what matters, the rest is sensible."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent2.contract.gates import GateSpec, LengthGate, RegressionGate, ReleaseEvidenceGate, SafetyGate
from agent2.contract.metrics import Direction, Evidence, MetricEvidence, MetricSpec, Role, SpotCheck, Unit
from agent2.stats.comparisons import verdict_difference

EXAMPLES = Path(__file__).parent.parent / "examples" / "reports"

METRICS = [
    MetricSpec(name="math", benchmark="mini_math", role=Role.PRIMARY),
    MetricSpec(name="instructions", benchmark="mini_ifeval", role=Role.REGRESSION_GATE),
    MetricSpec(name="charts", benchmark="mini_charts", role=Role.REGRESSION_GATE, scope="chart_tasks"),
    MetricSpec(name="length", measure="completion_tokens", unit=Unit.LENGTH, direction=Direction.LOWER),
    MetricSpec(name="violations", direction=Direction.LOWER, role=Role.HARD_GATE, is_safety=True),
]
GATES: list[GateSpec] = [
    RegressionGate(name="math_holds", metrics=["math"]),
    RegressionGate(name="instructions_hold", metrics=["instructions"]),
    RegressionGate(name="charts_hold", metrics=["charts"]),
    LengthGate(metric="length"),
    SafetyGate(),
    ReleaseEvidenceGate(),
]
GOOD = {
    "math": (0.70, 0.76),
    "instructions": (0.63, 0.63),
    "charts": (0.60, 0.61),
    "length": (600.0, 610.0),
    "violations": (0.003, 0.003),
}
"""Nothing fires."""


def make_metric(name: str, old: float | None, new: float | None, **changes: Any) -> MetricEvidence:
    """A metric without counts, as a report has it."""
    return MetricEvidence(name, old, new, **changes)


def make_paired(name: str, n: int, won: int, lost: int, old: float = 0.6, **changes: Any) -> MetricEvidence:
    """A metric of verdicts on n items, of which the new side wins and loses some."""
    pair = verdict_difference(n, won, lost)
    return MetricEvidence(name, old, old + pair.change.value, n_items=n, paired=pair, **changes)


def make_evidence(metrics: Sequence[MetricEvidence] = (), without: Sequence[str] = (), **changes: Any) -> Evidence:
    """Evidence in which nothing fires, with the given metrics in place of the good ones."""
    by_name = {name: make_metric(name, old, new) for name, (old, new) in GOOD.items() if name not in without}
    by_name |= {metric.name: metric for metric in metrics}
    fields: dict[str, Any] = {
        "checkpoint": "rl-step-900",
        "baseline": "sft",
        "metrics": by_name,
        "split": "test_public",
    }
    return Evidence(**(fields | changes))


def make_releasable(**changes: Any) -> Evidence:
    """Private evidence with item counts, a spot check and counted badcases: nothing is lacking."""
    by_name = {name: make_metric(name, old, new, n_items=500) for name, (old, new) in GOOD.items()} | {
        "math": make_paired("math", 1000, 120, 60, 0.70)
    }
    fields: dict[str, Any] = {
        "split": "test_private",
        "role": "candidate",
        "metrics": list(by_name.values()),
        "badcases": {},
        "from_cards": True,
        "spot_check": SpotCheck("a reviewer", 40, 39),
    }
    fields |= changes
    fields["metrics"] = [replace(metric, source="cards") for metric in fields["metrics"]]
    return make_evidence(**fields)
