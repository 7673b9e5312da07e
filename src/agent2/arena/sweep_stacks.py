"""One cell of a sweep and its names: a stack is an agent system with its driver and mode."""

import re

from agent2.arena.assignment import Mode
from agent2.config import StrictModel


class PlannedTrial(StrictModel):
    """One trial of a sweep."""

    task: str
    """As written in the file: a name or a path."""
    agent: str
    """As written in the file: a name or a folder."""
    task_name: str
    agent_name: str
    """Of the agent system (the scaffold)."""
    driver: str | None = None
    """As written in the file."""
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
        """Those of this cell, for `resolve_trial`."""
        chosen = [f"mode={self.mode.value}"] if self.mode is not Mode.FREE else []
        return [*chosen, *([f"driver={self.driver}"] if self.driver is not None else [])]


def stack_name(agent: str, driver: str | None, mode: Mode) -> str:
    """The name of a stack."""
    driven = f"{agent}+{driver}" if driver is not None else agent
    return driven if mode is Mode.FREE else f"{driven} ({mode.value})"
