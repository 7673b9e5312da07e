"""What may differ between a request of a trial and the same request of its replay.

A request is laid out as text, field by field, and everything volatile in it is replaced by a word in
angle brackets. Two requests are the same if these texts are. The list is declared here; an agent can add its
own (`volatile` in agent.yaml).

Masked: times, dates, durations; ids (UUIDs, long hexadecimal numbers, the ids that the four protocols give);
paths of temporary folders; loopback ports; process ids; keys of trials. NOT masked: other numbers and other
text. A program that prints a random number to an agent makes the replay differ, and is meant to.
"""

import json
import re
from collections.abc import Iterable

from agent2.arena.gateway.hosted_tools import BadRequest
from agent2.arena.gateway.requests import read_object
from agent2.arena.gateway.settings import WireProtocol
from agent2.errors import ConfigError
from agent2.records import JsonValue

VOLATILE_FIELDS: dict[WireProtocol, frozenset[str]] = {
    WireProtocol.OPENAI_CHAT: frozenset({"user", "prompt_cache_key", "safety_identifier", "metadata"}),
    WireProtocol.OPENAI_RESPONSES: frozenset(
        {"user", "prompt_cache_key", "safety_identifier", "metadata", "client_metadata", "previous_response_id"}
    ),
    WireProtocol.ANTHROPIC: frozenset({"metadata"}),
    WireProtocol.GEMINI: frozenset({"labels"}),
}
"""Fields of the top level that identify a session, by protocol; left out."""

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"
VOLATILE_TEXT: tuple[tuple[str, str], ...] = (
    (r"sk-agent2-[0-9a-f]+", "<key>"),
    (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<uuid>"),
    (r"\b(?:call|toolu|msg|resp|rs|fc|ctc|chatcmpl|item|req|run|gen|sess|session|thread)[-_][A-Za-z0-9_-]{6,}", "<id>"),
    (r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)?(?: ?(?:Z|UTC|[+-]\d{2}:?\d{2}))?", "<time>"),
    (rf"\b{_DAY},? +(?:{_MONTH} +\d{{1,2}}|\d{{1,2}} +{_MONTH})(?:,? +\d{{4}})?", "<time>"),
    (rf"\b(?:{_MONTH} +\d{{1,2}},? +\d{{4}}|\d{{1,2}} +{_MONTH} +\d{{4}})\b", "<time>"),
    (rf"\b{_MONTH} +\d{{1,2}} +(?=\d{{2}}:\d{{2}})", "<time> "),
    (r"\b\d{1,2}/\d{1,2}/\d{4}\b", "<time>"),
    (r"\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?(?: ?[AP]M)?\b", "<time>"),
    (r"(?<![\d:])\d{1,2}:\d{2}(?=\b[^:\d]|$)(?: ?[AP]M)?", "<time>"),
    (r"\b1[6-9]\d{8}(?:\.\d+|\d{3})?\b", "<time>"),
    (r"\b\d+(?:\.\d+)?(?:e-?\d+)? ?(?:ms|µs|us|s|secs?|seconds?|min|minutes?)\b", "<duration>"),
    (r"\b\d+(?:\.\d+)? ?(?:it|steps?|samples?|items?|tokens?|batch(?:es)?)/s(?:ec(?:ond)?)?\b", "<speed>"),
    (r"\b\d+(?:\.\d+)?s/(?:it|step|sample|item|batch)\b", "<speed>"),
    (
        r"(?<='|\")((?:train|eval)_(?:runtime|samples_per_second|steps_per_second))(['\"\\]+: *['\"\\]*)[\d.]+",
        r"\1\2<speed>",
    ),
    (r"(?:/var)?/tmp/[^\s\"'`\\,;:)\]}]+", "<temporary>"),
    (r"\b(127\.0\.0\.1|localhost):\d+", r"\1:<port>"),
    (r"\b([Pp][Ii][Dd]|process id)([ :=]+)\d+", r"\1\2<pid>"),
    (r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b", "<hex>"),
)
"""Regular expression -> what stands in its place, in this order."""


class Masker:
    """Lays requests out as text that two runs of one agent have in common."""

    def __init__(self, volatile: Iterable[str] = ()):
        """volatile: further regular expressions. Raises ConfigError for one that is none."""
        self._patterns = []
        for pattern in volatile:
            try:
                self._patterns.append((re.compile(pattern), "<volatile>"))
            except re.error as error:
                raise ConfigError(f"volatile: {pattern!r} is not a regular expression ({error}); fix it") from error
        self._patterns += [(re.compile(pattern), word) for pattern, word in VOLATILE_TEXT]

    def text(self, protocol: WireProtocol, body: bytes) -> str:
        """The masked text of a request; one line for each field, texts of several lines on several."""
        try:
            value = read_object(body)
        except BadRequest:
            return self.masked(body.decode("utf-8", "replace"))  # a request that no gateway would have passed on
        kept = {name: inner for name, inner in value.items() if name not in VOLATILE_FIELDS[protocol]}
        return self.masked(_laid_out(kept))

    def masked(self, text: str) -> str:
        """The text with everything volatile replaced."""
        for pattern, word in self._patterns:
            text = pattern.sub(word, text)
        return text


def _laid_out(value: JsonValue) -> str:
    """JSON for reading: indented, keys sorted, and the lines of a text on lines of their own."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    return re.sub(r"(?<!\\)((?:\\\\)*)\\n", r"\1\n", text)
