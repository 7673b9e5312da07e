"""The four wire protocols: what each path is, the gateway's own answers, and token counts as providers report them.

A path that is not listed is answered with 404: the gateway is no way to the rest of a provider's API. The statuses of
its own answers are chosen by what the agents do with them: 429 and 5xx make all of them try again, so a spent budget is
neither.

What providers leave apart is put together, so that the four protocols mean the same by the same word: input has the
cached tokens in it (Anthropic counts them beside it), output has the reasoning in it (Gemini counts it beside it).
Usage that is not a whole number of tokens, or that says 0 for a text that is there, is as good as none: `written_bytes`
is then how much text an answer has, for an estimate that says that it is one.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeGuard
from urllib.parse import quote, urlsplit

import msgspec

from agent2.llm.records import ProviderEndpoint, TokenCounts, WireProtocol
from agent2.records import JsonValue

_MODEL = r"[^/:]+(?:/[^/:]+)*"
"""A model's name; `org/model` is one, too."""
_GEMINI = re.compile(rf"/(v1(?:beta|alpha)?)/models/({_MODEL}):(generateContent|streamGenerateContent|countTokens)")
_MODELS = re.compile(rf"/v1(beta|alpha)?/models(?:/{_MODEL}(?::[^/:]+)?)?")
_UPSTREAM = {
    WireProtocol.OPENAI_CHAT: "/chat/completions",
    WireProtocol.OPENAI_RESPONSES: "/responses",
    WireProtocol.ANTHROPIC: "/v1/messages",
}
_OPENAI = frozenset({WireProtocol.OPENAI_CHAT, WireProtocol.OPENAI_RESPONSES})
_QUERY = frozenset({"alt", "beta", "api-version"})
"""Parameters that are passed on; `key` would be the dummy."""
_HEADERS = frozenset(
    {
        "accept",
        "anthropic-beta",
        "anthropic-version",
        "content-type",
        "openai-beta",
        "user-agent",
        "x-goog-api-client",
    }
)
"""Headers that are passed on."""
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    502: "api_error",
    503: "api_error",
    504: "timeout_error",
}
_GEMINI_STATUS = {
    400: "FAILED_PRECONDITION",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_SPENT_STATUS = {
    WireProtocol.OPENAI_CHAT: 403,  # clients in Python try 400 again
    WireProtocol.OPENAI_RESPONSES: 400,
    WireProtocol.ANTHROPIC: 402,  # 400 makes Claude Code try other shapes of the same request
    WireProtocol.GEMINI: 400,
}
MAX_EVENT = 32 * 1024 * 1024
"""Bytes of one event; more is not an event stream."""
MAX_COUNT = 10**12
"""A larger number is not taken for a count."""
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
_CONTENT = {
    WireProtocol.OPENAI_CHAT: ("choices",),
    WireProtocol.OPENAI_RESPONSES: ("output",),
    WireProtocol.ANTHROPIC: ("content", "content_block", "delta"),
    WireProtocol.GEMINI: ("candidates",),
}
_NO_TEXT = frozenset({"role", "type", "id", "index", "finish_reason", "finishReason", "stop_reason", "status"}) | {
    "call_id", "signature", "thoughtSignature", "encrypted_content", "logprobs", "data", "annotations",
}  # fmt: skip
"""Fields of a content that are not written by the model token by token."""


class RequestKind(StrEnum):
    """What a request asks for."""

    GENERATE = "generate"
    COUNT = "count"
    """Count the tokens of a request; free of charge."""
    MODELS = "models"
    """Which models there are; answered here."""


@dataclass(frozen=True, slots=True)
class WireRoute:
    """What a path means."""

    protocol: WireProtocol
    kind: RequestKind
    model: str | None = None
    """Where the path names it (Gemini)."""
    stream: bool | None = None
    """Where the path says it (Gemini)."""
    version: str = "v1beta"
    """Where the path says it (Gemini)."""


_POST: Mapping[str, WireRoute] = {
    "/v1/chat/completions": WireRoute(WireProtocol.OPENAI_CHAT, RequestKind.GENERATE),
    "/v1/responses": WireRoute(WireProtocol.OPENAI_RESPONSES, RequestKind.GENERATE),
    "/v1/messages": WireRoute(WireProtocol.ANTHROPIC, RequestKind.GENERATE),
    "/v1/messages/count_tokens": WireRoute(WireProtocol.ANTHROPIC, RequestKind.COUNT),
}


def find_route(method: str, path: str, headers: Mapping[str, str]) -> WireRoute | None:
    """What a request is; None for a path that the gateway does not serve."""
    if method == "POST":
        if path in _POST:
            return _POST[path]
        if match := _GEMINI.fullmatch(path):
            version, model, verb = match.groups()
            kind = RequestKind.COUNT if verb == "countTokens" else RequestKind.GENERATE
            return WireRoute(WireProtocol.GEMINI, kind, model, verb == "streamGenerateContent", version)
    if method in {"GET", "HEAD"} and (match := _MODELS.fullmatch(path)):
        if match.group(1) or "x-goog-api-key" in headers:
            return WireRoute(WireProtocol.GEMINI, RequestKind.MODELS)
        is_anthropic = "anthropic-version" in headers
        return WireRoute(WireProtocol.ANTHROPIC if is_anthropic else WireProtocol.OPENAI_CHAT, RequestKind.MODELS)
    return None


def guess_protocol(path: str, headers: Mapping[str, str]) -> WireProtocol:
    """The protocol in whose shape an error is returned for an unknown path."""
    if "anthropic-version" in headers or "/messages" in path:
        return WireProtocol.ANTHROPIC
    if "x-goog-api-key" in headers or path.startswith(("/v1beta", "/v1alpha")):
        return WireProtocol.GEMINI
    return WireProtocol.OPENAI_RESPONSES if "/responses" in path else WireProtocol.OPENAI_CHAT


def request_key(headers: Mapping[str, str], query: Mapping[str, str]) -> str:
    """The key that a request carries, in whichever way its protocol does."""
    bearer = headers.get("authorization", "")
    if bearer.lower().startswith("bearer "):
        return bearer[7:].strip()
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or query.get("key", "")


def upstream_url(endpoint: ProviderEndpoint, route: WireRoute, model: str, query: Mapping[str, str]) -> str:
    """Where the request goes at the provider."""
    base = endpoint.base_url.rstrip("/")
    if route.protocol in _OPENAI and not urlsplit(base).path:
        base += "/v1"
    if route.protocol is WireProtocol.GEMINI:
        if route.kind is RequestKind.COUNT:
            verb = "countTokens"
        else:
            verb = "streamGenerateContent" if route.stream else "generateContent"
        path = f"/{route.version}/models/{quote(model, safe='/')}:{verb}"
    else:
        path = _UPSTREAM[route.protocol] + ("/count_tokens" if route.kind is RequestKind.COUNT else "")
    passed_on = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items() if name in _QUERY)
    return f"{base}{path}" + (f"?{passed_on}" if passed_on else "")


def upstream_headers(endpoint: ProviderEndpoint, headers: Mapping[str, str]) -> dict[str, str]:
    """What is sent to the provider: a few of the agent's headers, and the real key."""
    sent = {name.lower(): value for name, value in headers.items() if name.lower() in _HEADERS}
    sent["accept-encoding"] = "identity"  # secrets and usage are searched for in plain text
    sent.setdefault("content-type", "application/json")
    key = endpoint.api_key.get_secret_value()
    if key:
        if endpoint.protocol is WireProtocol.ANTHROPIC:
            sent["x-api-key"] = key
            if not (urlsplit(endpoint.base_url).hostname or "").endswith("anthropic.com"):
                sent["authorization"] = f"Bearer {key}"  # other servers that speak the protocol want this header
        elif endpoint.protocol is WireProtocol.GEMINI:
            sent["x-goog-api-key"] = key
        else:
            sent["authorization"] = f"Bearer {key}"
    if endpoint.protocol is WireProtocol.ANTHROPIC:
        sent.setdefault("anthropic-version", "2023-06-01")
    return sent


class ApiProblem(Enum):
    """Why the gateway did not pass a request on."""

    BUDGET = "budget"
    DEADLINE = "deadline"
    BAD_REQUEST = "bad request"
    UNKNOWN_PATH = "unknown path"
    WRONG_KEY = "wrong key"
    TOO_LARGE = "too large"
    NO_ENDPOINT = "no endpoint"
    NO_PROVIDER = "no provider"
    PROVIDER_SLOW = "provider slow"
    NO_RECORD = "no record"
    REPLAY = "replay"


_STATUS = {
    ApiProblem.BAD_REQUEST: 400,
    ApiProblem.UNKNOWN_PATH: 404,
    ApiProblem.WRONG_KEY: 401,
    ApiProblem.TOO_LARGE: 413,
    ApiProblem.NO_ENDPOINT: 400,
    ApiProblem.NO_PROVIDER: 502,
    ApiProblem.PROVIDER_SLOW: 504,
    ApiProblem.NO_RECORD: 503,
    ApiProblem.REPLAY: 400,
}
_SPENT = frozenset({ApiProblem.BUDGET, ApiProblem.DEADLINE})


def status_of(problem: ApiProblem, protocol: WireProtocol) -> int:
    """The HTTP status of a problem.

    What a spent budget is: the one that each protocol's agents take as final (measured with their binaries).
    """
    return _SPENT_STATUS[protocol] if problem in _SPENT else _STATUS[problem]


def error_body(problem: ApiProblem, protocol: WireProtocol, sentence: str) -> dict[str, JsonValue]:
    """The error as the protocol's clients understand it."""
    status = status_of(problem, protocol)
    if protocol is WireProtocol.ANTHROPIC:
        kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": sentence}}
    if protocol is WireProtocol.GEMINI:
        return {"error": {"code": status, "message": sentence, "status": _GEMINI_STATUS[status]}}
    code = "insufficient_quota" if problem in _SPENT else problem.value.replace(" ", "_")
    kind = code if problem in _SPENT else ("server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": sentence, "type": kind, "param": None, "code": code}}


def models_body(protocol: WireProtocol, model: str, is_one: bool) -> dict[str, JsonValue]:
    """The one model that there is; is_one: as the answer for one model, not as a list."""
    if protocol is WireProtocol.GEMINI:
        entry: dict[str, JsonValue] = {
            "name": f"models/{model}",
            "displayName": model,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        }
        return entry if is_one else {"models": [entry]}
    if protocol is WireProtocol.ANTHROPIC:
        entry = {"type": "model", "id": model, "display_name": model, "created_at": "1970-01-01T00:00:00Z"}
        return entry if is_one else {"data": [entry], "has_more": False, "first_id": model, "last_id": model}
    entry = {"id": model, "object": "model", "created": 0, "owned_by": "agent2"}
    return entry if is_one else {"object": "list", "data": [entry], "models": []}


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
        while (end := _end_of_event(buffer, start)) != -1:
            events.append(_parse_event(buffer[start:end]))
            start = end
        self._rest = buffer[start:] if start else buffer
        if len(self._rest) > MAX_EVENT:
            raise ValueError(f"an event of more than {MAX_EVENT} bytes")
        return events


def _end_of_event(buffer: bytes, start: int) -> int:
    """Where the event that begins at `start` ends, or -1."""
    lf = buffer.find(b"\n\n", start)
    crlf = buffer.find(b"\r\n\r\n", start)
    if lf == -1 and crlf == -1:
        return -1
    if crlf == -1 or (lf != -1 and lf < crlf):
        return lf + 2
    return crlf + 4


def _parse_event(raw: bytes) -> SseEvent:
    lines = [line[5:].lstrip(b" ") for line in raw.splitlines() if line.startswith(b"data:")]
    return SseEvent(raw, lines[0] if len(lines) == 1 else b"\n".join(lines))


def tokens_of_answer(protocol: WireProtocol, body: bytes) -> TokenCounts | None:
    """The usage in a whole answer; None if it has none that can be used, or is not a JSON object."""
    answer = _decode_or_none(body)
    if isinstance(answer, list):  # a Gemini stream that was asked for without alt=sse
        reported = [tokens for part in answer if (tokens := _tokens(protocol, part)) is not None]
        return reported[-1] if reported else None
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
        """One sentence about an event that is malformed or reports an error; the first one."""

    @property
    def tokens(self) -> TokenCounts | None:
        """The usage so far; None if none was reported that can be used."""
        return _counts(self._protocol, self._usage) if self._usage else None

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
            value = _decode(data)
        except (ValueError, RecursionError) as error:
            self._note(f"an event of the stream is not JSON ({error})")
            return False
        return self._read_fields(value) if has_hint and isinstance(value, dict) else False

    def _read_fields(self, value: Mapping[str, JsonValue]) -> bool:
        kind = value.get("type")
        if value.get("error") is not None and (kind in (None, "error") or self._protocol is WireProtocol.OPENAI_CHAT):
            self._note("the stream contains an error")
        if kind in _ENDS.get(self._protocol, ()):
            self.is_whole = True
        usage = _usage_of(self._protocol, value)
        if usage is not None:
            self._usage.update({name: count for name, count in usage.items() if count is not None})
        if self._protocol is WireProtocol.GEMINI:
            self.is_whole = self.is_whole or _gemini_ends(value)
        if self._protocol is WireProtocol.OPENAI_CHAT and usage is not None:
            choices = value.get("choices")
            # some servers leave out `data: [DONE]`: the chunk with the usage is their last
            self.is_whole = self.is_whole or not choices or _chat_ends(choices)
            return not choices
        return False

    def _note(self, sentence: str) -> None:
        self.problem = self.problem or sentence


def written_bytes(protocol: WireProtocol, body: bytes, *, is_stream: bool) -> int:
    """Bytes of text that an answer has, reasoning and calls of tools included; 0 if it has none or cannot be read."""
    if not is_stream:
        answer = _decode_or_none(body)
        return sum(_content_bytes(protocol, part) for part in (answer if isinstance(answer, list) else [answer]))
    # a stream may bring its text in pieces, as a whole at the end, or both: the larger count is all of it
    pieces = wholes = 0
    for event in SseSplitter().feed(body + b"\n\n"):
        value = _decode_or_none(event.data)
        pieces += _content_bytes(protocol, value)
        if protocol is WireProtocol.OPENAI_RESPONSES and isinstance(value, dict):
            if str(value.get("type")).endswith(".delta"):
                pieces += _text_bytes(value.get("delta"))
            wholes = max(wholes, _content_bytes(protocol, value.get("response")))
    return max(pieces, wholes)


def _content_bytes(protocol: WireProtocol, value: JsonValue) -> int:
    if not isinstance(value, dict):
        return 0
    return sum(_text_bytes(value.get(name)) for name in _CONTENT[protocol])


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


def _decode_or_none(body: bytes) -> JsonValue:
    try:
        return _decode(body)
    except (ValueError, RecursionError):
        return None  # the caller records the answer as uncounted


def _decode(body: bytes) -> JsonValue:
    """Raises ValueError or RecursionError for what is not JSON."""
    try:
        value: JsonValue = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = json.loads(body)  # accepts a lone surrogate: a stream may cut a character in two
    return value


def _chat_ends(choices: JsonValue) -> bool:
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") for choice in choices
    )


def _gemini_ends(value: Mapping[str, JsonValue]) -> bool:
    candidates = value.get("candidates")
    if isinstance(candidates, list) and any(
        isinstance(candidate, dict) and candidate.get("finishReason") for candidate in candidates
    ):
        return True
    feedback = value.get("promptFeedback")
    return isinstance(feedback, dict) and bool(feedback.get("blockReason"))


def _tokens(protocol: WireProtocol, answer: JsonValue) -> TokenCounts | None:
    usage = _usage_of(protocol, answer) if isinstance(answer, dict) else None
    return None if usage is None else _counts(protocol, usage)


def _usage_of(protocol: WireProtocol, value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue] | None:
    """The mapping with the usage, wherever the protocol puts it."""
    if protocol is WireProtocol.GEMINI:
        usage = value.get("usageMetadata")
    else:
        # the events of a stream wrap the answer: "response.completed", "message_start"
        wrapped = value.get("response") if protocol is WireProtocol.OPENAI_RESPONSES else value.get("message")
        holder = wrapped if isinstance(wrapped, dict) else value
        usage = holder.get("usage") or value.get("usage")
    return usage if isinstance(usage, dict) and usage else None


class _BadCountError(ValueError):
    """What a provider reports as a number of tokens is not one."""


def _counts(protocol: WireProtocol, usage: Mapping[str, JsonValue]) -> TokenCounts | None:
    """The counts, or None where one that a bill rests on is missing or not a number of tokens."""
    try:
        if protocol is WireProtocol.OPENAI_CHAT:
            counts = _openai(usage, "prompt_tokens", "completion_tokens")
        elif protocol is WireProtocol.OPENAI_RESPONSES:
            counts = _openai(usage, "input_tokens", "output_tokens")
        else:
            counts = _anthropic(usage) if protocol is WireProtocol.ANTHROPIC else _gemini(usage)
    except _BadCountError:
        return None
    return counts if counts.input > 0 else None  # every request has tokens


def _openai(usage: Mapping[str, JsonValue], input_name: str, output_name: str) -> TokenCounts:
    total = _count(usage, input_name)
    return TokenCounts(
        input=total,
        output=_count(usage, output_name, default=0),
        cached_input=min(total, _optional_count(usage, f"{input_name}_details", "cached_tokens")),
        reasoning=_optional_count(usage, f"{output_name}_details", "reasoning_tokens"),
        cache_write=min(total, _optional_count(usage, f"{input_name}_details", "cache_write_tokens")),
    )


def _anthropic(usage: Mapping[str, JsonValue]) -> TokenCounts:
    cached = _count(usage, "cache_read_input_tokens", default=0)
    written = _count(usage, "cache_creation_input_tokens", default=0)
    hour = min(written, _optional_count(usage, "cache_creation", "ephemeral_1h_input_tokens"))
    return TokenCounts(
        input=_count(usage, "input_tokens", default=0) + cached + written,
        output=_count(usage, "output_tokens", default=0),
        cached_input=cached,
        reasoning=_optional_count(usage, "output_tokens_details", "thinking_tokens"),
        cache_write=written - hour,
        cache_write_1h=hour,
    )


def _gemini(usage: Mapping[str, JsonValue]) -> TokenCounts:
    thoughts = _count(usage, "thoughtsTokenCount", default=0)
    total = _count(usage, "promptTokenCount") + _count(usage, "toolUsePromptTokenCount", default=0)
    return TokenCounts(
        input=total,
        output=_count(usage, "candidatesTokenCount", default=0) + thoughts,
        cached_input=min(total, _optional_count(usage, "cachedContentTokenCount")),
        reasoning=thoughts,
    )


def _count(usage: Mapping[str, JsonValue], name: str, default: int | None = None) -> int:
    """A number of tokens that a bill rests on. default: if it is missing. Raises _BadCountError."""
    value = usage.get(name)
    if value is None and default is not None:
        return default
    if _is_count(value):
        return int(value)
    raise _BadCountError(name)


def _optional_count(usage: JsonValue, *path: str) -> int:
    """A part of a count, which only makes it cheaper; 0 if it is missing or not a number of tokens."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return int(usage) if _is_count(usage) else 0


def _is_count(value: JsonValue) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= MAX_COUNT and int(value) == value
