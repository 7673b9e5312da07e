"""Jobs on this machine: a process each, so many at the same time. The default; needs nothing more.

A job outlives this process if that is killed; the next one waits for its lock. One that asks for GPUs waits until so
many are free, and owns them until it ends (`gpu_shares`).
"""

import json
import queue
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from agent2.errors import Fault
from agent2.executors.gpu_shares import GpuShare, GpuShares
from agent2.executors.jobs import ExecutorSettings, Job, JobEnd, NodeNeeds
from agent2.executors.node import run_here
from agent2.foreign_files import read_limited

INTERRUPT_GRACE_S = 3.0
"""Ctrl-C in a terminal also reaches the jobs, a signal to the driver alone does not: then they get it after this."""

MAX_NUMBER = 1_000_000
"""Of a GPU."""


class LocalExecutor:
    """Processes of this machine."""

    def __init__(self, settings: ExecutorSettings, folder: Path) -> None:
        self.capacity: int | None = settings.parallel
        self._pool = ThreadPoolExecutor(settings.parallel)
        self._ended: queue.Queue[Future[JobEnd]] = queue.Queue()
        self._running: list[subprocess.Popen[bytes]] = []
        self._gpus = settings.gpus
        self._is_interrupted = False

    def require(self, jobs: Sequence[Job], needs: NodeNeeds) -> None:
        """Nothing: the driver is the node."""

    def submit(self, job: Job, attempt: int) -> None:
        """Run it in a thread that waits for its process."""
        future = self._pool.submit(self._run, job, attempt)
        future.add_done_callback(self._ended.put)

    def _run(self, job: Job, attempt: int) -> JobEnd:
        share = None
        if self._gpus and job.resources.gpus and not _names_gpus(job):
            share = self._share_of(job)
            if share is None:
                return JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, "not started: interrupted")
        try:
            return run_here(job, attempt, is_leashed=False, on_start=self._running.append, share=share)
        finally:
            if share is not None:
                share.release()

    def _share_of(self, job: Job) -> GpuShare | None:
        """GPUs of its own; a resumed trial gets those that it began with. None: the executor was interrupted."""
        shares = GpuShares(self._gpus)
        began_with = gpus_of(job)
        if began_with is not None:
            return shares.take_these(began_with, lambda: not self._is_interrupted)
        return shares.take(job.resources.gpus, lambda: not self._is_interrupted)

    def collect(self) -> list[JobEnd]:
        """The next one that ends. Raises what running it raised."""
        return [self._ended.get().result()]

    def interrupt(self) -> None:
        """Start none that is queued; interrupt those that run."""
        self._is_interrupted = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in list(self._running):
            with suppress(subprocess.TimeoutExpired):
                process.wait(INTERRUPT_GRACE_S)
                continue
            process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Wait for the threads of what still runs."""
        self._pool.shutdown()


def _names_gpus(job: Job) -> bool:
    """Whether the job's own arguments say which GPUs it has."""
    return any(word.startswith("gpus=") for word in job.start)


def gpus_of(job: Job) -> tuple[int, ...] | None:
    """The GPUs that a job began with, by the record that it is resumed from; None: it begins now, or none are named."""
    if job.resumes_if is None or not job.resumes_if.exists():
        return None
    try:
        numbers = json.loads(read_limited(job.resumes_if)).get("gpus")
    except (OSError, ValueError, AttributeError):
        return None  # the command itself says what is wrong with its record
    is_list = isinstance(numbers, list) and numbers and all(type(n) is int and 0 <= n <= MAX_NUMBER for n in numbers)
    return tuple(numbers) if is_list else None
