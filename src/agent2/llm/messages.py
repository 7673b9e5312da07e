"""A conversation with an LLM in one form, whichever wire protocol carried it: messages of parts, tools, answers.

Content is a text, or parts: text, thoughts, pictures, calls of tools and their results. Who only wants to read it asks
for `.text`, which joins the text parts; who shows it to people calls `readable`. A picture is a digest, never bytes.

Does NOT hold sampling parameters, logprobs, citations and what else belongs to one request or one provider.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent2.llm.records import TokenCounts
from agent2.records import JsonValue


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text that is meant for the other side."""

    text: str


@dataclass(frozen=True, slots=True)
class ThoughtPart:
    """What the model wrote before its answer, where the server keeps the two apart (reasoning, thinking)."""

    text: str
    """Empty: the server says that the model thought, and keeps the thought to itself."""


@dataclass(frozen=True, slots=True)
class PicturePart:
    """A picture."""

    digest: str
    """SHA-256 of its bytes."""
    media_type: str


@dataclass(frozen=True, slots=True)
class CallPart:
    """A call of a tool by the model."""

    name: str
    arguments: str | Mapping[str, JsonValue]
    """As the protocol carries them: JSON as text, which a model may have got wrong, or values."""
    id: str = ""
    is_freeform: bool = False
    """The tool takes program text instead of named arguments."""

    @property
    def arguments_text(self) -> str:
        """The arguments as text, JSON unless the tool is freeform or the model wrote something else."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class ResultPart:
    """What a tool returned."""

    content: "Content"
    call_id: str = ""


Part = TextPart | ThoughtPart | PicturePart | CallPart | ResultPart
Content = str | tuple[Part, ...]
"""A text, or parts in their order."""


def text_of(content: Content) -> str:
    """The text parts of a content, one below the other."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def readable(content: Content) -> str:
    """All of a content for a person to read, thoughts, calls as `name(arguments)` and results included."""
    if isinstance(content, str):
        return content
    return "\n".join(text for part in content if (text := _readable_part(part)))


def _readable_part(part: Part) -> str:
    match part:
        case TextPart(text) | ThoughtPart(text):
            return text
        case ResultPart(content):
            return readable(content)
        case PicturePart(digest, media_type):
            return f"[picture, {media_type}, SHA-256 {digest[:12]}]"
        case CallPart(name):
            arguments = part.arguments
            return f"{name}({arguments if isinstance(arguments, str) else compact_json(arguments)})"


def picture_in(media_type: str, data: str) -> PicturePart | None:
    """A picture that a message carries; None for an address or what is not base64, which are the server's affair."""
    try:
        picture = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    return PicturePart(hashlib.sha256(picture).hexdigest(), media_type) if picture else None


def cut_in_pieces(text: str, n: int = 3) -> list[str]:
    """A text cut into about n parts, to be streamed."""
    size = max(1, -(-len(text) // n))
    return [text[start : start + size] for start in range(0, len(text), size)]


def compact_json(value: JsonValue) -> str:
    """JSON without spaces, as transcripts show arguments and results."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation."""

    role: str
    """As the protocol calls it: user, assistant, model, tool, ..."""
    content: Content

    @property
    def text(self) -> str:
        """Its text parts, one below the other."""
        return text_of(self.content)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as parts."""
        return (TextPart(self.content),) if isinstance(self.content, str) else self.content


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool that a request offers to the model."""

    name: str
    properties: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """Parameter -> its JSON schema."""
    is_freeform: bool = False
    """Takes program text instead of parameters."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a request sends: the conversation so far, instructions first, and the tools on offer."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolOffer, ...] = ()
    answer_schema: Mapping[str, JsonValue] = field(default_factory=dict)
    """JSON schema that the answer must follow; empty: none. Read from Gemini requests only."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What the model answered."""

    parts: tuple[Part, ...]
    stop: str | None = None
    """Why it ended, in the protocol's own word."""
    alternatives: tuple[tuple[Part, ...], ...] = ()
    """Further answers, where several were requested at once."""
    tokens: TokenCounts | None = None
    """Set by who builds an answer; `streams.tokens_of_answer` reads them."""
    number: int = 0
    """In the ids of a built answer, so that they differ from those of other answers."""

    @property
    def text(self) -> str:
        """Its text parts, one below the other."""
        return text_of(self.parts)

    @property
    def calls(self) -> Sequence[CallPart]:
        """The tools that it calls."""
        return [part for part in self.parts if isinstance(part, CallPart)]

    def with_ids(self, prefix: str) -> tuple[Part, ...]:
        """The parts; calls without an id get one from the answer's number, and their place beyond the first."""
        parts, n_calls = list(self.parts), 0
        for place, part in enumerate(parts):
            if isinstance(part, CallPart):
                name = f"{prefix}_{self.number}" + (f"_{n_calls}" if n_calls else "")
                parts[place], n_calls = replace(part, id=part.id or name), n_calls + 1
        return tuple(parts)
