"""Logged messages as the opening and the turns of a rollout, thought and answer apart."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from agent2.llm.thoughts import split_thought
from agent2.records import Message, StopReason, Thought, Turn
from agent2.texts import parse_json

THOUGHT_PARTS = frozenset({"reasoning", "thinking"})
"""Types of parts of a message that are no part of its text."""


def conversation_of(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Message], list[Turn]]:
    """Opening messages, then one turn for each assistant message with the observations that follow it."""
    first = next((index for index, message in enumerate(messages) if _is_generated(message)), len(messages))
    opening = [Message(str(message.get("role")), _text(message)) for message in messages[:first]]
    turns: list[Turn] = []
    for message in messages[first:]:
        if message.get("role") == "assistant":
            turns.append(turn_of(_text(message), _thought(message)))
        elif turns:
            last = turns[-1]
            observation = "\n".join(part for part in (last.observation, _text(message)) if part)
            turns[-1] = structs.replace(last, observation=observation)
    return opening, turns


def turn_of(text: str, logged: str = "") -> Turn:
    """A turn of a log, whose thought is apart in the log, or is told apart here."""
    thought, answer = split_thought(text)
    if logged:
        thought = Thought(logged, closing="" if answer.strip() else None)
    return Turn(answer, None, StopReason.END, None, None, thought=msgspec.UNSET if thought is None else thought)


def _thought(message: Mapping[str, Any]) -> str:
    """The thought that a log keeps apart from the text of a message."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str):
        return thought
    content = message.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(str(part.get("reasoning") or part.get(part["type"]) or "") for part in parts if _is_thought(part))


def _is_thought(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in THOUGHT_PARTS


def _is_generated(message: Mapping[str, Any]) -> bool:
    # inspect-ai marks assistant messages that the sample's input contained: they are part of the prompt
    return message.get("role") == "assistant" and message.get("source") != "input"


def _text(message: Mapping[str, Any]) -> str:
    """The text of a message and its tool calls; other content by its type only."""
    return "\n".join(_parts(message))


def _parts(message: Mapping[str, Any]) -> Iterator[str]:
    if message.get("error"):  # first, so that the call is read as one that failed
        kind, text = message["error"].get("type"), message["error"].get("message", "")
        yield f"error: {kind}: {text}" if kind and kind != "unknown" else f"error: {text}"
    content = message.get("content")
    if isinstance(content, str):
        if content:
            yield content
    else:
        for part in content or []:
            if _is_thought(part):
                continue
            yield part.get("text") or f"[{part.get('type')}]"
    for call in message.get("tool_calls") or []:
        yield json.dumps({"tool": call.get("function"), "arguments": call.get("arguments")}, sort_keys=True)


def first_line(text: str) -> str:
    """The first line of an error's text, cut short."""
    return text.strip().split("\n", 1)[0][:300]


def logged_message(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A message in OpenAI's layout, or near it, as `conversation_of` reads it."""
    message: dict[str, Any] = {"role": raw.get("role"), "content": raw.get("content")}
    for name in ("reasoning_content", "reasoning"):
        if isinstance(raw.get(name), str):
            message[name] = raw[name]
    return {**message, "tool_calls": [_call(call) for call in raw.get("tool_calls") or ()]}


def _call(raw: Any) -> dict[str, Any]:
    """A call by its name and arguments; some harnesses log it as JSON in a string."""
    call = parse_json(raw) if isinstance(raw, str) else raw
    function = call["function"] if isinstance(call.get("function"), dict) else call
    name = function.get("name", function.get("function_name"))
    return {"id": call.get("id"), "function": name, "arguments": call_arguments(function.get("arguments"))}


def call_arguments(text: Any) -> Any:
    """Arguments of a call, which are JSON in a string; anything else is returned unchanged."""
    if isinstance(text, str):
        with contextlib.suppress(ValueError, RecursionError):
            return parse_json(text)
    return text
