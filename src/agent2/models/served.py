"""The served sampler: any OpenAI-compatible endpoint (chat completions), with many requests in flight.

One thread for each request in flight, all on one connection pool. A state that may pass (busy, restarting, a cut
connection, an answer that is none) is tried again as the fault table allows for the infrastructure, waiting as
long as the server asks; what is left becomes a completion with a fault. Nobody's answer was seen then, so it is
a missing score, never a zero.

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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit

import httpx

from agent2.errors import FAULT_POLICY, ConfigError, Fault, SamplerFailed
from agent2.models.chat_wire import DIALECTS, Dialect, Problem, read_answer, request_body
from agent2.records import Completion, JsonValue, Message, Prompt, SamplingSettings, StopReason

logger = logging.getLogger(__name__)

KEY_VARIABLE = "AGENT2_API_KEY"
"""Holds the endpoint's key, where it needs one. No provider's own variable is read: a key goes nowhere by default."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is served, and how patient to be with it."""

    url: str
    """Up to and including the version: "http://127.0.0.1:8000/v1"."""
    model: str
    max_in_flight: int = 16
    timeout_s: float = 300.0
    """Without a byte from the server, for one try."""
    max_tries: int = 4
    first_wait_s: float = 0.5
    """Before the second try; doubles with each further one, unless the server says how long."""
    max_wait_s: float = 60.0
    """A server that asks for more is given up."""


class ServedSampler:
    """A records.Sampler over an endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Open an endpoint. Raises ConfigError if it cannot be reached, refuses, or does not know the model."""
        _check(endpoint)
        self.capacity = endpoint.max_in_flight
        self._endpoint = endpoint
        self._client = httpx.Client(
            headers=_headers(),
            timeout=httpx.Timeout(endpoint.timeout_s, connect=min(10.0, endpoint.timeout_s)),
            limits=httpx.Limits(max_connections=endpoint.max_in_flight),
            trust_env=urlsplit(endpoint.url).hostname not in LOOPBACK,  # no proxy stands before this machine itself
        )
        self._closing = threading.Event()
        self._done: queue.SimpleQueue[tuple[int, Completion]] = queue.SimpleQueue()
        self._in_flight: set[int] = set()
        self._server = ""
        try:
            self._dialect = self._find_dialect()
        except BaseException:
            self._client.close()
            raise
        self._waiting: queue.SimpleQueue[tuple[int, Sequence[Message], SamplingSettings] | None] = queue.SimpleQueue()
        for number in range(endpoint.max_in_flight):  # daemons: a server that never answers must not hold the exit up
            threading.Thread(target=self._work, name=f"served-{number}", daemon=True).start()

    def submit(self, request_id: int, prompt: Prompt, settings: SamplingSettings) -> None:
        """Queue one request. Raises SamplerFailed for an id in flight, for token ids and when closed."""
        if self._closing.is_set():
            raise SamplerFailed(f"request {request_id}: the sampler of {self._endpoint.url} is closed; make a new one")
        if request_id in self._in_flight:
            raise SamplerFailed(f"request {request_id} is in flight already; give each request an id of its own")
        messages = [message for message in prompt if isinstance(message, Message)]
        if len(messages) != len(prompt):
            raise SamplerFailed("a served sampler sends messages, not token ids; submit a chat")
        self._in_flight.add(request_id)
        self._waiting.put((request_id, messages, settings))

    def collect(self) -> list[tuple[int, Completion]]:
        """Block until at least one request is done; return all that are. Empty only when none is in flight."""
        if not self._in_flight:
            return []
        done = [self._done.get()]
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
        for dialect in DIALECTS:
            answer = self._ask([Message("user", "Hello")], SamplingSettings(max_tokens=1), dialect)
            if isinstance(answer, Completion):
                return replace(dialect, logprobs=answer.logprobs is not None)
            problem = problem or answer
            if answer.may_pass or "HTTP 4" not in answer.reason:
                break  # another dialect would change nothing
        raise ConfigError(
            f"{public_url(self._endpoint.url)}#{self._endpoint.model}: {problem.reason if problem else 'no answer'}; "
            f"check that the server runs, the address ends in /v1, the model's name is the server's and {KEY_VARIABLE} "
            "holds its key if it needs one"
        )

    def _work(self) -> None:
        """One thread: answer what waits, until the sampler is closed."""
        while (job := self._waiting.get()) is not None and not self._closing.is_set():
            self._answer(*job)

    def _answer(self, request_id: int, messages: Sequence[Message], settings: SamplingSettings) -> None:
        try:
            answer = self._ask(messages, settings, self._dialect)
        except Exception as error:  # boundary: a request whose thread dies would be waited for without end
            logger.exception("request %d to %s failed", request_id, self._endpoint.model)
            answer = Problem(f"the client failed: {type(error).__name__}: {error}", Fault.INFRASTRUCTURE, False)
        self._done.put((request_id, answer if isinstance(answer, Completion) else _fault(answer)))

    def _ask(self, messages: Sequence[Message], settings: SamplingSettings, dialect: Dialect) -> Completion | Problem:
        """Try until there is an answer, a problem that does not pass, or no try is left."""
        endpoint = self._endpoint
        body = request_body(endpoint.model, messages, settings, dialect)
        wait_s = endpoint.first_wait_s
        for n_tries in range(1, endpoint.max_tries + 1):
            answer = self._try_once(body)
            if isinstance(answer, Completion):
                return answer
            is_over = n_tries == endpoint.max_tries or not answer.may_pass or not FAULT_POLICY[answer.fault].retry
            asked_s = answer.wait_s if answer.wait_s is not None else wait_s
            if is_over or asked_s > endpoint.max_wait_s:
                return _told(answer, n_tries, None if is_over else asked_s)
            logger.info("%s: try %d of %d: %s", endpoint.model, n_tries, endpoint.max_tries, answer.reason)
            if self._closing.wait(asked_s):
                return Problem("the sampler was closed", Fault.INFRASTRUCTURE, may_pass=False)
            wait_s *= 2
        raise AssertionError("unreachable: the last try returns")

    def _try_once(self, body: dict[str, JsonValue]) -> Completion | Problem:
        try:
            response = self._client.post(f"{self._endpoint.url.rstrip('/')}/chat/completions", json=body)
        except httpx.HTTPError as error:
            what = str(error) or "no details"
            return Problem(f"no whole answer: {type(error).__name__}: {what}", Fault.INFRASTRUCTURE, may_pass=True)
        self._server = response.headers.get("server", "")
        headers = {name.lower(): value for name, value in response.headers.items()}
        return read_answer(response.status_code, headers, response.content)


def public_url(url: str) -> str:
    """The address without user name, password and query."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path, "", ""))


def _check(endpoint: Endpoint) -> None:
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


def _told(problem: Problem, n_tries: int, asked_s: float | None) -> Problem:
    """The problem with what was done about it."""
    more = f"; the server asks to wait {asked_s:g} s, too long" if asked_s is not None else ""
    tries = f" (after {n_tries} tries)" if n_tries > 1 else ""
    return Problem(f"{problem.reason}{tries}{more}", problem.fault, problem.may_pass)


def _fault(problem: Problem) -> Completion:
    return Completion("", stop_reason=StopReason.FAULT, fault=problem.fault, reason=problem.reason)
