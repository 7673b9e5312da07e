"""The answers of a scripted LLM by its script, whichever protocol the request came in.

A script says what is answered and run, step by step, and which usage is reported for each step:

    model: scripted-1
    steps:
      - {say: I read the assignment., run: cat ASSIGNMENT.md, usage: {input: 1000, output: 40}}
      - {say: Done., usage: {input: 1200, output: 5}}

A step with `run` calls the agent's shell; the last step runs nothing and ends the turn. The step is found by counting
the tool results in the conversation that the request carries, so the same request gets the same answer however often it
is sent. Does NOT work with an agent that shortens its conversation: report few tokens in the script, so that none does.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from agent2.config import StrictModel, load_yaml
from agent2.llm.messages import (
    CallPart,
    ChatAnswer,
    ChatRequest,
    Part,
    ResultPart,
    TextPart,
    ThoughtPart,
    ToolOffer,
    text_of,
)
from agent2.llm.records import TokenCounts

SHELL_NAMES = (
    "exec_command",
    "shell_command",
    "shell",
    "exec",
    "Bash",
    "bash",
    "run_shell_command",
    "terminal",
    "execute_bash",
)
"""Names of the shell tool in agent systems; the first one that a request offers is used."""
END_TOOL = "finish"
"""Tool that ends the turn, where there is one."""
END_COMMAND = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""An agent whose prompt contains this word ends when a command prints it first."""
LONGEST_S = 600
"""Time that a command may take, where the shell has a parameter for it."""
STILL_RUNNING = re.compile(r"Process running with session ID (\d+)")
"""In the result of a shell that returned before its command ended."""
WAIT_TOOL = "write_stdin"
"""Tool that waits for such a command."""


class StepUsage(StrictModel):
    """Tokens of one answer, as a provider would count them."""

    input: int = Field(ge=0)
    """All tokens read, cached ones included."""
    output: int = Field(ge=0)
    """All tokens written, reasoning included."""
    cached_input: int = Field(default=0, ge=0)
    """Part of `input`."""
    reasoning: int = Field(default=0, ge=0)
    """Part of `output`; Anthropic's protocol has no field for it."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.cached_input > self.input:
            raise ValueError(f"cached_input {self.cached_input} is more than input {self.input}")
        if self.reasoning > self.output:
            raise ValueError(f"reasoning {self.reasoning} is more than output {self.output}")
        return self


class ScriptStep(StrictModel):
    """One answer of the LLM."""

    think: str = ""
    """What the model writes before it, for itself; sent where the protocol has a place for it."""
    say: str = ""
    run: str | None = None
    """Shell command that the agent is to run; None: the turn ends."""
    usage: StepUsage
    delay_s: float = Field(default=0.0, ge=0, le=600)
    """Wait before the first byte."""


class Script(StrictModel):
    """The content of a script file."""

    model: str = "scripted-1"
    """The one model that GET /v1/models lists."""
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
    packaged = Path(str(resources.files("agent2.llm"))) / "scripts" / f"{name_or_path}.yaml"
    return load_yaml(packaged if "/" not in name_or_path and packaged.is_file() else path, Script)


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One answer."""

    step: int | None
    """Index in the script; None: aside."""
    answer: ChatAnswer
    usage: StepUsage
    delay_s: float


def decide(script: Script, request: ChatRequest) -> ScriptedReply:
    """The answer to a request. The same request gets the same answer, ids included."""
    tools = {tool.name: tool for tool in reversed(request.tools)}  # reversed: the first one of a name counts
    results = _results(request)
    shell = next((tools[name] for name in SHELL_NAMES if name in tools), None)
    if shell is None:  # a side job of the agent
        return _reply(None, script.aside, None, request)
    wait_call = _wait_call(tools, results)
    if wait_call is not None:
        return _reply(None, script.aside.model_copy(update={"say": ""}), wait_call, request)
    n_done = sum(1 for result in results if not STILL_RUNNING.search(result))
    index = min(n_done, len(script.steps) - 1)
    step = script.steps[index]
    call = _shell_call(shell, step.run) if step.run is not None else _end_call(tools, shell, step.say, request)
    return _reply(index, step, call, request)


def _reply(index: int | None, step: ScriptStep, call: CallPart | None, request: ChatRequest) -> ScriptedReply:
    say = step.say if call is not None else _by_schema(request.answer_schema, step.say)
    parts: list[Part] = [ThoughtPart(step.think)] if step.think else []
    parts += [TextPart(say)] if say or call is None else []
    parts += [call] if call is not None else []
    usage = step.usage
    tokens = TokenCounts(usage.input, usage.output, usage.cached_input, usage.reasoning)
    answer = ChatAnswer(tuple(parts), tokens=tokens, number=len(_results(request)))
    return ScriptedReply(index, answer, usage, step.delay_s)


def _by_schema(schema: Mapping[str, Any], say: str) -> str:
    """Text, or an object with a value for each key where the request has a schema for its answer."""
    if not schema:
        return say
    values = {"string": say, "boolean": True, "number": 0, "integer": 0}
    properties = schema.get("properties") or {}
    return json.dumps({name: values.get(str(key.get("type", "")).lower(), say) for name, key in properties.items()})


def _results(request: ChatRequest) -> list[str]:
    """Texts of the results of tools so far."""
    parts = (part for message in request.messages for part in message.parts)
    return [text_of(part.content) for part in parts if isinstance(part, ResultPart)]


def _instructions(request: ChatRequest) -> str:
    """All text before the first result: instructions and prompt."""
    parts = (part for message in request.messages for part in message.parts)
    before = takewhile(lambda part: not isinstance(part, ResultPart), parts)
    return "\n".join(part.text for part in before if isinstance(part, TextPart))


def _shell_call(shell: ToolOffer, command: str) -> CallPart:
    if shell.is_freeform:
        arguments = json.dumps({"cmd": command, "yield_time_ms": LONGEST_S * 1000})
        program = f"const r = await tools.exec_command({arguments}); text(JSON.stringify(r));"
        return CallPart(shell.name, program, is_freeform=True)
    return CallPart(shell.name, _arguments(shell.properties, command))


def _arguments(properties: Mapping[str, Mapping[str, Any]], command: str) -> dict[str, Any]:
    """Values for those of the tool's parameters that some agent system's shell is known to have."""
    as_list = properties.get("command", {}).get("type") == "array"
    values: dict[str, Any] = {
        "command": ["bash", "-lc", command] if as_list else command,
        "cmd": command,
        "description": command.splitlines()[0][:60],
        "summary": command.splitlines()[0][:60],
        "timeout": LONGEST_S if _in_seconds(properties.get("timeout", {})) else LONGEST_S * 1000,
        "timeout_ms": LONGEST_S * 1000,
        "yield_time_ms": LONGEST_S * 1000,
        "is_input": "false",
        "security_risk": "LOW",
    }
    chosen = {name: value for name, value in values.items() if name in properties}
    return chosen or {"command": command}


def _in_seconds(schema: Mapping[str, Any]) -> bool:
    description = str(schema.get("description", "")).lower()
    return "second" in description and "millisecond" not in description


def _end_call(tools: Mapping[str, ToolOffer], shell: ToolOffer, say: str, request: ChatRequest) -> CallPart | None:
    """The call by which this agent ends; None: it ends with a message that calls no tool."""
    if END_TOOL in tools:
        return CallPart(END_TOOL, {"message": say or "done"})
    if END_COMMAND in _instructions(request):
        return _shell_call(shell, f"echo {END_COMMAND}")
    return None


def _wait_call(tools: Mapping[str, ToolOffer], results: Sequence[str]) -> CallPart | None:
    """The call that waits for the last command if its shell returned early; None if it did not."""
    match = STILL_RUNNING.search(results[-1]) if results else None
    if match is None or WAIT_TOOL not in tools:
        return None
    values = {"session_id": int(match.group(1)), "chars": "", "yield_time_ms": LONGEST_S * 1000}
    properties = tools[WAIT_TOOL].properties
    return CallPart(WAIT_TOOL, {name: value for name, value in values.items() if name in properties})
