"""What a scripted LLM sees of a request and what it answers, whatever the wire protocol.

The step is found by counting the results of tools in the conversation that the request carries, so the same
request gets the same answer however often it is sent. Does NOT survive an agent that shortens its conversation:
report few tokens in the script, so that none does.

The script of a scripted LLM: what it says and runs, step by step, and which usage it reports for each step.

    model: scripted-1
    steps:
      - {say: I read the assignment., run: cat ASSIGNMENT.md, usage: {input: 1000, output: 40}}
      - {say: Done., usage: {input: 1200, output: 5}}

A step that runs something asks the agent for its shell; the last step runs nothing and ends the turn.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Self

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
"""How agent systems call their shell; the first one that is offered is used."""
END_TOOL = "finish"
"""Tool that ends the turn, where there is one."""
END_COMMAND = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""An agent that is told of this word in its prompt ends when a command prints it first."""
LONGEST_S = 600
"""Time that a command may take, where the shell asks."""
STILL_RUNNING = re.compile(r"Process running with session ID (\d+)")
"""What a shell says that returned before its command ended."""
WAIT_TOOL = "write_stdin"
"""Tool that waits for such a command."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a request offers."""

    name: str
    properties: Mapping[str, Mapping[str, Any]]
    """Its parameters, as JSON schema has them."""
    freeform: bool = False
    """Takes program text instead of parameters."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a request carries, as far as a script cares."""

    tools: tuple[Tool, ...]
    results: tuple[str, ...]
    """Texts of the results of tools so far."""
    told: str
    """All text before the first result: instructions and prompt."""

    def tool(self, name: str) -> Tool | None:
        """The tool of that name, if offered."""
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool to be called."""

    tool: Tool
    arguments: Mapping[str, Any]
    """Empty for a freeform tool."""
    text: str = ""
    """For a freeform tool."""

    @property
    def arguments_json(self) -> str:
        """As the protocols of OpenAI and Anthropic carry them."""
        return json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One answer."""

    step: int | None
    """Index in the script; None: aside."""
    say: str
    call: ScriptedCall | None
    usage: StepUsage
    delay_s: float
    number: int
    """How many results came before: makes ids that differ within a conversation and repeat with it."""


def decide(script: Script, conversation: Conversation) -> ScriptedReply:
    """The answer to a request."""
    shell = next((tool for name in SHELL_NAMES if (tool := conversation.tool(name)) is not None), None)
    number = len(conversation.results)
    if shell is None:
        return ScriptedReply(None, script.aside.say, None, script.aside.usage, script.aside.delay_s, number)
    waiting = _wait_call(conversation)
    if waiting is not None:
        return ScriptedReply(None, "", waiting, script.aside.usage, script.aside.delay_s, number)
    done = sum(1 for result in conversation.results if not STILL_RUNNING.search(result))
    index = min(done, len(script.steps) - 1)
    step = script.steps[index]
    call = _shell_call(shell, step.run) if step.run is not None else _end_call(conversation, shell, step.say)
    return ScriptedReply(index, step.say, call, step.usage, step.delay_s, number)


def _shell_call(shell: Tool, command: str) -> ScriptedCall:
    if shell.freeform:
        asked = json.dumps({"cmd": command, "yield_time_ms": LONGEST_S * 1000})
        return ScriptedCall(shell, {}, f"const r = await tools.exec_command({asked}); text(JSON.stringify(r));")
    return ScriptedCall(shell, _arguments(shell.properties, command))


def _arguments(properties: Mapping[str, Mapping[str, Any]], command: str) -> dict[str, Any]:
    """A value for each parameter that is known."""
    as_list = properties.get("command", {}).get("type") == "array"
    known: dict[str, Any] = {
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
    chosen = {name: value for name, value in known.items() if name in properties}
    return chosen or {"command": command}


def _in_seconds(schema: Mapping[str, Any]) -> bool:
    words = str(schema.get("description", "")).lower()
    return "second" in words and "millisecond" not in words


def _end_call(conversation: Conversation, shell: Tool, say: str) -> ScriptedCall | None:
    """How this agent is told that the work is done; None: by saying something without calling a tool."""
    end = conversation.tool(END_TOOL)
    if end is not None:
        return ScriptedCall(end, {"message": say or "done"})
    if END_COMMAND in conversation.told:
        return _shell_call(shell, f"echo {END_COMMAND}")
    return None


def _wait_call(conversation: Conversation) -> ScriptedCall | None:
    """Waits on for the last command if its shell returned early."""
    found = STILL_RUNNING.search(conversation.results[-1]) if conversation.results else None
    tool = conversation.tool(WAIT_TOOL)
    if found is None or tool is None:
        return None
    known = {"session_id": int(found.group(1)), "chars": "", "yield_time_ms": LONGEST_S * 1000}
    return ScriptedCall(tool, {name: value for name, value in known.items() if name in tool.properties})


def text_of(content: object) -> str:
    """All text in a message, whatever mixture of strings, lists and objects it is made of."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return "\n".join(filter(None, (text_of(content[key]) for key in content if key not in {"type", "role", "id"})))
    if isinstance(content, Sequence):
        return "\n".join(filter(None, map(text_of, content)))
    return ""


def pieces(text: str, n: int = 3) -> list[str]:
    """A text cut into about n parts, to be streamed."""
    size = max(1, -(-len(text) // n))
    return [text[start : start + size] for start in range(0, len(text), size)]
