"""Calls to the worlds of many episodes at once.

A world of this process is called and answers. One that works elsewhere (`RemoteEnvironment`: a worker process, a
server) is told what to do, and asked for the answer only after others have been told as well, so that they work side
by side. Where a call fails, its EnvironmentFailed stands in the place of the answer.

Promises: answers in the order of the calls; every world that was told is asked before anything else is told, so worlds
may share a channel whose answers come in order. Does NOT catch anything but EnvironmentFailed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Generic, Protocol, TypeVar, cast

from agent2.errors import EnvironmentFailed
from agent2.records import Environment, Item, Message, Step

AHEAD = 32
"""Worlds that are told before the first of them is asked; a channel that they share has to keep so many answers."""

AnswerT = TypeVar("AnswerT")


class RemoteEnvironment(Environment, Protocol):
    """An environment that works elsewhere: `reset` and `act` in two halves; any half may raise EnvironmentFailed."""

    def begin(self, item: Item, seed: int) -> None:
        """First half of `reset`; does not wait."""

    def begun(self) -> Sequence[Message]:
        """Second half of `reset`."""

    def begin_act(self, action: str) -> None:
        """First half of `act`; does not wait."""

    def acted(self) -> Step:
        """Second half of `act`."""


@dataclass(frozen=True, slots=True)
class _Call(Generic[AnswerT]):
    """One call in two halves."""

    tell: Callable[[], None] | None
    """None: there is no first half."""
    ask: Callable[[], AnswerT]


def turn_cap(world: Environment, most: int) -> int:
    """The lower of `most` and the world's own `max_turns`, for worlds that have one and refuse to go on beyond it."""
    own: int | None = getattr(world, "max_turns", None)
    return most if own is None else min(most, own)


def is_remote(world: Environment) -> bool:
    """Whether a world is called in two halves."""
    return hasattr(world, "begin_act")


def reset_all(
    make_environment: Callable[[], Environment], starts: Iterable[tuple[Item, int]]
) -> list[tuple[Environment | None, Sequence[Message] | EnvironmentFailed]]:
    """Make a world for each (item, seed) and begin it; returns worlds and openings.

    No world where making it failed.
    """
    worlds: list[Environment | None] = []

    def calls() -> Iterator[_Call[Sequence[Message]]]:
        for item, seed in starts:
            worlds.append(None)
            try:
                world = worlds[-1] = make_environment()
            except EnvironmentFailed as error:
                yield _Call(None, partial(_fail, error))
                continue
            if is_remote(world):
                remote = cast(RemoteEnvironment, world)
                yield _Call(partial(remote.begin, item, seed), remote.begun)
            else:
                yield _Call(None, partial(world.reset, item, seed))

    openings = _answers(calls())
    return list(zip(worlds, openings, strict=True))


def act_all(actions: Iterable[tuple[Environment, str]]) -> list[Step | EnvironmentFailed]:
    """One action in each of several worlds, which must all be different."""
    return _answers(
        _Call(partial(cast(RemoteEnvironment, world).begin_act, action), cast(RemoteEnvironment, world).acted)
        if is_remote(world)
        else _Call(None, partial(world.act, action))
        for world, action in actions
    )


def _answers(calls: Iterable[_Call[AnswerT]]) -> list[AnswerT | EnvironmentFailed]:
    answers: list[AnswerT | EnvironmentFailed] = []
    waiting = iter(calls)
    while some := list(islice(waiting, AHEAD)):
        told = [None if call.tell is None else _failure_of(call.tell) for call in some]
        for call, failure in zip(some, told, strict=True):
            if failure is None:
                try:
                    answers.append(call.ask())
                except EnvironmentFailed as error:
                    answers.append(error)
            else:
                answers.append(failure)
    return answers


def _failure_of(tell: Callable[[], None]) -> EnvironmentFailed | None:
    try:
        tell()
    except EnvironmentFailed as error:
        return error
    return None


def _fail(error: EnvironmentFailed) -> Sequence[Message]:
    raise error
