"""How long an agent held GPUs, how much of their memory and time it used, and when its GPU hours are used up.

GPUs are NVIDIA's, asked through NVML about once a second. One counts while a process of the agent holds a context on
it. Where NVML is asked from a container it may report process ids of another name space: then nothing can be matched,
and the time is not known (None), which is not zero. A budget of GPU hours is held in either case: what cannot be
measured counts as the time for which the agent had its GPUs. Without a driver and without GPUs of the agent's own
nothing is written.

Numbers are those of the device files (`/dev/nvidia<number>`), which NVML calls minor numbers; its own order may differ.
A GPU that does not answer is not counted meanwhile, and named in the record. Does NOT see parts of a GPU (MIG).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil
import pynvml

from agent2.arena.trial_folder import EventLog, TrialPaths, read_events
from agent2.records import JsonValue
from agent2.sandbox.watchdog import descendants

MAX_GAP_S = 10.0
"""Between two looks; a machine that slept longer is not counted."""
RECORD_PERIOD_S = 30.0
"""After so long the sums are written, for a harness that is killed."""
GIB = 2**30


@dataclass(frozen=True, slots=True)
class GpuLook:
    """What a GPU shows at one moment."""

    pids: frozenset[int]
    """Of processes that compute on it."""
    used_gib: float
    """Of its memory, by whichever process."""
    load: float
    """Share of the last moments in which it computed, 0 to 1."""


class GpuDriver(Protocol):
    """The machine's GPUs."""

    def look(self) -> Mapping[int, GpuLook | None]:
        """By number; None: it does not answer. Empty without a driver."""


class NvidiaDriver:
    """The GPUs that NVIDIA's driver reports."""

    def __init__(self, nvml: Any = pynvml) -> None:
        """nvml: the library, or what stands in for it."""
        self._nvml = nvml
        self._handles: dict[int, Any] = {}
        try:
            nvml.nvmlInit()
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                self._handles[self._number(handle, index)] = handle
        except nvml.NVMLError:
            self._handles = {}  # no driver, or no permission to use it: there is nothing to measure

    def look(self) -> dict[int, GpuLook | None]:
        """Ask each of them."""
        return {number: self._look_at(handle) for number, handle in self._handles.items()}

    def _number(self, handle: Any, index: int) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetMinorNumber(handle))
        except self._nvml.NVMLError:  # not every driver knows it
            return index

    def _look_at(self, handle: Any) -> GpuLook | None:
        nvml = self._nvml
        try:
            pids = frozenset(process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
            memory, rates = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetUtilizationRates(handle)
            return GpuLook(pids, memory.used / GIB, rates.gpu / 100)
        except nvml.NVMLError:  # it fell off the bus, or is being reset
            return None


@dataclass(slots=True)
class _Sums:
    """Of one GPU."""

    held_s: float = 0.0
    """A process of the agent had a context on it."""
    peak_gib: float = 0.0
    loads: list[float] = field(default_factory=list)
    """While it was held."""

    @property
    def load(self) -> float | None:
        return sum(self.loads) / len(self.loads) if self.loads else None


class GpuRecorder:
    """Adds up what the descendants of one process use of GPUs."""

    def __init__(
        self,
        root_pid: int,
        log: Path,
        own_gpus: Sequence[int] = (),
        driver: GpuDriver | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """own_gpus: numbers of the GPUs that the agent has to itself."""
        self._root_pid, self._path, self._own_gpus = root_pid, log, tuple(own_gpus)
        self._driver = driver or NvidiaDriver()
        self._clock = clock
        self._start = round(time.time(), 3)
        """Names the rows of this start of the agent."""
        self._began = self._last = self._recorded = clock()
        self._sums: dict[int, _Sums] = {number: _Sums() for number in self._driver.look()}
        self._lost: set[int] = set()
        self._n_unknown_pids = 0

    def sample(self) -> None:
        """Sample once."""
        if not self._sums and not self._own_gpus:
            return
        now = self._clock()
        since, self._last = now - self._last, now
        agent_pids = {self._root_pid, *descendants(self._root_pid)}
        for number, look in self._driver.look().items():
            if look is None:
                self._lost.add(number)
                continue
            if look.pids & agent_pids:
                sums = self._sums[number]
                sums.held_s += since if since <= MAX_GAP_S else 0.0
                sums.peak_gib = max(sums.peak_gib, look.used_gib)
                sums.loads.append(look.load)
            # a pid that does not exist here belongs to another name space
            self._n_unknown_pids += sum(not psutil.pid_exists(pid) for pid in look.pids)
        if now - self._recorded >= RECORD_PERIOD_S:
            self._recorded = now
            self._write("gpu_use_so_far")

    @property
    def charged_s(self) -> float:
        """GPU seconds of this start that count against a budget."""
        if self._is_known and self._sums:
            return sum(sums.held_s for sums in self._sums.values())
        return (self._clock() - self._began) * len(self._own_gpus)

    @property
    def _is_known(self) -> bool:
        return not self._n_unknown_pids or any(sums.held_s for sums in self._sums.values())

    def stop(self) -> None:
        """Write the sums; nothing where there are no GPUs."""
        if self._sums or self._own_gpus:
            self._write("gpu_use")

    def _write(self, event: str) -> None:
        of_all = list(self._sums.values())
        is_measured = self._is_known and bool(of_all)
        fields: dict[str, JsonValue] = {
            "start": self._start,
            "numbers": list(self._sums),
            "seconds": [sums.held_s for sums in of_all] if is_measured else None,
            "n_gpus": len(of_all),
            "charged_s": self.charged_s,
            "peak_gib": [round(sums.peak_gib, 3) for sums in of_all],
            "load": [None if sums.load is None else round(sums.load, 3) for sums in of_all],
            "lost": sorted(self._lost),
        }
        log = EventLog(self._path)
        try:
            log.append(event, **fields)
        finally:
            log.close()


def _last_rows(paths: TrialPaths) -> list[Mapping[str, JsonValue]]:
    """The newest sums of each start of the agent; older records have one row a start and no name for it."""
    newest: dict[JsonValue, Mapping[str, JsonValue]] = {}
    for position, row in enumerate(read_events(paths.gpu_log).rows):
        if row.get("event") in {"gpu_use", "gpu_use_so_far"}:
            newest[row.get("start", -1 - position)] = row
    return list(newest.values())


def read_gpu_hours(paths: TrialPaths) -> float | None:
    """Hours in which GPUs were held by the agent; None where that was not measured."""
    # seconds of each GPU, or None if that start could not be measured
    rows = [row.get("seconds") for row in _last_rows(paths)]
    measured = [seconds for seconds in rows if isinstance(seconds, list)]
    return sum(map(sum, measured)) / 3600 if measured and len(measured) == len(rows) else None


def charged_seconds(paths: TrialPaths) -> float:
    """GPU seconds of all starts of the agent that count against its budget."""
    charged = [row.get("charged_s") for row in _last_rows(paths)]
    return sum(float(seconds) for seconds in charged if isinstance(seconds, int | float))


@dataclass(frozen=True, slots=True)
class GpuBudget:
    """GPU hours that an agent may use, over all its starts."""

    hours: float | None
    """None: no limit."""
    earlier_s: float = 0.0
    """GPU seconds of earlier starts."""

    def used_up(self, recorder: GpuRecorder) -> str | None:
        """A sentence once they are used up."""
        if self.hours is None:
            return None
        used = (self.earlier_s + recorder.charged_s) / 3600
        is_over = used > 0 and used >= self.hours
        return f"stopped after {used:.3g} GPU hours: {self.hours:g} were allowed" if is_over else None


NO_GPU_BUDGET = GpuBudget(None)
