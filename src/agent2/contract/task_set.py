"""Task sets: a JSON file of tasks with prompt, setup and the way each is verified; results as flat records.

The file is a list of tasks, or an object with the key `tasks`. Fields: `id`, `prompt`, `setup`, `max_turns` (20),
`verify_type`, `expected_answer`, `verify_script`, `rubric`, `key_points`. `verify_type` is `exact_match`, `execution`
or `llm_judge`; a task with any other one can be read but never passed, and `warnings` says so.

Does NOT verify: `agent2.scorers.task_set` does. Here are only the data, before and after.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from agent2.config import StrictModel, first_problem
from agent2.errors import ConfigError, shown
from agent2.records import Item, JsonValue, ScoredRollout, Split, digest_of

DEFAULT_MAX_TURNS = 20


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
"""Verify type -> the field that it cannot do without."""


class TaskEntry(StrictModel):
    """One task of a set."""

    id: str = Field(min_length=1)
    prompt: str = Field(min_length=1)
    setup: dict[str, Any] = Field(default_factory=dict)
    """How the world begins; `files` (relative path -> text) is what the verifier of type `execution` finds."""
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
        for name in files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
                raise ValueError(f"setup.files: {name!r} is not a path below the task's own folder")
        return setup

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
        known = ", ".join(VerifyType)
        return tuple(
            f"task {task.id!r}: verify_type {task.verify_type!r} is unknown, it will never pass; use one of {known}"
            for task in self.tasks
            if task.verify_type not in list(VerifyType)
        )

    def items(self, split: Split = Split.DEV) -> list[Item]:
        """The tasks as items; all that verification needs is in the payload."""
        return [_item(task, split) for task in self.tasks]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What came of one task."""

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
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    return parse_task_set(text, str(path))


def parse_task_set(text: str, where: str) -> TaskSet:
    """Like `load_task_set` for text that is in memory already; `where` names it in errors."""
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
        raise ConfigError(f"{where}: contains {shown(data)}; a list of at least one task is needed")
    tasks = tuple(_task(entry, number, where) for number, entry in enumerate(data, start=1))
    seen: set[str] = set()
    for number, task in enumerate(tasks, start=1):
        if task.id in seen:
            raise ConfigError(f"{where}: task {number}: id {task.id!r} appears twice; give each task a unique id")
        seen.add(task.id)
    return TaskSet(tasks)


def task_results(rollouts: Iterable[ScoredRollout]) -> list[TaskResult]:
    """One flat record for each rollout, in the order given; pair two lists by `task_id`, never by position."""
    return [
        TaskResult(
            task_id=one.rollout.item_id,
            passed=None if one.score.value is None else one.score.value >= 1.0,
            turns=len(one.rollout.turns),
            tool_calls=_tool_calls(one),
            final_answer=one.rollout.answer,
            reason=one.score.reason,
        )
        for one in rollouts
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


def _tool_calls(one: ScoredRollout) -> int | None:
    """Counted by the scorer, or else by the world."""
    viewed = one.score.views.get("tool_calls")
    if viewed is not None:
        return int(viewed)
    counted = one.rollout.state.get("tool_calls")
    if isinstance(counted, Sequence) and not isinstance(counted, str):
        return len(counted)
    return counted if isinstance(counted, int) and not isinstance(counted, bool) else None


def _no_key_twice(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} appears twice in one object")
    return table


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
