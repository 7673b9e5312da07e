"""Calls as models and data sets write them: JSON alone, in a code block or in the tags that models write around it.

More is read here than a tool world reads, which teaches its model one form.
"""

import json
import re
from collections.abc import Iterator

from agent2.environments.tools import ParsedMessage, ToolCall, require_plain
from agent2.llm.untrusted import as_object
from agent2.records import JsonValue

MAX_CALLS = 128
"""In one message."""
MAX_DEPTH = 16
"""Deepest nesting of the arguments of a call."""
_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)|(?:<\|python_tag\|>|\[TOOL_CALLS\])(.*)\Z", re.DOTALL)
_FENCED = re.compile(r"```(?:json|tool_call)?\s*\n(.*?)```", re.DOTALL)
_BETWEEN_CALLS = re.compile(r"[\s,;]*")


def read_answer(text: str) -> ParsedMessage:
    """The calls, the words or the problem of a message; exactly one of the three.

    JSON in a code block that is no call is part of the words, and so is a message that begins with a bracket.
    """
    tagged = [first or second for first, second in _TAGGED.findall(text)]
    fenced = [] if tagged else [block for block in _FENCED.findall(text) if '"name"' in block]
    is_call = bool(tagged) or text.lstrip().startswith("{")
    try:
        calls = [call for block in tagged or fenced or [text] for call in _read_blocks(block)]
    except (ValueError, RecursionError) as error:
        return ParsedMessage(problem=str(error)) if is_call else ParsedMessage(answer=text)
    if len(calls) > MAX_CALLS:
        return ParsedMessage(problem=f"{len(calls)} calls in one message, {MAX_CALLS} are read")
    return ParsedMessage(calls=calls) if calls else ParsedMessage(answer=text)


def _read_blocks(text: str) -> Iterator[ToolCall]:
    """The calls of JSON values that follow each other. Raises ValueError for anything else."""
    decoder, place = json.JSONDecoder(parse_constant=_refuse_constant), _BETWEEN_CALLS.match(text)
    while place is not None and place.end() < len(text):
        value, end = decoder.raw_decode(text, place.end())
        yield from read_calls(value)
        place = _BETWEEN_CALLS.match(text, end)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def read_calls(value: JsonValue) -> list[ToolCall]:
    """The calls of a JSON value, or of its text: `{name, arguments}`, also within `function`, or a list of these.

    The arguments may be called `parameters`, and be text. Raises ValueError, saying why, for what is none.
    """
    if isinstance(value, str):
        value = json.loads(value)
    return [_read_call(entry) for entry in (value if isinstance(value, list) else [value])]


def _read_call(entry: JsonValue) -> ToolCall:
    call = as_object(as_object(entry).get("function")) or as_object(entry)
    name, arguments = call.get("name"), call.get("arguments", call.get("parameters"))
    if isinstance(arguments, str):
        arguments = json.loads(arguments or "{}")
    if not isinstance(name, str) or not name or not isinstance(arguments, dict | None):
        raise ValueError("a call is an object with a 'name' and an object of 'arguments'")
    require_plain([name, arguments], MAX_DEPTH)
    return ToolCall(name, arguments or {})
