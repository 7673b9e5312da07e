"""The script of a scripted LLM: what it says and runs, step by step, and which usage it reports for each step.

    model: scripted-1
    steps:
      - {say: I read the assignment., run: cat ASSIGNMENT.md, usage: {input: 1000, output: 40}}
      - {say: Done., usage: {input: 1200, output: 5}}

A step that runs something asks the agent for its shell; the last step runs nothing and ends the turn.
"""

from importlib import resources
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from agent2.config import StrictModel, load_yaml


class StepUsage(StrictModel):
    """Tokens of one answer, as a provider would count them."""

    input: int = Field(ge=0)
    """All tokens read, cached ones included."""
    output: int = Field(ge=0)
    """All tokens written, reasoning included."""
    cached_input: int = Field(default=0, ge=0)
    """Part of `input`."""
    reasoning: int = Field(default=0, ge=0)
    """Part of `output`; Anthropic's protocol has no word for it."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.cached_input > self.input:
            raise ValueError(f"cached_input {self.cached_input} is more than input {self.input}")
        if self.reasoning > self.output:
            raise ValueError(f"reasoning {self.reasoning} is more than output {self.output}")
        return self


class ScriptStep(StrictModel):
    """One answer of the LLM."""

    say: str = ""
    run: str | None = None
    """Shell command that the agent is asked to run; None: the turn ends."""
    usage: StepUsage
    delay_s: float = Field(default=0.0, ge=0, le=600)
    """Wait before the first byte."""


class Script(StrictModel):
    """What a script file holds."""

    model: str = "scripted-1"
    """What GET /v1/models names."""
    steps: list[ScriptStep] = Field(min_length=1)
    aside: ScriptStep = ScriptStep(say="ok", usage=StepUsage(input=7, output=1))
    """The answer to a request that offers no shell: titles, summaries and other side jobs of an agent."""

    @model_validator(mode="after")
    def _ends_once(self) -> Self:
        for index, step in enumerate(self.steps[:-1]):
            if step.run is None:
                raise ValueError(f"steps.{index} runs nothing, which only the last step may; give it `run`")
        if self.steps[-1].run is not None:
            raise ValueError("the last step has `run`; add a step without it, so that the turn ends")
        if self.aside.run is not None:
            raise ValueError("aside has `run`; it answers requests that offer no shell")
        return self


def load_script(name_or_path: str) -> Script:
    """A packaged script by name (`arithmetic`), or a script file. Raises ConfigError naming file and line."""
    path = Path(name_or_path)
    packaged = Path(str(resources.files("agent2.arena.scripted_llm"))) / f"{name_or_path}.yaml"
    return load_yaml(packaged if "/" not in name_or_path and packaged.is_file() else path, Script)
