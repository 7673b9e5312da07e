"""The rollout engine: plays many attempts at once through one sampler.

It holds each attempt as a small state machine and only ever does three things: fill the sampler's queue,
collect, advance. Single-turn and fifty-turn items run through the same loop; a slow episode never holds up
the others. Worlds that work in other processes do so side by side (`worlds`).

Promises: attempts are pulled lazily; a request's seed depends on (attempt seed, turn) alone, never on the
batch; whatever breaks becomes a rollout with a fault according to `FAULT_POLICY` (restarted once where the
table allows it, and the rollout says so), so an attempt that was pulled is never lost. Verdicts are given behind it,
by `evaluation.scoring`.

Does NOT cover: time limits inside an environment, a scorer or one completion (a rollout's limit is looked at
between messages; what arrives late is kept and marked), and code errors in an environment (anything
but `EnvironmentFailed`), which stop the evaluation.

Calls to the worlds of many episodes at once.

A world of this process is called and answers. One that works elsewhere (`RemoteEnvironment`: a worker process, a
server) is told what to do, and asked for the answer only after others have been told as well, so that they work side
by side. Where a call fails, its EnvironmentFailed stands in the place of the answer.

Promises: answers in the order of the calls; every world that was told is asked before anything else is told, so worlds
may share a channel whose answers come in order. Does NOT catch anything but EnvironmentFailed.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Generic, Protocol, TypeVar, cast

from agent2.errors import FAULT_POLICY, ConfigError, EnvironmentFailed, Fault, SamplerFailed
from agent2.evaluation.context import context_policy
from agent2.evaluation.scoring import Played, score_played
from agent2.records import (
    Completion,
    Environment,
    Item,
    JsonValue,
    Message,
    Rollout,
    RolloutStatus,
    Sampler,
    SamplingSettings,
    ScoredRollout,
    Scorer,
    Step,
    StopReason,
    ToolSampler,
    Turn,
    Usage,
    derive_seed,
)

AHEAD = 32
"""Worlds that are told before the first of them is asked; a channel that they share has to keep so many answers."""

AnswerT = TypeVar("AnswerT")


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


@dataclass(frozen=True, slots=True)
class _Call(Generic[AnswerT]):
    """One call in two halves."""

    tell: Callable[[], None] | None
    """None: there is no first half."""
    ask: Callable[[], AnswerT]


def turn_cap(world: Environment, most: int) -> int:
    """The lower of `most` and the world's own `max_turns`, for worlds that have one and refuse to go on beyond it."""
    own: int | None = getattr(world, "max_turns", None)
    return most if own is None else min(most, own)


def is_remote(world: Environment) -> bool:
    """Whether a world is called in two halves."""
    return hasattr(world, "begin_act")


def reset_all(
    make_environment: Callable[[], Environment], starts: Iterable[tuple[Item, int]]
) -> list[tuple[Environment | None, Sequence[Message] | EnvironmentFailed]]:
    """Make a world for each (item, seed) and begin it; returns worlds and openings.

    No world where making it failed.
    """
    worlds: list[Environment | None] = []

    def calls() -> Iterator[_Call[Sequence[Message]]]:
        for item, seed in starts:
            worlds.append(None)
            try:
                world = worlds[-1] = make_environment()
            except EnvironmentFailed as error:
                yield _Call(None, partial(_fail, error))
                continue
            if is_remote(world):
                remote = cast(RemoteEnvironment, world)
                yield _Call(partial(remote.begin, item, seed), remote.begun)
            else:
                yield _Call(None, partial(world.reset, item, seed))

    openings = _answers(calls())
    return list(zip(worlds, openings, strict=True))


def act_all(actions: Iterable[tuple[Environment, str]]) -> list[Step | EnvironmentFailed]:
    """One action in each of several worlds, which must all be different."""
    return _answers(
        _Call(partial(cast(RemoteEnvironment, world).begin_act, action), cast(RemoteEnvironment, world).acted)
        if is_remote(world)
        else _Call(None, partial(world.act, action))
        for world, action in actions
    )


def _answers(calls: Iterable[_Call[AnswerT]]) -> list[AnswerT | EnvironmentFailed]:
    answers: list[AnswerT | EnvironmentFailed] = []
    waiting = iter(calls)
    while some := list(islice(waiting, AHEAD)):
        told = [None if call.tell is None else _failure_of(call.tell) for call in some]
        for call, failure in zip(some, told, strict=True):
            if failure is None:
                try:
                    answers.append(call.ask())
                except EnvironmentFailed as error:
                    answers.append(error)
            else:
                answers.append(failure)
    return answers


def _failure_of(tell: Callable[[], None]) -> EnvironmentFailed | None:
    try:
        tell()
    except EnvironmentFailed as error:
        return error
    return None


def _fail(error: EnvironmentFailed) -> Sequence[Message]:
    raise error


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One play of one item that is still to be made."""

    item: Item
    attempt: int
    """Number of the attempt at this item, from 0."""
    seed: int
    """Seeds the environment and, with the turn, each request."""


@dataclass(frozen=True, slots=True)
class PlaySettings:
    """How attempts are played."""

    sampling: SamplingSettings
    """Its seed is replaced for each request."""
    max_turns: int
    max_in_flight: int | None = None
    """Most rollouts held at once; None: as many as the sampler has capacity for."""
    retries: int = 1
    """How often an attempt is restarted after a fault that the fault table allows to retry."""
    max_wall_time_s: float | None = None
    """For one rollout, tries that were given up included; looked at after each message. None: no limit."""
    context: str = "full"
    """What of an episode is sent: a name for `context.context_policy`."""
    max_episode_tokens: int | None = None
    """Most tokens that the model may write in all turns of one try together; None: no limit."""


@dataclass(slots=True)
class _Episode:
    """An attempt on its way: all that is needed to go on when the next completion arrives."""

    attempt: Attempt
    environment: Environment = field(init=False)
    opening: Sequence[Message] = ()
    messages: Sequence[Message] = ()
    turns: list[Turn] = field(default_factory=list)
    started_at: float | None = None
    prompt_tokens: int = 0
    """Of every try, the ones given up included."""
    completion_tokens: int = 0
    retries: int = 0
    note: str = ""


def play(
    attempts: Iterable[Attempt],
    sampler: Sampler,
    make_environment: Callable[[], Environment],
    scorer: Scorer,
    settings: PlaySettings,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ScoredRollout]:
    """Play every attempt and score each as it finishes: `play_rollouts` with `score_played` behind it."""
    return score_played(play_rollouts(attempts, sampler, make_environment, settings, clock), scorer)


def play_rollouts(
    attempts: Iterable[Attempt],
    sampler: Sampler,
    make_environment: Callable[[], Environment],
    settings: PlaySettings,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Played]:
    """Play every attempt; yields each rollout with its item as it finishes, in no particular order.

    make_environment: called once for each try; environments are single-use. clock: in seconds.
    Raises ConfigError for settings without room for a single turn or rollout and for an unknown context policy.
    Closing the iterator early leaves the requests in flight with the sampler.
    """
    limit = sampler.capacity if settings.max_in_flight is None else settings.max_in_flight
    for name, value in (("max_in_flight", limit), ("max_turns", settings.max_turns)):
        if value < 1:
            raise ConfigError(f"rollouts cannot be played with {name}={value}; set it to at least 1")
    engine = _Engine(sampler, make_environment, settings, clock)
    waiting = iter(attempts)
    while True:
        while room := limit - len(engine.in_flight):
            if not (episodes := [_Episode(attempt) for attempt in islice(waiting, room)]):
                break
            yield from engine.begin(episodes)
        if not engine.in_flight:
            return
        arrived = engine.collect()
        answered = [each for each in arrived if each[1].stop_reason is not StopReason.FAULT]
        steps = iter(act_all([(episode.environment, completion.text) for episode, completion in answered]))
        for episode, completion in arrived:
            if completion.stop_reason is StopReason.FAULT:
                finished = engine.give_up(episode, completion)
            else:
                finished = engine.advance(episode, completion, next(steps))
            if finished is not None:
                yield finished


class _Engine:
    """The moves of an episode; each returns the rollout with its item when the episode is over, else None."""

    def __init__(
        self,
        sampler: Sampler,
        make_environment: Callable[[], Environment],
        settings: PlaySettings,
        clock: Callable[[], float],
    ) -> None:
        self.in_flight: dict[int, _Episode] = {}
        self._sampler = sampler
        self._make_environment = make_environment
        self._settings = settings
        self._clock = clock
        self._context = context_policy(settings.context)
        self._next_request = 0
        self._given_up: set[int] = set()

    def begin(self, episodes: Sequence[_Episode]) -> list[Played]:
        """Open a world for each and ask for the first message; returns the rollouts that are over at once."""
        over = []
        starts = [(episode.attempt.item, episode.attempt.seed) for episode in episodes]
        for episode, (world, opening) in zip(episodes, reset_all(self._make_environment, starts), strict=True):
            if world is None or isinstance(opening, EnvironmentFailed):
                finished = self._fault(episode, Fault.ENVIRONMENT, str(opening))
            else:
                episode.environment = world
                episode.messages = episode.opening = opening
                finished = self._ask(episode)
            if finished is not None:
                over.append(finished)
        return over

    def collect(self) -> list[tuple[_Episode, Completion]]:
        """Episodes whose completion arrived; all of them, with a fault, when the sampler broke."""
        try:
            done = self._sampler.collect()
            if not done:
                raise SamplerFailed(f"the sampler returned nothing with {len(self.in_flight)} requests in flight")
        except SamplerFailed as error:
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

    def give_up(self, episode: _Episode, completion: Completion) -> Played | None:
        """No completion came: restart or finish."""
        self._count(episode, completion)
        return self._fault(episode, completion.fault or Fault.INFRASTRUCTURE, completion.reason)

    def advance(self, episode: _Episode, completion: Completion, step: Step | EnvironmentFailed) -> Played | None:
        """Take in what the world answered to a completion; ask for the next message or finish."""
        n_tokens = self._count(episode, completion)
        action = completion.text
        try:
            if isinstance(step, EnvironmentFailed):
                raise step
            observation = step.observation
            episode.turns.append(Turn(action, observation, completion.stop_reason, completion.prompt_tokens, n_tokens))
            is_late = self._is_late(episode)
            is_spent = self._tokens_left(episode) == 0
            if step.done or is_late or is_spent or len(episode.turns) >= self._settings.max_turns:
                status = RolloutStatus.TIME_CAP if is_late else _status_of(step)
                if is_spent and not step.done:
                    episode.note = f"ended: the budget of {self._settings.max_episode_tokens} tokens is spent"
                return self._finish(episode, dict(episode.environment.state()), status)
            if observation is None:
                raise EnvironmentFailed(f"turn {len(episode.turns)}: the episode goes on without an observation")
        except EnvironmentFailed as error:
            return self._fault(episode, error.fault, str(error))
        episode.messages = [*episode.messages, Message("assistant", action), Message("user", observation)]
        return self._ask(episode)

    def _count(self, episode: _Episode, completion: Completion) -> int:
        """Add what a completion cost; returns its tokens."""
        n_tokens = len(completion.token_ids) if completion.n_tokens is None else completion.n_tokens
        episode.prompt_tokens += completion.prompt_tokens
        episode.completion_tokens += n_tokens
        return n_tokens

    def _ask(self, episode: _Episode) -> Played | None:
        request_id = self._next_request
        self._next_request += 1
        if episode.started_at is None:
            episode.started_at = self._clock()
        seed = derive_seed(episode.attempt.seed, len(episode.turns))
        prompt = self._context.sent(episode.messages, len(episode.opening))
        settings, left = self._settings.sampling, self._tokens_left(episode)
        most = settings.max_tokens if left is None else min(settings.max_tokens, left)
        try:
            drawn = replace(settings, seed=seed, max_tokens=most)
            if isinstance(self._sampler, ToolSampler) and self._sampler.takes_tools:
                self._sampler.submit(request_id, prompt, drawn, _offered_tools(episode.environment))
            else:
                self._sampler.submit(request_id, prompt, drawn)
        except SamplerFailed as error:
            return self._fault(episode, error.fault, str(error))
        self.in_flight[request_id] = episode
        return None

    def _fault(self, episode: _Episode, fault: Fault, reason: str) -> Played | None:
        """Restart where the fault table allows it, else end the rollout as failed."""
        attempt = episode.attempt
        policy = FAULT_POLICY[fault]
        logger.info("item %s attempt %d: %s fault: %s", attempt.item.id, attempt.attempt, fault, reason)
        if policy.retry and episode.retries < self._settings.retries and not self._is_late(episode):
            episode.retries += 1
            episode.note = f"restarted after this {fault} fault: {reason}"
            episode.turns = []
            return next(iter(self.begin([episode])), None)
        full_reason = f"{reason} ({episode.note})" if episode.note else reason
        # Where the model is to blame the world is whole: its state says what kind of episode was lost.
        is_whole = policy.counts_against_model and bool(episode.turns)
        state = dict(episode.environment.state()) if is_whole else {}
        return attempt.item, self._rollout(episode, RolloutStatus.FAILED, state, fault, full_reason)

    def _is_late(self, episode: _Episode) -> bool:
        limit, started = self._settings.max_wall_time_s, episode.started_at
        return limit is not None and started is not None and self._clock() - started > limit

    def _tokens_left(self, episode: _Episode) -> int | None:
        limit = self._settings.max_episode_tokens
        return None if limit is None else max(0, limit - sum(turn.completion_tokens for turn in episode.turns))

    def _finish(self, episode: _Episode, state: dict[str, JsonValue], status: RolloutStatus) -> Played:
        return episode.attempt.item, self._rollout(episode, status, state, None, episode.note)

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


def _offered_tools(environment: Environment) -> Sequence[Mapping[str, JsonValue]]:
    """Schemas of the tools of a world that has some."""
    offered: Callable[[], Sequence[Mapping[str, JsonValue]]] | None = getattr(environment, "offered_tools", None)
    return offered() if offered is not None else ()


def _status_of(step: Step) -> RolloutStatus:
    return RolloutStatus.COMPLETED if step.done else RolloutStatus.TURN_CAP
