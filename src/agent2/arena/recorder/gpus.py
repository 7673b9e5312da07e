"""How long GPUs worked for the agent, sampled about once a second through NVIDIA's management library.

A GPU counts while a process of the agent holds a context on it. In a container the driver may tell process ids of
another name space; then nothing can be matched and the time is not known (None), which is not zero. Without a
driver or GPU nothing is written at all. AMD and other makers' GPUs are not seen.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import psutil
import pynvml

from agent2.arena.eventlog import EventLog
from agent2.records import JsonValue

MAX_GAP_S = 10.0
"""A longer time between two looks (the machine slept) is not counted."""


class GpuDriver(Protocol):
    """The machine's GPUs."""

    def count(self) -> int:
        """How many there are; 0 without a driver."""
        ...

    def processes(self) -> list[set[int]]:
        """For each GPU the ids of the processes that compute on it."""
        ...


class NvidiaDriver:
    """The GPUs that NVIDIA's driver shows."""

    def __init__(self) -> None:
        try:
            pynvml.nvmlInit()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError:
            self._handles = []  # no driver or no right to ask: there is nothing to measure

    def count(self) -> int:
        """How many there are."""
        return len(self._handles)

    def processes(self) -> list[set[int]]:
        """For each GPU the ids of the processes that compute on it."""
        return [{p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)} for handle in self._handles]


class GpuRecorder:
    """Adds up the seconds in which GPUs were held by the descendants of one process."""

    def __init__(
        self, root_pid: int, log: Path, driver: GpuDriver | None = None, clock: Callable[[], float] = time.monotonic
    ):
        self._root_pid = root_pid
        self._path = log
        self._driver = driver or NvidiaDriver()
        self._clock = clock
        self._n_gpus = self._driver.count()
        self._seconds = [0.0] * self._n_gpus
        self._strangers = 0
        self._last: float | None = None

    def sample(self) -> None:
        """Look once."""
        if not self._n_gpus:
            return
        now = self._clock()
        since = now - self._last if self._last is not None else 0.0
        self._last = now
        own = _family(self._root_pid)
        for number, pids in enumerate(self._driver.processes()):
            if pids & own:
                self._seconds[number] += since if since <= MAX_GAP_S else 0.0
            self._strangers += sum(not psutil.pid_exists(pid) for pid in pids)

    def stop(self) -> None:
        """Write the sum; nothing where there are no GPUs."""
        if not self._n_gpus:
            return
        is_known = not self._strangers or any(self._seconds)
        seconds: list[JsonValue] = list(self._seconds)
        log = EventLog(self._path)
        try:
            log.append("gpu_use", seconds=seconds if is_known else None, n_gpus=self._n_gpus)
        finally:
            log.close()


def _family(root_pid: int) -> set[int]:
    try:
        root = psutil.Process(root_pid)
        return {root_pid, *(child.pid for child in root.children(recursive=True))}
    except psutil.NoSuchProcess:
        return set()
