"""The tool world: a model acts by writing tool calls, and is judged by their results.

They are read out of a message here, `world` is the environment, which breaks tools on purpose where asked and counts
what happened. What the tools do is a `Toolbox`: pure functions, APIs that must be searched for first, a small
repository (`toolboxes`). Nothing that a model writes is ever executed as Python.

`ToolRules` is the part of the evaluation contract that is about tools: permissions and budget. It
goes into the protocol as data, because a score under other permissions is another score.

One call is the JSON object `{"name": "price", "arguments": {"item": "lamp"}}`; several are a list of such objects.
A message that does not begin with `{` or `[` is the model's final answer in words. Strict on purpose: an unknown key, a
key twice, a number that is none or too large, deep nesting, or text after the JSON make a malformed call, said in one
sentence that the model reads.

Does NOT look calls up inside prose or code fences and does NOT know which tools exist.

A world may have its calls in brackets instead (`CallSyntax.BRACKETS`), as in ReAct: the last line of a message is one
call, `open[Norvik | 2]`, its arguments in the order of the tool's parameters; results come back as plain text. A
message without a call is malformed there, and JSON is read as well, for samplers that offer tools natively.
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


class Permission(StrEnum):
    """What a tool may need leave for; named as in a suite's `protocol.tools.permissions`."""

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
    """True: calling it again, or reading after it, is no repetition."""

    @property
    def signature(self) -> str:
        """`distance(start,end)`: how a prompt shows the tool."""
        return f"{self.name}({','.join(parameter.name for parameter in self.parameters)})"

    def schema(self) -> dict[str, JsonValue]:
        """The tool as chat-completion servers take it: a function with a JSON schema of its arguments."""
        properties: dict[str, JsonValue] = {one.name: {"type": one.kind} for one in self.parameters}
        required = [one.name for one in self.parameters if one.default is None]
        parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return {"type": "function", "function": {"name": self.name, "parameters": parameters}}

    def problem_with(self, arguments: Mapping[str, JsonValue]) -> str | None:
        """Why these arguments cannot be taken, in a few words; None if they can."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name, value in arguments.items():
            if name not in known:
                return f"no parameter {quoted(name)}"
            if problem := _type_problem(value, known[name]):
                return f"{name} {problem}"
        missing = [name for name, parameter in known.items() if name not in arguments and parameter.default is None]
        return f"{missing[0]} is missing" if missing else None

    def filled(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
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


MAX_CHARACTERS = 4000
"""Longer messages that begin like a call are malformed."""
MAX_CALLS = 16
"""Most calls in one message."""
MAX_DEPTH = 6
"""Of lists and objects within one another."""
MAX_NUMBER = 10**15


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the model wrote it."""

    name: str
    arguments: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """What a message holds: calls, a final answer, or a call that cannot be read."""

    calls: Sequence[ToolCall] = ()
    answer: str | None = None
    problem: str | None = None
    """Why it is neither; shown to the model."""


class _Malformed(ValueError):
    """The message begins like a call and is none."""


def read_message(text: str) -> ReadMessage:
    """The calls, the answer or the problem of a message; exactly one of the three."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")):
        return ReadMessage(answer=stripped)
    try:
        return ReadMessage(calls=tuple(_calls(stripped)))
    except (ValueError, RecursionError) as error:
        return ReadMessage(problem=_sentence(error))


class CallSyntax(StrEnum):
    """How a world's calls and results are written."""

    JSON = "json"
    BRACKETS = "brackets"


def read_brackets(text: str, specs: Mapping[str, ToolSpec]) -> ReadMessage:
    """The call, or the problem, of a message in a world with bracketed calls; a JSON message as `read_message`.

    Lines before the last one are the model's own thoughts. Arguments are separated by "|"; what is left over belongs to
    the last one. Control characters count as blanks.
    """
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        return read_message(stripped)
    line = stripped.rpartition("\n")[2].strip()
    match = _BRACKETS.fullmatch(line)
    if match is None:
        is_open = "[" in line and not line.endswith("]")
        return ReadMessage(problem="the closing ] is missing" if is_open else "one action, such as search[words]")
    if any("\ud800" <= character <= "\udfff" for character in line):
        return ReadMessage(problem="it holds half a character")
    name, inside = match[1], _CONTROL.sub(" ", match[2])
    parameters = specs[name].parameters if name in specs else ()
    parts = [part.strip() for part in inside.split("|", max(0, len(parameters) - 1))] if inside.strip() else []
    arguments: dict[str, JsonValue] = dict(zip((one.name for one in parameters), parts, strict=False))
    if parts and not parameters:
        arguments = {"argument": inside.strip()[:MAX_TEXT]}
    for one in parameters:
        if one.kind == "integer" and re.fullmatch(r"[0-9]{1,9}", str(arguments.get(one.name, ""))):
            arguments[one.name] = int(str(arguments[one.name]))
    return ReadMessage(calls=(ToolCall(name, arguments),))


def write_brackets(name: str, *arguments: str) -> str:
    """The text that `read_brackets` reads back as this call."""
    return f"{name}[{' | '.join(arguments)}]"


_BRACKETS = re.compile(r"(\w{1,40})\[(.*)\]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def write_call(call: ToolCall) -> str:
    """The text that `read_message` reads back as this call."""
    return json.dumps({"name": call.name, "arguments": dict(call.arguments)})


def write_calls(calls: Sequence[ToolCall]) -> str:
    """The text of one call, or of several in one message."""
    return write_call(calls[0]) if len(calls) == 1 else f"[{', '.join(map(write_call, calls))}]"


def _calls(text: str) -> list[ToolCall]:
    if len(text) > MAX_CHARACTERS:
        raise _Malformed(f"{len(text)} characters, at most {MAX_CHARACTERS} are read")
    value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    _require_plain(value, MAX_DEPTH)
    entries = value if isinstance(value, list) else [value]
    if not 1 <= len(entries) <= MAX_CALLS:
        raise _Malformed(f"{len(entries)} calls in one message, 1 to {MAX_CALLS} are read")
    return [_call(entry) for entry in entries]


def _call(entry: JsonValue) -> ToolCall:
    if not isinstance(entry, dict) or set(entry) != {"name", "arguments"}:
        raise _Malformed("a call has exactly the keys 'name' and 'arguments'")
    name, arguments = entry["name"], entry["arguments"]
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise _Malformed("'name' is a string and 'arguments' an object")
    return ToolCall(name, arguments)


def _require_plain(value: JsonValue, depth: int) -> None:
    """Refuse what a card could not hold: endless nesting, numbers out of range, halves of characters."""
    if isinstance(value, dict | list):
        if depth == 0:
            raise _Malformed(f"nested deeper than {MAX_DEPTH}")
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            _require_plain(part, depth - 1)
    elif isinstance(value, int | float) and not abs(value) <= MAX_NUMBER:
        raise _Malformed("a number is too large")
    elif isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise _Malformed("a string holds half a character")


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Malformed("a key occurs twice in one object")
    return found


def _constant(name: str) -> JsonValue:
    raise _Malformed(f"{quoted(name)} is no JSON value")


def _sentence(error: Exception) -> str:
    if isinstance(error, _Malformed):
        return str(error)
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON at character {error.pos}"
    return "no JSON that can be read"
