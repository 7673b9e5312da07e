"""Writes and reads the `llm/` folder of a trial: every exchange, and what they add up to.

    llm/
      exchanges.jsonl    one line when a call is accepted (its reservation), one when it ends
      bodies/            N.request.zst and N.response.zst, as the agent sent and got them
      differences.jsonl  replay only: requests that were not the recorded ones, as unified diffs

Append-only, one process at a time. The line of an accepted call is with the kernel before the call is made, and the
line of its end only after its bodies are; a kill -9 loses no call. Files are forced to disk every second and on
close, so a power cut loses at most that second. A process that starts cuts a torn last line and closes what a killed
one left open as `lost`: never free, but counted at its reservation.

Keeps secrets out of answers, records and log lines (`Scrubber`). A provider may repeat a key in an error, and a
stream may cut it in two, so a few bytes are held back when they could be the beginning of a secret. Finds a secret in
plain text and as JSON writes it, in no other encoding.
"""

import json
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

import msgspec
import zstandard

from agent2.errors import Agent2Error, Fault
from agent2.foreign_files import MAX_LOG_BYTES, read_limited
from agent2.llm.records import LlmTotals, TokenCounts, WireProtocol

logger = logging.getLogger(__name__)

REDACTED = b"[redacted]"
MIN_LENGTH = 6
"""Shorter secrets would be found everywhere."""
EXCHANGES = "exchanges.jsonl"
BODIES = "bodies"
DIFFERENCES = "differences.jsonl"
LEVEL = 3
"""Of zstd, for bodies."""
SYNC_S = 1.0
"""Between two fsyncs of the record."""
MAX_BODY = 256 * 2**20
"""Bytes of a recorded body; a recording may come from an untrusted source."""


class Scrubber:
    """Replaces secrets in whole texts."""

    def __init__(self, secrets: Iterable[str]):
        forms = {form for secret in secrets for form in (secret, json.dumps(secret)[1:-1])}
        self._secrets = sorted((form.encode() for form in forms if len(form) >= MIN_LENGTH), key=len, reverse=True)

    def clean(self, text: bytes) -> bytes:
        """The text without secrets."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, REDACTED)
        return text

    def held_back(self, text: bytes) -> int:
        """How many bytes at the end could be the beginning of a secret."""
        longest = 0
        for secret in self._secrets:
            # from the first place where the secret may begin without all of it fitting in
            start = text.find(secret[:1], max(0, len(text) - len(secret) + 1))
            while start != -1 and len(text) - start > longest:
                if secret.startswith(text[start:]):
                    longest = len(text) - start
                    break
                start = text.find(secret[:1], start + 1)
        return longest


class StreamScrubber:
    """Replaces secrets in a text that comes in pieces."""

    def __init__(self, scrubber: Scrubber):
        self._scrubber = scrubber
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """What may be passed on."""
        text = self._scrubber.clean(self._held + chunk if self._held else chunk)
        n_held = self._scrubber.held_back(text)
        if not n_held:
            self._held = b""
            return text
        self._held = text[-n_held:]
        return text[:-n_held]

    def end(self) -> bytes:
        """What was held back."""
        held, self._held = self._held, b""
        return held


class ScrubbingFormatter(logging.Formatter):
    """Log lines without secrets, tracebacks included."""

    def __init__(self, scrubber: Scrubber):
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._scrubber = scrubber

    def format(self, record: logging.LogRecord) -> str:
        """The finished line."""
        return self._scrubber.clean(super().format(record).encode("utf-8", "replace")).decode("utf-8", "replace")


class RecordingError(Agent2Error):
    """The record of the LLM calls cannot be written or read."""

    fault = Fault.INFRASTRUCTURE


class CallStarted(msgspec.Struct, tag="begin", tag_field="event", frozen=True):
    """A call was accepted."""

    id: int
    t: float
    protocol: WireProtocol
    kind: str
    path: str
    asked_model: str
    model: str
    stream: bool
    request_bytes: int
    reserved: TokenCounts
    reserved_dollars: float | None
    replay_of: int | None = None
    """The exchange of the recorded trial whose answer is served."""


class CallEnded(msgspec.Struct, tag="end", tag_field="event", frozen=True):
    """A call ended."""

    id: int
    t: float
    outcome: str
    status: int | None
    tokens: TokenCounts
    dollars: float | None
    counted: bool
    charged: TokenCounts
    """What the budget was charged: the estimate, or the reservation of a broken answer, where no usage was reported."""
    charged_dollars: float | None
    latency_s: float
    first_byte_s: float | None
    retries: int
    fault: str
    content_type: str
    response_bytes: int
    cut: bool = False
    """The connection to the agent was broken off, as the provider's was."""
    estimated: bool = False
    """The tokens are our estimate; the provider reported none that can be used."""


class CallLost(msgspec.Struct, tag="lost", tag_field="event", frozen=True):
    """A call of a process that was killed; its cost is its reservation."""

    id: int
    t: float


class ProcessStarted(msgspec.Struct, tag="started", tag_field="event", frozen=True):
    """A process began to serve."""

    t: float
    torn_bytes: int
    """Of a last line that a killed process did not finish."""


class DeclinedExchange(msgspec.Struct, tag="declined", tag_field="event", frozen=True):
    """A request that was no call: unknown path, wrong key, too large, malformed."""

    t: float
    path: str
    status: int
    reason: str


RecordingLine = CallStarted | CallEnded | CallLost | ProcessStarted | DeclinedExchange
_decoder: msgspec.json.Decoder[RecordingLine] = msgspec.json.Decoder(RecordingLine)


def body_path(folder: Path, number: int, side: Literal["request", "response"]) -> Path:
    """The file of a body."""
    return folder / BODIES / f"{number:06d}.{side}.zst"


def read_lines(folder: Path) -> tuple[list[RecordingLine], int]:
    """All lines of a record and how many bytes a torn last line has.

    Raises RecordingError for a damaged line in the middle.
    """
    path = folder / EXCHANGES
    try:
        text = read_limited(path, MAX_LOG_BYTES)
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read ({error.strerror}); restore the file") from error
    whole, _, torn = text.rpartition(b"\n")
    lines: list[RecordingLine] = []
    for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
        try:
            lines.append(_decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RecordingError(f"{path}:{number}: is not a line of a record ({error}); restore the file") from error
    return lines, len(torn)


class ExchangeRecorder:
    """The writer of one `llm/` folder."""

    def __init__(self, folder: Path, scrubber: Scrubber, max_bodies_mib: float):
        """Take over the folder. Raises RecordingError if what is there is damaged or it cannot be written."""
        self._free_bytes = int(max_bodies_mib * 2**20)
        self._folder = folder
        self._scrubber = scrubber
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)  # used by the one writing thread only
        try:
            (folder / BODIES).mkdir(parents=True, exist_ok=True)
            self._free_bytes -= sum(path.stat().st_size for path in (folder / BODIES).iterdir())
            self.lines, torn_bytes = read_lines(folder)
            path = folder / EXCHANGES
            if torn_bytes:
                os.truncate(path, path.stat().st_size - torn_bytes)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RecordingError(f"{folder}: cannot be written ({error.strerror}); make room or fix it") from error
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "llm-bodies")  # one thread: the end of a call is written after its bodies
        self._is_dirty = threading.Event()
        self._is_closed = threading.Event()
        self._syncer = threading.Thread(target=self._sync, name="llm-sync", daemon=True)
        self._n_declined = sum(isinstance(line, DeclinedExchange) for line in self.lines)
        self._record_start(torn_bytes)
        self.last_id = max((line.id for line in self.lines if isinstance(line, CallStarted)), default=0)
        """The number of the latest call."""
        self._syncer.start()

    def next_id(self) -> int:
        """The number of a new call."""
        self.last_id += 1
        return self.last_id

    def append(self, line: RecordingLine) -> None:
        """Write one line. Raises RecordingError if the disk does not take it."""
        self._write(self._file, self._scrubber.clean(msgspec.json.encode(line)) + b"\n")

    def decline(self, path: str, status: int, reason: str) -> None:
        """Record a request that was no call; the first thousand, so that they cannot fill the disk."""
        if self._n_declined < 1000:
            self._n_declined += 1
            self.append(DeclinedExchange(time.time(), path[:200], status, reason[:500]))

    def write_request(self, number: int, body: bytes) -> None:
        """Write a request's body, in the background."""
        self._pool.submit(self._write_body, body_path(self._folder, number, "request"), body)

    def end(self, line: CallEnded, body: bytes) -> None:
        """Write an answer's body and then the line, in the background."""
        self._pool.submit(self._end, line, body)

    def add_difference(self, difference: object) -> None:
        """Append to the differences of a replay."""
        path = self._folder / DIFFERENCES
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._write(file, self._scrubber.clean(msgspec.json.encode(difference)) + b"\n")
        finally:
            os.close(file)

    def close(self) -> None:
        """Write what is waiting, and force it to disk."""
        self._pool.shutdown(wait=True)
        self._is_closed.set()
        self._syncer.join()
        os.fsync(self._file)
        os.close(self._file)

    def _record_start(self, torn_bytes: int) -> None:
        """Record that this process serves from now on, and which calls a killed one left open."""
        opened = {line.id for line in self.lines if isinstance(line, CallStarted)}
        closed = {line.id for line in self.lines if isinstance(line, CallEnded | CallLost)}
        now = time.time()
        new_lines: list[RecordingLine] = [
            ProcessStarted(now, torn_bytes),
            *(CallLost(number, now) for number in sorted(opened - closed)),
        ]
        for line in new_lines:
            self.append(line)
        self.lines += new_lines

    def _end(self, line: CallEnded, body: bytes) -> None:
        self._write_body(body_path(self._folder, line.id, "response"), body)
        try:
            self.append(line)
        except RecordingError:
            # the thread's boundary: the call stays open in the record, and the next process closes it as lost
            logger.exception("the end of call %d is not recorded", line.id)

    def _write_body(self, path: Path, body: bytes) -> None:
        packed = self._compressor.compress(self._scrubber.clean(body))
        if len(packed) > self._free_bytes:
            logger.error("%s is not recorded: there is no room left for bodies", path.name)
            return
        try:
            path.write_bytes(packed)
            self._free_bytes -= len(packed)
        except OSError:
            # the thread's boundary: the count matters more than the body, and a missing body is noticed when read
            logger.exception("%s is not recorded", path.name)

    def _write(self, file: int, data: bytes) -> None:
        """One line whole or not at all: half of one would spoil the next."""
        with self._lock:
            try:
                written = os.write(file, data)
                if written != len(data):
                    os.ftruncate(file, os.fstat(file).st_size - written)
            except OSError as error:
                raise RecordingError(f"{self._folder}: a line could not be written ({error.strerror})") from error
        if written != len(data):
            raise RecordingError(f"{self._folder}: a line could not be written (the disk is full); make room")
        self._is_dirty.set()

    def _sync(self) -> None:
        while not self._is_closed.wait(SYNC_S):
            if self._is_dirty.is_set():
                self._is_dirty.clear()
                try:
                    os.fsync(self._file)
                except OSError:
                    # the thread's boundary: the lines are with the kernel, and the next write will fail as well
                    logger.exception("the record could not be forced to disk")


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


_OUTCOMES = frozenset(outcome.value for outcome in ExchangeOutcome)
_ANSWERED = frozenset({ExchangeOutcome.OK, ExchangeOutcome.PARTIAL})


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
    """The tokens are our estimate, from above: the provider reported none that can be used."""
    content_type: str
    cut: bool
    """The connection to the agent was broken off, as the provider's was."""
    replay_of: int | None
    """In a replay: the exchange of the recorded trial whose answer was served. Nothing was paid then."""
    request: Path | None
    """Body as the agent sent it (zstd); read it with `read_body`."""
    response: Path | None
    """Body as the agent got it (zstd)."""


def read_exchanges(folder: Path) -> list[Exchange]:
    """All exchanges of an `llm/` folder, in the order of acceptance; none if it does not exist.

    Raises RecordingError for a damaged line in the middle or an unknown outcome; a torn last line is left out.
    """
    lines, _ = read_lines(folder)
    started = {line.id: line for line in lines if isinstance(line, CallStarted)}
    ended = {line.id: line for line in lines if isinstance(line, CallEnded)}
    lost = {line.id for line in lines if isinstance(line, CallLost)}
    return [_exchange(folder, started[number], ended.get(number), number in lost) for number in sorted(started)]


def read_body(path: Path) -> bytes:
    """A recorded body. Raises RecordingError if it is missing or damaged."""
    try:
        data = read_limited(path, MAX_BODY)
        # asked of the header first: a recording with a bomb must not be unpacked to find out
        if zstandard.frame_content_size(data) > MAX_BODY:
            raise RecordingError(f"{path}: unpacks to more than {MAX_BODY} bytes, which no gateway writes; restore it")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=MAX_BODY)
    except (OSError, zstandard.ZstdError) as error:
        raise RecordingError(f"{path}: cannot be read ({error}); the recording is not whole") from error


def totals(exchanges: Iterable[Exchange]) -> LlmTotals:
    """Add up the calls that were made; refused ones are only counted."""
    all_exchanges = list(exchanges)
    calls = [exchange for exchange in all_exchanges if exchange.outcome is not ExchangeOutcome.REFUSED]
    n_by = Counter(exchange.outcome for exchange in all_exchanges)
    priced = [call.dollars for call in calls if call.dollars is not None]
    is_known = len(priced) == len(calls) or any(not _is_free(call) and call.dollars is not None for call in calls)
    tokens, by_model = TokenCounts(), dict[str, TokenCounts]()
    for call in calls:
        tokens += call.tokens
        by_model[call.model] = by_model.get(call.model, TokenCounts()) + call.tokens
    return LlmTotals(
        calls=len(calls),
        tokens=tokens,
        dollars=math.fsum(priced) if is_known else None,
        n_unknown_cost=len(calls) - len(priced),
        n_failed=n_by[ExchangeOutcome.FAILED],
        n_partial=n_by[ExchangeOutcome.PARTIAL],
        n_lost=n_by[ExchangeOutcome.LOST] + n_by[ExchangeOutcome.OPEN],
        n_refused=n_by[ExchangeOutcome.REFUSED],
        n_uncounted=sum(not call.counted and not call.estimated and call.outcome in _ANSWERED for call in calls),
        n_estimated=sum(call.estimated for call in calls),
        n_replayed=sum(call.replay_of is not None for call in calls),
        retries=sum(call.retries for call in calls),
        by_model=by_model,
    )


def _is_free(exchange: Exchange) -> bool:
    """Costs nothing whatever the price of the model: its cost says nothing about that of others."""
    return exchange.outcome is ExchangeOutcome.FAILED or exchange.kind == "count"


def _exchange(folder: Path, start: CallStarted, end: CallEnded | None, is_lost: bool) -> Exchange:
    if end is None:
        outcome = ExchangeOutcome.LOST if is_lost else ExchangeOutcome.OPEN
        tokens, dollars = start.reserved, start.reserved_dollars
    else:
        if end.outcome not in _OUTCOMES:
            raise RecordingError(
                f"{folder}: exchange {start.id}: the outcome {end.outcome!r} is unknown; restore the file"
            )
        outcome, tokens, dollars = ExchangeOutcome(end.outcome), end.tokens, end.dollars
    return Exchange(
        id=start.id,
        protocol=start.protocol,
        kind=start.kind,
        path=start.path,
        asked_model=start.asked_model,
        model=start.model,
        stream=start.stream,
        started_at=start.t,
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
        replay_of=start.replay_of,
        request=_existing(body_path(folder, start.id, "request")),
        response=_existing(body_path(folder, start.id, "response")) if end else None,
    )


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None
