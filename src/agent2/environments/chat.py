"""A chat that somebody wrote: the model gives its next message, in words or as calls of the functions on offer.

The item's payload holds `messages` (role and content, calls of earlier turns as the text that worlds read) and, where
functions are on offer, `tools` (their JSON schemas). They are listed in the system message, and offered natively to a
sampler that does so. Calls are read in every form of `tools.calls`. Nothing is executed: the record of a call has no
result.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from agent2.environments import QuestionEnvironment
from agent2.environments.tools import ParsedMessage
from agent2.environments.tools.calls import read_answer
from agent2.environments.tools.world import CallRecord, ErrorKind
from agent2.records import Item, JsonValue, Message, Step

TOOLS_HEADER = (
    'You may call functions. To call one, answer with a JSON object alone: {"name": NAME, "arguments": {...}}; for '
    "several, with a list of such objects. The functions are:"
)


class ChatEnvironment(QuestionEnvironment):
    """Shows a chat and takes one message."""

    name, version = "chat", "1.0"

    def __init__(self, system: str | None = None) -> None:
        """system: sent where the chat has no system message of its own."""
        super().__init__(system)
        self._has_tools = False
        self._tools: list[dict[str, JsonValue]] = []
        self._calls: list[CallRecord] = []

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The chat up to the message that is asked for. Raises EnvironmentFailed when reused."""
        *opening, _ = super().reset(item, seed)
        chat = [Message(message["role"], message["content"]) for message in item.payload["messages"]]
        if any(message.role == "system" for message in chat):
            opening = []
        self._has_tools = "tools" in item.payload
        self._tools = list(item.payload.get("tools", ()))
        messages = [*opening, *chat]
        if not self._tools:
            return messages
        listed = "\n".join([TOOLS_HEADER, *(json.dumps(tool["function"], ensure_ascii=False) for tool in self._tools)])
        if messages[0].role == "system":
            return [Message("system", f"{messages[0].text}\n\n{listed}"), *messages[1:]]
        return [Message("system", listed), *messages]

    def act(self, action: str) -> Step:
        """Take the message; the episode is over."""
        message = read_answer(action) if self._has_tools else ParsedMessage(answer=action)
        self._calls = [CallRecord(0, call.name, call.arguments, None, None) for call in message.calls]
        if message.problem is not None:
            self._calls = [CallRecord(0, None, {}, None, ErrorKind.MALFORMED_CALL, message.problem)]
        return super().act(action)

    def offered_tools(self) -> list[dict[str, JsonValue]]:
        """Schemas of the functions, for a sampler that offers them natively."""
        return self._tools

    def state(self) -> Mapping[str, JsonValue]:
        """`answer`, and of a chat with functions `tool_calls` and `safety_violations` (none), as tool worlds have."""
        state = super().state()
        if not self._has_tools:
            return state
        return {**state, "tool_calls": [asdict(record) for record in self._calls], "safety_violations": []}
