"""The loop that plays episodes: many at once, through one sampler, for evaluation, training, experts and replay.

An attempt is a small state machine, and the loop does three things: it fills the sampler's queue, collects, and
advances. Single-turn and fifty-turn items go through it alike; a slow episode never holds up the others. What differs
between its callers is small:

    what is sent and kept of each step   a `Dialogue`: messages under a context policy here, growing token ids with
                                         their log-probabilities in `training.episodes`
    who answers                          a `Sampler`, or a player that knows what it plays (`play_by`)
    when a sampler's fault is an error   `PlaySettings.needs_sampler`

Thought and answer are told apart here, once, before anything reads a message (`llm.thoughts`): the world acts on the
answer, the thought stays on the turn and is left out of later prompts; a dialogue of token ids keeps every token.

Promises: attempts are pulled lazily; a request's seed depends on (attempt seed, turn) alone, never on the batch;
whatever breaks becomes a rollout with a fault according to `FAULT_POLICY` (restarted once where the table allows it,
and the rollout says so), so an attempt that was pulled is never lost. Worlds in other processes (`RemoteEnvironment`)
work side by side: each is asked to act before any is asked for its answer, and answers come in the order of the
calls. Verdicts are given afterwards, by `evaluation.scoring`.

Does NOT cover: time limits inside an environment or of one completion (a rollout's limit is checked between messages;
what arrives late is kept and marked), and code errors in an environment (anything but `EnvironmentFailed`), which stop
the caller, with a note of the row of data.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol, cast

import msgspec
from msgspec import structs

from agent2.errors import FAULT_POLICY, ConfigError, EnvironmentFailed, Fault, SamplerFailed, quoted
from agent2.evaluation.context import ContextPolicy, context_policy
from agent2.evaluation.scoring import PlayedItem, score_played
from agent2.llm.thoughts import AUTO, NONE, split_thought
from agent2.plugins import note_row
from agent2.records import (
    AnswerOffer,
    Benchmark,
    Completion,
    Environment,
    Item,
    JsonValue,
    LikelihoodSampler,
    Message,
    Prompt,
    Rollout,
    RolloutStatus,
    SampledToken,
    Sampler,
    SamplingSettings,
    Score,
    ScoredRollout,
    Scorer,
    Step,
    StopReason,
    ToolSampler,
    Turn,
    Usage,
    derive_seed,
    place_of_item,
    sum_if_known,
)
from agent2.texts import storable

logger = logging.getLogger(__name__)

AHEAD = 32
"""Worlds that act before the first answer is collected; a channel that they share has to keep so many answers."""


class Attempt(msgspec.Struct, frozen=True):
    """One planned play of one item."""

    item: Item
    attempt: int
    """Number of the attempt at this item, from 0."""
    seed: int
    """Seeds each request, together with the turn."""
    world_seed: int | None = None
    """Seeds the environment; None: `seed` does. Episodes that are compared within a group share it."""


@dataclass(frozen=True, slots=True)
class PlaySettings:
    """How attempts are played."""

    sampling: SamplingSettings
    """Its seed is replaced for each request."""
    max_turns: int
    """Where a world's own `max_turns` is lower, that one counts."""
    max_in_flight: int | None = None
    """Most rollouts in flight at once; None: as many as the sampler has capacity for."""
    retries: int = 1
    """How often an attempt is restarted after a fault that the fault table allows to retry."""
    max_wall_time_s: float | None = None
    """For one rollout, abandoned tries included; checked after each message. None: no limit."""
    context: str = "full"
    """What of an episode is sent: a name for `context.context_policy`."""
    max_episode_tokens: int | None = None
    """Most tokens that the model may write in all turns of one try together; None: no limit. Messages whose tokens a
    server does not report do not count."""
    thinking: str = AUTO
    """How thought and answer are told apart: a value of `llm.thoughts.read_thinking`."""
    needs_sampler: bool = False
    """True: a sampler that fails, and a model that cannot be drawn from, raise SamplerFailed. False: they are faults of
    the rollouts that they cost."""


class Dialogue(Protocol):
    """One try of an episode, as its sampler reads it."""

    def prompt(self) -> Prompt | None:
        """What to send for the next message; None: there is no room for another one, which ends the episode."""

    def add(self, completion: Completion, reply: Message | None) -> None:
        """Take in a message and the world's reply to it; None: the episode is over."""


class Finished(msgspec.Struct, frozen=True):
    """An attempt that is over."""

    attempt: Attempt
    rollout: Rollout
    dialogue: Dialogue | None
    """Of its last try; None: it failed."""


EpisodePolicy = Callable[[Attempt, Environment, Sequence[Message]], str]
"""The next message of a player that may know the item and see the world, from the chat so far."""


def play(
    attempts: Iterable[Attempt],
    sampler: Sampler,
    make_environment: Callable[[], Environment],
    scorer: Scorer,
    settings: PlaySettings,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ScoredRollout]:
    """Play every attempt and score each as it finishes."""
    return score_played(play_rollouts(attempts, sampler, make_environment, settings, clock), scorer)


def play_rollouts(
    attempts: Iterable[Attempt],
    sampler: Sampler,
    make_environment: Callable[[], Environment],
    settings: PlaySettings,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[PlayedItem]:
    """Play every attempt through chats; yields each rollout with its item as it finishes, in no particular order.

    What `play_dialogues` says holds here too. Raises ConfigError for an unknown context policy.
    """
    policy = context_policy(settings.context)

    def converse(item: Item, opening: Sequence[Message]) -> _Chat:
        return _Chat(policy, opening, len(opening))

    for finished in play_dialogues(attempts, sampler, make_environment, converse, settings, clock):
        yield finished.attempt.item, finished.rollout


def play_by(
    player: EpisodePolicy,
    attempts: Iterable[Attempt],
    make_environment: Callable[[], Environment],
    max_turns: int,
    retries: int = 1,
) -> Iterator[PlayedItem]:
    """Play attempts one after the other by a player that knows the item: an oracle, an expert, a script."""
    settings = PlaySettings(SamplingSettings(), max_turns, max_in_flight=1, retries=retries)
    return play_rollouts(attempts, _PlayerSampler(player), make_environment, settings)


def score_messages(benchmark: Benchmark, item: Item, messages: Sequence[str], seed: int = 0) -> Score:
    """The verdict on an item in which the model says these messages, by the scorer that judges hidden items.

    seed: of the world. Messages after the end of an episode are ignored; where they run out, the model's message is
    empty. The score is missing, with a fault, where the world or the scorer breaks.
    """
    return score_answers(benchmark, [(item, messages)], seed)[0]


def score_answers(
    benchmark: Benchmark, answers: Sequence[tuple[Item, Sequence[str]]], seed: int = 0, scorer: Scorer | None = None
) -> list[Score]:
    """The same for many items, each with its messages, in order; an item may come again with other messages.

    scorer: None: the benchmark's own.
    """
    return [scored.score for scored in scored_answers(benchmark, answers, seed, scorer)]


def scored_answers(
    benchmark: Benchmark, answers: Sequence[tuple[Item, Sequence[str]]], seed: int = 0, scorer: Scorer | None = None
) -> list[ScoredRollout]:
    """As `score_answers`, with the rollouts."""
    attempts = [Attempt(item, number, seed) for number, (item, _) in enumerate(answers)]
    scripts = [iter(messages) for _, messages in answers]
    max_turns = min(benchmark.max_turns, max(1, *(len(messages) for _, messages in answers), 1)) if answers else 1
    rollouts = play_by(
        lambda attempt, *_: next(scripts[attempt.attempt], ""), attempts, benchmark.environment, max_turns, retries=0
    )
    by_number = {scored.rollout.attempt: scored for scored in score_played(rollouts, scorer or benchmark.scorer())}
    return [by_number[number] for number in range(len(answers))]


def play_dialogues(
    attempts: Iterable[Attempt],
    sampler: Sampler,
    make_environment: Callable[[], Environment],
    converse: Callable[[Item, Sequence[Message]], Dialogue],
    settings: PlaySettings,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Finished]:
    """Play every attempt; yields each as it finishes, in no particular order.

    make_environment: called once for each try; environments are single-use. converse: begins the dialogue of a try
    from its opening. clock: in seconds. Raises ConfigError for settings without room for a single turn or rollout.
    Closing the iterator early leaves the requests in flight with the sampler.
    """
    limit = sampler.capacity if settings.max_in_flight is None else settings.max_in_flight
    for name, value in (("max_in_flight", limit), ("max_turns", settings.max_turns)):
        if value < 1:
            raise ConfigError(f"rollouts cannot be played with {name}={value}; set it to at least 1")
    loop = _Loop(sampler, make_environment, converse, settings, clock)
    remaining = iter(attempts)
    while True:
        while room := limit - len(loop.in_flight):
            # Pulled only when there is room: `attempts` may be a generator of any length.
            if not (episodes := [_Episode(attempt) for attempt in islice(remaining, room)]):
                break
            yield from loop.begin(episodes)
        if not loop.in_flight:
            return
        arrived = [(episode, _without_thought(done, settings.thinking)) for episode, done in loop.collect()]
        # All worlds act before any episode advances, so that those in other processes work side by side.
        steps = iter(
            act_all(
                [
                    (episode.environment, completion.text, episode.attempt.item)
                    for episode, completion in arrived
                    if completion.stop_reason is not StopReason.FAULT
                ]
            )
        )
        for episode, completion in arrived:
            if completion.stop_reason is StopReason.FAULT:
                finished = loop.give_up(episode, completion)
            else:
                finished = loop.advance(episode, completion, next(steps))
            if finished is not None:
                yield finished


class _PlayerSampler:
    """A player in the place of a model: the loop shows it the attempt and the world beside the chat."""

    capacity = 1

    def __init__(self, player: EpisodePolicy) -> None:
        self._player = player
        self._completions: dict[int, Completion] = {}

    def answer(self, request_id: int, attempt: Attempt, world: Environment, chat: Sequence[Message]) -> None:
        """Answer a request at once; what the player raises is raised here."""
        reply = self._player(attempt, world, chat)
        if not isinstance(reply, str):
            raise ConfigError(f"the player returned {quoted(reply)}; return a str")
        self._completions[request_id] = Completion(reply)

    def submit(self, request_id: int, prompt: Prompt, settings: SamplingSettings) -> None:
        """Refused: a player cannot answer without its attempt and world."""
        raise SamplerFailed("a player answers only for an attempt and its world; use `answer`")

    def collect(self) -> list[tuple[int, Completion]]:
        """All requests since the last call."""
        arrived = list(self._completions.items())
        self._completions.clear()
        return arrived

    def describe(self) -> dict[str, JsonValue]:
        """States that no model is involved."""
        return {"kind": "player", "model": None}

    def close(self) -> None:
        """Holds nothing that must be released."""


@dataclass(slots=True)
class _Chat:
    """A dialogue as messages."""

    policy: ContextPolicy
    messages: Sequence[Message]
    n_opening: int

    def prompt(self) -> Prompt:
        return self.policy.messages_to_send(self.messages, self.n_opening)

    def add(self, completion: Completion, reply: Message | None) -> None:
        if reply is not None:  # a new list: the sampler may still hold the prompt
            self.messages = [*self.messages, Message("assistant", completion.text), reply]


@dataclass(slots=True)
class _Episode:
    """An attempt in flight: all that is needed to continue when the next completion arrives."""

    attempt: Attempt
    environment: Environment = field(init=False)
    dialogue: Dialogue = field(init=False)
    opening: Sequence[Message] = ()
    turns: list[Turn] = field(default_factory=list)
    started_at: float | None = None
    prompt_tokens: int | None = 0
    """Of every try, abandoned ones included."""
    completion_tokens: int | None = 0
    retries: int = 0
    note: str = ""


def _without_thought(completion: Completion, thinking: str) -> Completion:
    """The completion with the thought in its text apart, and without half characters, which no card can hold."""
    if completion.stop_reason is StopReason.FAULT:
        return completion
    if (text := storable(completion.text)) is not completion.text:
        completion = structs.replace(completion, text=text)
    if completion.thought is not None and (text := storable(completion.thought.text)) is not completion.thought.text:
        completion = structs.replace(completion, thought=structs.replace(completion.thought, text=text))
    if completion.thought is not None and thinking != NONE:
        thinking = AUTO  # a stated mark is gone where the server has told the two apart; some leave the thought in both
    thought, answer = split_thought(completion.text, thinking)
    return completion if thought is None else structs.replace(completion, text=answer, thought=thought)


def _kept_tokens(completion: Completion) -> tuple[SampledToken, ...] | msgspec.UnsetType:
    """What a card stores of a completion whose sampler returns the text of its tokens."""
    if completion.pieces is None or completion.logprobs is None:
        return msgspec.UNSET
    columns = (completion.token_ids, completion.pieces, (round(logprob, 4) for logprob in completion.logprobs))
    return tuple(map(SampledToken, *columns))


class _Loop:
    """The moves of an episode; each returns the finished attempt when the episode is over, else None."""

    def __init__(
        self,
        sampler: Sampler,
        make_environment: Callable[[], Environment],
        converse: Callable[[Item, Sequence[Message]], Dialogue],
        settings: PlaySettings,
        clock: Callable[[], float],
    ) -> None:
        self.in_flight: dict[int, _Episode] = {}
        self._sampler = sampler
        self._player = sampler if isinstance(sampler, _PlayerSampler) else None
        self._takes_pictures = self._player is not None or getattr(sampler, "takes_pictures", False)
        self._offers_tools = isinstance(sampler, ToolSampler) and sampler.takes_tools
        self._make_environment = _natively(make_environment) if self._offers_tools else make_environment
        self._converse = converse
        self._settings = settings
        self._clock = clock
        self._next_request = 0
        self._given_up: set[int] = set()

    def begin(self, episodes: Sequence[_Episode]) -> list[Finished]:
        """Open a world for each and request the first message; returns the attempts that are over at once."""
        finished_at_once = []
        plans = [episode.attempt for episode in episodes]
        starts = [(plan.item, plan.seed if plan.world_seed is None else plan.world_seed) for plan in plans]
        for episode, (world, opening) in zip(episodes, reset_all(self._make_environment, starts), strict=True):
            if world is None or isinstance(opening, EnvironmentFailed):
                finished = self._fault(episode, Fault.ENVIRONMENT, str(opening))
            else:
                self._require_seen(episode, opening)
                episode.environment, episode.opening = world, opening
                episode.dialogue = self._converse(episode.attempt.item, opening)
                finished = self._ask(episode)
            if finished is not None:
                finished_at_once.append(finished)
        return finished_at_once

    def collect(self) -> list[tuple[_Episode, Completion]]:
        """Episodes whose completion arrived; all of them, with a fault, when the sampler broke."""
        try:
            done = self._sampler.collect()
            if not done:
                raise SamplerFailed(f"the sampler returned nothing with {len(self.in_flight)} requests in flight")
        except SamplerFailed as error:
            if self._settings.needs_sampler:
                raise
            # What is in flight is lost with the queue; answers that still arrive are not used.
            self._given_up.update(self.in_flight)
            broken = Completion("", stop_reason=StopReason.FAULT, fault=error.fault, reason=str(error))
            lost = [(episode, broken) for episode in self.in_flight.values()]
            self.in_flight.clear()
            return lost
        arrived = []
        for request_id, completion in done:
            if request_id in self._given_up:
                self._given_up.discard(request_id)
                continue
            if request_id not in self.in_flight:
                raise SamplerFailed(f"the sampler answered request {request_id}, which was never submitted")
            arrived.append((self.in_flight.pop(request_id), completion))
        return arrived

    def give_up(self, episode: _Episode, completion: Completion) -> Finished | None:
        """No completion came: restart or finish. Raises SamplerFailed where the model is to blame and is needed."""
        fault = completion.fault or Fault.INFRASTRUCTURE
        if self._settings.needs_sampler and FAULT_POLICY[fault].counts_against_model:
            raise SamplerFailed(
                f"item {episode.attempt.item.id}, message {len(episode.turns) + 1}: {completion.reason}; the policy "
                "cannot be drawn from any more: go back to an earlier checkpoint and lower the learning rate"
            )
        self._count(episode, completion)
        return self._fault(episode, fault, completion.reason, is_final=completion.is_final)

    def advance(self, episode: _Episode, completion: Completion, step: Step | EnvironmentFailed) -> Finished | None:
        """Take in what the world answered to a completion; ask for the next message or finish."""
        self._count(episode, completion)
        if isinstance(step, EnvironmentFailed):
            return self._fault(episode, step.fault, str(step))
        observation = step.observation
        episode.turns.append(
            Turn(
                completion.text, observation, completion.stop_reason, completion.prompt_tokens,
                completion.completion_tokens, _kept_tokens(completion),
                msgspec.UNSET if completion.thought is None else completion.thought, step.pictures,
            )
        )  # fmt: skip
        # A message that comes too late is kept and scored; how the rollout counts is up to the reporting rule.
        is_late = self._is_late(episode)
        is_spent = not step.done and self._tokens_left(episode) == 0
        is_capped = not step.done and len(episode.turns) >= turn_cap(episode.environment, self._settings.max_turns)
        if step.done or is_late or is_spent or is_capped:
            episode.dialogue.add(completion, None)
            if is_spent:
                episode.note = f"ended: the budget of {self._settings.max_episode_tokens} tokens is spent"
            capped = RolloutStatus.TOKEN_CAP if is_spent else RolloutStatus.TURN_CAP
            ended = RolloutStatus.COMPLETED if step.done else capped
            return self._finish(episode, RolloutStatus.TIME_CAP if is_late else ended)
        if observation is None:
            reason = f"turn {len(episode.turns)}: the episode continues without an observation"
            return self._fault(episode, Fault.ENVIRONMENT, reason)
        reply = Message("user", observation, step.pictures)
        self._require_seen(episode, [reply])
        episode.dialogue.add(completion, reply)
        return self._ask(episode)

    def _require_seen(self, episode: _Episode, messages: Sequence[Message]) -> None:
        """Raise ConfigError for pictures where the model is asked with text alone: it would play blind."""
        if not self._takes_pictures and any(message.pictures for message in messages):
            raise ConfigError(
                f"item {episode.attempt.item.id} has pictures, and this checkpoint is asked with text alone; "
                "name a folder of a model that sees, with its processor, or an endpoint whose model does"
            )

    def _count(self, episode: _Episode, completion: Completion) -> None:
        """Add what a completion cost."""
        episode.prompt_tokens = sum_if_known(episode.prompt_tokens, completion.prompt_tokens)
        episode.completion_tokens = sum_if_known(episode.completion_tokens, completion.completion_tokens)

    def _ask(self, episode: _Episode) -> Finished | None:
        prompt = episode.dialogue.prompt()
        if prompt is None:
            episode.note = "ended: the context has no room for another message"
            return self._finish(episode, RolloutStatus.TURN_CAP)
        request_id = self._next_request
        self._next_request += 1
        # The clock runs from the first request, over restarts too; opening the world does not count.
        if episode.started_at is None:
            episode.started_at = self._clock()
        # Of attempt and turn alone, so that a batch of 1 and one of 64 draw the same.
        seed = derive_seed(episode.attempt.seed, len(episode.turns))
        settings, tokens_left = self._settings.sampling, self._tokens_left(episode)
        max_tokens = settings.max_tokens if tokens_left is None else min(settings.max_tokens, tokens_left)
        # Constructed, since `dataclasses.replace` takes four times as long and this runs once a message.
        sampling = SamplingSettings(settings.temperature, settings.top_p, max_tokens, seed)
        try:
            if self._player is not None:
                chat = cast(Sequence[Message], prompt)  # `play_by` plays through chats only
                self._player.answer(request_id, episode.attempt, episode.environment, chat)
            elif (offer := _offered_answers(episode.environment)) is not None:
                if not isinstance(self._sampler, LikelihoodSampler):
                    raise ConfigError(
                        f"item {episode.attempt.item.id}: answers are compared by likelihood, which this checkpoint "
                        "cannot give; name the FOLDER of a model, or an endpoint (vLLM, SGLang)"
                    )
                self._sampler.submit_answers(request_id, prompt, offer)
            elif self._offers_tools:
                tools = _offered_tools(episode.environment)
                cast(ToolSampler, self._sampler).submit(request_id, prompt, sampling, tools)
            else:
                self._sampler.submit(request_id, prompt, sampling)
        except SamplerFailed as error:
            if self._settings.needs_sampler:
                raise
            return self._fault(episode, error.fault, str(error))
        self.in_flight[request_id] = episode
        return None

    def _fault(self, episode: _Episode, fault: Fault, reason: str, *, is_final: bool = False) -> Finished | None:
        """Restart where the fault table allows it and it can help, else end the rollout as failed."""
        attempt = episode.attempt
        reason += place_of_item(attempt.item) if fault is Fault.ENVIRONMENT else ""
        policy = FAULT_POLICY[fault]
        logger.info("item %s attempt %d: %s fault: %s", attempt.item.id, attempt.attempt, fault, reason)
        if policy.retry and not is_final and episode.retries < self._settings.retries and not self._is_late(episode):
            episode.retries += 1
            episode.note = f"restarted after this {fault} fault: {reason}"
            episode.turns = []
            return next(iter(self.begin([episode])), None)
        full_reason = f"{reason} ({episode.note})" if episode.note else reason
        # Where the model is to blame the world is whole: its state says what kind of episode was lost.
        is_whole = policy.counts_against_model and bool(episode.turns)
        state = dict(episode.environment.state()) if is_whole else {}
        rollout = self._rollout(episode, RolloutStatus.FAILED, state, fault, full_reason)
        rollout = structs.replace(rollout, is_final=True) if is_final else rollout
        return Finished(attempt, rollout, None)

    def _is_late(self, episode: _Episode) -> bool:
        limit, started = self._settings.max_wall_time_s, episode.started_at
        return limit is not None and started is not None and self._clock() - started > limit

    def _tokens_left(self, episode: _Episode) -> int | None:
        limit = self._settings.max_episode_tokens
        return None if limit is None else max(0, limit - sum(turn.completion_tokens or 0 for turn in episode.turns))

    def _finish(self, episode: _Episode, status: RolloutStatus) -> Finished | None:
        try:
            state = dict(episode.environment.state())
        except EnvironmentFailed as error:
            return self._fault(episode, error.fault, str(error))
        except Exception as error:
            note_row(error, place_of_item(episode.attempt.item))
            raise
        rollout = self._rollout(episode, status, state, None, episode.note)
        return Finished(episode.attempt, rollout, episode.dialogue)

    def _rollout(
        self,
        episode: _Episode,
        status: RolloutStatus,
        state: dict[str, JsonValue],
        fault: Fault | None,
        reason: str,
    ) -> Rollout:
        attempt, answer = episode.attempt, state.get("answer")
        seconds = 0.0 if episode.started_at is None else self._clock() - episode.started_at
        return Rollout(
            item_id=attempt.item.id,
            attempt=attempt.attempt,
            seed=attempt.seed,
            status=status,
            prompt=episode.opening,
            turns=episode.turns,
            answer=None if answer is None else str(answer),
            state=state,
            usage=Usage(episode.prompt_tokens, episode.completion_tokens, seconds),
            fault=fault,
            reason=reason,
            retries=episode.retries,
        )


def _offered_answers(environment: Environment) -> AnswerOffer | None:
    """The answers that a world wants compared by likelihood; None: it wants a message."""
    offered: Callable[[], AnswerOffer] | None = getattr(environment, "offered_answers", None)
    return offered() if offered is not None else None


def _offered_tools(environment: Environment) -> Sequence[Mapping[str, JsonValue]]:
    """Schemas of the tools of a world that has some."""
    offered: Callable[[], Sequence[Mapping[str, JsonValue]]] | None = getattr(environment, "offered_tools", None)
    return offered() if offered is not None else ()


def _natively(make_environment: Callable[[], Environment]) -> Callable[[], Environment]:
    """Worlds that know before their opening that the sampler offers their tools, where that changes what they say."""

    def make() -> Environment:
        world = make_environment()
        if (offer_natively := getattr(world, "offer_natively", None)) is not None:
            offer_natively()
        return world

    return make


class RemoteEnvironment(Environment, Protocol):
    """An environment that works elsewhere: `reset` and `act` in two halves; any half may raise EnvironmentFailed."""

    def begin(self, item: Item, seed: int) -> None:
        """First half of `reset`; does not wait."""

    def begun(self) -> Sequence[Message]:
        """Second half of `reset`."""

    def begin_act(self, action: str) -> None:
        """First half of `act`; does not wait."""

    def acted(self) -> Step:
        """Second half of `act`."""


def turn_cap(world: Environment, max_turns: int) -> int:
    """The lower of `max_turns` and the world's own `max_turns`, for worlds that have one and refuse to go beyond it."""
    cap: int | None = getattr(world, "max_turns", None)
    return max_turns if cap is None else min(max_turns, cap)


def is_remote(world: Environment) -> bool:
    """Whether a world is called in two halves."""
    return hasattr(world, "begin_act")


def reset_all(
    make_environment: Callable[[], Environment], starts: Iterable[tuple[Item, int]]
) -> list[tuple[Environment | None, Sequence[Message] | EnvironmentFailed]]:
    """Make a world for each (item, seed) and begin it; returns worlds and openings.

    No world where making it failed. `AHEAD` worlds are begun before the first is waited for.
    """
    resets: list[tuple[Environment | None, Sequence[Message] | EnvironmentFailed]] = []
    remaining = iter(starts)
    while batch := list(islice(remaining, AHEAD)):
        worlds = [_begin(make_environment, item, seed) for item, seed in batch]
        for (world, failure), (item, seed) in zip(worlds, batch, strict=True):
            opening: Sequence[Message] | EnvironmentFailed
            # A call that could not be begun has no answer on its way: to wait for one would take another world's.
            if world is None or failure is not None:
                opening = failure or EnvironmentFailed("no world was made")
            else:
                try:
                    remote = cast(RemoteEnvironment, world)
                    opening = remote.begun() if is_remote(world) else world.reset(item, seed)
                except EnvironmentFailed as error:
                    opening = error
                except Exception as error:
                    note_row(error, place_of_item(item))
                    raise
            resets.append((world, opening))
    return resets


def _begin(
    make_environment: Callable[[], Environment], item: Item, seed: int
) -> tuple[Environment | None, EnvironmentFailed | None]:
    """A world, and what went wrong; one that works elsewhere has begun."""
    world = None
    try:
        world = make_environment()
        if is_remote(world):
            cast(RemoteEnvironment, world).begin(item, seed)
    except EnvironmentFailed as error:
        return world, error
    return world, None


def act_all(actions: Iterable[tuple[Environment, str, Item]]) -> list[Step | EnvironmentFailed]:
    """One action in each of several worlds, which must all be different; steps and failures in their order.

    `AHEAD` worlds have been asked to act before the first is asked for its answer.
    """
    steps: list[Step | EnvironmentFailed] = []
    remaining = iter(actions)
    while batch := list(islice(remaining, AHEAD)):
        failures = [_begin_act(world, action) for world, action, _ in batch]
        for (world, action, item), failure in zip(batch, failures, strict=True):
            try:
                if failure is not None:
                    steps.append(failure)
                elif is_remote(world):
                    steps.append(cast(RemoteEnvironment, world).acted())
                else:
                    steps.append(world.act(action))
            except EnvironmentFailed as error:
                steps.append(error)
            except Exception as error:
                note_row(error, place_of_item(item))
                raise
    return steps


def _begin_act(world: Environment, action: str) -> EnvironmentFailed | None:
    """Ask a world that works elsewhere to act; returns what went wrong."""
    if not is_remote(world):
        return None
    try:
        cast(RemoteEnvironment, world).begin_act(action)
    except EnvironmentFailed as error:
        return error
    return None
