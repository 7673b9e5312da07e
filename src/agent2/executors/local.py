"""Jobs on this machine: a process each, so many at the same time. The default; needs nothing more.

A job outlives this process if that is killed; the next one waits for its lock.
"""

import queue
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from agent2.executors.jobs import ExecutorSettings, Job, JobEnd, NodeNeeds
from agent2.executors.node import run_here

INTERRUPT_GRACE_S = 3.0
"""Ctrl-C in a terminal also reaches the jobs, a signal to the driver alone does not: then they get it after this."""


class LocalExecutor:
    """Processes of this machine."""

    def __init__(self, settings: ExecutorSettings, folder: Path) -> None:
        self.capacity: int | None = settings.parallel
        self._pool = ThreadPoolExecutor(settings.parallel)
        self._ended: queue.Queue[Future[JobEnd]] = queue.Queue()
        self._running: list[subprocess.Popen[bytes]] = []

    def require(self, jobs: Sequence[Job], needs: NodeNeeds) -> None:
        """Nothing: the driver is the node."""

    def submit(self, job: Job, attempt: int) -> None:
        """Run it in a thread that waits for its process."""
        future = self._pool.submit(run_here, job, attempt, is_leashed=False, on_start=self._running.append)
        future.add_done_callback(self._ended.put)

    def collect(self) -> list[JobEnd]:
        """The next one that ends. Raises what running it raised."""
        return [self._ended.get().result()]

    def interrupt(self) -> None:
        """Start none that is queued; interrupt those that run."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in list(self._running):
            with suppress(subprocess.TimeoutExpired):
                process.wait(INTERRUPT_GRACE_S)
                continue
            process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Wait for the threads of what still runs."""
        self._pool.shutdown()
