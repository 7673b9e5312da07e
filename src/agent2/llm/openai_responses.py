"""OpenAI responses: requests, answers and streams, read and written. A conversation is a list of items."""

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
    cut_in_pieces,
    text_of,
)
from agent2.llm.openai_chat import parse_content, tool_offer
from agent2.llm.records import TokenCounts, WireProtocol
from agent2.llm.untrusted import as_object, as_objects, as_text, index_of
from agent2.llm.usage import openai_counts
from agent2.records import JsonValue

_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")
_DELTAS = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "content",
    "response.reasoning_text.delta": "content",
    "response.reasoning_summary_text.delta": "summary",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}
"""Event with a piece of text -> the field of the item that it belongs to."""


class OpenAiResponses:
    """A `protocols.WireFormat`."""

    protocol = WireProtocol.OPENAI_RESPONSES
    answer_fields: tuple[str, ...] = ("output",)
    event_hints: tuple[bytes, ...] = (b'"usage"', b'"error"', *(f'"{kind}"'.encode() for kind in _LAST_EVENTS))
    limit_fields: tuple[str, ...] = ("max_output_tokens",)
    session_fields = frozenset(
        {"user", "prompt_cache_key", "safety_identifier", "metadata", "client_metadata", "previous_response_id"}
    )
    has_named_events = True
    ends_with_done = False

    def parse_request(self, body: Mapping[str, JsonValue]) -> ChatRequest:
        """The conversation that a request carries."""
        instructions, items = as_text(body.get("instructions")), body.get("input")
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        return ChatRequest(
            messages=(
                *([ChatMessage("system", instructions)] if instructions else ()),
                *map(_parse_item, as_objects(items)),
            ),
            tools=tuple(tool_offer(tool, "parameters") for tool in as_objects(body.get("tools"))),
        )

    def parse_answer(self, body: JsonValue) -> ChatAnswer:
        """A whole answer. Raises ValueError, LookupError or TypeError for what is none."""
        if not isinstance(body["output"], list):
            raise ValueError("its output is not a list")
        parts = tuple(part for item in as_objects(body["output"]) for part in _parse_item(item).parts)
        reason = as_text(as_object(body.get("incomplete_details")).get("reason"))
        return ChatAnswer(parts, reason or as_text(body.get("status")) or None)

    def join_events(self, events: Iterable[Mapping[str, JsonValue]]) -> dict[str, JsonValue]:
        """The whole answer that a stream, or its beginning, brought in pieces."""
        items: dict[int, dict[str, Any]] = {}
        response: dict[str, Any] = {}
        for event in events:
            index, kind, delta = index_of(event, "output_index"), as_text(event.get("type")), event.get("delta")
            response = as_object(event.get("response")) or response
            if kind in ("response.output_item.added", "response.output_item.done"):
                items[index] = as_object(event.get("item"))
            elif kind in _DELTAS and isinstance(delta, str):
                item, name = items.setdefault(index, {}), _DELTAS[kind]
                item[name] = as_text(item.get(name)) + delta
                item.setdefault("type", "reasoning" if "reasoning" in kind else "message")
        return {**response, "output": response.get("output") or [items[index] for index in sorted(items)]}

    def build_answer(self, request: Mapping[str, JsonValue], answer: ChatAnswer) -> dict[str, Any]:
        """The body of a whole answer to a request."""
        return {
            **_head(request, answer),
            "status": "completed",
            "output": [_build_item(part, answer.number) for part in answer.with_ids("call")],
            "usage": _build_usage(answer.tokens or TokenCounts()),
        }

    def build_events(self, request: Mapping[str, JsonValue], answer: ChatAnswer) -> Iterator[dict[str, Any]]:
        """The events of a stream."""
        for number, event in enumerate(self._events(request, answer)):
            yield {**event, "sequence_number": number}

    def usage_in(self, value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """The usage in a whole answer or in one event; empty if there is none."""
        return as_object(as_object(value.get("response")).get("usage") or value.get("usage"))

    def counts(self, usage: Mapping[str, JsonValue]) -> TokenCounts:
        """The counts in it. Raises BadCountError."""
        return openai_counts(usage, "input_tokens", "output_tokens")

    def is_last(self, event: Mapping[str, JsonValue]) -> bool:
        """Whether the stream is whole with this event."""
        return event.get("type") in _LAST_EVENTS

    def _events(self, request: Mapping[str, JsonValue], answer: ChatAnswer) -> Iterator[dict[str, Any]]:
        whole = self.build_answer(request, answer)
        response = {**_head(request, answer), "status": "in_progress", "output": [], "usage": None}
        yield {"type": "response.created", "response": response}
        yield {"type": "response.in_progress", "response": response}
        for index, item in enumerate(whole["output"]):
            position = {"item_id": item["id"], "output_index": index}
            started = {**item, "status": "in_progress"}
            yield {"type": "response.output_item.added", "output_index": index, "item": started}
            if item["type"] == "message":
                for piece in cut_in_pieces(item["content"][0]["text"]):
                    yield {"type": "response.output_text.delta", **position, "content_index": 0, "delta": piece}
            elif item["type"] == "function_call":
                for piece in cut_in_pieces(item["arguments"]):
                    yield {"type": "response.function_call_arguments.delta", **position, "delta": piece}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": "response.completed", "response": whole}


def _parse_item(item: Mapping[str, JsonValue]) -> ChatMessage:
    """One item as a message; one of a kind that is not read has no content."""
    kind, call_id = as_text(item.get("type")), as_text(item.get("call_id"))
    role = as_text(item.get("role")) or ("tool" if "output" in item else "assistant")
    name, written = as_text(item.get("name")), item.get("arguments", item.get("input"))
    if name and isinstance(written, str | dict):
        return ChatMessage(role, (CallPart(name, written, call_id, is_freeform=kind == "custom_tool_call"),))
    if "output" in item:
        return ChatMessage(role, (ResultPart(parse_content(item["output"]), call_id),))
    content = parse_content(item.get("content"))
    if kind == "reasoning":
        texts = (text_of(parse_content(item.get(name))) for name in ("content", "summary"))
        return ChatMessage(role, (ThoughtPart("\n".join(filter(None, texts))),))
    return ChatMessage(role, content)


def _build_item(part: Part, number: int) -> dict[str, Any]:
    match part:
        case CallPart(name):
            named = {"call_id": part.id, "name": name, "status": "completed"}
            suffix = part.id.removeprefix("call_")
            if part.is_freeform:
                return {"type": "custom_tool_call", "id": f"ctc_{suffix}", **named, "input": part.arguments_text}
            return {"type": "function_call", "id": f"fc_{suffix}", **named, "arguments": part.arguments_text}
        case ThoughtPart(text):
            summary = [{"type": "summary_text", "text": text}] if text else []
            return {"type": "reasoning", "id": f"rs_{number}", "summary": summary}
        case TextPart(text):
            content = [{"type": "output_text", "text": text, "annotations": []}]
            item = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
            return {**item, "status": "completed", "content": content}
        case _:
            raise TypeError(f"{part}: not what a model answers with")


def _head(request: Mapping[str, JsonValue], answer: ChatAnswer) -> dict[str, Any]:
    head = {"id": f"resp_{answer.number}", "object": "response", "created_at": 1_700_000_000}
    return {**head, "model": request.get("model")}


def _build_usage(tokens: TokenCounts) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached_input},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.total,
    }
