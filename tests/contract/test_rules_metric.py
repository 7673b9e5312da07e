from dataclasses import replace

import pytest

from agent2.contract.finding_sentences import finding_text
from agent2.contract.findings import GateRule, GateState, LostItems
from agent2.contract.gates import (
    CostBudgetGate,
    JointGate,
    LengthGate,
    LimitGate,
    RegressionGate,
    SafetyGate,
    VerificationGate,
)
from agent2.contract.metrics import Direction, MetricSpec, Role, Unit
from agent2.contract.rules import evaluate_gates
from evidence_builders import make_evidence, make_metric, make_paired

METRICS = [
    MetricSpec(name="resolved", role=Role.PRIMARY),
    MetricSpec(name="calls", unit=Unit.COUNT, direction=Direction.LOWER),
    MetricSpec(name="format_failures", direction=Direction.LOWER, is_required=False),
    MetricSpec(name="response_length_mean", unit=Unit.LENGTH, direction=Direction.NONE),
    MetricSpec(name="charts", scope="chart_tasks"),
    MetricSpec(name="violations", direction=Direction.LOWER, is_safety=True),
]
FIRED, PASSED = GateState.FIRED, GateState.PASSED


def findings(gate, *metrics, **changes):
    evidence = make_evidence(metrics, without=["math", "instructions", "charts", "length", "violations"], **changes)
    return evaluate_gates(METRICS, [gate], evidence)


def states(gate, *metrics):
    return [finding.state for finding in findings(gate, *metrics)]


@pytest.mark.parametrize(
    ("gate", "old", "new", "state"),
    [
        (LimitGate(name="l", metrics=["format_failures"], at_most=0.05), 0.032, 0.049, PASSED),
        (LimitGate(name="l", metrics=["format_failures"], at_most=0.05), 0.032, 0.05, PASSED),
        (LimitGate(name="l", metrics=["format_failures"], at_most=0.05), 0.09, 0.051, FIRED),
        (LimitGate(name="l", metrics=["format_failures"], at_least=0.01), 0.02, 0.005, FIRED),
        (SafetyGate(), 0.003, 0.003, PASSED),
        (SafetyGate(), 0.003, 0.0031, FIRED),
        (SafetyGate(tolerance=0.001), 0.003, 0.004, PASSED),
        (SafetyGate(tolerance=0.001), 0.003, 0.0041, FIRED),
        (LengthGate(), 612, 734.4, PASSED),
        (LengthGate(), 612, 735, FIRED),
        (LengthGate(max_rise=None, at_most=700), 612, 700, PASSED),
        (LengthGate(max_rise=None, at_most=700), 612, 700.5, FIRED),
        (LengthGate(), 0, 10, FIRED),
        (RegressionGate(name="r", metrics=["resolved"]), 0.28, 0.27, PASSED),
        (RegressionGate(name="r", metrics=["resolved"]), 0.28, 0.269, FIRED),
        (RegressionGate(name="r", metrics=["calls"], tolerance=0.1), 18.6, 20.46, PASSED),
        (RegressionGate(name="r", metrics=["calls"], tolerance=0.1), 18.6, 20.5, FIRED),
    ],
)
def test_point_rules_fire_beyond_their_threshold_and_not_at_it(gate, old, new, state):
    (name,) = gate.reads(METRICS)
    assert states(gate, make_metric(name, old, new)) == [state]


@pytest.mark.parametrize(
    ("n", "won", "lost", "state"),
    [
        (1000, 40, 40, PASSED),
        (1000, 60, 20, PASSED),
        (200, 20, 20, GateState.INCONCLUSIVE),
        (200, 0, 0, PASSED),
        (60, 0, 0, GateState.INCONCLUSIVE),
        (1000, 20, 120, FIRED),
        (10_000, 100, 250, FIRED),
        (100_000, 100, 250, PASSED),
    ],
)
def test_pairs_decide_by_what_their_interval_shows(n, won, lost, state):
    """The last two: significant and beyond one point, against significant and far below one."""
    gate = RegressionGate(name="r", metrics=["resolved"])
    assert states(gate, make_paired("resolved", n, won, lost)) == [state]


def test_a_paired_finding_keeps_drop_interval_p_value_and_thresholds():
    metric = make_paired("resolved", 1000, 20, 120, n_missing_new=3)
    (finding,) = findings(RegressionGate(name="r", metrics=["resolved"]), metric)
    comparison = finding.comparison
    assert finding.rule is GateRule.PAIRED
    assert comparison.drop.change.value == pytest.approx(0.1)
    assert 0.07 < comparison.drop.change.low < 0.1 < comparison.drop.change.high < 0.13
    assert comparison.drop.p_value == metric.paired.p_value < 1e-9
    assert (comparison.drop.n_won, comparison.drop.n_lost) == (120, 20), "of the drop: seen from the old side"
    assert (comparison.tolerance, comparison.margin) == (0.01, 0.03)
    assert comparison.limit == pytest.approx(0.59)
    assert finding.inputs[0].numbers.n_missing_new == 3


def test_a_drop_is_above_0_where_the_metric_got_worse_whichever_direction_is_better():
    calls = replace(make_paired("resolved", 400, 20, 40), name="calls", old=10.0, new=9.95)
    gate = RegressionGate(name="r", metrics=["calls"])
    (fewer_calls,), (fewer_resolved,) = (
        findings(gate, calls),
        findings(RegressionGate(name="r", metrics=["resolved"]), make_paired("resolved", 400, 20, 40)),
    )
    assert fewer_calls.comparison.drop.change.value == pytest.approx(-0.05)
    assert fewer_resolved.comparison.drop.change.value == pytest.approx(0.05)
    assert (fewer_calls.comparison.margin, fewer_calls.comparison.tolerance) == (0.3, 0.1), "shares of 10 calls"


@pytest.mark.parametrize(
    ("gate", "old", "new", "rule", "value", "limit"),
    [
        (SafetyGate(tolerance=0.001), 0.003, 0.009, GateRule.WORSENING, 0.006, 0.004),
        (RegressionGate(name="r", metrics=["calls"], tolerance=0.1), 20.0, 25.0, GateRule.WORSENING, 0.25, 22.0),
        (LengthGate(), 600.0, 900.0, GateRule.RISE, 0.5, 720.0),
        (LengthGate(max_rise=None, at_most=700), 600.0, 900.0, GateRule.LIMIT, 900.0, 700.0),
        (LimitGate(name="l", metrics=["format_failures"], at_least=0.01), 0.02, 0.005, GateRule.LIMIT, 0.005, 0.01),
    ],
)
def test_a_point_finding_keeps_what_was_compared_and_where_it_would_end(gate, old, new, rule, value, limit):
    (name,) = gate.reads(METRICS)
    (finding,) = findings(gate, make_metric(name, old, new))
    assert finding.rule is rule
    assert finding.comparison.value == pytest.approx(value)
    assert finding.comparison.limit == pytest.approx(limit)


def test_a_cost_beyond_its_budget_names_the_budget_and_the_success_beside_it():
    gate = CostBudgetGate(success="resolved", cost="calls")
    (finding,) = findings(gate, make_metric("resolved", 0.28, 0.32), make_metric("calls", 18.6, 27.9))
    assert (finding.comparison.value, finding.comparison.limit) == (27.9, pytest.approx(24.18))
    assert finding.beside.numbers.values() == (0.28, 0.32)


def test_lost_items_are_counted_against_those_that_passed_before():
    (finding,) = findings(VerificationGate(), make_paired("resolved", 1000, 60, 31))
    assert finding.comparison == LostItems(n_lost=31, n_passed_before=600, n_allowed=30)


def test_a_paired_finding_shows_counts_interval_and_p_value():
    (finding,) = findings(RegressionGate(name="r", metrics=["resolved"]), make_paired("resolved", 1000, 20, 120))
    text = finding_text(finding)
    assert "difference -10.0 [" in text.evidence
    assert "20 won and 120 lost" in text.evidence
    assert "p=" in text.evidence
    assert text.would_change == "resolved back to >= 59.0%"


@pytest.mark.parametrize(
    ("n", "won", "lost", "n_needed", "change"),
    [
        (200, 20, 20, 901, "about 901 items if the difference stays as it is (200 now)"),
        (400, 20, 32, None, "resolved back to >= 59.0%, or more items that show the drop to be real"),
        (1000, 20, 120, None, "resolved back to >= 59.0%"),
        (1000, 60, 20, None, ""),
    ],
)
def test_a_paired_finding_says_what_would_settle_it(n, won, lost, n_needed, change):
    """Halfwidth 6.4 points of 200 items, 3 points of margin: 4.5 times as many; beyond the margin no number helps."""
    (finding,) = findings(RegressionGate(name="r", metrics=["resolved"]), make_paired("resolved", n, won, lost))
    assert finding.comparison.n_needed == n_needed
    assert finding_text(finding).would_change == change


def test_margin_and_tolerance_of_a_count_are_shares_of_its_old_value():
    rate = make_paired("resolved", 400, 20, 40)  # 5 points worse, at least 1.2 and at most 8.9
    rise = replace(rate.paired, change=rate.paired.change.scaled(-100.0))
    calls = replace(rate, name="calls", old=10.0, new=15.0, paired=rise)
    (finding,) = findings(RegressionGate(name="r", metrics=["calls"], tolerance=0.01, margin=0.03), calls)
    assert finding.fired and finding_text(finding).evidence.startswith("difference +50.0 [")
    (finding,) = findings(RegressionGate(name="r", metrics=["calls"], tolerance=0.6, margin=0.95), calls)
    assert finding.state is PASSED


def test_a_block_of_a_scoped_metric_is_limited_to_its_scope():
    gate = RegressionGate(name="r", metrics=["charts", "resolved"])
    charts, resolved = findings(gate, make_metric("charts", 0.6, 0.5), make_metric("resolved", 0.6, 0.5))
    assert (charts.effects.release, resolved.effects.release) == ("block_for_chart_tasks", "block")


@pytest.mark.parametrize(
    ("budget", "resolved", "calls", "state"),
    [
        (None, 0.32, 24.1, PASSED),
        (None, 0.32, 24.3, FIRED),
        (None, 0.20, 24.3, FIRED),
        (25.0, 0.32, 32.0, PASSED),
        (25.0, 0.32, 33.0, FIRED),
    ],
)
def test_a_cost_beyond_its_budget_fires_whether_or_not_success_rose(budget, resolved, calls, state):
    gate = CostBudgetGate(success="resolved", cost="calls", budget=budget)
    results = findings(gate, make_metric("resolved", 0.28, resolved), make_metric("calls", 18.6, calls))
    assert [finding.state for finding in results] == [state]
    assert "beside resolved" in finding_text(results[0]).evidence


@pytest.mark.parametrize(
    ("resolved", "calls", "expected"),
    [(0.32, 19.0, [PASSED, PASSED]), (0.27, 19.0, [FIRED, PASSED]), (0.32, 21.0, [PASSED, FIRED])],
)
def test_success_and_cost_must_both_hold(resolved, calls, expected):
    gate = JointGate(success="resolved", cost="calls")
    assert states(gate, make_metric("resolved", 0.28, resolved), make_metric("calls", 18.6, calls)) == expected


@pytest.mark.parametrize(
    ("metric", "state"),
    [
        (make_paired("resolved", 1000, 60, 20), PASSED),
        (make_paired("resolved", 1000, 60, 31), FIRED),
        (make_paired("resolved", 1000, 20, 20), FIRED),
        (make_metric("resolved", 0.6, 0.7), GateState.INCONCLUSIVE),
        (make_metric("resolved", 0.6, 0.6), FIRED),
    ],
)
def test_new_data_must_gain_and_lose_little(metric, state):
    (finding,) = findings(VerificationGate(), metric)
    assert finding.state is state


def test_an_optional_metric_that_is_absent_is_not_evaluated_and_no_problem():
    (finding,) = findings(LimitGate(name="l", metrics=["format_failures"], at_most=0.05))
    assert (finding.state, finding.problems) == (GateState.NOT_EVALUATED, ())
    assert "does not require it" in finding_text(finding).evidence


def test_half_of_an_optional_metric_is_bad_evidence():
    gate = LimitGate(name="l", metrics=["format_failures"], at_most=0.05)
    (finding,) = findings(gate, make_metric("format_failures", None, 0.01))
    assert finding_text(finding).problems[0].startswith("format_failures: no number for the baseline")


def test_a_required_metric_that_is_absent_is_bad_evidence():
    (finding,) = findings(SafetyGate())
    assert finding.state is GateState.NOT_EVALUATED
    assert finding_text(finding).problems == ("violations: no number on either side; evaluate it on both",)


def test_what_was_not_played_on_the_private_split_is_passed_over_there():
    gate = RegressionGate(name="r", metrics=["resolved", "charts"])
    numbers = [make_metric("resolved", 0.3, 0.4), make_metric("charts", 0.6, 0.6)]
    results = findings(gate, *numbers, private_metrics={"charts": make_metric("charts", 0.6, 0.5)})
    assert [(finding.on, finding.metric) for finding in results] == [
        ("test_public", "resolved"),
        ("test_public", "charts"),
        ("test_private", "charts"),
    ]
