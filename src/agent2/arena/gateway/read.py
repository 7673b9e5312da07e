"""Reads an `llm/` folder: every exchange, and what they add up to.

    llm/
      exchanges.jsonl    one line when a call is accepted (its reservation), one when it ends
      bodies/            N.request.zst and N.response.zst, as the agent sent and got them
      differences.jsonl  replay only: requests that were not the recorded ones, as unified diffs

Promises: a torn last line is left out and counted, a call that never ended is `lost`, never free: it stands
at its reservation until somebody knows better.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from agent2.arena.gateway.settings import TokenCounts, WireProtocol


class Outcome(StrEnum):
    """How an exchange ended."""

    OK = "ok"
    """The provider answered in full."""
    PARTIAL = "partial"
    """The answer broke off or was malformed; tokens are those that were seen."""
    FAILED = "failed"
    """The provider's answer was an error, or there was none."""
    REFUSED = "refused"
    """Never sent: budget or deadline."""
    LOST = "lost"
    """The gateway died in the middle; tokens and dollars are those that were reserved."""
    OPEN = "open"
    """Under way, or the gateway died and was not started again."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call of the agent."""

    id: int
    """From 1, in the order of acceptance."""
    protocol: WireProtocol
    path: str
    """Without its query."""
    asked_model: str
    """What the agent asked for."""
    model: str
    """What was asked of the provider."""
    stream: bool
    started_at: float
    """Unix seconds."""
    outcome: Outcome
    status: int | None
    """HTTP status that the agent got; None if it got none."""
    tokens: TokenCounts
    """LOST and OPEN: the reservation, which is an estimate."""
    dollars: float | None
    """None: unknown price."""
    latency_s: float | None
    """From the accepted request to the last byte; None where there was no end."""
    first_byte_s: float | None
    """From the accepted request to the provider's first byte."""
    retries: int
    fault: str
    """One sentence; empty when nothing went wrong."""
    counted: bool
    """The tokens are the provider's own figures."""
    request: Path | None
    """Body as the agent sent it (zstd); read it with `read_body`."""
    response: Path | None
    """Body as the agent got it (zstd)."""


@dataclass(frozen=True, slots=True)
class LlmTotals:
    """What the calls of a trial add up to."""

    calls: int
    """Accepted ones, refused ones not among them."""
    tokens: TokenCounts
    dollars: float | None
    """Of the calls whose price is known; None if there was a call and the price of none is known."""
    n_unknown_cost: int
    """Calls with tokens, or possibly with tokens, that `dollars` leaves out."""
    n_failed: int
    n_partial: int
    n_lost: int
    n_refused: int
    n_uncounted: int
    """Answered calls for which the provider told no usage: their tokens are 0 or partial, and the truth is more."""
    retries: int
    by_model: dict[str, TokenCounts] = field(default_factory=dict)
    """By the model that was asked of the provider."""


def read_exchanges(folder: Path) -> list[Exchange]:
    """All exchanges of an `llm/` folder, in the order of acceptance; none if it does not exist."""
    raise NotImplementedError


def totals(exchanges: Iterable[Exchange]) -> LlmTotals:
    """Add up."""
    raise NotImplementedError
