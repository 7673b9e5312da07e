"""The records of a sweep: a row for each trial, a comparison for each pair of stacks, and the effects of their parts.

A stack is agent system (scaffold) x driver x mode. Averages are by intention to treat: an agent that had its budget and
handed in nothing usable counts with the base model's score, gain 0, else a stack that submits only when it is lucky
would rank first. The mean over the trials in which it submitted is given beside it. What infrastructure lost is
missing: a trial that did not finish has a state and nothing else, one whose agent or evaluation was stopped by a fault
of the harness has no gain, and every average states its number of trials.

The effect of the driver and that of the scaffold are estimated from pairs of stacks that differ in that part only: for
each scaffold all pairs of its drivers, for each driver all pairs of its scaffolds, on the same task, mode, hidden items
and seeds. Intervals hold for all pairs of a family at once (Bonferroni within one scaffold or one driver), so the pair
with the largest difference may be picked and read.

Two things vary: the choice of hidden items, and the run (training and the driver's own sampling). The headline interval
and p-value are over both; with one seed the variation between runs is not known, and they are over items alone and say
so.
"""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

import numpy as np

from agent2.arena.analysis.reproduced import reproduction_verdict
from agent2.arena.analysis.verdicts import Analysis, Result, ResultKind
from agent2.arena.evidence import AgentEnd, SubmissionState, TrialEvidence, TypeScore
from agent2.arena.spec import Mode
from agent2.config import StrictModel
from agent2.errors import Fault
from agent2.llm.gateway.recording import ExchangeOutcome
from agent2.records import derive_seed
from agent2.stats.comparisons import Claim, holm, judge, over_items_and_seeds, paired_difference
from agent2.stats.estimates import UNIT, Estimate, PairedDifference, measure, ratio_of_sums
from agent2.texts import counted

FINISHED = "finished"
ALPHA = 0.05
"""Chance that any interval of a family misses."""
NOTHING_USABLE = frozenset({ResultKind.NO_SUBMISSION.value, ResultKind.NO_VALID_SUBMISSION.value})
"""Results of trials that handed in nothing that could be scored."""

BySeed = dict[int, Mapping[str, float | None]]
"""Seed -> item -> score, or gain."""


class PlannedTrial(StrictModel):
    """One trial of a sweep."""

    task: str
    """As in the sweep's file: a name or a path."""
    agent: str
    """As in the sweep's file: a name or a folder."""
    task_name: str
    agent_name: str
    """Name of the agent system (the scaffold)."""
    driver: str | None = None
    """As in the sweep's file."""
    driver_name: str | None = None
    mode: Mode = Mode.FREE
    seed: int

    @property
    def stack(self) -> str:
        """What is compared: agent, driver and mode in one name."""
        return stack_name(self.agent_name, self.driver_name, self.mode)

    @property
    def trial_id(self) -> str:
        """Names the trial's folder."""
        stack = re.sub(r"[^A-Za-z0-9._-]+", "-", self.stack).strip("-")
        return f"{self.task_name}-{stack}-s{self.seed}"

    @property
    def overrides(self) -> list[str]:
        """The overrides of this cell, for `resolve_trial`."""
        mode = [f"mode={self.mode.value}"] if self.mode is not Mode.FREE else []
        return [*mode, *([f"driver={self.driver}"] if self.driver is not None else [])]


def stack_name(agent: str, driver: str | None, mode: Mode) -> str:
    """The name of a stack."""
    driven = f"{agent}+{driver}" if driver is not None else agent
    return driven if mode is Mode.FREE else f"{driven} ({mode.value})"


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One trial of a sweep."""

    task: str
    agent: str
    """The stack: agent, driver and mode in one name."""
    seed: int
    trial: str
    """Id of the trial; its folder is below the sweep's."""
    state: str
    """`finished`, or what became of it: "failed: one sentence", "not started"."""
    base: Estimate | None = None
    """Base model on test_private."""
    public: Estimate | None = None
    """Best submission on test_public."""
    private: Estimate | None = None
    """Final submission on test_private."""
    gain: Estimate | None = None
    """Paired gain on test_private, over items; without an interval when it is 0 by identity or rule, as where nothing
    usable was submitted. None where there is no result, as after a fault of the infrastructure."""
    p_value: float | None = None
    claim: str = ""
    """Better, worse or unclear, as the trial's own report says; empty without a measured gain."""
    within_noise: bool | None = None
    noise: float | None = None
    """Half-width of the base model's noise band; None: not known."""
    result: str = ""
    """Kind of the result, as the analysis names it: measured, copy_of_base, no_submission, ..."""
    integrity: str = ""
    """State that the integrity audit leaves the trial in: clean, noted, flagged, not_cleared, void, not_audited."""
    route: str = ""
    """Route of the final submission in words."""
    seconds: float | None = None
    """Duration of the agent's phase."""
    n_submissions: int | None = None
    scaffold: str = ""
    """The agent system alone."""
    driver: str | None = None
    """None: not driven by an LLM."""
    mode: str = Mode.FREE.value
    mode_kept: str = ""
    """Verdict on the mode's rule: pass, partial, fail or unknown."""
    llm_calls: int | None = None
    llm_tokens: int | None = None
    """Input and output; None without a driver."""
    llm_dollars: float | None = None
    """None: no driver, or the cost of some call is not known."""
    n_interventions: int | None = None
    is_completed: bool | None = None
    """A submission could be scored."""
    is_autonomous: bool | None = None
    """Completed without a human intervention."""
    n_failures: int | None = None
    n_recovered: int | None = None
    """Of the failures for which that is known."""
    n_unknown_recoveries: int | None = None
    by_type: tuple[TypeScore, ...] = ()
    """Private scores by kind of task."""
    reproduced: str = ""
    """Verdict on the recorded program, run again: reproduced, not reproduced, ...; empty where nobody did."""
    credit: float | None = None
    """0 to 1, of an assignment that asks for more than a checkpoint; None: it is not one, or could not be judged."""
    has_passed: bool | None = None
    """Whether such an assignment was passed; None: it is not one."""


@dataclass(frozen=True, slots=True)
class AgentComparison:
    """Two stacks on the same hidden items: paired difference of their final private scores, a minus b.

    An agent whose result is the base model enters with the base's scores.
    """

    task: str
    agent_a: str
    agent_b: str
    difference: PairedDifference
    """On the items that both were scored on; with one common seed over items alone, as the variation between runs is
    not known."""
    claim: str
    """Better (a than b), worse or unclear."""
    n_seeds: int
    """Seeds that both have a finished trial for; scores are averaged over them before pairing."""


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """One agent over the trials of one task."""

    task: str
    agent: str
    n_trials: int
    n_finished: int
    n_with_gain: int
    """Trials whose gain is a number; the others do not count as zero."""
    mean_gain: Estimate | None
    """Interval over `over`; none where no items are common. None without a gain."""
    spread_points: float | None
    """Standard deviation of the gain over seeds; None with fewer than two."""
    min_gain_points: float | None
    max_gain_points: float | None
    n_better: int
    """Trials that are better than the base by their own interval, p-value and noise band."""
    routes: Mapping[str, int]
    """Route of the final submission -> number of trials. Only where a submission is the result: where the result is the
    base model (nothing better submitted, a copy of it, a void trial), no route led to it."""
    autonomy: Estimate | None = None
    """Share of finished trials that were completed without a human intervention; None without a finished trial."""
    recovery: Estimate | None = None
    """Share of failures that were followed by a scored submission; None without a failure that can be judged."""
    llm_tokens: int | None = None
    """All its trials together; None without a driver."""
    llm_dollars: float | None = None
    """Of the trials whose cost is known."""
    n_unknown_cost: int = 0
    """Driven trials whose cost is not, or not in full, known."""
    claim: str = ""
    """Better (than the base), worse or unclear, by that interval, its p-value and, with one seed, the noise band."""
    over: str = ""
    """"items and seeds", or "items" with one seed; empty without an interval."""
    n_submitted: int = 0
    """Trials with a gain in which something usable was submitted."""
    gain_submitted: Estimate | None = None
    """Mean gain over those alone: how good the stack is when it submits, never what it is ranked by."""
    n_assigned: int = 0
    """Trials with a verdict on an assignment that asks for more than a checkpoint."""
    n_passed: int = 0
    """Of these."""
    mean_credit: float | None = None
    """Over those that could be judged; None: none."""


def unfinished_row(planned: PlannedTrial, state: str) -> SweepRow:
    """The row of a trial that has no result. state: "not started", "not finished", "failed: one sentence"."""
    return SweepRow(
        task=planned.task_name,
        agent=planned.stack,
        seed=planned.seed,
        trial=planned.trial_id,
        state=state,
        scaffold=planned.agent_name,
        driver=planned.driver_name,
        mode=planned.mode.value,
    )


def had_its_budget(evidence: TrialEvidence) -> bool:
    """Whether nothing but the agent itself kept it from handing in: no fault of harness, provider or evaluation."""
    if evidence.agent_end in {AgentEnd.INTERRUPTED, AgentEnd.INFRASTRUCTURE}:
        return False
    for submission in evidence.submissions:
        is_pending = submission.state is SubmissionState.ACCEPTED
        is_failed = submission.state is SubmissionState.FAILED
        if is_pending or (is_failed and submission.fault not in {Fault.MODEL, Fault.SUBMITTER}):
            return False
    sent = [call for call in evidence.llm.calls if call.outcome != ExchangeOutcome.REFUSED] if evidence.llm else []
    # one answer is enough: an agent could end with calls that fail, to have a lost trial taken out of its mean
    return not sent or any(call.outcome == ExchangeOutcome.OK for call in sent)


def gain_by_intention(evidence: TrialEvidence, result: Result) -> Estimate | None:
    """The gain with which a trial enters averages and ranks: 0 where the agent handed in nothing usable.

    None where there is no result that the agent answers for.
    """
    if result.kind.value not in NOTHING_USABLE:
        return result.gain
    if evidence.base_private is None or not had_its_budget(evidence):
        return None
    return Estimate(0.0, None, None, 0, method=result.kind.value.replace("_", " "))


def row_of(
    evidence: TrialEvidence, analysis: Analysis, agent: str | None = None, scaffold: str | None = None
) -> SweepRow:
    """The row of a finished trial. agent, scaffold: names in the sweep, where they differ from the trial's own."""
    llm = evidence.llm.totals if evidence.llm is not None else None
    result = analysis.result
    best = next((s for s in evidence.submissions if s.number == result.best_submission), None)
    return SweepRow(
        task=evidence.task.name,
        agent=agent or stack_name(evidence.agent, evidence.driver, evidence.mode),
        seed=evidence.seed,
        trial=evidence.trial_id,
        state=FINISHED,
        base=evidence.base_private,
        public=best.score if best is not None else None,
        private=evidence.final_private,
        gain=gain_by_intention(evidence, result),
        p_value=result.p_value,
        claim=result.claim.value if result.claim is not None else "",
        within_noise=result.within_noise,
        noise=result.noise_points / 100 or None,
        result=result.kind.value,
        integrity=analysis.integrity.state.value,
        route=analysis.route.counted_label,
        seconds=evidence.ended_at - evidence.started_at,
        n_submissions=len(evidence.submissions),
        scaffold=scaffold or evidence.agent,
        driver=evidence.driver,
        mode=evidence.mode.value,
        mode_kept=analysis.mode.verdict.value,
        llm_calls=llm.calls if llm is not None else None,
        llm_tokens=llm.tokens.total if llm is not None else None,
        llm_dollars=llm.dollars if llm is not None and not llm.n_unknown_cost else None,
        n_interventions=analysis.autonomy.n_interventions,
        is_completed=analysis.autonomy.is_completed,
        is_autonomous=analysis.autonomy.is_autonomous,
        n_failures=analysis.recovery.n_failures,
        n_recovered=analysis.recovery.n_recovered,
        n_unknown_recoveries=analysis.recovery.n_unknown,
        by_type=tuple(evidence.by_type),
        reproduced=verdict.value if (verdict := reproduction_verdict(evidence)) is not None else "",
        credit=evidence.assignment.credit if evidence.assignment is not None else None,
        has_passed=evidence.assignment.passed if evidence.assignment is not None else None,
    )


def difference_of_runs(runs_a: BySeed, runs_b: BySeed, label: str, confidence: float = 0.95) -> PairedDifference | None:
    """A minus b on their common items and seeds: over items and seeds with two seeds or more, else over items.

    label: seeds the bootstrap. Items without a score in any of the runs are left out; None if none are left.
    """
    seeds = sorted(set(runs_a) & set(runs_b))
    runs = [(runs_a[seed], runs_b[seed]) for seed in seeds]
    if not runs:
        return None
    items = [item for item in sorted(runs[0][0]) if all(r.get(item) is not None for pair in runs for r in pair)]
    if not items:
        return None
    sides_2SI = np.array([[[run[item] for item in items] for run in side] for side in zip(*runs, strict=True)], float)
    if len(seeds) > 1 and len(items) > 1:
        return over_items_and_seeds(sides_2SI[0] - sides_2SI[1], confidence)
    rng = np.random.default_rng(derive_seed(label))
    return paired_difference(sides_2SI[0].mean(axis=0), sides_2SI[1].mean(axis=0), rng, confidence=confidence)


def summarise_agents(
    rows: Sequence[SweepRow], gains: Mapping[tuple[str, str], BySeed] | None = None
) -> list[AgentSummary]:
    """Each agent on each task over its trials, in the order in which they appear.

    gains: (task, stack) -> seed -> item -> gain over the base; without them the mean gains have no interval.
    """
    groups: dict[tuple[str, str], list[SweepRow]] = {}
    for row in rows:
        groups.setdefault((row.task, row.agent), []).append(row)
    return [
        _summary(task, agent, members, (gains or {}).get((task, agent), {}))
        for (task, agent), members in groups.items()
    ]


def _summary(task: str, agent: str, rows: Sequence[SweepRow], item_gains: BySeed) -> AgentSummary:
    zeros: BySeed = {seed: dict.fromkeys(by_item, 0.0) for seed, by_item in item_gains.items()}
    difference = difference_of_runs(item_gains, zeros, f"mean gain {task} {agent}")
    gains = [row.gain.value for row in rows if row.gain is not None]
    submitted = [row for row in rows if row.gain is not None and row.result not in NOTHING_USABLE]
    bands = [row.noise for row in rows if row.gain is not None and row.noise is not None]
    # With one run the interval is over items alone: only the noise band says how much a model's score varies.
    band = max(bands, default=None) if len(item_gains) == 1 else None
    autonomous = [float(row.is_autonomous) for row in rows if row.is_autonomous is not None]
    driven = [row for row in rows if row.llm_tokens is not None]
    costs = [row.llm_dollars for row in driven if row.llm_dollars is not None]
    credits = [row.credit for row in rows if row.credit is not None]
    return AgentSummary(
        task=task,
        agent=agent,
        n_trials=len(rows),
        n_finished=sum(row.state == FINISHED for row in rows),
        n_with_gain=len(gains),
        mean_gain=_mean_gain(rows, difference),
        spread_points=100 * statistics.stdev(gains) if len(gains) > 1 else None,
        min_gain_points=100 * min(gains) if gains else None,
        max_gain_points=100 * max(gains) if gains else None,
        n_better=sum(row.claim == Claim.BETTER for row in rows),
        routes=dict(Counter(row.route for row in rows if row.route and row.result == ResultKind.MEASURED.value)),
        autonomy=measure(autonomous, "autonomy", UNIT) if autonomous else None,
        recovery=_recovery(rows),
        llm_tokens=sum(row.llm_tokens or 0 for row in driven) if driven else None,
        llm_dollars=sum(costs) if costs else None,
        n_unknown_cost=len(driven) - len(costs),
        claim=judge(difference, band).claim.value if difference is not None else "",
        over=difference.over if difference is not None else "",
        n_submitted=len(submitted),
        gain_submitted=_submitted_gain(task, agent, submitted, item_gains),
        n_assigned=sum(row.has_passed is not None for row in rows),
        n_passed=sum(row.has_passed is True for row in rows),
        mean_credit=sum(credits) / len(credits) if credits else None,
    )


def _submitted_gain(task: str, agent: str, rows: Sequence[SweepRow], item_gains: BySeed) -> Estimate | None:
    """The mean over trials in which something usable was submitted."""
    runs = {row.seed: item_gains[row.seed] for row in rows if row.seed in item_gains}
    zeros: BySeed = {seed: dict.fromkeys(by_item, 0.0) for seed, by_item in runs.items()}
    difference = difference_of_runs(runs, zeros, f"gain when submitted {task} {agent}")
    return _mean_gain(rows, difference)


def _mean_gain(rows: Sequence[SweepRow], difference: PairedDifference | None) -> Estimate | None:
    """The mean over trials with a gain; its interval is that of the common items and seeds, or of the one trial."""
    gains = [row.gain for row in rows if row.gain is not None]
    if not gains:
        return None
    if len(gains) == 1 and gains[0].low is not None:  # resampled again it would have a second interval
        return gains[0]
    mean = statistics.fmean(gain.value for gain in gains)
    return replace(difference.change, value=mean) if difference is not None else Estimate(mean, None, None, len(gains))


def _recovery(rows: Sequence[SweepRow]) -> Estimate | None:
    """Share of failures, with trials as the units: failures of one trial often have one cause."""
    judged = [row for row in rows if row.n_failures is not None]
    recovered = [float(row.n_recovered or 0) for row in judged]
    failures = [float((row.n_failures or 0) - (row.n_unknown_recoveries or 0)) for row in judged]
    return ratio_of_sums(recovered, failures, "recovery") if sum(failures) else None


class Axis(StrEnum):
    """The part in which two stacks differ."""

    DRIVER = "driver"
    SCAFFOLD = "scaffold"


@dataclass(frozen=True, slots=True)
class PairEffect:
    """Two stacks that differ in one part: final private scores, a minus b."""

    axis: Axis
    task: str
    mode: str
    fixed: str
    """The scaffold of a driver effect, the driver of a scaffold effect."""
    level_a: str
    level_b: str
    """The drivers, or scaffolds, compared."""
    difference: PairedDifference
    """The interval is simultaneous with the family's other pairs."""
    claim: str
    """Better (a than b), worse or unclear, by that interval and the adjusted p-value."""
    over_runs: Estimate
    """Differences of whole runs; without an interval with one seed."""
    p_adjusted: float
    """After Holm, within the family."""
    n_seeds: int
    """Seeds for which both have a result."""
    n_missing: int
    """Planned seeds for which one or both have none."""
    n_pairs: int
    """Pairs in the family."""


@dataclass(frozen=True, slots=True)
class AxisEffect:
    """How much one part matters while the other is fixed: the pair with the largest difference."""

    axis: Axis
    task: str
    mode: str
    fixed: str
    n_levels: int
    widest: PairEffect
    """The better level is `level_a`."""


def pair_effects(planned: Sequence[PlannedTrial], scores: Mapping[tuple[str, str], BySeed]) -> list[PairEffect]:
    """Every pair of stacks that differ in the driver only, or in the scaffold only.

    planned: every trial of the sweep. scores: (task, stack) -> seed -> item -> final private score.
    """
    effects: list[PairEffect] = []
    for axis in Axis:
        for key, levels in _families(planned, axis).items():
            effects += _family_effects(axis, key, levels, scores)
    return effects


def axis_effects(pairs: Sequence[PairEffect]) -> list[AxisEffect]:
    """The widest pair of each family, in the order of the families."""
    families: dict[tuple[Axis, str, str, str], list[PairEffect]] = {}
    for pair in pairs:
        families.setdefault((pair.axis, pair.task, pair.mode, pair.fixed), []).append(pair)
    return [
        AxisEffect(
            axis,
            task,
            mode,
            fixed,
            n_levels=len({level for pair in family for level in (pair.level_a, pair.level_b)}),
            widest=_best_first(max(family, key=lambda pair: abs(pair.difference.change.value))),
        )
        for (axis, task, mode, fixed), family in families.items()
    ]


_Levels = dict[str, list[PlannedTrial]]
_Pair = tuple[str, str, BySeed, BySeed, PairedDifference]
"""Two levels, the scores of each, and their difference."""


def _families(planned: Sequence[PlannedTrial], axis: Axis) -> dict[tuple[str, str, str], _Levels]:
    """(task, mode, fixed part) -> level -> its trials; stacks without a driver are left out."""
    families: dict[tuple[str, str, str], _Levels] = {}
    for trial in planned:
        if trial.driver_name is None:
            continue
        parts = (trial.agent_name, trial.driver_name)
        fixed, level = parts if axis is Axis.DRIVER else parts[::-1]
        family = families.setdefault((trial.task_name, trial.mode.value, fixed), {})
        family.setdefault(level, []).append(trial)
    return families


def _family_effects(
    axis: Axis, key: tuple[str, str, str], levels: _Levels, scores: Mapping[tuple[str, str], BySeed]
) -> list[PairEffect]:
    """The effects of one family. key: task, mode and fixed part."""
    task, mode, fixed = key
    label = f"sweep effect {axis.value} {' '.join(key)}"
    # the level of the intervals depends on the number of pairs that can be compared: count them first
    n_pairs = len(list(_comparable_pairs(task, levels, scores, label, 1 - ALPHA)))
    if not n_pairs:
        return []
    pairs = list(_comparable_pairs(task, levels, scores, label, 1 - ALPHA / n_pairs))
    adjusted = holm([difference.p_value for *_, difference in pairs])
    effects = []
    for (level_a, level_b, runs_a, runs_b, difference), p_adjusted in zip(pairs, map(float, adjusted), strict=True):
        seeds = sorted(set(runs_a) & set(runs_b))
        method = f"{difference.change.method}, Bonferroni intervals and Holm p over {counted(n_pairs, 'pair')}"
        effects.append(
            PairEffect(
                axis=axis,
                task=task,
                mode=mode,
                fixed=fixed,
                level_a=level_a,
                level_b=level_b,
                difference=replace(difference, change=replace(difference.change, method=method)),
                claim=judge(difference, p_value=p_adjusted).claim.value,
                over_runs=_over_runs(runs_a, runs_b, seeds, 1 - ALPHA / n_pairs),
                p_adjusted=p_adjusted,
                n_seeds=len(seeds),
                n_missing=len({trial.seed for trial in (*levels[level_a], *levels[level_b])}) - len(seeds),
                n_pairs=n_pairs,
            )
        )
    return effects


def _comparable_pairs(
    task: str, levels: _Levels, scores: Mapping[tuple[str, str], BySeed], label: str, confidence: float
) -> Iterator[_Pair]:
    """Pairs of levels with a common seed and a common scored item."""
    for level_a, level_b in combinations(levels, 2):
        runs_a = scores.get((task, levels[level_a][0].stack), {})
        runs_b = scores.get((task, levels[level_b][0].stack), {})
        difference = difference_of_runs(runs_a, runs_b, f"{label} {level_a} {level_b}", confidence)
        if difference is not None:
            yield level_a, level_b, runs_a, runs_b, difference


def _over_runs(runs_a: BySeed, runs_b: BySeed, seeds: Sequence[int], confidence: float) -> Estimate:
    """Differences of whole runs, paired by seed."""
    differences: list[float | None] = []
    for seed in seeds:
        run_a, run_b = runs_a[seed], runs_b[seed]
        by_item = [a - b for item, a in run_a.items() if a is not None and (b := run_b.get(item)) is not None]
        differences.append(sum(by_item) / len(by_item) if by_item else None)
    return measure(differences, "differences of runs", confidence=confidence)


def _best_first(pair: PairEffect) -> PairEffect:
    if pair.difference.change.value >= 0:
        return pair
    return replace(
        pair,
        level_a=pair.level_b,
        level_b=pair.level_a,
        difference=pair.difference.reversed(),
        claim={"better": "worse", "worse": "better"}.get(pair.claim, pair.claim),
        over_runs=pair.over_runs.scaled(-1.0),
    )
