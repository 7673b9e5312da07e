"""The leaderboard: trials of several sweeps and laboratories, pooled where they sat the same exam, and ranked.

Two trials are compared only if they sat the same exam: task, benchmark version, items of all splits, installation
secret, base model, protocol and budget. Of each task the exam that most trials sat is kept; the others are left out,
with the part that differs.

Ranks come from paired tests on the same private items and hold for all stacks at once (`agent2.stats.ranking`). Runs
of a stack are numbered, not matched by seed: what a seed does in one stack has nothing to do with another. A trial
without a result is missing, never a zero; a stack that often hands in nothing shows it in its counts. Over several
tasks, scores are made comparable as the share of the way from the base model to a perfect score; interactive tasks are
never averaged with static ones.

Does NOT read folders (`agent2.arena.analysis.pool`) and makes no pages.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from agent2.arena.analysis.published import PublishedBoard
from agent2.arena.analysis.verdicts import IntegrityState
from agent2.arena.assignment import Mode
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
N_REPLICATES = 5_000


@dataclass(frozen=True, slots=True)
class ExamKey:
    """What must be equal for two trials to be comparable; digests, so that nothing hidden is told."""

    task: str
    benchmark: str
    """Name and version."""
    items: str
    """Digests of all splits."""
    secret: str
    """Digest of the installation secret."""
    base_model: str
    """Digest of its weights."""
    protocol: str
    """Digest of how the private items are played; empty where the trial has no cards."""
    budget: str

    def difference(self, other: "ExamKey") -> str:
        """The first part in which the two differ, in words; empty where they are the same exam."""
        for part in fields(self):
            mine, theirs = getattr(self, part.name), getattr(other, part.name)
            is_known = part.name != "protocol" or (mine and theirs)
            if mine != theirs and is_known:
                name = part.name.replace("_", " ")
                return f"another {name} ({mine or 'none'}; the exam that most trials sat has {theirs or 'none'})"
        return ""


@dataclass(frozen=True, slots=True)
class LeaderboardTrial:
    """One trial of the pool."""

    folder: str
    row: SweepRow
    marks: Sequence[str]
    """What a reader must know of it: not verified, audit not cleared, no sandbox, ...; empty for a plain one."""
    is_verified: bool
    """Its cards are whole and give the scores that it reports."""
    is_counted: bool
    """It has a result that enters ranks and averages."""


@dataclass(frozen=True, slots=True)
class PooledTrial:
    """A trial with what is needed to compare it."""

    trial: LeaderboardTrial
    exam: ExamKey
    is_interactive: bool
    agent_digest: str
    identity: str
    """The same for two copies of one trial."""
    base: Mapping[str, float | None]
    """Item -> score of the base model on the private items; empty where that is not known."""
    final: Mapping[str, float | None]
    """Item -> score of the result: the base model's where that is the result by identity or rule; empty without one."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A folder that is not on the board."""

    folder: str
    why: str


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
    """One task: every stack that has trials of the same exam."""

    task: str
    is_interactive: bool
    exam: ExamKey
    standings: Sequence[Standing]
    """Best mean gain first; those without a result last."""
    over: str
    """What the ranks' tests are over: "items and seeds", or "items" where some stack has one run; empty: no test."""


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
    """Share of its runs above each threshold; None with one run a task."""
    beats_next: RunEstimate | None
    """Chance that one of its runs beats one of the next stack's on the same task; None: last, or one run a task."""


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
    left_out: Sequence[LeftOut]
    tasks: Sequence[TaskStandings]
    overall: Sequence[OverallStandings]
    """Of each kind that has a task."""
    effects: Sequence[AxisEffect]
    """Of drivers and scaffolds: the widest pair of each family."""
    pair_effects: Sequence[PairEffect]
    published: Sequence[PublishedBoard]
    """Figures of others, not ours; never compared with the rest."""


def make_leaderboard(
    pool: Sequence[PooledTrial],
    left_out: Sequence[LeftOut] = (),
    published: Sequence[PublishedBoard] = (),
    sources: Sequence[str] = (),
) -> Leaderboard:
    """Rank a pool of trials. The same pool gives the same board, in whatever order it comes."""
    kept, out = _same_exams(_told_apart(sorted(pool, key=_place_in_pool)))
    tasks = [_task_standings(members) for members in _by_task(kept).values()]
    effects = pair_effects(_planned(kept), _runs(kept))
    return Leaderboard(
        format=FORMAT,
        sources=tuple(sources),
        trials=tuple(one.trial for one in kept),
        left_out=(*left_out, *out),
        tasks=tasks,
        overall=[found for kind in (False, True) if (found := _overall(kept, tasks, is_interactive=kind)) is not None],
        effects=axis_effects(effects),
        pair_effects=effects,
        published=tuple(published),
    )


@dataclass(frozen=True, slots=True)
class StackComparison:
    """One stack beside another on the private items of a task."""

    task: str
    stack: str
    other: str
    difference: PairedDifference | None
    """Of the results' scores, the stack's less the other's; None: they have fewer than two scored items in common."""
    n_runs: int
    n_runs_other: int
    """Counted trials."""
    n_won: int
    """Items on which the stack's mean score over its runs is higher."""
    n_lost: int
    n_same: int


def compare_stacks(pool: Sequence[PooledTrial], task: str, stack: str, other: str) -> StackComparison:
    """Two stacks of a board made of the same pool; this pair on its own, not corrected for others.

    Raises ConfigError if the board has no such stack on the task.
    """
    kept, _ = _same_exams(_told_apart(sorted(pool, key=_place_in_pool)))
    known = {one.trial.row.agent for one in kept if one.exam.task == task}
    for name in (stack, other):
        if name not in known:
            raise ConfigError(f"{name!r} has no trial on {task!r}; choose two of {', '.join(sorted(known)) or 'none'}")
    runs = _runs(kept)
    both = [runs.get((task, name), {}) for name in (stack, other)]
    found = _difference(*both) if all(both) else None
    means = [_item_means(side) for side in both]
    signs = Counter(int(np.sign(means[0][item] - means[1][item])) for item in means[0].keys() & means[1].keys())
    return StackComparison(
        task=task,
        stack=stack,
        other=other,
        difference=mean_difference([found]) if found is not None else None,
        n_runs=len(both[0]),
        n_runs_other=len(both[1]),
        n_won=signs[1],
        n_lost=signs[-1],
        n_same=signs[0],
    )


def _item_means(runs: BySeed) -> dict[str, float]:
    """Mean score over runs of the items that every run was scored on."""
    items = {item for run in runs.values() for item in run}
    scores = {item: [run.get(item) for run in runs.values()] for item in items}
    return {item: mean for item, found in scores.items() if None not in found and (mean := _mean(found)) is not None}


def _place_in_pool(one: PooledTrial) -> tuple[str, str, int, str]:
    row = one.trial.row
    return one.exam.task, row.agent, row.seed, one.trial.folder


def _told_apart(pool: Sequence[PooledTrial]) -> list[PooledTrial]:
    """Agents of one name and different files are different stacks: their names get the start of their digest."""
    digests: dict[str, set[str]] = {}
    for one in pool:
        digests.setdefault(one.trial.row.scaffold, set()).add(one.agent_digest)
    told = []
    for one in pool:
        row = one.trial.row
        if len(digests[row.scaffold]) > 1:
            name = f"{row.scaffold}@{one.agent_digest[:6]}"
            row = replace(row, agent=row.agent.replace(row.scaffold, name, 1), scaffold=name)
        told.append(replace(one, trial=replace(one.trial, row=row)))
    return told


def _by_task(pool: Sequence[PooledTrial]) -> dict[str, list[PooledTrial]]:
    found: dict[str, list[PooledTrial]] = {}
    for one in pool:
        found.setdefault(one.exam.task, []).append(one)
    return found


def _same_exams(pool: Sequence[PooledTrial]) -> tuple[list[PooledTrial], list[LeftOut]]:
    """Of each task the trials of one exam, each trial once; and what was left out."""
    kept: list[PooledTrial] = []
    out: list[LeftOut] = []
    for members in _by_task(pool).values():
        first: dict[str, PooledTrial] = {}
        # those that count come first: a changed copy must not hide the trial that it was made from
        for one in sorted(members, key=lambda one: (not one.trial.is_counted, not one.trial.is_verified)):
            if first.setdefault(one.identity, one) is not one:
                out.append(LeftOut(one.trial.folder, f"a copy of {first[one.identity].trial.folder}"))
        once = [one for one in members if first[one.identity] is one]
        # trials that count choose the exam: a folder full of broken ones must not outvote them
        votes = Counter(one.exam for one in once if one.trial.is_counted) or Counter(one.exam for one in once)
        exam = max(votes, key=lambda key: (votes[key], repr(key)))
        for one in once:
            if difference := one.exam.difference(exam):
                out.append(LeftOut(one.trial.folder, difference))
            else:
                kept.append(one)
    return kept, out


def _runs(pool: Sequence[PooledTrial]) -> dict[tuple[str, str], BySeed]:
    """(task, stack) -> number of the run -> item -> score of the result; counted trials only."""
    runs: dict[tuple[str, str], BySeed] = {}
    for one in pool:
        if one.trial.is_counted:
            found = runs.setdefault((one.exam.task, one.trial.row.agent), {})
            found[len(found)] = one.final
    return runs


def _gains(pool: Sequence[PooledTrial]) -> dict[tuple[str, str], BySeed]:
    """As `_runs`, with gains over the base model."""
    gains: dict[tuple[str, str], BySeed] = {}
    for one in pool:
        if one.trial.is_counted:
            found = gains.setdefault((one.exam.task, one.trial.row.agent), {})
            both = {item: (new, one.base.get(item)) for item, new in one.final.items()}
            found[len(found)] = {
                item: None if new is None or old is None else new - old for item, (new, old) in both.items()
            }
    return gains


def _planned(pool: Sequence[PooledTrial]) -> list[PlannedTrial]:
    """The trials as a sweep would have planned them, for the effects of drivers and scaffolds."""
    numbers: Counter[tuple[str, str]] = Counter()
    planned = []
    for one in pool:
        row = one.trial.row
        planned.append(
            PlannedTrial(
                task=row.task,
                agent=row.scaffold,
                task_name=row.task,
                agent_name=row.scaffold,
                driver=row.driver,
                driver_name=row.driver,
                mode=Mode(row.mode),
                seed=numbers[row.task, row.agent],
            )
        )
        numbers[row.task, row.agent] += 1
    return planned


def _difference(one: BySeed, other: BySeed) -> RunDifference | None:
    """On the items that every run of both was scored on; None if there are fewer than two."""
    runs = (*one.values(), *other.values())
    items = [item for item in sorted(runs[0]) if all(run.get(item) is not None for run in runs)]
    if len(items) < 2:
        return None
    sides = (np.array([[run[item] for item in items] for run in side.values()], dtype=float) for side in (one, other))
    return difference_of_samples(*sides)


def _places(stacks: Sequence[str], pairs: Mapping[tuple[int, int], PairedDifference]) -> dict[str, RankInterval]:
    return dict(zip(stacks, rank_intervals(len(stacks), pairs), strict=True))


def _task_standings(pool: Sequence[PooledTrial]) -> TaskStandings:
    task = pool[0].exam.task
    by_stack: dict[str, list[PooledTrial]] = {}
    for one in pool:
        by_stack.setdefault(one.trial.row.agent, []).append(one)
    runs = _runs(pool)
    stacks = [stack for stack in by_stack if (task, stack) in runs]
    pairs = {}
    for (a, stack_a), (b, stack_b) in combinations(enumerate(stacks), 2):
        if (found := _difference(runs[task, stack_a], runs[task, stack_b])) is not None:
            pairs[a, b] = mean_difference([found])
    placed = _places(stacks, pairs)
    counted_rows = [_as_counted(one) for one in pool]
    summaries = {summary.agent: summary for summary in summarise_agents(counted_rows, _gains(pool))}
    standings = [_standing(summaries[stack], members, placed.get(stack)) for stack, members in by_stack.items()]
    over = sorted({pair.over for pair in pairs.values()}, key=len)
    return TaskStandings(
        task=task,
        is_interactive=any(one.is_interactive for one in pool),
        exam=max((one.exam for one in pool), key=lambda exam: exam.protocol),
        standings=sorted(standings, key=_by_gain),
        over=over[0] if over else "",
    )


def _as_counted(one: PooledTrial) -> SweepRow:
    """The row for averages: what does not count has no gain."""
    return one.trial.row if one.trial.is_counted else replace(one.trial.row, gain=None, claim="", result="")


def _by_gain(standing: Standing) -> tuple[bool, float, str]:
    gain = standing.summary.mean_gain
    return (gain is None, -gain.value if gain is not None else 0.0, standing.stack)


def _standing(summary: AgentSummary, members: Sequence[PooledTrial], place: RankInterval | None) -> Standing:
    row = members[0].trial.row
    counted = [one for one in members if one.trial.is_counted]
    marks = Counter(mark for one in members for mark in one.trial.marks)
    runs = [_agent_run(one) for one in members]
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
        base=_mean(_mean(one.base.values()) for one in counted),
        final=_mean(_mean(one.final.values()) for one in counted),
        place=place,
        seeds=tuple(one.trial.row.seed for one in counted),
        n_counted=len(counted),
        n_within_noise=sum(one.trial.row.within_noise is True for one in counted),
        marks=tuple(f"{n}x {mark}" for mark, n in marks.items()),
        spend=agent_metrics(runs),
        dollars_per_success=price,
    )


def _agent_run(one: PooledTrial) -> AgentRun:
    """A trial as one run of an agent at one task."""
    row = one.trial.row
    is_judged = row.state == FINISHED and one.trial.is_verified
    failures, unknown = row.n_failures, row.n_unknown_recoveries
    n_judged = failures - unknown if failures is not None and unknown is not None else None
    return AgentRun(
        item=one.trial.folder,
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
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _overall(
    pool: Sequence[PooledTrial], boards: Sequence[TaskStandings], *, is_interactive: bool
) -> OverallStandings | None:
    """The board over all tasks of a kind; None without a task, or without a stack that has done them all."""
    tasks = [board.task for board in boards if board.is_interactive is is_interactive]
    tasks = [task for task in tasks if _closed_of(pool, task)]
    if not tasks:
        return None
    runs = _runs(pool)
    stacks = list(dict.fromkeys(one.trial.row.agent for one in pool if one.exam.task in tasks))
    lacks = {stack: [task for task in tasks if (task, stack) not in runs] for stack in stacks}
    whole = [stack for stack in stacks if not lacks[stack]]
    if not whole:
        return None
    closed = {stack: _closed_table(pool, tasks, stack) for stack in whole}
    pairs = {}
    for (a, stack_a), (b, stack_b) in combinations(enumerate(whole), 2):
        parts = [_difference(runs[task, stack_a], runs[task, stack_b]) for task in tasks]
        if all(part is not None for part in parts):
            pairs[a, b] = mean_difference([part for part in parts if part is not None])
    placed = _places(whole, pairs)
    gains = _gains(pool)
    order = sorted(whole, key=lambda stack: (-iqm_value(closed[stack]), stack))
    standings = [
        OverallStanding(
            stack=stack,
            iqm=_iqm(closed[stack], stack),
            mean_gain=_mean_gain([gains[task, stack] for task in tasks]),
            place=placed[stack],
            profile=_profile(closed[stack], stack),
            beats_next=_beats(closed[stack], closed[order[at + 1]], stack) if at + 1 < len(order) else None,
        )
        for at, stack in enumerate(order)
    ]
    lacking = {stack: ", ".join(missing) for stack, missing in lacks.items() if missing}
    return OverallStandings(is_interactive, tuple(tasks), standings, lacking)


def _closed_of(pool: Sequence[PooledTrial], task: str, stack: str | None = None) -> list[float]:
    """Share of the way from base to perfect score of each counted trial; none where the base model is perfect."""
    closed = []
    for one in pool:
        if one.exam.task != task or not one.trial.is_counted or stack not in {None, one.trial.row.agent}:
            continue
        base, final = _mean(one.base.values()), _mean(one.final.values())
        if base is not None and final is not None and base < 1.0:
            closed.append(float(normalised_score(final, base, 1.0)))
    return closed


def _closed_table(pool: Sequence[PooledTrial], tasks: Sequence[str], stack: str) -> NDArray[np.float64]:
    """closed_RT: runs x tasks, NaN where a task has fewer runs than another."""
    columns = [_closed_of(pool, task, stack) for task in tasks]
    table = np.full((max(map(len, columns)), len(tasks)), np.nan)
    for at, column in enumerate(columns):
        table[: len(column), at] = column
    return table


def _rng(*parts: str) -> np.random.Generator:
    return np.random.default_rng(derive_seed("leaderboard", *parts))


def _iqm(closed_RT: NDArray[np.float64], stack: str) -> RunEstimate:
    try:
        return iqm(closed_RT, _rng("iqm", stack), N_REPLICATES)
    except NotEnoughData:
        n_missing = int(np.isnan(closed_RT).sum())
        one = Estimate(iqm_value(closed_RT), None, None, closed_RT.shape[0], n_missing, "IQM, one run a task")
        return RunEstimate(one, closed_RT.shape[1], "one run a task: no interval")


def _mean_gain(gains: Sequence[BySeed]) -> Estimate:
    """Over tasks; the base model is the other side, the same on every item."""
    parts = []
    for runs in gains:
        nothing: BySeed = {number: dict.fromkeys(items, 0.0) for number, items in runs.items()}
        if (found := _difference(runs, nothing)) is not None:
            parts.append(found)
    return mean_difference(parts).change


def _profile(closed_RT: NDArray[np.float64], stack: str) -> PerformanceProfile | None:
    try:
        return performance_profile(closed_RT, THRESHOLDS, _rng("profile", stack), N_REPLICATES)
    except NotEnoughData:
        return None


def _beats(one_RT: NDArray[np.float64], other_RT: NDArray[np.float64], stack: str) -> RunEstimate | None:
    try:
        return improvement(one_RT, other_RT, _rng("improvement", stack), N_REPLICATES)
    except NotEnoughData:
        return None
