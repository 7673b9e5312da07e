"""The design artifact of a trial: output/design.json, read as untrusted input.

The four parts are required (they are the outputs of the design stage); other keys are the agent's own and
are ignored, so this record is the one place that does not refuse unknown keys.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent2.arena.analysis.code_signals import Algorithm, algorithm_in
from agent2.records import JsonValue

Filled = str | dict[str, Any] | list[Any]


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


def read_design(design: Mapping[str, JsonValue] | None) -> tuple[PipelineDesign | None, tuple[str, ...]]:
    """The design, or None with what is missing or empty in it, one sentence each."""
    if design is None:
        return None, ("output/design.json is missing or is no JSON object",)
    try:
        return PipelineDesign.model_validate(dict(design)), ()
    except ValidationError as error:
        parts = dict.fromkeys(str(problem["loc"][0]) for problem in error.errors() if problem["loc"])
        return None, tuple(_problem(part, design) for part in parts)


def _problem(part: str, design: Mapping[str, JsonValue]) -> str:
    if part not in design:
        return f"{part} is missing"
    return f"{part} is empty" if not design[part] else f"{part} is a {type(design[part]).__name__} that cannot be read"
