"""The served sampler: any OpenAI-compatible endpoint (chat completions), with many requests in flight.

One thread for each request in flight, all on one connection pool. A state that may pass (busy, restarting, a cut
connection, an answer that is none) is tried again as the fault table allows for the infrastructure, waiting as
long as the server asks; what is left becomes a completion with a fault. Nobody's answer was seen then, so it is
a missing score, never a zero. A request that got no answer in time is not tried again, and after a few silent requests
in a row the endpoint counts as gone: `collect` raises, and nothing of it is put on a card.

Promises: each submitted request is answered exactly once, also after `close`; keys are sent to the endpoint and
appear nowhere else. Opening asks the endpoint for one token, so that a wrong address, key or model name is an
error at once and not a card full of faults.

Does NOT promise that one seed gives one answer: the seed is sent, and how a server draws when it batches requests
is its own affair (`transformers serve` seeds its whole process). Which weights answer is the server's word too.
Prompts must be chats: rendering is the server's.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
from pydantic import Field, field_validator

from agent2.config import StrictModel, parse_yaml
from agent2.errors import FAULT_POLICY, ConfigError, EndpointFailed, Fault, SamplerFailed
from agent2.models.chat_wire import DIALECTS, Dialect, Silence, WireProblem, read_answer, request_body
from agent2.records import Completion, JsonValue, Message, Prompt, SamplingSettings, StopReason

logger = logging.getLogger(__name__)

KEY_VARIABLE = "AGENT2_API_KEY"
"""Holds the endpoint's key, where it needs one. No provider's own variable is read: a key goes nowhere by default."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
CONNECT_S = 5.0
"""A server that does not take a connection in this time is not there."""
BASE_S, S_PER_TOKEN = 60.0, 0.1
"""Time for one request where none is given: some, and more for each token that may be written."""
SILENT_IN_A_ROW = 3
"""So many requests without any HTTP answer, and nothing else in between, mean that the endpoint is gone."""
_OURS = frozenset(
    {
        *("model", "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "seed"),
        *("n", "stream", "logprobs", "tools", "functions"),
    }
)
"""Fields that the evaluation decides."""
_PROBE_TOOL = {"type": "function", "function": {"name": "noop", "parameters": {"type": "object", "properties": {}}}}


class EndpointOptions(StrictModel):
    """What a user may say about an endpoint: `agent2 eval --endpoint KEY=VALUE`."""

    timeout_s: float | None = Field(default=None, gt=0)
    """For one whole answer; None: 60 s, and 0.1 s for each token that may be written."""
    concurrency: int = Field(default=16, ge=1, le=1024)
    """Requests at once."""
    max_tries: int = Field(default=4, ge=1)
    """Of a request that meets a state that may pass."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request, such as `chat_template_kwargs`; part of what makes two scores comparable."""
    native_tools: bool = False
    """Offer a world's tools as the protocol's `tools`; likewise."""

    @field_validator("extra_body")
    @classmethod
    def _leaves_ours_alone(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(_OURS & value.keys()):
            raise ValueError(f"{', '.join(taken)}: set by the suite's protocol; change it there")
        return value

    @property
    def rendering(self) -> dict[str, JsonValue]:
        """The options that change what the model sees, where they are not the usual ones."""
        asked = {"extra_body": self.extra_body, "native_tools": self.native_tools}
        return {name: value for name, value in asked.items() if value}


def read_endpoint_options(given: Sequence[str]) -> EndpointOptions:
    """Options from `KEY=VALUE` words; values are YAML. Raises ConfigError for an unknown key or a wrong value."""
    return parse_yaml("", EndpointOptions, "--endpoint", given, "--endpoint")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is served, and how patient to be with it."""

    url: str
    """Up to and including the version: "http://127.0.0.1:8000/v1"."""
    model: str
    max_in_flight: int = 16
    timeout_s: float | None = None
    """For one whole answer; None: by the number of tokens that may be written. Also the time for all tries of a request
    together, the waits between them left out, after which no further one begins."""
    max_tries: int = 4
    extra_body: Mapping[str, JsonValue] = field(default_factory=dict)
    """Sent with every request beside our own fields."""
    native_tools: bool = False
    """Offer the tools of a world natively."""
    first_wait_s: float = 0.5
    """Before the second try; doubles with each further one, unless the server says how long."""
    max_wait_s: float = 60.0
    """A server that asks for more is given up."""


class ServedSampler:
    """A records.Sampler over an endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Open an endpoint.

        Raises EndpointFailed if it cannot be reached or does not answer, ConfigError if it refuses or does not know the
        model.
        """
        _check(endpoint)
        self.capacity = endpoint.max_in_flight
        self.takes_tools = endpoint.native_tools
        self._endpoint = endpoint
        self._client = httpx.Client(
            headers=_headers(),
            limits=httpx.Limits(max_connections=endpoint.max_in_flight),
            trust_env=urlsplit(endpoint.url).hostname not in LOOPBACK,  # no proxy stands before this machine itself
        )
        self._closing = threading.Event()
        self._done: queue.SimpleQueue[tuple[int, Completion]] = queue.SimpleQueue()
        self._in_flight: set[int] = set()
        self._server = ""
        self._lock = threading.Lock()
        self._n_silent, self._heard_at = 0, time.monotonic()
        self._gone: EndpointFailed | None = None
        try:
            self._dialect = self._find_dialect()
        except BaseException:
            self._client.close()
            raise
        self._waiting: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        for number in range(endpoint.max_in_flight):  # daemons: a server that never answers must not hold the exit up
            threading.Thread(target=self._work, name=f"served-{number}", daemon=True).start()

    def submit(
        self, request_id: int, prompt: Prompt, settings: SamplingSettings, tools: Sequence[Mapping[str, JsonValue]] = ()
    ) -> None:
        """Queue one request. tools: offered natively.

        Raises SamplerFailed for an id in flight, for token ids and when closed, EndpointFailed when the endpoint is
        gone.
        """
        if self._gone is not None:
            raise self._gone
        if self._closing.is_set():
            raise SamplerFailed(f"request {request_id}: the sampler of {self._endpoint.url} is closed; make a new one")
        if request_id in self._in_flight:
            raise SamplerFailed(f"request {request_id} is in flight already; give each request a unique id")
        messages = [message for message in prompt if isinstance(message, Message)]
        if len(messages) != len(prompt):
            raise SamplerFailed("a served sampler sends messages, not token ids; submit a chat")
        self._in_flight.add(request_id)
        self._waiting.put(_Request(request_id, messages, settings, tools))

    def collect(self) -> list[tuple[int, Completion]]:
        """Block until at least one request is done; return all that are. Empty only when none is in flight.

        Raises EndpointFailed when the endpoint has stopped answering: what is in flight is lost then.
        """
        if not self._in_flight:
            return []
        done = [self._done.get()]
        if self._gone is not None:
            raise self._gone
        while not self._done.empty():
            done.append(self._done.get())
        self._in_flight.difference_update(request_id for request_id, _ in done)
        return done

    def describe(self) -> dict[str, JsonValue]:
        """What the lock of a card needs; never the key."""
        return {
            "kind": "served",
            "model": self._endpoint.model,
            "endpoint": public_url(self._endpoint.url),
            "server": self._server,
            "max_in_flight": self.capacity,
            "timeout_s": self._endpoint.timeout_s,
            "extra_body": dict(self._endpoint.extra_body),
            "native_tools": self._endpoint.native_tools,
            "limit_name": self._dialect.limit_name,
            "logprobs_offered": self._dialect.logprobs,
            "seed_sent": self._dialect.seed,
        }

    def close(self) -> None:
        """End waiting and running requests; what was not collected is lost."""
        if not self._closing.is_set():
            self._closing.set()
            for _ in range(self.capacity):
                self._waiting.put(None)
        self._client.close()
        self._in_flight.clear()

    def _find_dialect(self) -> Dialect:
        """Ask for one token in each dialect until one is understood."""
        problem = None
        probe = _Request(
            0, [Message("user", "Hello")], SamplingSettings(max_tokens=1), [_PROBE_TOOL][: self.takes_tools]
        )
        for dialect in DIALECTS:
            answer = self._ask(probe, dialect)
            if isinstance(answer, Completion):
                return replace(dialect, logprobs=answer.logprobs is not None)
            problem = problem or answer
            if answer.may_pass or "HTTP 4" not in answer.reason:
                break  # another dialect would change nothing
        said = f"{self._name()}: {problem.reason if problem else 'no answer'}; check that"
        if problem is not None and problem.may_pass:
            is_slow = problem.silence is Silence.TIMEOUT
            longer = f", or {_LONGER} if it loads the model on its first request" if is_slow else ""
            raise EndpointFailed(f"{said} the server runs and the address is right{longer}")
        raise ConfigError(
            f"{said} the address ends in /v1, the model's name is the server's, {KEY_VARIABLE} holds its key if it "
            "needs one, and it knows the fields that --endpoint adds"
        )

    def _name(self) -> str:
        return f"{public_url(self._endpoint.url)}#{self._endpoint.model}"

    def _work(self) -> None:
        """One thread: answer what waits, until the sampler is closed."""
        while (request := self._waiting.get()) is not None and not self._closing.is_set():
            self._answer(request)

    def _answer(self, request: "_Request") -> None:
        try:
            answer = self._ask(request, self._dialect)
        except Exception as error:  # boundary: a request whose thread dies would be waited for without end
            logger.exception("request %d to %s failed", request.id, self._endpoint.model)
            answer = WireProblem(f"the client failed: {type(error).__name__}: {error}", Fault.INFRASTRUCTURE, False)
        self._heed(answer, self._limit_s(request.settings))
        self._done.put((request.id, answer if isinstance(answer, Completion) else _fault(answer)))

    def _heed(self, answer: Completion | WireProblem, limit_s: float) -> None:
        """Count requests without any answer; a few in a row mean that the endpoint is gone."""
        with self._lock:
            if isinstance(answer, Completion) or answer.silence is None:
                self._n_silent, self._heard_at = 0, time.monotonic()
                return
            self._n_silent += 1
            # Some of many slow answers may be late at once while others come; nobody's may come for the whole time.
            is_silent = answer.silence is Silence.UNREACHABLE or time.monotonic() - self._heard_at >= limit_s
            if self._n_silent >= SILENT_IN_A_ROW and is_silent and not self._closing.is_set():
                self._gone = self._gone or EndpointFailed(
                    f"{self._name()}: {self._n_silent} requests in a row got no answer, the last one because: "
                    f"{answer.reason}; check the server, {_LONGER} if it is only slow, and run the same command again: "
                    "what was played is kept"
                )

    def _limit_s(self, settings: SamplingSettings) -> float:
        return self._endpoint.timeout_s or BASE_S + S_PER_TOKEN * settings.max_tokens

    def _ask(self, request: "_Request", dialect: Dialect) -> Completion | WireProblem:
        """Try until there is an answer, a problem that does not pass, or no try or time is left."""
        endpoint, limit_s, spent_s = self._endpoint, self._limit_s(request.settings), 0.0
        ours = request_body(endpoint.model, request.messages, request.settings, dialect, request.tools)
        wait_s = endpoint.first_wait_s
        for n_tries in range(1, endpoint.max_tries + 1):
            started = time.monotonic()
            answer = self._try_once({**endpoint.extra_body, **ours}, limit_s)
            if isinstance(answer, Completion):
                return answer
            spent_s += time.monotonic() - started
            is_over = n_tries == endpoint.max_tries or not answer.may_pass or not FAULT_POLICY[answer.fault].retry
            is_over = is_over or answer.silence is Silence.TIMEOUT or spent_s >= limit_s
            asked_s = answer.wait_s if answer.wait_s is not None else wait_s
            if is_over or asked_s > endpoint.max_wait_s:
                return _told(answer, n_tries, None if is_over else asked_s)
            logger.info("%s: try %d of %d: %s", endpoint.model, n_tries, endpoint.max_tries, answer.reason)
            if self._closing.wait(asked_s):
                return WireProblem("the sampler was closed", Fault.INFRASTRUCTURE, may_pass=False)
            wait_s *= 2
        raise AssertionError("unreachable: the last try returns")

    def _try_once(self, body: dict[str, JsonValue], limit_s: float) -> Completion | WireProblem:
        url, ends = f"{self._endpoint.url.rstrip('/')}/chat/completions", time.monotonic() + limit_s
        patience, content = httpx.Timeout(limit_s, connect=min(CONNECT_S, limit_s)), bytearray()
        late = f"no whole answer within {limit_s:g} s"
        try:
            with self._client.stream("POST", url, json=body, timeout=patience) as response:
                for piece in response.iter_bytes():
                    content += piece
                    if time.monotonic() > ends:  # httpx limits the wait for each piece, not for all of them
                        return WireProblem(late, Fault.INFRASTRUCTURE, may_pass=True, silence=Silence.TIMEOUT)
        except httpx.HTTPError as error:
            what = f"{type(error).__name__}: {str(error) or 'no details'}"
            if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                return WireProblem(f"no connection: {what}", Fault.INFRASTRUCTURE, True, silence=Silence.UNREACHABLE)
            if isinstance(error, httpx.TimeoutException):
                return WireProblem(f"{late} ({what})", Fault.INFRASTRUCTURE, True, silence=Silence.TIMEOUT)
            return WireProblem(f"no whole answer: {what}", Fault.INFRASTRUCTURE, may_pass=True)
        self._server = response.headers.get("server", "")
        headers = {name.lower(): value for name, value in response.headers.items()}
        return read_answer(response.status_code, headers, bytes(content), takes_calls="tools" in body)


_LONGER = "give it longer with --endpoint timeout_s=SECONDS"


@dataclass(frozen=True, slots=True)
class _Request:
    """One request that waits for a thread."""

    id: int
    messages: Sequence[Message]
    settings: SamplingSettings
    tools: Sequence[Mapping[str, JsonValue]]


def public_url(url: str) -> str:
    """The address without user name, password and query. Raises ConfigError for one that cannot be taken apart."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:  # the address itself is not shown: it may hold a password
        raise ConfigError(f"address of an endpoint: {error}; write http://HOST:PORT/v1#MODEL") from error
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, f"{host}:{port}" if port else host, parts.path, "", ""))


def _check(endpoint: Endpoint) -> None:
    public_url(endpoint.url)
    parts = urlsplit(endpoint.url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"endpoint {public_url(endpoint.url)!r}: write http://HOST:PORT/v1 or https://HOST/v1")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"endpoint {public_url(endpoint.url)}: has a user name or password in its address, which would end up in "
            f"the shell's history; put the key into {KEY_VARIABLE}"
        )
    if not endpoint.model:
        raise ConfigError(f"endpoint {public_url(endpoint.url)}: name the model after a #, URL#MODEL")
    if endpoint.max_in_flight < 1 or endpoint.max_tries < 1:
        raise ConfigError(
            f"endpoint {public_url(endpoint.url)}: max_in_flight={endpoint.max_in_flight} and "
            f"max_tries={endpoint.max_tries} must both be at least 1"
        )


def _headers() -> dict[str, str]:
    key = os.environ.get(KEY_VARIABLE, "")
    if not key.isascii() or any(character.isspace() for character in key):
        raise ConfigError(f"{KEY_VARIABLE}: the key holds white space or characters beyond ASCII; set it again")
    return {"authorization": f"Bearer {key}"} if key else {}


def _told(problem: WireProblem, n_tries: int, asked_s: float | None) -> WireProblem:
    """The problem with what was done about it."""
    more = f"; the server asks to wait {asked_s:g} s, too long" if asked_s is not None else ""
    tries = f" (after {n_tries} tries)" if n_tries > 1 else ""
    return replace(problem, reason=f"{problem.reason}{tries}{more}")


def _fault(problem: WireProblem) -> Completion:
    return Completion("", stop_reason=StopReason.FAULT, fault=problem.fault, reason=problem.reason)
