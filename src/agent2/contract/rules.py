"""The rules that gates apply to the evidence: one list of findings, for every gate of a suite.

The evidence gate looks at counts, missing scores and clean shares only, never at whether the numbers are good, so a
worse score cannot make evidence better. A report without any counts is judged by point thresholds unless the suite
requires items; the decision says so.

Rules over metrics (each for one metric of one split) run on the main numbers and again on the private ones, where
those are kept beside them. A worse number never passes where a better one did not. Whether the evidence is good
enough is listed beside the outcome (`Finding.problems`), so that a pause is not lost to it.

Rules over training (historical best, reward against the private split, dangerous actions, loophole) run once. Their
inputs are often missing (no history, no training log): then the gate is "not evaluated" and names what it needs; that
neither passes nor blocks anything. Missing numbers of a suite's own metrics are reported by the rules over metrics.

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
    SplitEvidence,
    VerificationGate,
    describe_change,
    needs_of,
    scoped,
)
from agent2.contract.measure_rules import parse_measure
from agent2.contract.metrics import (
    Change,
    Direction,
    Evidence,
    MetricEvidence,
    MetricSpec,
    Role,
    Unit,
    format_amount,
    format_value,
    metrics_by_name,
    primary_of,
)
from agent2.errors import NotEnoughData
from agent2.stats.comparisons import SIGNIFICANCE, detectable_difference
from agent2.stats.estimates import Notation, PairedDifference

NO_COUNTS = "no item counts: point rule used"
NO_PAIRS = "item counts but no pairs: point rule used"
BY_ITEM = (Role.PRIMARY, Role.REGRESSION_GATE)
"""Roles whose regressions are judged item by item."""
LOG = "training log"
PRIVATE = "test_private"
ONCE = (HistoricalBestGate, RewardPrivateGate, DangerousActionGate, LoopholeGate)
"""Gates that are applied once, not again to the private numbers."""


def problems_of(spec: MetricSpec, numbers: MetricEvidence | None, needs: EvidenceNeeds) -> tuple[str, ...]:
    """Why the evidence of a metric is not good enough, one sentence each with what would fix it; empty if it is."""
    if numbers is None or not numbers.is_complete:
        return (_missing_side(spec, numbers),)
    problems = []
    if numbers.n_items is None:
        if needs.needs_items:
            problems.append(f"{spec.name}: no item counts, the suite asks for them; give them under `evidence:`")
    else:
        is_by_item = spec.role in BY_ITEM and parse_measure(spec.measure).is_paired
        if needs.needs_items and is_by_item and numbers.paired is None:
            problems.append(f"{spec.name}: item counts but no pairs, the suite asks for them; evaluate from cards")
        problems += _too_few(spec, numbers, numbers.n_items, needs)
        problems += _missing_scores(spec, numbers, numbers.n_items, needs)
    return (*problems, *_not_clean(spec, numbers, needs))


def rule_of(needs: EvidenceNeeds) -> str:
    """What the evidence gate requires, in words."""
    requirements = [
        f"at least {needs.min_items} items behind a metric that has counts",
        f"at most {format_value(needs.max_missing, Unit.RATE)} of them without a score on either side",
        f"at least {format_value(needs.min_clean_share, Unit.RATE)} clean rollouts on each side",
        f"clean shares no more than {100 * needs.max_clean_difference:.3g} points apart",
        "both sides of every required metric, under one protocol, and a control group",
    ]
    if needs.max_detectable is not None:
        requirements.append(f"counted rates without pairs able to show {100 * needs.max_detectable:.3g} points")
    if needs.needs_items:
        requirements.append("item counts, and pairs for primary and regression metrics")
    return "; ".join(requirements)


def basis_of(numbers: MetricEvidence) -> str:
    """What a metric rests on, in words."""
    if numbers.paired is not None:
        pair = numbers.paired
        counts = "" if pair.n_lost is None else f", {pair.n_won} won and {pair.n_lost} lost"
        basis = f"n={pair.change.n} paired items{counts} ({pair.change.method})"
    elif numbers.n_items is not None:
        basis = f"n={numbers.n_items}; {NO_PAIRS}"
    else:
        basis = NO_COUNTS
    missing = numbers.n_missing_old + numbers.n_missing_new
    parts = [basis, f"{numbers.n_missing_old} + {numbers.n_missing_new} missing" if missing else ""]
    if numbers.noise is not None:
        parts.append(f"noise band +-{numbers.noise:.3g}")
    return "; ".join(part for part in parts if part)


def _missing_side(spec: MetricSpec, numbers: MetricEvidence | None) -> str:
    if numbers is not None and numbers.problem:
        return f"{spec.name}: {numbers.problem}"
    if numbers is None or (numbers.old is None and numbers.new is None):
        return f"{spec.name}: no number on either side; evaluate it on both"
    side = "baseline" if numbers.old is None else "checkpoint"
    hint = "a score without its control is not evidence of improvement" if side == "baseline" else "evaluate it"
    return f"{spec.name}: no number for the {side}; {hint}"


def _too_few(spec: MetricSpec, numbers: MetricEvidence, n_items: int, needs: EvidenceNeeds) -> list[str]:
    if n_items < needs.min_items:
        return [f"{spec.name}: {n_items} items, at least {needs.min_items} are needed; evaluate more items"]
    if needs.max_detectable is None or spec.unit is not Unit.RATE or numbers.paired is not None:
        return []
    detectable = _detectable(n_items, needs.assumed_discordance)
    if detectable is None or detectable > needs.max_detectable:
        visible = "nothing" if detectable is None else f"differences from {100 * detectable:.1f} points up"
        return [
            f"{spec.name}: {n_items} items show {visible}, {100 * needs.max_detectable:.3g} points must be seen "
            f"(power 0.8, discordance {needs.assumed_discordance:g}); evaluate more items"
        ]
    return []


@functools.lru_cache(maxsize=256)
def _detectable(n_items: int, discordance: float) -> float | None:
    try:
        return detectable_difference(n_items, discordance).difference
    except NotEnoughData:
        return None  # even the largest possible difference would be missed; the caller reports that


def _missing_scores(spec: MetricSpec, numbers: MetricEvidence, n_items: int, needs: EvidenceNeeds) -> list[str]:
    problems = []
    for side, missing in (("baseline", numbers.n_missing_old), ("checkpoint", numbers.n_missing_new)):
        n_played = max(n_items + missing, 1)
        if missing / n_played > needs.max_missing:
            problems.append(
                f"{spec.name}: {missing} of {n_played} items have no score for the {side}, at most "
                f"{format_value(needs.max_missing, Unit.RATE)} may be missing; score or play them again"
            )
    return problems


def _not_clean(spec: MetricSpec, numbers: MetricEvidence, needs: EvidenceNeeds) -> list[str]:
    problems = []
    for side, clean in (("baseline", numbers.clean_old), ("checkpoint", numbers.clean_new)):
        if clean is not None and clean < needs.min_clean_share:
            problems.append(
                f"{spec.name}: {format_value(clean, Unit.RATE)} of the rollouts are clean for the {side}, at least "
                f"{format_value(needs.min_clean_share, Unit.RATE)} are needed; fix what failed and play again"
            )
    if numbers.clean_old is not None and numbers.clean_new is not None:
        difference = abs(numbers.clean_old - numbers.clean_new)
        if difference > needs.max_clean_difference + 1e-9:
            problems.append(
                f"{spec.name}: clean shares differ by {100 * difference:.1f} points between the sides, at most "
                f"{100 * needs.max_clean_difference:.3g} are accepted; the side that failed more is not comparable"
            )
    return problems


class _Case:
    """One gate on one metric of a split; makes the findings about them."""

    def __init__(self, gate: RuledGate, name: str, split: SplitEvidence) -> None:
        self.gate, self.split = gate, split
        self.spec = split.spec(name)
        self.numbers = split.numbers(name)

    @property
    def is_skipped(self) -> bool:
        """Whether the private split, beside the main one, lacks the metric: there is no finding then."""
        return self.numbers is None and not self.split.is_main

    def missing(self, rule: str) -> Finding | None:
        """The finding where a side has no number; None: both have."""
        if self.numbers is not None and self.numbers.is_complete:
            return None
        if self.numbers is None and not self.spec.is_required:
            change = f"report {self.spec.name} for both sides"
            return self._finding(GateState.NOT_EVALUATED, rule, "not reported; the suite does not require it", change)
        problems = problems_of(self.spec, self.numbers, self.gate.evidence or self.split.needs)
        return self._finding(GateState.NOT_EVALUATED, rule, "no number to judge", problems[0], problems=problems)

    def judged(self, fired: bool | None, rule: str, basis: str, would_change: str) -> Finding:
        """The finding of a rule that was applied; fired None: inconclusive."""
        problems = problems_of(self.spec, self.numbers, self.gate.evidence or self.split.needs)
        state = GateState.INCONCLUSIVE if fired is None else GateState.FIRED if fired else GateState.PASSED
        effects = scoped(self.gate.on_fire, self.spec) if fired else Effects()
        change = would_change if state is not GateState.PASSED else "; ".join(problems)
        return self._finding(state, rule, basis, change, effects, problems)

    def _finding(
        self,
        state: GateState,
        rule: str,
        basis: str,
        would_change: str,
        effects: Effects | None = None,
        problems: tuple[str, ...] = (),
    ) -> Finding:
        return Finding(
            gate=self.gate.name,
            kind=self.gate.kind,
            state=state,
            on=self.split.on,
            inputs=(describe_change(self.spec, self.numbers),),
            rule=rule,
            evidence=basis,
            would_change=would_change,
            metric=self.spec.name,
            effects=effects or Effects(),
            problems=problems,
        )


def worsening(spec: MetricSpec, numbers: MetricEvidence) -> float:
    """How much worse the new value is, in points of a rate, else as a share of the old value; above 0 is worse.

    From an old value of 0 any rise of a length or count is an infinite share.
    """
    old, new = numbers.values()
    raw = spec.worsening(old, new)
    if spec.unit is Unit.RATE:
        return raw
    return _share(raw, old)


def relative_rise(numbers: MetricEvidence) -> float:
    """(new - old) / old, of lengths and costs; infinite for a rise from 0."""
    old, new = numbers.values()
    return _share(new - old, old)


def safety(gate: SafetyGate, name: str, split: SplitEvidence) -> Finding | None:
    """Fires when a safety metric is worse by more than the tolerance, significant or not."""
    case = _Case(gate, name, split)
    by = f" by more than {format_amount(gate.tolerance, case.spec.unit)}" if gate.tolerance else ""
    rule = f"fires when it gets worse{by}, significant or not"
    return None if case.is_skipped else case.missing(rule) or _by_point(case, gate.tolerance, rule)


def regression(gate: RegressionGate, name: str, split: SplitEvidence) -> Finding | None:
    """Fires on a significant regression; see the gate for the rule with and without pairs."""
    case = _Case(gate, name, split)
    tolerance, margin = (format_amount(amount, case.spec.unit) for amount in (gate.tolerance, gate.margin))
    point = f"fires when it gets worse by more than {tolerance}"
    if case.is_skipped:
        return None
    if (missing := case.missing(point)) is not None:
        return missing
    numbers = case.numbers
    if numbers is None or numbers.paired is None:
        return _by_point(case, gate.tolerance, point)
    rule = (
        f"fires when shown to be worse by more than {margin}, or worse by more than {tolerance} and significant; "
        f"passes when shown to be no worse than {margin}"
    )
    return _by_pairs(case, gate, numbers, numbers.paired, rule)


def limit(gate: LimitGate, name: str, split: SplitEvidence) -> Finding | None:
    """Fires when the new value is beyond an absolute limit."""
    case = _Case(gate, name, split)
    is_upper = gate.at_most is not None
    bound = gate.at_most if gate.at_most is not None else gate.at_least
    if bound is None:
        raise ValueError(f"gate {gate.name!r} has no limit")
    edge = format_value(bound, case.spec.unit)
    rule = f"fires when the new value is {'above' if is_upper else 'below'} {edge}"
    if case.is_skipped:
        return None
    if (missing := case.missing(rule)) is not None or case.numbers is None:
        return missing
    new = case.numbers.values()[1]
    fired = new > bound + SLACK if is_upper else new < bound - SLACK
    return case.judged(fired, rule, basis_of(case.numbers), f"{case.spec.name} {'<=' if is_upper else '>='} {edge}")


def cost_budget(gate: CostBudgetGate, split: SplitEvidence) -> Finding | None:
    """Fires when the cost is beyond budget * (1 + max_excess), whether success rose or not."""
    case = _Case(gate, gate.cost, split)
    unit = case.spec.unit
    budget = "the baseline's cost" if gate.budget is None else format_value(gate.budget, unit)
    rule = f"fires when the cost exceeds {budget} by more than {100 * gate.max_excess:.3g}%"
    if case.is_skipped:
        return None
    if (missing := case.missing(rule)) is not None or case.numbers is None:
        return missing
    old, new = case.numbers.values()
    limit = (old if gate.budget is None else gate.budget) * (1.0 + gate.max_excess)
    success = split.numbers(gate.success)
    beside = f"beside {describe_change(split.spec(gate.success), success)}"
    change = f"{case.spec.name} <= {format_value(limit, unit)}"
    return case.judged(new > limit + SLACK * max(1.0, limit), rule, f"{basis_of(case.numbers)}; {beside}", change)


def joint(gate: JointGate, split: SplitEvidence) -> list[Finding]:
    """Success must hold and its cost must hold; one finding for each."""
    findings = []
    success, cost = _Case(gate, gate.success, split), _Case(gate, gate.cost, split)
    rule = f"fires when it falls by more than {format_amount(gate.tolerance, success.spec.unit)}, its cost held or not"
    if not success.is_skipped:
        findings.append(success.missing(rule) or _by_point(success, gate.tolerance, rule))
    rule = f"fires when it rises by more than {100 * gate.max_rise:.3g}%, whatever success gains"
    if not cost.is_skipped:
        findings.append(cost.missing(rule) or _by_rise(cost, gate.max_rise, rule))
    return findings


def length(gate: LengthGate, split: SplitEvidence) -> list[Finding]:
    """Fires when answers got longer than accepted; one finding for each limit that is set."""
    findings = []
    case = _Case(gate, gate.metric, split)
    if case.is_skipped:
        return []
    if gate.max_rise is not None:
        rule = f"fires when it rises by more than {100 * gate.max_rise:.3g}%"
        findings.append(case.missing(rule) or _by_rise(case, gate.max_rise, rule))
    if gate.at_most is not None:
        edge = format_value(gate.at_most, case.spec.unit)
        rule = f"fires when the new value is above {edge}"
        missing = case.missing(rule)
        if missing is not None or case.numbers is None:
            findings += [missing] if missing is not None else []
        else:
            fired = case.numbers.values()[1] > gate.at_most + SLACK
            findings.append(case.judged(fired, rule, basis_of(case.numbers), f"{case.spec.name} <= {edge}"))
    return findings


def verification(gate: VerificationGate, name: str, split: SplitEvidence) -> Finding | None:
    """Fires unless the metric is better and few enough items were lost; inconclusive without pairs."""
    case = _Case(gate, name, split)
    rule = (
        f"fires unless it gets better and at most {format_value(gate.max_lost_share, Unit.RATE)} of the items "
        "that passed before are lost"
    )
    if case.is_skipped:
        return None
    if (missing := case.missing(rule)) is not None or case.numbers is None:
        return missing
    if worsening(case.spec, case.numbers) >= -SLACK:
        return case.judged(True, rule, basis_of(case.numbers), f"{case.spec.name} better than before")
    paired = case.numbers.paired
    if paired is None or paired.n_lost is None:
        return case.judged(None, rule, basis_of(case.numbers), "paired verdicts, so that lost items can be counted")
    passed_before = round(case.numbers.values()[0] * paired.change.n)
    allowed = int(gate.max_lost_share * passed_before + SLACK)
    lost = f"{paired.n_lost} of {passed_before} items that passed before are lost"
    change = f"at most {allowed} lost items; agent2 regress lists them"
    return case.judged(paired.n_lost > allowed, rule, f"{basis_of(case.numbers)}; {lost}", change)


def _by_point(case: _Case, tolerance: float, rule: str) -> Finding:
    numbers, spec = case.numbers, case.spec
    if numbers is None:
        raise ValueError(f"{spec.name}: nothing to judge")
    fired = worsening(spec, numbers) > tolerance + SLACK
    change = f"{spec.name} back to {_edge(spec, numbers.values()[0], tolerance)}"
    return case.judged(fired, rule, basis_of(numbers), change)


def _by_rise(case: _Case, max_rise: float, rule: str) -> Finding:
    numbers, spec = case.numbers, case.spec
    if numbers is None:
        raise ValueError(f"{spec.name}: nothing to judge")
    edge = format_value(numbers.values()[0] * (1.0 + max_rise), spec.unit)
    fired = relative_rise(numbers) > max_rise + SLACK
    return case.judged(fired, rule, basis_of(numbers), f"{spec.name} back to <= {edge}")


def _by_pairs(case: _Case, gate: RegressionGate, numbers: MetricEvidence, pair: PairedDifference, rule: str) -> Finding:
    """The rule on paired items: the fall of the metric, with its interval, against the gate's margin and tolerance."""
    spec = case.spec
    old = numbers.values()[0]
    # Both thresholds in the metric's units, as the difference is: they are relative for all but rates.
    scale = 1.0 if spec.unit is Unit.RATE else abs(old)
    margin, tolerance = gate.margin * scale, gate.tolerance * scale
    fall = pair.change.scaled(-1.0 if spec.direction is Direction.HIGHER else 1.0)
    least_fall, largest_fall = fall.interval
    fired: bool | None
    if least_fall > margin + SLACK or (pair.p_value <= SIGNIFICANCE and fall.value > tolerance + SLACK):
        fired = True
    elif largest_fall < margin:
        fired = False
    else:
        fired = None
    notation = Notation("+.1f", 100.0 / scale if scale else 0.0)
    unit = "points" if spec.unit is Unit.RATE else "%"
    basis = f"difference {notation.estimate(pair.change)} {unit}, p={pair.p_value:.2g}; {basis_of(numbers)}"
    change = f"{spec.name} back to {_edge(spec, old, gate.tolerance)}"
    if fired is None:
        room, half_width = margin - fall.value, largest_fall - fall.value
        if room > SLACK:  # the width of the interval shrinks with the root of the number of items
            n_needed = round(pair.change.n * (half_width / room) ** 2)
            change = f"about {n_needed} items if the difference stays as it is ({pair.change.n} now)"
        else:
            change = f"{change}, or more items that show the drop to be real"
    return case.judged(fired, rule, basis, change)


def _edge(spec: MetricSpec, old: float, tolerance: float) -> str:
    """The value at which a gate on worsening would not fire, as text."""
    amount = tolerance if spec.unit is Unit.RATE else tolerance * abs(old)
    if spec.direction is Direction.HIGHER:
        return f">= {format_value(max(0.0, old - amount), spec.unit)}"
    return f"<= {format_value(old + amount, spec.unit)}"


def _share(raw: float, old: float) -> float:
    if old != 0.0:
        return raw / abs(old)
    return 0.0 if raw == 0.0 else float("inf") if raw > 0.0 else float("-inf")


def historical_best(gate: HistoricalBestGate, split: SplitEvidence) -> Finding:
    """Fires when the last values, this one included, are all below the best before them by more than `drop`."""
    primary = primary_of(split.specs)
    numbers = split.metrics.get(primary.name)
    earlier = split.evidence.history.get(primary.name, ())
    unit = Unit.RATE if gate.unit == "points" and primary.unit is Unit.RATE else Unit.NUMBER
    drop = format_amount(gate.drop, unit) + ("" if unit is Unit.RATE else " of the best")
    rule = (
        f"fires when {gate.evaluations} evaluations in a row are worse than the historical best by more than {drop}"
        if gate.evaluations > 1
        else f"fires when the evaluation is worse than the historical best by more than {drop}"
    )
    if numbers is None or numbers.new is None:
        inputs = (describe_change(primary, numbers),)
        return _finding(gate, split.on, GateState.NOT_EVALUATED, inputs, rule, "no new value")
    values = [*earlier, numbers.new]
    recent = ", ".join(format_value(value, primary.unit) for value in values[-(gate.evaluations + 4) :])
    inputs = (f"{primary.name}, latest last: {recent}",)
    if len(values) <= gate.evaluations:
        lack = f"historical best absent: {len(earlier)} earlier evaluations known, {gate.evaluations} needed"
        change = "give earlier values under `history:` or with --history"
        return _finding(gate, split.on, GateState.NOT_EVALUATED, inputs, rule, lack, change)
    before, latest = values[: -gate.evaluations], values[-gate.evaluations :]
    best = max(before) if primary.direction is Direction.HIGHER else min(before)
    room = gate.drop if unit is Unit.RATE else gate.drop * abs(best)
    fired = all(primary.worsening(best, value) > room + SLACK for value in latest)
    edge = best - room if primary.direction is Direction.HIGHER else best + room
    sign = ">=" if primary.direction is Direction.HIGHER else "<="
    basis = f"best {format_value(best, primary.unit)} of {len(before)} evaluations before"
    change = f"one of the last {gate.evaluations} evaluations {sign} {format_value(edge, primary.unit)}"
    return _outcome(gate, split.on, fired, inputs, rule, basis, change)


def reward_private(gate: RewardPrivateGate, split: SplitEvidence) -> Finding:
    """Fires when the training reward rose and the primary metric on the private split fell."""
    primary = primary_of(split.specs)
    reward, numbers = split.evidence.training.reward, split.evidence.private_evidence().get(primary.name)
    rule = "fires when the training reward rises and the primary metric on test_private falls"
    if gate.tolerance:
        rule += f" by more than {format_amount(gate.tolerance, primary.unit)}"
    inputs = (_describe_signal("reward", reward), f"test_private: {describe_change(primary, numbers)}")
    if reward is None or numbers is None or not numbers.is_complete:
        lack = "no training reward" if reward is None else "no private score of both sides"
        change = "give `training: {reward: old -> new}`" if reward is None else "evaluate test_private on both sides"
        return _finding(gate, f"{LOG}, test_private", GateState.NOT_EVALUATED, inputs, rule, lack, change)
    fired = reward.rose and worsening(primary, numbers) > gate.tolerance + SLACK
    change = f"{primary.name} on test_private back to {format_value(numbers.old, primary.unit)}"
    return _outcome(gate, f"{LOG}, test_private", fired, inputs, rule, _counts(numbers), change)


def loophole(gate: LoopholeGate, split: SplitEvidence) -> Finding:
    """Fires when reward and KL rise while entropy and the primary metric fall."""
    primary = primary_of(split.specs)
    signals, numbers = split.evidence.training, split.metrics.get(primary.name)
    rule = "fires when reward and KL rise while entropy and the primary metric fall"
    inputs = (
        _describe_signal("reward", signals.reward),
        _describe_signal("kl", signals.kl),
        _describe_signal("entropy", signals.entropy),
        describe_change(primary, numbers),
    )
    reward, kl, entropy = signals.reward, signals.kl, signals.entropy
    if reward is None or kl is None or entropy is None or numbers is None or not numbers.is_complete:
        change = "give `training: {reward: ..., kl: ..., entropy: ...}`, each as old -> new"
        lack = "not all four signals are known"
        return _finding(gate, f"{LOG}, {split.on}", GateState.NOT_EVALUATED, inputs, rule, lack, change)
    fired = reward.rose and kl.rose and entropy.fell and worsening(primary, numbers) > SLACK
    change = f"{primary.name} back to {format_value(numbers.old, primary.unit)}"
    return _outcome(gate, f"{LOG}, {split.on}", fired, inputs, rule, _counts(numbers), change)


def dangerous_action(gate: DangerousActionGate, split: SplitEvidence) -> Finding:
    """Fires when more rollouts hold a dangerous action than a human confirmed.

    Inconclusive where no scorer behind the numbers can give any of the gate's classes: nothing could have shown them.
    """
    dangers = ", ".join(gate.actions) if gate.actions else "any dangerous action (safety_...)"
    rule = f"fires when a rollout holds {'one of ' if gate.actions else ''}{dangers} that no human confirmed"
    counts: Mapping[str, int] | None = split.evidence.badcases
    if counts is None:
        change = "report badcase classes (badcase_top), or evaluate from cards"
        return _finding(gate, "badcases", GateState.NOT_EVALUATED, (), rule, "no badcases reported", change)
    confirmed = split.evidence.confirmed_actions
    dangerous = [name for name in sorted(counts) if gate.is_dangerous(name)]
    declared = split.evidence.declared_labels
    if not dangerous and declared is not None and not any(map(gate.is_dangerous, declared)):
        lack = f"no scorer of these cards can give {dangers}"
        change = "name classes that the scorers give, or remove the gate"
        return _finding(gate, "badcases", GateState.INCONCLUSIVE, (), rule, lack, change)
    open_cases = {name: counts[name] - confirmed.get(name, 0) for name in dangerous}
    inputs = tuple(f"{name}: {counts[name]} cases, {confirmed.get(name, 0)} confirmed" for name in dangerous)
    fired = any(count > 0 for count in open_cases.values())
    basis = "counted in the badcases of the checkpoint" if inputs else "none among the badcases reported"
    unconfirmed = ", ".join(name for name, count in open_cases.items() if count > 0)
    return _outcome(gate, "badcases", fired, inputs, rule, basis, f"no unconfirmed {unconfirmed}")


def _outcome(
    gate: RuledGate, on: str, fired: bool, inputs: tuple[str, ...], rule: str, basis: str, would_change: str
) -> Finding:
    state = GateState.FIRED if fired else GateState.PASSED
    return _finding(gate, on, state, inputs, rule, basis, would_change if fired else "")


def _finding(
    gate: RuledGate,
    on: str,
    state: GateState,
    inputs: tuple[str, ...],
    rule: str,
    basis: str,
    would_change: str = "",
) -> Finding:
    effects = gate.on_fire if state is GateState.FIRED else Effects()
    return Finding(gate.name, gate.kind, state, on, inputs, rule, basis, would_change, None, effects)


def _describe_signal(name: str, change: Change | None) -> str:
    return f"{name} not known" if change is None else f"{name} {change.old:.4g} -> {change.new:.4g}"


def _counts(numbers: MetricEvidence) -> str:
    return "no item counts" if numbers.n_items is None else f"n={numbers.n_items}"


def evaluate_gates(metrics: Sequence[MetricSpec], gates: Sequence[GateSpec], evidence: Evidence) -> list[Finding]:
    """The findings of every gate, in the order of the gates; the gates on evidence itself are not among them."""
    by_name, needs = metrics_by_name(metrics), needs_of(gates)
    main = SplitEvidence(metrics, by_name, evidence.metrics, evidence.split or "report", True, evidence, needs)
    splits = [main]
    if evidence.private_metrics:
        splits.append(SplitEvidence(metrics, by_name, evidence.private_metrics, PRIVATE, False, evidence, needs))
    findings: list[Finding] = []
    for gate in gates:
        if isinstance(gate, EvidenceGate | ReleaseEvidenceGate):
            continue
        for split in splits[:1] if isinstance(gate, ONCE) else splits:
            findings += _apply(gate, split)
    return findings


def _apply(gate: RuledGate, split: SplitEvidence) -> list[Finding]:
    findings: list[Finding | None]
    match gate:
        case SafetyGate():
            findings = [safety(gate, name, split) for name in gate.reads(split.specs)]
        case RegressionGate():
            findings = [regression(gate, name, split) for name in gate.metrics]
        case LimitGate():
            findings = [limit(gate, name, split) for name in gate.metrics]
        case VerificationGate():
            findings = [verification(gate, name, split) for name in gate.reads(split.specs)]
        case CostBudgetGate():
            findings = [cost_budget(gate, split)]
        case JointGate():
            findings = list(joint(gate, split))
        case LengthGate():
            findings = list(length(gate, split))
        case HistoricalBestGate():
            findings = [historical_best(gate, split)]
        case RewardPrivateGate():
            findings = [reward_private(gate, split)]
        case DangerousActionGate():
            findings = [dangerous_action(gate, split)]
        case LoopholeGate():
            findings = [loophole(gate, split)]
    return [finding for finding in findings if finding is not None]
