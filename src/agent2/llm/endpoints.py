"""An OpenAI-compatible endpoint: its address and options, and requests that are tried again as its answers allow.

A transient problem (busy, restarting, a dropped connection, an unreadable answer) is tried again as the fault table
allows for the infrastructure, waiting as long as the server asks; a request that timed out is not. Keys are sent to the
endpoint and appear nowhere else.
"""

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, field_validator

from agent2.config import StrictModel, parse_yaml
from agent2.errors import FAULT_POLICY, ConfigError, Fault
from agent2.llm.wire_problems import ConnectionFailure, WireProblem, malformed, with_tries
from agent2.records import JsonValue

logger = logging.getLogger(__name__)

KEY_VARIABLE = "AGENT2_API_KEY"
"""Holds the endpoint's key, where it needs one. No provider's own variable is read: a key goes nowhere by default."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
CONNECT_S = 5.0
"""A server that does not accept a connection in this time is unreachable."""
BASE_S, S_PER_TOKEN = 60.0, 0.1
"""Time limit of one request where none is set: a fixed part, and more for each token that may be written."""
_PROTOCOL_FIELDS = frozenset(
    {
        *("model", "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "seed"),
        *("n", "stream", "logprobs", "tools", "functions"),
    }
)
"""Fields that the evaluation decides."""


class EndpointOptions(StrictModel):
    """What a user may set for an endpoint: `agent2 eval --endpoint KEY=VALUE`."""

    timeout_s: float | None = Field(default=None, gt=0)
    """For one complete answer; None: 60 s, and 0.1 s for each token that may be written."""
    concurrency: int = Field(default=16, ge=1, le=1024)
    """Requests at once."""
    max_tries: int = Field(default=4, ge=1)
    """Of a request that meets a state that may pass."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further fields of each request, such as `chat_template_kwargs`; part of what makes two scores comparable."""
    native_tools: bool = False
    """Offer a world's tools as the protocol's `tools`; part of what makes two scores comparable, too."""

    @field_validator("extra_body")
    @classmethod
    def _refuse_protocol_fields(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(_PROTOCOL_FIELDS & value.keys()):
            raise ValueError(f"{', '.join(taken)}: set by the suite's protocol; change it there")
        return value

    @property
    def rendering(self) -> dict[str, JsonValue]:
        """The options that change what the model sees, where they differ from the defaults."""
        options = {"extra_body": self.extra_body, "native_tools": self.native_tools}
        return {name: value for name, value in options.items() if value}


def read_endpoint_options(overrides: Sequence[str]) -> EndpointOptions:
    """Options from `KEY=VALUE` texts; values are YAML. Raises ConfigError for an unknown key or a wrong value."""
    return parse_yaml("", EndpointOptions, "--endpoint", overrides, "--endpoint")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is served, and how patient to be with it."""

    url: str
    """Up to and including the version: "http://127.0.0.1:8000/v1"."""
    model: str
    max_in_flight: int = 16
    timeout_s: float | None = None
    """For one complete answer; None: by the number of tokens that may be written. Also the time for all tries of a
    request together, the waits between them left out, after which no further try begins."""
    max_tries: int = 4
    extra_body: Mapping[str, JsonValue] = field(default_factory=dict)
    """Sent with every request beside our own fields."""
    native_tools: bool = False
    """Offer the tools of a world natively."""
    top_logprobs: int = 0
    """How many of the likeliest tokens to ask for at each position, where the server gives log-probabilities."""
    key: str | None = field(default=None, repr=False)
    """What requests carry in place of the key in `KEY_VARIABLE`."""
    echoes_ids: bool = False
    """Whether the server repeats the `X-Request-Id` of a request in its answer's id; another one is refused then."""
    first_wait_s: float = 0.5
    """Before the second try; doubles with each further one, unless the server says how long."""
    max_wait_s: float = 60.0
    """A request whose server asks to wait longer is given up."""


AnswerT = TypeVar("AnswerT")
Reader = Callable[[int, Mapping[str, str], bytes], AnswerT | WireProblem]
"""Reads status, headers (names in lower case) and content."""


class EndpointClient:
    """Requests to one endpoint, on one pool of connections; for several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Open no connection yet. Raises ConfigError for an endpoint that cannot be meant."""
        _check(endpoint)
        import httpx  # not at the top: the settings of endpoints are also read by processes that open none

        self.endpoint = endpoint
        self.server = ""
        """The name by which the server called itself last."""
        self.closing = threading.Event()
        self._client = httpx.Client(
            headers=_headers() if endpoint.key is None else {"authorization": f"Bearer {endpoint.key}"},
            limits=httpx.Limits(max_connections=endpoint.max_in_flight),
            trust_env=urlsplit(endpoint.url).hostname not in LOOPBACK,  # no proxy is between us and this machine
        )

    @property
    def name(self) -> str:
        """Address and model, for messages."""
        return f"{public_url(self.endpoint.url)}#{self.endpoint.model}"

    def close(self) -> None:
        """End running requests."""
        self.closing.set()
        self._client.close()

    def limit_s(self, max_tokens: int) -> float:
        """The time limit of a request for so many new tokens."""
        return self.endpoint.timeout_s or BASE_S + S_PER_TOKEN * max_tokens

    def exchange(
        self, path: str, body: Mapping[str, JsonValue], limit_s: float, reader: Reader[AnswerT]
    ) -> AnswerT | WireProblem:
        """Try until there is an answer, a problem that does not pass, or no try or time is left."""
        endpoint, spent_s, wait_s = self.endpoint, 0.0, self.endpoint.first_wait_s
        for n_tries in range(1, endpoint.max_tries + 1):
            started = time.monotonic()
            answer = self._try_once(path, {**endpoint.extra_body, **body}, limit_s, reader)  # the protocol's fields win
            if not isinstance(answer, WireProblem):
                return answer
            spent_s += time.monotonic() - started
            is_over = n_tries == endpoint.max_tries or not answer.may_pass or not FAULT_POLICY[answer.fault].retry
            # A timeout is not retried: it has used up the time limit of the request.
            is_over = is_over or answer.connection_failure is ConnectionFailure.TIMEOUT or spent_s >= limit_s
            asked_s = answer.wait_s if answer.wait_s is not None else wait_s
            if is_over or asked_s > endpoint.max_wait_s:
                return with_tries(answer, n_tries, None if is_over else asked_s)
            logger.info("%s: try %d of %d: %s", endpoint.model, n_tries, endpoint.max_tries, answer.reason)
            if self.closing.wait(asked_s):
                return _closed()
            wait_s *= 2
        raise AssertionError("unreachable: the last try returns")

    def _try_once(
        self, path: str, body: Mapping[str, JsonValue], limit_s: float, reader: Reader[AnswerT]
    ) -> AnswerT | WireProblem:
        import httpx

        url, ends = f"{self.endpoint.url.rstrip('/')}/{path}", time.monotonic() + limit_s
        patience, content = httpx.Timeout(limit_s, connect=min(CONNECT_S, limit_s)), bytearray()
        own_id = secrets.token_hex(16)
        headers = {"x-request-id": own_id} if self.endpoint.echoes_ids else {}
        late = f"no whole answer within {limit_s:g} s"
        try:
            with self._client.stream("POST", url, json=body, headers=headers, timeout=patience) as response:
                for piece in response.iter_bytes():
                    content += piece
                    if time.monotonic() > ends:  # httpx limits the wait for each piece, not for all of them
                        return WireProblem(
                            late, Fault.INFRASTRUCTURE, may_pass=True, connection_failure=ConnectionFailure.TIMEOUT
                        )
        except RuntimeError:
            if not self.closing.is_set():
                raise
            return _closed()
        except httpx.HTTPError as error:
            detail = f"{type(error).__name__}: {str(error) or 'no details'}"
            if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                return WireProblem(
                    f"no connection: {detail}",
                    Fault.INFRASTRUCTURE,
                    True,
                    connection_failure=ConnectionFailure.UNREACHABLE,
                )
            if isinstance(error, httpx.TimeoutException):
                return WireProblem(
                    f"{late} ({detail})", Fault.INFRASTRUCTURE, True, connection_failure=ConnectionFailure.TIMEOUT
                )
            return WireProblem(f"no whole answer: {detail}", Fault.INFRASTRUCTURE, may_pass=True)
        self.server = response.headers.get("server", "")
        if self.endpoint.echoes_ids and response.status_code == 200 and own_id.encode() not in content:
            return malformed("it is the answer to another request")
        answered = {name.lower(): value for name, value in response.headers.items()}
        return reader(response.status_code, answered, bytes(content))


def _closed() -> WireProblem:
    return WireProblem("the sampler was closed", Fault.INFRASTRUCTURE, may_pass=False)


def public_url(url: str) -> str:
    """The address without user name, password and query. Raises ConfigError for one that cannot be parsed."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:  # the address itself is not shown: it may contain a password
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
