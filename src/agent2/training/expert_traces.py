"""Trajectories of an expert, collected by playing: the rows that imitation learns from.

Each game is played anew with the expert's advice. In some episodes a share of the actions is clumsy on purpose (a
possible command drawn at random, or one that is impossible by now): what came of it and how the expert goes on is in
the row, the clumsy action itself is marked `"learn": false`. A model that has only seen an expert's spotless games
does not know what to do after its own first mistake.

Promises: the expert is asked only while a game is being played; games that were not won are counted and left out; all
randomness comes from the seed. Does NOT know how the expert decides.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from agent2.errors import ConfigError
from agent2.evaluation.worlds import turn_cap
from agent2.records import Environment, Item, JsonValue, derive_seed


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


def collect_traces(items: Sequence[Item], make_world: Callable[[], Any], settings: TraceSettings) -> Traces:
    """Play every item with the expert's advice.

    make_world: opens a fresh `TeachingWorld`. Raises ConfigError for settings that play nothing, EnvironmentFailed
    when a world breaks.
    """
    if settings.episodes_per_item < 1 or settings.max_turns < 1 or not items:
        raise ConfigError(
            f"collect_traces: {len(items)} items, {settings.episodes_per_item} episodes of each, "
            f"{settings.max_turns} turns; all three must be at least 1"
        )
    started = time.monotonic()
    rows: list[dict[str, JsonValue]] = []
    n_actions = 0
    for item in items:
        for number in range(settings.episodes_per_item):
            seed = derive_seed("expert trace", settings.seed, item.id, number)
            messages, is_won = _episode(item, make_world(), settings, seed)
            n_actions += sum(message["role"] == "assistant" for message in messages)
            if is_won:
                rows.append({"messages": messages})
    return Traces(rows, len(items) * settings.episodes_per_item, n_actions, time.monotonic() - started)


def _episode(
    item: Item, world: TeachingWorld, settings: TraceSettings, seed: int
) -> tuple[list[dict[str, JsonValue]], bool]:
    """The messages of one game, the last one an action, and whether it was won."""
    rng = np.random.default_rng(seed)
    rate = settings.clumsy_rate if rng.random() < settings.clumsy_share else 0.0
    messages: list[dict[str, JsonValue]] = [
        {"role": message.role, "content": message.content} for message in world.reset(item, seed)
    ]
    was_possible: dict[str, None] = {}
    for _ in range(turn_cap(world, settings.max_turns)):
        advice = world.ask_expert()
        possible = [action for action in world.admissible() if action not in settings.avoided]
        is_clumsy = rng.random() < rate
        action = _clumsy(possible, was_possible, settings, rng) if is_clumsy else advice
        was_possible.update(dict.fromkeys(possible))
        said: dict[str, JsonValue] = {"role": "assistant", "content": action}
        messages.append(said if action == advice or settings.learn_clumsy else {**said, "learn": False})
        step = world.act(action)
        if step.done or step.observation is None:
            break
        messages.append({"role": "user", "content": step.observation})
    if messages[-1]["role"] == "user":
        messages.pop()
    return messages, bool(world.state().get("won"))


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
