"""Where the answer to a call comes from: the provider, or the recording of another trial.

A provider is called with its key, without redirects, and again after 429, 5xx or a connection that broke before the
first byte of the answer, at most `max_retries` times, after the time that the provider asks for. Once the status of an
answer that will be passed on is known, nothing is made again: what comes later is the agent's to see.

Streams are passed on piece by piece as they come. An agent that hangs up does not end the provider's answer: it is read
to its end, because it is paid for and only its end has the price. If it gave up before the first byte and asks the same
again, it gets that answer and no further call is made. A stream that breaks off is broken off towards the agent too, so
that it notices.

In a replay a request gets the answer of the first recorded request, in the order of the recording, that is the same
after masking (`Masker`) and was not served yet. A request like none of those is shown as a unified diff, in
`differences.jsonl`, against the next one in order (of those that asked for the same model, if there are any); then it
gets that one's answer or, if the replay is strict, an error. After the last recorded answer there are only errors. Does
NOT replay what an agent does beside its LLM calls, nor the time that a provider took.

To be compared, a request is laid out as text, field by field, and everything volatile in it is replaced by a word in
angle brackets (`VOLATILE_TEXT`; an agent can add its own, `volatile` in agent.yaml). Masked: times, dates, durations;
ids (UUIDs, long hexadecimal numbers, the ids that the four protocols give); paths of temporary folders; loopback ports;
process ids; keys of trials. NOT masked: other numbers and other text. A program that prints a random number to an agent
makes the replay differ, and is meant to.
"""

import asyncio
import difflib
import email.utils
import json
import logging
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import aiohttp
import msgspec
from aiohttp import web

from agent2.errors import ConfigError
from agent2.llm.gateway.recording import (
    Exchange,
    ExchangeOutcome,
    RecordingError,
    Scrubber,
    StreamScrubber,
    read_body,
    read_exchanges,
)
from agent2.llm.gateway.requests import BadRequest, PreparedRequest, read_object
from agent2.llm.gateway.routes import WireRoute
from agent2.llm.gateway.settings import GatewaySettings, ReplaySettings
from agent2.llm.protocols import FORMATS
from agent2.llm.records import TokenCounts, WireProtocol
from agent2.llm.streams import SseSplitter, StreamMeter, tokens_of_answer, written_bytes
from agent2.records import JsonValue, digest_of

logger = logging.getLogger(__name__)


CONNECT_S = 30.0
FIRST_WAIT_S = 0.5
"""Before the first retry, where the provider names no time; doubled each time."""
MAX_ERROR_BODY = 1024 * 1024
_RETRIED_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_FINAL_REFUSALS = (b"insufficient_quota", b"billing_hard_limit_reached", b"credit balance is too low")
"""A 429 that says one of these will say it again."""
_RETRY_DELAY = re.compile(rb'"retryDelay"\s*:\s*"([0-9.]+)s"')
MAX_ANSWER = 128 * 1024 * 1024
"""Bytes of one answer that are passed on."""
EVENT_STREAM = "text/event-stream"
_PASSED_ON = re.compile(
    r"content-type|retry-after|retry-after-ms|x-should-retry|request-id|x-request-id|(x-|anthropic-)?ratelimit-[a-z0-9-]+",
    re.IGNORECASE,
)
"""Headers of an answer that are passed on; clients pace themselves by those about rate limits."""
NO_USAGE = "the provider reported no usable token counts; tokens are estimated"
_BROKEN = (aiohttp.ClientError, TimeoutError, OSError)
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
VOLATILE_TEXT: tuple[tuple[str, str], ...] = (
    (r"sk-agent2-[0-9a-f]+", "<key>"),
    (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<uuid>"),
    (r"\b(?:call|toolu|msg|resp|rs|fc|ctc|chatcmpl|item|req|run|gen|sess|session|thread)[-_][A-Za-z0-9_-]{6,}", "<id>"),
    (r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?(?: ?(?:Z|UTC|[+-]\d{2}:?\d{2}))?", "<time>"),
    (rf"\b{_DAY},? +(?:{_MONTH} +\d{{1,2}}|\d{{1,2}} +{_MONTH})(?:,? +\d{{4}})?", "<time>"),
    (rf"\b(?:{_MONTH} +\d{{1,2}},? +\d{{4}}|\d{{1,2}} +{_MONTH} +\d{{4}})\b", "<time>"),
    (rf"\b{_MONTH} +\d{{1,2}} +(?=\d{{2}}:\d{{2}})", "<time> "),
    (r"\b\d{1,2}/\d{1,2}/\d{4}\b", "<time>"),
    (r"\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?(?: ?[AP]M)?\b", "<time>"),
    (r"(?<![\d:])\d{1,2}:\d{2}(?=\b[^:\d]|$)(?: ?[AP]M)?", "<time>"),
    (r"\b1[6-9]\d{8}(?:\.\d+|\d{3})?\b", "<time>"),
    (r"\b\d+(?:\.\d+)?(?:e-?\d+)? ?(?:ms|µs|us|s|secs?|seconds?|min|minutes?)\b", "<duration>"),
    (r"\b\d+(?:\.\d+)? ?(?:it|steps?|samples?|items?|tokens?|batch(?:es)?)/s(?:ec(?:ond)?)?\b", "<speed>"),
    (r"\b\d+(?:\.\d+)?s/(?:it|step|sample|item|batch)\b", "<speed>"),
    (
        r"(?<='|\")((?:train|eval)_(?:runtime|samples_per_second|steps_per_second))(['\"\\]+: *['\"\\]*)[\d.]+",
        r"\1\2<speed>",
    ),
    (r"(?:/var)?/tmp/[^\s\"'`\\,;:)\]}]+", "<temporary>"),
    (r"\b(127\.0\.0\.1|localhost):\d+", r"\1:<port>"),
    (r"\b([Pp][Ii][Dd]|process id)([ :=]+)\d+", r"\1\2<pid>"),
    (r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b", "<hex>"),
)
"""Regular expression -> its replacement, in this order."""
MAX_DIFF_LINES = 2_000


class NoAnswer(Exception):
    """No answer could be had; the sentence is for the agent, and names no host."""

    def __init__(self, sentence: str, *, retries: int, is_timeout: bool):
        super().__init__(sentence)
        self.retries = retries
        self.is_timeout = is_timeout


@dataclass(slots=True)
class ProviderAnswer:
    """The beginning of a provider's answer."""

    response: aiohttp.ClientResponse
    """Open; the caller releases it."""
    error_body: bytes | None
    """Of an answer with an error status; that of others is still to be read."""
    retries: int


class Upstream:
    """The way to the provider."""

    def __init__(self, settings: GatewaySettings, session: aiohttp.ClientSession, rng: random.Random):
        self._settings = settings
        self._session = session
        self._rng = rng
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=None, sock_connect=CONNECT_S, sock_read=settings.idle_timeout_s
        )

    async def call(
        self, url: str, headers: Mapping[str, str], body: bytes, proxy: str | None, has_left: Callable[[], bool]
    ) -> ProviderAnswer:
        """POST, again where that is allowed and the client still waits. Raises NoAnswer when none can be had."""
        retries = 0
        while True:
            wait: float | None
            try:
                response = await self._session.post(
                    url, data=body, headers=headers, timeout=self._timeout, allow_redirects=False, proxy=proxy
                )
            except aiohttp.SocketTimeoutError as error:
                raise NoAnswer(
                    f"the provider did not answer within {self._settings.idle_timeout_s:g} seconds",
                    retries=retries,
                    is_timeout=True,
                ) from error
            except (aiohttp.ClientError, OSError) as error:
                wait = self._permitted_wait(self._backoff(retries), retries)
                logger.warning("no connection to the provider (%s), try %d", type(error).__name__, retries + 1)
                if wait is None:
                    raise NoAnswer(
                        f"the provider cannot be reached ({type(error).__name__}, {retries + 1} tries)",
                        retries=retries,
                        is_timeout=False,
                    ) from error
            else:
                if response.status < 300:
                    return ProviderAnswer(response, None, retries)
                error_body = await _read_error(response)
                wait = self._wait_after(response, error_body, retries)
                if wait is None:
                    return ProviderAnswer(response, error_body, retries)
                logger.warning("the provider said %d, try %d", response.status, retries + 1)
                response.release()
            await asyncio.sleep(wait)
            if has_left():
                raise NoAnswer("the agent gave up before an answer came", retries=retries, is_timeout=False)
            retries += 1

    def _wait_after(self, response: aiohttp.ClientResponse, body: bytes, retries: int) -> float | None:
        """Seconds until the next try, or None if there is none."""
        should_retry = response.headers.get("x-should-retry", "")  # their own clients obey it as well
        if should_retry == "false" or (should_retry != "true" and response.status not in _RETRIED_STATUSES):
            return None
        if response.status == 429 and any(refusal in body for refusal in _FINAL_REFUSALS):
            return None
        requested_s = retry_after(response.headers, body, time.time())
        return self._permitted_wait(self._backoff(retries) if requested_s is None else requested_s, retries)

    def _backoff(self, retries: int) -> float:
        return FIRST_WAIT_S * 2.0**retries * (0.75 + 0.5 * self._rng.random())

    def _permitted_wait(self, wait: float, retries: int) -> float | None:
        settings = self._settings
        if retries >= settings.max_retries or wait > settings.max_retry_wait_s:
            return None
        if settings.deadline is not None and time.time() + wait >= settings.deadline:
            return None
        return wait


def retry_after(headers: Mapping[str, str], body: bytes, now: float) -> float | None:
    """Seconds that a provider asks to wait, from its headers or (Gemini) its error; None if it names none."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        if "retry-after" in headers:
            return max(0.0, float(headers["retry-after"]))
    except ValueError:
        date = email.utils.parsedate_tz(headers.get("retry-after", ""))  # RFC 9110 allows a date instead of seconds
        if date is not None:
            return max(0.0, email.utils.mktime_tz(date) - now)
    match = _RETRY_DELAY.search(body)
    return float(match.group(1)) if match else None


async def _read_error(response: aiohttp.ClientResponse) -> bytes:
    """The body of an error, cut at a mebibyte; one of our own if it breaks off."""
    body = b""
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_ERROR_BODY:
                break
        return body[:MAX_ERROR_BODY]
    except (aiohttp.ClientError, OSError):
        return msgspec.json.encode({"error": {"message": "the provider's error broke off", "code": response.status}})


@dataclass(slots=True)
class RelayedAnswer:
    """What the agent got."""

    status: int
    content_type: str
    body: bytes = b""
    outcome: ExchangeOutcome = ExchangeOutcome.OK
    tokens: TokenCounts | None = None
    """None: the provider reported none that can be used."""
    is_counted: bool = False
    fault: str = ""
    cut: bool = False
    first_byte: float | None = None
    """When the provider's first byte came, on the monotonic clock."""
    response: web.StreamResponse | None = None
    written: int | None = None
    """Bytes of text in a whole answer without usage, to estimate its tokens from; None: nothing is to be estimated."""
    is_estimated: bool = False
    """The tokens are our estimate."""


class AgentConnection:
    """The agent's end of a call; another connection can take over as long as nothing was heard on the first."""

    def __init__(self, request: web.Request):
        self.request = request
        self.response: web.StreamResponse | None = None
        """Of a stream that has begun."""
        self.sent: list[bytes] = []
        """All pieces of the stream so far, also those that a client which is gone did not get."""
        self.was_heard = False
        """Something of the answer was sent to an agent that was there."""
        self.was_taken_over = False
        self._size = 0
        self._is_gone = False
        # between two awaits of one write another connection may take over: it must get every byte once
        self._turn = asyncio.Lock()

    @property
    def has_left(self) -> bool:
        """The client is gone."""
        return self._is_gone or self.request.transport is None

    async def begin(self, status: int, headers: dict[str, str]) -> None:
        """The head of a stream."""
        async with self._turn:
            self.response = web.StreamResponse(status=status, headers=headers)
            await self._prepare(self.response)

    async def send(self, data: bytes) -> None:
        """Pass bytes of a stream on. Raises ValueError when there are too many."""
        if not data:
            return
        async with self._turn:
            self.sent.append(data)
            self._size += len(data)
            if self._size > MAX_ANSWER:
                raise ValueError(f"the answer is longer than {MAX_ANSWER} bytes")
            await self._write(data)

    async def take_over(self, request: web.Request) -> None:
        """The agent has asked again, on another connection, which gets the answer from its beginning."""
        async with self._turn:
            self.request, self._is_gone, self.was_taken_over = request, False, True
            if self.response is not None:
                self.response = web.StreamResponse(status=self.response.status, headers=self.response.headers)
                await self._prepare(self.response)
                await self._write(b"".join(self.sent))

    async def _prepare(self, response: web.StreamResponse) -> None:
        try:
            await response.prepare(self.request)
        except OSError:
            self._is_gone = True  # noted as a fault of the call when it ends

    async def _write(self, data: bytes) -> None:
        if self.has_left or self.response is None or not data:
            return
        try:
            await self.response.write(data)
            self.was_heard = True
        except OSError:
            self._is_gone = True  # noted as a fault of the call when it ends


def hang_up(request: web.Request) -> None:
    """Close the agent's connection without the end of the answer."""
    if request.transport is not None:
        request.transport.close()


def passed_headers(answer: ProviderAnswer, scrubber: Scrubber) -> dict[str, str]:
    """The provider's headers that the agent gets."""
    headers = answer.response.headers
    return {name: scrubber.clean(headers[name].encode()).decode() for name in headers if _PASSED_ON.fullmatch(name)}


async def relay_whole(
    answer: ProviderAnswer, protocol: WireProtocol, scrubber: Scrubber, *, is_free: bool
) -> RelayedAnswer:
    """Read an answer that is not a stream; the caller sends it."""
    status, content_type = answer.response.status, answer.response.headers.get("content-type", "application/json")
    first_byte = time.monotonic()
    if answer.error_body is not None:
        body = scrubber.clean(answer.error_body)
        fault = f"the provider answered {status}"
        return RelayedAnswer(
            status, content_type, body, ExchangeOutcome.FAILED, None, False, fault, first_byte=first_byte
        )
    try:
        body = scrubber.clean(await _read_whole(answer.response))
    except (*_BROKEN, ValueError) as error:
        fault = f"the provider's answer broke off ({type(error).__name__})"
        return RelayedAnswer(502, content_type, b"", ExchangeOutcome.PARTIAL, None, False, fault, first_byte=first_byte)
    if is_free:
        return RelayedAnswer(status, content_type, body, ExchangeOutcome.OK, TokenCounts(), True, first_byte=first_byte)
    tokens = tokens_of_answer(protocol, body)
    relayed = RelayedAnswer(
        status, content_type, body, ExchangeOutcome.OK, tokens, tokens is not None, first_byte=first_byte
    )
    _measure_text(relayed, protocol, is_stream=False)
    return relayed


def _measure_text(relayed: RelayedAnswer, protocol: WireProtocol, *, is_stream: bool) -> None:
    """Where a whole answer has no usage, or none for the text that it has, measure the text."""
    if relayed.is_counted and relayed.tokens is not None and relayed.tokens.output > 0:
        return
    written = written_bytes(protocol, relayed.body, is_stream=is_stream)
    if written or not relayed.is_counted:
        relayed.tokens, relayed.is_counted, relayed.written = None, False, written
        relayed.fault = relayed.fault or NO_USAGE


async def relay_stream(
    agent: AgentConnection, answer: ProviderAnswer, protocol: WireProtocol, scrubber: Scrubber, *, hides_usage: bool
) -> RelayedAnswer:
    """Pass a stream on while it comes. hides_usage: leave out the event that reports it, which we asked for."""
    headers = {**passed_headers(answer, scrubber), "cache-control": "no-cache"}
    await agent.begin(answer.response.status, headers)
    relayed = RelayedAnswer(answer.response.status, headers.get("content-type", EVENT_STREAM), response=agent.response)
    meter, splitter, stream_scrubber = StreamMeter(protocol), SseSplitter(), StreamScrubber(scrubber)

    async def pass_on(piece: bytes) -> None:
        if hides_usage:
            events = splitter.feed(piece)
            await agent.send(b"".join([event.raw for event in events if not meter.feed(event)]))
        else:  # at once, before the event is whole
            await agent.send(piece)
            for event in splitter.feed(piece):
                meter.feed(event)

    try:
        async for chunk in answer.response.content.iter_any():
            if relayed.first_byte is None:
                relayed.first_byte = time.monotonic()
            await pass_on(stream_scrubber.feed(chunk))
        await pass_on(stream_scrubber.end())
        last_event = splitter.rest
        if last_event.strip():  # a last event without the empty line after it
            is_usage = [meter.feed(event) for event in splitter.feed(b"\n\n")]
            if hides_usage and not any(is_usage):
                await agent.send(last_event)
    except _BROKEN as error:
        relayed.cut = True
        relayed.fault = f"the provider's stream broke off ({type(error).__name__})"
    except ValueError as error:
        relayed.cut = True
        relayed.fault = f"the provider's stream cannot be passed on: {error}"
    if relayed.cut:
        hang_up(agent.request)  # the agent must notice that the stream is not whole
    relayed.body = b"".join(agent.sent)
    relayed.tokens, relayed.is_counted = meter.tokens, meter.is_counted
    if relayed.cut and meter.is_whole:
        relayed.fault = ""  # everything that matters had come
    elif not relayed.cut and not meter.is_whole:
        relayed.fault = meter.problem or "the provider's stream ended without its last event"
    relayed.fault = relayed.fault or meter.problem
    if relayed.fault:
        relayed.outcome = ExchangeOutcome.PARTIAL
        return relayed
    if agent.has_left:
        relayed.fault = "the agent hung up; the answer was read to its end"
    _measure_text(relayed, protocol, is_stream=True)
    return relayed


async def _read_whole(response: aiohttp.ClientResponse) -> bytes:
    pieces, size = [], 0
    async for chunk in response.content.iter_any():
        pieces.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER:
            raise ValueError(f"longer than {MAX_ANSWER} bytes")
    return b"".join(pieces)


class Masker:
    """Lays requests out as text that two runs of one agent have in common."""

    def __init__(self, volatile: Iterable[str] = ()):
        """volatile: further regular expressions. Raises ConfigError for one that does not compile."""
        self._patterns = []
        for pattern in volatile:
            try:
                self._patterns.append((re.compile(pattern), "<volatile>"))
            except re.error as error:
                raise ConfigError(f"volatile: {pattern!r} is not a regular expression ({error}); fix it") from error
        self._patterns += [(re.compile(pattern), word) for pattern, word in VOLATILE_TEXT]

    def text(self, protocol: WireProtocol, body: bytes) -> str:
        """The masked text of a request; one line for each field, texts of several lines on several."""
        try:
            value = read_object(body)
        except BadRequest:
            return self.masked(body.decode("utf-8", "replace"))  # a gateway would not have passed it on
        fields = {name: inner for name, inner in value.items() if name not in FORMATS[protocol].session_fields}
        return self.masked(_format_json(fields))

    def masked(self, text: str) -> str:
        """The text with everything volatile replaced."""
        for pattern, word in self._patterns:
            text = pattern.sub(word, text)
        return text


def _format_json(value: JsonValue) -> str:
    """JSON for reading: indented, keys sorted, and the lines of a text on lines of their own."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    return re.sub(r"(?<!\\)((?:\\\\)*)\\n", r"\1\n", text)


class RequestDifference(msgspec.Struct, frozen=True):
    """A request that was not the recorded one."""

    t: float
    id: int
    """The exchange of this trial."""
    expected: int | None
    """The exchange of the recorded trial; None: its recording has ended."""
    served: bool
    """The recorded answer was served anyway."""
    diff: str
    """Unified, recorded to present, of the masked texts."""


@dataclass(frozen=True, slots=True)
class ReplayedAnswer:
    """What a request gets."""

    exchange: Exchange | None
    """None: an error."""
    body: bytes = b""
    sentence: str = ""
    difference: RequestDifference | None = None


@dataclass(slots=True)
class _RecordedAnswer:
    exchange: Exchange
    digest: str
    is_served: bool = False


class ReplayPlayer:
    """The recorded answers of one trial, and which of them have been served."""

    def __init__(self, settings: ReplaySettings):
        """Read the recording. Raises RecordingError if it holds no answer or a body of it is missing."""
        self._settings = settings
        self._masker = Masker(settings.volatile)
        self._recorded = [
            _RecordedAnswer(exchange, digest_of(self._text_of(exchange)))
            for exchange in read_exchanges(settings.source)
            if exchange.status is not None
        ]
        if not self._recorded:
            raise RecordingError(f"{settings.source}: contains no recorded answer; pass the llm/ folder of a trial")

    def mark_served(self, number: int) -> None:
        """Leave out an answer that an earlier process of this trial served."""
        for recorded in self._recorded:
            recorded.is_served = recorded.is_served or recorded.exchange.id == number

    def play(self, number: int, route: WireRoute, prepared: PreparedRequest, body: bytes) -> ReplayedAnswer:
        """What a request gets. number: its exchange in this trial; body: as the agent sent it."""
        text = self._masker.text(route.protocol, body)
        digest = digest_of(text)
        form = (route.protocol, route.kind.value, prepared.stream)
        unserved = [recorded for recorded in self._recorded if not recorded.is_served]
        candidates = [
            recorded
            for recorded in unserved
            if (recorded.exchange.protocol, recorded.exchange.kind, recorded.exchange.stream) == form
        ]
        same = next((recorded for recorded in candidates if recorded.digest == digest), None)
        if same is not None:
            return self._serve(same)
        if not candidates:
            sentence = "the recording holds no further answer for this request"
            return ReplayedAnswer(
                None, sentence=sentence, difference=RequestDifference(time.time(), number, None, False, text[:2000])
            )
        alike = (recorded for recorded in candidates if recorded.exchange.asked_model == prepared.asked_model)
        expected = next(alike, candidates[0])
        diff = self._diff(expected.exchange, text)
        difference = RequestDifference(time.time(), number, expected.exchange.id, not self._settings.strict, diff)
        if self._settings.strict:
            sentence = f"the request differs from recorded exchange {expected.exchange.id} (strict replay)"
            return ReplayedAnswer(None, sentence=sentence, difference=difference)
        served = self._serve(expected)
        return ReplayedAnswer(served.exchange, served.body, difference=difference)

    def _serve(self, recorded: _RecordedAnswer) -> ReplayedAnswer:
        recorded.is_served = True
        path = recorded.exchange.response
        if path is None:
            raise RecordingError(f"{self._settings.source}: the answer of exchange {recorded.exchange.id} is missing")
        return ReplayedAnswer(recorded.exchange, read_body(path))

    def _text_of(self, exchange: Exchange) -> str:
        if exchange.request is None or exchange.response is None:
            raise RecordingError(
                f"{self._settings.source}: exchange {exchange.id} has an end but not both bodies; the recording is "
                "not whole and cannot be replayed"
            )
        return self._masker.text(exchange.protocol, read_body(exchange.request))

    def _diff(self, expected: Exchange, text: str) -> str:
        recorded = self._text_of(expected).splitlines()
        lines = list(
            difflib.unified_diff(recorded, text.splitlines(), f"recorded exchange {expected.id}", "this run", n=3)
        )
        shown_lines = lines[:MAX_DIFF_LINES] + (
            [f"... {len(lines) - MAX_DIFF_LINES} more lines"] * (len(lines) > MAX_DIFF_LINES)
        )
        return "\n".join(line.rstrip("\n") for line in shown_lines)
