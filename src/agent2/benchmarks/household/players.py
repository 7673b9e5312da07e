"""Players that bracket household games: a searching expert, and one that draws from the possible commands.

Both are functions of the chat alone, so the same chat gets the same command in every process.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agent2.benchmarks.home import Players, at_random
from agent2.benchmarks.household.rows import layout_key
from agent2.environments.household.engine import shared_engine
from agent2.environments.household.expert import SearchExpert
from agent2.environments.household.game import Game
from agent2.environments.household.world import ADMISSIBLE_MARK, HouseholdSettings, HouseholdWorld
from agent2.records import Item, Message

_ROOM = "You are in the middle of a room."
_TASK = "Your task is to:"
_STANDING = re.compile(r"\ba (\w+ \d+)")


def expert(item: Item, chat: Sequence[Message]) -> str:
    """What the search expert does next, having read the chat and nothing else."""
    player, command = SearchExpert(0), ""
    texts = [message.content for message in chat if message.role == "user"]
    for text in [_game_part(texts[0]), *texts[1:]]:
        player.read(text)
        command = player.next_command()
    return command


def random_command(item: Item, chat: Sequence[Message], rng: np.random.Generator) -> str:
    """One of the commands that the last message lists, all as likely; an empty one where it lists none."""
    _, _, listed = chat[-1].content.rpartition(ADMISSIBLE_MARK)
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
"""Of generated games. The random player is told which commands are possible, as many turns as a model has."""
PUBLISHED_PLAYERS = replace(
    HOUSEHOLD_PLAYERS,
    shared_content=lambda item: Game.from_payload(item.payload["game"]).digest,
    content_name="game",
)
"""Of the published games, whose splits share rooms."""


def first_commands(items: Sequence[Item], seed: int) -> list[str]:
    """A first command that the opening of each game allows: to go to something that stands there.

    An opening says no more; what comes after it is only known to those who play.
    """
    rng = np.random.default_rng(seed)
    named = (_STANDING.findall(item.prompt) for item in items)
    return [f"go to {names[int(rng.integers(len(names)))]}" for names in named]


def _game_part(opening: str) -> str:
    """The game's own opening out of a first message that may hold instructions and examples."""
    game = opening[max(opening.rfind(_ROOM), 0) :]
    room, marker, task = game.partition(_TASK)
    return f"{room}{marker}{task.strip().partition(chr(10))[0]}" if marker else game
