"""A world that an OpenEnv server plays: `reset` and `step` over a WebSocket, as the library `openenv` serves them.

    environment: {name: openenv, url: "http://127.0.0.1:8000", action: message, observation: echoed_message}

An item's payload becomes the arguments of the environment's `reset`, with a seed where it names none. A message of the
model becomes an action, and the rewards of the steps are in the final state, for the scorer `reward`.

Promises: a server that is absent, of another version, silent, dies, or answers with anything but an observation is an
environment fault that says so, never a reward; a model whose action the environment refuses is told so. Two halves
(`begin_act`, `acted`), so that many sessions work side by side. Speaks the protocol itself: where a connection breaks,
the library's own client silently opens a new session, and a game would go on in another one.

Does NOT promise determinism: what a server does with a seed is its own affair. In a trial, processes are contained and
reach no server.
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
"""Of what a model reads at once; what is left out is said there."""
REFUSED = "VALIDATION_ERROR"
"""Code of a server's answer to an action that does not fit the environment's schema."""
NO_ROOM = "CAPACITY_REACHED"
_OWN_KEYS = ("done", "reward", "metadata")
"""What every observation has besides what the environment says."""


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
        """url: of the server, http or https; None: `$AGENT2_OPENENV_URL`, and it is in no digest.

        action: field of the action that takes the model's message; None: the message is a JSON object, the action.
        observation: field of the observation that the model reads, `board.text` for one inside another; None: all of it
        as JSON. serves: `name` and `version` that `/metadata` has to say. timeout_s: for one answer. system: a system
        message before the first observation.
        Raises ConfigError for settings that cannot work, and without the extra.
        """
        if find_spec("websockets") is None:
            raise ConfigError(f"environment {NAME!r} needs websockets; {install_hint(EXTRA)}")
        self._url = _address(url)
        self._shown = self._url.replace(f"{urlsplit(self._url).netloc.rpartition('@')[0]}@", "", 1)
        if unknown := sorted(set(serves or {}) - {"name", "version"}):
            raise ConfigError(f"environment {NAME!r}: serves names {', '.join(unknown)}; it takes name and version")
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < math.inf:
            raise ConfigError(f"environment {NAME!r}: timeout_s is {timeout_s!r}; give seconds above 0")
        self._action, self._observation, self._serves = action, observation, dict(serves or {})
        self._timeout_s, self._system = float(timeout_s), system
        self._held = ExitStack()
        self._session: ClientConnection | None = None
        self._refused: str | None = None
        self._rewards: list[float | None] = []
        self._done = False

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The item's prompt with the first observation, behind the system message if there is one."""
        self.begin(item, seed)
        return self.begun()

    def begin(self, item: Item, seed: int) -> None:
        """First half of `reset`: connects. Raises EnvironmentFailed where there is no such server."""
        if self._rewards or self._session is not None or self._done:
            raise EnvironmentFailed(f"{self._shown}: this session was used; make a fresh world for each rollout")
        self._prompt = item.prompt
        self._require_served()
        self._session = self._connected()
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
        """First half of `act`. Raises EnvironmentFailed before `reset`, after the end, and where the server is gone."""
        if self._session is None:
            raise EnvironmentFailed(
                f"{self._shown}: acted without a session; call reset first, and nothing after the end"
            )
        self._refused = None
        self._require_quiet()
        if self._action is not None:
            self._send({"type": "step", "data": {self._action: action}})
            return
        try:
            said = json.loads(action[action.index("{") : action.rindex("}") + 1])
        except (ValueError, RecursionError):
            self._refused = "That is not an action: write one JSON object."
            return
        self._send({"type": "step", "data": said})

    def acted(self) -> Step:
        """Second half of `act`; an action that was refused is told as an observation and earns nothing."""
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
        """A session that was dropped in mid-episode gives its place on the server back."""
        if getattr(self, "_session", None) is not None:
            self._close()

    def _require_served(self) -> None:
        """Raises EnvironmentFailed unless the server is what `serves` names."""
        if not self._serves:
            return
        try:
            told = json.loads(_fetched(f"{self._url}/metadata"))
        except (httpx.HTTPError, ValueError) as error:
            raise self._failed(f"/metadata cannot be read ({error}); is an OpenEnv server running there?") from error
        for key, expected in self._serves.items():
            found = told.get(key) if isinstance(told, dict) else None
            if found != expected:
                raise self._failed(
                    f"{key} of the environment is {quoted(str(found))}, {quoted(expected)} is expected; start that "
                    "one, or change 'serves' in benchmark.yaml"
                )

    def _connected(self) -> "ClientConnection":
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        address = f"ws{self._url.removeprefix('http')}/ws"
        proxy: Literal[True] | None = None if _is_local(self._url) else True
        try:
            opened = connect(address, open_timeout=CONNECT_S, max_size=MAX_MESSAGE_BYTES, proxy=proxy)
            return self._held.enter_context(opened)
        except (OSError, TimeoutError, WebSocketException) as error:
            raise self._failed(f"no session ({error}); start the server, or change the url") from error

    def _require_quiet(self) -> None:
        """Raises EnvironmentFailed for an answer before the action: from there on rewards would belong to others."""
        from websockets.exceptions import WebSocketException

        assert self._session is not None
        try:
            raw = self._session.recv(timeout=0)
        except (TimeoutError, WebSocketException, OSError):
            return  # what broke is told by what follows
        raise self._failed(f"it sent an answer before it was given an action: {quoted(str(raw))}")

    def _send(self, message: JsonValue) -> None:
        from websockets.exceptions import ConnectionClosed, WebSocketException

        assert self._session is not None
        try:
            self._session.send(json.dumps(message))
        except ConnectionClosed:
            pass  # a server without room says so and closes; what it said is still to be read
        except (OSError, WebSocketException) as error:
            raise self._failed(f"the connection broke ({error})") from error

    def _answer(self, what: str) -> tuple[str, float | None, bool]:
        """Observation as text, reward, and whether it is over; of a refused action, `_refused` says why."""
        from websockets.exceptions import ConnectionClosed, WebSocketException

        assert self._session is not None
        try:
            raw = self._session.recv(timeout=self._timeout_s)
        except TimeoutError as error:
            raise self._failed(f"no answer to {what} within {self._timeout_s:g} s; raise timeout_s?") from error
        except (ConnectionClosed, WebSocketException, OSError) as error:
            raise self._failed(f"the server ended the session during {what} ({error})") from error
        try:
            told = json.loads(raw)
            kind, data = told["type"], told["data"]
            if kind == "error":
                said = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in data.get("errors", ())]
                return self._error(what, str(data.get("code")), _plain("; ".join(said) or str(data.get("message"))))
            observation, reward, done = data["observation"], data["reward"], data["done"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._failed(f"the answer to {what} is no message of OpenEnv: {quoted(str(raw))}") from error
        try:
            is_number = isinstance(reward, int | float) and not isinstance(reward, bool) and math.isfinite(reward)
        except OverflowError:
            is_number = False
        if kind != "observation" or not isinstance(done, bool) or not (reward is None or is_number):
            raise self._failed(f"the answer to {what} is no observation with reward and done: {quoted(str(raw))}")
        return self._text(observation), None if reward is None else float(reward), done

    def _error(self, what: str, code: str, message: str) -> tuple[str, float | None, bool]:
        if code == REFUSED and what == "step":
            self._refused = f"The environment refused this action: {message}"
            return "", None, False
        if code == NO_ROOM:
            message += " Allow more sessions there (max_concurrent_envs), or play fewer rollouts at once."
        raise self._failed(f"{what}: {code}: {message}")

    def _text(self, observation: JsonValue) -> str:
        """What the model reads of an observation. Raises EnvironmentFailed if it lacks the field."""
        found = observation
        for part in [] if self._observation is None else self._observation.split("."):
            if not isinstance(found, dict) or part not in found:
                known = ", ".join(sorted(found)) if isinstance(found, dict) else "none"
                raise self._failed(f"the observation has no {self._observation!r} (fields here: {known})")
            found = found[part]
        if isinstance(found, dict) and self._observation is None:
            found = {key: value for key, value in found.items() if key not in _OWN_KEYS}
        return _plain(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))

    def _failed(self, what: str) -> EnvironmentFailed:
        self._close()
        return EnvironmentFailed(f"OpenEnv server {self._shown}: {what.replace(self._url, self._shown)}")

    def _close(self) -> None:
        self._session = None
        self._held.close()


def _address(url: str | None) -> str:
    found = url if url is not None else os.environ.get(URL_VARIABLE, "")
    parts = urlsplit(str(found))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"environment {NAME!r}: {'url' if url is not None else URL_VARIABLE} is {quoted(str(found))}; give the "
            "address of an OpenEnv server, as http://127.0.0.1:8000"
        )
    return str(found).rstrip("/")


def _fetched(url: str) -> bytes:
    """A small document. Raises httpx.HTTPError, also for one that is too long or does not end in time."""
    ends_at, body = time.monotonic() + CONNECT_S, b""
    with httpx.stream("GET", url, timeout=CONNECT_S, trust_env=not _is_local(url)) as answer:
        answer.raise_for_status()
        for part in answer.iter_bytes():
            body += part
            if len(body) > MAX_METADATA_BYTES or time.monotonic() > ends_at:
                raise httpx.ReadError(f"more than {MAX_METADATA_BYTES:,} bytes, or {CONNECT_S:g} s")
    return body


def _is_local(url: str) -> bool:
    """Whether no proxy may be asked for it."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _plain(text: str) -> str:
    """Text that can be written to a card: JSON may carry halves of characters. What is too long is cut, and says so."""
    left = len(text) - MAX_TEXT_CHARS
    kept = text if left <= 0 else f"{text[:MAX_TEXT_CHARS]}\n[{left:,} characters more were left out]"
    return kept.encode("utf-8", "replace").decode()
