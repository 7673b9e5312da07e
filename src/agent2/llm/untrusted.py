"""Reading JSON that somebody else wrote: what is not of the expected kind is empty, never an exception."""

import json
from collections.abc import Mapping

import msgspec

from agent2.records import JsonValue


def decode(body: bytes) -> JsonValue:
    """Raises ValueError or RecursionError for what is not JSON."""
    try:
        value: JsonValue = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = json.loads(body)  # accepts a lone surrogate: a stream may cut a character in two
    return value


def decode_or_none(body: bytes) -> JsonValue:
    """The value of a JSON text; None for what is not JSON."""
    try:
        return decode(body)
    except (ValueError, RecursionError):
        return None


def as_text(value: JsonValue) -> str:
    """A text, or the empty one."""
    return value if isinstance(value, str) else ""


def as_object(value: JsonValue) -> dict[str, JsonValue]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_objects(value: JsonValue) -> list[dict[str, JsonValue]]:
    """The objects in a list; none if it is something else."""
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []


def index_of(element: Mapping[str, JsonValue], name: str = "index") -> int:
    """The place in a list that a piece of a stream names; the first one if it names none."""
    index = element.get(name)
    return index if isinstance(index, int) else 0


def error_message(body: bytes) -> str:
    """The message of an error of a server, in the forms that are usual; empty if there is none."""
    value = decode_or_none(body)
    error = as_object(value).get("error", as_object(value).get("detail"))
    return as_text(error) or as_text(as_object(error).get("message"))
