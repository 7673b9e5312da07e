"""The household benchmark: generated games on the ALFWorld engine, won or not.

Three sizes under three names: `household` (tiny; a model of under a million weights learns it in minutes),
`household_small` and `household_full` (as large as the published games). Every item is one game with its opening;
splits share no room with the same goal, and hidden ones derive from the installation secret. Completions are drawn
at temperature 1, one attempt a game, as the policy that is trained is sampled.

Two further names play the games of `household` otherwise: in `household_faulty` a command now and then fails on
purpose, so that recovery can be measured; in `household_listed` every observation ends with the possible commands.

The players that bracket the games, a searching expert and one that draws from the possible commands, are functions of
the chat alone, so the same chat gets the same command in every process.

Promises: no item holds a walkthrough or anything else that was made by solving its game; a visible row holds the
opening, the task type and the game, no answer, action or trajectory: an agent has to play to get one. Does NOT compare
with published ALFWorld scores: rooms, texts and models are our own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from agent2.benchmarks.home import Players, at_random, require_keys
from agent2.benchmarks.household.generate import Layout, game_of, opening, size_of, source_of
from agent2.environments.household.engine import shared_engine
from agent2.environments.household.expert import SearchExpert
from agent2.environments.household.game import Game
from agent2.environments.household.world import (
    ADMISSIBLE_MARK,
    NAME,
    VERSION,
    HouseholdFaults,
    HouseholdSettings,
    HouseholdWorld,
)
from agent2.errors import ConfigError, EnvironmentFailed, quoted
from agent2.records import Environment, Item, JsonValue, Message, SamplingSettings, Scorer, Split
from agent2.scorers.household import HouseholdScorer

ROW_KEYS = ("id", "prompt", "task_type", "game")
_RECEPTACLE = re.compile(r"\(receptacleType \S+ (\w+)Type\)", re.IGNORECASE)
_GOAL = re.compile(r"\(:goal\b.*", re.DOTALL)
NO_FAULTS = HouseholdFaults()
SOME_FAULTS = HouseholdFaults(rate=0.3)
"""As often as calls fail in `mini_apis`; all kinds alike, among the first four possible commands of a game."""
_ROOM = "You are in the middle of a room."
_TASK = "Your task is to:"
_LISTED_RECEPTACLE = re.compile(r"\ba (\w+ \d+)")


def row_of(item: Item) -> dict[str, JsonValue]:
    """The row of an item; further parts of its payload (a protocol's opening) are left out."""
    return {
        "id": item.id,
        "prompt": item.prompt,
        "task_type": item.payload["task_type"],
        "game": dict(item.payload["game"]),
    }


def item_of_row(row: Mapping[str, JsonValue], benchmark: str) -> Item:
    """The item of a row, in the train split. Raises ConfigError for anything but a row of `row_of`."""
    require_keys(row, ROW_KEYS, benchmark)
    try:
        game = Game.from_payload(row["game"])
    except EnvironmentFailed as error:
        raise ConfigError(f"row {quoted(str(row['id']))}: {error}") from error
    payload = {"game": game.as_payload(), "task_type": str(row["task_type"])}
    return Item(str(row["id"]), Split.TRAIN, str(row["prompt"]), payload=payload)


def layout_key(game: Game) -> str:
    """What no two splits may share, read from the game itself: the receptacles by type, and the goal.

    Equal for games that differ only in where things are or in how the goal is worded.
    """
    receptacles = sorted(kind.lower() for kind in _RECEPTACLE.findall(game.problem))
    goal = _GOAL.search(game.problem)
    formula = " ".join(goal[0].split()).lower() if goal is not None else game.goal
    return f"{' '.join(receptacles)} | {formula}"


def expert(item: Item, chat: Sequence[Message]) -> str:
    """The search expert's next command, from the chat alone."""
    player, command = SearchExpert(0), ""
    texts = [message.text for message in chat if message.role == "user"]
    for text in [_opening_of_game(texts[0]), *texts[1:]]:
        player.read(text)
        command = player.next_command()
    return command


def random_command(item: Item, chat: Sequence[Message], rng: np.random.Generator) -> str:
    """One of the commands that the last message lists, uniformly; an empty one where it lists none."""
    _, _, listed = chat[-1].text.rpartition(ADMISSIBLE_MARK)
    commands = listed.split(", ")
    return commands[int(rng.integers(len(commands)))]


HOUSEHOLD_PLAYERS = Players(
    oracle=expert,
    random=at_random(random_command),
    ceiling_at_least=0.95,
    floor_at_most=0.10,
    random_world=lambda benchmark: HouseholdWorld(
        HouseholdSettings(show_admissible=True, max_turns=benchmark.max_turns)
    ),
    shared_content=lambda item: layout_key(Game.from_payload(item.payload["game"])),
    content_name="layout with the same goal",
    n_played=75,
    forget=shared_engine.cache_clear,
)
"""For generated games. The random player sees the possible commands and has as many turns as a model."""
PUBLISHED_PLAYERS = replace(
    HOUSEHOLD_PLAYERS,
    shared_content=lambda item: Game.from_payload(item.payload["game"]).digest,
    content_name="game",
    ceiling_at_least=0.80,
    n_played=25,
)
"""For the published games, whose splits share rooms. They are larger than generated ones: a player that has to search
does not find everything in 50 turns (89 of 100 games won)."""


def first_commands(items: Sequence[Item], seed: int) -> list[str]:
    """A first command that the opening of each game allows: go to a receptacle of the room.

    More cannot be known without playing.
    """
    rng = np.random.default_rng(seed)
    named = (_LISTED_RECEPTACLE.findall(item.prompt) for item in items)
    return [f"go to {names[int(rng.integers(len(names)))]}" for names in named]


def _opening_of_game(opening: str) -> str:
    """The game's own opening, from a first message that may hold instructions and examples."""
    game = opening[max(opening.rfind(_ROOM), 0) :]
    room, marker, task = game.partition(_TASK)
    return f"{room}{marker}{task.strip().partition(chr(10))[0]}" if marker else game


class Household:
    """Generated games of the tiny size in four disjoint splits."""

    name = "household"
    version = "1.0"
    primary_metric = "success"
    sampling = SamplingSettings(temperature=1.0, max_tokens=12)
    attempts = 1
    size_name = "tiny"
    faults = NO_FAULTS
    show_admissible = False

    def __init__(self) -> None:
        self._size = size_of(self.size_name)
        self._source = source_of(self._size)
        self.max_turns = self._size.max_turns
        self.settings = HouseholdSettings(self.show_admissible, self.faults, max_turns=self.max_turns)
        self.tool_protocol = self.settings.as_protocol()

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n games of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [self._item(layout, split, secret) for layout in self._source.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh household."""
        return HouseholdWorld(self.settings)

    def scorer(self) -> Scorer:
        """Whether the game is won."""
        return HouseholdScorer()

    def environment_version(self) -> str:
        """Name and version of the world, and a digest of its settings."""
        return f"{NAME}-v{VERSION}+{self.settings.digest}"

    def players(self) -> Players:
        """The searching expert and a random player."""
        return HOUSEHOLD_PLAYERS

    def static_answers(self, items: Sequence[Item], seed: int) -> list[str]:
        """A first command that each opening allows."""
        return first_commands(items, seed)

    def visible_row(self, item: Item) -> dict[str, JsonValue]:
        """A visible item as a row of train.jsonl: enough to play it, nothing that solves it."""
        return row_of(item)

    def item_of(self, row: Mapping[str, JsonValue]) -> Item:
        """The item of a row of train.jsonl or dev.jsonl. Raises ConfigError for another kind of row."""
        return item_of_row(row, self.name)

    def _item(self, layout: Layout, split: Split, secret: bytes | None) -> Item:
        return Item(
            id=self._source.item_id(layout, split, secret),
            split=split,
            prompt=opening(layout),
            payload={"game": game_of(layout).as_payload(), "task_type": layout.task_type},
        )


class HouseholdSmall(Household):
    """Generated games of the small size: 8 to 13 receptacles, all six task types."""

    name = "household_small"
    size_name = "small"
    sampling = SamplingSettings(temperature=1.0, max_tokens=32)


class HouseholdFull(Household):
    """Generated games of the full size: as large as the published ones."""

    name = "household_full"
    size_name = "full"
    sampling = SamplingSettings(temperature=1.0, max_tokens=32)


class HouseholdFaulty(Household):
    """The games of `household`; in three of ten a command gets a timeout, a denial or an empty reply, by the seed."""

    name = "household_faulty"
    faults = SOME_FAULTS


class HouseholdListed(Household):
    """The games of `household` with the possible commands after every observation."""

    name = "household_listed"
    show_admissible = True
    context = "drop_admissible"
    """Old lists are not sent again in an evaluation; all of them can be longer than the tiny model's context."""
