"""Answers as bytes, whole or as a stream of server-sent events: what the model said, and how many tokens it took.

Usage that says 0 for a text that is there is as good as none: `written_bytes` is then how much text an answer has, for
an estimate that says that it is one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agent2.llm.messages import ChatAnswer
from agent2.llm.protocols import FORMATS
from agent2.llm.records import TokenCounts, WireProtocol
from agent2.llm.untrusted import as_object, decode, decode_or_none
from agent2.llm.usage import BadCountError
from agent2.records import JsonValue

MAX_EVENT = 32 * 1024 * 1024
"""Bytes of one event; more is not an event stream."""
_EVENT_END = re.compile(rb"\n\n|\r\n\r\n")
_DONE = b"[DONE]"
_NO_TEXT = frozenset({"role", "type", "id", "index", "finish_reason", "finishReason", "stop_reason", "status"}) | {
    "call_id", "signature", "thoughtSignature", "encrypted_content", "logprobs", "data", "annotations",
}  # fmt: skip
"""Fields of a content that are not written by the model token by token."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One server-sent event."""

    raw: bytes
    """As it came, the empty line at its end included."""
    data: bytes
    """Its data lines, joined; empty for a comment or a keep-alive."""


class SseSplitter:
    """Cuts a stream of bytes into events; lines may end in LF or CRLF."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def rest(self) -> bytes:
        """Bytes of an event that is not complete yet."""
        return self._rest

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that a further piece completes. Raises ValueError if one grows without an end."""
        buffer = self._rest + chunk if self._rest else chunk
        events = []
        start = 0
        for empty_line in _EVENT_END.finditer(buffer):  # one pass: a whole stream may come at once
            events.append(_parse_event(buffer[start : empty_line.end()]))
            start = empty_line.end()
        self._rest = buffer[start:] if start else buffer
        if len(self._rest) > MAX_EVENT:
            raise ValueError(f"an event of more than {MAX_EVENT} bytes")
        return events


def _parse_event(raw: bytes) -> SseEvent:
    lines = [line[5:].lstrip(b" ") for line in raw.splitlines() if line.startswith(b"data:")]
    return SseEvent(raw, lines[0] if len(lines) == 1 else b"\n".join(lines))


def tokens_of_answer(protocol: WireProtocol, body: bytes) -> TokenCounts | None:
    """The usage in a whole answer; None if it has none that can be used, or is not a JSON object."""
    answer = decode_or_none(body)
    wholes = answer if isinstance(answer, list) else [answer]  # a Gemini stream that was asked for without alt=sse
    reported = [_counts(protocol, FORMATS[protocol].usage_in(as_object(whole))) for whole in wholes]
    return next((tokens for tokens in reversed(reported) if tokens is not None), None)


def _counts(protocol: WireProtocol, usage: Mapping[str, JsonValue]) -> TokenCounts | None:
    """The counts, or None where one that a bill rests on is missing or not a number of tokens."""
    try:
        counts = FORMATS[protocol].counts(usage)
    except BadCountError:
        return None
    return counts if counts.input > 0 else None  # every request has tokens


def parse_body(protocol: WireProtocol, body: bytes) -> ChatAnswer:
    """What the model said in an answer, whole or a stream that may be cut off.

    Raises ValueError, LookupError or TypeError for what is no answer, RecursionError for one that is nested too deep.
    """
    whole = decode_or_none(body)
    if whole is None:
        # with an end of event, should the stream have been cut off
        whole = [decode_or_none(event.data) for event in SseSplitter().feed(body + b"\n\n")]
    if isinstance(whole, list):
        whole = FORMATS[protocol].join_events(as_object(event) for event in whole)
    return FORMATS[protocol].parse_answer(whole)


class StreamMeter:
    """Reads usage and end from the events of one stream."""

    def __init__(self, protocol: WireProtocol):
        self._protocol = protocol
        self._format = FORMATS[protocol]
        self._hints = self._format.event_hints
        self._usage: dict[str, JsonValue] = {}
        self.is_whole = False
        """The protocol's last event came."""
        self.problem = ""
        """One sentence about an event that is malformed or reports an error; the first one."""

    @property
    def tokens(self) -> TokenCounts | None:
        """The usage so far; None if none was reported that can be used."""
        return _counts(self._protocol, self._usage)

    @property
    def is_counted(self) -> bool:
        """The usage is the final one: of a stream that broke off before, only the beginning is known."""
        return self.is_whole and self.tokens is not None

    def feed(self, event: SseEvent) -> bool:
        """Read one event; true if it is one that reports nothing but usage (chat completions)."""
        data = event.data
        if not data:
            return False
        if data == _DONE:
            self.is_whole = True
            return False
        has_hint = any(hint in data for hint in self._hints)
        try:
            value = decode(data)
        except (ValueError, RecursionError) as error:
            self._note(f"an event of the stream is not JSON ({error})")
            return False
        return self._read_fields(value) if has_hint and isinstance(value, dict) else False

    def _read_fields(self, value: Mapping[str, JsonValue]) -> bool:
        kind = value.get("type")
        if value.get("error") is not None and (kind in (None, "error") or self._protocol is WireProtocol.OPENAI_CHAT):
            self._note("the stream contains an error")
        usage = self._format.usage_in(value)
        self._usage.update({name: count for name, count in usage.items() if count is not None})
        self.is_whole = self.is_whole or self._format.is_last(value)
        return self._protocol is WireProtocol.OPENAI_CHAT and bool(usage) and not value.get("choices")

    def _note(self, sentence: str) -> None:
        self.problem = self.problem or sentence


def written_bytes(protocol: WireProtocol, body: bytes, *, is_stream: bool) -> int:
    """Bytes of text that an answer has, reasoning and calls of tools included; 0 if it has none or cannot be read."""
    if not is_stream:
        answer = decode_or_none(body)
        return sum(_content_bytes(protocol, part) for part in (answer if isinstance(answer, list) else [answer]))
    # a stream may bring its text in pieces, as a whole at the end, or both: the larger count is all of it
    pieces = wholes = 0
    for event in SseSplitter().feed(body + b"\n\n"):
        value = decode_or_none(event.data)
        pieces += _content_bytes(protocol, value)
        if protocol is WireProtocol.OPENAI_RESPONSES and isinstance(value, dict):
            if str(value.get("type")).endswith(".delta"):
                pieces += _text_bytes(value.get("delta"))
            wholes = max(wholes, _content_bytes(protocol, value.get("response")))
    return max(pieces, wholes)


def _content_bytes(protocol: WireProtocol, value: JsonValue) -> int:
    if not isinstance(value, dict):
        return 0
    return sum(_text_bytes(value.get(name)) for name in FORMATS[protocol].answer_fields)


def _text_bytes(value: JsonValue) -> int:
    """Bytes of all texts in a value."""
    total, pending = 0, [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            total += len(part.encode("utf-8", "replace"))
        elif isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            pending += [inner for name, inner in part.items() if name not in _NO_TEXT]
    return total
