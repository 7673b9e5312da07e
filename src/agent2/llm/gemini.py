"""Gemini's generateContent: requests, answers and streams, read and written. Content is a list of parts."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent2.llm.messages import (
    CallPart,
    ChatAnswer,
    ChatMessage,
    ChatRequest,
    Part,
    ResultPart,
    TextPart,
    ThoughtPart,
    ToolOffer,
    compact_json,
    cut_in_pieces,
    picture_in,
)
from agent2.llm.records import TokenCounts, WireProtocol
from agent2.llm.untrusted import as_object, as_objects, as_text, index_of
from agent2.llm.usage import count, optional_count
from agent2.records import JsonValue


class GeminiContent:
    """A `protocols.WireFormat`."""

    protocol = WireProtocol.GEMINI
    answer_fields: tuple[str, ...] = ("candidates",)
    event_hints: tuple[bytes, ...] = (b'"usageMetadata"', b'"finishReason"', b'"blockReason"', b'"error"')
    limit_fields: tuple[str, ...] = ("maxOutputTokens", "max_output_tokens")
    session_fields = frozenset({"labels"})
    has_named_events = False
    ends_with_done = False

    def parse_request(self, body: Mapping[str, JsonValue]) -> ChatRequest:
        """The conversation that a request carries."""
        system = _parse_parts(as_object(body.get("systemInstruction") or body.get("system_instruction")))
        functions = [
            function
            for tool in as_objects(body.get("tools"))
            for function in as_objects(tool.get("functionDeclarations"))
        ]
        settings = as_object(body.get("generationConfig"))
        return ChatRequest(
            messages=(
                *([ChatMessage("system", system)] if system else ()),
                *(
                    ChatMessage(as_text(content.get("role")) or "user", _parse_parts(content))
                    for content in as_objects(body.get("contents"))
                ),
            ),
            tools=tuple(ToolOffer(as_text(function.get("name")), _properties(function)) for function in functions),
            answer_schema=as_object(settings.get("responseJsonSchema") or settings.get("responseSchema")),
        )

    def parse_answer(self, body: JsonValue) -> ChatAnswer:
        """A whole answer. Raises ValueError, LookupError or TypeError for what is none."""
        first, *others = as_objects(body["candidates"])
        alternatives = tuple(_parse_parts(as_object(candidate.get("content"))) for candidate in others)
        stop = as_text(first.get("finishReason")) or None
        return ChatAnswer(_parse_parts(as_object(first.get("content"))), stop, alternatives)

    def join_events(self, events: Iterable[Mapping[str, JsonValue]]) -> dict[str, JsonValue]:
        """The whole answer that a stream, or its beginning, brought in pieces."""
        candidates: dict[int, dict[str, Any]] = {}
        for piece in (candidate for event in events for candidate in as_objects(event.get("candidates"))):
            candidate = candidates.setdefault(index_of(piece), {"content": {"parts": []}})
            candidate["finishReason"] = piece.get("finishReason") or candidate.get("finishReason")
            parts = candidate["content"]["parts"]
            for part in as_objects(as_object(piece.get("content")).get("parts")):
                text = as_text(part.get("text"))
                if text and parts and as_text(parts[-1].get("text")) and _is_thought(part) == _is_thought(parts[-1]):
                    parts[-1]["text"] += text
                else:
                    parts.append(dict(part))
        return {"candidates": [candidates[index] for index in sorted(candidates)]}

    def build_answer(self, request: Mapping[str, JsonValue], answer: ChatAnswer) -> dict[str, Any]:
        """The body of a whole answer to a request."""
        return _build_chunk(answer, [_build_part(part) for part in answer.parts], is_last=True)

    def build_events(self, request: Mapping[str, JsonValue], answer: ChatAnswer) -> Iterator[dict[str, Any]]:
        """The chunks of a stream; each one carries the usage so far, as with the provider."""
        *first, last = [_build_part(part) for part in answer.parts]
        for part in first:
            for piece in cut_in_pieces(part["text"]) if "text" in part else ():
                yield _build_chunk(answer, [{**part, "text": piece}], is_last=False)
            if "text" not in part:
                yield _build_chunk(answer, [part], is_last=False)
        yield _build_chunk(answer, [last], is_last=True)

    def usage_in(self, value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """The usage in a whole answer or in one event; empty if there is none."""
        return as_object(value.get("usageMetadata"))

    def counts(self, usage: Mapping[str, JsonValue]) -> TokenCounts:
        """The counts in it. Raises BadCountError."""
        thoughts = count(usage, "thoughtsTokenCount", default=0)
        total = count(usage, "promptTokenCount") + count(usage, "toolUsePromptTokenCount", default=0)
        return TokenCounts(
            input=total,
            output=count(usage, "candidatesTokenCount", default=0) + thoughts,
            cached_input=min(total, optional_count(usage, "cachedContentTokenCount")),
            reasoning=thoughts,
        )

    def is_last(self, event: Mapping[str, JsonValue]) -> bool:
        """Whether the stream is whole with this event."""
        if any(candidate.get("finishReason") for candidate in as_objects(event.get("candidates"))):
            return True
        return bool(as_object(event.get("promptFeedback")).get("blockReason"))


def _parse_parts(content: Mapping[str, JsonValue]) -> tuple[Part, ...]:
    return tuple(part for value in as_objects(content.get("parts")) if (part := _parse_part(value)) is not None)


def _parse_part(part: Mapping[str, JsonValue]) -> Part | None:
    """None for a kind of part that is not read: files, code that the provider ran."""
    if call := as_object(part.get("functionCall")):
        return CallPart(as_text(call.get("name")), as_object(call.get("args")), as_text(call.get("id")))
    if result := as_object(part.get("functionResponse")):
        return ResultPart(compact_json(result.get("response")), as_text(result.get("id")))
    if picture := as_object(part.get("inlineData")):
        return picture_in(as_text(picture.get("mimeType")), as_text(picture.get("data")))
    text = as_text(part.get("text"))
    if _is_thought(part):
        return ThoughtPart(text)
    return TextPart(text) if text else None


def _is_thought(part: Mapping[str, JsonValue]) -> bool:
    return part.get("thought") is True


def _properties(function: Mapping[str, JsonValue]) -> Mapping[str, Mapping[str, JsonValue]]:
    schema = as_object(function.get("parametersJsonSchema") or function.get("parameters"))
    return as_object(schema.get("properties"))


def _build_part(part: Part) -> dict[str, Any]:
    match part:
        case CallPart(name, arguments):
            return {"functionCall": {"name": name, "args": arguments}}
        case ThoughtPart(text):
            return {"text": text, "thought": True}
        case TextPart(text):
            return {"text": text}
        case _:
            raise TypeError(f"{part}: not what a model answers with")


def _build_chunk(answer: ChatAnswer, parts: list[dict[str, Any]], *, is_last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    usage = _build_usage(answer.tokens or TokenCounts())
    if is_last:
        candidate["finishReason"] = "STOP"
    else:
        usage = {"promptTokenCount": usage["promptTokenCount"], "totalTokenCount": usage["promptTokenCount"]}
    head = {"modelVersion": "scripted", "responseId": f"r{answer.number}"}
    return {"candidates": [candidate], "usageMetadata": usage, **head}


def _build_usage(tokens: TokenCounts) -> dict[str, Any]:
    """Candidates leave thoughts out."""
    return {
        "promptTokenCount": tokens.input,
        "cachedContentTokenCount": tokens.cached_input,
        "candidatesTokenCount": tokens.output - tokens.reasoning,
        "thoughtsTokenCount": tokens.reasoning,
        "totalTokenCount": tokens.total,
    }
