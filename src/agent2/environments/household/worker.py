"""The process behind `workers`: plays episodes that it is told to, over a pipe, until the pipe is closed.

Run as `python -m agent2.environments.household.worker`. Requests and replies are msgpack with their length before
them, on the standard input and output that the process was started with; anything else that is written to standard
output goes to standard error.
"""

import os
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

import msgspec

from agent2.environments.household.world import HouseholdSettings, HouseholdWorld
from agent2.errors import Agent2Error, EnvironmentFailed
from agent2.records import Item, JsonValue, Message, Step

_LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = 64 * 2**20
"""Longer frames are refused: they are none."""


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """One thing to do."""

    episode: int
    call: str
    """"reset", "act", "state" or "ask_expert"."""
    item: Item | None = None
    seed: int = 0
    settings: HouseholdSettings | None = None
    action: str = ""
    drop: tuple[int, ...] = ()
    """Episodes that nobody plays any more."""


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """What came of it; exactly one field is set."""

    messages: tuple[Message, ...] | None = None
    step: Step | None = None
    state: Mapping[str, JsonValue] | None = None
    command: str | None = None
    error: str | None = None
    """The sentence of an EnvironmentFailed."""
    fatal: str | None = None
    """The sentence of any other error that a user can act on, a missing package for one."""


def frame_of(value: WorkerRequest | WorkerReply) -> bytes:
    """One record as it is sent."""
    data = msgspec.msgpack.encode(value)
    return _LENGTH.pack(len(data)) + data


def read_frame(pipe: IO[bytes]) -> bytes:
    """One record, not yet decoded. Raises EOFError when the other side is gone or sends nonsense."""
    head = _exactly(pipe, _LENGTH.size)
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME_BYTES:
        raise EOFError(f"a frame of {length} bytes")
    return _exactly(pipe, length)


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests until there are no more."""
    worlds: dict[int, HouseholdWorld] = {}
    while True:
        try:
            request = msgspec.msgpack.decode(read_frame(requests), type=WorkerRequest)
        except EOFError:
            return
        for episode in request.drop:
            worlds.pop(episode, None)
        replies.write(frame_of(_answer(worlds, request)))
        replies.flush()


def _answer(worlds: dict[int, HouseholdWorld], request: WorkerRequest) -> WorkerReply:
    try:
        if request.call == "reset" and request.item is not None and request.settings is not None:
            world = worlds[request.episode] = HouseholdWorld(request.settings)
            return WorkerReply(messages=tuple(world.reset(request.item, request.seed)))
        world = worlds[request.episode]
        match request.call:
            case "act":
                return WorkerReply(step=world.act(request.action))
            case "state":
                return WorkerReply(state=world.state())
            case _:
                return WorkerReply(command=world.ask_expert())
    except EnvironmentFailed as error:
        return WorkerReply(error=str(error))
    except Agent2Error as error:
        return WorkerReply(fatal=str(error))


def _exactly(pipe: IO[bytes], n_bytes: int) -> bytes:
    data = b""
    while len(data) < n_bytes:
        more = pipe.read(n_bytes - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def main() -> None:
    """Serve on the pipes that the process was started with."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
