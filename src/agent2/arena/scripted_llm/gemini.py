"""Gemini generateContent, as a scripted LLM speaks it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent2.arena.scripted_llm.conversation import Conversation, ScriptedReply, Tool, pieces, text_of

Json = dict[str, Any]


def read(body: Mapping[str, Any]) -> Conversation:
    """What a request carries."""
    results: list[str] = []
    told = [text_of(body.get("systemInstruction"))]
    for content in body.get("contents") or []:
        for part in content.get("parts") or []:
            if "functionResponse" in part:
                results.append(text_of(part["functionResponse"].get("response")))
            elif not results:
                told.append(text_of(part.get("text")))
    functions = [f for tool in body.get("tools") or [] for f in tool.get("functionDeclarations") or []]
    return Conversation(
        tools=tuple(Tool(f["name"], _properties(f)) for f in functions), results=tuple(results), told="\n".join(told)
    )


def answer(body: Mapping[str, Any], reply: ScriptedReply) -> Json:
    """The whole answer at once."""
    return _chunk(reply, _parts(body, reply), is_last=True)


def events(body: Mapping[str, Any], reply: ScriptedReply) -> Iterator[Json]:
    """The chunks of a stream; each one tells the usage so far, as with the provider."""
    *first, last = _parts(body, reply)
    for part in first:
        for piece in pieces(part["text"]):
            yield _chunk(reply, [{"text": piece}], is_last=False)
    yield _chunk(reply, [last], is_last=True)


def usage(reply: ScriptedReply) -> Json:
    """Tokens in this protocol's words: candidates leave thoughts out."""
    counted = reply.usage
    return {
        "promptTokenCount": counted.input,
        "cachedContentTokenCount": counted.cached_input,
        "candidatesTokenCount": counted.output - counted.reasoning,
        "thoughtsTokenCount": counted.reasoning,
        "totalTokenCount": counted.input + counted.output,
    }


def _chunk(reply: ScriptedReply, parts: list[Json], *, is_last: bool) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    counted = usage(reply)
    if is_last:
        candidate["finishReason"] = "STOP"
    else:
        counted = {"promptTokenCount": counted["promptTokenCount"], "totalTokenCount": counted["promptTokenCount"]}
    return {
        "candidates": [candidate],
        "usageMetadata": counted,
        "modelVersion": "scripted",
        "responseId": f"r{reply.number}",
    }


def _parts(body: Mapping[str, Any], reply: ScriptedReply) -> list[Json]:
    parts: list[Json] = []
    if reply.say or reply.call is None:
        parts.append({"text": _as_asked(body, reply.say) if reply.call is None else reply.say})
    if reply.call is not None:
        parts.append({"functionCall": {"name": reply.call.tool.name, "args": dict(reply.call.arguments)}})
    return parts


def _as_asked(body: Mapping[str, Any], say: str) -> str:
    """Text, or an object with a value for each key where the request has a schema for its answer."""
    settings = body.get("generationConfig") or {}
    schema = settings.get("responseJsonSchema") or settings.get("responseSchema")
    if not schema:
        return say
    values = {"string": say, "boolean": True, "number": 0, "integer": 0}
    wanted = schema.get("properties") or {}
    return json.dumps({name: values.get(str(kind.get("type", "")).lower(), say) for name, kind in wanted.items()})


def _properties(function: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    schema = function.get("parametersJsonSchema") or function.get("parameters") or {}
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
    return properties
