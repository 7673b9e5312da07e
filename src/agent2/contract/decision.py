"""The decision: may training continue, may the checkpoint be released, where should the next data come from.

Precedence of the release decision, most severe first:

    insufficient     the evidence gate: bad evidence, whatever the numbers say
    block            a gate blocks everywhere
    block_for_<scope>  a gate blocks for some tasks
    research_only    a gate keeps the checkpoint out of deployment
    insufficient     no gate fired, but one is inconclusive
    candidate        no gate fired
    release          no gate fired, on private evidence that shows an improvement, computed from cards, with a human
                     spot check

The training action is the most severe one of the gates that fired and does not wait for good evidence: a pause costs
little. Promises: pure and deterministic; worse numbers and less evidence never give a better decision
(`docs/decisions.md` says exactly what that means). The training reward is never evidence of improvement.

An improvement is shown if, on the same items, `stats.comparisons.judge` calls the paired difference better (interval,
p-value and, where it is known, noise band). A difference of two percentages without pairs is seen, not shown; `release`
needs the first.

Every report also answers whether capabilities improved, preferences are aligned and the reward is distorted. What was
not measured is stated as unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from agent2.contract.gates import (
    BLOCK_FOR,
    CANDIDATE,
    INSUFFICIENT,
    NO_EFFECT,
    PASSES,
    RELEASE,
    RESEARCH_ONLY,
    SLACK,
    TRAINING_SEVERITY,
    Finding,
    GateSpec,
    GateState,
    ReleaseEvidenceGate,
    TrainingAction,
    check_gates,
    needs_of,
    release_severity,
)
from agent2.contract.metrics import Direction, Evidence, MetricEvidence, MetricSpec, Role, Unit, primary_of, tell_change
from agent2.contract.rules import NO_COUNTS, NO_PAIRS, evaluate_gates, problems_of, rule_of, worsening
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
        return Improvement.NONE if pair.change.interval == (0.0, 0.0) else Improvement.NOT_SHOWN
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


REWARD_KINDS = frozenset({"reward_private", "loophole", "length"})
"""Gates that speak about a distorted reward."""
PREFERENCE_WORDS = ("win_rate", "preference", "elo")


@dataclass(frozen=True, slots=True)
class Answers:
    """One sentence or two for each question."""

    capabilities_improved: str
    preferences_aligned: str
    reward_distorted: str
    may_continue_training: str
    may_be_deployed: str
    next_data_from: str


def answer_questions(
    metrics: Sequence[MetricSpec],
    evidence: Evidence,
    findings: Sequence[Finding],
    release: str,
    action: TrainingAction,
    next_data: Sequence[str],
) -> Answers:
    """All six answers."""
    fired = [finding for finding in findings if finding.fired]
    acting = [f"gate {finding.gate}" for finding in fired if finding.effects.training is action]
    if evidence.broken and action is TrainingAction.PAUSE:
        acting.append("a broken checkpoint")
    may_continue = {
        TrainingAction.CONTINUE: "yes: no gate asks for a pause",
        TrainingAction.PAUSE: "not now: pause",
        TrainingAction.PAUSE_HUMAN_REVIEW: "not now: pause, and have people review it",
        TrainingAction.ROLLBACK: "no: roll back to an earlier checkpoint",
    }[action]
    if action is not TrainingAction.CONTINUE:
        may_continue += f" ({', '.join(dict.fromkeys(acting))})"
    return Answers(
        capabilities_improved=_capabilities(metrics, evidence),
        preferences_aligned=_preferences(metrics, evidence),
        reward_distorted=_distortion(metrics, evidence, findings),
        may_continue_training=may_continue,
        may_be_deployed=_deployment(release, evidence.baseline),
        next_data_from="; ".join(next_data) or "no gate fired and no badcase is reported: nowhere in particular",
    )


def _capabilities(metrics: Sequence[MetricSpec], evidence: Evidence) -> str:
    told_as: dict[str, list[str]] = {"better": [], "worse": [], "unclear": [], "moved, without paired items": []}
    unknown = []
    for metric in metrics:
        if metric.role is Role.DIAGNOSTIC or _is_preference(metric):
            continue
        found = evidence.metrics.get(metric.name)
        if found is None or not found.is_complete:
            unknown.append(metric.name)
            continue
        told = f"{metric.name} {tell_change(found.old, found.new, metric.unit)}"
        if abs(worsening(metric, found)) <= SLACK:
            continue
        if found.paired is None:
            told_as["moved, without paired items"].append(told)
        else:
            is_higher_better = metric.direction is Direction.HIGHER
            told_as[judge(found.paired, found.noise, is_higher_better=is_higher_better).claim].append(told)
    primary = primary_of(metrics)
    parts = [told_improvement(primary, evidence.metrics.get(primary.name))]
    parts += [f"{word}: {', '.join(told)}" for word, told in told_as.items() if told]
    parts += [f"not known: {', '.join(unknown)}"] if unknown else []
    return "; ".join(parts)


def _preferences(metrics: Sequence[MetricSpec], evidence: Evidence) -> str:
    told = []
    for metric in metrics:
        found = evidence.metrics.get(metric.name)
        if _is_preference(metric) and found is not None and found.is_complete:
            told.append(f"{metric.name} {tell_change(found.old, found.new, metric.unit)}")
    return ", ".join(told) or "not measured: the evidence holds no win rate or other preference metric"


def _distortion(metrics: Sequence[MetricSpec], evidence: Evidence, findings: Sequence[Finding]) -> str:
    fired = [f"{f.gate}: {', '.join(f.inputs)}" for f in findings if f.fired and f.kind in REWARD_KINDS]
    if fired:
        return f"signs of it: {'; '.join(fired)}"
    reward, primary = evidence.training.reward, primary_of(metrics)
    found = evidence.metrics.get(primary.name)
    if reward is None:
        quiet = any(f.state is GateState.PASSED for f in findings if f.kind in REWARD_KINDS)
        return f"not known: no training log was given{'; the gates that could run saw no sign' if quiet else ''}"
    if found is not None and found.is_complete and reward.rose and worsening(primary, found) > SLACK:
        return "signs of it: the training reward rose while the primary metric fell"
    return "no sign of it in the training reward and the benchmarks"


def _deployment(release: str, baseline: str | None) -> str:
    keep = f"keep {baseline} as release candidate" if baseline else "keep the previous checkpoint as release candidate"
    if release == RELEASE:
        return "yes"
    if release == CANDIDATE:
        return "not yet: a candidate; release needs private evidence and a human spot check"
    if release == RESEARCH_ONLY:
        return f"no: research only; {keep}"
    if release == INSUFFICIENT:
        return f"not known: the evidence is insufficient; {keep}"
    if release.startswith(BLOCK_FOR):
        return f"not for {release.removeprefix(BLOCK_FOR)}; {keep} there"
    return f"no; {keep}"


def _is_preference(metric: MetricSpec) -> bool:
    return any(word in metric.name for word in PREFERENCE_WORDS)


TOP_BADCASES = 3
NO_CAUSES: Mapping[str, str] = MappingProxyType({})
CURES: Mapping[str, str] = MappingProxyType(
    {
        "data": "attributed to data: supplement training items of this class",
        "reward": "attributed to the reward: fix it or split it, then train again on this class",
        "algorithm": "attributed to the algorithm: look at steps, credit and exploration on this class",
        "tools": "attributed to tools: add trajectories that recover from this error",
        "evaluation": "attributed to the evaluation: fix the scorer before anything is trained on it",
        "safety": "attributed to safety: add tasks in which it must be refused or confirmed",
    }
)
"""What follows for the next round from what a class of bad cases is attributed to."""
UNATTRIBUTED = "not in the suite's taxonomy: attribute it to data, reward, algorithm, tools, evaluation or safety first"


@dataclass(frozen=True, slots=True)
class Decision:
    """The three outputs, kept apart, and everything that led to them."""

    checkpoint: str
    baseline: str | None
    release: str
    """`release`, `candidate`, `research_only`, `block_for_<scope>`, `block` or `insufficient`."""
    training_action: TrainingAction
    next_data: tuple[str, ...]
    """Where the next round's data or reward should be supplemented, from the gates that fired and the badcases."""
    reasons: tuple[str, ...]
    """Why the release decision is what it is, the deciding reasons only."""
    would_change: tuple[str, ...]
    """What would have to be different for a better release decision."""
    findings: tuple[Finding, ...]
    """Every gate that was looked at, in the suite's order."""
    problems: tuple[str, ...]
    """What the evidence gate found; any makes the decision `insufficient`."""
    evidence_rule: str
    """What the evidence gate asks for."""
    lacking: tuple[str, ...]
    """What `release` needs beyond `candidate` and is not there."""
    also: tuple[str, ...]
    """Release effects of other severity that fired as well and that the decision does not show."""
    basis: str
    """How numbers were judged: paired items, or point thresholds for want of counts or pairs."""
    answers: Answers
    notes: tuple[str, ...] = ()

    @property
    def passes(self) -> bool:
        """`release` or `candidate`."""
        return self.release in PASSES

    @property
    def fired(self) -> tuple[Finding, ...]:
        """The findings of gates that fired."""
        return tuple(finding for finding in self.findings if finding.fired)


def decide(
    metrics: Sequence[MetricSpec],
    gates: Sequence[GateSpec],
    evidence: Evidence,
    causes: Mapping[str, str] = NO_CAUSES,
) -> Decision:
    """Apply a suite's gates to evidence.

    causes: badcase class -> what it is attributed to, as in the suite's failure taxonomy.
    Raises ConfigError if gates and metrics do not fit each other, never for what the evidence holds: bad evidence
    is a decision, `insufficient`.
    """
    check_gates(metrics, gates)
    findings = evaluate_gates(metrics, gates, evidence)
    problems = _unique([*_general_problems(metrics, gates, evidence), *(p for f in findings for p in f.problems)])
    lacking = _lacking_for_release(metrics, gates, evidence)
    floor = tuple(_at_the_floor(primary_of(metrics), evidence))
    release, reasons, change = _release(findings, problems, floor, lacking)
    if release == INSUFFICIENT:
        problems = _unique([*problems, *floor])
    effects = _unique(f.effects.release for f in findings if f.fired and f.effects.release != NO_EFFECT)
    actions = [finding.effects.training for finding in findings if finding.fired]
    if evidence.broken:  # more steps do not repair weights that are not numbers
        actions.append(TrainingAction.PAUSE)
    action = max(actions, key=TRAINING_SEVERITY.__getitem__, default=TrainingAction.CONTINUE)
    next_data = _next_data(findings, evidence, causes)
    return Decision(
        checkpoint=evidence.checkpoint,
        baseline=evidence.baseline,
        release=release,
        training_action=action,
        next_data=next_data,
        reasons=reasons,
        would_change=change,
        findings=tuple(findings),
        problems=problems,
        evidence_rule=rule_of(needs_of(gates)),
        lacking=lacking,
        also=tuple(effect for effect in effects if release_severity(effect) != release_severity(release)),
        basis=_basis(evidence),
        answers=answer_questions(metrics, evidence, findings, release, action, next_data),
        notes=evidence.notes,
    )


def _release(
    findings: Sequence[Finding], problems: tuple[str, ...], floor: tuple[str, ...], lacking: tuple[str, ...]
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The decision, its reasons and what would change it.

    Bad evidence comes first: a gate that fired on it proves nothing. A primary metric at 0% on both sides is good
    evidence for a gate that fired, such as one of dangerous actions, and none for a pass.
    """
    if problems:
        return INSUFFICIENT, (*problems, *floor), (*problems, *floor)
    fired = [finding for finding in findings if finding.fired and finding.effects.release != NO_EFFECT]
    if fired:
        worst = max(release_severity(finding.effects.release) for finding in fired)
        deciding = [finding for finding in fired if release_severity(finding.effects.release) == worst]
        reasons = tuple(f"gate {f.gate} ({f.on}): {', '.join(f.inputs)}; {f.rule}; {f.evidence}" for f in deciding)
        return _joined([f.effects.release for f in deciding]), reasons, _changes(fired)
    if floor:
        return INSUFFICIENT, floor, floor
    unsure = [finding for finding in findings if finding.state is GateState.INCONCLUSIVE]
    if unsure:
        reasons = tuple(f"gate {f.gate} ({f.on}) is inconclusive: {', '.join(f.inputs)}; {f.evidence}" for f in unsure)
        return INSUFFICIENT, reasons, _changes(unsure)
    if lacking:
        return CANDIDATE, ("no gate fired", *(f"not `release`: {reason}" for reason in lacking)), lacking
    return RELEASE, ("no gate fired, on private evidence and with a human spot check",), ()


def _joined(effects: Sequence[str]) -> str:
    """One decision out of effects of equal severity; several scopes are named together."""
    if not effects[0].startswith(BLOCK_FOR):
        return effects[0]
    return BLOCK_FOR + "_and_".join(sorted({effect.removeprefix(BLOCK_FOR) for effect in effects}))


def _changes(findings: Iterable[Finding]) -> tuple[str, ...]:
    return _unique(f"{finding.would_change} (gate {finding.gate})" for finding in findings if finding.would_change)


def _general_problems(metrics: Sequence[MetricSpec], gates: Sequence[GateSpec], evidence: Evidence) -> list[str]:
    """Problems that no single gate sees."""
    problems = []
    if evidence.baseline is None:
        problems.append("no control group: neither report nor suite names a baseline; pass one and evaluate it")
    problems += [f"incomparable: {clause}; evaluate both sides under one protocol" for clause in evidence.incomparable]
    problems += [f"{sentence}; that is a broken checkpoint, not a low score: fix it" for sentence in evidence.broken]
    if evidence.role == "candidate" and not evidence.private_evidence():
        problems.append("a release candidate without private evidence; evaluate test_private on both sides")
    needs = needs_of(gates)
    for metric in metrics:
        found = evidence.metrics.get(metric.name)
        is_absent = found is None and not metric.is_required
        if not is_absent and (found is None or not found.is_complete):
            problems += problems_of(metric, found, needs)
    return problems


def _at_the_floor(primary: MetricSpec, evidence: Evidence) -> list[str]:
    """Where neither side solves anything, nothing can be said of the change."""
    if primary.unit is not Unit.RATE or primary.direction is not Direction.HIGHER:
        return []
    badcases = sorted((evidence.badcases or {}).items(), key=lambda pair: (-pair[1], pair[0]))
    cause = f" (most frequent badcase of the whole suite: {badcases[0][0]}, {badcases[0][1]} times)" if badcases else ""
    return [
        f"{primary.name}: 0% on both sides{where}, so no change can be shown{cause}; find out why nothing is solved, "
        "or take easier items"
        for found, where in (
            (evidence.metrics.get(primary.name), ""),
            (evidence.private_metrics.get(primary.name), " of private items"),
        )
        if found is not None and found.is_complete and found.values() == (0.0, 0.0)
    ]


def _lacking_for_release(
    metrics: Sequence[MetricSpec], gates: Sequence[GateSpec], evidence: Evidence
) -> tuple[str, ...]:
    """What `release` needs beyond `candidate` and is not there."""
    gate = next((gate for gate in gates if isinstance(gate, ReleaseEvidenceGate)), ReleaseEvidenceGate())
    private = evidence.private_evidence()
    unseen = [
        metric.name
        for metric in metrics
        if (metric.is_required or metric.is_safety)
        and (metric.name not in private or not private[metric.name].is_complete)
    ]
    lacking = [f"no private evidence of {', '.join(unseen)}; evaluate test_private on both sides"] if unseen else []
    if not evidence.from_cards:
        lacking.append("a report alone proves nothing; decide from the folder of the evaluation, which holds its cards")
    told_only = [
        metric.name
        for metric in metrics
        if (metric.is_required or metric.is_safety)
        and (found := private.get(metric.name)) is not None
        and found.is_complete
        and found.source != "cards"
    ]
    if told_only and evidence.from_cards:
        lacking.append(f"{', '.join(told_only)} rests on a report, not on cards; evaluate it with a benchmark")
    primary = primary_of(metrics)
    if primary.name in private:
        lacking += lacking_improvement(primary, private[primary.name])
    lacking += [f"{found.name} has no item counts" for found in private.values() if found.n_items is None]
    check = evidence.spot_check
    if check is None:
        lacking.append(
            f"no human spot check; have two people judge at least {gate.min_spot_checks} rollouts "
            "(agent2 spotcheck draw)"
        )
    elif check.n < gate.min_spot_checks:
        lacking.append(f"the spot check of {check.by} has {check.n} rollouts, {gate.min_spot_checks} are needed")
    elif check.agreement < gate.min_agreement:
        lacking.append(
            f"{check.by} agreed with the scorer on {check.n_agree} of {check.n} rollouts, "
            f"{100 * gate.min_agreement:.3g}% are needed; fix the scorer first"
        )
    if evidence.badcases is None:
        lacking.append("badcases were not counted; evaluate from cards, so that they can be replayed")
    return tuple(lacking)


def _next_data(findings: Sequence[Finding], evidence: Evidence, causes: Mapping[str, str]) -> tuple[str, ...]:
    sentences = [sentence for finding in findings if finding.fired for sentence in finding.effects.next_data]
    counts = sorted((evidence.badcases or {}).items(), key=lambda pair: (-pair[1], pair[0]))
    sentences += [
        f"{name} ({count} cases): {CURES.get(causes.get(name, ''), UNATTRIBUTED)}"
        for name, count in counts[:TOP_BADCASES]
        if count > 0
    ]
    return _unique(sentences)


def _basis(evidence: Evidence) -> str:
    found: list[MetricEvidence] = [*evidence.metrics.values(), *evidence.private_metrics.values()]
    if any(metric.paired is not None for metric in found):
        return "paired items where both sides have them; point thresholds elsewhere"
    return NO_PAIRS if any(metric.n_items is not None for metric in found) else NO_COUNTS


def _unique(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentences))
