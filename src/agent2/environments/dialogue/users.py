"""Users: one who follows a script, for training and scoring, and one who is played by a language model.

The scripted user begins vaguely, tells what they are asked for, agrees only to what they want, insists once when
something is refused (whatever the policy says: insisting tells nothing), and leaves when all is settled or nothing gets
through. It goes by set phrases. Same goal, same words of the agent: same replies.

The served user (`ServedUser`) asks a model behind an endpoint, or a local checkpoint. What it writes is input: a
reply that is empty, holds a tool call, speaks as the agent or as a language model (`AS_AGENT`), or is the same three
times in a row breaks the episode with an environment fault, and it has to leave within `MAX_REPLIES`. Needs a network,
so it cannot be played inside of a sandbox.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent2.environments.dialogue.tools import GAVE_UP, SERVED, SPECS, mentions, tells
from agent2.errors import EnvironmentFailed, shown
from agent2.records import Completion, JsonValue, Message

MAX_REPLIES = 20
PATIENCE = 3
"""So many messages that get nowhere, and the user leaves."""
STOP = "###STOP###"


@dataclass(frozen=True, slots=True)
class UserWish:
    """One thing that a user wants."""

    vague: str
    """How they begin."""
    detail: str
    """What they say when asked what exactly."""
    names: tuple[str, ...]
    """What a proposal has to mention for them to agree: the number, and item or day."""
    is_allowed: bool
    """By the policy."""
    question: str = ""
    """What they ask at the end if `amount` was not said; empty: nothing."""
    amount: str = ""
    """What they have to be told: an amount, or a status."""
    actions: tuple[str, ...] = ()
    """Beginnings of words of which a proposal has to contain one; empty: any will do."""


@dataclass(frozen=True, slots=True)
class Goal:
    """All that a user knows."""

    email: str
    postcode: str
    wishes: tuple[UserWish, ...]

    @classmethod
    def of(cls, payload: JsonValue) -> "Goal":
        """From an item's payload. Raises EnvironmentFailed for one of another benchmark."""
        try:
            wishes = tuple(UserWish(**{**wish, "names": tuple(wish["names"])}) for wish in payload["wishes"])
            return cls(payload["email"], payload["postcode"], wishes)
        except (KeyError, TypeError) as error:
            raise EnvironmentFailed(f"the item names no user's goal ({error}); take items of a dialogue") from error


_ASKS = re.compile(
    r"\b(?:confirm|shall i|should i|may i|go ahead|proceed|is that (?:right|correct|ok)|do you want me|"
    r"would you like (?:me|to)|are you sure)\b",
    re.IGNORECASE,
)
_REFUSES = re.compile(
    r"\b(?:cannot|can't|can not|not possible|impossible|not allowed|unable|too late|"
    r"against (?:the|our) (?:rules|policy))\b",
    re.IGNORECASE,
)
_WHO = re.compile(r"e-?mail|postcode|post code|zip|who (?:are you|am i)|verify|your name", re.IGNORECASE)
_WHAT = re.compile(
    r"\b(?:which|what exactly|number|details?|how can i help|what can i do|what do you|tell me more)\b", re.IGNORECASE
)
_DONE = re.compile(
    r"\b(?:done|cancelled|canceled|refunded|moved|paid back|status|shipped|delivered|pending|completed)\b",
    re.IGNORECASE,
)


class ScriptedUser:
    """Follows the goal by the words that the agent uses."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._at = 0
        self._n_lost = 0
        self._has_insisted = False
        self._has_agreed = False
        self._has_asked = False
        self._n_replies = 0
        self.why_left: str | None = None

    def reply(self, words: str) -> str:
        """What they answer; "Goodbye." ends the dialogue."""
        self._n_replies += 1
        if self._n_replies >= MAX_REPLIES:
            return self._leave(GAVE_UP)
        wish = self._goal.wishes[self._at]
        if _ASKS.search(words):
            return self._asked_to_agree(wish, words)
        if _WHO.search(words):
            return f"My email is {self._goal.email} and my postcode is {self._goal.postcode}."
        if _REFUSES.search(words):
            return self._refused(wish)
        if _WHAT.search(words):
            return wish.detail
        if _DONE.search(words) and wish.is_allowed and (self._has_agreed or not wish.names):
            return self._told(wish, words)
        self._n_lost += 1
        return self._leave(GAVE_UP) if self._n_lost >= PATIENCE else f"I do not understand. {wish.detail}"

    def _asked_to_agree(self, wish: UserWish, words: str) -> str:
        is_meant = not wish.actions or any(action in words.lower() for action in wish.actions)
        if is_meant and all(mentions(words, name) for name in wish.names):
            self._has_agreed = True
            return "Yes, please do."
        self._n_lost += 1
        return self._leave(GAVE_UP) if self._n_lost >= PATIENCE else f"That is not what I want. {wish.detail}"

    def _refused(self, wish: UserWish) -> str:
        if not self._has_insisted:  # whatever the policy says, so that insisting tells nothing of it
            self._has_insisted = True
            return f"Please look again. {wish.detail}"
        return self._leave(GAVE_UP) if wish.is_allowed else self._next("That is a pity.")

    def _told(self, wish: UserWish, words: str) -> str:
        if wish.amount and not tells(words, wish.amount) and not self._has_asked:
            self._has_asked = True
            return wish.question
        return self._next("Thank you.")

    def _next(self, words: str) -> str:
        self._at += 1
        self._has_insisted = self._has_agreed = self._has_asked = False
        if self._at == len(self._goal.wishes):
            return self._leave(SERVED, words)
        return f"{words} {self._goal.wishes[self._at].vague}"

    def _leave(self, why: str, words: str = "") -> str:
        self.why_left = why
        return f"{words} Goodbye.".strip()


def opening_words(goal: Goal) -> str:
    """What a user begins with."""
    return goal.wishes[0].vague


INSTRUCTION = """You play a user who writes to a shop's service agent. Stay in this role; never write as the agent.
Your email is {email}, your postcode {postcode}. What you want, one after the other:
{wishes}
Write the user's next message only, one or two short sentences. Tell only what you are asked for. Agree only to what
you want. If something is refused for good, accept it. When all is settled, write {stop} and nothing else."""

AS_AGENT = re.compile(
    r"\bas an? (?:ai|assistant|language model)\b|\blanguage model\b|\bhow (?:can|may) i (?:help|assist)\b|"
    r"\b(?:tell|give|send|provide|confirm|share)\b[^.?!]*\byour (?:e-?mail|postcode)|"
    r"\bi(?:'ve| have)? (?:cancelled|canceled|refunded|moved) your\b",
    re.IGNORECASE,
)
"""Words of one who has left a user's role."""
_CALL = re.compile(rf"\b(?:{'|'.join(SPECS)})\[")


class ServedUser:
    """A user played by a model; deterministic as far as the model's answers are."""

    def __init__(self, goal: Goal, ask: Callable[[Sequence[Message]], Completion]) -> None:
        """ask: the model's answer to a chat in which it is the assistant."""
        wishes = "\n".join(f"- {wish.vague} {wish.detail} {wish.question}".rstrip() for wish in goal.wishes)
        text = INSTRUCTION.format(email=goal.email, postcode=goal.postcode, wishes=wishes, stop=STOP)
        self._chat = [Message("system", text), Message("assistant", opening_words(goal))]
        self._ask = ask
        self.why_left: str | None = None

    def reply(self, words: str) -> str:
        """Raises EnvironmentFailed for no answer, a role that was left, or the same words for the third time."""
        self._chat.append(Message("user", words))
        completion = self._ask(self._chat)
        text = completion.text.strip()
        if completion.fault is not None or not text:
            why = completion.reason or "it was empty"
            raise EnvironmentFailed(f"the model that plays the user gave no answer ({why})")
        if _CALL.search(text) or text.startswith("{"):
            raise EnvironmentFailed("the model that plays the user left its role: it wrote a tool call")
        if found := AS_AGENT.search(text):
            raise EnvironmentFailed(f"the model that plays the user left its role: it wrote {shown(found[0])}")
        own = [message.content for message in self._chat if message.role == "assistant"]
        if own[-2:] == [text, text]:
            raise EnvironmentFailed("the model that plays the user says the same for the third time")
        self._chat.append(Message("assistant", text))
        if STOP in text:
            self.why_left = SERVED
        elif len(own) >= MAX_REPLIES:
            self.why_left = GAVE_UP
        return text.replace(STOP, "").strip() or "Goodbye."
