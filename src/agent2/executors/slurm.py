"""Jobs under Slurm, through submitit: what is queued together is one array job.

A job that Slurm ends (time limit, preemption, a lost node) counts as lost: it is submitted again and its command goes
on where it was. The notice that Slurm gives before it does so interrupts the command, as Ctrl-C would. Jobs of a driver
that died go on under Slurm; those of the next driver wait for their locks.

Nodes are compared with the driver when a job starts on them, not before: they are not known earlier.
"""

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent2.errors import ConfigError, Fault, first_line_of
from agent2.executors.jobs import ExecutorSettings, Job, JobEnd, NodeNeeds
from agent2.executors.node import run_checked
from agent2.installation import install_hint

if TYPE_CHECKING:
    import submitit

STAND_IN = "local"
"""Address of submitit's own executor, which runs jobs on this machine as Slurm would."""
LOOK_EVERY_S = 0.5
"""How often results are looked for; Slurm itself is asked much less often, by submitit."""


class SlurmExecutor:
    """Array jobs of the Slurm cluster that this machine submits to."""

    def __init__(self, settings: ExecutorSettings, folder: Path) -> None:
        """Raises ConfigError without submitit, without Slurm, or for another address."""
        try:
            import submitit
        except ImportError as error:
            raise ConfigError(f"--executor slurm: submitit is not installed; {install_hint('slurm')}") from error
        if settings.address not in (None, STAND_IN):
            raise ConfigError(
                f"--address {settings.address}: Slurm is reached through sbatch on this machine; leave it out, or give "
                f"`{STAND_IN}` to try without Slurm"
            )
        self.capacity: int | None = settings.parallel if settings.address == STAND_IN else None
        self._settings = settings
        self._queued: list[tuple[Job, int]] = []
        self._submitted: list[tuple[submitit.Job[JobEnd], Job, int]] = []
        self._needs: NodeNeeds | None = None
        cluster = STAND_IN if settings.address == STAND_IN else "slurm"
        try:
            self._executor = submitit.AutoExecutor(folder=folder / "slurm" / "%j", cluster=cluster)
        except RuntimeError as error:
            raise ConfigError(
                f"--executor slurm: Slurm cannot be used on this machine ({first_line_of(error)}); run it where sbatch "
                f"works, or add --address {STAND_IN}"
            ) from error

    def require(self, jobs: Sequence[Job], needs: NodeNeeds) -> None:
        """Set what the jobs ask of Slurm. Raises ConfigError for a request that submitit does not take."""
        self._needs = needs
        if not jobs:
            return
        resources, slurm = jobs[0].resources, self._settings.slurm
        gpus = f"gpu:{slurm.gpu_type}:{resources.gpus}" if slurm.gpu_type is not None else None
        chosen = {
            "cpus_per_task": max(1, round(resources.cpus)),
            "mem_gb": resources.memory_gib,
            "gpus_per_node": resources.gpus if resources.gpus and gpus is None else None,
            "timeout_min": slurm.minutes,
            "name": "agent2",
            "slurm_partition": slurm.partition,
            "slurm_account": slurm.account,
            "slurm_qos": slurm.qos,
            "slurm_constraint": slurm.constraint,
            "slurm_gres": gpus,
            "slurm_array_parallelism": slurm.at_once,
            "slurm_setup": slurm.setup or None,
        }
        try:
            self._executor.update_parameters(**{name: value for name, value in chosen.items() if value is not None})
        except (NameError, TypeError, ValueError, AssertionError) as error:
            raise ConfigError(f"--executor slurm: {first_line_of(error)}; change `resources` or `slurm`") from error

    def submit(self, job: Job, attempt: int) -> None:
        """Keep it for the next array."""
        self._queued.append((job, attempt))

    def collect(self) -> list[JobEnd]:
        """Submit what was kept as one array, then wait for a job that ends."""
        self._submit_array()
        while True:
            entries, self._submitted = self._submitted, []
            ends = []
            for handle, job, attempt in entries:
                if handle.done():
                    ends.append(_end_of(handle, job, attempt))
                else:
                    self._submitted.append((handle, job, attempt))
            if ends:
                return ends
            time.sleep(LOOK_EVERY_S)

    def _submit_array(self) -> None:
        if not self._queued:
            return
        assert self._needs is not None, "require comes first"
        with self._executor.batch():
            array = [
                self._executor.submit(_run_until_notice, job, attempt, self._needs) for job, attempt in self._queued
            ]
        self._submitted += [(handle, *entry) for handle, entry in zip(array, self._queued, strict=True)]
        self._queued = []

    def interrupt(self) -> None:
        """Cancel all of them."""
        for handle, _, _ in self._submitted:
            handle.cancel(check=False)

    def close(self) -> None:
        """Nothing is held open."""


def _run_until_notice(job: Job, attempt: int, needs: NodeNeeds) -> JobEnd:
    """Run a job there; one that Slurm is about to end is lost, and no failure of its own."""
    from submitit.core.utils import UncompletedJobError

    try:
        return run_checked(job, attempt, needs)
    except UncompletedJobError as error:  # raised in the middle of the wait by submitit, which Slurm has told
        node, reason = socket.gethostname(), f"was ended by Slurm ({first_line_of(error)})"
        return JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, reason, node, is_lost=True)


def _end_of(handle: "submitit.Job[JobEnd]", job: Job, attempt: int) -> JobEnd:
    from submitit.core.utils import UncompletedJobError

    try:
        end: object = handle.result()
    except UncompletedJobError:  # no result was written: Slurm or a signal ended it
        reason = f"was lost ({handle.state}); see {handle.paths.stderr}"
        return JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, reason, is_lost=True)
    except Exception as error:  # boundary: what failed on the node is this job's fault, with its reason
        reason = f"could not be run there ({first_line_of(error)}); see {handle.paths.stderr}"
        return JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, reason)
    if isinstance(end, JobEnd) and (end.name, end.attempt) == (job.name, attempt):
        return end
    # the number of a job, which names its folder, may have been that of another driver's
    reason = f"left the result of another job in {handle.paths.folder}"
    return JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, reason)
