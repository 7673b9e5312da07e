"""Watches what no kernel limit holds here: resident memory, disk use of the workspace, and the process count.

Soft: it looks every now and then, so a fast program overshoots before it is stopped. It sees neither memory
files that no process maps nor disk blocks of deleted files that are still open; the floor of free
disk space catches the latter before the harness itself runs out.
"""

import errno
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from agent2.sandbox.spec import GIB, Limits

DISK_SHARE = 0.05
"""Of the time, at most this share is spent on walking the workspace."""
MIN_DISK_INTERVAL_S = 0.5
MAX_ENTRIES = 1_000_000
FREE_FLOOR_GIB = 0.25


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit that was passed."""

    limit: str
    sentence: str


class Watchdog:
    """Looks at one sandbox."""

    def __init__(self, limits: Limits, workspace: Path, *, memory_is_hard: bool) -> None:
        self._limits = limits
        self._workspace = workspace
        self._memory_is_hard = memory_is_hard
        self._next_disk_look = 0.0
        self.peak_processes = 0
        """Most processes and threads seen at one look."""

    def look(self, root: psutil.Process, now: float) -> Breach | None:
        """Measure once; returns the limit that is passed, if any. `root`: the sandbox's outermost process."""
        processes = family(root)
        self.peak_processes = max(self.peak_processes, _tasks(processes))
        if not self._memory_is_hard:
            breach = self._look_at_memory(processes)
            if breach is not None:
                return breach
        if now < self._next_disk_look:
            return None
        started = time.monotonic()
        breach = self._look_at_disk()
        spent = time.monotonic() - started
        self._next_disk_look = now + max(MIN_DISK_INTERVAL_S, spent / DISK_SHARE)
        return breach

    def _look_at_memory(self, processes: list[psutil.Process]) -> Breach | None:
        limit = self._limits.memory_gib * GIB
        used = sum(_resident(process) for process in processes)
        if used > limit:  # pages shared after a fork were counted several times: look closely
            used = sum(_proportional(process) for process in processes)
        if used <= limit:
            return None
        return Breach("memory", f"used {used / GIB:.2f} GiB of memory, {self._limits.memory_gib:g} GiB are allowed")

    def _look_at_disk(self) -> Breach | None:
        use = disk_use(self._workspace)
        if isinstance(use, str):
            return Breach("disk", use)
        if use > self._limits.disk_gib * GIB:
            allowed = f"{self._limits.disk_gib:g} GiB are allowed"
            return Breach("disk", f"filled the workspace with {use / GIB:.2f} GiB, {allowed}")
        space = os.statvfs(self._workspace)
        free = space.f_bavail * space.f_frsize / GIB
        if free < FREE_FLOOR_GIB:
            return Breach("disk", f"was stopped because the host's disk has only {free:.2f} GiB left")
        return None


def family(root: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants; empty when it is gone."""
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def disk_use(folder: Path) -> int | str:
    """Bytes allocated below a folder, links not followed; a sentence if it is built so that nobody can tell.

    What vanishes during the walk is not counted.
    """
    total, entries = 0, 0
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as listing:
                for entry in listing:
                    entries += 1
                    if entries > MAX_ENTRIES:
                        return f"made more than {MAX_ENTRIES} files and folders in the workspace"
                    status = entry.stat(follow_symlinks=False)
                    total += status.st_blocks * 512
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed or replaced while we looked
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                return f"made a folder that cannot be measured: {error.strerror}"
            return "nested folders so deeply in the workspace that their paths are too long"
    return total


def _tasks(processes: list[psutil.Process]) -> int:
    total = 0
    for process in processes:
        try:
            total += process.num_threads()
        except psutil.Error:
            continue  # it ended, or changes its user right now
    return total


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _proportional(process: psutil.Process) -> int:
    """Memory of a process with shared pages divided among their users; resident memory if that is not told."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except OSError:
        return _resident(process)
