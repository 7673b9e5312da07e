"""Reads tool calls out of a model's message.

One call is the JSON object `{"name": "price", "arguments": {"item": "lamp"}}`; several are a list of such objects.
A message that does not begin with `{` or `[` is the model's final answer in words. Strict on purpose: an unknown key, a
key twice, a number that is none or too large, deep nesting, or text after the JSON make a malformed call, said in one
sentence that the model reads.

Does NOT look calls up inside prose or code fences and does NOT know which tools exist.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent2.errors import shown
from agent2.records import JsonValue

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
    """Why it is neither; the model is told."""


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
        raise _Malformed("a key stands twice in one object")
    return found


def _constant(name: str) -> JsonValue:
    raise _Malformed(f"{shown(name)} is no JSON value")


def _sentence(error: Exception) -> str:
    if isinstance(error, _Malformed):
        return str(error)
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON at character {error.pos}"
    return "no JSON that can be read"
