"""Our worlds for trainers that speak OpenEnv: one benchmark behind the library's own server.

    {"type": "reset", "data": {"seed": 3}}        the opening of a visible item; `index` or `item` choose one
    {"type": "step", "data": {"message": "..."}}  what the world answers; with `done`, the reward is the score

An episode is played by the same loop, with the same turn limit and scorer, as an evaluation (`stepwise`). Promises:
train and dev items alone are served, nothing hidden; a verdict that is missing is a reward of None with its reason in
`metadata`, never 0. Needs the extra `openenv`: importing this module raises ModuleNotFoundError without it.

Does NOT authenticate clients: every program that reaches the port plays. Does NOT isolate anything: worlds run in this
process.
"""

import socket
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import uvicorn
from fastapi import FastAPI
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from openenv.core.env_server.types import EnvironmentMetadata
from pydantic import Field
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from agent2.errors import ConfigError
from agent2.evaluation.stepwise import EpisodeEvent, StepwiseEpisode
from agent2.records import HIDDEN_SPLITS, Benchmark, Item, ScoredRollout, Split


class WorldAction(Action):  # type: ignore[misc]
    """The model's message, as it would be sent to the world."""

    message: str


class WorldObservation(Observation):  # type: ignore[misc]
    """The world's reply; the reward is the episode's score and comes with `done`."""

    text: str = ""
    """The new messages, one after the other."""
    messages: list[dict[str, str]] = Field(default_factory=list)
    """The same as chat messages; after reset the whole opening."""


class WorldState(State):  # type: ignore[misc]
    """The item of a session, and the turns that are left."""

    item_id: str | None = None
    turns_left: int | None = None


def openenv_app(benchmark: Benchmark, split: Split, n_items: int, n_sessions: int = 64) -> FastAPI:
    """The application that serves the first n items of a visible split, to so many sessions at once.

    Raises ConfigError for a hidden split and for more items than there are.
    """
    if split in HIDDEN_SPLITS:
        raise ConfigError(f"split {split.value!r} is hidden and is not served; serve train or dev")
    items = benchmark.items(split, n_items, None)

    class SessionOfBenchmark(BenchmarkSession):  # the library creates sessions without arguments
        def __init__(self) -> None:
            super().__init__(benchmark, items)

    app: FastAPI = create_fastapi_app(
        SessionOfBenchmark,
        WorldAction,
        WorldObservation,
        max_concurrent_envs=n_sessions,
        env_name=benchmark.name,
        state_cls=WorldState,
    )
    app.add_middleware(_ProgramsOnly)
    return app


class _ProgramsOnly:
    """Refuses requests of web pages in a browser, which name their origin; clients are programs, which name none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not any(name == b"origin" for name, _ in scope.get("headers", ())):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await PlainTextResponse("web pages are not served, only programs\n", 403)(scope, receive, send)


def run_server(app: FastAPI, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Listen until Ctrl-C; calls `ready` with the address first. Raises ConfigError for an address in use."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        # A server that was just stopped leaves its port in TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(256)  # connections queue from here on, before the server runs
        except OSError as error:
            raise ConfigError(
                f"--host {host} --port {port}: cannot be used ({error.strerror}); choose another with --port, or 0 for "
                "a free one"
            ) from error
        shown_host = f"[{host}]" if ":" in host else host
        ready(f"http://{shown_host}:{listener.getsockname()[1]}")
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


class BenchmarkSession(Environment):  # type: ignore[misc]
    """One client's session: an episode at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, benchmark: Benchmark, items: Sequence[Item]) -> None:
        super().__init__()
        self._benchmark, self._items = benchmark, items
        self._indexes = {item.id: index for index, item in enumerate(items)}
        self._episode: StepwiseEpisode | None = None
        self._state = WorldState()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        index: int | None = None,
        item: str | None = None,
    ) -> WorldObservation:
        """Begin an episode: of the item of an index or id, else of the one that the seed draws.

        Raises IndexError and KeyError for an item that is not served, and RuntimeError where the world breaks.
        """
        self.close()
        if item is not None:
            if item not in self._indexes:
                raise KeyError(f"item {item!r} is not served; GET /{self._benchmark.name}/tasks lists those that are")
            index = self._indexes[item]
        drawn_seed = uuid4().int if seed is None else seed
        if index is None:
            index = drawn_seed % len(self._items)
        if not 0 <= index < len(self._items):
            raise IndexError(f"index {index} is not served; there are {len(self._items)} items, from 0")
        chosen = self._items[index]
        self._episode = StepwiseEpisode(self._benchmark, chosen, drawn_seed % 2**63)
        self._state = WorldState(
            episode_id=episode_id or str(uuid4()), item_id=chosen.id, turns_left=self._benchmark.max_turns
        )
        return self._observation(self._episode.next())

    def step(self, action: WorldAction, timeout_s: float | None = None) -> WorldObservation:
        """One message; timeout_s is not used.

        Raises RuntimeError before reset, after the end, and where the world breaks, which ends the episode.
        """
        if self._episode is None:
            raise RuntimeError("there is no episode; reset begins one")
        self._state.step_count += 1
        self._state.turns_left = max(0, self._benchmark.max_turns - self._state.step_count)
        return self._observation(self._episode.send(action.message))

    @property
    def state(self) -> WorldState:
        """The item being played, and how many messages are left."""
        return self._state

    def close(self) -> None:
        """End the episode; without its last message it has no score."""
        episode, self._episode = self._episode, None
        if episode is not None:
            episode.abandon()

    def get_metadata(self) -> EnvironmentMetadata:
        """The benchmark's name and version."""
        description = f"{self._benchmark.name} of agent2, world {self._benchmark.environment_version()}"
        return EnvironmentMetadata(name=self._benchmark.name, description=description, version=self._benchmark.version)

    def list_splits(self) -> list[str]:
        """The split that is served."""
        return [self._items[0].split.value]

    def num_tasks(self, split: str) -> int:
        """How many items of a split are served."""
        return len(self._served(split))

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Index and id of every item."""
        return [{"index": index, "id": item.id} for index, item in enumerate(self._served(split))]

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Index and id of one item. Raises IndexError."""
        if not 0 <= index < len(self._served(split)):
            raise IndexError(f"index {index} is not served; there are {len(self._served(split))} items, from 0")
        return self.list_tasks(split)[index]

    def _served(self, split: str) -> Sequence[Item]:
        return self._items if split in self.list_splits() else ()

    def _observation(self, event: EpisodeEvent) -> WorldObservation:
        if isinstance(event, BaseException):
            self._episode = None  # its thread has ended: nothing would answer the next message
            raise RuntimeError(f"the episode broke: {event!r}; reset begins another one") from event
        if not isinstance(event, ScoredRollout):
            messages = [{"role": message.role, "content": message.content} for message in event]
            return WorldObservation(text="\n\n".join(message.text for message in event), messages=messages)
        self._episode = None
        rollout, score = event.rollout, event.score
        last = rollout.turns[-1].observation if rollout.turns else None
        return WorldObservation(
            done=True,
            reward=score.value,
            text=last or "",
            messages=[] if last is None else [{"role": "user", "content": last}],
            metadata={
                "reason": score.reason,
                "status": rollout.status.value,
                "fault": None if score.fault is None else score.fault.value,
                "views": dict(score.views),
            },
        )
