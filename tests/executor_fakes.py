"""A cluster in this process: nodes that say what they are, phases of jobs on a shared disk, and losses on cue."""

from dataclasses import dataclass, field
from pathlib import Path

from agent2.errors import ConfigError, Fault
from agent2.executors.jobs import Job, JobEnd, NodeNeeds
from agent2.executors.node import NodeFacts, differences

PHASES = ("made", "base_scored", "agent", "graded", "finished")


def job(name: str, **changes) -> Job:
    return Job(**{"name": name, "start": ("run", name), "folder": Path("/"), "log": Path("/dev/null")} | changes)


def needs(**changes) -> NodeNeeds:
    same = {"python": "3.11.7", "packages": {"numpy": "2.4.0"}, "source": "aa", "secret": "bb", "token": "cc"}
    return NodeNeeds(**{"shared": Path("/shared/sweep/executor"), **same, **changes})


def facts(**changes) -> NodeFacts:
    same = {"python": "3.11.7", "packages": {"numpy": "2.4.0"}, "source": "aa", "secret": "bb", "token": "cc"}
    return NodeFacts(**{"node": "node-1", **same, **changes})


@dataclass
class FakeCluster:
    """An executor whose jobs go through `PHASES`; what a job has finished is on `disk`, whoever runs it next."""

    nodes: list[NodeFacts] = field(default_factory=lambda: [facts()])
    losses: dict[tuple[str, int], int] = field(default_factory=dict)
    """(job, attempt) -> phases that it finishes before its node is lost."""
    codes: dict[tuple[str, int], int] = field(default_factory=dict)
    """(job, attempt) -> exit code other than 0, after the first phase."""
    doubled: bool = False
    """Every end is reported twice, and once more with the next one."""
    capacity: int | None = None
    disk: dict[str, list[str]] = field(default_factory=dict)
    """Job -> phases, in the order in which they were finished."""
    most_at_once: int = 0
    interrupted: list[str] = field(default_factory=list)
    _queue: list[tuple[Job, int]] = field(default_factory=list)
    _earlier: list[JobEnd] = field(default_factory=list)

    def require(self, jobs, needs):
        for node in self.nodes:
            if problems := differences(node, needs):
                raise ConfigError(f"node {node.node} {problems[0]}")

    def submit(self, job, attempt):
        self._queue.append((job, attempt))
        self.most_at_once = max(self.most_at_once, len(self._queue))

    def collect(self):
        job, attempt = self._queue.pop(0)
        end = self._run(job.name, attempt)
        ends = [end, end, *self._earlier] if self.doubled else [end]
        self._earlier = [end]
        return ends

    def _run(self, name, attempt):
        done = self.disk.setdefault(name, [])
        stop = self.losses.get((name, attempt))
        while len(done) < len(PHASES):
            if stop is not None and len(done) >= stop:
                return JobEnd(name, attempt, None, Fault.INFRASTRUCTURE, "was lost", "node-1", is_lost=True)
            done.append(PHASES[len(done)])
            code = self.codes.get((name, attempt), 0)
            if code:
                fault = Fault.INFRASTRUCTURE if code in (4, -9) else Fault.SUBMITTER
                return JobEnd(name, attempt, code, fault, f"ended with exit code {code}", "node-1")
        return JobEnd(name, attempt, 0, node="node-1")

    def interrupt(self):
        self.interrupted = [job.name for job, _ in self._queue]
        self._queue = []

    def close(self):
        pass
