"""Items and verdicts of inspect_ai tasks that ask the model once: `TASKS.py@TASK`, or a task of inspect_evals by name.

The task's own solver is run up to the moment at which it asks the model: its messages are the prompt. For a verdict it
is run again with the message as the model's answer, and the first of the task's scorers judges. Nothing of the task is
kept between the two. Refused are tasks with tools or a sandbox, and solvers that ask twice.
"""

import asyncio
import hashlib
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

PAGE = 50
MODEL = "none/none"


class Asked(Exception):
    """Raised at the moment at which a solver asks the model."""


def describe() -> dict[str, Any]:
    """Names of the tasks of inspect_evals."""
    import inspect_evals._registry  # noqa: F401 - registers them
    from inspect_ai._util.registry import registry_find, registry_info

    infos = (registry_info(entry) for entry in registry_find(lambda info: info.type == "task"))
    names = {info.name.removeprefix("inspect_evals/") for info in infos if info.name.startswith("inspect_evals/")}
    return {"names": sorted(names)}


@cache
def _task(name: str) -> Any:
    from inspect_ai._eval.loader import load_tasks

    file, _, inner = name.partition("@")
    if file.endswith(".py"):
        os.chdir(Path(sys.argv[2]))  # its data files are named as seen from there
        tasks = load_tasks([f"{file}@{inner}" if inner else file])
    else:
        tasks = load_tasks([f"inspect_evals/{name}"])
    if len(tasks) != 1:
        raise ValueError(f"{name} has {len(tasks)} tasks; name one of them, as FILE.py@TASK")
    (task,) = tasks
    if task.sandbox is not None or any(sample.sandbox is not None for sample in task.dataset):
        raise ValueError("the task needs a sandbox of its own")
    if not task.scorer:
        raise ValueError("the task has no scorer")
    return task


def _run(name: str, number: int, message: str | None) -> Any:
    """The state after the solver, or where it asks the model if there is no message."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelName, ModelOutput
    from inspect_ai.scorer import Target
    from inspect_ai.solver import TaskState
    from inspect_ai.solver._task_state import set_sample_state

    task = _task(name)
    sample = task.dataset[number]
    opening = [ChatMessageUser(content=sample.input)] if isinstance(sample.input, str) else list(sample.input)
    state = TaskState(
        model=ModelName(MODEL),
        sample_id=sample.id if sample.id is not None else number + 1,
        epoch=1,
        input=sample.input,
        messages=opening,
        target=Target(sample.target),
        choices=sample.choices,
        output=ModelOutput(model=MODEL, choices=[]),
        metadata=dict(sample.metadata or {}),
    )
    n_asked = 0

    async def generate(state: Any, **_: Any) -> Any:
        nonlocal n_asked
        n_asked += 1
        if state.tools:
            raise ValueError("the task gives the model tools, which a bridge does not play")
        if message is None:
            raise Asked
        if n_asked > 1:
            raise ValueError("the solver asks the model several times, which a bridge does not play")
        state.output = ModelOutput.from_content(MODEL, message)
        state.messages.append(ChatMessageAssistant(content=message, model=MODEL))
        return state

    async def solve() -> Any:
        set_sample_state(state)
        solvers = task.solver if isinstance(task.solver, list | tuple) else [task.solver]
        reached = state
        for solver in ([task.setup] if task.setup is not None else []) + list(solvers):
            reached = await solver(reached, generate)
        if message is None:
            return None
        scorer = task.scorer[0] if isinstance(task.scorer, list | tuple) else task.scorer
        return await scorer(reached, Target(sample.target))

    try:
        verdict = asyncio.run(solve())
    except Asked:
        return state
    if message is None:
        raise ValueError("the solver never asks the model")
    return verdict


@cache
def _messages(name: str, number: int) -> tuple[tuple[str, str], ...]:
    """Role and text of each message before the answer."""
    messages = []
    for message in _run(name, number, None).messages:
        if not isinstance(message.content, str) and any(part.type != "text" for part in message.content):
            raise ValueError("the task shows pictures or other files")
        messages.append((str(message.role), message.text))
    return tuple(messages)


def open_set(name: str) -> dict[str, Any]:
    """How many items it has, and how long an answer may be."""
    task = _task(name)
    return {
        "compares": False,
        "max_tokens": int(task.config.max_tokens or 512),
        "is_chat": True,
        "portions": {"test": len(task.dataset)},
    }


def _prompt(name: str, number: int) -> str:
    return "\n\n".join(text for _, text in _messages(name, number))


def items(name: str, portion: str, start: int) -> list[dict[str, Any]]:
    """A page of items."""
    page = []
    for number in range(start, min(start + PAGE, len(_task(name).dataset))):
        messages = [{"role": role, "content": text} for role, text in _messages(name, number)]
        page.append({"prompt": _prompt(name, number), "reference": _reference(name, number), "messages": messages})
    return page


def _reference(name: str, number: int) -> str | None:
    """A message with the target that the scorer takes; None: it takes neither of two forms, or needs a model."""
    target = _task(name).dataset[number].target
    text = target if isinstance(target, str) else (target[0] if target else "")
    for message in (text, f"ANSWER: {text}"):
        try:
            if _verdict(name, number, message)["value"] == 1.0:
                return message
        except Exception:  # boundary: scorers may need anything
            return None
    return None


def score(name: str, portion: str, number: int, prompt_sha256: str, message: str) -> dict[str, Any]:
    """The first scorer's verdict on a message, correct as 1 and incorrect as 0."""
    if hashlib.sha256(_prompt(name, number).encode("utf-8", "surrogatepass")).hexdigest() != prompt_sha256:
        raise RuntimeError(f"{name} gives another item at this place in this process")
    return _verdict(name, number, message)


def _verdict(name: str, number: int, message: str) -> dict[str, Any]:
    from inspect_ai.scorer import value_to_float

    verdict = _run(name, number, message)
    if verdict is None or isinstance(verdict.value, dict | list):
        raise ValueError("the scorer gives no single value")
    return {"value": float(value_to_float()(verdict.value)), "extracted": verdict.answer or None}


METHODS = {"describe": describe, "open_set": open_set, "items": items, "score": score}
