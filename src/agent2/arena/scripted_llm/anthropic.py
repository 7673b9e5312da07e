"""Anthropic messages, as a scripted LLM speaks them."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent2.arena.scripted_llm.conversation import Conversation, ScriptedReply, Tool, pieces, text_of

Json = dict[str, Any]


def read(body: Mapping[str, Any]) -> Conversation:
    """What a request carries."""
    results: list[str] = []
    told = [text_of(body.get("system"))]
    for message in body.get("messages") or []:
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        for block in blocks:
            if block.get("type") == "tool_result":
                results.append(text_of(block.get("content")))
            elif not results:
                told.append(text_of(block.get("text")))
    tools = [tool for tool in body.get("tools") or [] if "name" in tool]
    return Conversation(
        tools=tuple(Tool(tool["name"], (tool.get("input_schema") or {}).get("properties") or {}) for tool in tools),
        results=tuple(results),
        told="\n".join(told),
    )


def answer(body: Mapping[str, Any], reply: ScriptedReply) -> Json:
    """The whole answer at once."""
    head = _head(body, reply)
    return {**head, "content": _blocks(reply), "stop_reason": _stop(reply), "usage": usage(reply)}


def events(body: Mapping[str, Any], reply: ScriptedReply) -> Iterator[Json]:
    """The events of a stream; the final count of output tokens comes at its end, as with the provider."""
    begun = {**_head(body, reply), "content": [], "stop_reason": None, "usage": {**usage(reply), "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(_blocks(reply)):
        place = {"index": index}
        if block["type"] == "text":
            yield {"type": "content_block_start", **place, "content_block": {"type": "text", "text": ""}}
            for piece in pieces(block["text"]):
                yield {"type": "content_block_delta", **place, "delta": {"type": "text_delta", "text": piece}}
        else:
            assert reply.call is not None
            yield {"type": "content_block_start", **place, "content_block": {**block, "input": {}}}
            for piece in pieces(reply.call.arguments_json):
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield {"type": "content_block_delta", **place, "delta": delta}
        yield {"type": "content_block_stop", **place}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": _stop(reply), "stop_sequence": None},
        "usage": {"output_tokens": reply.usage.output},
    }
    yield {"type": "message_stop"}


def usage(reply: ScriptedReply) -> Json:
    """Tokens in this protocol's words: input tokens leave cached ones out, reasoning is not told apart."""
    counted = reply.usage
    return {
        "input_tokens": counted.input - counted.cached_input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counted.cached_input,
        "output_tokens": counted.output,
    }


def _head(body: Mapping[str, Any], reply: ScriptedReply) -> Json:
    return {
        "id": f"msg_{reply.number}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "stop_sequence": None,
    }


def _blocks(reply: ScriptedReply) -> list[Json]:
    blocks: list[Json] = []
    if reply.say or reply.call is None:
        blocks.append({"type": "text", "text": reply.say})
    if reply.call is not None:
        name, arguments = reply.call.tool.name, dict(reply.call.arguments)
        blocks.append({"type": "tool_use", "id": f"toolu_{reply.number}", "name": name, "input": arguments})
    return blocks


def _stop(reply: ScriptedReply) -> str:
    return "end_turn" if reply.call is None else "tool_use"
