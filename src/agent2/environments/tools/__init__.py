"""The tool world: a model acts by writing tool calls, and is scored on their results.

Calls are parsed here; `world` is the environment, which breaks tools on purpose where asked and counts what happened.
What the tools do is a `Toolbox`: pure functions, APIs that must be searched for first, a small repository
(`toolboxes`). `ToolRules` is the part of the evaluation contract that is about tools: permissions and budget. It goes
into the protocol as data, because a score under other permissions is another score.

One call is the JSON object `{"name": "price", "arguments": {"item": "lamp"}}`; several are a list of such objects. A
message that does not begin with `{` or `[` is the model's final answer in words. Parsing is strict on purpose: an
unknown key, a duplicate key, a number that is not finite or too large, deep nesting, or text after the JSON make a
malformed call, and the model reads one sentence that says so.

A world may have its calls in brackets instead (`CallSyntax.BRACKETS`), as in ReAct: the last line of a message is one
call, `open[Norvik | 2]`, its arguments in the order of the tool's parameters; results come back as plain text. A
message without a call is malformed there, and JSON is accepted as well, for samplers that offer tools natively.

Promises: nothing that a model writes is ever executed as Python. Does NOT look for calls inside prose or code fences
and does NOT know which tools exist.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent2.errors import quoted
from agent2.records import JsonValue

MAX_INTEGER = 10**9
"""Integer arguments beyond this, either way, are refused."""
MAX_TEXT = 200
"""Longest string argument."""
_BRACKETS = re.compile(r"(\w{1,40})\[(.*)\]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
MAX_CHARACTERS = 4000
"""Longer messages that begin like a call are malformed."""
MAX_CALLS = 16
"""In one message."""
MAX_DEPTH = 6
"""Deepest nesting of lists and objects."""
MAX_NUMBER = 10**15


class Permission(StrEnum):
    """What a tool may need permission for; named as in a suite's `protocol.tools.permissions`."""

    READING = "reading"
    RECORD_CHANGES = "record_changes"
    """Carts, bookings and the like inside the world."""
    FILE_WRITING = "file_writing"
    TEST_EXECUTION = "test_execution"
    INTERNET_ACCESS = "internet_access"
    PAID_API_CALLS = "paid_api_calls"


class OnDanger(StrEnum):
    """What happens to a dangerous action; either way it is counted."""

    REFUSE = "refuse"
    """It is not carried out: it would need a human's confirmation, and there is none."""
    ALLOW = "allow"
    """It is carried out."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool."""

    name: str
    kind: str
    """"integer" or "string"."""
    default: JsonValue = None
    """Used when the argument is left out; None: the argument is required."""
    max_chars: int = MAX_TEXT
    """Longest string."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool."""

    name: str
    parameters: tuple[Parameter, ...] = ()
    permission: Permission = Permission.READING
    changes_state: bool = False
    """True: calling it again, or reading after it, does not count as a repetition."""

    @property
    def signature(self) -> str:
        """`distance(start,end)`: the tool as prompts show it."""
        return f"{self.name}({','.join(parameter.name for parameter in self.parameters)})"

    def schema(self) -> dict[str, JsonValue]:
        """The tool as chat-completion servers take it: a function with a JSON schema of its arguments."""
        properties: dict[str, JsonValue] = {parameter.name: {"type": parameter.kind} for parameter in self.parameters}
        required = [parameter.name for parameter in self.parameters if parameter.default is None]
        parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return {"type": "function", "function": {"name": self.name, "parameters": parameters}}

    def problem_with(self, arguments: Mapping[str, JsonValue]) -> str | None:
        """Why these arguments are not valid, in a few words; None if they are."""
        by_name = {parameter.name: parameter for parameter in self.parameters}
        for name, value in arguments.items():
            if name not in by_name:
                return f"no parameter {quoted(name)}"
            if problem := _type_problem(value, by_name[name]):
                return f"{name} {problem}"
        missing = [name for name, parameter in by_name.items() if name not in arguments and parameter.default is None]
        return f"{missing[0]} is missing" if missing else None

    def with_defaults(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The arguments in the order of the parameters, defaults filled in; they must have no problem."""
        return {parameter.name: arguments.get(parameter.name, parameter.default) for parameter in self.parameters}


@dataclass(frozen=True, slots=True)
class ToolRules:
    """What an episode allows."""

    permissions: frozenset[Permission] = frozenset({Permission.READING})
    max_tool_calls: int = 8
    parallel_tool_calls: bool = True
    """False: a message with several calls is malformed."""
    on_danger: OnDanger = OnDanger.REFUSE

    def as_protocol(self) -> dict[str, JsonValue]:
        """The rules as plain data for `EvaluationProtocol.tools`."""
        return {
            "permissions": sorted(self.permissions),
            "max_tool_calls": self.max_tool_calls,
            "parallel_tool_calls": self.parallel_tool_calls,
            "on_danger": self.on_danger.value,
        }


def _type_problem(value: JsonValue, parameter: Parameter) -> str | None:
    if parameter.kind == "integer":
        if type(value) is not int:
            return "must be an integer"
        return None if abs(value) <= MAX_INTEGER else "is too large"
    if not isinstance(value, str):
        return "must be a string"
    return None if len(value) <= parameter.max_chars else "is too long"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the model wrote it."""

    name: str
    arguments: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """The content of a message: calls, a final answer, or a call that cannot be parsed."""

    calls: Sequence[ToolCall] = ()
    answer: str | None = None
    problem: str | None = None
    """Why it is neither; the model reads it."""


class _MalformedCall(ValueError):
    """The message begins like a call but is not one."""


def parse_message(text: str) -> ParsedMessage:
    """The calls, the answer or the problem of a message; exactly one of the three."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")):
        return ParsedMessage(answer=stripped)
    try:
        return ParsedMessage(calls=tuple(_parse_calls(stripped)))
    except (ValueError, RecursionError) as error:
        return ParsedMessage(problem=_problem_text(error))


class CallSyntax(StrEnum):
    """How a world's calls and results are written."""

    JSON = "json"
    BRACKETS = "brackets"


def parse_brackets(text: str, specs: Mapping[str, ToolSpec]) -> ParsedMessage:
    """The call, or the problem, of a message in a world with bracketed calls; a JSON message as `parse_message`.

    Lines before the last one are the model's own thoughts. Arguments are separated by "|"; the rest belongs to the last
    one. Control characters count as blanks.
    """
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        return parse_message(stripped)
    line = stripped.rpartition("\n")[2].strip()
    match = _BRACKETS.fullmatch(line)
    if match is None:
        is_open = "[" in line and not line.endswith("]")
        return ParsedMessage(problem="the closing ] is missing" if is_open else "one action, such as search[words]")
    if any("\ud800" <= character <= "\udfff" for character in line):
        return ParsedMessage(problem="it holds half a character")
    name, inside = match[1], _CONTROL.sub(" ", match[2])
    parameters = specs[name].parameters if name in specs else ()
    parts = [part.strip() for part in inside.split("|", max(0, len(parameters) - 1))] if inside.strip() else []
    arguments: dict[str, JsonValue] = dict(zip((parameter.name for parameter in parameters), parts, strict=False))
    if parts and not parameters:
        arguments = {"argument": inside.strip()[:MAX_TEXT]}
    for parameter in parameters:
        if parameter.kind == "integer" and re.fullmatch(r"[0-9]{1,9}", str(arguments.get(parameter.name, ""))):
            arguments[parameter.name] = int(str(arguments[parameter.name]))
    return ParsedMessage(calls=(ToolCall(name, arguments),))


def write_brackets(name: str, *arguments: str) -> str:
    """The text that `parse_brackets` turns back into this call."""
    return f"{name}[{' | '.join(arguments)}]"


def write_call(call: ToolCall) -> str:
    """The text that `parse_message` turns back into this call."""
    return json.dumps({"name": call.name, "arguments": dict(call.arguments)})


def write_calls(calls: Sequence[ToolCall]) -> str:
    """The text of one call, or of several in one message."""
    return write_call(calls[0]) if len(calls) == 1 else f"[{', '.join(map(write_call, calls))}]"


def _parse_calls(text: str) -> list[ToolCall]:
    if len(text) > MAX_CHARACTERS:
        raise _MalformedCall(f"{len(text)} characters, at most {MAX_CHARACTERS} are read")
    value = json.loads(text, object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
    require_plain(value, MAX_DEPTH)
    entries = value if isinstance(value, list) else [value]
    if not 1 <= len(entries) <= MAX_CALLS:
        raise _MalformedCall(f"{len(entries)} calls in one message, 1 to {MAX_CALLS} are read")
    return [_parse_call(entry) for entry in entries]


def _parse_call(entry: JsonValue) -> ToolCall:
    if not isinstance(entry, dict) or set(entry) != {"name", "arguments"}:
        raise _MalformedCall("a call has exactly the keys 'name' and 'arguments'")
    name, arguments = entry["name"], entry["arguments"]
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise _MalformedCall("'name' is a string and 'arguments' an object")
    return ToolCall(name, arguments)


def require_plain(value: JsonValue, max_depth: int) -> None:
    """Raises ValueError for what a card cannot hold: deep nesting, numbers out of range, lone surrogates."""
    level = [value]
    for depth in range(max_depth + 1):
        if depth == max_depth and any(isinstance(part, dict | list) for part in level):
            raise _MalformedCall(f"nested deeper than {max_depth}")
        level = [part for outer in level for part in _checked_parts(outer)]


def _checked_parts(value: JsonValue) -> list[JsonValue]:
    """What a list or an object holds, keys too; nothing for a plain value. Raises _MalformedCall as above."""
    if isinstance(value, dict | list):
        return [*value, *value.values()] if isinstance(value, dict) else value
    if isinstance(value, int | float) and not abs(value) <= MAX_NUMBER:
        raise _MalformedCall("a number is too large")
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise _MalformedCall("a string holds half a character")
    return []


def _reject_duplicate_keys(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise _MalformedCall("a key occurs twice in one object")
    return mapping


def _reject_constant(name: str) -> JsonValue:
    raise _MalformedCall(f"{quoted(name)} is no JSON value")


def _problem_text(error: Exception) -> str:
    if isinstance(error, _MalformedCall):
        return str(error)
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON at character {error.pos}"
    return "no JSON that can be read"
