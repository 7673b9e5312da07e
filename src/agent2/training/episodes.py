"""Plays episodes for training, as token ids that only grow.

A conversation as token ids that only ever grow: what was drawn stays as it was drawn.

Rendering a conversation again after each message may tokenise the model's own words differently from how it drew
them. Here the opening is rendered once with the model's chat template; after that come the drawn tokens as they
are, and the template's text between one model message and the next around each observation.

Promises: for text that the tokenizer encodes in one way, the ids equal those of the whole conversation rendered
at once (`matches_template` says whether they do). Does NOT work for templates that rewrite earlier messages when
later ones come, or whose model messages end without an end token: they are refused.

Plays episodes for training: many at once through one sampler, as token ids, with what was drawn marked.

A conversation only ever grows: the next prompt is the last one, the drawn tokens and the world's reply as token
ids (`chat_tokens`), so that the trainer learns exactly the tokens that were drawn and a sampler with a cache that
survives turns computes nothing twice. The loop is that of scoring: the world is told each message, and an episode
ends when the world says so, at the turn cap (the world's own where that is lower: beyond it lies no loss but a fault),
or when the context has no room for another message. Worlds that work in other processes do so side by side
(`evaluation.worlds`). The whole history is sent, always: context policies are for evaluation only.

Promises: the draws of an episode depend on its seed and the turn only; an environment that breaks is restarted
where the fault table allows it, and what still fails is an episode without a reward, never a lost game. Raises
SamplerFailed when the policy's logits are not numbers any more. Does NOT judge: see `episode_rewards`.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Any

from agent2.errors import FAULT_POLICY, ConfigError, EnvironmentFailed, Fault, SamplerFailed
from agent2.evaluation.engine import act_all, reset_all, turn_cap
from agent2.records import (
    Completion,
    Environment,
    Item,
    JsonValue,
    Message,
    Sampler,
    SamplingSettings,
    Step,
    StopReason,
    derive_seed,
)

REMEMBERED = 65536
"""Observations whose token ids are kept."""


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
        self._head = self._text([Message("user", "a"), Message("assistant", "b")], prompt=False)
        end_text = tokenizer.convert_ids_to_tokens(self.end)
        _, found, self._tail = self._head.rpartition(end_text)
        if not found:
            raise ConfigError(
                f"the chat template ends no assistant message with {end_text!r}; set eos_token to the token that does"
            )
        self.reply = lru_cache(maxsize=REMEMBERED)(self._reply)
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


def matches_template(tokenizer: Any, messages: Sequence[Message]) -> bool:
    """Whether a conversation put together piece by piece gives the ids of the whole one rendered at once.

    messages: user and assistant in turn, ending with a user message.
    """
    chat = ChatTokens(tokenizer)
    ids = chat.opening(messages[:1])
    for said, observed in zip(messages[1::2], messages[2::2], strict=True):
        ids += [
            *tokenizer(said.content, add_special_tokens=False)["input_ids"],
            chat.end,
            *chat.reply(observed.content),
        ]
    return ids == chat.opening(messages)


RETRIES = 1
"""How often an episode is restarted."""

STUTTER = re.compile(r"([^\W\d_]{4,20}?)\1|([^\W\d_]{1,3}?)\2{3,}")
"""Four or more letters twice in a row, or fewer of them four times; digits, rules and blanks are no stutter."""


class Ending(StrEnum):
    """How an episode ended."""

    COMPLETED = "completed"
    """The world said that it is over."""
    TURN_CAP = "turn_cap"
    CONTEXT = "context"
    """No room for another message."""
    FAILED = "failed"
    """The world broke, twice."""


@dataclass(frozen=True, slots=True)
class Start:
    """An episode that is to be played."""

    item: Item
    world_seed: int
    """The same for all members of a group."""
    draw_seed: int


@dataclass(frozen=True, slots=True)
class PlayLimits:
    """How episodes are played."""

    max_turns: int
    """Where a world's own `max_turns` is lower, that one counts."""
    max_tokens: int
    """Of one message."""
    temperature: float
    context: int
    """Most tokens of an episode."""


@dataclass(slots=True)
class Episode:
    """What was played; grows while it is played."""

    start: Start
    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    """All that follows the opening: messages of the model and of the world."""
    is_drawn: list[bool] = field(default_factory=list)
    """For each completion token, whether the model drew it."""
    logprobs: list[float] = field(default_factory=list)
    """Of each drawn token when it was drawn; 0 for the others."""
    opening: Sequence[Message] = ()
    actions: list[str] = field(default_factory=list)
    observations: list[str | None] = field(default_factory=list)
    """What the world answered to each message; None where it had nothing left to say."""
    ending: Ending | None = None
    n_unterminated: int = 0
    """Messages cut off at `max_tokens` or by the context."""
    last_is_unterminated: bool = False
    """Whether the newest message is one of them."""
    state: Mapping[str, JsonValue] = field(default_factory=dict)
    """Of the world at the end."""
    retries: int = 0
    reason: str = ""
    """Why it failed or was restarted."""

    @property
    def n_tokens(self) -> int:
        """Opening included."""
        return len(self.prompt_ids) + len(self.completion_ids)

    @property
    def n_repeated(self) -> int:
        """Messages that are the same as the one before."""
        return sum(a == b for a, b in zip(self.actions, self.actions[1:], strict=False))

    @property
    def n_stuttering(self) -> int:
        """Messages in which a run of letters comes again at once, such as "searchsearch" or "AAAAA"."""
        return sum(STUTTER.search(action) is not None for action in self.actions)


@dataclass(frozen=True, slots=True)
class Played:
    """A batch of episodes in the order of their starts."""

    episodes: Sequence[Episode]
    environment_s: float
    """Spent in the world and between messages."""
    generation_s: float
    """Spent in the sampler."""


def play_episodes(
    starts: Sequence[Start],
    sampler: Sampler,
    chat: ChatTokens,
    make_environment: Callable[[], Environment],
    limits: PlayLimits,
    in_flight: int = 256,
) -> Played:
    """Play every episode to its end. Raises SamplerFailed when the sampler breaks or the policy gives no numbers."""
    table = _Table(sampler, chat, make_environment, limits)
    began = time.perf_counter()
    generating = 0.0
    episodes = [Episode(start) for start in starts]
    waiting = iter(episodes)
    while True:
        while (room := in_flight - len(table.open)) and (some := list(islice(waiting, room))):
            table.begin(some)
        if not table.open:
            break
        asked = time.perf_counter()
        done = sampler.collect()
        generating += time.perf_counter() - asked
        if not done:
            raise SamplerFailed(f"the sampler returned nothing with {len(table.open)} messages in flight")
        table.advance(done)
    return Played(episodes, time.perf_counter() - began - generating, generating)


class _Table:
    """The games on their way, by the request that each waits for."""

    def __init__(
        self, sampler: Sampler, chat: ChatTokens, make_environment: Callable[[], Environment], limits: PlayLimits
    ) -> None:
        self.open: dict[int, tuple[Episode, Environment]] = {}
        self._sampler = sampler
        self._chat = chat
        self._make_environment = make_environment
        self._limits = limits
        self._next_request = 0

    def begin(self, episodes: Sequence[Episode]) -> None:
        """Open a world for each and ask for its first message."""
        starts = [(episode.start.item, episode.start.world_seed) for episode in episodes]
        for episode, (world, opening) in zip(episodes, reset_all(self._make_environment, starts), strict=True):
            try:
                if isinstance(opening, EnvironmentFailed):
                    raise opening
                assert world is not None
                episode.opening, episode.prompt_ids = opening, self._chat.opening(opening)
                self._ask(episode, world)
            except EnvironmentFailed as error:
                self._fail(episode, error.fault, str(error))

    def advance(self, done: Sequence[tuple[int, Completion]]) -> None:
        """Give messages to their worlds; for each episode, ask for the next one or end it."""
        arrived = [(*self.open.pop(request), completion) for request, completion in done]
        answered = [each for each in arrived if each[2].stop_reason is not StopReason.FAULT]
        steps = iter(act_all([(world, completion.text) for _, world, completion in answered]))
        for episode, world, completion in arrived:
            if completion.stop_reason is StopReason.FAULT:
                self._sampler_fault(episode, completion)
            else:
                self._take(episode, completion)
                self._hear(episode, world, next(steps))

    def _hear(self, episode: Episode, world: Environment, step: Step | EnvironmentFailed) -> None:
        """Take in what the world answered; ask for the next message or end the episode."""
        try:
            if isinstance(step, EnvironmentFailed):
                raise step
            episode.observations.append(step.observation)
            if step.done or len(episode.actions) >= turn_cap(world, self._limits.max_turns):
                self._end(episode, world, Ending.COMPLETED if step.done else Ending.TURN_CAP)
                return
            if step.observation is None:
                raise EnvironmentFailed(f"turn {len(episode.actions)}: the episode goes on without an observation")
            self._append_reply(episode, step.observation)
            self._ask(episode, world)
        except EnvironmentFailed as error:
            self._fail(episode, error.fault, str(error))

    def _ask(self, episode: Episode, world: Environment) -> None:
        if episode.n_tokens + self._limits.max_tokens > self._limits.context:
            self._end(episode, world, Ending.CONTEXT)
            return
        settings = SamplingSettings(
            temperature=self._limits.temperature,
            max_tokens=self._limits.max_tokens,
            seed=derive_seed(episode.start.draw_seed, len(episode.actions)),
        )
        self._sampler.submit(self._next_request, [*episode.prompt_ids, *episode.completion_ids], settings)
        self.open[self._next_request] = (episode, world)
        self._next_request += 1

    def _take(self, episode: Episode, completion: Completion) -> None:
        if not completion.token_ids or completion.logprobs is None:
            raise SamplerFailed("training needs the drawn tokens and their log-probabilities; use an in-process model")
        episode.actions.append(completion.text)
        episode.completion_ids += completion.token_ids
        episode.is_drawn += [True] * len(completion.token_ids)
        episode.logprobs += completion.logprobs
        episode.last_is_unterminated = completion.stop_reason is StopReason.LENGTH
        episode.n_unterminated += episode.last_is_unterminated

    def _append_reply(self, episode: Episode, observation: str) -> None:
        """The world's words, after the end token if the model did not draw it."""
        reply = self._chat.reply(observation)
        if episode.completion_ids[-1] != self._chat.end:
            reply = (self._chat.end, *reply)
        episode.completion_ids += reply
        episode.is_drawn += [False] * len(reply)
        episode.logprobs += [0.0] * len(reply)

    def _end(self, episode: Episode, world: Environment, ending: Ending) -> None:
        episode.ending, episode.state = ending, dict(world.state())
        if not episode.completion_ids:
            raise SamplerFailed(
                f"item {episode.start.item.id}: its opening has {len(episode.prompt_ids)} tokens, the context of "
                f"{self._limits.context} leaves no room for a message of {self._limits.max_tokens}"
            )

    def _sampler_fault(self, episode: Episode, completion: Completion) -> None:
        fault = completion.fault or Fault.INFRASTRUCTURE
        if FAULT_POLICY[fault].counts_against_model:
            raise SamplerFailed(
                f"item {episode.start.item.id}, message {len(episode.actions) + 1}: {completion.reason}; the policy "
                "cannot be drawn from any more: go back to an earlier checkpoint and lower the learning rate"
            )
        self._fail(episode, fault, completion.reason)

    def _fail(self, episode: Episode, fault: Fault, reason: str) -> None:
        """Restart where the fault table allows it, else leave the episode without a reward."""
        episode.reason = reason
        episode.prompt_ids, episode.completion_ids, episode.actions, episode.observations = [], [], [], []
        episode.is_drawn, episode.logprobs = [], []
        episode.n_unterminated, episode.last_is_unterminated = 0, False
        if FAULT_POLICY[fault].retry and episode.retries < RETRIES:
            episode.retries += 1
            self.begin([episode])
            return
        episode.ending = Ending.FAILED
        # a trainer's row needs a token on either side; these count in no loss
        episode.prompt_ids = episode.completion_ids = [self._chat.end]
        episode.is_drawn, episode.logprobs = [False], [0.0]
