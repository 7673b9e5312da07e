"""Worse numbers never make a better decision, and less evidence never makes a pass.

"Never" has two stated limits: a metric that the suite calls optional may be absent altogether, and a report without
any item counts is judged by point thresholds unless the suite asks for items (`needs_items`, as here).
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent2.contract.decision import decide
from agent2.contract.gates import (
    INSUFFICIENT,
    PASSES,
    TRAINING_SEVERITY,
    CostBudgetGate,
    EvidenceGate,
    EvidenceNeeds,
    GateSpec,
    HistoricalBestGate,
    JointGate,
    LimitGate,
    LoopholeGate,
    RewardPrivateGate,
    VerificationGate,
    release_severity,
)
from agent2.contract.metrics import (
    Change,
    Direction,
    Evidence,
    MetricEvidence,
    MetricSpec,
    SpotCheck,
    TrainingSignals,
    Unit,
)
from agent2.stats.comparisons import verdict_difference
from evidence_builders import GATES, METRICS

RATES = ("math", "instructions", "charts")
CALLS = MetricSpec(name="calls", unit=Unit.COUNT, direction=Direction.LOWER)
SPECS = [*METRICS, CALLS]
BY_NAME = {spec.name: spec for spec in SPECS}
MORE: list[GateSpec] = [
    CostBudgetGate(success="math", cost="calls"),
    JointGate(success="math", cost="calls"),
    LimitGate(name="violation_limit", metrics=["violations"], at_most=0.02),
    VerificationGate(max_lost_share=0.1),
    HistoricalBestGate(),
    RewardPrivateGate(),
    LoopholeGate(),
]
POINTS = [*GATES, *MORE]
ITEMS = [*POINTS, EvidenceGate(needs=EvidenceNeeds(needs_items=True, min_items=40))]


def paired(name: str, n: int, won: int, lost: int, n_missing: int) -> MetricEvidence:
    pair = verdict_difference(n, won, lost)
    return MetricEvidence(name, 0.5, 0.5 + pair.change.value, n_items=n, n_missing_new=n_missing, paired=pair)


@st.composite
def rate(draw: st.DrawFn, name: str, *, is_healthy: bool) -> MetricEvidence:
    if is_healthy:
        n = 3000
        return paired(name, n, draw(st.integers(60, 400)), draw(st.integers(0, 70)), 0)
    n = draw(st.sampled_from([30, 60, 400, 3000]))
    return paired(name, n, draw(st.integers(0, n // 4)), draw(st.integers(0, n // 8)), draw(st.sampled_from([0, 0, 5])))


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    """Verdict pairs for rates, plain numbers for the rest; most numbers are healthy, so that passes occur as well."""
    mostly = st.sampled_from([True] * 9 + [False])

    def numbers() -> dict[str, MetricEvidence]:
        by_name = {name: draw(rate(name, is_healthy=draw(mostly))) for name in RATES}
        longest, dearest, worst = (700, 10.9, 0.01) if draw(mostly) else (900, 15, 0.03)
        by_name["length"] = MetricEvidence("length", 600.0, draw(st.floats(300, longest)), n_items=400)
        by_name["calls"] = MetricEvidence("calls", 10.0, draw(st.floats(5, dearest)), n_items=400)
        violations = draw(st.sampled_from([0.0, 0.01, worst]))
        by_name["violations"] = MetricEvidence("violations", 0.01, violations, n_items=400)
        return {name: replace(metric, source="cards") for name, metric in by_name.items()}

    changes = st.builds(Change, st.floats(0, 1), st.floats(0, 1))
    is_private = draw(st.booleans())
    return Evidence(
        checkpoint="new",
        baseline="old",
        metrics=numbers(),
        split="test_private" if is_private else "test_public",
        role=draw(st.sampled_from([None, "nightly"])) if not is_private else "candidate",
        private_metrics=numbers() if not is_private and draw(st.booleans()) else {},
        history={"math": tuple(draw(st.lists(st.floats(0.3, 0.7), max_size=4)))},
        training=TrainingSignals(draw(changes), draw(changes), draw(changes)),
        badcases={},
        from_cards=True,
        spot_check=draw(st.sampled_from([None, SpotCheck("someone", 40, 39)])),
    )


def worsened(metric: MetricEvidence, by: float) -> MetricEvidence:
    """The same metric with a worse new value; verdicts lose items that were won or kept."""
    pair = metric.paired
    if pair is None or pair.n_won is None or pair.n_lost is None:
        sign = -1.0 if BY_NAME[metric.name].direction is Direction.HIGHER else 1.0
        scale = 1.0 if BY_NAME[metric.name].unit is Unit.RATE else 600.0
        return replace(metric, new=(metric.new or 0.0) + sign * by * scale)
    items = max(1, round(by * pair.change.n))
    from_won = min(items, pair.n_won)
    lost = min(pair.n_lost + items - from_won, pair.change.n - pair.n_won)
    return paired(metric.name, pair.change.n, pair.n_won - from_won, lost, metric.n_missing_new)


def test_the_evidence_made_here_leads_to_passes_and_refusals_alike():
    releases = set()

    @settings(max_examples=400, deadline=None, database=None, derandomize=True)
    @given(evidence=evidences())
    def look(evidence):
        releases.add(decide(SPECS, ITEMS, evidence).release)

    look()
    assert releases >= {"release", "candidate", "research_only", "block", "insufficient"}


def assert_no_better(before: Evidence, after: Evidence, gates: list[GateSpec]) -> None:
    first, second = decide(SPECS, gates, before), decide(SPECS, gates, after)
    if first.release == INSUFFICIENT:
        assert second.release not in PASSES, (first.problems, second.problems)
    else:
        assert release_severity(second.release) >= release_severity(first.release), (first.release, second.release)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(evidence=evidences(), name=st.sampled_from(sorted(BY_NAME)), by=st.floats(0.001, 0.4), on_private=st.booleans())
def test_a_worse_metric_never_makes_a_better_release_decision(evidence, name, by, on_private):
    field = "private_metrics" if on_private and evidence.private_metrics else "metrics"
    metrics = dict(getattr(evidence, field))
    metrics[name] = worsened(metrics[name], by)
    assert_no_better(evidence, replace(evidence, **{field: metrics}), POINTS)


@settings(max_examples=75, deadline=None)
@given(
    evidence=evidences(),
    name=st.sampled_from(["instructions", "length", "violations", "calls"]),
    by=st.floats(0.001, 0.4),
)
def test_a_worse_metric_never_makes_training_more_allowed(evidence, name, by):
    after = replace(evidence, metrics={**evidence.metrics, name: worsened(evidence.metrics[name], by)})
    first, second = (decide(SPECS, POINTS, either).training_action for either in (evidence, after))
    assert TRAINING_SEVERITY[second] >= TRAINING_SEVERITY[first]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data(), evidence=evidences())
def test_less_evidence_never_turns_a_no_into_a_pass(data, evidence):
    name = data.draw(st.sampled_from(sorted(BY_NAME)))
    metric = evidence.metrics[name]
    thinner = {
        "metric": {key: value for key, value in evidence.metrics.items() if key != name},
        "old side": {**evidence.metrics, name: replace(metric, old=None, paired=None)},
        "new side": {**evidence.metrics, name: replace(metric, new=float("nan"), paired=None)},
        "counts": {**evidence.metrics, name: replace(metric, n_items=None, paired=None)},
        "pairs": {**evidence.metrics, name: replace(metric, paired=None)},
        "more missing": {**evidence.metrics, name: replace(metric, n_missing_new=metric.n_missing_new + 50)},
        "clean share": {**evidence.metrics, name: replace(metric, clean_old=1.0, clean_new=0.5)},
    }
    how = data.draw(st.sampled_from([*thinner, "baseline", "spot check", "badcases", "history", "comparable"]))
    fewer = {
        "baseline": {"baseline": None},
        "spot check": {"spot_check": None},
        "badcases": {"badcases": None},
        "history": {"history": {}},
        "comparable": {"incomparable": ("math: dtype float32 against bfloat16",)},
    }
    after = replace(evidence, **(fewer.get(how) or {"metrics": thinner[how]}))
    assert_no_better(evidence, after, ITEMS)


@settings(max_examples=50, deadline=None)
@given(evidence=evidences())
def test_a_candidate_evaluation_without_its_private_numbers_is_no_pass(evidence):
    assert (
        decide(SPECS, ITEMS, replace(evidence, role="candidate", split="dev", private_metrics={})).release
        == INSUFFICIENT
    )


@settings(max_examples=50, deadline=None)
@given(evidence=evidences())
def test_the_same_evidence_gives_the_same_decision(evidence):
    assert decide(SPECS, ITEMS, evidence) == decide(SPECS, ITEMS, evidence)


@settings(max_examples=100, deadline=None)
@given(evidence=evidences())
def test_release_always_has_private_evidence_and_a_human_behind_it(evidence):
    if decide(SPECS, POINTS, evidence).release == "release":
        assert evidence.private_evidence()
        assert evidence.spot_check is not None
        assert all(metric.source == "cards" for metric in evidence.private_evidence().values())
