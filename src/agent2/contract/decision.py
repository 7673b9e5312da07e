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
needs one that is shown.

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
from agent2.contract.metrics import (
    Direction,
    Evidence,
    MetricEvidence,
    MetricSpec,
    Role,
    Unit,
    format_change,
    primary_of,
)
from agent2.contract.rules import NO_COUNTS, NO_PAIRS, evaluate_gates, problems_of, rule_of, worsening
from agent2.stats.comparisons import Claim, judge

REWARD_KINDS = frozenset({"reward_private", "loophole", "length"})
"""Kinds of gates that look for a distorted reward."""
PREFERENCE_WORDS = ("win_rate", "preference", "elo")
"""A metric with one of them in its name measures preference."""
TOP_BADCASES = 3
NO_CAUSES: Mapping[str, str] = MappingProxyType({})
REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "data": "attributed to data: supplement training items of this class",
        "reward": "attributed to the reward: fix it or split it, then train again on this class",
        "algorithm": "attributed to the algorithm: look at steps, credit and exploration on this class",
        "tools": "attributed to tools: add trajectories that recover from this error",
        "evaluation": "attributed to the evaluation: fix the scorer before anything is trained on it",
        "safety": "attributed to safety: add tasks in which it must be refused or confirmed",
    }
)
"""Cause of a class of bad cases -> what follows for the next round."""
UNATTRIBUTED = "not in the suite's taxonomy: attribute it to data, reward, algorithm, tools, evaluation or safety first"


class Improvement(StrEnum):
    """How far a metric is known to be better than the control group's."""

    SHOWN = "yes, shown on paired items"
    SEEN = "yes by the numbers alone, not shown: no paired items"
    NOT_SHOWN = "not shown: unclear on paired items"
    NONE = "no"
    UNKNOWN = "unknown"


def improvement(metric: MetricSpec, numbers: MetricEvidence | None) -> Improvement:
    """How far a metric is known to be better; numbers None: neither side has any."""
    if numbers is None or not numbers.is_complete:
        return Improvement.UNKNOWN
    pair = numbers.paired
    if pair is None:
        return Improvement.SEEN if worsening(metric, numbers) < -SLACK else Improvement.NONE
    claim = judge(pair, numbers.noise, is_higher_better=metric.direction is Direction.HIGHER).claim
    if claim is Claim.UNCLEAR:
        return Improvement.NONE if pair.change.interval == (0.0, 0.0) else Improvement.NOT_SHOWN
    return Improvement.SHOWN if claim is Claim.BETTER else Improvement.NONE


def improvement_text(metric: MetricSpec, numbers: MetricEvidence | None) -> str:
    """A clause such as `not shown: unclear on paired items (p = 0.07), by the primary metric`."""
    state = improvement(metric, numbers)
    reason = ""
    if state is Improvement.NOT_SHOWN and numbers is not None and numbers.paired is not None:
        reason = f" ({judge(numbers.paired, numbers.noise).why})"
    return f"{state.value}{reason}, by the primary metric"


def lacking_improvement(primary: MetricSpec, numbers: MetricEvidence | None) -> list[str]:
    """What `release` lacks in improvement, one sentence; empty if it is shown."""
    state = improvement(primary, numbers)
    if state is Improvement.SHOWN:
        return []
    return [f"{primary.name} is not shown to be better on private items ({state.value})"]


@dataclass(frozen=True, slots=True)
class Answers:
    """One or two sentences for each question that a report answers."""

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
    changes: dict[str, list[str]] = {"better": [], "worse": [], "unclear": [], "moved, without paired items": []}
    unknown = []
    for metric in metrics:
        if metric.role is Role.DIAGNOSTIC or _is_preference(metric):
            continue
        numbers = evidence.metrics.get(metric.name)
        if numbers is None or not numbers.is_complete:
            unknown.append(metric.name)
            continue
        if abs(worsening(metric, numbers)) <= SLACK:
            continue
        if numbers.paired is None:
            claim = "moved, without paired items"
        else:
            is_higher_better = metric.direction is Direction.HIGHER
            claim = judge(numbers.paired, numbers.noise, is_higher_better=is_higher_better).claim
        changes[claim].append(f"{metric.name} {format_change(numbers.old, numbers.new, metric.unit)}")
    primary = primary_of(metrics)
    parts = [improvement_text(primary, evidence.metrics.get(primary.name))]
    parts += [f"{claim}: {', '.join(moved)}" for claim, moved in changes.items() if moved]
    parts += [f"not known: {', '.join(unknown)}"] if unknown else []
    return "; ".join(parts)


def _preferences(metrics: Sequence[MetricSpec], evidence: Evidence) -> str:
    changes = []
    for metric in metrics:
        numbers = evidence.metrics.get(metric.name)
        if _is_preference(metric) and numbers is not None and numbers.is_complete:
            changes.append(f"{metric.name} {format_change(numbers.old, numbers.new, metric.unit)}")
    return ", ".join(changes) or "not measured: the evidence holds no win rate or other preference metric"


def _distortion(metrics: Sequence[MetricSpec], evidence: Evidence, findings: Sequence[Finding]) -> str:
    fired = [
        f"{finding.gate}: {', '.join(finding.inputs)}"
        for finding in findings
        if finding.fired and finding.kind in REWARD_KINDS
    ]
    if fired:
        return f"signs of it: {'; '.join(fired)}"
    reward, primary = evidence.training.reward, primary_of(metrics)
    numbers = evidence.metrics.get(primary.name)
    if reward is None:
        has_passed = any(finding.state is GateState.PASSED for finding in findings if finding.kind in REWARD_KINDS)
        return f"not known: no training log was given{'; the gates that could run saw no sign' if has_passed else ''}"
    if numbers is not None and numbers.is_complete and reward.rose and worsening(primary, numbers) > SLACK:
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


@dataclass(frozen=True, slots=True)
class Decision:
    """The three outputs, apart from each other, and everything that led to them."""

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
    """Of every gate that was evaluated, in the suite's order."""
    problems: tuple[str, ...]
    """Of the evidence, as the evidence gate judges it; any makes the decision `insufficient`."""
    evidence_rule: str
    """What the evidence gate requires."""
    lacking: tuple[str, ...]
    """What `release` needs beyond `candidate` and is missing."""
    also_fired: tuple[str, ...]
    """Release effects of other severity that fired as well and that the decision does not show."""
    basis: str
    """How numbers were judged: by paired items, or by point thresholds where counts or pairs are missing."""
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
    Raises ConfigError if gates and metrics do not fit each other, never for bad evidence: that is a decision,
    `insufficient`.
    """
    check_gates(metrics, gates)
    findings = evaluate_gates(metrics, gates, evidence)
    problems = _unique(
        [
            *_general_problems(metrics, gates, evidence),
            *(problem for finding in findings for problem in finding.problems),
        ]
    )
    lacking = _lacking_for_release(metrics, gates, evidence)
    # Kept apart from `problems`: a gate that fired is still believed where nothing is solved.
    floor = tuple(_at_the_floor(primary_of(metrics), evidence))
    release, reasons, change = _release(findings, problems, floor, lacking)
    if release == INSUFFICIENT:
        problems = _unique([*problems, *floor])
    fired = [finding for finding in findings if finding.fired]
    effects = _unique(finding.effects.release for finding in fired if finding.effects.release != NO_EFFECT)
    actions = [finding.effects.training for finding in fired]
    if evidence.broken:  # further steps do not repair weights that are not numbers
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
        also_fired=tuple(effect for effect in effects if release_severity(effect) != release_severity(release)),
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
        reasons = tuple(
            f"gate {finding.gate} ({finding.on}): {', '.join(finding.inputs)}; {finding.rule}; {finding.evidence}"
            for finding in deciding
        )
        return _joined([finding.effects.release for finding in deciding]), reasons, _changes(fired)
    if floor:
        return INSUFFICIENT, floor, floor
    unsure = [finding for finding in findings if finding.state is GateState.INCONCLUSIVE]
    if unsure:
        reasons = tuple(
            f"gate {finding.gate} ({finding.on}) is inconclusive: {', '.join(finding.inputs)}; {finding.evidence}"
            for finding in unsure
        )
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
    """Problems of the evidence as a whole, and of metrics that have no number."""
    problems = []
    if evidence.baseline is None:
        problems.append("no control group: neither report nor suite names a baseline; pass one and evaluate it")
    problems += [f"incomparable: {clause}; evaluate both sides under one protocol" for clause in evidence.incomparable]
    problems += [f"{sentence}; that is a broken checkpoint, not a low score: fix it" for sentence in evidence.broken]
    if evidence.role == "candidate" and not evidence.private_evidence():
        problems.append("a release candidate without private evidence; evaluate test_private on both sides")
    needs = needs_of(gates)
    for metric in metrics:
        numbers = evidence.metrics.get(metric.name)
        is_absent = numbers is None and not metric.is_required
        if not is_absent and (numbers is None or not numbers.is_complete):
            problems += problems_of(metric, numbers, needs)
    return problems


def _at_the_floor(primary: MetricSpec, evidence: Evidence) -> list[str]:
    """A primary metric at 0% on both sides, from which no change can be concluded; empty: it is not."""
    if primary.unit is not Unit.RATE or primary.direction is not Direction.HIGHER:
        return []
    badcases = sorted((evidence.badcases or {}).items(), key=lambda pair: (-pair[1], pair[0]))
    cause = f" (most frequent badcase of the whole suite: {badcases[0][0]}, {badcases[0][1]} times)" if badcases else ""
    return [
        f"{primary.name}: 0% on both sides{of_items}, so no change can be shown{cause}; find out why nothing is "
        "solved, or take easier items"
        for numbers, of_items in (
            (evidence.metrics.get(primary.name), ""),
            (evidence.private_metrics.get(primary.name), " of private items"),
        )
        if numbers is not None and numbers.is_complete and numbers.values() == (0.0, 0.0)
    ]


def _lacking_for_release(
    metrics: Sequence[MetricSpec], gates: Sequence[GateSpec], evidence: Evidence
) -> tuple[str, ...]:
    """What `release` needs beyond `candidate` and is missing."""
    gate = next((gate for gate in gates if isinstance(gate, ReleaseEvidenceGate)), ReleaseEvidenceGate())
    private = evidence.private_evidence()
    needed = [metric.name for metric in metrics if metric.is_required or metric.is_safety]
    unmeasured = [name for name in needed if name not in private or not private[name].is_complete]
    lacking = (
        [f"no private evidence of {', '.join(unmeasured)}; evaluate test_private on both sides"] if unmeasured else []
    )
    if not evidence.from_cards:
        lacking.append("a report alone proves nothing; decide from the folder of the evaluation, which holds its cards")
    reported_only = [
        name for name in needed if name in private and private[name].is_complete and private[name].source != "cards"
    ]
    if reported_only and evidence.from_cards:
        lacking.append(f"{', '.join(reported_only)} rests on a report, not on cards; evaluate it with a benchmark")
    primary = primary_of(metrics)
    if primary.name in private:
        lacking += lacking_improvement(primary, private[primary.name])
    lacking += [f"{numbers.name} has no item counts" for numbers in private.values() if numbers.n_items is None]
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
        f"{name} ({count} cases): {REMEDIES.get(causes.get(name, ''), UNATTRIBUTED)}"
        for name, count in counts[:TOP_BADCASES]
        if count > 0
    ]
    return _unique(sentences)


def _basis(evidence: Evidence) -> str:
    all_numbers: list[MetricEvidence] = [*evidence.metrics.values(), *evidence.private_metrics.values()]
    if any(numbers.paired is not None for numbers in all_numbers):
        return "paired items where both sides have them; point thresholds elsewhere"
    return NO_PAIRS if any(numbers.n_items is not None for numbers in all_numbers) else NO_COUNTS


def _unique(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentences))
