"""Reads an `llm/` folder: every exchange, and what they add up to.

    llm/
      exchanges.jsonl    one line when a call is accepted (its reservation), one when it ends
      bodies/            N.request.zst and N.response.zst, as the agent sent and got them
      differences.jsonl  replay only: requests that were not the recorded ones, as unified diffs

Promises: a torn last line is left out and counted, a call that never ended is `lost`, never free: it stands
at its reservation until somebody knows better.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import zstandard

from agent2.arena.gateway.recording import Begin, End, Lost, RecordingError, body_path, read_lines
from agent2.arena.gateway.settings import TokenCounts, WireProtocol

MAX_BODY = 256 * 2**20
"""Bytes of a recorded body; a recording may come from a stranger."""


class ExchangeOutcome(StrEnum):
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
    kind: str
    """"generate", or "count" for a request that only counts tokens."""
    path: str
    """Without its query."""
    asked_model: str
    """What the agent asked for."""
    model: str
    """What was asked of the provider."""
    stream: bool
    started_at: float
    """Unix seconds."""
    outcome: ExchangeOutcome
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
    estimated: bool
    """The tokens are our estimate, from above: the provider told none that can be used."""
    content_type: str
    cut: bool
    """The connection to the agent was broken off, as the provider's was."""
    replay_of: int | None
    """In a replay: the exchange of the recorded trial whose answer was served. Nothing was paid then."""
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
    """Of the calls whose cost is known; None if there were calls to be paid and the cost of none is known."""
    n_unknown_cost: int
    """Calls that `dollars` leaves out."""
    n_failed: int
    n_partial: int
    n_lost: int
    n_refused: int
    n_uncounted: int
    """Answered calls without usage and without an estimate: their tokens are 0 or partial, and the truth is more."""
    n_replayed: int
    """Served from a recording; their tokens and dollars are the recorded ones, and nothing was paid."""
    retries: int
    n_estimated: int = 0
    """Answered calls for which the provider told no usage that can be used: their tokens are our estimate."""
    by_model: dict[str, TokenCounts] = field(default_factory=dict)
    """By the model that was asked of the provider."""


def read_exchanges(folder: Path) -> list[Exchange]:
    """All exchanges of an `llm/` folder, in the order of acceptance; none if it does not exist.

    Raises RecordingError for a line in the middle that is none, or an outcome that is none; a torn last line is left
    out.
    """
    lines, _ = read_lines(folder)
    begins = {line.id: line for line in lines if isinstance(line, Begin)}
    ends = {line.id: line for line in lines if isinstance(line, End)}
    lost = {line.id for line in lines if isinstance(line, Lost)}
    return [_exchange(folder, begins[number], ends.get(number), number in lost) for number in sorted(begins)]


def read_body(path: Path) -> bytes:
    """A recorded body. Raises RecordingError if it is missing or damaged."""
    try:
        data = path.read_bytes()
        if zstandard.frame_content_size(data) > MAX_BODY:
            raise RecordingError(f"{path}: unpacks to more than {MAX_BODY} bytes, which no gateway writes; restore it")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_BODY)
    except (OSError, zstandard.ZstdError) as error:
        raise RecordingError(f"{path}: cannot be read ({error}); the recording is not whole") from error


def totals(exchanges: Iterable[Exchange]) -> LlmTotals:
    """Add up the calls that were made; refused ones are only counted."""
    known = list(exchanges)
    made = [one for one in known if one.outcome is not ExchangeOutcome.REFUSED]
    n_by = Counter(one.outcome for one in known)
    priced = [one.dollars for one in made if one.dollars is not None]
    is_known = len(priced) == len(made) or any(not _is_free(one) and one.dollars is not None for one in made)
    tokens, by_model = TokenCounts(), dict[str, TokenCounts]()
    for one in made:
        tokens += one.tokens
        by_model[one.model] = by_model.get(one.model, TokenCounts()) + one.tokens
    return LlmTotals(
        calls=len(made),
        tokens=tokens,
        dollars=math.fsum(priced) if is_known else None,
        n_unknown_cost=len(made) - len(priced),
        n_failed=n_by[ExchangeOutcome.FAILED],
        n_partial=n_by[ExchangeOutcome.PARTIAL],
        n_lost=n_by[ExchangeOutcome.LOST] + n_by[ExchangeOutcome.OPEN],
        n_refused=n_by[ExchangeOutcome.REFUSED],
        n_uncounted=sum(not one.counted and not one.estimated and one.outcome in _ANSWERED for one in made),
        n_estimated=sum(one.estimated for one in made),
        n_replayed=sum(one.replay_of is not None for one in made),
        retries=sum(one.retries for one in made),
        by_model=by_model,
    )


def _is_free(exchange: Exchange) -> bool:
    """Costs nothing whatever the price of the model: its cost says nothing about that of others."""
    return exchange.outcome is ExchangeOutcome.FAILED or exchange.kind == "count"


_OUTCOMES = frozenset(outcome.value for outcome in ExchangeOutcome)
_ANSWERED = frozenset({ExchangeOutcome.OK, ExchangeOutcome.PARTIAL})


def _exchange(folder: Path, begin: Begin, end: End | None, is_lost: bool) -> Exchange:
    if end is None:
        outcome = ExchangeOutcome.LOST if is_lost else ExchangeOutcome.OPEN
        tokens, dollars = begin.reserved, begin.reserved_dollars
    else:
        if end.outcome not in _OUTCOMES:
            raise RecordingError(
                f"{folder}: exchange {begin.id}: the outcome {end.outcome!r} is none; restore the file"
            )
        outcome, tokens, dollars = ExchangeOutcome(end.outcome), end.tokens, end.dollars
    return Exchange(
        id=begin.id,
        protocol=begin.protocol,
        kind=begin.kind,
        path=begin.path,
        asked_model=begin.asked_model,
        model=begin.model,
        stream=begin.stream,
        started_at=begin.t,
        outcome=outcome,
        status=end.status if end else None,
        tokens=tokens,
        dollars=dollars,
        latency_s=end.latency_s if end else None,
        first_byte_s=end.first_byte_s if end else None,
        retries=end.retries if end else 0,
        fault=end.fault if end else "the gateway ended before the call did",
        counted=end.counted if end else False,
        estimated=end.estimated if end else False,
        content_type=end.content_type if end else "",
        cut=end.cut if end else False,
        replay_of=begin.replay_of,
        request=_existing(body_path(folder, begin.id, "request")),
        response=_existing(body_path(folder, begin.id, "response")) if end else None,
    )


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None
