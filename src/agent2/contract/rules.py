"""Every gate of a suite applied to the evidence: one list of findings.

Rules over metrics run on the main numbers and again on the private ones, where those are kept beside them; rules
over training signals and badcases run once.
"""

from collections.abc import Sequence

from agent2.contract import rules_metric, rules_training
from agent2.contract.evidence import Evidence
from agent2.contract.findings import Finding, View
from agent2.contract.gates import (
    CostBudgetGate,
    DangerousActionGate,
    EvidenceGate,
    GateSpec,
    HistoricalBestGate,
    JointGate,
    LengthGate,
    LimitGate,
    LoopholeGate,
    RegressionGate,
    ReleaseEvidenceGate,
    RewardPrivateGate,
    RuledGate,
    SafetyGate,
    VerificationGate,
    needs_of,
)
from agent2.contract.metrics import MetricSpec, metrics_by_name

PRIVATE = "test_private"
ONCE = (HistoricalBestGate, RewardPrivateGate, DangerousActionGate, LoopholeGate)


def evaluate_gates(metrics: Sequence[MetricSpec], gates: Sequence[GateSpec], evidence: Evidence) -> list[Finding]:
    """What every gate found, in the order of the gates; the gates on evidence itself are not among them."""
    by_name, needs = metrics_by_name(metrics), needs_of(gates)
    main = View(metrics, by_name, evidence.metrics, evidence.split or "report", True, evidence, needs)
    views = [main]
    if evidence.private_metrics:
        views.append(View(metrics, by_name, evidence.private_metrics, PRIVATE, False, evidence, needs))
    findings: list[Finding] = []
    for gate in gates:
        if isinstance(gate, EvidenceGate | ReleaseEvidenceGate):
            continue
        for view in views[:1] if isinstance(gate, ONCE) else views:
            findings += _apply(gate, view)
    return findings


def _apply(gate: RuledGate, view: View) -> list[Finding]:
    found: list[Finding | None]
    match gate:
        case SafetyGate():
            found = [rules_metric.safety(gate, name, view) for name in gate.reads(view.specs)]
        case RegressionGate():
            found = [rules_metric.regression(gate, name, view) for name in gate.metrics]
        case LimitGate():
            found = [rules_metric.limit(gate, name, view) for name in gate.metrics]
        case VerificationGate():
            found = [rules_metric.verification(gate, name, view) for name in gate.reads(view.specs)]
        case CostBudgetGate():
            found = [rules_metric.cost_budget(gate, view)]
        case JointGate():
            found = list(rules_metric.joint(gate, view))
        case LengthGate():
            found = list(rules_metric.length(gate, view))
        case HistoricalBestGate():
            found = [rules_training.historical_best(gate, view)]
        case RewardPrivateGate():
            found = [rules_training.reward_private(gate, view)]
        case DangerousActionGate():
            found = [rules_training.dangerous_action(gate, view)]
        case LoopholeGate():
            found = [rules_training.loophole(gate, view)]
    return [finding for finding in found if finding is not None]
