"""Trajectories of an expert, collected by playing: the rows that imitation learns from.

Each item is played anew with the expert's advice. In some episodes a share of the actions is clumsy on purpose (a
possible command drawn at random, or one that is impossible by now): what came of it and how the expert goes on is in
the row, the clumsy action itself is marked `"learn": false`. A model that has only seen an expert's spotless games
does not know what to do after its own first mistake.

Promises: the expert is asked only while an episode is being played; those that were not won are counted and left out;
all randomness comes from the seed. Does NOT know how the expert decides.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from agent2.errors import ConfigError, EnvironmentFailed
from agent2.evaluation.engine import Attempt, play_by
from agent2.records import Environment, Item, JsonValue, Message, Rollout, derive_seed


class TeachingWorld(Environment, Protocol):
    """A world that can be asked for advice while it is being played."""

    def ask_expert(self) -> str:
        """What the expert would do now."""

    def admissible(self) -> Sequence[str]:
        """The actions that are possible now."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """How traces are collected; shares are 0 to 1."""

    episodes_per_item: int = 2
    max_turns: int = 12
    """Where a world's own `max_turns` is lower, that one counts."""
    clumsy_share: float = 0.5
    """Of episodes in which the player is clumsy at all."""
    clumsy_rate: float = 0.25
    """Of actions in such an episode."""
    learn_clumsy: bool = False
    """True marks nothing, so that clumsiness is imitated too: for a pupil that is meant to be weak."""
    impossible_rate: float = 0.3
    """Of clumsy actions: what was possible before and is not any more, where there is such an action."""
    avoided: tuple[str, ...] = ("help",)
    """Actions that clumsiness never chooses, such as one that is answered at length."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Traces:
    """What came of it."""

    rows: list[dict[str, JsonValue]]
    """{"messages": [...]} of every game that was won, as `train_sft` takes them."""
    n_played: int
    n_actions: int
    seconds: float


Expert = Callable[[Item, Sequence[Message]], str]
"""The next message of somebody who does an item well, from the chat so far."""
Verdict = Callable[[Item, Rollout], bool]
"""Whether an episode is kept."""


def is_won(item: Item, rollout: Rollout) -> bool:
    """As worlds with a goal tell it: the state's `won`."""
    return bool(rollout.state.get("won"))


def collect_traces(
    items: Sequence[Item],
    make_world: Callable[[], Any],
    settings: TraceSettings,
    expert: Expert | None = None,
    verdict: Verdict = is_won,
) -> Traces:
    """Play every item with the expert's advice; where the world lists no possible actions, nobody is clumsy.

    make_world: opens a fresh world; a `TeachingWorld` where expert is None, which is asked then. Raises ConfigError for
    settings that play nothing, EnvironmentFailed when a world breaks.
    """
    if settings.episodes_per_item < 1 or settings.max_turns < 1 or not items:
        raise ConfigError(
            f"collect_traces: {len(items)} items, {settings.episodes_per_item} episodes of each, "
            f"{settings.max_turns} turns; all three must be at least 1"
        )
    started = time.monotonic()
    attempts = [
        Attempt(item, number, derive_seed("expert trace", settings.seed, item.id, number))
        for item in items
        for number in range(settings.episodes_per_item)
    ]
    player = _TracePlayer(settings, expert)
    rows: list[dict[str, JsonValue]] = []
    n_actions = 0
    for item, rollout in play_by(player, attempts, make_world, settings.max_turns, retries=0):
        if rollout.fault is not None:
            raise EnvironmentFailed(rollout.reason)
        n_actions += len(rollout.turns)
        if verdict(item, rollout):
            rows.append({"messages": player.messages_of(rollout)})
    return Traces(rows, len(attempts), n_actions, time.monotonic() - started)


class _TracePlayer:
    """Follows the expert's advice, now and then clumsily; plays one episode after the other."""

    def __init__(self, settings: TraceSettings, expert: Expert | None) -> None:
        self._settings, self._expert = settings, expert
        self._attempt: Attempt | None = None

    def __call__(self, attempt: Attempt, world: Any, chat: Sequence[Message]) -> str:
        """The next action."""
        settings = self._settings
        if attempt is not self._attempt:
            self._attempt = attempt
            self._rng = np.random.default_rng(attempt.seed)
            self._rate = settings.clumsy_rate if self._rng.random() < settings.clumsy_share else 0.0
            self._was_possible: dict[str, None] = {}
            self._unlearned: set[int] = set()
        advice = world.ask_expert() if self._expert is None else self._expert(attempt.item, chat)
        listed = world.admissible() if hasattr(world, "admissible") else ()
        possible = [action for action in listed if action not in settings.avoided]
        is_clumsy = self._rng.random() < self._rate and bool(possible)
        action = _clumsy(possible, self._was_possible, settings, self._rng) if is_clumsy else advice
        self._was_possible.update(dict.fromkeys(possible))
        if action != advice and not settings.learn_clumsy:
            self._unlearned.add(len(chat))
        return action

    def messages_of(self, rollout: Rollout) -> list[dict[str, JsonValue]]:
        """The chat of the episode that was just played up to its last action, as `train_sft` takes it."""
        chat = list(rollout.prompt)
        for turn in rollout.turns:
            chat += [Message("assistant", turn.action), Message("user", turn.observation or "")]
        return [
            {"role": message.role, "content": message.content, **({"learn": False} if n in self._unlearned else {})}
            for n, message in enumerate(chat[:-1])
        ]


def _clumsy(
    possible: Sequence[str], was_possible: dict[str, None], settings: TraceSettings, rng: np.random.Generator
) -> str:
    """An action that nobody advised: first what to do, then with what, so that no verb outnumbers the others."""
    gone = [action for action in was_possible if action not in set(possible)]
    options: Sequence[str] = gone if gone and rng.random() < settings.impossible_rate else possible
    by_verb: dict[str, list[str]] = {}
    for action in options:
        by_verb.setdefault(action.partition(" ")[0], []).append(action)
    verbs = sorted(by_verb)
    named = by_verb[verbs[int(rng.integers(len(verbs)))]]
    return named[int(rng.integers(len(named)))]
