"""Games as rows of a file: what an agent is given of a visible game, and the way back to an item that can be played.

Promises: a row holds the opening, the task type and the game; no answer, no action, no trajectory. Whoever wants
one has to play.
"""

import re
from collections.abc import Mapping

from agent2.environments.household.game import Game
from agent2.errors import ConfigError, EnvironmentFailed, shown
from agent2.records import Item, JsonValue, Split

ROW_KEYS = ("id", "prompt", "task_type", "game")
_RECEPTACLE = re.compile(r"\(receptacleType \S+ (\w+)Type\)", re.IGNORECASE)
_GOAL = re.compile(r"\(:goal\b.*", re.DOTALL)


def row_of(item: Item) -> dict[str, JsonValue]:
    """The row of an item; further parts of its payload (a protocol's opening) are left out."""
    return {
        "id": item.id,
        "prompt": item.prompt,
        "task_type": item.payload["task_type"],
        "game": dict(item.payload["game"]),
    }


def item_of_row(row: Mapping[str, JsonValue]) -> Item:
    """The item of a row, in the train split. Raises ConfigError for anything but a row of `row_of`."""
    missing = [key for key in ROW_KEYS if key not in row]
    if missing:
        raise ConfigError(
            f"row {shown(str(row.get('id')))}: has no {', '.join(missing)}; give a line of data/train.jsonl"
        )
    try:
        game = Game.from_payload(row["game"])
    except EnvironmentFailed as error:
        raise ConfigError(f"row {shown(str(row['id']))}: {error}") from error
    payload = {"game": game.as_payload(), "task_type": str(row["task_type"])}
    return Item(str(row["id"]), Split.TRAIN, str(row["prompt"]), payload=payload)


def layout_key(game: Game) -> str:
    """What two splits must not share, read from the game itself: the receptacles by type, and the goal.

    Equal for games that differ only in where things are or in how the goal is worded.
    """
    receptacles = sorted(kind.lower() for kind in _RECEPTACLE.findall(game.problem))
    goal = _GOAL.search(game.problem)
    formula = " ".join(goal[0].split()).lower() if goal is not None else game.goal
    return f"{' '.join(receptacles)} | {formula}"
