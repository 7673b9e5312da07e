"""Games for the tests of the household world, and the stock engine that they are compared with."""

import sys
from typing import Any

import numpy as np

from agent2.benchmarks.household.generate import SIZES, draw_game
from agent2.environments.household.game import Game, import_part
from agent2.records import Item, Split


def games(n: int, size: str = "tiny", seed: int = 0) -> list[Game]:
    rng = np.random.default_rng(seed)
    return [draw_game(rng, SIZES[size]) for _ in range(n)]


def game_item(game: Game, number: int = 0, **payload: Any) -> Item:
    record = {"game": game.as_payload(), "task_type": game.task_type, **payload}
    return Item(id=f"household-{number}", split=Split.TRAIN, prompt="", payload=record)


def stock_engine() -> Any:
    """The engine as alfworld and textworld ship it; only the way in which this project keeps names unshuffled.

    textworld 1.7 hands the variables of a sentence to `eval` by writing to `locals()`, which has no effect from Python
    3.13 on (PEP 667); there they are handed to `eval` itself.
    """
    textworld = import_part("textworld")
    if sys.version_info >= (3, 13):
        import_part("textworld.envs.pddl.textgen").EvalSymbol.derive = _derive
    environments = import_part("textworld.envs")
    alfred = import_part("alfworld.agents.environment.alfred_tw_env")
    infos = textworld.EnvInfos(won=True, admissible_commands=True)
    return alfred.AlfredDemangler(environments.PddlEnv(infos), shuffle=False)


def _derive(symbol: Any, context: Any = None) -> list[Any]:
    variables = (context or symbol.context)["variables"]
    return [import_part("textworld.envs.pddl.textgen").TerminalSymbol(eval(symbol.expression, dict(variables)))]
