"""Rules over training: L01 historical best, L03 reward against the private split, L08 dangerous actions, L12 loophole.

Promises: pure. What they read is often not at hand (no history, no training log): then the gate is "not
evaluated" and says what it would need; that neither passes nor blocks anything. Missing numbers of a suite's own
metrics are reported by the rules over metrics.
"""

from collections.abc import Mapping

from agent2.contract.changes import tell_amount, tell_value
from agent2.contract.effects import Effects
from agent2.contract.evidence import Change, MetricEvidence
from agent2.contract.findings import SLACK, Finding, GateState, View, told
from agent2.contract.gates import (
    DangerousActionGate,
    HistoricalBestGate,
    LoopholeGate,
    RewardPrivateGate,
    RuledGate,
)
from agent2.contract.metrics import Direction, Unit, primary_of
from agent2.contract.rules_metric import worsening

LOG = "training log"


def historical_best(gate: HistoricalBestGate, view: View) -> Finding:
    """L01: fires when the last values, this one included, are all below the best before them by more than `drop`."""
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
    """L03: fires when the training reward rose and the primary metric on the private split fell."""
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
    """L12: fires when reward and KL rise while entropy and the primary metric fall."""
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
    """L08: fires when more rollouts hold a dangerous action than a human confirmed.

    Inconclusive where no scorer behind the numbers can give any of the gate's classes: nobody looked.
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
