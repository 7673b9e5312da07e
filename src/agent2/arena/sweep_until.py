"""Which cells of a sweep need more seeds: run agents until every pair is told apart, or the cap is reached.

Pure logic over the rows of finished trials; runs nothing and reads no file. On each task, agents are compared by
their gain on test_private with `agent2.stats.sequential`: seeds come in rounds, an agent whose pairs are all
decided gets no more, and the chance of calling any equal pair of any task different is at most alpha.

A trial without a gain (nothing handed in, or not finished) is missing, never a zero: another seed takes its place.
An agent with more than `max_missing` of them on a task is given up there and named; what was decided stays. A
trial that is finished after its seed was replaced changes the rounds, so finish what was interrupted before asking.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field, model_validator

from agent2.arena.sweep_records import SweepRow
from agent2.config import StrictModel
from agent2.errors import ConfigError
from agent2.records import derive_seed
from agent2.stats.sequential import AdaStopSettings, AdaStopState, compare_sequentially

NOT_STARTED = "not started"
"""State of a row that stands for no trial yet."""


class UntilDecided(StrictModel):
    """Section `until_decided` of a sweep's file; fixed before the first trial, or the error rate means nothing."""

    seeds_per_round: int = Field(default=5, ge=2)
    """New seeds of each undecided agent in a round. With fewer than 5, the first rounds can decide nothing."""
    max_seeds: int = Field(default=25, ge=2)
    """Most trials with a gain of an agent on a task; a multiple of seeds_per_round."""
    max_missing: int = Field(default=5, ge=0)
    """Trials without a gain that an agent may have on a task."""
    alpha: float = Field(default=0.05, gt=0.0, lt=1.0)
    """Chance of any false difference, over all pairs on all tasks; each task gets an equal part."""
    accept_early: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Spent on giving up pairs that look equal before the cap; 0 never does."""

    @model_validator(mode="after")
    def _rounds_fit(self) -> "UntilDecided":
        if self.max_seeds % self.seeds_per_round:
            raise ValueError(f"max_seeds={self.max_seeds} must be a multiple of seeds_per_round={self.seeds_per_round}")
        return self

    def design(self, n_tasks: int, n_agents: int) -> AdaStopSettings:
        """The test on one of the tasks."""
        settings = AdaStopSettings(
            n_seeds=self.seeds_per_round,
            n_interims=self.max_seeds // self.seeds_per_round,
            alpha=self.alpha / n_tasks,
            beta=self.accept_early,
        )
        n_pairs = n_agents * (n_agents - 1) // 2
        few = 2 * settings.n_interims * n_pairs / settings.alpha
        return replace(settings, max_permutations=max(settings.max_permutations, int(few)))


@dataclass(frozen=True, slots=True)
class CellNeed:
    """Trials to run next in one cell."""

    task: str
    agent: str
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SweepDecision:
    """What the finished trials say, and what to run next."""

    needs: tuple[CellNeed, ...]
    """Empty: the sweep is over."""
    states: Mapping[str, AdaStopState]
    """Task -> what is known of its pairs of agents."""
    given_up: tuple[tuple[str, str], ...]
    """(task, agent) with too many trials without a gain: no more are run, and pairs not decided stay so."""
    n_missing: Mapping[tuple[str, str], int]
    """(task, agent) -> trials without a gain; only where there are any."""

    @property
    def is_decided(self) -> bool:
        """Nothing is left to run."""
        return not self.needs

    def __str__(self) -> str:
        lines = [f"{task}: {state}" for task, state in self.states.items()]
        lines += [
            f"{task}: {agent} given up ({self.n_missing[task, agent]} trials without a gain)"
            for task, agent in self.given_up
        ]
        return "; ".join(lines)


def decide_cells(
    rows: Sequence[SweepRow], cells: Sequence[tuple[str, str]], plan: UntilDecided, first_seed: int = 0
) -> SweepDecision:
    """Decide from the trials run so far which (task, agent) cells need which seeds.

    rows: one for each trial, in any order; those without a gain count as missing, those not started not at all.
    cells: every (task, agent) of the sweep, at least two agents on each task. Seeds are used from first_seed
    upwards; new ones follow the highest one used in the cell. The same rows give the same decision, and later rounds
    never undo an earlier one. Raises ConfigError for a task with one agent, a row outside the cells or twice the
    same trial.
    """
    agents_of: dict[str, list[str]] = {}
    for task, agent in cells:
        agents_of.setdefault(task, []).append(agent)
    alone = sorted(task for task, agents in agents_of.items() if len(set(agents)) < 2)
    if alone:
        raise ConfigError(f"until_decided compares agents, and task {alone[0]!r} has only one; add another agent")
    runs = _by_cell(rows, cells)
    missing = {cell: sum(gain is None for gain in seeds.values()) for cell, seeds in runs.items()}
    given_up = tuple(cell for cell in cells if missing[cell] > plan.max_missing)
    states: dict[str, AdaStopState] = {}
    needs: list[CellNeed] = []
    for task, agents in agents_of.items():
        gains = {agent: _gains(runs[task, agent]) for agent in agents}
        withdrawn = [agent for agent in agents if (task, agent) in given_up]
        rng = np.random.default_rng(derive_seed("sweep until decided", task))
        state = compare_sequentially(gains, plan.design(len(agents_of), len(agents)), rng, withdrawn)
        states[task] = state
        stop = (state.interim + 1) * plan.seeds_per_round
        for agent in state.needs_seeds:
            if (short := stop - len(gains[agent])) > 0:
                needs.append(CellNeed(task, agent, _next_seeds(runs[task, agent], short, first_seed)))
    return SweepDecision(tuple(needs), states, given_up, {cell: n for cell, n in missing.items() if n})


def _by_cell(
    rows: Sequence[SweepRow], cells: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], dict[int, float | None]]:
    runs: dict[tuple[str, str], dict[int, float | None]] = {cell: {} for cell in cells}
    twice = [trial for trial, count in Counter((row.task, row.agent, row.seed) for row in rows).items() if count > 1]
    if twice:
        raise ConfigError(
            f"task {twice[0][0]!r}, agent {twice[0][1]!r}, seed {twice[0][2]} has two rows; give each trial once"
        )
    for row in rows:
        if row.state == NOT_STARTED:
            continue
        if (row.task, row.agent) not in runs:
            raise ConfigError(
                f"trial {row.trial} is of agent {row.agent!r} on task {row.task!r}, which this sweep has not"
            )
        runs[row.task, row.agent][row.seed] = row.gain_points
    return runs


def _gains(seeds: Mapping[int, float | None]) -> list[float]:
    """In the order of seeds, without the missing ones."""
    return [gain for _, gain in sorted(seeds.items()) if gain is not None]


def _next_seeds(used: Mapping[int, float | None], count: int, first_seed: int) -> tuple[int, ...]:
    start = max(used, default=first_seed - 1) + 1
    return tuple(range(start, start + count))
