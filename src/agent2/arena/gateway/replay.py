"""Serves the answers of a recorded trial, without a provider.

What may differ between a request of a trial and the same request of its replay.

A request is laid out as text, field by field, and everything volatile in it is replaced by a word in
angle brackets. Two requests are the same if these texts are. The list is declared here; an agent can add its
own (`volatile` in agent.yaml).

Masked: times, dates, durations; ids (UUIDs, long hexadecimal numbers, the ids that the four protocols give);
paths of temporary folders; loopback ports; process ids; keys of trials. NOT masked: other numbers and other
text. A program that prints a random number to an agent makes the replay differ, and is meant to.

Serves the answers of a recorded trial, without a provider.

A request gets the answer of the first recorded request, in the order of the recording, that is the same after
masking (`Masker`) and was not served yet. A request like none of those is shown as a unified diff, in
`differences.jsonl`, against the next one in order (of those that asked for the same model, if there are any);
then it gets that one's answer or, if the replay is strict, an error. After the last recorded answer there are
only errors.

Does NOT replay what an agent does beside its LLM calls, nor the time that a provider took.
"""

import difflib
import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from agent2.arena.gateway.protocols import WireRoute
from agent2.arena.gateway.recording import Exchange, RecordingError, read_body, read_exchanges
from agent2.arena.gateway.requests import BadRequest, Prepared, read_object
from agent2.arena.gateway.settings import ReplaySettings, WireProtocol
from agent2.errors import ConfigError
from agent2.records import JsonValue, digest_of

VOLATILE_FIELDS: dict[WireProtocol, frozenset[str]] = {
    WireProtocol.OPENAI_CHAT: frozenset({"user", "prompt_cache_key", "safety_identifier", "metadata"}),
    WireProtocol.OPENAI_RESPONSES: frozenset(
        {"user", "prompt_cache_key", "safety_identifier", "metadata", "client_metadata", "previous_response_id"}
    ),
    WireProtocol.ANTHROPIC: frozenset({"metadata"}),
    WireProtocol.GEMINI: frozenset({"labels"}),
}
"""Fields of the top level that identify a session, by protocol; left out."""

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


class Masker:
    """Lays requests out as text that two runs of one agent have in common."""

    def __init__(self, volatile: Iterable[str] = ()):
        """volatile: further regular expressions. Raises ConfigError for one that is none."""
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
            return self.masked(body.decode("utf-8", "replace"))  # a request that no gateway would have passed on
        kept = {name: inner for name, inner in value.items() if name not in VOLATILE_FIELDS[protocol]}
        return self.masked(_laid_out(kept))

    def masked(self, text: str) -> str:
        """The text with everything volatile replaced."""
        for pattern, word in self._patterns:
            text = pattern.sub(word, text)
        return text


def _laid_out(value: JsonValue) -> str:
    """JSON for reading: indented, keys sorted, and the lines of a text on lines of their own."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    return re.sub(r"(?<!\\)((?:\\\\)*)\\n", r"\1\n", text)


MAX_DIFF_LINES = 2_000


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
class _Recorded:
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
            _Recorded(exchange, _digest(self._text_of(exchange)))
            for exchange in read_exchanges(settings.source)
            if exchange.status is not None
        ]
        if not self._recorded:
            raise RecordingError(f"{settings.source}: contains no recorded answer; pass the llm/ folder of a trial")

    def mark_served(self, number: int) -> None:
        """An answer that an earlier process of this trial served."""
        for one in self._recorded:
            one.is_served = one.is_served or one.exchange.id == number

    def play(self, number: int, route: WireRoute, asked: Prepared, body: bytes) -> ReplayedAnswer:
        """What a request gets. number: its exchange in this trial; body: as the agent sent it."""
        text = self._masker.text(route.protocol, body)
        digest = _digest(text)
        waiting = [one for one in self._recorded if not one.is_served and _is_kind(one.exchange, route, asked.stream)]
        same = next((one for one in waiting if one.digest == digest), None)
        if same is not None:
            return self._serve(same)
        if not waiting:
            sentence = "the recording holds no further answer for this request"
            return ReplayedAnswer(
                None, sentence=sentence, difference=RequestDifference(time.time(), number, None, False, text[:2000])
            )
        alike = (one for one in waiting if one.exchange.asked_model == asked.asked_model)
        expected = next(alike, waiting[0])
        diff = self._diff(expected.exchange, text)
        difference = RequestDifference(time.time(), number, expected.exchange.id, not self._settings.strict, diff)
        if self._settings.strict:
            sentence = f"the request differs from recorded exchange {expected.exchange.id} (strict replay)"
            return ReplayedAnswer(None, sentence=sentence, difference=difference)
        served = self._serve(expected)
        return ReplayedAnswer(served.exchange, served.body, difference=difference)

    def _serve(self, recorded: _Recorded) -> ReplayedAnswer:
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
        kept = lines[:MAX_DIFF_LINES] + (
            [f"... {len(lines) - MAX_DIFF_LINES} more lines"] * (len(lines) > MAX_DIFF_LINES)
        )
        return "\n".join(line.rstrip("\n") for line in kept)


def _digest(text: str) -> str:
    return digest_of(text)


def _is_kind(exchange: Exchange, route: WireRoute, stream: bool) -> bool:
    return (exchange.protocol, exchange.kind, exchange.stream) == (route.protocol, route.kind.value, stream)
