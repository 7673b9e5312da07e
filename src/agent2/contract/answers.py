"""Answers to the questions that every report has to answer, from findings and numbers only.

Three about post-training: did capabilities improve, are preferences aligned, is the reward distorted? Three about
the checkpoint: may training go on, may it be deployed, where should the next data come from? What was not measured
is said to be unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent2.contract.changes import tell_change
from agent2.contract.effects import BLOCK_FOR, CANDIDATE, INSUFFICIENT, RELEASE, RESEARCH_ONLY, TrainingAction
from agent2.contract.evidence import Evidence
from agent2.contract.findings import SLACK, Finding, GateState
from agent2.contract.improvement import told_improvement
from agent2.contract.metrics import Direction, MetricSpec, Role, primary_of
from agent2.contract.rules_metric import worsening
from agent2.stats.comparisons import judge

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
    acting = [f"{finding.gate}" for finding in fired if finding.effects.training is action]
    may_continue = {
        TrainingAction.CONTINUE: "yes: no gate asks for a pause",
        TrainingAction.PAUSE: "not now: pause",
        TrainingAction.PAUSE_HUMAN_REVIEW: "not now: pause, and have people review it",
        TrainingAction.ROLLBACK: "no: roll back to an earlier checkpoint",
    }[action]
    if action is not TrainingAction.CONTINUE:
        may_continue += f" (gate {', '.join(dict.fromkeys(acting))})"
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
