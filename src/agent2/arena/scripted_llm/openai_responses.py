"""OpenAI responses, as a scripted LLM speaks them."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent2.arena.scripted_llm.conversation import Conversation, ScriptedReply, Tool, pieces, text_of

Json = dict[str, Any]


def read(body: Mapping[str, Any]) -> Conversation:
    """What a request carries."""
    given = body.get("input")
    items = given if isinstance(given, list) else [{"type": "message", "content": given}]
    results = [item for item in items if str(item.get("type", "")).endswith("_call_output")]
    first = items.index(results[0]) if results else len(items)
    return Conversation(
        tools=tuple(_tool(tool) for tool in body.get("tools") or []),
        results=tuple(text_of(item.get("output")) for item in results),
        told="\n".join([text_of(body.get("instructions")), *(text_of(item.get("content")) for item in items[:first])]),
    )


def answer(body: Mapping[str, Any], reply: ScriptedReply) -> Json:
    """The whole answer at once."""
    return {**_head(body, reply), "status": "completed", "output": _items(reply), "usage": usage(reply)}


def events(body: Mapping[str, Any], reply: ScriptedReply) -> Iterator[Json]:
    """The events of a stream."""
    for number, event in enumerate(_events(body, reply)):
        yield {**event, "sequence_number": number}


def usage(reply: ScriptedReply) -> Json:
    """Tokens in this protocol's words."""
    counted = reply.usage
    return {
        "input_tokens": counted.input,
        "input_tokens_details": {"cached_tokens": counted.cached_input},
        "output_tokens": counted.output,
        "output_tokens_details": {"reasoning_tokens": counted.reasoning},
        "total_tokens": counted.input + counted.output,
    }


def _events(body: Mapping[str, Any], reply: ScriptedReply) -> Iterator[Json]:
    begun = {**_head(body, reply), "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(_items(reply)):
        place = {"item_id": item["id"], "output_index": index}
        yield {"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress"}}
        if item["type"] == "message":
            for piece in pieces(reply.say):
                yield {"type": "response.output_text.delta", **place, "content_index": 0, "delta": piece}
        elif item["type"] == "function_call":
            for piece in pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": answer(body, reply)}


def _items(reply: ScriptedReply) -> list[Json]:
    items: list[Json] = []
    if reply.say or reply.call is None:
        content = [{"type": "output_text", "text": reply.say, "annotations": []}]
        items.append(
            {
                "type": "message",
                "id": f"msg_{reply.number}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    if reply.call is not None:
        items.append(_call_item(reply))
    return items


def _call_item(reply: ScriptedReply) -> Json:
    assert reply.call is not None
    call = reply.call
    named = {"call_id": f"call_{reply.number}", "name": call.tool.name, "status": "completed"}
    if call.tool.freeform:
        return {"type": "custom_tool_call", "id": f"ctc_{reply.number}", **named, "input": call.text}
    return {"type": "function_call", "id": f"fc_{reply.number}", **named, "arguments": call.arguments_json}


def _head(body: Mapping[str, Any], reply: ScriptedReply) -> Json:
    return {"id": f"resp_{reply.number}", "object": "response", "created_at": 1_700_000_000, "model": body.get("model")}


def _tool(tool: Mapping[str, Any]) -> Tool:
    kind = str(tool.get("type"))
    properties = (tool.get("parameters") or {}).get("properties") or {}
    return Tool(str(tool.get("name") or kind), properties, freeform=kind == "custom")
