"""A world on an OpenEnv server: `reset` and `step` over a WebSocket, as the library `openenv` serves them.

    environment: {name: openenv, url: "http://127.0.0.1:8000", action: message, observation: echoed_message}

An item's payload becomes the arguments of the environment's `reset`, with a seed where it names none. A message of the
model becomes an action, and the rewards of the steps are in the final state, for the scorer `reward`.

Each method has two halves (`begin_act`, `acted`), so that many sessions run concurrently. This module implements the
protocol itself: when a connection breaks, the library's own client silently opens a new session, in which the episode
would continue from another state.

Promises: a server that is absent, of another version, silent, dies, or answers with anything but an observation is an
environment fault that says so, never a reward; a model whose action the environment refuses reads that it was refused.
Does NOT promise determinism, which depends on what the server does with the seed, and does NOT work in a trial, whose
processes are contained and reach no server.
"""

import ipaddress
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import httpx

from agent2.errors import ConfigError, EnvironmentFailed, quoted
from agent2.installation import install_hint
from agent2.records import Item, JsonValue, Message, Step
from agent2.texts import storable

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

NAME = "openenv"
VERSION = "1.0"
EXTRA = "openenv"
URL_VARIABLE = "AGENT2_OPENENV_URL"
CONNECT_S = 10.0
MAX_MESSAGE_BYTES = 16 * 2**20
MAX_METADATA_BYTES = 2**20
MAX_TEXT_CHARS = 200_000
"""Of one observation; the model reads how much was left out."""
REFUSED = "VALIDATION_ERROR"
"""Code of a server's answer to an action that does not fit the environment's schema."""
NO_ROOM = "CAPACITY_REACHED"
_PROTOCOL_KEYS = ("done", "reward", "metadata")
"""Keys of every observation that are not the environment's own."""


class OpenEnvWorld:
    """One session on a server."""

    name, version = NAME, VERSION

    def __init__(
        self,
        url: str | None = None,
        action: str | None = None,
        observation: str | None = None,
        serves: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        system: str | None = None,
    ) -> None:
        """url: of the server, http or https; None: `$AGENT2_OPENENV_URL`, which is then in no digest.

        action: field of the action that takes the model's message; None: the message is a JSON object, the action.
        observation: field of the observation that the model reads, `state.text` for one inside another; None: all of it
        as JSON. serves: the `name` and `version` that `/metadata` must report. timeout_s: for one answer. system: a
        system message before the first observation. Raises ConfigError for settings that cannot work, and without the
        extra.
        """
        if find_spec("websockets") is None:
            raise ConfigError(f"environment {NAME!r} needs websockets; {install_hint(EXTRA)}")
        self._url = _server_address(url)
        # for messages: without the user name and password that an address may contain
        self._display_url = self._url.replace(f"{urlsplit(self._url).netloc.rpartition('@')[0]}@", "", 1)
        if unknown := sorted(set(serves or {}) - {"name", "version"}):
            raise ConfigError(f"environment {NAME!r}: serves names {', '.join(unknown)}; it takes name and version")
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < math.inf:
            raise ConfigError(f"environment {NAME!r}: timeout_s is {timeout_s!r}; give seconds above 0")
        self._action, self._observation, self._serves = action, observation, dict(serves or {})
        self._timeout_s, self._system = float(timeout_s), system
        self._open_connections = ExitStack()
        self._session: ClientConnection | None = None
        self._refused: str | None = None
        self._rewards: list[float | None] = []
        self._done = False

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The item's prompt with the first observation, after the system message if there is one."""
        self.begin(item, seed)
        return self.begun()

    def begin(self, item: Item, seed: int) -> None:
        """First half of `reset`: connects. Raises EnvironmentFailed if there is no such server."""
        if self._rewards or self._session is not None or self._done:
            raise EnvironmentFailed(f"{self._display_url}: this session was used; make a fresh world for each rollout")
        self._prompt = item.prompt
        self._require_expected_server()
        self._session = self._connect()
        self._send({"type": "reset", "data": {"seed": seed % 2**31, **item.payload}})

    def begun(self) -> Sequence[Message]:
        """Second half of `reset`. Raises EnvironmentFailed for an episode that is over before it begins."""
        text, _, done = self._answer("reset")
        if done:
            raise self._failed("the episode is over right after reset")
        opening = [] if self._system is None else [Message("system", self._system)]
        return [*opening, Message("user", "\n\n".join(part for part in (self._prompt, text) if part))]

    def act(self, action: str) -> Step:
        """One step."""
        self.begin_act(action)
        return self.acted()

    def begin_act(self, action: str) -> None:
        """First half of `act`. Raises EnvironmentFailed before `reset`, after the end, and without a server."""
        if self._session is None:
            raise EnvironmentFailed(
                f"{self._display_url}: acted without a session; call reset first, and nothing after the end"
            )
        self._refused = None
        self._require_quiet()
        if self._action is not None:
            self._send({"type": "step", "data": {self._action: action}})
            return
        try:
            fields = json.loads(action[action.index("{") : action.rindex("}") + 1])
        except (ValueError, RecursionError):
            self._refused = "That is not an action: write one JSON object."
            return
        self._send({"type": "step", "data": fields})

    def acted(self) -> Step:
        """Second half of `act`; the model reads a refusal as an observation, and it earns nothing."""
        if self._refused is None:
            text, reward, self._done = self._answer("step")
            if self._refused is None:
                self._rewards.append(reward)
                return Step(None if self._done and not text else text, self._done)
        return Step(self._refused, done=False)

    def state(self) -> Mapping[str, JsonValue]:
        """`rewards`: of each accepted step, None where none was given; `done`. Ends the session."""
        self._close()
        return {"answer": None, "rewards": list(self._rewards), "done": self._done}

    def __del__(self) -> None:
        """Free the place on the server of a session that was dropped in mid-episode."""
        if getattr(self, "_session", None) is not None:
            self._close()

    def _require_expected_server(self) -> None:
        """Raises EnvironmentFailed unless the server is the one that `serves` names."""
        if not self._serves:
            return
        try:
            metadata = json.loads(_fetch(f"{self._url}/metadata"))
        except (httpx.HTTPError, ValueError) as error:
            raise self._failed(f"/metadata cannot be read ({error}); is an OpenEnv server running there?") from error
        for key, expected in self._serves.items():
            reported = metadata.get(key) if isinstance(metadata, dict) else None
            if reported != expected:
                raise self._failed(
                    f"{key} of the environment is {quoted(str(reported))}, {quoted(expected)} is expected; start that "
                    "one, or change 'serves' in benchmark.yaml"
                )

    def _connect(self) -> "ClientConnection":
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        address = f"ws{self._url.removeprefix('http')}/ws"
        proxy: Literal[True] | None = None if _is_local(self._url) else True
        try:
            opened = connect(address, open_timeout=CONNECT_S, max_size=MAX_MESSAGE_BYTES, proxy=proxy)
            return self._open_connections.enter_context(opened)
        except (OSError, TimeoutError, WebSocketException) as error:
            raise self._failed(f"no session ({error}); start the server, or change the url") from error

    def _require_quiet(self) -> None:
        """Raises EnvironmentFailed for an answer before the action: later rewards would belong to other actions."""
        from websockets.exceptions import WebSocketException

        assert self._session is not None
        try:
            raw = self._session.recv(timeout=0)
        except (TimeoutError, WebSocketException, OSError):
            return  # a broken connection is reported by the next send or receive
        raise self._failed(f"it sent an answer before it was given an action: {quoted(str(raw))}")

    def _send(self, message: JsonValue) -> None:
        from websockets.exceptions import ConnectionClosed, WebSocketException

        assert self._session is not None
        try:
            self._session.send(json.dumps(message))
        except ConnectionClosed:
            pass  # a server at its capacity says so and closes; its message is still to be read
        except (OSError, WebSocketException) as error:
            raise self._failed(f"the connection broke ({error})") from error

    def _answer(self, request: str) -> tuple[str, float | None, bool]:
        """Observation as text, reward, and whether it is over; of a refused action, `_refused` says why."""
        from websockets.exceptions import ConnectionClosed, WebSocketException

        assert self._session is not None
        try:
            raw = self._session.recv(timeout=self._timeout_s)
        except TimeoutError as error:
            raise self._failed(f"no answer to {request} within {self._timeout_s:g} s; raise timeout_s?") from error
        except (ConnectionClosed, WebSocketException, OSError) as error:
            raise self._failed(f"the server ended the session during {request} ({error})") from error
        try:
            message = json.loads(raw)
            kind, data = message["type"], message["data"]
            if kind == "error":
                problems = [
                    f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in data.get("errors", ())
                ]
                return self._error_answer(
                    request, str(data.get("code")), _card_text("; ".join(problems) or str(data.get("message")))
                )
            observation, reward, done = data["observation"], data["reward"], data["done"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._failed(f"the answer to {request} is not a message of OpenEnv: {quoted(str(raw))}") from error
        try:
            is_number = isinstance(reward, int | float) and not isinstance(reward, bool) and math.isfinite(reward)
        except OverflowError:
            is_number = False
        if kind != "observation" or not isinstance(done, bool) or not (reward is None or is_number):
            raise self._failed(
                f"the answer to {request} is not an observation with reward and done: {quoted(str(raw))}"
            )
        return self._observation_text(observation), None if reward is None else float(reward), done

    def _error_answer(self, request: str, code: str, message: str) -> tuple[str, float | None, bool]:
        if code == REFUSED and request == "step":
            self._refused = f"The environment refused this action: {message}"
            return "", None, False
        if code == NO_ROOM:
            message += " Allow more sessions there (max_concurrent_envs), or play fewer rollouts at once."
        raise self._failed(f"{request}: {code}: {message}")

    def _observation_text(self, observation: JsonValue) -> str:
        """The text of an observation for the model. Raises EnvironmentFailed if it lacks the field."""
        value = observation
        for part in [] if self._observation is None else self._observation.split("."):
            if not isinstance(value, dict) or part not in value:
                fields = ", ".join(sorted(value)) if isinstance(value, dict) else "none"
                raise self._failed(f"the observation has no {self._observation!r} (fields here: {fields})")
            value = value[part]
        if isinstance(value, dict) and self._observation is None:
            value = {key: value for key, value in value.items() if key not in _PROTOCOL_KEYS}
        return _card_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))

    def _failed(self, problem: str) -> EnvironmentFailed:
        self._close()
        return EnvironmentFailed(f"OpenEnv server {self._display_url}: {problem.replace(self._url, self._display_url)}")

    def _close(self) -> None:
        self._session = None
        self._open_connections.close()


def _server_address(url: str | None) -> str:
    address = url if url is not None else os.environ.get(URL_VARIABLE, "")
    parts = urlsplit(str(address))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"environment {NAME!r}: {'url' if url is not None else URL_VARIABLE} is {quoted(str(address))}; give the "
            "address of an OpenEnv server, as http://127.0.0.1:8000"
        )
    return str(address).rstrip("/")


def _fetch(url: str) -> bytes:
    """A small document. Raises httpx.HTTPError, also for one that is too long or does not end in time."""
    # the timeout of httpx is for one read, so a server that drips bytes would never end
    ends_at, body = time.monotonic() + CONNECT_S, b""
    with httpx.stream("GET", url, timeout=CONNECT_S, trust_env=not _is_local(url)) as answer:
        answer.raise_for_status()
        for part in answer.iter_bytes():
            body += part
            if len(body) > MAX_METADATA_BYTES or time.monotonic() > ends_at:
                raise httpx.ReadError(f"more than {MAX_METADATA_BYTES:,} bytes, or {CONNECT_S:g} s")
    return body


def _is_local(url: str) -> bool:
    """Whether the host is this machine, so that no proxy may be used."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _card_text(text: str) -> str:
    """Text that a card can hold, without lone surrogates from JSON; if too long it is cut, with a note."""
    n_excess = len(text) - MAX_TEXT_CHARS
    shortened = text if n_excess <= 0 else f"{text[:MAX_TEXT_CHARS]}\n[{n_excess:,} characters more were left out]"
    return str(storable(shortened))
