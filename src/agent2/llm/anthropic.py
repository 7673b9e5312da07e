"""Anthropic messages: requests, answers and streams, read and written. Content is a text or a list of blocks."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent2.llm.messages import (
    CallPart,
    ChatAnswer,
    ChatMessage,
    ChatRequest,
    Content,
    Part,
    ResultPart,
    TextPart,
    ThoughtPart,
    cut_in_pieces,
    picture_in,
)
from agent2.llm.openai_chat import tool_offer
from agent2.llm.records import TokenCounts, WireProtocol
from agent2.llm.untrusted import as_object, as_objects, as_text, index_of
from agent2.llm.usage import count, optional_count
from agent2.records import JsonValue

_DELTAS = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
}
"""Kind of a block -> its field that a stream brings in pieces, the kind of a piece, and the field of that."""


class AnthropicMessages:
    """A `protocols.WireFormat`."""

    protocol = WireProtocol.ANTHROPIC
    answer_fields: tuple[str, ...] = ("content", "content_block", "delta")
    event_hints: tuple[bytes, ...] = (b'"usage"', b'"message_stop"', b'"error"')
    limit_fields: tuple[str, ...] = ("max_tokens",)
    session_fields = frozenset({"metadata"})
    has_named_events = True
    ends_with_done = False

    def parse_request(self, body: Mapping[str, JsonValue]) -> ChatRequest:
        """The conversation that a request carries."""
        system = _parse_content(body.get("system"))
        tools = as_objects(body.get("tools"))
        return ChatRequest(
            messages=(
                *([ChatMessage("system", system)] if system else ()),
                *(
                    ChatMessage(as_text(message.get("role")) or "assistant", _parse_content(message.get("content")))
                    for message in as_objects(body.get("messages"))
                ),
            ),
            tools=tuple(tool_offer(tool, "input_schema") for tool in tools if "name" in tool),
        )

    def parse_answer(self, body: JsonValue) -> ChatAnswer:
        """A whole answer. Raises ValueError, LookupError or TypeError for what is none."""
        if not isinstance(body["content"], list):
            raise ValueError("its content is not a list")
        return ChatAnswer(_parse_blocks(body["content"]), as_text(body.get("stop_reason")) or None)

    def join_events(self, events: Iterable[Mapping[str, JsonValue]]) -> dict[str, JsonValue]:
        """The whole answer that a stream, or its beginning, brought in pieces."""
        blocks: dict[int, dict[str, Any]] = {}
        stop = None
        for event in events:
            delta, kind = as_object(event.get("delta")), event.get("type")
            if kind == "content_block_start":
                blocks[index_of(event)] = dict(as_object(event.get("content_block")))
            elif kind == "content_block_delta":
                block = blocks.setdefault(index_of(event), {})
                for field, _, piece_field in _DELTAS.values():
                    if as_text(delta.get(piece_field)):
                        block[field] = as_text(block.get(field)) + delta[piece_field]
            stop = as_text(delta.get("stop_reason")) or stop
        return {"content": [blocks[index] for index in sorted(blocks)], "stop_reason": stop}

    def build_answer(self, request: Mapping[str, JsonValue], answer: ChatAnswer) -> dict[str, Any]:
        """The body of a whole answer to a request."""
        return {
            **_head(request, answer),
            "content": [_build_block(part) for part in answer.with_ids("toolu")],
            "stop_reason": _stop(answer),
            "usage": _build_usage(answer.tokens or TokenCounts()),
        }

    def build_events(self, request: Mapping[str, JsonValue], answer: ChatAnswer) -> Iterator[dict[str, Any]]:
        """The events of a stream; the final count of output tokens comes at its end, as with the provider."""
        tokens = answer.tokens or TokenCounts()
        usage = {**_build_usage(tokens), "output_tokens": 1}
        yield {
            "type": "message_start",
            "message": {**_head(request, answer), "content": [], "stop_reason": None, "usage": usage},
        }
        for index, part in enumerate(answer.with_ids("toolu")):
            position, block = {"index": index}, _build_block(part)
            field, kind, piece_field = _DELTAS[block["type"]]
            text = part.arguments_text if isinstance(part, CallPart) else block[field]
            start = {**block, field: {} if field == "input" else ""}
            yield {"type": "content_block_start", **position, "content_block": start}
            for piece in cut_in_pieces(text):
                yield {"type": "content_block_delta", **position, "delta": {"type": kind, piece_field: piece}}
            yield {"type": "content_block_stop", **position}
        yield {
            "type": "message_delta",
            "delta": {"stop_reason": _stop(answer), "stop_sequence": None},
            "usage": {"output_tokens": tokens.output},
        }
        yield {"type": "message_stop"}

    def usage_in(self, value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """The usage in a whole answer or in one event; empty if there is none."""
        return as_object(as_object(value.get("message")).get("usage") or value.get("usage"))

    def counts(self, usage: Mapping[str, JsonValue]) -> TokenCounts:
        """The counts in it. Raises BadCountError."""
        cached = count(usage, "cache_read_input_tokens", default=0)
        written = count(usage, "cache_creation_input_tokens", default=0)
        hour = min(written, optional_count(usage, "cache_creation", "ephemeral_1h_input_tokens"))
        return TokenCounts(
            input=count(usage, "input_tokens", default=0) + cached + written,
            output=count(usage, "output_tokens", default=0),
            cached_input=cached,
            reasoning=optional_count(usage, "output_tokens_details", "thinking_tokens"),
            cache_write=written - hour,
            cache_write_1h=hour,
        )

    def is_last(self, event: Mapping[str, JsonValue]) -> bool:
        """Whether the stream is whole with this event."""
        return event.get("type") == "message_stop"


def _parse_content(value: JsonValue) -> Content:
    return as_text(value) if not isinstance(value, list) else _parse_blocks(value)


def _parse_blocks(blocks: JsonValue) -> tuple[Part, ...]:
    return tuple(part for block in as_objects(blocks) if (part := _parse_block(block)) is not None)


def _parse_block(block: Mapping[str, JsonValue]) -> Part | None:
    """None for a kind of block that is not read: documents, citations."""
    kind, name, arguments = as_text(block.get("type")), as_text(block.get("name")), block.get("input")
    if name and isinstance(arguments, str | dict):  # text: of a stream, whose pieces were joined
        return CallPart(name, arguments, as_text(block.get("id")))
    if kind.endswith("tool_result"):
        return ResultPart(_parse_content(block.get("content")), as_text(block.get("tool_use_id")))
    if kind in ("thinking", "redacted_thinking"):
        return ThoughtPart(as_text(block.get("thinking")))
    if kind == "image":
        source = as_object(block.get("source"))
        return picture_in(as_text(source.get("media_type")), as_text(source.get("data")))
    text = as_text(block.get("text"))
    return TextPart(text) if text else None


def _build_block(part: Part) -> dict[str, Any]:
    match part:
        case CallPart(name, arguments):
            return {"type": "tool_use", "id": part.id, "name": name, "input": arguments}
        case ThoughtPart(text):
            return {"type": "thinking", "thinking": text, "signature": ""}
        case TextPart(text):
            return {"type": "text", "text": text}
        case _:
            raise TypeError(f"{part}: not what a model answers with")


def _head(request: Mapping[str, JsonValue], answer: ChatAnswer) -> dict[str, Any]:
    head = {"id": f"msg_{answer.number}", "type": "message", "role": "assistant"}
    return {**head, "model": request.get("model"), "stop_sequence": None}


def _stop(answer: ChatAnswer) -> str:
    return "tool_use" if answer.calls else "end_turn"


def _build_usage(tokens: TokenCounts) -> dict[str, Any]:
    """Input leaves cached tokens out, and reasoning has no field."""
    return {
        "input_tokens": tokens.input - tokens.cached_input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached_input,
        "output_tokens": tokens.output,
    }
