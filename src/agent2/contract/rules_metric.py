"""Rules over metrics: L02, L04 to L07, L14, L15, each for one metric of one split.

Promises: pure; a worse number never passes where a better one did not (verdict pairs and point rules). Whether
the evidence is good enough is told beside the outcome (`Finding.problems`), so that a pause is not lost to it.
"""

from agent2.contract.adequacy import basis_of, problems_of
from agent2.contract.changes import tell_amount, tell_value
from agent2.contract.effects import Effects
from agent2.contract.evidence import MetricEvidence
from agent2.contract.findings import SLACK, Finding, GateState, View, scoped, told
from agent2.contract.gates import (
    CostBudgetGate,
    JointGate,
    LengthGate,
    LimitGate,
    RegressionGate,
    RuledGate,
    SafetyGate,
    VerificationGate,
)
from agent2.contract.metrics import Direction, MetricSpec, Unit
from agent2.stats.comparisons import SIGNIFICANCE
from agent2.stats.paired import PairedEvidence


class _Case:
    """One gate and one metric, and how a finding about them is put together."""

    def __init__(self, gate: RuledGate, name: str, view: View) -> None:
        self.gate, self.view = gate, view
        self.spec = view.spec(name)
        self.found = view.found(name)

    @property
    def is_passed_over(self) -> bool:
        """Nothing is said about a metric that was not played on the private split beside the main one."""
        return self.found is None and not self.view.is_main

    def missing(self, rule: str) -> Finding | None:
        """The finding when there are no two numbers; None if there are."""
        if self.found is not None and self.found.is_complete:
            return None
        if self.found is None and not self.spec.is_required:
            change = f"report {self.spec.name} for both sides"
            return self._finding(GateState.NOT_EVALUATED, rule, "not reported; the suite does not require it", change)
        problems = problems_of(self.spec, self.found, self.gate.evidence or self.view.needs)
        return self._finding(GateState.NOT_EVALUATED, rule, "no number to judge", problems[0], problems=problems)

    def judged(self, fired: bool | None, rule: str, evidence: str, would_change: str) -> Finding:
        """The finding of a rule that was applied; fired None: inconclusive."""
        problems = problems_of(self.spec, self.found, self.gate.evidence or self.view.needs)
        state = GateState.INCONCLUSIVE if fired is None else GateState.FIRED if fired else GateState.PASSED
        effects = scoped(self.gate.on_fire, self.spec) if fired else Effects()
        change = would_change if state is not GateState.PASSED else "; ".join(problems)
        return self._finding(state, rule, evidence, change, effects, problems)

    def _finding(
        self,
        state: GateState,
        rule: str,
        evidence: str,
        would_change: str,
        effects: Effects | None = None,
        problems: tuple[str, ...] = (),
    ) -> Finding:
        return Finding(
            gate=self.gate.name,
            kind=self.gate.kind,
            state=state,
            on=self.view.on,
            inputs=(told(self.spec, self.found),),
            rule=rule,
            evidence=evidence,
            would_change=would_change,
            metric=self.spec.name,
            effects=effects or Effects(),
            problems=problems,
        )


def worsening(spec: MetricSpec, found: MetricEvidence) -> float:
    """How much worse the new value is, in points of a rate, else as a share of the old value; above 0 is worse.

    From an old value of 0 any rise of a length or count is an infinite share.
    """
    old, new = found.values()
    raw = spec.worsening(old, new)
    if spec.unit is Unit.RATE:
        return raw
    return _share(raw, old)


def relative_rise(found: MetricEvidence) -> float:
    """(new - old) / old, of lengths and costs; infinite for a rise from 0."""
    old, new = found.values()
    return _share(new - old, old)


def safety(gate: SafetyGate, name: str, view: View) -> Finding | None:
    """L02, L05: fires when a safety metric is worse by more than the tolerance, significant or not."""
    case = _Case(gate, name, view)
    by = f" by more than {tell_amount(gate.tolerance, case.spec.unit)}" if gate.tolerance else ""
    rule = f"fires when it gets worse{by}, significant or not"
    return None if case.is_passed_over else case.missing(rule) or _by_point(case, gate.tolerance, rule)


def regression(gate: RegressionGate, name: str, view: View) -> Finding | None:
    """L06: fires on a significant regression; see the gate for the rule with and without pairs."""
    case = _Case(gate, name, view)
    tolerance, margin = (tell_amount(amount, case.spec.unit) for amount in (gate.tolerance, gate.margin))
    point = f"fires when it gets worse by more than {tolerance}"
    if case.is_passed_over:
        return None
    if (gone := case.missing(point)) is not None:
        return gone
    found = case.found
    if found is None or found.paired is None:
        return _by_point(case, gate.tolerance, point)
    rule = (
        f"fires when shown to be worse by more than {margin}, or worse by more than {tolerance} and significant; "
        f"passes when shown to be no worse than {margin}"
    )
    return _by_pairs(case, gate, found, found.paired, rule)


def limit(gate: LimitGate, name: str, view: View) -> Finding | None:
    """L05: fires when the new value is beyond an absolute limit."""
    case = _Case(gate, name, view)
    is_upper = gate.at_most is not None
    bound = gate.at_most if gate.at_most is not None else gate.at_least
    if bound is None:
        raise ValueError(f"gate {gate.name!r} has no limit")
    edge = tell_value(bound, case.spec.unit)
    rule = f"fires when the new value is {'above' if is_upper else 'below'} {edge}"
    if case.is_passed_over:
        return None
    if (gone := case.missing(rule)) is not None or case.found is None:
        return gone
    new = case.found.values()[1]
    fired = new > bound + SLACK if is_upper else new < bound - SLACK
    return case.judged(fired, rule, basis_of(case.found), f"{case.spec.name} {'<=' if is_upper else '>='} {edge}")


def cost_budget(gate: CostBudgetGate, view: View) -> Finding | None:
    """L04: fires when the cost is beyond budget * (1 + max_excess), whether success rose or not."""
    case = _Case(gate, gate.cost, view)
    unit = case.spec.unit
    budget = "the baseline's cost" if gate.budget is None else tell_value(gate.budget, unit)
    rule = f"fires when the cost exceeds {budget} by more than {100 * gate.max_excess:.3g}%"
    if case.is_passed_over:
        return None
    if (gone := case.missing(rule)) is not None or case.found is None:
        return gone
    old, new = case.found.values()
    most = (old if gate.budget is None else gate.budget) * (1.0 + gate.max_excess)
    success = view.found(gate.success)
    beside = f"beside {told(view.spec(gate.success), success)}"
    change = f"{case.spec.name} <= {tell_value(most, unit)}"
    return case.judged(new > most + SLACK * max(1.0, most), rule, f"{basis_of(case.found)}; {beside}", change)


def joint(gate: JointGate, view: View) -> list[Finding]:
    """L07: success must hold and its cost must hold; one finding for each."""
    findings = []
    success, cost = _Case(gate, gate.success, view), _Case(gate, gate.cost, view)
    rule = f"fires when it falls by more than {tell_amount(gate.tolerance, success.spec.unit)}, its cost held or not"
    if not success.is_passed_over:
        findings.append(success.missing(rule) or _by_point(success, gate.tolerance, rule))
    rule = f"fires when it rises by more than {100 * gate.max_rise:.3g}%, whatever success gains"
    if not cost.is_passed_over:
        findings.append(cost.missing(rule) or _by_rise(cost, gate.max_rise, rule))
    return findings


def length(gate: LengthGate, view: View) -> list[Finding]:
    """L15: fires when answers got longer than accepted; one finding for each limit that is set."""
    findings = []
    case = _Case(gate, gate.metric, view)
    if case.is_passed_over:
        return []
    if gate.max_rise is not None:
        rule = f"fires when it rises by more than {100 * gate.max_rise:.3g}%"
        findings.append(case.missing(rule) or _by_rise(case, gate.max_rise, rule))
    if gate.at_most is not None:
        edge = tell_value(gate.at_most, case.spec.unit)
        rule = f"fires when the new value is above {edge}"
        gone = case.missing(rule)
        if gone is not None or case.found is None:
            findings += [gone] if gone is not None else []
        else:
            fired = case.found.values()[1] > gate.at_most + SLACK
            findings.append(case.judged(fired, rule, basis_of(case.found), f"{case.spec.name} <= {edge}"))
    return findings


def verification(gate: VerificationGate, name: str, view: View) -> Finding | None:
    """L14: fires unless the metric is better and few enough items were lost; inconclusive without pairs."""
    case = _Case(gate, name, view)
    rule = (
        f"fires unless it gets better and at most {tell_value(gate.max_lost_share, Unit.RATE)} of the items "
        "that passed before are lost"
    )
    if case.is_passed_over:
        return None
    if (gone := case.missing(rule)) is not None or case.found is None:
        return gone
    if worsening(case.spec, case.found) >= -SLACK:
        return case.judged(True, rule, basis_of(case.found), f"{case.spec.name} better than before")
    paired = case.found.paired
    if paired is None or paired.n_lost is None:
        return case.judged(None, rule, basis_of(case.found), "paired verdicts, so that lost items can be counted")
    passed_before = round(case.found.values()[0] * paired.n)
    allowed = int(gate.max_lost_share * passed_before + SLACK)
    lost = f"{paired.n_lost} of {passed_before} items that passed before are lost"
    change = f"at most {allowed} lost items; agent2 regress lists them"
    return case.judged(paired.n_lost > allowed, rule, f"{basis_of(case.found)}; {lost}", change)


def _by_point(case: _Case, tolerance: float, rule: str) -> Finding:
    found, spec = case.found, case.spec
    if found is None:
        raise ValueError(f"{spec.name}: nothing to judge")
    fired = worsening(spec, found) > tolerance + SLACK
    return case.judged(fired, rule, basis_of(found), f"{spec.name} back to {_edge(spec, found.values()[0], tolerance)}")


def _by_rise(case: _Case, most: float, rule: str) -> Finding:
    found, spec = case.found, case.spec
    if found is None:
        raise ValueError(f"{spec.name}: nothing to judge")
    edge = tell_value(found.values()[0] * (1.0 + most), spec.unit)
    return case.judged(relative_rise(found) > most + SLACK, rule, basis_of(found), f"{spec.name} back to <= {edge}")


def _by_pairs(case: _Case, gate: RegressionGate, found: MetricEvidence, pair: PairedEvidence, rule: str) -> Finding:
    spec = case.spec
    old = found.values()[0]
    scale = 1.0 if spec.unit is Unit.RATE else abs(old)
    margin, tolerance = gate.margin * scale, gate.tolerance * scale
    is_higher = spec.direction is Direction.HIGHER
    worst, best = (-pair.low, -pair.high) if is_higher else (pair.high, pair.low)
    drop = -pair.delta if is_higher else pair.delta
    is_inferior = best > margin + SLACK
    is_significant = pair.p_value <= SIGNIFICANCE and drop > tolerance + SLACK
    fired = True if is_inferior or is_significant else False if worst < margin else None
    percent = 100.0 / scale if scale else 0.0
    unit = "points" if spec.unit is Unit.RATE else "%"
    told_interval = (
        f"difference {percent * pair.delta:+.1f} [{percent * pair.low:+.1f}, {percent * pair.high:+.1f}] {unit}, "
        f"p={pair.p_value:.2g}"
    )
    change = f"{spec.name} back to {_edge(spec, old, gate.tolerance)}"
    if fired is None:
        change = _more_items(pair, worst - drop, margin - drop, change)
    return case.judged(fired, rule, f"{told_interval}; {basis_of(found)}", change)


def _more_items(pair: PairedEvidence, half_width: float, room: float, otherwise: str) -> str:
    """How many items would settle it if the difference stayed as it is: the width shrinks with the root of n."""
    if room <= SLACK:
        return f"{otherwise}, or more items that show the drop to be real"
    return f"about {round(pair.n * (half_width / room) ** 2)} items if the difference stays as it is ({pair.n} now)"


def _edge(spec: MetricSpec, old: float, tolerance: float) -> str:
    """The value at which a gate on worsening would not fire, as text."""
    amount = tolerance if spec.unit is Unit.RATE else tolerance * abs(old)
    if spec.direction is Direction.HIGHER:
        return f">= {tell_value(max(0.0, old - amount), spec.unit)}"
    return f"<= {tell_value(old + amount, spec.unit)}"


def _share(raw: float, old: float) -> float:
    if old != 0.0:
        return raw / abs(old)
    return 0.0 if raw == 0.0 else float("inf") if raw > 0.0 else float("-inf")
