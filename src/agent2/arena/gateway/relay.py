"""Passes a provider's answer on to the agent, and reads what it cost on the way.

Streams are passed on piece by piece as they come. An agent that hangs up does not end the provider's answer:
it is read to its end, because it is paid for and only its end tells the price. A stream that breaks off is
broken off towards the agent too, so that it can tell.
"""

import time
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from agent2.arena.gateway.read import Outcome
from agent2.arena.gateway.scrub import Scrubber, StreamScrubber
from agent2.arena.gateway.settings import TokenCounts, WireProtocol
from agent2.arena.gateway.sse import SseSplitter
from agent2.arena.gateway.upstream import Answer
from agent2.arena.gateway.usage import StreamMeter, tokens_of_answer

MAX_ANSWER = 128 * 1024 * 1024
"""Bytes of one answer that are passed on."""
EVENT_STREAM = "text/event-stream"
_PASSED_ON = ("content-type", "retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id")
_BROKEN = (aiohttp.ClientError, TimeoutError, OSError)


@dataclass(slots=True)
class Relayed:
    """What the agent got."""

    status: int
    content_type: str
    body: bytes = b""
    outcome: Outcome = Outcome.OK
    tokens: TokenCounts | None = None
    """None: the provider told none."""
    is_counted: bool = False
    fault: str = ""
    cut: bool = False
    first_byte: float | None = None
    """When the provider's first byte came, on the monotonic clock."""
    response: web.StreamResponse | None = None


@dataclass(slots=True)
class _Agent:
    """The agent's end of a stream."""

    request: web.Request
    response: web.StreamResponse
    kept: list[bytes] = field(default_factory=list)
    size: int = 0
    is_gone: bool = False

    async def prepare(self) -> None:
        try:
            await self.response.prepare(self.request)
        except OSError:
            self.is_gone = True  # noted as a fault of the call when it ends

    async def send(self, data: bytes) -> None:
        """Pass bytes on. Raises ValueError when there are too many."""
        if not data:
            return
        self.kept.append(data)
        self.size += len(data)
        if self.size > MAX_ANSWER:
            raise ValueError(f"the answer is longer than {MAX_ANSWER} bytes")
        if not self.is_gone:
            try:
                await self.response.write(data)
            except OSError:
                self.is_gone = True  # noted as a fault of the call when it ends


def hang_up(request: web.Request) -> None:
    """Close the agent's connection without the end of the answer."""
    if request.transport is not None:
        request.transport.close()


def passed_headers(answer: Answer, scrubber: Scrubber) -> dict[str, str]:
    """The provider's headers that the agent gets."""
    headers = answer.response.headers
    return {name: scrubber.clean(headers[name].encode()).decode() for name in _PASSED_ON if name in headers}


async def relay_whole(answer: Answer, protocol: WireProtocol, scrubber: Scrubber, *, is_free: bool) -> Relayed:
    """Read an answer that is no stream; the caller sends it."""
    status, kind = answer.response.status, answer.response.headers.get("content-type", "application/json")
    first_byte = time.monotonic()
    if answer.error_body is not None:
        body = scrubber.clean(answer.error_body)
        fault = f"the provider answered {status}"
        return Relayed(status, kind, body, Outcome.FAILED, None, False, fault, first_byte=first_byte)
    try:
        body = scrubber.clean(await _read(answer.response))
    except (*_BROKEN, ValueError) as error:
        fault = f"the provider's answer broke off ({type(error).__name__})"
        return Relayed(502, kind, b"", Outcome.PARTIAL, None, False, fault, first_byte=first_byte)
    if is_free:
        return Relayed(status, kind, body, Outcome.OK, TokenCounts(), True, first_byte=first_byte)
    tokens = tokens_of_answer(protocol, body)
    fault = "" if tokens is not None else "the provider's answer tells no usage"
    return Relayed(status, kind, body, Outcome.OK, tokens, tokens is not None, fault, first_byte=first_byte)


async def relay_stream(
    request: web.Request, answer: Answer, protocol: WireProtocol, scrubber: Scrubber, *, hides_usage: bool
) -> Relayed:
    """Pass a stream on while it comes."""
    headers = {**passed_headers(answer, scrubber), "cache-control": "no-cache"}
    agent = _Agent(request, web.StreamResponse(status=answer.response.status, headers=headers))
    await agent.prepare()
    relayed = Relayed(answer.response.status, headers.get("content-type", EVENT_STREAM), response=agent.response)
    meter = StreamMeter(protocol)
    try:
        await _pass_on(answer, agent, meter, StreamScrubber(scrubber), relayed, hides_usage)
    except _BROKEN as error:
        relayed.cut = True
        relayed.fault = f"the provider's stream broke off ({type(error).__name__})"
    except ValueError as error:
        relayed.cut = True
        relayed.fault = f"the provider's stream cannot be passed on: {error}"
    if relayed.cut:
        hang_up(request)
    relayed.body = b"".join(agent.kept)
    _judge(relayed, meter, agent_left=agent.is_gone)
    return relayed


async def _pass_on(
    answer: Answer,
    agent: _Agent,
    meter: StreamMeter,
    scrubber: StreamScrubber,
    relayed: Relayed,
    hides_usage: bool,
) -> None:
    splitter = SseSplitter()
    async for chunk in answer.response.content.iter_any():
        if relayed.first_byte is None:
            relayed.first_byte = time.monotonic()
        await _pass_piece(scrubber.feed(chunk), agent, meter, splitter, hides_usage)
    await _pass_piece(scrubber.end(), agent, meter, splitter, hides_usage)
    rest = splitter.rest
    if rest.strip():  # a last event without the empty line after it
        is_usage = [meter.feed(event) for event in splitter.feed(b"\n\n")]
        if hides_usage and not any(is_usage):
            await agent.send(rest)


async def _pass_piece(
    piece: bytes, agent: _Agent, meter: StreamMeter, splitter: SseSplitter, hides_usage: bool
) -> None:
    if hides_usage:
        events = splitter.feed(piece)
        await agent.send(b"".join([event.raw for event in events if not meter.feed(event)]))
    else:
        await agent.send(piece)
        for event in splitter.feed(piece):
            meter.feed(event)


def _judge(relayed: Relayed, meter: StreamMeter, *, agent_left: bool) -> None:
    """Outcome, tokens and fault of a stream that came to an end of some kind."""
    relayed.tokens, relayed.is_counted = meter.tokens, meter.is_counted
    if relayed.cut and meter.is_whole:
        relayed.fault = ""  # everything that matters had come
    elif not relayed.cut and not meter.is_whole:
        relayed.fault = meter.problem or "the provider's stream ended without its last event"
    relayed.fault = relayed.fault or meter.problem
    if relayed.fault:
        relayed.outcome = Outcome.PARTIAL
    elif agent_left:
        relayed.fault = "the agent hung up; the answer was read to its end"
    elif not relayed.is_counted:
        relayed.fault = "the provider's stream tells no usage"


async def _read(response: aiohttp.ClientResponse) -> bytes:
    pieces, size = [], 0
    async for chunk in response.content.iter_any():
        pieces.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER:
            raise ValueError(f"longer than {MAX_ANSWER} bytes")
    return b"".join(pieces)
