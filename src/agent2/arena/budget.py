"""What an agent may spend, the one deadline that everything reads, and the room that a trial needs on this machine.

The deadline is a wall-clock time, so that the agent, the grading API and a resumed harness agree on it.
It covers the agent's phase only: evaluations of what was accepted in time may end later.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from agent2.errors import MachineLacks
from agent2.sandbox.spec import GIB
from agent2.sandbox.watchdog import FREE_FLOOR_GIB

LOGS_GIB = 0.1
"""For logs, cards, code revisions and the report of a small trial."""
COPIES = 3
"""Of the base model: what the agent makes, the snapshot of a submission, and one more in flight."""
INTERPRETER_GIB = 0.5
"""Memory of a process that has loaded torch and no model."""


def require_room(folder: Path, base: Path | None = None) -> None:
    """See that a trial below `folder` has the disk space and memory without which it cannot end.

    folder: need not exist yet. base: the base model, once it is there. Less than the agent's own limits is let pass:
    it need not use all of them. Raises MachineLacks, in one sentence.
    """
    there = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())
    weights = sum(file.stat().st_size for file in base.glob("*.safetensors")) / GIB if base is not None else 0.0
    disk = shutil.disk_usage(there)
    free, needed = disk.free / GIB, FREE_FLOOR_GIB + LOGS_GIB + COPIES * weights
    if disk.total and free < needed:  # /proc and its like are no disk at all: writing there is refused as bad input
        raise MachineLacks(
            f"{folder}: its disk has {free:.2f} GiB left, {needed:.2f} GiB are needed ({FREE_FLOOR_GIB:g} stay free); "
            "make room there, or name a folder on another disk"
        )
    memory, needed = psutil.virtual_memory().available / GIB, INTERPRETER_GIB + COPIES * weights
    if memory < needed:
        raise MachineLacks(
            f"this machine has {memory:.2f} GiB of memory left, {needed:.2f} GiB are needed to score the base model; "
            "end other programs, or take a smaller model"
        )


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
