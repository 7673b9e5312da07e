"""Episodes as training needs them: token ids that are only ever appended to, with the sampled ones marked.

Rendering a conversation again after each message may tokenise the model's own words differently from how it sampled
them. Here the opening is rendered once with the model's chat template (`ChatTokens`); after that come the sampled
tokens as they are, and around each observation the template's text between one model message and the next. So the
trainer learns exactly the tokens that were sampled, and a sampler with a prefix cache computes nothing twice. The loop
is that of evaluation (`evaluation.engine`). The whole history is always sent: context policies are for evaluation only.

Promises: for text that the tokenizer encodes in one way, the ids equal those of the whole conversation rendered at
once; an environment that breaks is restarted where the fault table allows it, and what still fails is an episode
without a reward. Raises SamplerFailed when the sampler breaks or the policy's logits are not numbers any more. Does NOT
work for templates that rewrite earlier messages when later ones come, or whose model messages end without an end token:
they are refused. Does NOT judge: see `online_grpo.judge`.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, cast

from msgspec import structs

from agent2.errors import ConfigError, SamplerFailed
from agent2.evaluation.engine import Attempt, PlaySettings, play_dialogues
from agent2.records import (
    Completion,
    Environment,
    Item,
    JsonValue,
    Message,
    Prompt,
    Rollout,
    RolloutStatus,
    Sampler,
    StopReason,
)

MAX_CACHED_REPLIES = 65536
"""Observations whose token ids are cached."""
STUTTER = re.compile(r"([^\W\d_]{4,20}?)\1|([^\W\d_]{1,3}?)\2{3,}")
"""Four or more letters twice in a row, or fewer of them four times; digits, rules and blanks are no stutter."""


class ChatTokens:
    """The chat template of one tokenizer, cut into pieces that can be appended."""

    def __init__(self, tokenizer: Any) -> None:
        """Raises ConfigError for a tokenizer without a template, or with one that cannot be appended to."""
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError("the model has no chat template; multi-turn training needs one in its tokenizer")
        if tokenizer.eos_token_id is None:
            raise ConfigError("the tokenizer has no end token (eos_token); pass the one that ends a message")
        self.end = int(tokenizer.eos_token_id)
        """Ends a model message."""
        self._tokenizer = tokenizer
        # What follows this chat in a longer one is the template's text around an observation.
        self._head = self._text([Message("user", "a"), Message("assistant", "b")], prompt=False)
        end_text = tokenizer.convert_ids_to_tokens(self.end)
        _, separator, self._tail = self._head.rpartition(end_text)
        if not separator:
            raise ConfigError(
                f"the chat template ends no assistant message with {end_text!r}; set eos_token to the token that does"
            )
        self.reply = lru_cache(maxsize=MAX_CACHED_REPLIES)(self._reply)
        """Token ids from the end token of one model message (not included) to the start of the next one."""

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the opening messages, up to where the model's first message begins."""
        return self._ids(self._text(messages, prompt=True))

    def _reply(self, observation: str) -> tuple[int, ...]:
        chat = [Message("user", "a"), Message("assistant", "b"), Message("user", observation)]
        text = self._text(chat, prompt=True)
        if not text.startswith(self._head):
            raise ConfigError("the chat template rewrites earlier messages when later ones come; use one that does not")
        return tuple(self._ids(self._tail + text[len(self._head) :]))

    def _text(self, messages: Sequence[Message], *, prompt: bool) -> str:
        chat = [{"role": message.role, "content": message.content} for message in messages]
        text: str = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt)
        return text

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


class Ending(StrEnum):
    """How an episode ended."""

    COMPLETED = "completed"
    """The world ended it."""
    TURN_CAP = "turn_cap"
    CONTEXT = "context"
    """The context has no room for another message."""
    FAILED = "failed"
    """The world broke, also in the retries that the fault table allows."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One played episode, as a rollout and as token ids."""

    item: Item
    rollout: Rollout
    prompt_ids: list[int]
    completion_ids: list[int]
    """Everything after the opening: messages of the model and of the world."""
    is_sampled: list[bool]
    """For each completion token, whether the model sampled it."""
    logprobs: list[float]
    """Of each sampled token when it was sampled; 0 for all others."""
    is_full: bool = False
    """Whether the context had no room for another message."""

    @property
    def ending(self) -> Ending:
        """How it ended."""
        match self.rollout.status:
            case RolloutStatus.FAILED:
                return Ending.FAILED
            case RolloutStatus.COMPLETED:
                return Ending.COMPLETED
            case _:
                return Ending.CONTEXT if self.is_full else Ending.TURN_CAP

    @property
    def actions(self) -> list[str]:
        """The model's messages."""
        return [turn.action for turn in self.rollout.turns]

    @property
    def state(self) -> Mapping[str, JsonValue]:
        """Of the world at the end; empty where the episode failed."""
        return self.rollout.state

    @property
    def n_tokens(self) -> int:
        """Tokens of the episode, the opening included."""
        return len(self.prompt_ids) + len(self.completion_ids)

    @property
    def n_unterminated(self) -> int:
        """Messages cut off at the limit of a message or by the context."""
        return sum(turn.stop_reason is StopReason.LENGTH for turn in self.rollout.turns)

    @property
    def last_is_unterminated(self) -> bool:
        """Whether the last message was cut off."""
        return bool(self.rollout.turns) and self.rollout.turns[-1].stop_reason is StopReason.LENGTH

    @property
    def n_repeated(self) -> int:
        """Messages that are the same as the one before."""
        return sum(a == b for a, b in zip(self.actions, self.actions[1:], strict=False))

    @property
    def n_stuttering(self) -> int:
        """Messages in which a run of letters is repeated at once, such as "searchsearch" or "AAAAA"."""
        return sum(STUTTER.search(action) is not None for action in self.actions)


@dataclass(frozen=True, slots=True)
class PlayedEpisodes:
    """A batch of episodes in the order of their attempts."""

    episodes: Sequence[Episode]
    environment_s: float
    """Spent in the world and between messages."""
    generation_s: float
    """Spent in the sampler."""


def play_episodes(
    attempts: Sequence[Attempt],
    sampler: Sampler,
    chat: ChatTokens,
    make_environment: Callable[[], Environment],
    settings: PlaySettings,
    context: int,
) -> PlayedEpisodes:
    """Play every attempt to its end; the number of each attempt is its position in the sequence.

    context: most tokens of an episode. Raises SamplerFailed when the sampler breaks, the policy gives no numbers, or an
    opening leaves no room for a message.
    """
    began = time.perf_counter()
    timed = _TimedSampler(sampler)
    room = context - settings.sampling.max_tokens
    episodes: dict[int, Episode] = {}

    def converse(item: Item, opening: Sequence[Message]) -> _TokenDialogue:
        dialogue = _TokenDialogue(chat, chat.opening(opening), room)
        if dialogue.prompt() is None:
            raise SamplerFailed(
                f"item {item.id}: its opening has {len(dialogue.prompt_ids)} tokens, the context of {context} leaves "
                f"no room for a message of {settings.sampling.max_tokens}"
            )
        return dialogue

    for done in play_dialogues(attempts, cast(Sampler, timed), make_environment, converse, settings):
        ids, rollout = done.dialogue, done.rollout
        if not isinstance(ids, _TokenDialogue):  # it failed: its turns count nowhere
            ids, rollout = _TokenDialogue.failed(chat), structs.replace(rollout, turns=())
        episodes[done.attempt.attempt] = Episode(
            done.attempt.item, rollout, ids.prompt_ids, ids.completion_ids, ids.is_sampled, ids.logprobs, ids.is_full
        )
    seconds = time.perf_counter() - began
    return PlayedEpisodes([episodes[n] for n in range(len(attempts))], seconds - timed.seconds, timed.seconds)


class _TokenDialogue:
    """A dialogue as token ids."""

    def __init__(self, chat: ChatTokens, opening: list[int], room: int) -> None:
        """room: most tokens before a message."""
        self.prompt_ids = opening
        self.completion_ids: list[int] = []
        self.is_sampled: list[bool] = []
        self.logprobs: list[float] = []
        self.is_full = False
        self._chat, self._room = chat, room

    @classmethod
    def failed(cls, chat: ChatTokens) -> "_TokenDialogue":
        """Of an episode that failed: a trainer's row needs a token on either side; these count in no loss."""
        dialogue = cls(chat, [chat.end], 0)
        dialogue.completion_ids, dialogue.is_sampled, dialogue.logprobs = [chat.end], [False], [0.0]
        return dialogue

    def prompt(self) -> Prompt | None:
        """All tokens so far; None if they leave no room for a message."""
        self.is_full = len(self.prompt_ids) + len(self.completion_ids) > self._room
        return None if self.is_full else [*self.prompt_ids, *self.completion_ids]

    def add(self, completion: Completion, reply: Message | None) -> None:
        """Append the sampled tokens, then the world's reply, after the end token if the model did not sample it."""
        if not completion.token_ids or completion.logprobs is None:
            raise SamplerFailed(
                "training needs the sampled tokens and their log-probabilities; use an in-process model"
            )
        self._append(completion.token_ids, completion.logprobs, is_sampled=True)
        if reply is not None:
            if reply.pictures:
                raise ConfigError("a reply of the world has pictures, and models are trained on texts here")
            ids = self._chat.reply(reply.text)
            if self.completion_ids[-1] != self._chat.end:
                ids = (self._chat.end, *ids)
            self._append(ids, [0.0] * len(ids), is_sampled=False)

    def _append(self, ids: Sequence[int], logprobs: Sequence[float], *, is_sampled: bool) -> None:
        self.completion_ids += ids
        self.is_sampled += [is_sampled] * len(ids)
        self.logprobs += logprobs


class _TimedSampler:
    """A sampler that measures the seconds spent waiting for it."""

    def __init__(self, sampler: Sampler) -> None:
        self.capacity = sampler.capacity
        self.seconds = 0.0
        self._sampler = sampler
        self.submit = sampler.submit

    def collect(self) -> list[tuple[int, Completion]]:
        """As the wrapped sampler's."""
        started = time.perf_counter()
        done = self._sampler.collect()
        self.seconds += time.perf_counter() - started
        return done
