"""The design artifact of a trial: output/design.json, read as untrusted input.

The four parts are required (they are the outputs of the design stage); other keys are the agent's own and are ignored,
so this record is the one place that does not refuse unknown keys. A part counts when it says something that can be held
against the trial: hyperparameters with numbers, data and evaluation in words of the assignment. Words alone pass
nothing; `stages` holds the plan against what was done.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent2.arena.analysis.code_signals import Algorithm, algorithm_in
from agent2.records import JsonValue, canonical_json

Filled = str | dict[str, Any] | list[Any]
PARTS = ("algorithm", "hyperparameters", "data_preprocessing", "evaluation_protocol")
MAX_DEPTH = 6
_LEARNING_RATE = re.compile(r"(^|[_. ])(lr|learning_rate|learning rate|step_size)s?$", re.IGNORECASE)
_AMOUNT = re.compile(r"(steps?|epochs?|iterations?|iters|updates?|batches|rounds?|episodes)(_|$)", re.IGNORECASE)
_DATA = re.compile(
    r"\b(train\w*|rows?|prompts?|questions?|games?|episodes?|trajector\w+|pairs?|traces?|answers?|completions?)\b", re.I
)
_HELD_OUT = re.compile(r"\b(dev|held[- ]?out|validation|hidden|unseen|public|grader\w*)\b", re.IGNORECASE)
_MEASURE = re.compile(
    r"\b(accurac\w+|exact|match\w*|success\w*|won|wins?|pass@?\w*|scores?|solved|correct\w*|rates?|rewards?)\b", re.I
)


class PipelineDesign(BaseModel):
    """What an agent planned before it trained; every part must say something."""

    model_config = ConfigDict(extra="ignore", frozen=True, str_strip_whitespace=True)

    algorithm: str = Field(min_length=1)
    """The training algorithm in the agent's words."""
    hyperparameters: dict[str, Any] = Field(min_length=1)
    data_preprocessing: Filled = Field(min_length=1)
    evaluation_protocol: Filled = Field(min_length=1)

    def named_algorithms(self) -> tuple[Algorithm, ...]:
        """The known algorithms that the plan names, in its order."""
        found = (algorithm_in(word) for word in self.algorithm.replace("-", " ").replace("/", " ").split())
        return tuple(dict.fromkeys(algorithm for algorithm in found if algorithm is not None))

    def learning_rates(self) -> tuple[float, ...]:
        """Every learning rate that the plan names."""
        return tuple(value for name, value in _numbers(self.hyperparameters) if _LEARNING_RATE.search(name))

    def vague_parts(self) -> tuple[str, ...]:
        """The parts that say nothing that could be held against the trial, one sentence each.

        An algorithm without a known name is none of them: it may be a new one, so the route has to show it.
        """
        names = [name for name, value in _numbers(self.hyperparameters) if value > 0]
        data, evaluation = _text(self.data_preprocessing), _text(self.evaluation_protocol)
        problems = []
        if not any(map(_LEARNING_RATE.search, names)):
            problems.append("hyperparameters name no learning rate with a number")
        elif not any(map(_AMOUNT.search, names)):
            problems.append("hyperparameters do not say how long to train (steps, epochs, batches ...)")
        if not _DATA.search(data):
            problems.append("data_preprocessing does not say what is trained on (train rows, prompts, games ...)")
        if not (_HELD_OUT.search(evaluation) and _MEASURE.search(evaluation)):
            problems.append("evaluation_protocol does not say what is measured on which held-out items")
        return tuple(problems)


def read_design(design: Mapping[str, JsonValue] | None) -> tuple[PipelineDesign | None, tuple[str, ...]]:
    """The design, or None with what is missing or empty in it, one sentence each."""
    if design is None:
        return None, ("output/design.json is missing or is not a JSON object",)
    try:
        return PipelineDesign.model_validate(dict(design)), ()
    except ValidationError as error:
        parts = dict.fromkeys(str(problem["loc"][0]) for problem in error.errors() if problem["loc"])
        return None, tuple(_problem(part, design) for part in parts)


def _problem(part: str, design: Mapping[str, JsonValue]) -> str:
    if part not in design:
        return f"{part} is missing"
    return f"{part} is empty" if not design[part] else f"{part} is a {type(design[part]).__name__} that cannot be read"


def _numbers(value: JsonValue, name: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """(name, number) of every finite number in a nested value; text that is a number counts as one."""
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        for key, inner in value.items():
            yield from _numbers(inner, str(key), depth + 1)
    elif isinstance(value, list | tuple) and depth < MAX_DEPTH:
        for inner in value:
            yield from _numbers(inner, name, depth + 1)
    elif isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return
        if math.isfinite(number):
            yield name, number


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else canonical_json(value).decode().replace("_", " ")
