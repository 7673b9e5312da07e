"""Jobs as Ray tasks: each declares CPUs, GPUs, memory and, for trials, a sandbox that only checked nodes offer.

Nodes are compared with the driver before a job starts, and again by each job, since nodes may join later. Ray itself
repeats nothing (`max_retries=0`): what is tried again is decided by the fault table. Through Ray go commands, paths and
exit codes, never keys, items or results: those are in files that all nodes see, and each node reads its own secret.

Does NOT survive the end of the cluster's head: then the driver ends, and its command is repeated.
"""

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agent2.errors import ConfigError, Fault, first_line_of
from agent2.executors.jobs import ExecutorSettings, Job, JobEnd, NodeNeeds, Resources
from agent2.executors.node import NodeFacts, differences, facts_here, run_checked
from agent2.installation import install_hint

SANDBOX_RESOURCE = "agent2_sandbox"
"""Offered by nodes that `agent2 node` started after the checks of `agent2 doctor`; a trial takes one."""
CHECK_S = 180.0
"""For all nodes to answer what they are."""
CONNECT_S = 10.0
"""For the head to accept a connection."""
LOOK_EVERY_S = 1.0
INTERRUPT_S = 10.0
"""For what runs to record that it was interrupted."""
GIB = 1 << 30


class RayExecutor:
    """Tasks on a running Ray cluster."""

    capacity: int | None = None

    def __init__(self, settings: ExecutorSettings, folder: Path) -> None:
        """Raises ConfigError without Ray, without a cluster, or for one of another Ray or Python version."""
        try:
            import ray
        except ImportError as error:
            raise ConfigError(f"--executor ray: Ray is not installed; {install_hint('ray')}") from error
        self._ray: Any = ray
        self._tasks: dict[Any, tuple[Job, int]] = {}
        self._needs: NodeNeeds | None = None
        address = settings.address or "auto"
        try:
            _require_listener(settings.address)
            # a cluster that somebody started: one that is made here would offer no checked sandbox
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            where = f"--address {settings.address}" if settings.address else "--executor ray"
            raise ConfigError(
                f"{where}: no Ray cluster can be used there ({first_line_of(error)}); start its nodes with agent2 node"
            ) from error

    def require(self, jobs: Sequence[Job], needs: NodeNeeds) -> None:
        """Compare every node that could run a job with this process, and find one that is large enough for each."""
        self._needs = needs
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        usable = [node for node in nodes if not needs.sandbox or node["Resources"].get(SANDBOX_RESOURCE, 0) >= 1]
        if not usable:
            raise ConfigError(
                f"--executor ray: none of {len(nodes)} nodes offers {SANDBOX_RESOURCE}; start them with agent2 node, "
                "which checks the sandbox first"
            )
        problems = [
            f"node {facts.node} {problem}"
            for facts in self._ask(usable, needs)
            for problem in differences(facts, needs)[:1]
        ]
        if problems:
            others = f" (and {len(problems) - 1} other nodes)" if len(problems) > 1 else ""
            raise ConfigError(f"--executor ray: {problems[0]}{others}")
        for resources in {job.resources.model_dump_json(): job.resources for job in jobs}.values():
            demand = demand_of(resources, needs_sandbox=needs.sandbox)
            if not any(fits(demand, node["Resources"]) for node in usable):
                raise ConfigError(
                    f"--executor ray: no node has {', '.join(f'{name} {n:g}' for name, n in demand.items())}; change "
                    "`resources` in the sweep's file, or add a node"
                )

    def _ask(self, nodes: Sequence[Mapping[str, Any]], needs: NodeNeeds) -> list[NodeFacts]:
        """The facts of these nodes. Raises ConfigError for one that cannot say them."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        questions = {}
        for node in nodes:
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = self._ray.remote(facts_here).options(num_cpus=0, max_retries=0, scheduling_strategy=place)
            questions[task.remote(needs)] = node["NodeManagerHostname"]
        answered, silent = self._ray.wait(list(questions), num_returns=len(questions), timeout=CHECK_S)
        if silent:
            raise ConfigError(f"--executor ray: node {questions[silent[0]]} does not answer within {CHECK_S:.0f} s")
        facts = []
        for question in answered:
            try:
                facts.append(self._ray.get(question))
            except Exception as error:  # boundary: whatever is wrong there, the node cannot be used
                raise ConfigError(
                    f"--executor ray: node {questions[question]} cannot run agent2 ({_cause(error)}); install the same "
                    "version there"
                ) from error
        return facts

    def submit(self, job: Job, attempt: int) -> None:
        """Queue it with Ray, which starts it where its resources are free."""
        demand = demand_of(job.resources, needs_sandbox=job.needs_sandbox)
        task = self._ray.remote(run_checked).options(
            name=job.name,
            num_cpus=demand.pop("CPU"),
            num_gpus=demand.pop("GPU", 0),
            memory=demand.pop("memory", None),
            resources=demand,
            max_retries=0,
        )
        self._tasks[task.remote(job, attempt, self._needs)] = (job, attempt)

    def collect(self) -> list[JobEnd]:
        """Wait for a task to end, with its result or with its node."""
        while True:
            ended, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=LOOK_EVERY_S)
            if ended:
                return [end_of(partial(self._ray.get, task), *self._tasks.pop(task)) for task in ended]

    def interrupt(self) -> None:
        """Cancel all of them: what runs is interrupted on its node."""
        for task in self._tasks:
            self._ray.cancel(task, force=False)
        if self._tasks:  # what was interrupted writes so in its folder; a second Ctrl-C does not wait
            self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=INTERRUPT_S)

    def close(self) -> None:
        """Leave the cluster; it goes on."""
        self._ray.shutdown()


def _require_listener(address: str | None) -> None:
    """Raise OSError or ValueError where nothing listens at HOST:PORT, which Ray itself would try for minutes."""
    if address is None or "://" in address:
        return
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        raise ValueError("write HOST:PORT")
    socket.create_connection((host, int(port)), CONNECT_S).close()


def demand_of(resources: Resources, *, needs_sandbox: bool) -> dict[str, float]:
    """What a job takes, under Ray's names."""
    demand: dict[str, float] = {"CPU": resources.cpus}
    if resources.gpus:
        demand["GPU"] = resources.gpus
    if resources.memory_gib is not None:
        demand["memory"] = int(resources.memory_gib * GIB)
    if needs_sandbox:
        demand[SANDBOX_RESOURCE] = 1
    return demand


def fits(demand: Mapping[str, float], offered: Mapping[str, float]) -> bool:
    """Whether a node that is idle has room for a job."""
    return all(offered.get(name, 0) >= amount for name, amount in demand.items())


def end_of(get: Callable[[], JobEnd], job: Job, attempt: int) -> JobEnd:
    """How an attempt ended; get: returns its end, or raises what Ray raises where there is none."""
    from ray.exceptions import RayError, RayTaskError, TaskCancelledError

    try:
        return get()
    except TaskCancelledError:
        return JobEnd(job.name, attempt, None, Fault.SUBMITTER, "was cancelled")
    except RayTaskError as error:  # our own code failed there, as where the package is missing
        reason = f"could not be run there ({_cause(error)})"
        return JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, reason)
    except RayError as error:  # worker or node died, or memory ran out
        reason = f"was lost with its node or worker ({type(error).__name__})"
        return JobEnd(job.name, attempt, None, Fault.INFRASTRUCTURE, reason, is_lost=True)


def _cause(error: BaseException) -> str:
    """The last line of a remote traceback."""
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
