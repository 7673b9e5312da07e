"""How long an agent held GPUs, how much of their memory and time it used, and when its GPU hours are used up.

GPUs are NVIDIA's, asked through NVML about once a second. One counts while a process of the agent holds a context on
it, for computing, for graphics, or through MPS. Where NVML is asked from a container it may report process ids of
another name space, or none: then nothing can be matched, and the time is not known (None), which is not zero. A budget
of GPU hours is held in either case: what cannot be measured of a GPU of the agent's own counts as if it was held. That
is a GPU that does not answer, one that computes in two looks in a row while no process shows (programs that come and go
between the looks, too), and the time between two looks that were far apart, if it was held at one of them. Without a
driver and without GPUs of the agent's own nothing is written.

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
"""Between two looks; a longer one is not measured: the machine slept, or was too busy to look."""
PROCESS_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
"""Of NVML; the first has to answer, the others are not known to every driver."""
RECORD_PERIOD_S = 30.0
"""After so long the sums are written, for a harness that is killed."""
GIB = 2**30


@dataclass(frozen=True, slots=True)
class GpuLook:
    """What a GPU shows at one moment."""

    pids: frozenset[int]
    """Of processes that hold a context on it."""
    used_gib: float | None
    """Of its memory, by whichever process; None: not known."""
    load: float | None
    """Share of the last moments in which it computed, 0 to 1; None: not known (as where it is divided by MIG)."""


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
        first, *others = PROCESS_LISTS
        processes = self._asked(first, handle)
        if processes is None:  # it fell off the bus, or is being reset
            return None
        lists = [processes, *(self._asked(name, handle) or [] for name in others)]
        memory = self._asked("nvmlDeviceGetMemoryInfo", handle)
        rates = self._asked("nvmlDeviceGetUtilizationRates", handle)
        return GpuLook(
            frozenset(process.pid for listed in lists for process in listed),
            None if memory is None else memory.used / GIB,
            None if rates is None else rates.gpu / 100,
        )

    def _asked(self, function: str, handle: Any) -> Any:
        """None: it does not say."""
        try:
            return getattr(self._nvml, function)(handle)
        except (self._nvml.NVMLError, AttributeError):
            return None


@dataclass(slots=True)
class _Sums:
    """Of one GPU."""

    held_s: float = 0.0
    """A process of the agent had a context on it."""
    unseen_s: float = 0.0
    """Whether one had is not known; counted for GPUs of the agent's own."""
    was_held: bool = False
    """At the last look."""
    was_busy: bool = False
    """At the last look it computed and showed no process."""
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
        self._n_unknown_pids = self._n_hidden = 0

    def sample(self) -> None:
        """Sample once."""
        if not self._sums and not self._own_gpus:
            return
        now = self._clock()
        since, self._last = now - self._last, now
        agent_pids = {self._root_pid, *descendants(self._root_pid)}
        for number, look in self._driver.look().items():
            self._add(number, look, since, agent_pids)
        if now - self._recorded >= RECORD_PERIOD_S:
            self._recorded = now
            self._write("gpu_use_so_far")

    def _add(self, number: int, look: GpuLook | None, since: float, agent_pids: set[int]) -> None:
        """Count one look at one GPU. since: seconds since the last one."""
        sums = self._sums[number]
        if look is None:
            self._lost.add(number)
            sums.unseen_s += since
            return
        # a pid that does not exist here belongs to another name space
        n_unknown = sum(not psutil.pid_exists(pid) for pid in look.pids)
        self._n_unknown_pids += n_unknown
        is_busy = not look.pids and bool(look.load)
        # after a scoring on the same GPU has ended, its load is seen once more
        is_hidden = number in self._own_gpus and is_busy and sums.was_busy
        self._n_hidden += is_hidden
        sums.was_busy = is_busy
        is_held = bool(look.pids & agent_pids)
        if is_held:
            sums.held_s += since if since <= MAX_GAP_S else 0.0
            sums.peak_gib = max(sums.peak_gib, look.used_gib or 0.0)
            if look.load is not None:
                sums.loads.append(look.load)
        is_gap = since > MAX_GAP_S and (is_held or sums.was_held)
        if is_gap or (not is_held and (n_unknown or is_hidden)):
            sums.unseen_s += since
        sums.was_held = is_held

    @property
    def charged_s(self) -> float:
        """GPU seconds of this start that count against a budget."""
        if not self._is_known or not self._sums:
            return (self._clock() - self._began) * len(self._own_gpus)
        held = sum(sums.held_s for sums in self._sums.values())
        unseen = sum(sums.unseen_s for number, sums in self._sums.items() if number in self._own_gpus)
        # of a GPU that the driver does not list nothing is seen
        not_listed = len(set(self._own_gpus) - set(self._sums))
        return held + unseen + not_listed * (self._clock() - self._began)

    @property
    def _is_known(self) -> bool:
        is_seen = not self._n_unknown_pids and not self._n_hidden
        return is_seen or any(sums.held_s for sums in self._sums.values())

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
