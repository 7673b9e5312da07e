"""The gateway's process, `python -m agent2.llm.gateway.proxy`: request handler and ledger of a trial's calls.

The handler checks a request, opens the call in the ledger, asks the provider, passes the answer on, closes the call.

A call begins only if what is spent, what is reserved for calls under way and what it may need itself fit together. What
it may need is an estimate from above (`Ledger.estimate`); a call that needed more is charged what it needed, so the
budget can be passed by the excess of the calls under way, never by a further call. Promises: no call is opened before
its reservation is in the record, and every call that was opened is closed there, or found open by the next process,
which charges its reservation. Nothing is awaited between the check of the budget and the reservation, so concurrent
calls cannot reserve the same tokens.

The process reads one line of JSON (`GatewayLaunch`) from standard input and serves on the listening socket that it
was started with. The keys are in that line and nowhere else: not in an argument, a variable or a file. Standard input
stays open: when it ends, the harness has stopped the gateway or is gone, and the process ends too, after a few
seconds for the calls under way.
"""

import asyncio
import hmac
import logging
import math
import random
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from aiohttp import web
from pydantic import SecretStr

from agent2.config import StrictModel
from agent2.errors import Agent2Error
from agent2.llm.gateway.answers import (
    EVENT_STREAM,
    AgentConnection,
    NoAnswer,
    RelayedAnswer,
    ReplayedAnswer,
    ReplayPlayer,
    Upstream,
    hang_up,
    passed_headers,
    relay_stream,
    relay_whole,
)
from agent2.llm.gateway.recording import (
    CallEnded,
    CallLost,
    CallStarted,
    ExchangeOutcome,
    ExchangeRecorder,
    RecordingError,
    Scrubber,
    ScrubbingFormatter,
)
from agent2.llm.gateway.requests import BadRequest, BodyMemory, PreparedRequest, RequestDeclined, prepare, storable
from agent2.llm.gateway.routes import (
    ApiProblem,
    RequestKind,
    WireRoute,
    error_body,
    find_route,
    guess_protocol,
    models_body,
    request_key,
    status_of,
    upstream_headers,
    upstream_url,
)
from agent2.llm.gateway.settings import GatewaySettings, PriceTable, load_prices
from agent2.llm.records import TokenCounts, WireProtocol
from agent2.records import digest_of
from agent2.sandbox.network import ignore_malformed_requests

logger = logging.getLogger(__name__)


FIRST_RATIO = 0.5
"""Tokens a byte that the first call is taken to have; text in English, code and JSON have 0.2 to 0.35."""
MARGIN = 1.5
"""Over the most tokens a byte that a call of this trial had."""
SMALL = 2_000
"""Bytes below which a request says nothing about tokens a byte."""
MAX_REFUSALS = 200
"""Refused calls that are recorded; an agent that never stops asking must not fill the disk."""
UNREAD_S = 120.0
"""How long an answer is kept for an agent that gave up waiting for it."""
MAX_UNREAD = 64 * 2**20
"""Bytes of such answers."""
HEALTH = frozenset({"/", "/health"})
GRACE_S = 2.0
"""For the calls under way when the gateway is stopped."""
KEEP_ALIVE_S = 600.0
"""Longest silence between two requests on one connection of the agent."""


def tokens_in(n_bytes: int) -> int:
    """Tokens of a text of so many bytes, estimated from above."""
    return math.ceil(n_bytes * FIRST_RATIO)


@dataclass(frozen=True, slots=True)
class Charge:
    """Tokens and dollars, reserved or spent."""

    tokens: TokenCounts
    dollars: float | None
    """None: unknown price."""


NOTHING = Charge(TokenCounts(), 0.0)


class Ledger:
    """What is left of the budget."""

    def __init__(self, max_tokens: int | None, max_dollars: float | None, prices: PriceTable):
        self._max_tokens = max_tokens
        self._max_dollars = max_dollars
        self._prices = prices
        self._spent_tokens = 0
        self._spent_dollars = 0.0
        self._open: dict[int, Charge] = {}
        self._tokens_per_byte: float | None = None

    def estimate(self, model: str, n_bytes: int, output_tokens: int) -> Charge:
        """What a request may need.

        Input: half a token a byte for the first call; later ones take the most tokens a byte seen so far plus 50%.
        Never more than a token a byte, because no tokenizer makes more.
        """
        ratio = FIRST_RATIO if self._tokens_per_byte is None else min(1.0, self._tokens_per_byte * MARGIN)
        tokens = TokenCounts(input=math.ceil(n_bytes * ratio), output=output_tokens)
        return Charge(tokens, self._prices.cost(model, tokens))

    def learn(self, n_bytes: int, input_tokens: int) -> None:
        """Update the estimate of tokens a byte from what a request had."""
        if n_bytes >= SMALL and input_tokens > 0:
            self._tokens_per_byte = max(self._tokens_per_byte or 0.0, input_tokens / n_bytes)

    def refusal(self, charge: Charge, *, alone: bool) -> str | None:
        """Why a call does not fit, or None.

        alone: leave out what is reserved for other calls, which may need less in the end.
        """
        reservations = [] if alone else list(self._open.values())
        tokens = self._spent_tokens + sum(reserved.tokens.total for reserved in reservations)
        dollars = self._spent_dollars + sum(reserved.dollars or 0.0 for reserved in reservations)
        if self._max_tokens is not None and tokens + charge.tokens.total > self._max_tokens:
            return (
                f"the trial's LLM budget of {self._max_tokens} tokens is spent: {tokens} are used, "
                f"and this call may need {charge.tokens.total}"
            )
        if self._max_dollars is not None:
            need = charge.dollars or 0.0
            if dollars + need > self._max_dollars:
                return (
                    f"the trial's LLM budget of ${self._max_dollars:.4f} is spent: ${dollars:.4f} are used, "
                    f"and this call may need ${need:.4f}"
                )
        return None

    def reserve(self, call: int, charge: Charge) -> None:
        """Take what a call may need."""
        self._open[call] = charge

    def settle(self, call: int, charge: Charge) -> None:
        """Give back what was reserved and charge what was spent."""
        self._open.pop(call, None)
        self.add(charge)

    def add(self, charge: Charge) -> None:
        """Charge what was spent, by a call of an earlier process too."""
        self._spent_tokens += charge.tokens.total
        self._spent_dollars += charge.dollars or 0.0


@dataclass(slots=True)
class LedgerCall:
    """One call of the agent."""

    id: int
    route: WireRoute
    prepared: PreparedRequest
    body: bytes
    """As the agent sent it."""
    path: str
    t: float = field(default_factory=time.time)
    """Unix seconds."""
    began: float = field(default_factory=time.monotonic)
    """On the monotonic clock."""
    reserved: Charge = NOTHING
    retries: int = 0
    replay_of: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call is not made."""

    problem: ApiProblem
    sentence: str


class CallLedger:
    """Budget and record of one trial."""

    def __init__(self, settings: GatewaySettings, recorder: ExchangeRecorder, prices: PriceTable):
        """Resume from what earlier processes of the trial spent."""
        self._settings = settings
        self._recorder = recorder
        self._prices = prices
        self._ledger = Ledger(settings.max_tokens, settings.max_dollars, prices)
        self._settled = asyncio.Condition()
        self._n_refused = 0
        started = {line.id: line for line in recorder.lines if isinstance(line, CallStarted)}
        for line in recorder.lines:
            if isinstance(line, CallEnded):
                self._ledger.add(Charge(line.charged, line.charged_dollars))
                if line.counted:
                    self._ledger.learn(started[line.id].request_bytes, line.tokens.input)
            elif isinstance(line, CallLost):
                lost_call = started[line.id]
                self._ledger.add(Charge(lost_call.reserved, lost_call.reserved_dollars))

    @property
    def is_full(self) -> bool:
        """The trial has made as many calls as it may."""
        return self._recorder.last_id >= self._settings.max_calls

    def new_call(self, route: WireRoute, prepared: PreparedRequest, body: bytes, path: str) -> LedgerCall:
        """A call with the next number; nothing is recorded yet."""
        return LedgerCall(self._recorder.next_id(), route, prepared, body, path)

    async def open(self, call: LedgerCall, has_left: Callable[[], bool]) -> Refusal | None:
        """Reserve and record; or the reason why not. Waits while only other calls' reservations are in the way.

        has_left: whether the agent has given up waiting. Raises RecordingError, with nothing reserved, if the record
        cannot be written.
        """
        async with self._settled:
            while True:
                charge = self._estimate(call)
                deadline = self._settings.deadline
                if deadline is not None and time.time() >= deadline:
                    return Refusal(ApiProblem.DEADLINE, "the trial's time is over; no further LLM call is made")
                sentence = self._ledger.refusal(charge, alone=True)
                if sentence is not None:  # waiting for other calls to end would not help
                    return Refusal(ApiProblem.BUDGET, sentence)
                if self._ledger.refusal(charge, alone=False) is None:
                    break
                await self._settled.wait()
                if has_left():
                    return Refusal(ApiProblem.NO_PROVIDER, "the agent gave up before the call could be made")
            # nothing is awaited since the check above, so that two calls cannot reserve the same tokens; recorded
            # first, so that no call is made that a killed gateway would forget
            call.reserved = charge
            self._record_start(call)
            self._ledger.reserve(call.id, charge)
        return None

    async def close(self, call: LedgerCall, relayed: RelayedAnswer) -> None:
        """Charge what the call cost, and record its end."""
        tokens = relayed.tokens or TokenCounts()
        is_free = relayed.outcome is ExchangeOutcome.FAILED or call.route.kind is RequestKind.COUNT
        dollars: float | None = 0.0 if is_free else None
        charge = Charge(tokens, dollars)
        if relayed.is_counted and not is_free:
            dollars = self._prices.cost(self._settings.model, tokens)
            charge = Charge(tokens, dollars)
            self._ledger.learn(len(call.body), tokens.input)
        elif relayed.written is not None and not is_free:
            estimate = self._ledger.estimate(self._settings.model, len(call.body), tokens_in(relayed.written))
            relayed.tokens, relayed.is_estimated = estimate.tokens, True
            charge = estimate
        elif not relayed.is_counted and not is_free:
            charge = call.reserved  # the usage is unknown: the budget must not count it as nothing
        self._ledger.settle(call.id, charge)
        self._record_end(call, relayed, charge, dollars)
        async with self._settled:
            self._settled.notify_all()

    def note_refused(self, call: LedgerCall, relayed: RelayedAnswer) -> None:
        """Record a call that was not made."""
        self._n_refused += 1
        if self._n_refused <= MAX_REFUSALS:
            relayed.outcome = ExchangeOutcome.REFUSED
            call.reserved = NOTHING
            self._record_start(call)
            self._record_end(call, relayed, NOTHING, 0.0)
        else:
            self._recorder.decline(call.path, relayed.status, relayed.fault)

    def note_replayed(self, call: LedgerCall, relayed: RelayedAnswer, dollars: float | None) -> None:
        """Record a call that was answered from a recording: with the recorded counts, and outside the budget."""
        self._record_start(call)
        self._record_end(call, relayed, NOTHING, dollars)

    def _estimate(self, call: LedgerCall) -> Charge:
        if call.route.kind is RequestKind.COUNT:
            return NOTHING
        output = call.prepared.output_tokens or self._settings.unlisted_output_tokens * call.prepared.alternatives
        return self._ledger.estimate(self._settings.model, len(call.body), output)

    def _record_start(self, call: LedgerCall) -> None:
        line = CallStarted(
            id=call.id,
            t=call.t,
            protocol=call.route.protocol,
            kind=call.route.kind.value,
            path=call.path,
            asked_model=call.prepared.asked_model,
            model=self._settings.model,
            stream=call.prepared.stream,
            request_bytes=len(call.body),
            reserved=call.reserved.tokens,
            reserved_dollars=call.reserved.dollars,
            replay_of=call.replay_of,
        )
        self._recorder.append(line)
        self._recorder.write_request(call.id, call.body)

    def _record_end(self, call: LedgerCall, relayed: RelayedAnswer, charge: Charge, dollars: float | None) -> None:
        first_byte = relayed.first_byte
        line = CallEnded(
            id=call.id,
            t=time.time(),
            outcome=relayed.outcome.value,
            status=relayed.status or None,
            tokens=relayed.tokens or TokenCounts(),
            dollars=dollars,
            counted=relayed.is_counted,
            estimated=relayed.is_estimated,
            charged=charge.tokens,
            charged_dollars=charge.dollars,
            latency_s=round(time.monotonic() - call.began, 6),
            first_byte_s=None if first_byte is None else round(first_byte - call.began, 6),
            retries=call.retries,
            fault=relayed.fault,
            content_type=relayed.content_type,
            response_bytes=len(relayed.body),
            cut=relayed.cut,
        )
        self._recorder.end(line, relayed.body)


@dataclass(slots=True)
class _PendingCall:
    """A call under way."""

    url: str
    headers: dict[str, str]
    agent: AgentConnection
    answer: asyncio.Future[RelayedAnswer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(frozen=True, slots=True)
class _UnreadAnswer:
    """An answer whose client was gone."""

    since: float
    relayed: RelayedAnswer


class Proxy:
    """Handles every request of one trial's agent."""

    def __init__(
        self,
        settings: GatewaySettings,
        calls: CallLedger,
        recorder: ExchangeRecorder,
        upstream: Upstream,
        scrubber: Scrubber,
        player: ReplayPlayer | None,
    ):
        self._settings = settings
        self._ledger = calls
        self._recorder = recorder
        self._upstream = upstream
        self._scrubber = scrubber
        self._player = player
        self._body_memory = BodyMemory()
        self._pending: dict[str, list[_PendingCall]] = {}
        self._unread: OrderedDict[str, _UnreadAnswer] = OrderedDict()
        self._endpoints = {endpoint.protocol: endpoint for endpoint in settings.endpoints}
        self._proxies = {endpoint.protocol: _proxy_of(endpoint.base_url) for endpoint in settings.endpoints}
        for line in recorder.lines:
            if player is not None and isinstance(line, CallStarted) and line.replay_of is not None:
                player.mark_served(line.replay_of)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if request.path in HEALTH and request.method in {"GET", "HEAD"}:
            return web.json_response({"ok": True})
        route = find_route(request.method, request.path, request.headers)
        protocol = route.protocol if route else guess_protocol(request.path, request.headers)
        try:
            try:
                return await self._serve(request, route)
            except RequestDeclined as declined:
                status = status_of(declined.problem, protocol)
                self._recorder.decline(storable(request.path), status, storable(str(declined)))
                return _response(_gateway_error(declined.problem, protocol, storable(str(declined))))
        except RecordingError:
            logger.exception("a call could not be recorded, and was not made")
            return _response(_gateway_error(ApiProblem.NO_RECORD, protocol, "the gateway cannot record this call"))

    async def _serve(self, request: web.Request, route: WireRoute | None) -> web.StreamResponse:
        if route is None:
            raise RequestDeclined(
                ApiProblem.UNKNOWN_PATH, f"{request.method} {request.path} is not served by the LLM gateway"
            )
        key = request_key(request.headers, request.query)
        if not hmac.compare_digest(key.encode("utf-8", "replace"), self._settings.dummy_key.encode()):
            raise RequestDeclined(ApiProblem.WRONG_KEY, "this is not the key that the trial gave you")
        if route.kind is RequestKind.MODELS:
            is_one = request.path.count("/") > 2
            return web.json_response(models_body(route.protocol, self._settings.model, is_one))
        if self._ledger.is_full:
            raise RequestDeclined(
                ApiProblem.BUDGET, f"the trial has made {self._settings.max_calls} LLM calls; no more are made"
            )
        async with self._body_memory.body(request, self._settings.max_request_mib) as body:
            return await self._serve_body(request, route, body)

    async def _serve_body(self, request: web.Request, route: WireRoute, body: bytes) -> web.StreamResponse:
        try:
            prepared = prepare(body, route, self._settings.model)
        except BadRequest as error:
            raise RequestDeclined(ApiProblem.BAD_REQUEST, str(error)) from error
        if self._player is None and route.protocol not in self._endpoints:
            spoken = ", ".join(self._endpoints)
            raise RequestDeclined(
                ApiProblem.NO_ENDPOINT, f"the trial's driver does not speak {route.protocol} (but {spoken})"
            )
        if self._player is not None:
            call = self._ledger.new_call(route, prepared, body, storable(request.path))
            return await self._replay(request, call, self._player)
        endpoint = self._endpoints[route.protocol]
        url = upstream_url(endpoint, route, self._settings.model, request.query)
        headers = upstream_headers(endpoint, request.headers)
        key = digest_of([url, headers, prepared.body.decode()])
        repeated = await self._answer_repeat(request, key)
        if repeated is not None:
            return repeated
        call = self._ledger.new_call(route, prepared, body, storable(request.path))
        return await self._make_call(call, _PendingCall(url, headers, AgentConnection(request)), key)

    async def _make_call(self, call: LedgerCall, pending: _PendingCall, key: str) -> web.StreamResponse:
        """Reserve, ask the provider, pass its answer on."""
        self._pending.setdefault(key, []).append(pending)
        try:
            relayed = await self._open_and_ask(call, pending)
            pending.answer.set_result(relayed)
        finally:
            pending.answer.cancel()  # of no effect once it has a result; else it releases a repeat that waits for it
            self._pending[key].remove(pending)
            if not self._pending[key]:
                del self._pending[key]
        if pending.agent.has_left and not pending.agent.was_heard and relayed.outcome is ExchangeOutcome.OK:
            # kept for an agent that gave up waiting and may ask again; the oldest go when they take too much memory
            self._unread[key] = _UnreadAnswer(time.monotonic(), relayed)
            while self._unread and sum(len(unread.relayed.body) for unread in self._unread.values()) > MAX_UNREAD:
                self._unread.popitem(last=False)
        return _response(relayed)

    async def _answer_repeat(self, request: web.Request, key: str) -> web.StreamResponse | None:
        """The answer to a request that was made before by an agent which gave up waiting; None: it is a new one."""
        unread = self._unread.pop(key, None)
        if unread is not None and time.monotonic() - unread.since <= UNREAD_S:
            return _repeat_answer(unread.relayed)
        for pending in self._pending.get(key, []):
            if pending.agent.has_left and not pending.agent.was_heard:
                await pending.agent.take_over(request)
                try:
                    # shielded: if this client leaves too, the call itself must still get its result
                    relayed = await asyncio.shield(pending.answer)
                except asyncio.CancelledError:
                    raise RequestDeclined(
                        ApiProblem.NO_PROVIDER, "the call that this request repeats broke down"
                    ) from None
                stream = pending.agent.response
                return stream if stream is not None and pending.agent.request is request else _repeat_answer(relayed)
        return None

    async def _open_and_ask(self, call: LedgerCall, pending: _PendingCall) -> RelayedAnswer:
        agent = pending.agent
        refusal = await self._ledger.open(call, lambda: agent.has_left)
        if refusal is not None:
            relayed = _gateway_error(refusal.problem, call.route.protocol, refusal.sentence)
            self._ledger.note_refused(call, relayed)
            return relayed
        # what is recorded if the task is cancelled below: the reservation is charged, as the usage is unknown
        relayed = RelayedAnswer(
            0, "", outcome=ExchangeOutcome.PARTIAL, fault="the gateway was stopped in the middle of the call"
        )
        try:
            relayed = await self._ask_provider(call, pending)
            if agent.was_taken_over:
                relayed.fault = relayed.fault or "the agent gave up waiting and asked again; the repeat got this answer"
            elif agent.has_left:
                relayed.fault = relayed.fault or "the agent hung up; the answer was read to its end"
        finally:
            await self._ledger.close(call, relayed)
        return relayed

    async def _ask_provider(self, call: LedgerCall, pending: _PendingCall) -> RelayedAnswer:
        protocol, agent = call.route.protocol, pending.agent
        proxy = self._proxies[protocol]
        try:
            answer = await self._upstream.call(
                pending.url, pending.headers, call.prepared.body, proxy, lambda: agent.has_left
            )
        except NoAnswer as error:
            call.retries = error.retries
            return _gateway_error(
                ApiProblem.PROVIDER_SLOW if error.is_timeout else ApiProblem.NO_PROVIDER, protocol, str(error)
            )
        call.retries = answer.retries
        try:
            if 300 <= answer.response.status < 400:
                sentence = "the provider redirects, which is not followed; fix its base URL"
                return _gateway_error(ApiProblem.NO_PROVIDER, protocol, sentence)
            content_type = answer.response.headers.get("content-type", "")
            if answer.error_body is None and content_type.startswith(EVENT_STREAM):
                hides_usage = call.prepared.hides_usage
                return await relay_stream(agent, answer, protocol, self._scrubber, hides_usage=hides_usage)
            is_free = call.route.kind is RequestKind.COUNT
            relayed = await relay_whole(answer, protocol, self._scrubber, is_free=is_free)
            if relayed.outcome is ExchangeOutcome.PARTIAL:
                relayed.body = _gateway_error(ApiProblem.NO_PROVIDER, protocol, relayed.fault).body
            headers = passed_headers(answer, self._scrubber)
            relayed.response = web.Response(status=relayed.status, body=relayed.body, headers=headers)
            return relayed
        finally:
            answer.response.release()

    async def _replay(self, request: web.Request, call: LedgerCall, player: ReplayPlayer) -> web.StreamResponse:
        """Serve a recorded answer."""
        replayed = player.play(call.id, call.route, call.prepared, call.body)
        if replayed.difference is not None:
            self._recorder.add_difference(replayed.difference)
        recorded = replayed.exchange
        if recorded is None:
            relayed = _gateway_error(ApiProblem.REPLAY, call.route.protocol, replayed.sentence)
            self._ledger.note_replayed(call, relayed, 0.0)
            return _response(relayed)
        call.replay_of = recorded.id
        relayed = _recorded_answer(replayed)
        self._ledger.note_replayed(call, relayed, recorded.dollars)
        if not relayed.cut:
            return _response(relayed)
        # broken off as the provider's was: aiohttp would end a whole response properly
        response = web.StreamResponse(status=relayed.status, headers={"content-type": relayed.content_type})
        await response.prepare(request)
        await response.write(relayed.body)
        hang_up(request)
        return response


def _repeat_answer(relayed: RelayedAnswer) -> web.StreamResponse:
    """An answer for another connection than the one that it was made for."""
    original = relayed.response
    headers = {**original.headers} if original is not None else {"content-type": relayed.content_type}
    headers.pop("Content-Length", None)
    headers.pop("Transfer-Encoding", None)
    return web.Response(status=relayed.status, body=relayed.body, headers=headers)


def _recorded_answer(replayed: ReplayedAnswer) -> RelayedAnswer:
    recorded = replayed.exchange
    if recorded is None or recorded.status is None:
        raise RecordingError("a recorded answer has no status; the recording is damaged")
    return RelayedAnswer(
        recorded.status,
        recorded.content_type or "application/json",
        replayed.body,
        recorded.outcome,
        recorded.tokens,
        recorded.counted,
        recorded.fault,
        recorded.cut,
        is_estimated=recorded.estimated,
    )


def _gateway_error(problem: ApiProblem, protocol: WireProtocol, sentence: str) -> RelayedAnswer:
    """An error of the gateway in place of a provider's answer."""
    body = msgspec.json.encode(error_body(problem, protocol, sentence))
    return RelayedAnswer(status_of(problem, protocol), "application/json", body, ExchangeOutcome.FAILED, fault=sentence)


def _response(relayed: RelayedAnswer) -> web.StreamResponse:
    if relayed.response is not None:
        return relayed.response
    return web.Response(status=relayed.status, body=relayed.body, headers={"content-type": relayed.content_type})


def _proxy_of(url: str) -> str | None:
    """The HTTP proxy that the harness' environment names for a host, as other programs take it from there."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_local = host in {"localhost", "::1"} or host.startswith("127.")
    return None if is_local or proxy_bypass(host) else getproxies().get(parts.scheme)


class GatewayLaunch(StrictModel):
    """What the process receives."""

    settings: GatewaySettings
    """Without its keys."""
    keys: tuple[str, ...]
    """Of the endpoints, in their order."""
    redact: tuple[str, ...]
    listener: int
    """File descriptor of the listening socket."""

    def complete(self) -> GatewaySettings:
        """The settings with their keys."""
        endpoints = tuple(
            endpoint.model_copy(update={"api_key": SecretStr(key)})
            for endpoint, key in zip(self.settings.endpoints, self.keys, strict=True)
        )
        redact = tuple(SecretStr(text) for text in self.redact)
        return self.settings.model_copy(update={"endpoints": endpoints, "redact": redact})


def main() -> int:
    """Serve until standard input ends."""
    launch = GatewayLaunch.model_validate_json(sys.stdin.buffer.readline())
    scrubber = Scrubber([*launch.keys, *launch.redact])
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ScrubbingFormatter(scrubber))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    ignore_malformed_requests()
    listener = socket.socket(fileno=launch.listener)
    listener.setblocking(False)
    try:
        asyncio.run(_serve(launch.complete(), listener, scrubber))
    except Agent2Error as error:
        logger.error("%s", error)
        return 2
    return 0


async def _serve(settings: GatewaySettings, listener: socket.socket, scrubber: Scrubber) -> None:
    prices = load_prices(settings.prices)
    player = ReplayPlayer(settings.replay) if settings.replay else None
    recorder = ExchangeRecorder(settings.record, scrubber, settings.max_bodies_mib)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0)
    try:
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
            upstream = Upstream(settings, session, random.Random())
            ledger = CallLedger(settings, recorder, prices)
            proxy = Proxy(settings, ledger, recorder, upstream, scrubber, player)
            app = web.Application(client_max_size=int(settings.max_request_mib * 2**20))
            app.router.add_route("*", "/{path:.*}", proxy.handle)
            runner = web.AppRunner(
                app,
                access_log=None,
                auto_decompress=False,
                handle_signals=False,
                keepalive_timeout=KEEP_ALIVE_S,
                shutdown_timeout=GRACE_S,
            )
            await runner.setup()
            await web.SockSite(runner, listener, backlog=1024).start()
            logger.info("serving model %s", settings.model)
            await _end_of_input()
            await runner.cleanup()
    finally:
        recorder.close()


async def _end_of_input() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while await reader.read(4096):
        pass


if __name__ == "__main__":
    sys.exit(main())
