"""OpenAI chat completions, as most servers speak them: requests, answers and streams, read and written.

Servers that keep a model's thought apart send it as `reasoning_content`, or as `reasoning` (OpenRouter, newer vLLM).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agent2.errors import quoted
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
    ToolOffer,
    compact_json,
    cut_in_pieces,
    picture_in,
    text_of,
)
from agent2.llm.records import TokenCounts, WireProtocol
from agent2.llm.untrusted import as_object, as_objects, as_text, index_of
from agent2.llm.usage import openai_counts
from agent2.records import JsonValue

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
"""Fields of a message whose text a stream brings in pieces."""


class OpenAiChat:
    """A `protocols.WireFormat`."""

    protocol = WireProtocol.OPENAI_CHAT
    answer_fields: tuple[str, ...] = ("choices",)
    event_hints: tuple[bytes, ...] = (b'"usage"', b'"error"')
    limit_fields: tuple[str, ...] = ("max_completion_tokens", "max_tokens")
    session_fields = frozenset({"user", "prompt_cache_key", "safety_identifier", "metadata"})
    has_named_events = False
    ends_with_done = True

    def parse_request(self, body: Mapping[str, JsonValue]) -> ChatRequest:
        """The conversation that a request carries."""
        functions = [as_object(tool.get("function")) for tool in as_objects(body.get("tools"))]
        return ChatRequest(
            messages=tuple(map(parse_message, as_objects(body.get("messages")))),
            tools=tuple(tool_offer(function, "parameters") for function in functions if function),
        )

    def parse_answer(self, body: JsonValue) -> ChatAnswer:
        """A whole answer. Raises ValueError, LookupError or TypeError for what is none."""
        choices = body["choices"]
        first, *others = [_answer_parts(choice["message"]) for choice in choices]
        return ChatAnswer(first, as_text(choices[0].get("finish_reason")) or None, tuple(others))

    def join_events(self, events: Iterable[Mapping[str, JsonValue]]) -> dict[str, JsonValue]:
        """The whole answer that a stream, or its beginning, brought in pieces."""
        choices: dict[int, dict[str, Any]] = {}
        for piece in (choice for event in events for choice in as_objects(event.get("choices"))):
            choice = choices.setdefault(index_of(piece), {"message": {"tool_calls": {}}, "finish_reason": None})
            choice["finish_reason"] = piece.get("finish_reason") or choice["finish_reason"]
            delta, message = as_object(piece.get("delta")), choice["message"]
            for name in _TEXTS:
                if as_text(delta.get(name)):
                    message[name] = message.get(name, "") + delta[name]
            for call_piece in as_objects(delta.get("tool_calls")):
                call = message["tool_calls"].setdefault(index_of(call_piece), {"id": "", "name": "", "arguments": ""})
                function = as_object(call_piece.get("function"))
                call["id"] = call["id"] or as_text(call_piece.get("id"))  # some servers repeat both in each piece
                call["name"] = call["name"] or as_text(function.get("name"))
                call["arguments"] += as_text(function.get("arguments"))
        for choice in choices.values():
            calls = choice["message"]["tool_calls"].values()
            choice["message"]["tool_calls"] = [{"id": call.pop("id"), "function": call} for call in calls]
        return {"choices": [choices[index] for index in sorted(choices)]}

    def build_answer(self, request: Mapping[str, JsonValue], answer: ChatAnswer) -> dict[str, Any]:
        """The body of a whole answer to a request."""
        message = {**build_message(ChatMessage("assistant", answer.with_ids("call"))), "content": answer.text}
        choice = {"index": 0, "message": message, "finish_reason": _finish(answer), "logprobs": None}
        head = _head(request, answer, "chat.completion")
        return {**head, "choices": [choice], "usage": _build_usage(answer.tokens or TokenCounts())}

    def build_events(self, request: Mapping[str, JsonValue], answer: ChatAnswer) -> Iterator[dict[str, Any]]:
        """The chunks of a stream; the usage comes only if the request asks for it, as with the provider."""
        head = _head(request, answer, "chat.completion.chunk")

        def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        message = build_message(ChatMessage("assistant", answer.with_ids("call")))
        yield chunk({"role": "assistant", "content": ""})
        for name in ("reasoning_content", "content"):
            for piece in cut_in_pieces(message.get(name) or ""):
                yield chunk({name: piece})
        for index, call in enumerate(message.get("tool_calls", ())):
            function = call["function"]
            named = {**call, "function": {"name": function["name"], "arguments": ""}}
            yield chunk({"tool_calls": [{"index": index, **named}]})
            for piece in cut_in_pieces(function["arguments"]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, _finish(answer))
        if as_object(request.get("stream_options")).get("include_usage"):
            yield {**head, "choices": [], "usage": _build_usage(answer.tokens or TokenCounts())}

    def usage_in(self, value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """The usage in a whole answer or in one event; empty if there is none."""
        return as_object(value.get("usage"))

    def counts(self, usage: Mapping[str, JsonValue]) -> TokenCounts:
        """The counts in it. Raises BadCountError."""
        return openai_counts(usage, "prompt_tokens", "completion_tokens")

    def is_last(self, event: Mapping[str, JsonValue]) -> bool:
        """Whether the stream is whole with this event."""
        choices = event.get("choices")
        # some servers leave out `data: [DONE]`: the chunk with the usage is their last
        has_ended = not choices or any(choice.get("finish_reason") for choice in as_objects(choices))
        return bool(self.usage_in(event)) and has_ended


def parse_message(message: Mapping[str, JsonValue]) -> ChatMessage:
    """One message of a request or an answer."""
    role = as_text(message.get("role")) or "assistant"
    content = parse_content(message.get("content"))
    if role in ("tool", "function"):
        return ChatMessage(role, (ResultPart(content, as_text(message.get("tool_call_id"))),))
    thought = as_text(message.get("reasoning_content")) or as_text(message.get("reasoning"))
    refusal, calls = as_text(message.get("refusal")), as_objects(message.get("tool_calls"))
    if isinstance(content, str) and not (thought or refusal or calls):
        return ChatMessage(role, content)
    text = ((TextPart(content),) if content else ()) if isinstance(content, str) else content
    return ChatMessage(
        role,
        (
            *([ThoughtPart(thought)] if thought else ()),
            *text,
            *([TextPart(refusal)] if refusal else ()),
            *map(_parse_call, calls),
        ),
    )


def parse_content(value: JsonValue) -> Content:
    """The content of a message, in the forms of both of OpenAI's protocols."""
    if isinstance(value, dict):  # some agents return what a command printed as an object
        return compact_json(value)
    if not isinstance(value, list):
        return as_text(value)
    return tuple(part for block in value if (part := _parse_block(block)) is not None)


def tool_offer(tool: Mapping[str, JsonValue], schema_name: str) -> ToolOffer:
    """A tool on offer. schema_name: the field with its JSON schema."""
    properties = as_object(as_object(tool.get(schema_name)).get("properties"))
    return ToolOffer(as_text(tool.get("name")) or as_text(tool.get("type")), properties, tool.get("type") == "custom")


def _parse_block(block: JsonValue) -> Part | None:
    """None for a kind of content that is not read: sound, files."""
    if isinstance(block, str):
        return TextPart(block)
    block = as_object(block)
    if "image_url" in block:
        url = as_text(block["image_url"]) or as_text(as_object(block["image_url"]).get("url"))
        media_type, _, data = url.removeprefix("data:").partition(";base64,")
        return picture_in(media_type, data)
    if "thinking" in block:
        return ThoughtPart(text_of(parse_content(block["thinking"])))
    text = block.get("text", block.get("refusal"))
    return TextPart(text) if isinstance(text, str) else None


def _parse_call(call: Mapping[str, JsonValue]) -> CallPart:
    function = as_object(call.get("function"))
    arguments = function.get("arguments") or ""
    written = arguments if isinstance(arguments, str | dict) else compact_json(arguments)
    return CallPart(as_text(function.get("name")), written, as_text(call.get("id")))


def _answer_parts(message: JsonValue) -> tuple[Part, ...]:
    """The parts of an answer, of which a wrong one is no empty one. Raises ValueError."""
    if not isinstance(message, dict):
        raise ValueError(f"message {quoted(message)}")
    content, calls = message.get("content"), message.get("tool_calls")
    has_read_blocks = isinstance(content, list) and bool(parse_content(content))
    if not (isinstance(content, str | None) or has_read_blocks):
        raise ValueError(f"content {quoted(content)}")
    if not isinstance(message.get("refusal"), str | None):
        raise ValueError(f"refusal {quoted(message['refusal'])}")
    if calls and (not isinstance(calls, list) or len(as_objects(calls)) < len(calls)):
        raise ValueError(f"tool_calls {quoted(calls)}")
    return tuple(part for part in parse_message(message).parts if part != TextPart(""))


def logprobs_of(choice: Mapping[str, JsonValue]) -> tuple[float, ...] | None:
    """The log-probability of each new token; None if the server sent none, or something else."""
    entries = as_object(choice.get("logprobs")).get("content")
    if not isinstance(entries, list):
        return None
    values = [as_object(entry).get("logprob") for entry in entries]
    if not all(isinstance(value, int | float) and not math.isnan(value) for value in values):
        return None
    return tuple(float(value) for value in values if value is not None)


def likeliest_tokens(choice: Mapping[str, JsonValue]) -> tuple[tuple[str, dict[str, float]], ...] | None:
    """Each new token and the likeliest ones at its position; None if the server sent none, or something else."""
    try:
        tokens = tuple(
            (
                str(entry["token"]),
                {str(candidate["token"]): float(candidate["logprob"]) for candidate in entry["top_logprobs"]},
            )
            for entry in choice["logprobs"]["content"]
        )
    except (LookupError, TypeError, ValueError):
        return None
    return tokens if any(others for _, others in tokens) else None


def build_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Messages as a request carries them: each result of a tool is a message of its own."""
    built: list[dict[str, Any]] = []
    for message in messages:
        results = [part for part in message.parts if isinstance(part, ResultPart)]
        for result in results:
            built.append(
                {"role": "tool", "tool_call_id": result.call_id, "content": ChatMessage("", result.content).text}
            )
        if not results:
            built.append(build_message(message))
    return built


def build_message(message: ChatMessage) -> dict[str, Any]:
    """One message as JSON."""
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    thoughts = [part.text for part in message.parts if isinstance(part, ThoughtPart)]
    calls = [part for part in message.parts if isinstance(part, CallPart)]
    built: dict[str, Any] = {"role": message.role, "content": "\n".join(texts) if texts else None}
    if thoughts:
        built["reasoning_content"] = "\n".join(thoughts)
    if calls:
        built["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_text}}
            for call in calls
        ]
    return built


def _head(request: Mapping[str, JsonValue], answer: ChatAnswer, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer.number}",
        "object": kind,
        "created": 1_700_000_000,
        "model": request.get("model"),
    }


def _finish(answer: ChatAnswer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _build_usage(tokens: TokenCounts) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.total,
        "prompt_tokens_details": {"cached_tokens": tokens.cached_input},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
