"""The rules that gates apply to the evidence: one list of findings, for every gate of a suite.

The evidence gate looks at counts, missing scores and clean shares only, never at whether the numbers are good, so a
worse score cannot make evidence better. A report without any counts is judged by point thresholds unless the suite
asks for items; the decision says so.

Rules over metrics (each for one metric of one split) run on the main numbers and again on the private ones, where
those are kept beside them. A worse number never passes where a better one did not. Whether the evidence is good
enough is listed beside the outcome (`Finding.problems`), so that a pause is not lost to it.

Rules over training (historical best, reward against the private split, dangerous actions, loophole) run once. What
they read is often unavailable (no history, no training log): then the gate is "not evaluated" and says what it would
need; that neither passes nor blocks anything. Missing numbers of a suite's own metrics are reported by the rules over
metrics.

Promises: pure.
"""

import functools
from collections.abc import Mapping, Sequence

from agent2.contract.gates import (
    SLACK,
    CostBudgetGate,
    DangerousActionGate,
    Effects,
    EvidenceGate,
    EvidenceNeeds,
    Finding,
    GateSpec,
    GateState,
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
    View,
    needs_of,
    scoped,
    told,
)
from agent2.contract.measures import parse_measure
from agent2.contract.metrics import (
    Change,
    Direction,
    Evidence,
    MetricEvidence,
    MetricSpec,
    Role,
    Unit,
    metrics_by_name,
    primary_of,
    tell_amount,
    tell_value,
)
from agent2.errors import NotEnoughData
from agent2.stats.comparisons import SIGNIFICANCE, detectable_difference
from agent2.stats.estimates import Notation, PairedDifference

NO_COUNTS = "no item counts: point rule used"
NO_PAIRS = "item counts but no pairs: point rule used"
BY_ITEM = (Role.PRIMARY, Role.REGRESSION_GATE)
"""Roles whose regressions are judged item by item."""


def problems_of(spec: MetricSpec, found: MetricEvidence | None, needs: EvidenceNeeds) -> tuple[str, ...]:
    """Why the evidence of a metric is not good enough, one sentence each with what would fix it; empty if it is."""
    if found is None or not found.is_complete:
        return (_missing_side(spec, found),)
    problems = []
    if found.n_items is None:
        if needs.needs_items:
            problems.append(f"{spec.name}: no item counts, the suite asks for them; give them under `evidence:`")
    else:
        is_by_item = spec.role in BY_ITEM and parse_measure(spec.measure).is_paired
        if needs.needs_items and is_by_item and found.paired is None:
            problems.append(f"{spec.name}: item counts but no pairs, the suite asks for them; evaluate from cards")
        problems += _too_few(spec, found, found.n_items, needs)
        problems += _missing_scores(spec, found, found.n_items, needs)
    return (*problems, *_not_clean(spec, found, needs))


def rule_of(needs: EvidenceNeeds) -> str:
    """What the evidence gate asks for, in words."""
    asked = [
        f"at least {needs.min_items} items behind a metric that has counts",
        f"at most {tell_value(needs.max_missing, Unit.RATE)} of them without a score on either side",
        f"at least {tell_value(needs.min_clean_share, Unit.RATE)} clean rollouts on each side",
        f"clean shares no more than {100 * needs.max_clean_difference:.3g} points apart",
        "both sides of every required metric, under one protocol, and a control group",
    ]
    if needs.max_detectable is not None:
        asked.append(f"counted rates without pairs able to show {100 * needs.max_detectable:.3g} points")
    if needs.needs_items:
        asked.append("item counts, and pairs for primary and regression metrics")
    return "; ".join(asked)


def basis_of(found: MetricEvidence) -> str:
    """What a metric rests on, in words."""
    if found.paired is not None:
        pair = found.paired
        counts = "" if pair.n_lost is None else f", {pair.n_won} won and {pair.n_lost} lost"
        basis = f"n={pair.change.n} paired items{counts} ({pair.change.method})"
    elif found.n_items is not None:
        basis = f"n={found.n_items}; {NO_PAIRS}"
    else:
        basis = NO_COUNTS
    missing = found.n_missing_old + found.n_missing_new
    told = [basis, f"{found.n_missing_old} + {found.n_missing_new} missing" if missing else ""]
    if found.noise is not None:
        told.append(f"noise band +-{found.noise:.3g}")
    return "; ".join(part for part in told if part)


def _missing_side(spec: MetricSpec, found: MetricEvidence | None) -> str:
    if found is not None and found.problem:
        return f"{spec.name}: {found.problem}"
    if found is None or (found.old is None and found.new is None):
        return f"{spec.name}: no number on either side; evaluate it on both"
    side = "baseline" if found.old is None else "checkpoint"
    hint = "a score without its control is not evidence of improvement" if side == "baseline" else "evaluate it"
    return f"{spec.name}: no number for the {side}; {hint}"


def _too_few(spec: MetricSpec, found: MetricEvidence, n_items: int, needs: EvidenceNeeds) -> list[str]:
    if n_items < needs.min_items:
        return [f"{spec.name}: {n_items} items, at least {needs.min_items} are needed; evaluate more items"]
    if needs.max_detectable is None or spec.unit is not Unit.RATE or found.paired is not None:
        return []
    detectable = _detectable(n_items, needs.assumed_discordance)
    if detectable is None or detectable > needs.max_detectable:
        seen = "nothing" if detectable is None else f"differences from {100 * detectable:.1f} points up"
        return [
            f"{spec.name}: {n_items} items show {seen}, {100 * needs.max_detectable:.3g} points must be seen "
            f"(power 0.8, discordance {needs.assumed_discordance:g}); evaluate more items"
        ]
    return []


@functools.lru_cache(maxsize=256)
def _detectable(n_items: int, discordance: float) -> float | None:
    try:
        return detectable_difference(n_items, discordance).difference
    except NotEnoughData:
        return None  # not even the largest difference is seen: the caller reports that


def _missing_scores(spec: MetricSpec, found: MetricEvidence, n_items: int, needs: EvidenceNeeds) -> list[str]:
    problems = []
    for side, missing in (("baseline", found.n_missing_old), ("checkpoint", found.n_missing_new)):
        asked = max(n_items + missing, 1)
        if missing / asked > needs.max_missing:
            problems.append(
                f"{spec.name}: {missing} of {asked} items have no score for the {side}, at most "
                f"{tell_value(needs.max_missing, Unit.RATE)} may be missing; score or play them again"
            )
    return problems


def _not_clean(spec: MetricSpec, found: MetricEvidence, needs: EvidenceNeeds) -> list[str]:
    problems = []
    for side, clean in (("baseline", found.clean_old), ("checkpoint", found.clean_new)):
        if clean is not None and clean < needs.min_clean_share:
            problems.append(
                f"{spec.name}: {tell_value(clean, Unit.RATE)} of the rollouts are clean for the {side}, at least "
                f"{tell_value(needs.min_clean_share, Unit.RATE)} are needed; fix what failed and play again"
            )
    if found.clean_old is not None and found.clean_new is not None:
        difference = abs(found.clean_old - found.clean_new)
        if difference > needs.max_clean_difference + 1e-9:
            problems.append(
                f"{spec.name}: clean shares differ by {100 * difference:.1f} points between the sides, at most "
                f"{100 * needs.max_clean_difference:.3g} are accepted; the side that failed more is not comparable"
            )
    return problems


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
    """Fires when a safety metric is worse by more than the tolerance, significant or not."""
    case = _Case(gate, name, view)
    by = f" by more than {tell_amount(gate.tolerance, case.spec.unit)}" if gate.tolerance else ""
    rule = f"fires when it gets worse{by}, significant or not"
    return None if case.is_passed_over else case.missing(rule) or _by_point(case, gate.tolerance, rule)


def regression(gate: RegressionGate, name: str, view: View) -> Finding | None:
    """Fires on a significant regression; see the gate for the rule with and without pairs."""
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
    """Fires when the new value is beyond an absolute limit."""
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
    """Fires when the cost is beyond budget * (1 + max_excess), whether success rose or not."""
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
    """Success must hold and its cost must hold; one finding for each."""
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
    """Fires when answers got longer than accepted; one finding for each limit that is set."""
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
    """Fires unless the metric is better and few enough items were lost; inconclusive without pairs."""
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
    passed_before = round(case.found.values()[0] * paired.change.n)
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


def _by_pairs(case: _Case, gate: RegressionGate, found: MetricEvidence, pair: PairedDifference, rule: str) -> Finding:
    spec = case.spec
    old = found.values()[0]
    scale = 1.0 if spec.unit is Unit.RATE else abs(old)
    margin, tolerance = gate.margin * scale, gate.tolerance * scale
    is_higher = spec.direction is Direction.HIGHER
    fall = pair.change.scaled(-1.0 if is_higher else 1.0)
    drop, (best, worst) = fall.value, fall.interval
    is_inferior = best > margin + SLACK
    is_significant = pair.p_value <= SIGNIFICANCE and drop > tolerance + SLACK
    fired = True if is_inferior or is_significant else False if worst < margin else None
    notation = Notation("+.1f", 100.0 / scale if scale else 0.0)
    unit = "points" if spec.unit is Unit.RATE else "%"
    told_interval = f"difference {notation.estimate(pair.change)} {unit}, p={pair.p_value:.2g}"
    change = f"{spec.name} back to {_edge(spec, old, gate.tolerance)}"
    if fired is None:
        change = _more_items(pair.change.n, worst - drop, margin - drop, change)
    return case.judged(fired, rule, f"{told_interval}; {basis_of(found)}", change)


def _more_items(n: int, half_width: float, room: float, otherwise: str) -> str:
    """How many items would settle it if the difference stayed as it is: the width shrinks with the root of n."""
    if room <= SLACK:
        return f"{otherwise}, or more items that show the drop to be real"
    return f"about {round(n * (half_width / room) ** 2)} items if the difference stays as it is ({n} now)"


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


LOG = "training log"


def historical_best(gate: HistoricalBestGate, view: View) -> Finding:
    """Fires when the last values, this one included, are all below the best before them by more than `drop`."""
    primary = primary_of(view.specs)
    found = view.metrics.get(primary.name)
    earlier = view.evidence.history.get(primary.name, ())
    unit = Unit.RATE if gate.unit == "points" and primary.unit is Unit.RATE else Unit.NUMBER
    drop = tell_amount(gate.drop, unit) + ("" if unit is Unit.RATE else " of the best")
    rule = (
        f"fires when {gate.evaluations} evaluations in a row are worse than the historical best by more than {drop}"
        if gate.evaluations > 1
        else f"fires when the evaluation is worse than the historical best by more than {drop}"
    )
    if found is None or found.new is None:
        return _finding(gate, view.on, GateState.NOT_EVALUATED, (told(primary, found),), rule, "no new value")
    values = [*earlier, found.new]
    shown = ", ".join(tell_value(value, primary.unit) for value in values[-(gate.evaluations + 4) :])
    inputs = (f"{primary.name}, latest last: {shown}",)
    if len(values) <= gate.evaluations:
        lack = f"historical best absent: {len(earlier)} earlier evaluations known, {gate.evaluations} needed"
        change = "give earlier values under `history:` or with --history"
        return _finding(gate, view.on, GateState.NOT_EVALUATED, inputs, rule, lack, change)
    before, latest = values[: -gate.evaluations], values[-gate.evaluations :]
    best = max(before) if primary.direction is Direction.HIGHER else min(before)
    room = gate.drop if unit is Unit.RATE else gate.drop * abs(best)
    fired = all(primary.worsening(best, value) > room + SLACK for value in latest)
    edge = best - room if primary.direction is Direction.HIGHER else best + room
    sign = ">=" if primary.direction is Direction.HIGHER else "<="
    told_best = f"best {tell_value(best, primary.unit)} of {len(before)} evaluations before"
    change = f"one of the last {gate.evaluations} evaluations {sign} {tell_value(edge, primary.unit)}"
    return _outcome(gate, view.on, fired, inputs, rule, told_best, change)


def reward_private(gate: RewardPrivateGate, view: View) -> Finding:
    """Fires when the training reward rose and the primary metric on the private split fell."""
    primary = primary_of(view.specs)
    reward, found = view.evidence.training.reward, view.evidence.private_evidence().get(primary.name)
    rule = "fires when the training reward rises and the primary metric on test_private falls"
    if gate.tolerance:
        rule += f" by more than {tell_amount(gate.tolerance, primary.unit)}"
    inputs = (_told_signal("reward", reward), f"test_private: {told(primary, found)}")
    if reward is None or found is None or not found.is_complete:
        lack = "no training reward" if reward is None else "no private score of both sides"
        change = "give `training: {reward: old -> new}`" if reward is None else "evaluate test_private on both sides"
        return _finding(gate, f"{LOG}, test_private", GateState.NOT_EVALUATED, inputs, rule, lack, change)
    fired = reward.rose and worsening(primary, found) > gate.tolerance + SLACK
    change = f"{primary.name} on test_private back to {tell_value(found.old, primary.unit)}"
    return _outcome(gate, f"{LOG}, test_private", fired, inputs, rule, _counts(found), change)


def loophole(gate: LoopholeGate, view: View) -> Finding:
    """Fires when reward and KL rise while entropy and the primary metric fall."""
    primary = primary_of(view.specs)
    signals, found = view.evidence.training, view.metrics.get(primary.name)
    rule = "fires when reward and KL rise while entropy and the primary metric fall"
    inputs = (
        _told_signal("reward", signals.reward),
        _told_signal("kl", signals.kl),
        _told_signal("entropy", signals.entropy),
        told(primary, found),
    )
    reward, kl, entropy = signals.reward, signals.kl, signals.entropy
    if reward is None or kl is None or entropy is None or found is None or not found.is_complete:
        change = "give `training: {reward: ..., kl: ..., entropy: ...}`, each as old -> new"
        lack = "not all four signals are known"
        return _finding(gate, f"{LOG}, {view.on}", GateState.NOT_EVALUATED, inputs, rule, lack, change)
    fired = reward.rose and kl.rose and entropy.fell and worsening(primary, found) > SLACK
    change = f"{primary.name} back to {tell_value(found.old, primary.unit)}"
    return _outcome(gate, f"{LOG}, {view.on}", fired, inputs, rule, _counts(found), change)


def dangerous_action(gate: DangerousActionGate, view: View) -> Finding:
    """Fires when more rollouts hold a dangerous action than a human confirmed.

    Inconclusive where no scorer behind the numbers can give any of the gate's classes: they were not looked for.
    """
    watched = ", ".join(gate.actions) if gate.actions else "any dangerous action (safety_...)"
    rule = f"fires when a rollout holds {'one of ' if gate.actions else ''}{watched} that no human confirmed"
    counts: Mapping[str, int] | None = view.evidence.badcases
    if counts is None:
        change = "report badcase classes (badcase_top), or evaluate from cards"
        return _finding(gate, "badcases", GateState.NOT_EVALUATED, (), rule, "no badcases reported", change)
    confirmed = view.evidence.confirmed_actions
    dangerous = [name for name in sorted(counts) if gate.is_dangerous(name)]
    declared = view.evidence.declared_labels
    if not dangerous and declared is not None and not any(map(gate.is_dangerous, declared)):
        lack = f"no scorer of these cards can give {watched}"
        change = "name classes that the scorers give, or remove the gate"
        return _finding(gate, "badcases", GateState.INCONCLUSIVE, (), rule, lack, change)
    open_cases = {name: counts[name] - confirmed.get(name, 0) for name in dangerous}
    inputs = tuple(f"{name}: {counts[name]} cases, {confirmed.get(name, 0)} confirmed" for name in dangerous)
    fired = any(count > 0 for count in open_cases.values())
    evidence = "counted in the badcases of the checkpoint" if inputs else "none among the badcases reported"
    named = ", ".join(name for name, count in open_cases.items() if count > 0)
    return _outcome(gate, "badcases", fired, inputs, rule, evidence, f"no unconfirmed {named}")


def _outcome(
    gate: RuledGate, on: str, fired: bool, inputs: tuple[str, ...], rule: str, evidence: str, would_change: str
) -> Finding:
    state = GateState.FIRED if fired else GateState.PASSED
    return _finding(gate, on, state, inputs, rule, evidence, would_change if fired else "")


def _finding(
    gate: RuledGate,
    on: str,
    state: GateState,
    inputs: tuple[str, ...],
    rule: str,
    evidence: str,
    would_change: str = "",
) -> Finding:
    effects = gate.on_fire if state is GateState.FIRED else Effects()
    return Finding(gate.name, gate.kind, state, on, inputs, rule, evidence, would_change, None, effects)


def _told_signal(name: str, change: Change | None) -> str:
    return f"{name} not known" if change is None else f"{name} {change.old:.4g} -> {change.new:.4g}"


def _counts(found: MetricEvidence) -> str:
    return "no item counts" if found.n_items is None else f"n={found.n_items}"


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
            found = [safety(gate, name, view) for name in gate.reads(view.specs)]
        case RegressionGate():
            found = [regression(gate, name, view) for name in gate.metrics]
        case LimitGate():
            found = [limit(gate, name, view) for name in gate.metrics]
        case VerificationGate():
            found = [verification(gate, name, view) for name in gate.reads(view.specs)]
        case CostBudgetGate():
            found = [cost_budget(gate, view)]
        case JointGate():
            found = list(joint(gate, view))
        case LengthGate():
            found = list(length(gate, view))
        case HistoricalBestGate():
            found = [historical_best(gate, view)]
        case RewardPrivateGate():
            found = [reward_private(gate, view)]
        case DangerousActionGate():
            found = [dangerous_action(gate, view)]
        case LoopholeGate():
            found = [loophole(gate, view)]
    return [finding for finding in found if finding is not None]
