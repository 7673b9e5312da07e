"""What `mini_functions`, `mini_apis` and `mini_repo` share: questions about the tools' small world, and their episodes.

A question is a sentence with the call that answers it; its wordings are the same in all benchmarks, so that what is
learned on one helps on another. `ToolEpisodes` is the class of benchmarks whose corpora are chats of a player in a
tool world (`play_chat`), and `right_share` decides how often such a corpus is right.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Generic, TypeVar

import numpy as np

from agent2.benchmarks.home import Players, Source, at_random, pick
from agent2.environments.tools.toolboxes import CITIES, CURRENCIES, DAYS, ITEMS
from agent2.environments.tools.world import NAME, VERSION, Toolbox, ToolWorld, WorldSettings
from agent2.records import Environment, Item, JsonValue, Message, Split, derive_seed

_WORDINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "price": ("What do {count} {item} cost?", "Price of {count} {item}?"),
        "stock": ("How many {item} are left in {city}?", "Stock of {item} in {city}?"),
        "distance": ("How far is it from {start} to {end}?", "Distance from {start} to {end}?"),
        "weather": ("Weather in {city} on {day}?", "What sky has {city} on {day}?"),
        "area": ("Area of {width} by {height}?", "How large is {width} by {height}?"),
        "edge": ("Edge of {width} by {height}?", "How long is the edge of {width} by {height}?"),
        "convert": ("What is {amount} {currency} worth?", "Convert {amount} {currency}."),
        "hour": ("What hour is it in {city} {later} hours later?", "Hour in {city} after {later} hours?"),
        "order": ("Order {count} {item}.", "Put {count} {item} into the cart."),
        "book": ("Book {city} for {day}.", "Reserve {city} on {day}."),
    }
)
ChatPolicy = Callable[[Sequence[Message]], str]
"""The model's next message, from the chat so far."""
Task = TypeVar("Task")


@dataclass(frozen=True, slots=True)
class ToolQuestion:
    """A question and the call that answers it."""

    capability: str
    """Name of the function that answers it."""
    arguments: Mapping[str, JsonValue]
    text: str


def draw_question(rng: np.random.Generator, capability: str) -> ToolQuestion:
    """A random question about one capability."""
    arguments = draw_arguments(rng, capability)
    wordings = _WORDINGS[capability]
    return ToolQuestion(capability, arguments, wordings[int(rng.integers(len(wordings)))].format(**arguments))


def draw_arguments(rng: np.random.Generator, capability: str) -> dict[str, JsonValue]:
    """Random arguments that fit a capability."""
    match capability:
        case "price" | "order":
            return {"item": pick(rng, ITEMS), "count": int(rng.integers(2, 20))}
        case "stock":
            return {"item": pick(rng, ITEMS), "city": pick(rng, CITIES)}
        case "distance":
            start, end = rng.choice(len(CITIES), size=2, replace=False)
            return {"start": CITIES[start], "end": CITIES[end]}
        case "weather" | "book":
            return {"city": pick(rng, CITIES), "day": pick(rng, DAYS)}
        case "area" | "edge":
            return {"width": int(rng.integers(2, 10)), "height": int(rng.integers(2, 10))}
        case "convert":
            return {"amount": int(rng.integers(2, 30)), "currency": pick(rng, CURRENCIES)}
        case _:
            return {"city": pick(rng, CITIES), "later": int(rng.integers(1, 13))}


def careless_arguments(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Arguments as a careless reader takes them: the last number one too large, or the name after the last one."""
    name = list(arguments)[-1]
    value = arguments[name]
    if isinstance(value, int):
        return {**arguments, name: value + 1}
    choices = next(names for names in (ITEMS, CITIES, DAYS, CURRENCIES) if value in names)
    return {**arguments, name: choices[(choices.index(value) + 1) % len(choices)]}


def right_share(feature: str, mean: float, spread: float = 0.3) -> float:
    """How often a corpus is right: mean - spread, mean or mean + spread, fixed for each feature.

    So a model that imitates a corpus is good at some features and poor at others, also when it is sampled
    greedily, and has something to gain and to lose. feature: something that the model can see.
    """
    offset = (derive_seed("right share", feature) % 3 - 1) * spread
    return min(1.0, max(0.0, mean + offset))


def play_chat(world: Environment, item: Item, player: ChatPolicy, seed: int, max_turns: int) -> list[Message]:
    """The whole chat of one episode, the last message being the player's."""
    messages = list(world.reset(item, seed))
    for _ in range(max_turns):
        messages.append(Message("assistant", player(messages)))
        step = world.act(messages[-1].text)
        if step.done or step.observation is None:
            break
        messages.append(Message("user", step.observation))
    return messages if messages[-1].role == "assistant" else messages[:-1]


@dataclass(frozen=True, slots=True)
class EpisodeParts(Generic[Task]):
    """The parts by which benchmarks of tool episodes differ."""

    source: Source[Task]
    to_item: Callable[[Task, Split, bytes | None], Item]
    toolbox: Callable[[Item], Toolbox]
    oracle: Callable[[Item, Sequence[Message]], str]
    random_player: Callable[[Item, Sequence[Message], np.random.Generator], str]


class ToolEpisodes(Generic[Task]):
    """Generated tool episodes in four disjoint splits."""

    version = "1.0"
    max_turns: int
    attempts = 1

    def __init__(self, parts: EpisodeParts[Task], settings: WorldSettings) -> None:
        self._parts, self._settings = parts, settings
        self.tool_protocol = settings.as_protocol()

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [self._parts.to_item(task, split, secret) for task in self._parts.source.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh tool world with the tools of one item."""
        return ToolWorld(self._parts.toolbox, self._settings)

    def players(self) -> Players:
        """The oracle and a random player."""
        return Players(oracle=self._parts.oracle, random=at_random(self._parts.random_player), n_played=75)

    def expert(self, item: Item, chat: Sequence[Message]) -> str:
        """The oracle's next message."""
        return self._parts.oracle(item, chat)

    def environment_version(self) -> str:
        """Name and version of the world, and a digest of its rules and faults."""
        return f"{NAME}-v{VERSION}+{self._settings.digest}"

    def train_chats(
        self, rng: np.random.Generator, n: int, say: Callable[[Item, np.random.Generator, Sequence[Message]], str]
    ) -> list[list[Message]]:
        """N episodes of the train pool, in which `say` writes the model's messages."""
        # two streams: which tasks are drawn does not depend on how many mistakes are made
        draws, chance = rng.spawn(2)
        chats = []
        for task in islice(self._parts.source.train_draws(draws), n):
            item = self._parts.to_item(task, Split.TRAIN, None)
            player = partial(say, item, chance)
            chats.append(play_chat(self.environment(), item, player, int(chance.integers(2**62)), self.max_turns))
        return chats
