"""Processor time of a sandboxed program: a limit that a busy machine does not shorten.

What a process used, and what its children used that it has waited for, is read from /proc. A program that is made to
wait, because others use the processors or because it was stopped, uses nothing. Does NOT count a child that ended
between two looks and that nobody waited for (its parent ignores the ends of children): a time limit on the clock stays
necessary behind it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
IDLE_SHARE = 0.01
"""Of one processor; a program that uses less sleeps, or waits for something that will not come."""


@dataclass(frozen=True, slots=True)
class ProcessorLimit:
    """How much a program may use."""

    cpu_s: float
    """Processor seconds of all its processes and threads together."""
    idle_s: float
    """Seconds on the clock after which it has to have used more than `IDLE_SHARE` of a processor."""

    def passed_by(self, used_s: float | None, elapsed_s: float) -> str | None:
        """Why the program has to end, in one clause; None: it may go on. used_s: None where it cannot be measured."""
        if used_s is None:
            return None
        if used_s >= self.cpu_s:
            return f"it used {self.cpu_s:g} s of processor time"
        if elapsed_s >= self.idle_s and used_s < IDLE_SHARE * elapsed_s:
            return f"it was idle: {used_s:.1f} s of processor time in {elapsed_s:.0f} s"
        return None


class ProcessorMeter:
    """Adds up what a changing set of processes has used; never less than at an earlier look."""

    def __init__(self) -> None:
        """Nothing has been measured yet."""
        self._used_s: float | None = None

    @property
    def used_s(self) -> float | None:
        """Processor seconds at the last look; None: no process could be read."""
        return self._used_s

    def look(self, pids: Sequence[int]) -> float | None:
        """Processor seconds so far. pids: all processes of the program, each once."""
        parts = [part for part in map(_used_by, pids) if part is not None]
        if parts:
            self._used_s = max(self._used_s or 0.0, sum(parts))
        return self._used_s


def _used_by(pid: int) -> float | None:
    """Processor seconds of a process, its threads, and the children that it has waited for; None: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return sum(map(int, fields[11:15])) / TICKS_PER_S  # utime, stime, cutime, cstime
