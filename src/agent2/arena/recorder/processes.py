"""What the agent ran: every process seen below the sandbox, with its CPU time and memory.

Sampled about once a second from outside, so a process that lives shorter than that may be missed; it is a
floor of what happened. Command lines are what the process says of itself.
"""

import time
from dataclasses import dataclass, replace

import psutil

from agent2.arena.eventlog import EventLog
from agent2.arena.evidence import ProcessSample

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
