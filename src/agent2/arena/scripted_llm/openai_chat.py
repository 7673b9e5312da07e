"""OpenAI chat completions, as a scripted LLM speaks them."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent2.arena.scripted_llm.conversation import Conversation, ScriptedReply, Tool, pieces, text_of

Json = dict[str, Any]


def read(body: Mapping[str, Any]) -> Conversation:
    """What a request carries."""
    messages = body.get("messages") or []
    functions = [tool["function"] for tool in body.get("tools") or [] if tool.get("type") == "function"]
    first = next((i for i, message in enumerate(messages) if message.get("role") == "tool"), len(messages))
    return Conversation(
        tools=tuple(Tool(f["name"], (f.get("parameters") or {}).get("properties") or {}) for f in functions),
        results=tuple(text_of(m.get("content")) for m in messages if m.get("role") == "tool"),
        told="\n".join(text_of(message.get("content")) for message in messages[:first]),
    )


def answer(body: Mapping[str, Any], reply: ScriptedReply) -> Json:
    """The whole answer at once."""
    message: Json = {"role": "assistant", "content": reply.say}
    if reply.call is not None:
        message["tool_calls"] = [_tool_call(reply)]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}
    return {**_head(body, reply, "chat.completion"), "choices": [choice], "usage": usage(reply)}


def events(body: Mapping[str, Any], reply: ScriptedReply) -> Iterator[Json]:
    """The chunks of a stream; the usage comes only if the request asks for it, as with the provider."""
    head = _head(body, reply, "chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> Json:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(reply.say):
        yield chunk({"content": piece})
    if reply.call is not None:
        call = _tool_call(reply)
        named = {**call, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield chunk({"tool_calls": [{"index": 0, **named}]})
        for piece in pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    yield chunk({}, _finish(reply))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": usage(reply)}


def usage(reply: ScriptedReply) -> Json:
    """Tokens in this protocol's words."""
    counted = reply.usage
    return {
        "prompt_tokens": counted.input,
        "completion_tokens": counted.output,
        "total_tokens": counted.input + counted.output,
        "prompt_tokens_details": {"cached_tokens": counted.cached_input},
        "completion_tokens_details": {"reasoning_tokens": counted.reasoning},
    }


def _head(body: Mapping[str, Any], reply: ScriptedReply, kind: str) -> Json:
    return {"id": f"chatcmpl-{reply.number}", "object": kind, "created": 1_700_000_000, "model": body.get("model")}


def _tool_call(reply: ScriptedReply) -> Json:
    assert reply.call is not None
    function = {"name": reply.call.tool.name, "arguments": reply.call.arguments_json}
    return {"id": f"call_{reply.number}", "type": "function", "function": function}


def _finish(reply: ScriptedReply) -> str:
    return "stop" if reply.call is None else "tool_calls"
