"""Thought and answer apart: the one step between what a model wrote and its answer.

Models that reason write a thought before their answer, between marks that depend on the model. Everything that reads an
answer (worlds, scorers, judges, imported logs) gets it from here, so that nothing in a thought is ever scored:

    auto               the pairs of marks in `PAIRS`, the channels of gpt-oss, and a closing mark whose opening one the
                       chat template wrote
    none               everything is the answer
    <think> </think>   this pair of marks
    </think>           this mark ends the thought; the template has opened it, so an answer without the mark is cut off

A thought begins where a line begins with its opening mark and ends with its last closing mark; without one there is
no answer. Marks in quotation marks or backticks, and those inside a code block, are text.

Does NOT recognise thoughts without marks, and cannot know of an endpoint that its template opens the thought of an
answer that was cut off before the closing mark: state the mark.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from agent2.errors import ConfigError, quoted
from agent2.records import Thought

AUTO, NONE = "auto", "none"
CUT_OFF = "thought_cut_off"
"""Badcase class of rollouts that have no answer because the thought before it never ended."""
PAIRS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("◁think▷", "◁/think▷"),
    ("<unused94>thought", "<unused95>"),
)
"""Opening and closing mark of the models that are known to write them."""
ANSWER_PAIRS = (
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
)
"""Marks around the answer that follows a thought."""
CHANNEL_MARKS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
"""Of gpt-oss, which writes thought, calls and answer as messages in channels."""
MARKS = (*(mark for pair in (*PAIRS, *ANSWER_PAIRS) for mark in pair), *CHANNEL_MARKS)
"""Every mark that tells thought and answer apart; a sampler keeps them though a tokenizer may call them special."""
OPENINGS = (*(opening for opening, _ in PAIRS), "<|channel|>analysis<|message|>")
"""Marks with which a chat template may end a prompt, so that the completion begins inside a thought."""

_QUOTES = "\"'`"
_FENCE = "```"
_ANY_MARK = re.compile("|".join(map(re.escape, (*(mark for pair in PAIRS for mark in pair), "<|channel|>"))), re.I)
_CHANNEL_MESSAGE = re.compile(
    r"(?:<\|start\|>(?P<role>[^<]*))?<\|channel\|>(?P<channel>[^<]*)(?:<\|constrain\|>[^<]*)?<\|message\|>"
    r"(?P<text>.*?)(?P<end><\|end\|>|<\|call\|>|<\|return\|>|(?=<\|start\|>)|\Z)",
    re.DOTALL,
)
_RECIPIENT = re.compile(r"to=(?:functions\.)?(\S+)")
_CHANNELS_WITHOUT_MARKS = re.compile(r"analysis(?P<thought>.*?)(?P<mark>assistantfinal)(?P<answer>.*)", re.DOTALL)
"""Of gpt-oss behind a server that drops its special tokens."""


@dataclass(frozen=True, slots=True)
class _Pair:
    opening: re.Pattern[str] | None
    """None: the template writes it."""
    closing: re.Pattern[str]


def _pair(opening: str, closing: str) -> _Pair:
    opening_pattern = re.compile(rf"^\s*{re.escape(opening)}\s*", re.I | re.M) if opening else None
    # Blank lines behind the mark belong to it; the indentation of the answer does not.
    closing_pattern = re.compile(rf"\s*{re.escape(closing)}(?:[^\S\n]*\n)*", re.I)
    return _Pair(opening_pattern, closing_pattern)


_KNOWN = tuple(_pair(opening, closing) for opening, closing in PAIRS)


def read_thinking(thinking: str) -> str:
    """A valid value of the protocol's field, in one form. Raises ConfigError for anything else."""
    marks = thinking.split()
    if thinking.strip().lower() in (AUTO, NONE):
        return thinking.strip().lower()
    is_plain = any(mark.isalnum() for mark in marks)
    if not 1 <= len(marks) <= 2 or is_plain or len(set(marks)) < len(marks):
        raise ConfigError(
            f"thinking {quoted(thinking)}: write auto, none, a pair of marks ('<think> </think>') or, where the chat "
            "template opens the thought, the closing mark alone ('</think>')"
        )
    return " ".join(marks)


def split_thought(text: str, thinking: str = AUTO) -> tuple[Thought | None, str]:
    """The thought in what a model wrote, None if there is none, and the answer; empty if the thought never ends.

    thinking: as `read_thinking` returns it.
    """
    if thinking == NONE:
        return None, text
    if thinking != AUTO:
        return _split_by(_stated(thinking), text) or (None, text)
    if _ANY_MARK.search(text) is None:
        dropped = _CHANNELS_WITHOUT_MARKS.match(text)
        if dropped is None:
            return None, text
        return Thought(dropped["thought"].strip(), "analysis", dropped["mark"]), dropped["answer"]
    if "<|channel|>" in text:
        return _split_channels(text)
    for pair in _KNOWN:
        if pair.opening is not None and pair.opening.match(text):
            return _split_by(pair, text) or (None, text)
    for pair in _KNOWN:
        if (split := _split_by(pair, text)) is not None:
            return split
    return None, text


@lru_cache(maxsize=64)
def _stated(thinking: str) -> _Pair:
    *opening, closing = thinking.split()
    return _pair(opening[0] if opening else "", closing)


def _split_by(pair: _Pair, text: str) -> tuple[Thought, str] | None:
    """Thought and answer by one pair of marks; None: the text has no such thought."""
    begins = 0
    if pair.opening is not None:
        opened, first = pair.opening.search(text), _first_closing(pair, text)
        if opened is not None and _is_in_fence(text, opened.start()):
            return None
        if opened is not None and (first is None or opened.end() <= first.start() + 1):
            begins = opened.end()
        elif first is None:
            return None
    closed = _last_closing(pair, text, begins)
    if closed is None:
        return Thought(text[begins:], text[:begins], None), ""
    answer = text[closed.end() :]
    reopened = pair.opening.search(answer) if pair.opening is not None else None
    if reopened is not None and not _is_in_fence(answer, reopened.start()):
        return Thought(text[begins:], text[:begins], None), ""
    mark = closed[0]
    for opening, closing in ANSWER_PAIRS:
        if answer.lstrip().startswith(opening):
            unwrapped = answer.lstrip()[len(opening) :].lstrip("\n")
            mark += answer[: len(answer) - len(unwrapped)]
            answer = unwrapped.rstrip().removesuffix(closing).rstrip("\n")
    return Thought(text[begins : closed.start()], text[:begins], mark), answer


def _first_closing(pair: _Pair, text: str) -> re.Match[str] | None:
    return next((match for match in pair.closing.finditer(text) if not _is_quoted(text, match)), None)


def _last_closing(pair: _Pair, text: str, begins: int) -> re.Match[str] | None:
    """The mark that ends the thought: the last one, of those behind the first only if outside code blocks."""
    matches = [match for match in pair.closing.finditer(text, begins) if not _is_quoted(text, match)]
    last = None
    for match in matches:
        if last is None or not _is_in_fence(text[last.end() :], match.start() - last.end()):
            last = match
    return last


def _is_quoted(text: str, match: re.Match[str]) -> bool:
    end = match.start() + len(match[0].rstrip())
    start = end - len(match[0].strip())
    return (text[end : end + 1] in _QUOTES and end < len(text)) or (start > 0 and text[start - 1] in _QUOTES)


def _is_in_fence(text: str, position: int) -> bool:
    return text.count(_FENCE, 0, max(0, position)) % 2 == 1


def _split_channels(text: str) -> tuple[Thought | None, str]:
    """Thought and answer of gpt-oss: a call, else the final channel, else a preamble; analysis is thought."""
    messages = list(_CHANNEL_MESSAGE.finditer(text))
    if not messages:
        return None, text
    thoughts = [message for message in messages if message["channel"].strip().startswith("analysis")]
    others = [message for message in messages if message not in thoughts]
    calls = [message for message in others if _RECIPIENT.search(message["channel"] + " " + (message["role"] or ""))]
    finals = [message for message in others if message["channel"].strip().startswith("final")]
    answer = next((group[-1] for group in (calls, finals, others) if group), None)
    thought = "\n".join(message["text"].strip() for message in thoughts)
    if answer is None:
        return Thought(thought, text[: messages[0].start("text")], None), ""
    written = answer["text"]
    if calls:
        recipient = _RECIPIENT.search(answer["channel"] + " " + (answer["role"] or ""))
        assert recipient is not None
        written = f'{{"name": "{recipient[1]}", "arguments": {written.strip() or "{}"}}}'
    if not thoughts:
        return (Thought("", text[: answer.start("text")], ""), written)
    return Thought(thought, text[: thoughts[0].start("text")], text[thoughts[-1].end("text") : answer.start("text")]), (
        written
    )
