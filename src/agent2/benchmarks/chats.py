"""Chats in the fields of data files: what is shown to the model, and the message that it is asked for.

Read are the forms of OpenAI (`role`, `content`, `tool_calls`) and of ShareGPT (`from`, `value`), as lists or as JSON
text; other text is one message of the user. The message that is asked for is the reference, and what follows it is left
out. Calls become the text that worlds read; results of tools are messages of the user, several of them a JSON
list. Does NOT show pictures.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent2.benchmarks.printed_values import parse_printed
from agent2.environments.tools import ToolCall, write_calls
from agent2.environments.tools.calls import read_answer, read_calls
from agent2.llm.untrusted import as_object
from agent2.records import JsonValue

ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
    "ipython": "tool",
    "function_call": "assistant",
    "tool_call": "assistant",
}
"""Role of a message, in any usual spelling -> ours."""
CALLS_AS_TEXT = ("function_call", "tool_call")
"""ShareGPT's roles of a message that is a call."""


@dataclass(frozen=True, slots=True)
class ReadChat:
    """A chat up to the message that is asked for."""

    messages: list[dict[str, str]]
    answer: str | None
    """The message that is asked for, calls as text; None: the chat ends with the user."""
    calls: list[ToolCall]
    """Of that message."""

    @property
    def text(self) -> str:
        """All of it, for a prompt that is read and compared."""
        if len(self.messages) == 1:
            return self.messages[0]["content"]
        return "\n\n".join(f"{message['role']}: {message['content']}" for message in self.messages)


def read_chat(value: object, *, is_answered: bool = False, asks_call: bool = False) -> ReadChat:
    """The chat up to the last message of the assistant, which is asked for.

    is_answered: another field has the answer, so that a chat that ends with the user is shown as a whole.
    asks_call: asked is the last message with calls, where the chat has one.
    Raises ValueError, saying why, for what is no chat.
    """
    parts = [_read_message(message) for message in _messages_in(value)]
    candidates = [index for index, (role, _, _) in enumerate(parts) if role == "assistant"]
    if asks_call:
        candidates = [index for index in candidates if parts[index][2]] or candidates
    end = candidates[-1] if candidates else len(parts)
    if is_answered and parts[-1][0] != "assistant":
        end = len(parts)
    if end == 0:
        raise ValueError("begins with the message that is asked for")
    messages = _merged(parts[:end])
    if messages[-1]["role"] != "user":
        raise ValueError("has no message of the user before the one that is asked for")
    if end == len(parts):
        return ReadChat(messages, None, [])
    _, text, calls = parts[end]
    answer = write_calls(calls) if calls else text
    if not answer.strip():
        raise ValueError("asks for an empty message")
    return ReadChat(messages, answer, calls)


def _messages_in(value: object) -> list[dict[str, Any]]:
    """Raises ValueError."""
    if isinstance(value, str) and value.lstrip()[:1] not in ("[", "{"):
        value = [{"role": "user", "content": value}] if value.strip() else None
    elif isinstance(value, str):
        value = _json_or_none(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):  # as BFCL has it
        value = value[0]
    if not isinstance(value, list) or not value or not all(isinstance(message, dict) for message in value):
        raise ValueError("is not a list of messages")
    return value


def _json_or_none(text: str) -> Any:
    try:
        return parse_printed(text)
    except ValueError:
        return None


def _read_message(message: Mapping[str, Any]) -> tuple[str, str, list[ToolCall]]:
    """Role, text and calls. Raises ValueError."""
    fields = {name: value for name, value in message.items() if value is not None}  # Parquet has all fields in all rows
    name = str(fields.get("role", fields.get("from"))).lower()
    role = ROLES.get(name)
    if role is None:
        raise ValueError(f"has a message with the role {name!r}; known are {', '.join(ROLES)}")
    text = _text_in(fields.get("content", fields.get("value")))
    calls: list[ToolCall] = []
    if role == "assistant":
        try:
            calls = _calls_of(fields, text, is_call=name in CALLS_AS_TEXT)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"has a call that cannot be read ({error})") from error
    return role, text, calls


def _text_in(content: JsonValue) -> str:
    """The text of a message, whole or in blocks; an object, as some tools return it, as JSON. Raises ValueError."""
    if isinstance(content, list):
        texts = [block if isinstance(block, str) else as_object(block).get("text") for block in content]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("has content that is not text, which cannot be shown")
        return "".join(map(str, texts))
    if content is None or isinstance(content, str):
        return content or ""
    return json.dumps(content, ensure_ascii=False)


def _calls_of(fields: Mapping[str, Any], text: str, *, is_call: bool) -> list[ToolCall]:
    """The calls of a message of the assistant, in its own field, as its text, or in tags. Raises ValueError."""
    calls = fields.get("tool_calls") or fields.get("function_call") or (text if is_call else [])
    if calls:
        return read_calls(calls)
    tagged = read_answer(text) if "<tool_call>" in text else None
    if tagged is not None and tagged.problem is not None:
        raise ValueError(tagged.problem)
    return [] if tagged is None else list(tagged.calls)


def _merged(parts: Sequence[tuple[str, str, list[ToolCall]]]) -> list[dict[str, str]]:
    """Messages of system, user and assistant; those of one speaker in a row are one, because templates alternate."""
    messages: list[dict[str, str]] = []
    results: list[str] = []
    for index, (role, text, calls) in enumerate(parts):
        if role == "tool":
            results.append(text)
            if index + 1 < len(parts) and parts[index + 1][0] == "tool":
                continue
            role, text = "user", results[0] if len(results) == 1 else json.dumps(results, ensure_ascii=False)
            results = []
        elif calls:
            text = write_calls(calls)
        if messages and messages[-1]["role"] == role:
            messages[-1] = {"role": role, "content": f"{messages[-1]['content']}\n{text}"}
        else:
            messages.append({"role": role, "content": text})
    return messages


def read_tools(value: object) -> list[dict[str, JsonValue]]:
    """The functions of a row as chat-completion servers take them, from a list with or without `function`.

    Raises ValueError for what is no list of them; it is empty where there are none.
    """
    if isinstance(value, str):
        value = (_json_or_none(value) or value) if value.strip() not in ("", "[]") else []
    tools = [value] if isinstance(value, dict) else [] if value is None else value
    if not isinstance(tools, list):
        raise ValueError("is not a list of functions")
    functions = [as_object(as_object(tool).get("function")) or as_object(tool) for tool in map(_without_nulls, tools)]
    if not all(isinstance(function.get("name"), str) for function in functions):
        raise ValueError("is not a list of functions with a 'name'")
    return [{"type": "function", "function": function} for function in functions]


def _without_nulls(value: JsonValue) -> JsonValue:
    """A schema without fields that are null, because Parquet gives each record the fields of all others."""
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value
