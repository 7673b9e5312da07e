"""Players that bracket the benchmark, and the mistakes that a corpus shows.

Players are stateless: they decide from the task and the chat so far, so that any of them can step in anywhere.
"""

import json
from collections.abc import Sequence

import numpy as np

from agent2.benchmarks.tool_questions import careless_arguments, draw_arguments, pick
from agent2.environments.tools.apis import CAPABILITIES, PREFIXES, SEARCH, Api
from agent2.environments.tools.calls import ToolCall, write_call
from agent2.environments.tools.faults import LOGIN, FaultKind
from agent2.records import Item, JsonValue, Message

LOGIN_CALL = ToolCall(LOGIN, {})
GAVE_UP = "failed"


def oracle(item: Item, messages: Sequence[Message]) -> str:
    """The right next message: search, call, answer; repeat what failed, after `login` where it was denied."""
    payload, done = item.payload, succeeded(messages)
    failed = last_error(messages)
    if failed is not None and failed.startswith(FaultKind.PERMISSION_DENIED):
        return write_call(LOGIN_CALL)
    if SEARCH.name not in done:
        return write_call(ToolCall(SEARCH.name, {"keyword": payload["capability"]}))
    gold = payload["gold"]
    if gold["name"] not in done:
        return write_call(ToolCall(gold["name"], gold["arguments"]))
    return str(item.reference)


def random_player(item: Item, messages: Sequence[Message], rng: np.random.Generator) -> str:
    """Searches for something, calls a random API with random arguments, then says a random number."""
    if len(messages) == 1:
        return write_call(ToolCall(SEARCH.name, {"keyword": pick(rng, CAPABILITIES)}))
    if len(messages) == 3:
        api = Api(pick(rng, CAPABILITIES), pick(rng, PREFIXES), int(rng.integers(2)))
        return write_call(api.call(draw_arguments(rng, api.capability)))
    return str(int(rng.integers(100)))


def mistaken(item: Item, messages: Sequence[Message]) -> str:
    """A wrong next message that a careless model might write.

    Gives up after an error; guesses the API instead of searching; misreads the last argument; calls once more.
    """
    payload, done, gold = item.payload, succeeded(messages), item.payload["gold"]
    if last_error(messages) is not None:
        return GAVE_UP
    if SEARCH.name not in done:
        guess = Api(payload["capability"], PREFIXES[0], 0)
        renamed = zip((p.name for p in guess.spec.parameters), gold["arguments"].values(), strict=True)
        return write_call(ToolCall(guess.spec.name, dict(renamed)))
    arguments = gold["arguments"] if gold["name"] in done else careless_arguments(gold["arguments"])
    return write_call(ToolCall(gold["name"], arguments))


def succeeded(messages: Sequence[Message]) -> list[str]:
    """Names of the calls that succeeded, in order; read from the chat alone."""
    return [name for name, reply in _exchanges(messages) if "result" in reply]


def last_error(messages: Sequence[Message]) -> str | None:
    """The error that the last call met, None if it met none."""
    exchanges = _exchanges(messages)
    return None if not exchanges else exchanges[-1][1].get("error")


def _exchanges(messages: Sequence[Message]) -> list[tuple[str, dict[str, JsonValue]]]:
    pairs = zip(messages[1::2], messages[2::2], strict=False)
    return [(json.loads(asked.content)["name"], json.loads(told.content)) for asked, told in pairs]
