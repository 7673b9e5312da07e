"""The leaderboard: comparable trials of several sweeps and laboratories, pooled and ranked.

Two trials are comparable only under the same conditions: task, benchmark version, items of all splits, installation
secret, base model, protocol and budget. Of each task one exam is shown (`agent2.arena.analysis.exams`). Trials under
other conditions are left out, with the part that differs.

Ranks come from paired tests on the same private items and hold for all stacks at once (`agent2.stats.ranking`). Runs
of a stack are numbered, not matched by seed: a seed means nothing across stacks. Ranks are by intention to treat: an
agent that had its budget and handed in nothing usable counts with the base model's score; what infrastructure lost is
missing, never a zero (`agent2.arena.sweep_records`). Over several tasks, scores are made comparable as
the share of the way from the base model to a perfect score; interactive tasks are never averaged with static ones, and
tasks that ask for more than a checkpoint are in no average.

Does NOT read folders (`agent2.arena.analysis.pool`) and makes no pages.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from agent2.arena.analysis.exams import Exam, ExamChoice, choose_exam, difference
from agent2.arena.analysis.pooled import ExcludedFolder, LeaderboardTrial, PooledTrial, TrialConditions
from agent2.arena.analysis.published import PublishedBoard
from agent2.arena.analysis.verdicts import IntegrityState
from agent2.arena.evidence import MarkState
from agent2.arena.spec import Mode
from agent2.arena.sweep_records import (
    FINISHED,
    AgentSummary,
    AxisEffect,
    BySeed,
    PairEffect,
    PlannedTrial,
    SweepRow,
    axis_effects,
    pair_effects,
    summarise_agents,
)
from agent2.errors import ConfigError, NotEnoughData
from agent2.records import derive_seed
from agent2.stats.agent_metrics import AgentMetrics, AgentRun, Resource, agent_metrics, spend_per_success
from agent2.stats.aggregates import PerformanceProfile, RunEstimate, iqm, iqm_value, performance_profile
from agent2.stats.aggregates import probability_of_improvement as improvement
from agent2.stats.comparisons import Claim
from agent2.stats.estimates import Estimate, PairedDifference
from agent2.stats.gains import normalised_score
from agent2.stats.ranking import RankInterval, RunDifference, difference_of_samples, mean_difference, rank_intervals

FORMAT = "agent2-leaderboard-1"
THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(-4, 21))
"""Of performance profiles: share of the way from the base model (0) to a perfect score (1)."""
BASE_KEPT = "the base is kept: nothing usable was submitted"
N_REPLICATES = 5_000
DEFAULT_CHOICE = ExamChoice()


@dataclass(frozen=True, slots=True)
class Standing:
    """One stack on one task."""

    stack: str
    scaffold: str
    driver: str | None
    mode: str
    summary: AgentSummary
    """Mean gain with its interval, spread over seeds, routes, cost, autonomy, recovery."""
    base: float | None
    """Mean score of the base model on the private items; None: no counted trial."""
    final: float | None
    """Mean over counted trials of the result's score on the private items."""
    place: RankInterval | None
    """Rank interval and tier; None: no counted trial."""
    seeds: Sequence[int]
    """Of its counted trials."""
    n_counted: int
    n_within_noise: int
    """Counted trials whose gain is no larger than the base model's distance from itself."""
    marks: Sequence[str]
    """Marks of its trials with their number, `2x not audited`."""
    spend: AgentMetrics
    """Over trials; a success is a trial that is better than its base."""
    dollars_per_success: Estimate | None
    """All LLM spending over the number of successes; None: none, or the cost is not known."""


@dataclass(frozen=True, slots=True)
class TaskStandings:
    """One task: every stack that has comparable trials."""

    task: str
    is_interactive: bool
    exam: TrialConditions
    """The conditions of its trials; named as in the stored leaderboard."""
    standings: Sequence[Standing]
    """Best tier first, in each the best mean credit where the task gives any, then the best mean gain; stacks without a
    result last."""
    over: str
    """Units of the ranks' tests: "items and seeds", or "items" where some stack has one run; empty: no test."""


@dataclass(frozen=True, slots=True)
class OverallStanding:
    """One stack over all tasks of a kind; scores are shares of the way from base model to perfect score."""

    stack: str
    iqm: RunEstimate
    """Interquartile mean over runs and tasks."""
    mean_gain: Estimate
    """Mean over tasks of the gain on private items, runs and items drawn."""
    place: RankInterval
    profile: PerformanceProfile | None
    """Share of its runs above each threshold; None with one run per task."""
    beats_next: RunEstimate | None
    """Chance that one of its runs beats one of the next stack's on the same task; None: last, or one run per task."""
    n_submitted: int = 1
    """Counted trials in which something usable was submitted; 0: the base is kept in all, so gain and IQM are 0 by rule
    and have no interval."""


@dataclass(frozen=True, slots=True)
class OverallStandings:
    """All tasks of one kind."""

    is_interactive: bool
    tasks: Sequence[str]
    standings: Sequence[OverallStanding]
    lacking: Mapping[str, str]
    """Stack -> tasks for which it has no counted trial; it has no place."""


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Everything that the pages and the terminal show."""

    format: str
    sources: Sequence[str]
    trials: Sequence[LeaderboardTrial]
    left_out: Sequence[ExcludedFolder]
    tasks: Sequence[TaskStandings]
    overall: Sequence[OverallStandings]
    """Of each kind that has a task."""
    effects: Sequence[AxisEffect]
    """Of drivers and scaffolds: the widest pair of each family."""
    pair_effects: Sequence[PairEffect]
    published: Sequence[PublishedBoard]
    """Figures that others published; never compared with ours."""
    exams: Sequence[Exam] = ()
    """Of each task all exams, the shown one first."""

    def exam_of(self, task: str) -> Exam | None:
        """The exam of a task that is shown."""
        return next((exam for exam in self.exams if exam.task == task and exam.is_shown), None)


def make_leaderboard(
    pool: Sequence[PooledTrial],
    left_out: Sequence[ExcludedFolder] = (),
    published: Sequence[PublishedBoard] = (),
    sources: Sequence[str] = (),
    choice: ExamChoice = DEFAULT_CHOICE,
) -> Leaderboard:
    """Rank a pool of trials. The same pool gives the same board, in any order.

    choice: what decides which exam of a task is shown. Raises ConfigError if it names one that no task has.
    """
    comparable, excluded, exams = _comparable_trials(pool, choice)
    tasks = [_task_standings(members) for members in _by_task(comparable).values()]
    overall = [_overall(comparable, tasks, is_interactive=is_interactive) for is_interactive in (False, True)]
    effects = pair_effects(_planned(comparable), _runs(comparable))
    return Leaderboard(
        format=FORMAT,
        sources=tuple(sources),
        trials=tuple(pooled.trial for pooled in comparable),
        left_out=(*left_out, *excluded),
        tasks=tasks,
        overall=[standings for standings in overall if standings is not None],
        effects=axis_effects(effects),
        pair_effects=effects,
        published=tuple(published),
        exams=exams,
    )


@dataclass(frozen=True, slots=True)
class StackComparison:
    """One stack beside another on the private items of a task."""

    task: str
    stack: str
    other_stack: str
    difference: PairedDifference | None
    """Of the results' scores, the stack's minus the other's; None: they have fewer than two scored items in common."""
    n_runs: int
    n_runs_other: int
    """Counted trials."""
    n_won: int
    """Items on which the stack's mean score over its runs is higher."""
    n_lost: int
    n_same: int


def compare_stacks(
    pool: Sequence[PooledTrial], task: str, stack: str, other_stack: str, choice: ExamChoice = DEFAULT_CHOICE
) -> StackComparison:
    """Two stacks of a board made of the same pool; without a correction for the board's other pairs.

    Raises ConfigError if the board has no such stack on the task.
    """
    comparable, _, _ = _comparable_trials(pool, choice)
    stacks = {pooled.trial.row.agent for pooled in comparable if pooled.conditions.task == task}
    for name in (stack, other_stack):
        if name not in stacks:
            raise ConfigError(f"{name!r} has no trial on {task!r}; choose two of {', '.join(sorted(stacks)) or 'none'}")
    runs = _runs(comparable)
    sides = [runs.get((task, name), {}) for name in (stack, other_stack)]
    difference = _difference(*sides) if all(sides) else None
    means = [_item_means(side) for side in sides]
    signs = Counter(int(np.sign(means[0][item] - means[1][item])) for item in means[0].keys() & means[1].keys())
    return StackComparison(
        task=task,
        stack=stack,
        other_stack=other_stack,
        difference=mean_difference([difference]) if difference is not None else None,
        n_runs=len(sides[0]),
        n_runs_other=len(sides[1]),
        n_won=signs[1],
        n_lost=signs[-1],
        n_same=signs[0],
    )


def _item_means(runs: BySeed) -> dict[str, float]:
    """Mean score over runs of the items that every run was scored on."""
    items = {item for run in runs.values() for item in run}
    scores = {item: [run.get(item) for run in runs.values()] for item in items}
    return {item: mean for item, values in scores.items() if None not in values and (mean := _mean(values)) is not None}


def _sort_key(pooled: PooledTrial) -> tuple[str, str, int, str]:
    row = pooled.trial.row
    return pooled.conditions.task, row.agent, row.seed, pooled.trial.folder


def _with_distinct_names(pool: Sequence[PooledTrial]) -> list[PooledTrial]:
    """Agents of one name and different files are different stacks: their names get the start of their digest."""
    digests: dict[str, set[str]] = {}
    for pooled in pool:
        digests.setdefault(pooled.trial.row.scaffold, set()).add(pooled.agent_digest)
    renamed = []
    for pooled in pool:
        row = pooled.trial.row
        if len(digests[row.scaffold]) > 1:  # two laboratories may call different agents by one name
            name = f"{row.scaffold}@{pooled.agent_digest[:6]}"
            row = replace(row, agent=row.agent.replace(row.scaffold, name, 1), scaffold=name)
        renamed.append(replace(pooled, trial=replace(pooled.trial, row=row)))
    return renamed


def _by_task(pool: Sequence[PooledTrial]) -> dict[str, list[PooledTrial]]:
    by_task: dict[str, list[PooledTrial]] = {}
    for pooled in pool:
        by_task.setdefault(pooled.conditions.task, []).append(pooled)
    return by_task


def _comparable_trials(
    pool: Sequence[PooledTrial], choice: ExamChoice
) -> tuple[list[PooledTrial], list[ExcludedFolder], list[Exam]]:
    """For each task its trials under the same conditions, without copies; the folders that are left out; all exams."""
    by_task = _by_task(sorted(pool, key=_sort_key))
    if unknown := [task for task in choice.keys if task not in by_task]:
        raise ConfigError(f"--exam: no trial of {unknown[0]!r} here; there are {', '.join(sorted(by_task)) or 'none'}")
    comparable: list[PooledTrial] = []
    excluded: list[ExcludedFolder] = []
    exams: list[Exam] = []
    for members in by_task.values():
        originals: dict[str, PooledTrial] = {}
        for pooled in sorted(members, key=_trust):  # a changed copy must not hide the trial that it was made from
            original = originals.setdefault(pooled.identity, pooled)
            if original is not pooled:
                excluded.append(ExcludedFolder(pooled.trial.folder, f"a copy of {original.trial.folder}"))
        distinct = [pooled for pooled in members if originals[pooled.identity] is pooled]
        exam_trials, task_exams = choose_exam(distinct, choice)
        comparable += exam_trials
        exams += task_exams
        identities, conditions = {pooled.identity for pooled in exam_trials}, task_exams[0].conditions
        excluded += [
            ExcludedFolder(pooled.trial.folder, difference(pooled.conditions, conditions, choice.own_secret))
            for pooled in distinct
            if pooled.identity not in identities
        ]
    return sorted(_with_distinct_names(comparable), key=_sort_key), excluded, exams


def _trust(pooled: PooledTrial) -> tuple[bool, bool, bool]:
    trial = pooled.trial
    return pooled.mark is not MarkState.OWN, not trial.is_counted, not trial.is_verified


def _runs(pool: Sequence[PooledTrial]) -> dict[tuple[str, str], BySeed]:
    """(task, stack) -> number of the run -> item -> score of the result; counted trials only."""
    runs: dict[tuple[str, str], BySeed] = {}
    for pooled in pool:
        if pooled.trial.is_counted:
            stack_runs = runs.setdefault((pooled.conditions.task, pooled.trial.row.agent), {})
            stack_runs[len(stack_runs)] = pooled.final
    return runs


def _gains(pool: Sequence[PooledTrial]) -> dict[tuple[str, str], BySeed]:
    """As `_runs`, with gains over the base model."""
    gains: dict[tuple[str, str], BySeed] = {}
    for pooled in pool:
        if pooled.trial.is_counted:
            stack_gains = gains.setdefault((pooled.conditions.task, pooled.trial.row.agent), {})
            pairs = {item: (new, pooled.base.get(item)) for item, new in pooled.final.items()}
            stack_gains[len(stack_gains)] = {
                item: None if new is None or old is None else new - old for item, (new, old) in pairs.items()
            }
    return gains


def _planned(pool: Sequence[PooledTrial]) -> list[PlannedTrial]:
    """The trials as a sweep would have planned them, for the effects of drivers and scaffolds."""
    numbers: Counter[tuple[str, str]] = Counter()
    planned = []
    for pooled in pool:
        row = pooled.trial.row
        planned.append(
            PlannedTrial(
                task=row.task,
                agent=row.scaffold,
                task_name=row.task,
                agent_name=row.scaffold,
                driver=row.driver,
                driver_name=row.driver,
                mode=Mode(row.mode),
                seed=numbers[row.task, row.agent],  # the number of the run, by which `_runs` keys its scores
            )
        )
        numbers[row.task, row.agent] += 1
    return planned


def _difference(runs_a: BySeed, runs_b: BySeed) -> RunDifference | None:
    """On the items that every run of both was scored on; None if there are fewer than two."""
    runs = (*runs_a.values(), *runs_b.values())
    items = [item for item in sorted(runs[0]) if all(run.get(item) is not None for run in runs)]
    if len(items) < 2:
        return None
    samples_RI = (
        np.array([[run[item] for item in items] for run in side.values()], dtype=float) for side in (runs_a, runs_b)
    )
    return difference_of_samples(*samples_RI)


def _ranks(stacks: Sequence[str], pairs: Mapping[tuple[int, int], PairedDifference]) -> dict[str, RankInterval]:
    return dict(zip(stacks, rank_intervals(len(stacks), pairs), strict=True))


def _task_standings(pool: Sequence[PooledTrial]) -> TaskStandings:
    task = pool[0].conditions.task
    by_stack: dict[str, list[PooledTrial]] = {}
    for pooled in pool:
        by_stack.setdefault(pooled.trial.row.agent, []).append(pooled)
    runs = _runs(pool)
    stacks = [stack for stack in by_stack if (task, stack) in runs]
    pairs = {}
    for (a, stack_a), (b, stack_b) in combinations(enumerate(stacks), 2):
        if (difference := _difference(runs[task, stack_a], runs[task, stack_b])) is not None:
            pairs[a, b] = mean_difference([difference])
    ranks = _ranks(stacks, pairs)
    summaries = {summary.agent: summary for summary in summarise_agents(_counted_rows(pool), _gains(pool))}
    standings = [_standing(summaries[stack], members, ranks.get(stack)) for stack, members in by_stack.items()]
    # "items" before "items and seeds": one stack with a single run makes it the statement for the whole task
    over = sorted({pair.over for pair in pairs.values()}, key=len)
    return TaskStandings(
        task=task,
        is_interactive=any(pooled.is_interactive for pooled in pool),
        # trials without cards have no protocol, which `difference` ignores: "" sorts before every digest
        exam=max((pooled.conditions for pooled in pool), key=lambda conditions: conditions.protocol),
        standings=sorted(standings, key=_by_tier),
        over=over[0] if over else "",
    )


def _counted_rows(pool: Sequence[PooledTrial]) -> list[SweepRow]:
    """The rows of one task for averages: what does not count has no gain; seeds are the numbers of runs in `_gains`."""
    numbers: Counter[str] = Counter()
    rows = []
    for pooled in pool:
        row = pooled.trial.row
        if pooled.trial.is_counted:
            rows.append(replace(row, seed=numbers[row.agent]))
            numbers[row.agent] += 1
        else:
            rows.append(replace(row, gain=None, claim="", result="", credit=None, has_passed=None))
    return rows


def _by_tier(standing: Standing) -> tuple[float, float, float, str]:
    # not by gain alone: with few common items a stack of a lower tier may have the higher mean
    gain, place, credit = standing.summary.mean_gain, standing.place, standing.summary.mean_credit
    return (
        place.tier if place is not None else math.inf,
        -credit if credit is not None else 1.0,
        -gain.value if gain is not None else 0.0,
        standing.stack,
    )


def _standing(summary: AgentSummary, members: Sequence[PooledTrial], place: RankInterval | None) -> Standing:
    row = members[0].trial.row
    counted = [pooled for pooled in members if pooled.trial.is_counted]
    marks = Counter(mark for pooled in members for mark in pooled.trial.marks)
    runs = [_agent_run(pooled) for pooled in members]
    try:
        price = spend_per_success(runs, Resource.USD) if row.driver is not None else None
    except NotEnoughData:
        price = None
    return Standing(
        stack=row.agent,
        scaffold=row.scaffold,
        driver=row.driver,
        mode=row.mode,
        summary=summary,
        base=_mean(_mean(pooled.base.values()) for pooled in counted),
        final=_mean(_mean(pooled.final.values()) for pooled in counted),
        place=place,
        seeds=tuple(pooled.trial.row.seed for pooled in counted),
        n_counted=len(counted),
        n_within_noise=sum(pooled.trial.row.within_noise is True for pooled in counted),
        marks=tuple(f"{n}x {mark}" for mark, n in marks.items()),
        spend=agent_metrics(runs),
        dollars_per_success=price,
    )


def _agent_run(pooled: PooledTrial) -> AgentRun:
    """A trial as one run of an agent at one task; one without a verified result has no success, and is no failure."""
    row = pooled.trial.row
    is_judged = row.state == FINISHED and pooled.trial.is_verified and row.gain is not None
    failures, unknown = row.n_failures, row.n_unknown_recoveries
    # failures whose recovery is unknown are left out of both counts
    n_judged = failures - unknown if failures is not None and unknown is not None else None
    return AgentRun(
        item=pooled.trial.folder,
        task_success=float(row.claim == Claim.BETTER) if is_judged else None,
        n_failures=n_judged,
        n_recovered=row.n_recovered if n_judged is not None else None,
        n_steps=row.n_submissions,
        tokens=row.llm_tokens,
        seconds=row.seconds,
        usd=row.llm_dollars,
        n_violations=int(row.integrity == IntegrityState.VOID.value) if row.integrity else None,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _overall(
    pool: Sequence[PooledTrial], boards: Sequence[TaskStandings], *, is_interactive: bool
) -> OverallStandings | None:
    """The board over all tasks of a kind; None without a task, or without a stack that has trials on all of them.

    Tasks that ask for more than a checkpoint are not among them: an agent that hands in no model keeps the base there,
    whatever its verdict says.
    """
    judged = {pooled.conditions.task for pooled in pool if pooled.trial.row.has_passed is not None}
    tasks = [board.task for board in boards if board.is_interactive is is_interactive and board.task not in judged]
    tasks = [task for task in tasks if _gap_closed(pool, task)]  # not where the base model is perfect
    if not tasks:
        return None
    runs = _runs(pool)
    stacks = list(dict.fromkeys(pooled.trial.row.agent for pooled in pool if pooled.conditions.task in tasks))
    missing = {stack: [task for task in tasks if (task, stack) not in runs] for stack in stacks}
    complete = [stack for stack in stacks if not missing[stack]]
    if not complete:
        return None
    closed = {stack: _gap_table(pool, tasks, stack) for stack in complete}
    pairs = {}
    for (a, stack_a), (b, stack_b) in combinations(enumerate(complete), 2):
        parts = [_difference(runs[task, stack_a], runs[task, stack_b]) for task in tasks]
        if all(part is not None for part in parts):
            pairs[a, b] = mean_difference([part for part in parts if part is not None])
    ranks = _ranks(complete, pairs)
    gains = _gains(pool)
    alone = {row.stack: row.summary.mean_gain for row in _board_of(boards, tasks[0])} if len(tasks) == 1 else {}
    order = sorted(complete, key=lambda stack: (-iqm_value(closed[stack]), stack))
    n_submitted = {
        stack: sum(
            standing.summary.n_submitted
            for task in tasks
            for standing in _board_of(boards, task)
            if standing.stack == stack
        )
        for stack in complete
    }
    standings = [
        OverallStanding(
            stack=stack,
            iqm=_iqm(closed[stack], stack) if n_submitted[stack] else _kept_iqm(closed[stack]),
            mean_gain=(alone.get(stack) or _mean_gain([gains[task, stack] for task in tasks]))
            if n_submitted[stack]
            else Estimate(0.0, None, None, len(tasks), method=BASE_KEPT),
            place=ranks[stack],
            profile=_profile(closed[stack], stack),
            beats_next=_beats(closed[stack], closed[order[i + 1]], stack) if i + 1 < len(order) else None,
            n_submitted=n_submitted[stack],
        )
        for i, stack in enumerate(order)
    ]
    lacking = {stack: ", ".join(absent) for stack, absent in missing.items() if absent}
    return OverallStandings(is_interactive, tuple(tasks), standings, lacking)


def _board_of(boards: Sequence[TaskStandings], task: str) -> Sequence[Standing]:
    return next(board.standings for board in boards if board.task == task)


def _gap_closed(pool: Sequence[PooledTrial], task: str, stack: str | None = None) -> list[float]:
    """Share of the way from base to perfect score of each counted trial; none where the base model is perfect."""
    closed = []
    for pooled in pool:
        if pooled.conditions.task != task or not pooled.trial.is_counted or stack not in {None, pooled.trial.row.agent}:
            continue
        base, final = _mean(pooled.base.values()), _mean(pooled.final.values())
        if base is not None and final is not None and base < 1.0:
            closed.append(float(normalised_score(final, base, 1.0)))
    return closed


def _gap_table(pool: Sequence[PooledTrial], tasks: Sequence[str], stack: str) -> NDArray[np.float64]:
    """closed_RT: runs x tasks, NaN where a task has fewer runs than another."""
    columns = [_gap_closed(pool, task, stack) for task in tasks]
    table = np.full((max(map(len, columns)), len(tasks)), np.nan)
    for task_index, column in enumerate(columns):
        table[: len(column), task_index] = column
    return table


def _rng(*parts: str) -> np.random.Generator:
    return np.random.default_rng(derive_seed("leaderboard", *parts))


def _iqm(closed_RT: NDArray[np.float64], stack: str) -> RunEstimate:
    try:
        return iqm(closed_RT, _rng("iqm", stack), N_REPLICATES)
    except NotEnoughData:  # one run per task cannot be resampled over runs
        n_missing = int(np.isnan(closed_RT).sum())
        estimate = Estimate(iqm_value(closed_RT), None, None, closed_RT.shape[0], n_missing, "IQM, one run per task")
        return RunEstimate(estimate, closed_RT.shape[1], "one run per task: no interval for the IQM")


def _kept_iqm(closed_RT: NDArray[np.float64]) -> RunEstimate:
    """Of a stack that submitted nothing usable: 0 by rule, which nothing was measured for."""
    n_missing = int(np.isnan(closed_RT).sum())
    return RunEstimate(
        Estimate(0.0, None, None, closed_RT.shape[0], n_missing, BASE_KEPT), closed_RT.shape[1], BASE_KEPT
    )


def _mean_gain(gains: Sequence[BySeed]) -> Estimate:
    """Over tasks; the base model is the other side, the same on every item."""
    parts = []
    for runs in gains:
        zeros: BySeed = {number: dict.fromkeys(items, 0.0) for number, items in runs.items()}
        if (difference := _difference(runs, zeros)) is not None:
            parts.append(difference)
    return mean_difference(parts).change


def _profile(closed_RT: NDArray[np.float64], stack: str) -> PerformanceProfile | None:
    try:
        return performance_profile(closed_RT, THRESHOLDS, _rng("profile", stack), N_REPLICATES)
    except NotEnoughData:
        return None


def _beats(closed_RT: NDArray[np.float64], next_closed_RT: NDArray[np.float64], stack: str) -> RunEstimate | None:
    try:
        return improvement(closed_RT, next_closed_RT, _rng("improvement", stack), N_REPLICATES)
    except NotEnoughData:
        return None
