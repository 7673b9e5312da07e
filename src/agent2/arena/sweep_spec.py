"""What a sweep runs: stacks (agent x driver x mode) x tasks x seeds, in a YAML file that people write.

An agent that is driven by an LLM runs with each driver, one that is not runs once; each in every mode. A stack is
named by its parts: `codex`, `codex+openai/gpt-5.2`, `grpo (rl-only)`.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

from pydantic import Field

from agent2.arena.agents import load_agent
from agent2.arena.assignment import Mode
from agent2.arena.gateway.drivers import load_driver
from agent2.arena.plan import require_gpus, require_system, resolve_trial
from agent2.arena.sweep_stacks import PlannedTrial
from agent2.arena.sweep_until import UntilDecided
from agent2.arena.tasks import load_task
from agent2.config import StrictModel
from agent2.errors import ConfigError


class SweepSpec(StrictModel):
    """The file of `agent2 sweep`."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the sweep's folder."""
    tasks: list[str] = Field(min_length=1)
    agents: list[str] = Field(min_length=1)
    drivers: list[str] = Field(default_factory=list)
    """PROVIDER/MODEL or driver files, for the agents that are driven by an LLM."""
    modes: list[Mode] = Field(default_factory=lambda: [Mode.FREE], min_length=1)
    """Training routes allowed, one run each."""
    seeds: list[int] = Field(min_length=1)
    parallel: int = Field(default=1, ge=1)
    """Trials at once."""
    sandbox: str = "bubblewrap"
    set: list[str] = Field(default_factory=list)
    """Overrides of every trial, as "budget.wall_clock_s=300"."""
    until_decided: UntilDecided | None = None
    """Run more seeds until the agents are told apart; None: run `seeds` and stop."""


def plan_trials(spec: SweepSpec) -> list[PlannedTrial]:
    """Every cell, seed by seed, so that an interrupted sweep has whole rows to compare.

    Raises ConfigError for an unknown name or a trial planned twice.
    """
    stacks = [stack for agent in spec.agents for stack in _stacks(spec, agent)]
    planned = [
        PlannedTrial(task=task, task_name=load_task(task).name, seed=seed, **stack)
        for seed, task, stack in product(spec.seeds, spec.tasks, stacks)
    ]
    names = Counter(trial.trial_id for trial in planned)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise ConfigError(
            f"sweep {spec.name}: {twice[0]} is planned {names[twice[0]]} times; list each task, agent and seed once, "
            "and give agents in different folders, and drivers in different files, different names"
        )
    return planned


def check_trials(spec: SweepSpec, planned: Sequence[PlannedTrial]) -> None:
    """See that each stack can be run on each task.

    Raises ConfigError for an unusable override or sandbox, a driver that does not fit or has no key, or an agent system
    that is not installed; SandboxError for a GPU that is not there.
    """
    for trial in planned:
        if trial.seed == spec.seeds[0]:
            overrides = [*spec.set, *trial.overrides]
            require_gpus(resolve_trial(trial.task, trial.agent, trial.seed, sandbox=spec.sandbox, overrides=overrides))
            require_system(load_agent(trial.agent))


def _stacks(spec: SweepSpec, agent: str) -> list[dict[str, Any]]:
    """The fields of a planned trial that name a stack, for each stack of one agent.

    Raises ConfigError for an agent that needs a driver when there is none.
    """
    player = load_agent(agent).spec
    if player.llm is not None and not spec.drivers:
        raise ConfigError(
            f"sweep {spec.name}: agent {player.name} is driven by an LLM; list its drivers under drivers:"
        )
    drivers = [(name, load_driver(name).name) for name in spec.drivers] if player.llm is not None else [(None, None)]
    return [
        {"agent": agent, "agent_name": player.name, "driver": driver, "driver_name": name, "mode": mode}
        for (driver, name), mode in product(drivers, spec.modes)
    ]
