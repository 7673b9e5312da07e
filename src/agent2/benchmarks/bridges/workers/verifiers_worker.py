"""Items and verdicts of verifiers environments that ask the model once: `ENV.py`, `ENV.py@FUNCTION`, or one by name.

What is evaluated are the rows of the environment's evaluation set, else of its only one; their messages are the
prompt, and its rubric gives the reward. Where the weights of the reward functions add up to more than 1 the reward is
divided by that sum. A reward function with a weight that raises counts as 0 in the package; here the request fails, so
that it can be told from a wrong answer. Refused are tools, several turns, pictures, and rewards that compare a group of
answers.
"""

import asyncio
import contextlib
import hashlib
import importlib
import json
import logging
import os
import runpy
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

PAGE = 200
LOADER = "load_environment"
"""What an environment's module defines, unless another function is named."""
MAX_TOKENS = 512
"""Of an answer, where the environment says nothing."""
NAMED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "constraint_gym": ("stardata.envs.constraint_gym", LOADER, {"topics_per_form": 30}),
    "lipogram": ("stardata.envs.constraint_gym", "load_lipogram_env", {}),
}
"""Environments of the package installed beside verifiers whose data is inside: module, function, arguments."""


def describe() -> dict[str, Any]:
    """Names of the environments that are installed beside the package."""
    import verifiers  # noqa: F401 - must be there

    return {"names": sorted(NAMED)}


def _loader(name: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function that makes an environment, and its arguments."""
    file, _, function = name.partition("@")
    if not file.endswith(".py"):
        module, function, arguments = NAMED[name]
        return getattr(importlib.import_module(module), function), arguments
    folder = Path(sys.argv[2])
    os.chdir(folder)  # its data files are named as seen from there
    sys.path.append(str(folder))
    defined = runpy.run_path(str(folder / file), run_name=Path(file).stem)
    function = function or LOADER
    if function not in defined:
        raise ValueError(f"{file} defines no function {function}")
    return defined[function], {}


@cache
def _environment(name: str) -> Any:
    import verifiers

    load, arguments = _loader(name)
    environment = load(**arguments)
    if not isinstance(environment, verifiers.SingleTurnEnv):
        raise ValueError(f"it is a {type(environment).__name__}; a bridge plays a SingleTurnEnv, which asks once")
    if getattr(environment, "oai_tools", None):
        raise ValueError("the environment gives the model tools, which a bridge does not play")
    if environment.message_type != "chat":
        raise ValueError(f"message_type {environment.message_type} is not played over a bridge; chat is")
    if any(rubric._get_group_reward_funcs() for rubric in _rubrics(environment.rubric)):
        raise ValueError("a reward compares a group of answers, which a bridge does not play")
    return environment


def _rubrics(rubric: Any) -> list[Any]:
    """A rubric, or the members of a group of them."""
    members = getattr(rubric, "rubrics", None)
    return [rubric] if members is None else [inner for member in members for inner in _rubrics(member)]


@cache
def _rows(name: str) -> dict[str, Any]:
    """Portion -> its rows: `test` is what the package evaluates."""
    environment = _environment(name)
    if environment.eval_dataset is None:
        return {"test": environment.dataset, "train": ()}
    return {"test": environment.eval_dataset, "train": environment.dataset or ()}


def _counted(rubric: Any) -> dict[Any, float]:
    """The reward functions that count, with their weights; the others are there to be watched."""
    pairs = [pair for member in _rubrics(rubric) for pair in zip(member.funcs, member.weights, strict=True)]
    return {func: weight for func, weight in pairs if weight != 0}


def _weight(name: str) -> float:
    """What the reward of an answer that is right in every respect is divided by."""
    return max(1.0, sum(weight for weight in _counted(_environment(name).rubric).values() if weight > 0))


def open_set(name: str) -> dict[str, Any]:
    """How many items it has, and how long an answer may be."""
    arguments = _environment(name).sampling_args or {}
    return {
        "compares": False,
        "is_chat": True,
        "max_tokens": int(arguments.get("max_tokens") or arguments.get("max_completion_tokens") or MAX_TOKENS),
        "portions": {portion: len(rows) for portion, rows in _rows(name).items()},
    }


def _messages(name: str, portion: str, number: int) -> list[dict[str, str]]:
    """Role and text of each message before the answer."""
    prompt = _rows(name)[portion][number]["prompt"]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if any(not isinstance(message.get("content"), str) for message in messages):
        raise ValueError("the environment shows pictures or other files")
    return [{"role": str(message["role"]), "content": message["content"]} for message in messages]


def _prompt(name: str, portion: str, number: int) -> str:
    return "\n\n".join(message["content"] for message in _messages(name, portion, number))


def items(name: str, portion: str, start: int) -> list[dict[str, Any]]:
    """A page of items."""
    numbers = range(start, min(start + PAGE, len(_rows(name)[portion])))
    return [
        {
            "prompt": _prompt(name, portion, number),
            "reference": _reference(name, portion, number),
            "messages": _messages(name, portion, number),
        }
        for number in numbers
    ]


def _reference(name: str, portion: str, number: int) -> str | None:
    """The row's answer in the parser's form, if the rubric takes it; None: it takes none of the forms."""
    answer = _rows(name)[portion][number].get("answer")
    if not isinstance(answer, str) or not answer:
        return None
    field = getattr(_environment(name).parser, "answer_field", "answer")
    for message in (answer, f"<{field}>{answer}</{field}>", f"<{field}>\n{answer}\n</{field}>", f"\\boxed{{{answer}}}"):
        try:
            if _reward(name, portion, number, message) == 1.0:
                return message
        except Exception:  # boundary: rubrics may need anything
            return None
    return None


def score(name: str, portion: str, number: int, prompt_sha256: str, message: str) -> dict[str, Any]:
    """The reward of a message, 0 to 1 if the environment's functions are."""
    if hashlib.sha256(_prompt(name, portion, number).encode("utf-8", "surrogatepass")).hexdigest() != prompt_sha256:
        raise RuntimeError(f"{name} gives another item at this place in this process")
    return {"value": _reward(name, portion, number, message), "extracted": _parsed(name, message)}


def _parsed(name: str, message: str) -> str | None:
    """What the environment's parser finds in a message."""
    parsed = _environment(name).parser.parse_answer([{"role": "assistant", "content": message}])
    return str(parsed).strip() or None if parsed is not None else None


def _reward(name: str, portion: str, number: int, message: str) -> float:
    environment = _environment(name)
    row = deepcopy(dict(_rows(name)[portion][number]))
    if isinstance(row.get("info"), str):
        row["info"] = json.loads(row["info"])

    async def judge() -> Any:
        state = await environment.init_state(row, client=None, model="none")
        state["completion"] = [{"role": "assistant", "content": message}]
        await environment.rubric.score_rollout(state, score_sem=contextlib.AsyncExitStack())
        return state

    with _Errors() as errors:
        state = asyncio.run(judge())
    for error in errors.messages:
        if any(f"{func.__name__}:" in error for func in _counted(environment.rubric)):
            raise ValueError(error)
    return float(state["reward"]) / _weight(name)


class _Errors(logging.Handler):
    """Collects the errors that the package logs and does not raise."""

    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def __enter__(self) -> "_Errors":
        logging.getLogger("verifiers").addHandler(self)
        return self

    def __exit__(self, *raised: object) -> None:
        logging.getLogger("verifiers").removeHandler(self)


METHODS = {"describe": describe, "open_set": open_set, "items": items, "score": score}
