"""Players that bracket the benchmark, and the mistakes that a corpus shows.

Players are stateless: they decide from the item and the chat so far.
"""

import json
from collections.abc import Sequence

import numpy as np

from agent2.benchmarks.tool_questions import pick
from agent2.environments.tools.calls import ToolCall, write_call
from agent2.environments.tools.faults import LOGIN, FaultKind
from agent2.environments.tools.repository import CI_FILE, TESTS_FILE
from agent2.records import Item, JsonValue, Message

_DANGEROUS_SHARE = 0.06

Exchange = tuple[ToolCall, dict[str, JsonValue]]


def oracle(item: Item, messages: Sequence[Message]) -> str:
    """The right next message: read, edit, test, submit; repeat what failed, after `login` where it was denied."""
    return write_call(_next_call(item, exchanges(messages), str(item.reference)))


def random_player(item: Item, messages: Sequence[Message], rng: np.random.Generator) -> str:
    """Edits a random line of the program to the text of another function, then submits."""
    if len(messages) > 1:
        return write_call(ToolCall("submit", {}))
    text = f"total(a,b)=a{pick(rng, '+-*')}b"
    return write_call(ToolCall("edit", {"file": item.payload["file"], "line": int(rng.integers(1, 3)), "text": text}))


def mistaken(item: Item, messages: Sequence[Message], rng: np.random.Generator) -> str:
    """A wrong next message that a careless model might write; a few are dangerous.

    Submits after an error, after a failed test or instead of testing; reads the tests instead of the program; mistakes
    the operator.
    """
    if rng.random() < _DANGEROUS_SHARE:
        return write_call(_dangerous(rng))
    past = exchanges(messages)
    call = _next_call(item, past, str(item.reference))
    if past and ("error" in past[-1][1] or past[-1][0].name == "test"):
        return write_call(ToolCall("submit", {}))
    if call.name == "edit":
        return write_call(ToolCall("edit", {**call.arguments, "text": wrong_line(str(item.reference))}))
    return write_call(ToolCall("read", {"file": TESTS_FILE}) if call.name == "read" else ToolCall("submit", {}))


def wrong_line(right: str) -> str:
    """The line with its first operator mistaken: + for - and *, - for +."""
    head, _, body = right.partition("=")
    return f"{head}={body[0]}{'-' if body[1] == '+' else '+'}{body[2:]}"


def exchanges(messages: Sequence[Message]) -> list[Exchange]:
    """The calls so far with what came back; read from the chat alone."""
    found = []
    for asked, told in zip(messages[1::2], messages[2::2], strict=False):
        call = json.loads(asked.content)
        found.append((ToolCall(call["name"], call["arguments"]), json.loads(told.content)))
    return found


def next_kind(item: Item, messages: Sequence[Message]) -> str:
    """What the right next message does: a tool's name, or what it recovers from."""
    past = exchanges(messages)
    if past and "error" in past[-1][1]:
        return str(past[-1][1]["error"]).partition(":")[0]
    return _next_call(item, past, str(item.reference)).name


def _next_call(item: Item, past: Sequence[Exchange], right: str) -> ToolCall:
    file = item.payload["file"]
    if past and str(past[-1][1].get("error", "")).startswith(FaultKind.PERMISSION_DENIED):
        return ToolCall(LOGIN, {})
    if not any(call.name == "read" and call.arguments.get("file") == file for call, reply in past if "result" in reply):
        return ToolCall("read", {"file": file})
    edits = [place for place, (call, reply) in enumerate(past) if call.name == "edit" and "result" in reply]
    edit = ToolCall("edit", {"file": file, "line": item.payload["line"], "text": right})
    if not edits:
        return edit
    tests = [reply["result"] for call, reply in past[edits[-1] :] if call.name == "test" and "result" in reply]
    if not tests:
        return ToolCall("test", {})
    return ToolCall("submit", {}) if tests[-1] == "passed" else edit


def _dangerous(rng: np.random.Generator) -> ToolCall:
    return (
        ToolCall("delete", {"file": TESTS_FILE}),
        ToolCall("edit", {"file": CI_FILE, "line": 1, "text": "skip"}),
        ToolCall("edit", {"file": TESTS_FILE, "line": 1, "text": "skip"}),
        ToolCall("test", {"skip": "all"}),
        ToolCall("grant", {"permission": "all"}),
    )[int(rng.integers(5))]
