"""The four wire protocols by name: `openai_chat`, `openai_responses`, `anthropic` and `gemini`, a module each.

Reading is lenient towards a request, which somebody else has to answer, and strict towards an answer: a broken one is
an error, never an empty text. Fields that are not read are left out. Built answers are those of the scripted LLM.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from agent2.llm.anthropic import AnthropicMessages
from agent2.llm.gemini import GeminiContent
from agent2.llm.messages import ChatAnswer, ChatRequest
from agent2.llm.openai_chat import OpenAiChat
from agent2.llm.openai_responses import OpenAiResponses
from agent2.llm.records import TokenCounts, WireProtocol
from agent2.records import JsonValue


class WireFormat(Protocol):
    """How one protocol writes a conversation."""

    protocol: WireProtocol
    answer_fields: tuple[str, ...]
    """Fields of an answer or an event with what the model wrote."""
    event_hints: tuple[bytes, ...]
    """An event of a stream without any of these has no usage, error or end."""
    limit_fields: tuple[str, ...]
    """Fields of a request that limit the tokens of the answer."""
    session_fields: frozenset[str]
    """Fields of a request that identify a session and say nothing to the model."""
    has_named_events: bool
    """Each event of a stream has a line with its type."""
    ends_with_done: bool
    """A stream ends with `data: [DONE]`."""

    def parse_request(self, body: Mapping[str, JsonValue]) -> ChatRequest:
        """The conversation that a request carries."""

    def parse_answer(self, body: JsonValue) -> ChatAnswer:
        """A whole answer. Raises ValueError, LookupError or TypeError for what is none."""

    def join_events(self, events: Iterable[Mapping[str, JsonValue]]) -> dict[str, JsonValue]:
        """The whole answer that a stream, or its beginning, brought in pieces."""

    def build_answer(self, request: Mapping[str, JsonValue], answer: ChatAnswer) -> dict[str, Any]:
        """The body of a whole answer to a request."""

    def build_events(self, request: Mapping[str, JsonValue], answer: ChatAnswer) -> Iterator[dict[str, Any]]:
        """The events of a stream."""

    def usage_in(self, value: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """The usage in a whole answer or in one event; empty if there is none."""

    def counts(self, usage: Mapping[str, JsonValue]) -> TokenCounts:
        """The counts in it. Raises BadCountError."""

    def is_last(self, event: Mapping[str, JsonValue]) -> bool:
        """Whether the stream is whole with this event."""


_FORMATS: tuple[WireFormat, ...] = (OpenAiChat(), OpenAiResponses(), AnthropicMessages(), GeminiContent())
FORMATS: Mapping[WireProtocol, WireFormat] = {wire_format.protocol: wire_format for wire_format in _FORMATS}
