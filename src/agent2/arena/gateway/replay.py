"""Serves the answers of a recorded trial, without a provider.

A request gets the answer of the first recorded request, in the order of the recording, that is the same after
masking (see `masking`) and was not served yet. A request like none of those is shown as a unified diff, in
`differences.jsonl`, against the next one in order (of those that asked for the same model, if there are any);
then it gets that one's answer or, if the replay is strict, an error. After the last recorded answer there are
only errors.

Does NOT replay what an agent does beside its LLM calls, nor the time that a provider took.
"""

import difflib
import time
from dataclasses import dataclass

import msgspec

from agent2.arena.gateway.masking import Masker
from agent2.arena.gateway.read import Exchange, read_body, read_exchanges
from agent2.arena.gateway.recording import RecordingError
from agent2.arena.gateway.requests import Prepared
from agent2.arena.gateway.routes import Route
from agent2.arena.gateway.settings import ReplaySettings
from agent2.records import digest_of

MAX_DIFF_LINES = 2_000


class Difference(msgspec.Struct, frozen=True):
    """A request that was not the recorded one."""

    t: float
    id: int
    """The exchange of this trial."""
    expected: int | None
    """The exchange of the recorded trial; None: its recording has ended."""
    served: bool
    """The recorded answer was served all the same."""
    diff: str
    """Unified, recorded to present, of the masked texts."""


@dataclass(frozen=True, slots=True)
class Played:
    """What a request gets."""

    exchange: Exchange | None
    """None: an error."""
    body: bytes = b""
    sentence: str = ""
    difference: Difference | None = None


@dataclass(slots=True)
class _Recorded:
    exchange: Exchange
    digest: str
    is_served: bool = False


class Player:
    """The recorded answers of one trial, and which of them have been served."""

    def __init__(self, settings: ReplaySettings):
        """Read the recording. Raises RecordingError if it holds no answer or a body of it is missing."""
        self._settings = settings
        self._masker = Masker(settings.volatile)
        self._recorded = [
            _Recorded(exchange, self._digest_of(exchange))
            for exchange in read_exchanges(settings.source)
            if exchange.status is not None
        ]
        if not self._recorded:
            raise RecordingError(f"{settings.source}: contains no recorded answer; pass the llm/ folder of a trial")

    def mark_served(self, number: int) -> None:
        """An answer that an earlier process of this trial served."""
        for one in self._recorded:
            one.is_served = one.is_served or one.exchange.id == number

    def play(self, number: int, route: Route, asked: Prepared, body: bytes) -> Played:
        """What a request gets. number: its exchange in this trial; body: as the agent sent it."""
        text = self._masker.text(route.protocol, body)
        digest = _digest(text)
        waiting = [one for one in self._recorded if not one.is_served and _is_kind(one.exchange, route, asked.stream)]
        same = next((one for one in waiting if one.digest == digest), None)
        if same is not None:
            return self._serve(same)
        if not waiting:
            sentence = "the recording holds no further answer for this request"
            return Played(None, sentence=sentence, difference=Difference(time.time(), number, None, False, text[:2000]))
        alike = (one for one in waiting if one.exchange.asked_model == asked.asked_model)
        expected = next(alike, waiting[0])
        diff = self._diff(expected.exchange, text)
        difference = Difference(time.time(), number, expected.exchange.id, not self._settings.strict, diff)
        if self._settings.strict:
            sentence = f"the request differs from recorded exchange {expected.exchange.id} (strict replay)"
            return Played(None, sentence=sentence, difference=difference)
        served = self._serve(expected)
        return Played(served.exchange, served.body, difference=difference)

    def _serve(self, recorded: _Recorded) -> Played:
        recorded.is_served = True
        path = recorded.exchange.response
        if path is None:
            raise RecordingError(f"{self._settings.source}: the answer of exchange {recorded.exchange.id} is missing")
        return Played(recorded.exchange, read_body(path))

    def _digest_of(self, exchange: Exchange) -> str:
        return _digest(self._text_of(exchange))

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
        kept = lines[:MAX_DIFF_LINES] + (
            [f"... {len(lines) - MAX_DIFF_LINES} more lines"] * (len(lines) > MAX_DIFF_LINES)
        )
        return "\n".join(line.rstrip("\n") for line in kept)


def _digest(text: str) -> str:
    return digest_of(text)


def _is_kind(exchange: Exchange, route: Route, stream: bool) -> bool:
    return (exchange.protocol, exchange.kind, exchange.stream) == (route.protocol, route.kind.value, stream)
