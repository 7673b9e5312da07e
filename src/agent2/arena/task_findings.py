"""What a check of a task found, and the last one of each task on this installation."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agent2 import installation
from agent2.arena.tasks import TaskSpec
from agent2.benchmarks import load_benchmark
from agent2.files import write_json
from agent2.records import digest_of


@dataclass(frozen=True, slots=True)
class TaskFinding:
    """One check and its verdict."""

    name: str
    ok: bool | None
    """None: not checked; the detail says why."""
    detail: str
    seconds: float = 0.0
    warning: str = ""
    """Why the task may be of little use though the check holds; empty: nothing to say."""
    value: float | None = None
    """What was measured, where that is one number: a mean score from 0 to 1, half the width of the noise band."""


CEILING, NULL_FLOOR, RANDOM_FLOOR = "ceiling: an oracle", "floor: a player that says nothing", "floor: a random player"
HEADROOM_OF_BASE = "headroom: the base model is below the ceiling"
NOISE_OF_BASE = "noise band of the base model"


@dataclass(frozen=True, slots=True)
class KeptCheck:
    """The last check of a task on this installation."""

    task_digest: str
    """Of the task file, with the version of its world: a check of an older one is not shown."""
    at: str
    seconds: float
    findings: tuple[TaskFinding, ...]

    def value(self, name: str) -> float | None:
        """What a check measured; None: it was not made, or measured nothing."""
        return next((finding.value for finding in self.findings if finding.name == name), None)

    @property
    def n_failed(self) -> int:
        """Checks that failed."""
        return sum(finding.ok is False for finding in self.findings)


BASE_FINDINGS = (HEADROOM_OF_BASE, NOISE_OF_BASE)


def keep_check(task: TaskSpec, findings: Sequence[TaskFinding], *, is_own_base: bool = True) -> None:
    """Keep the findings for `last_check`.

    is_own_base: what was measured is the task's own base model. Where it is not, or the base model was left out, what
    an earlier check of this task found of it stays. Raises OSError.
    """
    earlier = last_check(task)
    kept = [one for one in findings if is_own_base or one.name not in BASE_FINDINGS]
    if earlier is not None and not any(one.name in BASE_FINDINGS for one in kept):
        kept += [one for one in earlier.findings if one.name in BASE_FINDINGS]
    findings = kept
    seconds = sum(finding.seconds for finding in findings)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    _kept(task.name).parent.mkdir(exist_ok=True)
    write_json(_kept(task.name), KeptCheck(_task_digest(task), at, seconds, tuple(findings)))


def last_check(task: TaskSpec) -> KeptCheck | None:
    """The last check of this very task, None if there was none or the file cannot be read."""
    try:
        found = msgspec.json.decode(_kept(task.name).read_bytes(), type=KeptCheck)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if found.task_digest == _task_digest(task) else None


def _kept(name: str) -> Path:
    return installation.home() / "task-checks" / f"{name}.json"


def _task_digest(task: TaskSpec) -> str:
    benchmark = load_benchmark(task.benchmark)
    return digest_of([task.model_dump(mode="json"), benchmark.version, benchmark.environment_version()])
