"""The ledger of a trial's LLM calls: budget and record together.

Promises: no call is opened before its reservation is in the record, and every call that was opened is closed
there, or found open by the next process, which charges its reservation. Nothing is awaited between the check of the
budget and the reservation, so concurrent calls cannot reserve the same tokens.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agent2.arena.gateway.answers import Problem
from agent2.arena.gateway.budget import Charge, Ledger, nothing, tokens_in
from agent2.arena.gateway.prices import PriceTable
from agent2.arena.gateway.read import Outcome
from agent2.arena.gateway.recording import Begin, End, Lost, Recorder
from agent2.arena.gateway.relay import Relayed
from agent2.arena.gateway.requests import Prepared
from agent2.arena.gateway.routes import Kind, Route
from agent2.arena.gateway.settings import GatewaySettings, TokenCounts

MAX_REFUSALS = 200
"""Refused calls that are recorded; an agent that never stops asking must not fill the disk."""


@dataclass(slots=True)
class Call:
    """One call of the agent."""

    id: int
    route: Route
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

    problem: Problem
    sentence: str


class CallLedger:
    """Budget and record of one trial."""

    def __init__(self, settings: GatewaySettings, recorder: Recorder, prices: PriceTable):
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

    def new_call(self, route: Route, asked: Prepared, body: bytes, path: str) -> Call:
        """A call with the next number; nothing is recorded yet."""
        return Call(self._recorder.next_id(), route, asked, body, path)

    async def open(self, call: Call, has_left: Callable[[], bool]) -> Refusal | None:
        """Reserve and record; or why not. Waits while only other calls' reservations are in the way.

        has_left: whether the agent has given up waiting.

        Raises RecordingError, with nothing reserved, if the record cannot be written.
        """
        async with self._settled:
            while True:
                charge = self._estimate(call)
                deadline = self._settings.deadline
                if deadline is not None and time.time() >= deadline:
                    return Refusal(Problem.DEADLINE, "the trial's time is over; no further LLM call is made")
                never = self._ledger.refusal(charge, alone=True)
                if never is not None:
                    return Refusal(Problem.BUDGET, never)
                if self._ledger.refusal(charge, alone=False) is None:
                    break
                await self._settled.wait()
                if has_left():
                    return Refusal(Problem.NO_PROVIDER, "the agent gave up before the call could be made")
            call.reserved = charge
            self._begin(call)
            self._ledger.reserve(call.id, charge)
        return None

    async def close(self, call: Call, relayed: Relayed) -> None:
        """Charge what the call cost, and record its end."""
        tokens = relayed.tokens or TokenCounts()
        is_free = relayed.outcome is Outcome.FAILED or call.route.kind is Kind.COUNT
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
            charge = call.reserved  # nobody told: the budget must not take it for nothing
        self._ledger.settle(call.id, charge)
        self._end(call, relayed, charge, dollars)
        async with self._settled:
            self._settled.notify_all()

    def note_refused(self, call: Call, relayed: Relayed) -> None:
        """Record a call that was not made."""
        self._n_refused += 1
        if self._n_refused <= MAX_REFUSALS:
            relayed.outcome = Outcome.REFUSED
            call.reserved = nothing()
            self._begin(call)
            self._end(call, relayed, nothing(), 0.0)
        else:
            self._recorder.decline(call.path, relayed.status, relayed.fault)

    def note_replayed(self, call: Call, relayed: Relayed, dollars: float | None) -> None:
        """Record a call that was answered from a recording: with the recorded counts, and outside the budget."""
        self._begin(call)
        self._end(call, relayed, nothing(), dollars)

    def _estimate(self, call: Call) -> Charge:
        if call.route.kind is Kind.COUNT:
            return nothing()
        output = call.asked.output_tokens or self._settings.unlisted_output_tokens * call.asked.alternatives
        return self._ledger.estimate(self._settings.model, len(call.body), output)

    def _begin(self, call: Call) -> None:
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

    def _end(self, call: Call, relayed: Relayed, charge: Charge, dollars: float | None) -> None:
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
