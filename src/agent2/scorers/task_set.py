"""Task sets: a JSON file of tasks, and the scorer that verifies each by exact match, a script or a judge.

The file is a list of tasks, or an object with the key `tasks`. Fields: `id`, `prompt`, `setup`, `max_turns` (20),
`verify_type`, `expected_answer`, `verify_script`, `rubric`, `key_points`. `verify_type` is `exact_match`, `execution`
or `llm_judge`; a task with any other one can be read but never passes, and `warnings` says so.

Passed is 1.0, not passed 0.0. A verdict that could not be produced (no judge, a judge that failed, a host that cannot
contain the script) is missing with a fault.

The script is untrusted and runs an untrusted answer: it gets a new folder with the task's files and the answer, no
network, and limits; exceeding one is "not passed". Only its exit code counts. Does NOT show the script to the model,
and does NOT play the task.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from agent2.config import StrictModel, first_problem
from agent2.errors import ConfigError, Fault, SandboxError, quoted
from agent2.files import scratch_folder
from agent2.foreign_files import MAX_TEXT_BYTES, read_named
from agent2.records import Item, JsonValue, Rollout, Score, ScoredRollout, ScorerOutput, Split, digest_of
from agent2.sandbox.backends import Sandbox
from agent2.sandbox.spec import WORKSPACE, Limits, SandboxSpec
from agent2.scorers.answers import WRONG_OR_NONE, wrong_or_none
from agent2.scorers.workspace_paths import require_inside

DEFAULT_MAX_TURNS = 20
ANSWER_FILE = "answer.txt"
SCRIPT_FILE = ".verify"
OUTPUT_CHARS = 200
"""Characters of the script's last output in a reason."""


class VerifyType(StrEnum):
    """How an answer is verified."""

    EXACT_MATCH = "exact_match"
    """Equal to `expected_answer` once white space at both ends is gone."""
    EXECUTION = "execution"
    """`verify_script`, run in a sandbox beside the answer, ends with exit code 0."""
    LLM_JUDGE = "llm_judge"
    """A judge that sees prompt, answer and `rubric` says yes."""


NEEDED = {
    VerifyType.EXACT_MATCH: "expected_answer",
    VerifyType.EXECUTION: "verify_script",
    VerifyType.LLM_JUDGE: "rubric",
}
"""Verify type -> the field that it requires."""


class TaskEntry(StrictModel):
    """One task of a set."""

    id: str = Field(min_length=1)
    prompt: str = Field(min_length=1)
    setup: dict[str, Any] = Field(default_factory=dict)
    """The initial state of the world; `files` (relative path -> text) are given to the verifier of type `execution`."""
    max_turns: int = Field(default=DEFAULT_MAX_TURNS, ge=1)
    verify_type: str
    expected_answer: str | None = None
    verify_script: str | None = None
    """A program: its first line may name an interpreter (`#!/usr/bin/env python3`), else it is run by sh. It finds the
    final answer in the file `answer.txt` of its folder."""
    rubric: str | None = None
    key_points: list[str] = Field(default_factory=list)
    """What a complete answer covers; for trajectory scores, not for passing."""

    @field_validator("setup")
    @classmethod
    def _files_are_inside(cls, setup: dict[str, Any]) -> dict[str, Any]:
        files = setup.get("files", {})
        if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
            raise ValueError("setup.files must map relative paths to texts")
        try:
            plain = require_inside(files)
        except ValueError as error:
            raise ValueError(f"setup.files: {error}") from error
        return {**setup, "files": plain} if "files" in setup else setup

    @model_validator(mode="after")
    def _can_be_verified(self) -> "TaskEntry":
        needed = NEEDED.get(VerifyType(self.verify_type)) if self.verify_type in list(VerifyType) else None
        if needed is not None and getattr(self, needed) is None:
            raise ValueError(f"verify_type {self.verify_type!r} needs {needed}")
        return self


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of one file, in its order."""

    tasks: tuple[TaskEntry, ...]

    @property
    def digest(self) -> str:
        """Equal exactly when all tasks are."""
        return digest_of([task.model_dump(mode="json") for task in self.tasks])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What will never pass, one sentence each."""
        types = ", ".join(VerifyType)
        return tuple(
            f"task {task.id!r}: verify_type {task.verify_type!r} is unknown, it will never pass; use one of {types}"
            for task in self.tasks
            if task.verify_type not in list(VerifyType)
        )

    def items(self, split: Split = Split.DEV) -> list[Item]:
        """The tasks as items; all that verification needs is in the payload."""
        return [_item(task, split) for task in self.tasks]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one task."""

    task_id: str
    passed: bool | None
    """None: could not be verified; see the reason."""
    turns: int
    tool_calls: int | None
    """None: the world does not count them."""
    final_answer: str | None
    reason: str


def load_task_set(path: Path) -> TaskSet:
    """Read a task set. Raises ConfigError naming the file, the task and what to fix."""
    try:
        text = read_named(path, MAX_TEXT_BYTES).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    return parse_task_set(text, str(path))


def parse_task_set(text: str, where: str) -> TaskSet:
    """Like `load_task_set` for text that is in memory already; `where` names it in errors."""
    # A key twice and NaN are legal for Python's reader: the first would silently drop a value, the second is no JSON.
    try:
        data = json.loads(text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}:{error.lineno}: not valid JSON ({error.msg}); fix the line") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not usable JSON ({error}); fix it") from error
    if isinstance(data, dict):
        extra = sorted(set(data) - {"tasks"})
        if extra or "tasks" not in data:
            raise ConfigError(
                f"{where}: an object with keys {sorted(data)}; give a list of tasks, or {{'tasks': [...]}}"
            )
        data = data["tasks"]
    if not isinstance(data, list) or not data:
        raise ConfigError(f"{where}: contains {quoted(data)}; a list of at least one task is needed")
    tasks = tuple(_task(entry, number, where) for number, entry in enumerate(data, start=1))
    ids: set[str] = set()
    for number, task in enumerate(tasks, start=1):
        if task.id in ids:
            raise ConfigError(f"{where}: task {number}: id {task.id!r} appears twice; give each task a unique id")
        ids.add(task.id)
    return TaskSet(tasks)


def task_results(rollouts: Iterable[ScoredRollout]) -> list[TaskResult]:
    """One flat record for each rollout, in the order given; pair two lists by `task_id`, never by position."""
    return [
        TaskResult(
            task_id=scored.rollout.item_id,
            passed=None if scored.score.value is None else scored.score.value >= 1.0,
            turns=len(scored.rollout.turns),
            tool_calls=_tool_calls(scored),
            final_answer=scored.rollout.answer,
            reason=scored.score.reason,
        )
        for scored in rollouts
    ]


def _task(entry: object, number: int, where: str) -> TaskEntry:
    try:
        return TaskEntry.model_validate(entry)
    except ValidationError as error:
        name = f" {entry['id']!r}" if isinstance(entry, dict) and isinstance(entry.get("id"), str) else ""
        _, sentence = first_problem(error, TaskEntry)
        raise ConfigError(f"{where}: task {number}{name}: {sentence}") from error


def _item(task: TaskEntry, split: Split) -> Item:
    payload: dict[str, JsonValue] = task.model_dump(mode="json", exclude={"id", "prompt", "expected_answer"})
    return Item(id=task.id, split=split, prompt=task.prompt, reference=task.expected_answer, payload=payload)


def _tool_calls(scored: ScoredRollout) -> int | None:
    """Counted by the scorer, or else by the world."""
    view = scored.score.views.get("tool_calls")
    if view is not None:
        return int(view)
    calls = scored.rollout.state.get("tool_calls")  # a list of them, or their number
    if isinstance(calls, Sequence) and not isinstance(calls, str):
        return len(calls)
    return calls if isinstance(calls, int) and not isinstance(calls, bool) else None


def _no_key_twice(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} appears twice in one object")
    return table


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """The verdict of a judge on one answer."""

    passed: bool | None
    """None: it could not decide."""
    reason: str


Judge = Callable[[str, str, str], JudgeVerdict]
"""Called with prompt, answer and rubric."""


@dataclass(frozen=True, slots=True)
class ScriptSandbox:
    """The sandbox and limits of verify scripts."""

    sandbox: Sandbox
    timeout_s: float = 30.0
    limits: Limits = field(
        default_factory=lambda: Limits(memory_gib=2.0, processes=64, file_size_gib=0.25, disk_gib=0.5, tmp_gib=0.25)
    )


class TaskSetScorer:
    """1.0 for a task that passes its own verification, else 0.0."""

    name = "task_set"
    version = "1.0"
    emits = ScorerOutput(labels=WRONG_OR_NONE | {"check_failed", "rubric_not_met"})

    def __init__(self, sandbox: ScriptSandbox | None = None, judge: Judge | None = None) -> None:
        """sandbox: None: tasks with scripts cannot be verified. judge: None: tasks with rubrics cannot be verified."""
        self._sandbox = sandbox
        self._judge = judge

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; the item's payload says how (see `agent2.scorers.task_set`)."""
        kind = item.payload.get("verify_type")
        if kind == "exact_match":
            if item.reference is None:
                return _unjudged(f"task {item.id} has no expected_answer; add it to the task set")
            if rollout.answer is None:
                return Score(0.0, "there is no answer", labels=("no_answer",))
            if rollout.answer.strip() == item.reference.strip():
                return Score(1.0, "the answer is the expected one", extracted=rollout.answer.strip())
            reason = f"the answer {quoted(rollout.answer.strip())} is not {quoted(item.reference.strip())}"
            return Score(0.0, reason, labels=(wrong_or_none(rollout.answer),), extracted=rollout.answer.strip())
        if kind == "execution":
            return self._by_script(item, rollout)
        if kind == "llm_judge":
            return self._by_judge(item, rollout)
        return Score(0.0, f"verify_type {quoted(kind)} is unknown, so the task is not passed")

    def _by_script(self, item: Item, rollout: Rollout) -> Score:
        script = item.payload.get("verify_script")
        if not isinstance(script, str):
            return _unjudged(f"task {item.id} has no verify_script; add it to the task set")
        if self._sandbox is None:
            return _unjudged(f"task {item.id} is verified by a script and no sandbox was given; evaluate with one")
        if rollout.answer is None:
            return Score(0.0, "there is no answer", labels=("no_answer",))
        files = item.payload.get("setup", {}).get("files", {})
        try:
            return _run_script(self._sandbox, script, rollout.answer, files)
        except (SandboxError, OSError) as error:
            return Score(None, f"the verify script could not be run: {error}", Fault.INFRASTRUCTURE)

    def _by_judge(self, item: Item, rollout: Rollout) -> Score:
        rubric = item.payload.get("rubric")
        if not isinstance(rubric, str):
            return _unjudged(f"task {item.id} has no rubric; add it to the task set")
        if self._judge is None:
            return _unjudged(f"task {item.id} needs a judge and none was given; evaluate with one")
        if rollout.answer is None:
            return Score(0.0, "there is no answer", labels=("no_answer",))
        try:
            verdict = self._judge(item.prompt, rollout.answer, rubric)
        except Exception as error:  # a judge is foreign code; its failure is recorded on the card as its own fault
            return _unjudged(f"the judge failed: {type(error).__name__}: {error}")
        if verdict.passed is None:
            return _unjudged(f"the judge could not say: {verdict.reason}")
        return Score(float(verdict.passed), verdict.reason, labels=() if verdict.passed else ("rubric_not_met",))


def _unjudged(reason: str) -> Score:
    return Score(None, reason, Fault.JUDGE)


def _run_script(sandbox: ScriptSandbox, script: str, answer: str, files: Mapping[str, JsonValue]) -> Score:
    """Run a verify script beside an answer in a new folder. Raises SandboxError if the host cannot."""
    with scratch_folder("agent2-verify-") as folder:
        workspace, log = folder / "workspace", folder / "log"
        workspace.mkdir()
        for name, text in files.items():
            path = workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(text), encoding="utf-8")
        # A model may write half a surrogate pair; without `surrogatepass` that would be an error of ours.
        (workspace / ANSWER_FILE).write_text(answer, encoding="utf-8", errors="surrogatepass")
        (workspace / SCRIPT_FILE).write_text(script, encoding="utf-8")
        (workspace / SCRIPT_FILE).chmod(0o755)
        sandbox.sandbox.prepare_workspace(workspace)
        inside = f"{WORKSPACE}/{SCRIPT_FILE}"
        command = (inside,) if script.startswith("#!") else ("sh", inside)
        process = sandbox.sandbox.start(SandboxSpec(command, workspace, log, limits=sandbox.limits))
        end = process.wait(sandbox.timeout_s)
        if end is None:
            process.stop(grace_s=0.0)
            reason = f"the verify script was still running after {sandbox.timeout_s:g} s, which is not passed"
            return Score(0.0, reason, labels=("check_failed",))
        if end.code == 0 and end.broke is None:
            return Score(1.0, "the verify script ended with exit code 0")
        output = " ".join(log.read_text(encoding="utf-8", errors="replace").split())[-OUTPUT_CHARS:]
        failure = f"ran into its limit on {end.broke}" if end.broke else f"ended with exit code {end.code}"
        reason = f"the verify script {failure}" + (f": {output}" if output else "")
        return Score(0.0, reason, labels=("check_failed",))
