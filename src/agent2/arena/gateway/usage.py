"""Token counts as providers tell them, in whole answers and in streams, and whether an answer is whole.

What providers leave apart is put together, so that the four protocols mean the same by the same word: input
has the cached tokens in it (Anthropic counts them beside it), output has the reasoning in it (Gemini counts
it beside it). A count that a provider does not tell is not guessed.
"""

from collections.abc import Mapping

import msgspec

from agent2.arena.gateway.settings import TokenCounts, WireProtocol
from agent2.arena.gateway.sse import Event
from agent2.records import JsonValue

MAX_COUNT = 10**12
"""A larger count is none."""
_DONE = b"[DONE]"
_ENDS = {
    WireProtocol.OPENAI_RESPONSES: ("response.completed", "response.incomplete", "response.failed"),
    WireProtocol.ANTHROPIC: ("message_stop",),
}
_RESPONSES_ENDS = tuple(f'"{end}"'.encode() for end in _ENDS[WireProtocol.OPENAI_RESPONSES])
_HINTS = {
    WireProtocol.OPENAI_CHAT: (b'"usage"', b'"error"'),
    WireProtocol.OPENAI_RESPONSES: (b'"usage"', b'"error"', *_RESPONSES_ENDS),
    WireProtocol.ANTHROPIC: (b'"usage"', b'"message_stop"', b'"error"'),
    WireProtocol.GEMINI: (b'"usageMetadata"', b'"finishReason"', b'"blockReason"', b'"error"'),
}
"""An event without any of these is only checked for being JSON."""


def tokens_of_answer(protocol: WireProtocol, body: bytes) -> TokenCounts | None:
    """The usage in a whole answer; None if it tells none or is no JSON object."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # the caller records the answer as uncounted
    if isinstance(answer, list):  # a Gemini stream that was asked for without alt=sse
        found = [tokens for part in answer if (tokens := _tokens(protocol, part)) is not None]
        return found[-1] if found else None
    return _tokens(protocol, answer)


class StreamMeter:
    """Reads usage and end from the events of one stream."""

    def __init__(self, protocol: WireProtocol):
        self._protocol = protocol
        self._hints = _HINTS[protocol]
        self._usage: dict[str, JsonValue] = {}
        self.is_whole = False
        """The protocol's last event came."""
        self.problem = ""
        """One sentence about an event that is malformed or tells an error; the first one."""

    @property
    def tokens(self) -> TokenCounts | None:
        """The usage so far; None if none was told."""
        return _counts(self._protocol, self._usage) if self._usage else None

    @property
    def is_counted(self) -> bool:
        """The usage is the final one: of a stream that broke off before, only the beginning is known."""
        return bool(self._usage) and self.is_whole

    def feed(self, event: Event) -> bool:
        """Read one event; true if it is one that tells nothing but usage (chat completions)."""
        data = event.data
        if not data:
            return False
        if data == _DONE:
            self.is_whole = True
            return False
        has_hint = any(hint in data for hint in self._hints)
        try:
            value = msgspec.json.decode(data) if has_hint else msgspec.json.decode(data, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._note(f"an event of the stream is no JSON ({error})")
            return False
        return self._read(value) if has_hint and isinstance(value, dict) else False

    def _read(self, value: Mapping[str, JsonValue]) -> bool:
        kind = value.get("type")
        if value.get("error") is not None and (kind in (None, "error") or self._protocol is WireProtocol.OPENAI_CHAT):
            self._note("the stream tells an error")
        if kind in _ENDS.get(self._protocol, ()):
            self.is_whole = True
        usage = _usage_of(self._protocol, value)
        if usage is not None:
            self._usage.update({name: count for name, count in usage.items() if count is not None})
        if self._protocol is WireProtocol.GEMINI:
            self.is_whole = self.is_whole or _gemini_ends(value)
        if self._protocol is WireProtocol.OPENAI_CHAT and usage is not None:
            self.is_whole = True  # some servers leave out the line that says so
            return not value.get("choices")
        return False

    def _note(self, sentence: str) -> None:
        self.problem = self.problem or sentence


def _gemini_ends(value: Mapping[str, JsonValue]) -> bool:
    candidates = value.get("candidates")
    if isinstance(candidates, list) and any(isinstance(one, dict) and one.get("finishReason") for one in candidates):
        return True
    feedback = value.get("promptFeedback")
    return isinstance(feedback, dict) and bool(feedback.get("blockReason"))


def _tokens(protocol: WireProtocol, answer: JsonValue) -> TokenCounts | None:
    usage = _usage_of(protocol, answer) if isinstance(answer, dict) else None
    return None if usage is None else _counts(protocol, usage)


def _usage_of(protocol: WireProtocol, value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue] | None:
    """The mapping that tells the usage, wherever the protocol puts it."""
    if protocol is WireProtocol.GEMINI:
        found = value.get("usageMetadata")
    else:
        wrapped = value.get("response") if protocol is WireProtocol.OPENAI_RESPONSES else value.get("message")
        holder = wrapped if isinstance(wrapped, dict) else value
        found = holder.get("usage") or value.get("usage")
    return found if isinstance(found, dict) and found else None


def _counts(protocol: WireProtocol, usage: Mapping[str, JsonValue]) -> TokenCounts:
    if protocol is WireProtocol.OPENAI_CHAT:
        return _openai(usage, "prompt_tokens", "completion_tokens")
    if protocol is WireProtocol.OPENAI_RESPONSES:
        return _openai(usage, "input_tokens", "output_tokens")
    return _anthropic(usage) if protocol is WireProtocol.ANTHROPIC else _gemini(usage)


def _openai(usage: Mapping[str, JsonValue], read: str, written: str) -> TokenCounts:
    return TokenCounts(
        input=_count(usage, read),
        output=_count(usage, written),
        cached_input=_count(usage, f"{read}_details", "cached_tokens"),
        reasoning=_count(usage, f"{written}_details", "reasoning_tokens"),
        cache_write=_count(usage, f"{read}_details", "cache_write_tokens"),
    )


def _anthropic(usage: Mapping[str, JsonValue]) -> TokenCounts:
    cached = _count(usage, "cache_read_input_tokens")
    written = _count(usage, "cache_creation_input_tokens")
    hour = min(written, _count(usage, "cache_creation", "ephemeral_1h_input_tokens"))
    return TokenCounts(
        input=_count(usage, "input_tokens") + cached + written,
        output=_count(usage, "output_tokens"),
        cached_input=cached,
        reasoning=_count(usage, "output_tokens_details", "thinking_tokens"),
        cache_write=written - hour,
        cache_write_1h=hour,
    )


def _gemini(usage: Mapping[str, JsonValue]) -> TokenCounts:
    thoughts = _count(usage, "thoughtsTokenCount")
    return TokenCounts(
        input=_count(usage, "promptTokenCount") + _count(usage, "toolUsePromptTokenCount"),
        output=_count(usage, "candidatesTokenCount") + thoughts,
        cached_input=_count(usage, "cachedContentTokenCount"),
        reasoning=thoughts,
    )


def _count(usage: JsonValue, *path: str) -> int:
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    is_count = isinstance(usage, int) and not isinstance(usage, bool) and 0 <= usage <= MAX_COUNT
    return int(usage) if is_count else 0
