"""The answers of a scripted LLM: its script, and the four wire protocols that agent systems speak.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import Field, model_validator

from agent2.config import StrictModel, load_yaml

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

Json = dict[str, Any]


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
class Tool:
    """A tool that a request offers."""

    name: str
    properties: Mapping[str, Mapping[str, Any]]
    """Parameter -> its JSON schema."""
    freeform: bool = False
    """Takes program text instead of parameters."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The parts of a request that a script needs."""

    tools: tuple[Tool, ...]
    results: tuple[str, ...]
    """Texts of the results of tools so far."""
    instructions: str
    """All text before the first result: instructions and prompt."""

    def tool(self, name: str) -> Tool | None:
        """The tool of that name, if offered."""
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A call of a tool."""

    tool: Tool
    arguments: Mapping[str, Any]
    """Empty for a freeform tool."""
    text: str = ""
    """For a freeform tool."""

    @property
    def arguments_json(self) -> str:
        """The arguments as the protocols of OpenAI and Anthropic carry them."""
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
    """Tool results before it: gives ids that differ within a conversation and are the same when it is repeated."""


def decide(script: Script, conversation: Conversation) -> ScriptedReply:
    """The answer to a request."""
    shell = next((tool for name in SHELL_NAMES if (tool := conversation.tool(name)) is not None), None)
    number = len(conversation.results)
    if shell is None:  # a side job of the agent
        return ScriptedReply(None, script.aside.say, None, script.aside.usage, script.aside.delay_s, number)
    wait_call = _wait_call(conversation)
    if wait_call is not None:
        return ScriptedReply(None, "", wait_call, script.aside.usage, script.aside.delay_s, number)
    n_done = sum(1 for result in conversation.results if not STILL_RUNNING.search(result))
    index = min(n_done, len(script.steps) - 1)
    step = script.steps[index]
    call = _shell_call(shell, step.run) if step.run is not None else _end_call(conversation, shell, step.say)
    return ScriptedReply(index, step.say, call, step.usage, step.delay_s, number)


def _shell_call(shell: Tool, command: str) -> ScriptedCall:
    if shell.freeform:
        arguments = json.dumps({"cmd": command, "yield_time_ms": LONGEST_S * 1000})
        return ScriptedCall(shell, {}, f"const r = await tools.exec_command({arguments}); text(JSON.stringify(r));")
    return ScriptedCall(shell, _arguments(shell.properties, command))


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


def _end_call(conversation: Conversation, shell: Tool, say: str) -> ScriptedCall | None:
    """The call by which this agent ends; None: it ends with a message that calls no tool."""
    end = conversation.tool(END_TOOL)
    if end is not None:
        return ScriptedCall(end, {"message": say or "done"})
    if END_COMMAND in conversation.instructions:
        return _shell_call(shell, f"echo {END_COMMAND}")
    return None


def _wait_call(conversation: Conversation) -> ScriptedCall | None:
    """The call that waits for the last command if its shell returned early; None if it did not."""
    match = STILL_RUNNING.search(conversation.results[-1]) if conversation.results else None
    tool = conversation.tool(WAIT_TOOL)
    if match is None or tool is None:
        return None
    values = {"session_id": int(match.group(1)), "chars": "", "yield_time_ms": LONGEST_S * 1000}
    return ScriptedCall(tool, {name: value for name, value in values.items() if name in tool.properties})


def text_of(content: object) -> str:
    """All text in a message, which may nest strings, lists and objects."""
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


class ScriptedWire(Protocol):
    """A wire protocol: how its requests are read and answered."""

    name: str
    named_events: bool
    """Whether each event of a stream has a line with its type."""
    ends_with_done: bool

    def read(self, body: Mapping[str, Any]) -> Conversation:
        """The conversation that a request carries."""

    def answer(self, body: Mapping[str, Any], reply: ScriptedReply) -> Json:
        """The whole answer at once."""

    def events(self, body: Mapping[str, Any], reply: ScriptedReply) -> Iterator[Json]:
        """The events or chunks of a stream."""


class ScriptedOpenAiChat:
    """OpenAI chat completions."""

    name = "openai-chat"
    named_events = False
    ends_with_done = True

    def read(self, body: Mapping[str, Any]) -> Conversation:
        """The conversation that a request carries."""
        messages = body.get("messages") or []
        functions = [tool["function"] for tool in body.get("tools") or [] if tool.get("type") == "function"]
        first = next((i for i, message in enumerate(messages) if message.get("role") == "tool"), len(messages))
        return Conversation(
            tools=tuple(Tool(f["name"], (f.get("parameters") or {}).get("properties") or {}) for f in functions),
            results=tuple(text_of(m.get("content")) for m in messages if m.get("role") == "tool"),
            instructions="\n".join(text_of(message.get("content")) for message in messages[:first]),
        )

    def answer(self, body: Mapping[str, Any], reply: ScriptedReply) -> Json:
        """The whole answer at once."""
        message: Json = {"role": "assistant", "content": reply.say}
        if reply.call is not None:
            message["tool_calls"] = [self._tool_call(reply)]
        choice = {"index": 0, "message": message, "finish_reason": self._finish(reply), "logprobs": None}
        return {**self._head(body, reply, "chat.completion"), "choices": [choice], "usage": self.usage(reply)}

    def events(self, body: Mapping[str, Any], reply: ScriptedReply) -> Iterator[Json]:
        """The chunks of a stream; the usage comes only if the request asks for it, as with the provider."""
        head = self._head(body, reply, "chat.completion.chunk")

        def chunk(delta: Json, finish: str | None = None) -> Json:
            return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        yield chunk({"role": "assistant", "content": ""})
        for piece in pieces(reply.say):
            yield chunk({"content": piece})
        if reply.call is not None:
            call = self._tool_call(reply)
            named = {**call, "function": {"name": call["function"]["name"], "arguments": ""}}
            yield chunk({"tool_calls": [{"index": 0, **named}]})
            for piece in pieces(call["function"]["arguments"]):
                yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        yield chunk({}, self._finish(reply))
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": self.usage(reply)}

    def usage(self, reply: ScriptedReply) -> Json:
        """Tokens in the fields of this protocol."""
        counted = reply.usage
        return {
            "prompt_tokens": counted.input,
            "completion_tokens": counted.output,
            "total_tokens": counted.input + counted.output,
            "prompt_tokens_details": {"cached_tokens": counted.cached_input},
            "completion_tokens_details": {"reasoning_tokens": counted.reasoning},
        }

    def _head(self, body: Mapping[str, Any], reply: ScriptedReply, kind: str) -> Json:
        return {"id": f"chatcmpl-{reply.number}", "object": kind, "created": 1_700_000_000, "model": body.get("model")}

    def _tool_call(self, reply: ScriptedReply) -> Json:
        assert reply.call is not None
        function = {"name": reply.call.tool.name, "arguments": reply.call.arguments_json}
        return {"id": f"call_{reply.number}", "type": "function", "function": function}

    def _finish(self, reply: ScriptedReply) -> str:
        return "stop" if reply.call is None else "tool_calls"


class ScriptedOpenAiResponses:
    """OpenAI responses."""

    name = "openai-responses"
    named_events = True
    ends_with_done = False

    def read(self, body: Mapping[str, Any]) -> Conversation:
        """The conversation that a request carries."""
        prompt = body.get("input")
        items = prompt if isinstance(prompt, list) else [{"type": "message", "content": prompt}]
        results = [item for item in items if str(item.get("type", "")).endswith("_call_output")]
        first = items.index(results[0]) if results else len(items)
        texts = [body.get("instructions"), *(item.get("content") for item in items[:first])]
        return Conversation(
            tools=tuple(self._tool(tool) for tool in body.get("tools") or []),
            results=tuple(text_of(item.get("output")) for item in results),
            instructions="\n".join(map(text_of, texts)),
        )

    def answer(self, body: Mapping[str, Any], reply: ScriptedReply) -> Json:
        """The whole answer at once."""
        return {
            **self._head(body, reply),
            "status": "completed",
            "output": self._items(reply),
            "usage": self.usage(reply),
        }

    def events(self, body: Mapping[str, Any], reply: ScriptedReply) -> Iterator[Json]:
        """The events of a stream."""
        for number, event in enumerate(self._events(body, reply)):
            yield {**event, "sequence_number": number}

    def usage(self, reply: ScriptedReply) -> Json:
        """Tokens in the fields of this protocol."""
        counted = reply.usage
        return {
            "input_tokens": counted.input,
            "input_tokens_details": {"cached_tokens": counted.cached_input},
            "output_tokens": counted.output,
            "output_tokens_details": {"reasoning_tokens": counted.reasoning},
            "total_tokens": counted.input + counted.output,
        }

    def _events(self, body: Mapping[str, Any], reply: ScriptedReply) -> Iterator[Json]:
        response = {**self._head(body, reply), "status": "in_progress", "output": [], "usage": None}
        yield {"type": "response.created", "response": response}
        yield {"type": "response.in_progress", "response": response}
        for index, item in enumerate(self._items(reply)):
            position = {"item_id": item["id"], "output_index": index}
            yield {
                "type": "response.output_item.added",
                "output_index": index,
                "item": {**item, "status": "in_progress"},
            }
            if item["type"] == "message":
                for piece in pieces(reply.say):
                    yield {"type": "response.output_text.delta", **position, "content_index": 0, "delta": piece}
            elif item["type"] == "function_call":
                for piece in pieces(item["arguments"]):
                    yield {"type": "response.function_call_arguments.delta", **position, "delta": piece}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": "response.completed", "response": self.answer(body, reply)}

    def _items(self, reply: ScriptedReply) -> list[Json]:
        items: list[Json] = []
        if reply.say or reply.call is None:
            content = [{"type": "output_text", "text": reply.say, "annotations": []}]
            items.append(
                {
                    "type": "message",
                    "id": f"msg_{reply.number}",
                    "role": "assistant",
                    "status": "completed",
                    "content": content,
                }
            )
        if reply.call is not None:
            items.append(self._call_item(reply))
        return items

    def _call_item(self, reply: ScriptedReply) -> Json:
        assert reply.call is not None
        call = reply.call
        named = {"call_id": f"call_{reply.number}", "name": call.tool.name, "status": "completed"}
        if call.tool.freeform:
            return {"type": "custom_tool_call", "id": f"ctc_{reply.number}", **named, "input": call.text}
        return {"type": "function_call", "id": f"fc_{reply.number}", **named, "arguments": call.arguments_json}

    def _head(self, body: Mapping[str, Any], reply: ScriptedReply) -> Json:
        return {
            "id": f"resp_{reply.number}",
            "object": "response",
            "created_at": 1_700_000_000,
            "model": body.get("model"),
        }

    def _tool(self, tool: Mapping[str, Any]) -> Tool:
        kind = str(tool.get("type"))
        properties = (tool.get("parameters") or {}).get("properties") or {}
        return Tool(str(tool.get("name") or kind), properties, freeform=kind == "custom")


class ScriptedAnthropic:
    """Anthropic messages."""

    name = "anthropic"
    named_events = True
    ends_with_done = False

    def read(self, body: Mapping[str, Any]) -> Conversation:
        """The conversation that a request carries."""
        results: list[str] = []
        texts = [text_of(body.get("system"))]
        for message in body.get("messages") or []:
            content = message.get("content")
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
            for block in blocks:
                if block.get("type") == "tool_result":
                    results.append(text_of(block.get("content")))
                elif not results:
                    texts.append(text_of(block.get("text")))
        tools = [tool for tool in body.get("tools") or [] if "name" in tool]
        return Conversation(
            tools=tuple(Tool(tool["name"], (tool.get("input_schema") or {}).get("properties") or {}) for tool in tools),
            results=tuple(results),
            instructions="\n".join(texts),
        )

    def answer(self, body: Mapping[str, Any], reply: ScriptedReply) -> Json:
        """The whole answer at once."""
        head = self._head(body, reply)
        return {**head, "content": self._blocks(reply), "stop_reason": self._stop(reply), "usage": self.usage(reply)}

    def events(self, body: Mapping[str, Any], reply: ScriptedReply) -> Iterator[Json]:
        """The events of a stream; the final count of output tokens comes at its end, as with the provider."""
        message = {
            **self._head(body, reply),
            "content": [],
            "stop_reason": None,
            "usage": {**self.usage(reply), "output_tokens": 1},
        }
        yield {"type": "message_start", "message": message}
        for index, block in enumerate(self._blocks(reply)):
            position = {"index": index}
            if block["type"] == "text":
                yield {"type": "content_block_start", **position, "content_block": {"type": "text", "text": ""}}
                for piece in pieces(block["text"]):
                    yield {"type": "content_block_delta", **position, "delta": {"type": "text_delta", "text": piece}}
            else:
                assert reply.call is not None
                yield {"type": "content_block_start", **position, "content_block": {**block, "input": {}}}
                for piece in pieces(reply.call.arguments_json):
                    delta = {"type": "input_json_delta", "partial_json": piece}
                    yield {"type": "content_block_delta", **position, "delta": delta}
            yield {"type": "content_block_stop", **position}
        yield {
            "type": "message_delta",
            "delta": {"stop_reason": self._stop(reply), "stop_sequence": None},
            "usage": {"output_tokens": reply.usage.output},
        }
        yield {"type": "message_stop"}

    def usage(self, reply: ScriptedReply) -> Json:
        """Tokens in the fields of this protocol: input leaves cached tokens out, reasoning has no field."""
        counted = reply.usage
        return {
            "input_tokens": counted.input - counted.cached_input,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": counted.cached_input,
            "output_tokens": counted.output,
        }

    def _head(self, body: Mapping[str, Any], reply: ScriptedReply) -> Json:
        return {
            "id": f"msg_{reply.number}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "stop_sequence": None,
        }

    def _blocks(self, reply: ScriptedReply) -> list[Json]:
        blocks: list[Json] = []
        if reply.say or reply.call is None:
            blocks.append({"type": "text", "text": reply.say})
        if reply.call is not None:
            name, arguments = reply.call.tool.name, dict(reply.call.arguments)
            blocks.append({"type": "tool_use", "id": f"toolu_{reply.number}", "name": name, "input": arguments})
        return blocks

    def _stop(self, reply: ScriptedReply) -> str:
        return "end_turn" if reply.call is None else "tool_use"


class ScriptedGemini:
    """Gemini generateContent."""

    name = "gemini"
    named_events = False
    ends_with_done = False

    def read(self, body: Mapping[str, Any]) -> Conversation:
        """The conversation that a request carries."""
        results: list[str] = []
        texts = [text_of(body.get("systemInstruction"))]
        for content in body.get("contents") or []:
            for part in content.get("parts") or []:
                if "functionResponse" in part:
                    results.append(text_of(part["functionResponse"].get("response")))
                elif not results:
                    texts.append(text_of(part.get("text")))
        functions = [f for tool in body.get("tools") or [] for f in tool.get("functionDeclarations") or []]
        return Conversation(
            tools=tuple(Tool(f["name"], self._properties(f)) for f in functions),
            results=tuple(results),
            instructions="\n".join(texts),
        )

    def answer(self, body: Mapping[str, Any], reply: ScriptedReply) -> Json:
        """The whole answer at once."""
        return self._chunk(reply, self._parts(body, reply), is_last=True)

    def events(self, body: Mapping[str, Any], reply: ScriptedReply) -> Iterator[Json]:
        """The chunks of a stream; each one carries the usage so far, as with the provider."""
        *first, last = self._parts(body, reply)
        for part in first:
            for piece in pieces(part["text"]):
                yield self._chunk(reply, [{"text": piece}], is_last=False)
        yield self._chunk(reply, [last], is_last=True)

    def usage(self, reply: ScriptedReply) -> Json:
        """Tokens in the fields of this protocol: candidates leave thoughts out."""
        counted = reply.usage
        return {
            "promptTokenCount": counted.input,
            "cachedContentTokenCount": counted.cached_input,
            "candidatesTokenCount": counted.output - counted.reasoning,
            "thoughtsTokenCount": counted.reasoning,
            "totalTokenCount": counted.input + counted.output,
        }

    def _chunk(self, reply: ScriptedReply, parts: list[Json], *, is_last: bool) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        counted = self.usage(reply)
        if is_last:
            candidate["finishReason"] = "STOP"
        else:
            counted = {"promptTokenCount": counted["promptTokenCount"], "totalTokenCount": counted["promptTokenCount"]}
        return {
            "candidates": [candidate],
            "usageMetadata": counted,
            "modelVersion": "scripted",
            "responseId": f"r{reply.number}",
        }

    def _parts(self, body: Mapping[str, Any], reply: ScriptedReply) -> list[Json]:
        parts: list[Json] = []
        if reply.say or reply.call is None:
            parts.append({"text": self._by_schema(body, reply.say) if reply.call is None else reply.say})
        if reply.call is not None:
            parts.append({"functionCall": {"name": reply.call.tool.name, "args": dict(reply.call.arguments)}})
        return parts

    def _by_schema(self, body: Mapping[str, Any], say: str) -> str:
        """Text, or an object with a value for each key where the request has a schema for its answer."""
        settings = body.get("generationConfig") or {}
        schema = settings.get("responseJsonSchema") or settings.get("responseSchema")
        if not schema:
            return say
        values = {"string": say, "boolean": True, "number": 0, "integer": 0}
        properties = schema.get("properties") or {}
        return json.dumps(
            {name: values.get(str(parameter.get("type", "")).lower(), say) for name, parameter in properties.items()}
        )

    def _properties(self, function: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        schema = function.get("parametersJsonSchema") or function.get("parameters") or {}
        properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
        return properties
