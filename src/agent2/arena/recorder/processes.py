"""What the agent ran: processes below the sandbox, and the time that GPUs worked.

What the agent ran: every process seen below the sandbox, with its CPU time and memory.

Sampled about once a second from outside, so a process that lives shorter than that may be missed; it is a
floor of what happened. Command lines are what the process says of itself.

How long GPUs worked for the agent, sampled about once a second through NVIDIA's management library.

A GPU counts while a process of the agent holds a context on it. In a container the driver may report process ids of
another name space; then nothing can be matched and the time is not known (None), which is not zero. Without a
driver or GPU nothing is written at all. AMD and other makers' GPUs are not seen.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import psutil
import pynvml

from agent2.arena.evidence import ProcessSample
from agent2.arena.trial_folder import EventLog
from agent2.records import JsonValue


class Ticker:
    """Calls a function every few seconds until stopped; an error does not end it, `stop` hands over the first."""

    def __init__(self, call: Callable[[], object], period_s: float):
        self._call = call
        self._period_s = period_s
        self._halt = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._halt.wait(self._period_s):
            try:
                self._call()
            except Exception as error:  # boundary: an agent's doing must not end the watch; `stop` hands it over
                self._error = self._error or error

    def stop(self) -> Exception | None:
        """End the thread; the first error of a call, if any."""
        self._halt.set()
        self._thread.join()
        return self._error


MAX_COMMAND_CHARS = 4_000
"""Of all arguments together."""
MAX_PROCESSES = 10_000


@dataclass(frozen=True, slots=True)
class _Key:
    """A process: the pid alone may be used again."""

    pid: int
    created: float


class ProcessRecorder:
    """Samples the descendants of one process until stopped."""

    def __init__(self, root_pid: int, log: EventLog):
        self._root_pid = root_pid
        self._log = log
        self._seen: dict[_Key, ProcessSample] = {}
        self._written: set[_Key] = set()

    def sample(self) -> None:
        """Look once; processes that are gone are written to the log."""
        now = time.time()
        alive: set[_Key] = set()
        try:
            children = psutil.Process(self._root_pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        for process in children[:MAX_PROCESSES]:
            try:
                key = _Key(process.pid, process.create_time())
                self._seen[key] = _look(process, self._seen.get(key), now)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # it ended meanwhile
            alive.add(key)
        for key in [key for key in self._seen if key not in alive]:
            self._write(key)

    def stop(self) -> None:
        """Write what is left."""
        for key in list(self._seen):
            self._write(key)

    def _write(self, key: _Key) -> None:
        sample = self._seen.pop(key)
        if key in self._written or len(self._written) >= MAX_PROCESSES:
            return
        self._written.add(key)
        self._log.append(
            "process",
            pid=sample.pid,
            command=list(sample.command),
            first_seen=sample.first_seen,
            last_seen=sample.last_seen,
            cpu_s=sample.cpu_s,
            max_rss_bytes=sample.max_rss_bytes,
            exe=sample.exe,
        )


def _look(process: psutil.Process, before: ProcessSample | None, now: float) -> ProcessSample:
    """The process as it is now, merged with what was seen of it. Raises psutil.NoSuchProcess if it is gone."""
    with process.oneshot():
        command = _shortened(process.cmdline())
        times = process.cpu_times()
        rss = process.memory_info().rss
        exe = _exe(process)
    cpu_s = times.user + times.system
    if before is None:
        return ProcessSample(process.pid, command, now, now, cpu_s, rss, exe)
    return replace(
        before,
        command=command or before.command,
        last_seen=now,
        cpu_s=max(cpu_s, before.cpu_s),
        max_rss_bytes=max(rss, before.max_rss_bytes),
        exe=exe or before.exe,
    )


def _exe(process: psutil.Process) -> str:
    """The program file, as the process itself would see its path."""
    try:
        return _shortened([process.exe()])[0]
    except (psutil.AccessDenied, OSError, IndexError):
        return ""


def _shortened(command: list[str]) -> tuple[str, ...]:
    """The arguments as valid text, up to `MAX_COMMAND_CHARS` together."""
    kept: list[str] = []
    left = MAX_COMMAND_CHARS
    for part in command:
        if left <= 0:
            break
        text = part[:left].encode("utf-8", "backslashreplace").decode()[:left]
        kept.append(text)
        left -= max(1, len(text))
    return tuple(kept)


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
