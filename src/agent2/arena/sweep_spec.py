"""What a sweep runs: agents x tasks x seeds, in a YAML file that people write."""

from collections import Counter

from pydantic import Field

from agent2.arena.agents import load_agent
from agent2.arena.plan import resolve_trial
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
    seeds: list[int] = Field(min_length=1)
    parallel: int = Field(default=1, ge=1)
    """Trials at once."""
    sandbox: str = "bubblewrap"
    set: list[str] = Field(default_factory=list)
    """Overrides of every trial, as "budget.wall_clock_s=300"."""
    until_decided: UntilDecided | None = None
    """Run more seeds until the agents are told apart; None: run `seeds` and stop."""


class PlannedTrial(StrictModel):
    """One trial of a sweep."""

    task: str
    """As written in the file: a name or a path."""
    agent: str
    """As written in the file: a name or a folder."""
    task_name: str
    agent_name: str
    seed: int

    @property
    def trial_id(self) -> str:
        """Names the trial's folder."""
        return f"{self.task_name}-{self.agent_name}-s{self.seed}"


def plan_trials(spec: SweepSpec) -> list[PlannedTrial]:
    """Every cell, seed by seed, so that an interrupted sweep has whole rows to compare.

    Raises ConfigError for an unknown name, an unusable override or a trial planned twice, before anything runs.
    """
    tasks = {name: load_task(name).name for name in spec.tasks}
    agents = {name: load_agent(name).spec.name for name in spec.agents}
    for task in spec.tasks:
        resolve_trial(task, spec.agents[0], spec.seeds[0], sandbox=spec.sandbox, overrides=spec.set)
    planned = [
        PlannedTrial(task=task, agent=agent, task_name=tasks[task], agent_name=agents[agent], seed=seed)
        for seed in spec.seeds
        for task in spec.tasks
        for agent in spec.agents
    ]
    names = Counter(trial.trial_id for trial in planned)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise ConfigError(
            f"sweep {spec.name}: {twice[0]} is planned {names[twice[0]]} times; list each task, agent and seed once, "
            "and give agents in different folders different names in their agent.yaml"
        )
    return planned
