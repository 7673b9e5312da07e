"""Jobs, how they end, and the loop that runs them on an executor.

A job is a command of `agent2` that can be started again: what it has finished is in its folder, and a lock there keeps
a second process out. So a node that is lost costs what was running on it, and a driver that dies is replaced by
running its command again.

What is tried again follows from the fault table (`agent2.errors.FAULT_POLICY`): a job that the infrastructure stopped
is run again once, one that was lost with its node up to `MAX_LOSSES` times, and bad input never. Each job ends once:
late and doubled reports of an earlier attempt are ignored.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import Field

from agent2.config import StrictModel
from agent2.errors import FAULT_POLICY, Fault

logger = logging.getLogger(__name__)

MAX_LOSSES = 5
"""Nodes that one job may lose; one that takes down every node it runs on must not run forever."""
EXIT_MACHINE_FAILED = 4
"""Exit code of a command that the machine stopped."""


class Resources(StrictModel):
    """What one job takes of a node; section `resources` of a sweep's file."""

    cpus: float = Field(default=1, gt=0, le=1e5)
    gpus: int = Field(default=0, ge=0)
    memory_gib: float | None = Field(default=None, gt=0, le=1e6)
    """None: not declared, so the cluster does not count it."""
    scores_on_gpu: bool = False
    """Whether submissions are scored on the first of the job's own GPUs; False: where
    the command's own settings say."""


class SlurmSettings(StrictModel):
    """How jobs are submitted to Slurm; section `slurm` of a sweep's file."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gpu_type: str | None = None
    """As in `--gres=gpu:TYPE:1`; None: any."""
    minutes: int = Field(default=24 * 60, ge=1)
    """Time limit of one job. A trial that reaches it is resumed by another job."""
    at_once: int = Field(default=256, ge=1)
    """Most tasks of one array that run at the same time."""
    setup: list[str] = Field(default_factory=list)
    """Shell lines before each job: `module load ...`."""


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """Which executor, and what it needs to know."""

    name: str = "local"
    address: str | None = None
    """Of the Ray cluster (None: the one that runs here); `local` for Slurm: submitit's stand-in on this machine."""
    parallel: int = 1
    """Jobs at the same time where nothing else limits them."""
    gpus: tuple[int, ...] = ()
    """Of this machine, which the local executor shares out among jobs that ask for some."""
    slurm: SlurmSettings = field(default_factory=SlurmSettings)


@dataclass(frozen=True, slots=True)
class PartSettings:
    """How an evaluation is played in parts."""

    executor: ExecutorSettings
    n_parts: int
    """Of each card; the last ones of a card with fewer items are left out."""
    resources: Resources
    """What one part takes of a node."""


@dataclass(frozen=True, slots=True)
class Job:
    """One command, as it can be started on any node."""

    name: str
    start: tuple[str, ...]
    """Arguments of `agent2`."""
    folder: Path
    """Working directory."""
    log: Path
    """What it prints is appended here."""
    resume: tuple[str, ...] = ()
    """Arguments in place of `start` where `resumes_if` exists."""
    resumes_if: Path | None = None
    lock: Path | None = None
    """File that the command keeps locked. While another process holds it, the job waits."""
    resources: Resources = field(default_factory=Resources)
    needs_sandbox: bool = True
    ok_codes: tuple[int, ...] = (0,)
    """Exit codes that are a result."""


@dataclass(frozen=True, slots=True)
class NodeNeeds:
    """What a node must have in common with the driver, so that its results are the same."""

    python: str
    packages: Mapping[str, str]
    """Name -> version."""
    source: str
    """Digest of this package's source."""
    secret: str
    """Digest of the installation secret, which itself never leaves a node; empty: not compared."""
    shared: Path
    """A file that every node must see."""
    token: str
    """Its content."""
    sandbox: bool = True
    variables: tuple[str, ...] = ()
    """Environment variables that must be set, such as that of an LLM's key."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How one attempt at a job ended."""

    name: str
    attempt: int
    exit_code: int | None
    """None: it did not report one."""
    fault: Fault | None = None
    """None: it has its result."""
    reason: str = ""
    node: str = ""
    is_lost: bool = False
    """Its node was lost, or its process there."""


class Executor(Protocol):
    """A queue of jobs: submit, collect."""

    capacity: int | None
    """Jobs that may be submitted at once; None: it queues them itself."""

    def require(self, jobs: Sequence[Job], needs: NodeNeeds) -> None:
        """Find everything that can be wrong before a job starts; `needs` holds for all jobs. Raises ConfigError."""

    def submit(self, job: Job, attempt: int) -> None:
        """Queue a job; returns at once."""

    def collect(self) -> list[JobEnd]:
        """Wait until at least one attempt has ended. Called only while some are queued."""

    def interrupt(self) -> None:
        """Interrupt what runs, as Ctrl-C interrupts a command that is run alone, and drop what is queued."""

    def close(self) -> None:
        """Release the cluster; may be called twice."""


def fault_of(exit_code: int) -> Fault | None:
    """The fault behind an exit code of `agent2`; negative: the signal that killed it. None: 0."""
    if exit_code == 0:
        return None
    # killed: by the kernel for memory, or with its node
    return Fault.INFRASTRUCTURE if exit_code < 0 or exit_code == EXIT_MACHINE_FAILED else Fault.SUBMITTER


def run_jobs(
    executor: Executor, jobs: Sequence[Job], on_retry: Callable[[JobEnd], None] | None = None
) -> Iterator[JobEnd]:
    """Run every job to its end; yields one end for each, in the order in which they end.

    on_retry: called with the end of an attempt that is followed by another one. Leaving the iterator early, as an
    interrupt does, interrupts what runs.
    """
    queue, attempts, n_faults, n_losses = list(jobs), Counter[str](), Counter[str](), Counter[str]()
    in_flight: dict[str, Job] = {}
    try:
        while queue or in_flight:
            while queue and (executor.capacity is None or len(in_flight) < executor.capacity):
                job = queue.pop(0)
                attempts[job.name] += 1
                in_flight[job.name] = job
                executor.submit(job, attempts[job.name])
            for end in executor.collect():
                if end.name not in in_flight or (end.fault is not None and end.attempt != attempts[end.name]):
                    logger.info("%s: the end of attempt %d came late and is ignored", end.name, end.attempt)
                    continue
                job = in_flight.pop(end.name)
                (n_losses if end.is_lost else n_faults)[end.name] += 1
                if _is_worth_a_retry(end, n_faults[end.name], n_losses[end.name]):
                    if on_retry is not None:
                        on_retry(end)
                    queue.insert(0, job)
                    continue
                yield end
    except BaseException:  # Ctrl-C, or the caller has stopped
        executor.interrupt()
        raise


def _is_worth_a_retry(end: JobEnd, n_faults: int, n_losses: int) -> bool:
    if end.fault is None or not FAULT_POLICY[end.fault].retry:
        return False
    return n_losses <= MAX_LOSSES if end.is_lost else n_faults <= 1
