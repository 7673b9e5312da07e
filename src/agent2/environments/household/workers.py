"""Household episodes in several processes, for when one core is not enough.

The engine plays one turn at a time in a process. `Workers` starts processes that each have an engine; a `WorkerWorld`
is an ordinary environment whose episode lives in one of them. `evaluation.worlds` tells many of them what to do before
it asks any. Episodes are handed out by item, so that all attempts at a game share one process and its memory.

Promises: the same observations and states as `HouseholdWorld`; a process that dies or hangs costs its episodes an
EnvironmentFailed, which the rollout engine retries once, and is replaced for the next ones. Nothing below the user's
home is needed. Each solver of a process (two in an engine) takes 33 MB in the folder for temporary files: a copy of its
library, whose name is gone once it is loaded and whose space is free when the process ends.
"""

import itertools
import os
import select
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO, TypeVar

import msgspec

from agent2.environments.household.worker import WorkerReply, WorkerRequest, frame_of, read_frame
from agent2.environments.household.world import HouseholdSettings
from agent2.errors import ConfigError, EnvironmentFailed
from agent2.records import Item, JsonValue, Message, Step, derive_seed

_T = TypeVar("_T")


class _Process:
    """One worker process and the episodes that it holds."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "agent2.environments.household.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what waits in a buffer of ours would be hidden from select
        )
        os.set_blocking(_pipe(self._child.stdin).fileno(), False)
        self._early: deque[bytes] = deque()
        """Replies that came while requests were being sent."""
        self.is_lost = False
        self.dropped: list[int] = []

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._child.pid

    def send(self, request: WorkerRequest, timeout_s: float) -> None:
        """Hand over a request. Raises EnvironmentFailed if the process is gone, or takes nothing for too long.

        Replies that come meanwhile are kept: a process whose replies nobody takes does not read requests either.
        """
        self._check()
        drop = tuple(self.dropped)
        self.dropped.clear()
        into, out = _pipe(self._child.stdin), _pipe(self._child.stdout)
        rest = memoryview(frame_of(replace(request, drop=drop)))
        while rest:
            readable, writable, _ = select.select([out], [into], [], timeout_s)
            if not readable and not writable:
                raise self._lost(f"took no request for {timeout_s:g} s")
            try:
                if writable:
                    rest = rest[into.write(rest) or 0 :]
                else:
                    self._early.append(read_frame(out))
            except (EOFError, OSError) as error:
                raise self._lost("has died") from error

    def receive(self, timeout_s: float) -> WorkerReply:
        """The next reply. Raises EnvironmentFailed if the process dies, or is silent for too long."""
        self._check()
        pipe = _pipe(self._child.stdout)
        if not self._early and not select.select([pipe], [], [], timeout_s)[0]:
            raise self._lost(f"was silent for {timeout_s:g} s")
        try:
            frame = self._early.popleft() if self._early else read_frame(pipe)
            return msgspec.msgpack.decode(frame, type=WorkerReply)
        except (EOFError, OSError, msgspec.MsgspecError) as error:
            raise self._lost("has died") from error

    def close(self) -> None:
        """End the process; may be called twice."""
        self.is_lost = True
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:  # what was not sent any more is of no use to anybody
                    continue
        self._child.kill()
        self._child.wait()

    def _check(self) -> None:
        if self.is_lost:
            raise EnvironmentFailed(
                f"household worker {self._number} was lost together with this episode; restart the episode"
            )

    def _lost(self, what: str) -> EnvironmentFailed:
        self.close()
        return EnvironmentFailed(
            f"household worker {self._number} (process {self._child.pid}) {what} in the middle of an episode, exit "
            f"code {self._child.returncode}; its episodes are lost and can be restarted"
        )


class WorkerWorld:
    """Plays one item in a worker process; an `Environment`, single use."""

    def __init__(self, workers: "Workers", settings: HouseholdSettings) -> None:
        self._workers = workers
        self._settings = settings
        self._process: _Process | None = None
        self._episode = 0

    @property
    def max_turns(self) -> int:
        """See `HouseholdWorld.max_turns`."""
        return self._settings.max_turns

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """See `HouseholdWorld.reset`."""
        self.begin(item, seed)
        return self.begun()

    def act(self, action: str) -> Step:
        """See `HouseholdWorld.act`."""
        self.begin_act(action)
        return self.acted()

    def state(self) -> Mapping[str, JsonValue]:
        """See `HouseholdWorld.state`."""
        self._send(WorkerRequest(self._episode, "state"))
        return _told(self._reply().state)

    def ask_expert(self) -> str:
        """See `HouseholdWorld.ask_expert`."""
        self._send(WorkerRequest(self._episode, "ask_expert"))
        return _told(self._reply().command)

    def begin(self, item: Item, seed: int) -> None:
        """The first half of `reset`: hand over the item."""
        if self._process is not None:
            raise EnvironmentFailed(f"household world was already used and cannot play {item.id!r}; make a fresh one")
        self._process, self._episode = self._workers.place_for(item, self)
        self._send(WorkerRequest(self._episode, "reset", item=item, seed=seed, settings=self._settings))

    def begun(self) -> Sequence[Message]:
        """The second half of `reset`: the opening."""
        return list(_told(self._reply().messages))

    def begin_act(self, action: str) -> None:
        """The first half of `act`: hand over the action."""
        text = action.encode("utf-8", "replace").decode()  # half characters cannot travel, and are no command
        self._send(WorkerRequest(self._episode, "act", action=text))

    def acted(self) -> Step:
        """The second half of `act`: the reply."""
        return _told(self._reply().step)

    def _send(self, request: WorkerRequest) -> None:
        self._started().send(request, self._workers.timeout_s)

    def _reply(self) -> WorkerReply:
        reply = self._started().receive(self._workers.timeout_s)
        if reply.error is not None:
            raise EnvironmentFailed(reply.error)
        if reply.fatal is not None:
            raise ConfigError(reply.fatal)
        return reply

    def _started(self) -> _Process:
        if self._process is None:
            raise EnvironmentFailed("household world is not begun; call reset on a fresh one")
        return self._process


class Workers:
    """A fixed number of worker processes; a context manager. Not thread-safe."""

    def __init__(self, n_processes: int, *, timeout_s: float = 120.0) -> None:
        """Workers that start when they are first needed.

        timeout_s: longest time to wait for one reply; the first one of a process includes importing the engine.
        Raises ConfigError without any process.
        """
        if n_processes < 1:
            raise ConfigError(f"household workers: {n_processes} processes cannot play; ask for at least 1")
        self.timeout_s = timeout_s
        self._processes: list[_Process | None] = [None] * n_processes
        self._episodes = itertools.count()

    def world(self, settings: HouseholdSettings) -> WorkerWorld:
        """A fresh world for one episode."""
        return WorkerWorld(self, settings)

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [process.pid for process in self._processes if process is not None and not process.is_lost]

    def close(self) -> None:
        """End all processes; may be called twice."""
        for process in self._processes:
            if process is not None:
                process.close()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def place_for(self, item: Item, world: WorkerWorld) -> tuple[_Process, int]:
        """The process for an item's episode, started if need be, and the number of the episode there."""
        number = derive_seed("household worker", item.id) % len(self._processes)
        process = self._processes[number]
        if process is None or process.is_lost:
            process = self._processes[number] = _Process(number)
        episode = next(self._episodes)
        weakref.finalize(world, process.dropped.append, episode)
        return process, episode


def _told(value: _T | None) -> _T:
    if value is None:
        raise EnvironmentFailed("a household worker answered another question than it was asked; restart the episode")
    return value


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise EnvironmentFailed("a household worker has no pipe; create the workers again")
    return pipe
