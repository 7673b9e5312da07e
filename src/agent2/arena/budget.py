"""What an agent may spend, and the one deadline that everything reads.

The deadline is a wall-clock time, so that the agent, the grading API and a resumed harness agree on it.
It covers the agent's phase only: evaluations of what was accepted in time may end later.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of the agent's phase."""

    started_at: float
    """Unix seconds."""
    wall_clock_s: float
    clock: Callable[[], float] = time.time

    @property
    def ends_at(self) -> float:
        """Unix seconds."""
        return self.started_at + self.wall_clock_s

    def now(self) -> float:
        """Unix seconds."""
        return self.clock()

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.ends_at - self.clock())

    @property
    def is_over(self) -> bool:
        """Nothing may be submitted any more."""
        return self.remaining() <= 0.0
