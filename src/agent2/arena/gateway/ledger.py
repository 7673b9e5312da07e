"""The budget and the record of a trial's LLM calls.

The LLM budget of a trial: reserved before each call, settled after it.

A call begins only if what is spent, what is reserved for calls under way and what it may need itself fit
together. What a call may need is an estimate from above (see `Ledger.estimate`); a call that needed more is
charged what it needed, so the budget can be passed by the excess of the calls under way, never by a further
call.

All methods are called from one event loop, and none of them waits, so no two calls can take the same tokens.

The ledger of a trial's LLM calls: budget and record together.

Promises: no call is opened before its reservation is in the record, and every call that was opened is closed
there, or found open by the next process, which charges its reservation. Nothing is awaited between the check of the
budget and the reservation, so concurrent calls cannot reserve the same tokens.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agent2.arena.gateway.protocols import ApiProblem, Kind, WireRoute
from agent2.arena.gateway.recording import Begin, End, ExchangeOutcome, ExchangeRecorder, Lost
from agent2.arena.gateway.requests import Prepared
from agent2.arena.gateway.settings import GatewaySettings, PriceTable, TokenCounts
from agent2.arena.gateway.upstream import Relayed

FIRST_RATIO = 0.5
"""Tokens a byte that the first call is taken to have; text in English, code and JSON have 0.2 to 0.35."""
MARGIN = 1.5
"""Over the most tokens a byte that a call of this trial had."""
SMALL = 2_000
"""Bytes below which a request says nothing about tokens a byte."""


def tokens_in(n_bytes: int) -> int:
    """Tokens of a text of so many bytes, estimated from above."""
    return math.ceil(n_bytes * FIRST_RATIO)


@dataclass(frozen=True, slots=True)
class Charge:
    """Tokens and dollars, reserved or spent."""

    tokens: TokenCounts
    dollars: float | None
    """None: unknown price."""


def nothing() -> Charge:
    """No tokens, no dollars."""
    return Charge(TokenCounts(), 0.0)


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

        Input: half a token a byte for the first call; later ones take the most tokens a byte seen so far, and half
        as much again. Never more than a token a byte, because no tokenizer makes more.
        """
        ratio = FIRST_RATIO if self._tokens_per_byte is None else min(1.0, self._tokens_per_byte * MARGIN)
        tokens = TokenCounts(input=math.ceil(n_bytes * ratio), output=output_tokens)
        return Charge(tokens, self._prices.cost(model, tokens))

    def learn(self, n_bytes: int, input_tokens: int) -> None:
        """Take note of how many tokens a request had."""
        if n_bytes >= SMALL and input_tokens > 0:
            self._tokens_per_byte = max(self._tokens_per_byte or 0.0, input_tokens / n_bytes)

    def refusal(self, charge: Charge, *, alone: bool) -> str | None:
        """Why a call does not fit, or None.

        alone: leave out what is reserved for other calls, which may need less in the end.
        """
        others = [] if alone else list(self._open.values())
        tokens = self._spent_tokens + sum(other.tokens.total for other in others)
        dollars = self._spent_dollars + sum(other.dollars or 0.0 for other in others)
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


MAX_REFUSALS = 200
"""Refused calls that are recorded; an agent that never stops asking must not fill the disk."""


@dataclass(slots=True)
class LedgerCall:
    """One call of the agent."""

    id: int
    route: WireRoute
    asked: Prepared
    body: bytes
    """As the agent sent it."""
    path: str
    t: float = field(default_factory=time.time)
    began: float = field(default_factory=time.monotonic)
    """On the monotonic clock."""
    reserved: Charge = field(default_factory=nothing)
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
        """Go on from what earlier processes of the trial spent."""
        self._settings = settings
        self._recorder = recorder
        self._prices = prices
        self._ledger = Ledger(settings.max_tokens, settings.max_dollars, prices)
        self._settled = asyncio.Condition()
        self._n_refused = 0
        begins = {line.id: line for line in recorder.lines if isinstance(line, Begin)}
        for line in recorder.lines:
            if isinstance(line, End):
                self._ledger.add(Charge(line.charged, line.charged_dollars))
                if line.counted:
                    self._ledger.learn(begins[line.id].request_bytes, line.tokens.input)
            elif isinstance(line, Lost):
                lost = begins[line.id]
                self._ledger.add(Charge(lost.reserved, lost.reserved_dollars))

    @property
    def is_full(self) -> bool:
        """The trial has made as many calls as one may."""
        return self._recorder.last_id >= self._settings.max_calls

    def new_call(self, route: WireRoute, asked: Prepared, body: bytes, path: str) -> LedgerCall:
        """A call with the next number; nothing is recorded yet."""
        return LedgerCall(self._recorder.next_id(), route, asked, body, path)

    async def open(self, call: LedgerCall, has_left: Callable[[], bool]) -> Refusal | None:
        """Reserve and record; or why not. Waits while only other calls' reservations are in the way.

        has_left: whether the agent has given up waiting.

        Raises RecordingError, with nothing reserved, if the record cannot be written.
        """
        async with self._settled:
            while True:
                charge = self._estimate(call)
                deadline = self._settings.deadline
                if deadline is not None and time.time() >= deadline:
                    return Refusal(ApiProblem.DEADLINE, "the trial's time is over; no further LLM call is made")
                never = self._ledger.refusal(charge, alone=True)
                if never is not None:
                    return Refusal(ApiProblem.BUDGET, never)
                if self._ledger.refusal(charge, alone=False) is None:
                    break
                await self._settled.wait()
                if has_left():
                    return Refusal(ApiProblem.NO_PROVIDER, "the agent gave up before the call could be made")
            call.reserved = charge
            self._begin(call)
            self._ledger.reserve(call.id, charge)
        return None

    async def close(self, call: LedgerCall, relayed: Relayed) -> None:
        """Charge what the call cost, and record its end."""
        tokens = relayed.tokens or TokenCounts()
        is_free = relayed.outcome is ExchangeOutcome.FAILED or call.route.kind is Kind.COUNT
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
        self._end(call, relayed, charge, dollars)
        async with self._settled:
            self._settled.notify_all()

    def note_refused(self, call: LedgerCall, relayed: Relayed) -> None:
        """Record a call that was not made."""
        self._n_refused += 1
        if self._n_refused <= MAX_REFUSALS:
            relayed.outcome = ExchangeOutcome.REFUSED
            call.reserved = nothing()
            self._begin(call)
            self._end(call, relayed, nothing(), 0.0)
        else:
            self._recorder.decline(call.path, relayed.status, relayed.fault)

    def note_replayed(self, call: LedgerCall, relayed: Relayed, dollars: float | None) -> None:
        """Record a call that was answered from a recording: with the recorded counts, and outside the budget."""
        self._begin(call)
        self._end(call, relayed, nothing(), dollars)

    def _estimate(self, call: LedgerCall) -> Charge:
        if call.route.kind is Kind.COUNT:
            return nothing()
        output = call.asked.output_tokens or self._settings.unlisted_output_tokens * call.asked.alternatives
        return self._ledger.estimate(self._settings.model, len(call.body), output)

    def _begin(self, call: LedgerCall) -> None:
        line = Begin(
            id=call.id,
            t=call.t,
            protocol=call.route.protocol,
            kind=call.route.kind.value,
            path=call.path,
            asked_model=call.asked.asked_model,
            model=self._settings.model,
            stream=call.asked.stream,
            request_bytes=len(call.body),
            reserved=call.reserved.tokens,
            reserved_dollars=call.reserved.dollars,
            replay_of=call.replay_of,
        )
        self._recorder.append(line)
        self._recorder.keep_request(call.id, call.body)

    def _end(self, call: LedgerCall, relayed: Relayed, charge: Charge, dollars: float | None) -> None:
        first = relayed.first_byte
        line = End(
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
            first_byte_s=None if first is None else round(first - call.began, 6),
            retries=call.retries,
            fault=relayed.fault,
            content_type=relayed.content_type,
            response_bytes=len(relayed.body),
            cut=relayed.cut,
        )
        self._recorder.end(line, relayed.body)
