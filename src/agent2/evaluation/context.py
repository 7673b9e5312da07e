"""What of a long episode is sent to the model: all of it, or less of the past.

A policy turns the messages so far into the messages of the next request. The card keeps every observation in full
and the protocol names the policy with its numbers, so what was sent can be computed again, and two scores with
different policies are not compared by accident. `full` is the switch of an ablation: the same evaluation without
any policy.

Promises: the opening (rules and goal) is sent word for word, and the last turns are always kept, except by `newest`;
actions and observations alternate as the model learned it; nothing is sent that was not in the episode. What lies
behind is shortened in steps of several turns, so that a sampler can mostly reuse the prompt that it has computed. Does
NOT count tokens, since it knows no tokenizer: it counts characters instead; and does NOT summarise with a model.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import structs

from agent2.errors import ConfigError, unknown_name
from agent2.records import Message

ADMISSIBLE = re.compile(
    r"\s*^(?:you can|(?:(?:your|the) )?(?:admissible|available|possible) (?:commands|actions)[^:\n]*):.*?"
    r"(?=\n[^\S\n]*\n|\Z)",
    re.I | re.M | re.S,
)
"""A list of what may be done next, from its heading to the first blank line or the end of the message; stale as soon as
the next one comes."""
DEAD_ENDS = frozenset({"Nothing happens."})
"""Observations that say no more than that an action had no effect."""
MESSAGE_CHARS = 16
"""What the marks of two messages cost, as characters."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_NAME = re.compile(r"(\w+)(?:\((.*)\))?", re.S)


class ContextPolicy(Protocol):
    """Turns the messages so far into those that are sent."""

    @property
    def name(self) -> str:
        """With every number that matters; `context_policy` gives the same policy back."""

    def messages_to_send(self, messages: Sequence[Message], n_opening: int) -> Sequence[Message]:
        """messages: the opening, then action and observation in turn; n_opening: how many belong to the opening."""


@dataclass(frozen=True, slots=True)
class FullContext:
    """Everything, always."""

    @property
    def name(self) -> str:
        """As in the protocol."""
        return "full"

    def messages_to_send(self, messages: Sequence[Message], n_opening: int) -> Sequence[Message]:
        """The messages themselves."""
        return messages


@dataclass(frozen=True, slots=True)
class DropAdmissible:
    """Everything but lists of admissible commands; the opening and the newest message keep theirs."""

    @property
    def name(self) -> str:
        """As in the protocol."""
        return "drop_admissible"

    def messages_to_send(self, messages: Sequence[Message], n_opening: int) -> Sequence[Message]:
        """The messages, shortened where they had a list."""
        return [*messages[:n_opening], *_without_old_lists(messages[n_opening:])]


@dataclass(frozen=True, slots=True)
class DropObservations:
    """Opening and last turns in full; of earlier turns the actions and the key facts, as many as there is room for.

    A key fact is the end of an observation, in whole sentences: in worlds that answer an action, the beginning repeats
    the action and the end says what is there now. Left out are lists of admissible commands, earlier turns
    without effect, and earlier turns that came again.
    """

    keep_last: int = 4
    """Turns in full: so many at least, fewer than twice as many at most."""
    fact_chars: int = 80
    """Most characters of an earlier observation."""
    memory_chars: int = 1600
    """Most characters of all earlier turns; the earliest ones give way."""

    @property
    def name(self) -> str:
        """As in the protocol."""
        numbers = ",".join(f"{field.name}={getattr(self, field.name)}" for field in dataclasses.fields(self))
        return f"drop_observations({numbers})"

    def messages_to_send(self, messages: Sequence[Message], n_opening: int) -> Sequence[Message]:
        """Opening, what is remembered of earlier turns, last turns."""
        n_turns = (len(messages) - n_opening) // 2
        # In steps of `keep_last` turns: between two steps the prompt only grows, and the sampler can reuse its prefix.
        n_old = max(0, n_turns // self.keep_last - 1) * self.keep_last
        cut = n_opening + 2 * n_old
        old = [(messages[at], messages[at + 1]) for at in range(n_opening, cut, 2)]
        return [*messages[:n_opening], *self._remembered(old), *_without_old_lists(messages[cut:])]

    def _remembered(self, turns: Sequence[tuple[Message, Message]]) -> Iterator[Message]:
        remembered: list[tuple[Message, Message]] = []
        facts: set[tuple[str, str]] = set()
        room = self.memory_chars
        # From the newest back, so that the earliest turns give way when the room is used up.
        for action, observation in reversed(turns):
            fact = key_fact(observation.text, self.fact_chars)
            if fact in DEAD_ENDS or (action.text, fact) in facts:
                continue
            facts.add((action.text, fact))
            room -= len(action.text) + len(fact) + MESSAGE_CHARS
            if room < 0:
                break
            remembered.append((action, Message(observation.role, fact)))
        for pair in reversed(remembered):
            yield from pair


def key_fact(observation: str, max_chars: int) -> str:
    """The last sentences of an observation that fit, without any list of admissible commands; never empty.

    Where the last sentence alone is too long, its beginning.
    """
    sentences = _SENTENCE_END.split(ADMISSIBLE.sub("", observation).strip())
    fact = sentences[-1]
    for sentence in reversed(sentences[:-1]):
        if len(sentence) + 1 + len(fact) > max_chars:
            break
        fact = f"{sentence} {fact}"
    return (fact if len(fact) <= max_chars else fact[: max_chars - 1].rstrip() + "…") or "…"


def _without_old_lists(messages: Sequence[Message]) -> list[Message]:
    """Only the newest message keeps its list of admissible commands; what the model wrote is left as it is."""
    return [
        message
        if message.role == "assistant" or not ADMISSIBLE.search(message.text)
        else Message(message.role, ADMISSIBLE.sub("", message.text), message.pictures)
        for message in messages[:-1]
    ] + [*messages[-1:]]


@dataclass(frozen=True, slots=True)
class NewestOnly:
    """What comes before the last message of the opening (rules, solved examples), and the newest message alone.

    For worlds that ask independent questions one after the other: no question is read beside another, or its answer.
    """

    @property
    def name(self) -> str:
        """As in the protocol."""
        return "newest"

    def messages_to_send(self, messages: Sequence[Message], n_opening: int) -> Sequence[Message]:
        """The opening without its last message, then the newest one, with the pictures of that last message."""
        question, newest = messages[n_opening - 1], messages[-1]
        if question.pictures and not newest.pictures:
            newest = structs.replace(newest, pictures=question.pictures)
        return [*messages[: n_opening - 1], newest]


POLICIES: Mapping[str, type[ContextPolicy]] = {
    "full": FullContext,
    "drop_admissible": DropAdmissible,
    "drop_observations": DropObservations,
    "newest": NewestOnly,
}


def context_policy(name: str) -> ContextPolicy:
    """The policy of a name such as `full`, `drop_observations` or `drop_observations(keep_last=2)`.

    Raises ConfigError for an unknown name or number, and for numbers below 1.
    """
    match = _NAME.fullmatch(name.strip())
    if match is None:
        raise ConfigError(f"context policy {name!r} cannot be read; write it as drop_observations(keep_last=4)")
    policy_name, arguments = match.groups()
    if policy_name not in POLICIES:
        raise unknown_name("context policy", policy_name, POLICIES)
    policy = POLICIES[policy_name]
    fields = [field.name for field in dataclasses.fields(policy)]  # type: ignore[arg-type]
    numbers: dict[str, int] = {}
    for part in filter(None, map(str.strip, (arguments or "").split(","))):
        key, _, value = (text.strip() for text in part.partition("="))
        if key not in fields:
            raise unknown_name(f"number of the context policy {policy_name}", key, fields)
        if not (value.isascii() and value.isdigit() and int(value) >= 1):
            raise ConfigError(f"context policy {name!r}: {key} is {value!r}; write a whole number of at least 1")
        numbers[key] = int(value)
    return policy(**numbers)
