"""Turn-by-turn equality with the stock engine.

The full comparison takes a minute or two:
`HOUSEHOLD_EQUALITY_GAMES=66 python -m pytest tests/environments/household/test_engine_equality.py`.
"""

import os
import random

import pytest

from agent2.environments.household.engine import Engine
from agent2.environments.household.expert import SearchExpert
from household_games import games, stock_engine

N_GAMES = int(os.environ.get("HOUSEHOLD_EQUALITY_GAMES", "6"))
N_TURNS = 18
SIZES = ("tiny", "tiny", "small", "tiny", "tiny", "full")


def differences(stock, position, state, command):
    """What the two engines say differently after a command, the facts by their inner names included."""
    inner = {
        (fact.name, tuple((argument.name, argument.type) for argument in fact.arguments)) for fact in state["_facts"]
    }
    pairs = {
        "observation": (position.observation, state.feedback),
        "won": (position.won, bool(state["won"])),
        "admissible": (list(position.admissible), state["admissible_commands"]),
        "facts": (set(position.game.listed_facts(position.state)), inner),
    }
    return [(command, name, ours, theirs) for name, (ours, theirs) in pairs.items() if ours != theirs]


@pytest.mark.slow
def test_every_turn_is_the_stock_engines():
    stock, engine = stock_engine(), Engine()
    different, n_turns, n_won = [], 0, 0
    for number in range(N_GAMES):
        game = games(1, SIZES[number % len(SIZES)], seed=number)[0]
        stock.load(game.as_file())
        state, position = stock.reset(), engine.start(game)
        different += differences(stock, position, state, None)
        rng, expert, has_won = random.Random(number), SearchExpert(0), False
        for _ in range(N_TURNS):
            expert.read(state.feedback)
            by_chance = rng.choice([*state["admissible_commands"], "dance", " look "])
            command = expert.next_command() if number % 2 else by_chance
            state, _, _ = stock.step(command)
            position = engine.move(position, command)
            different += differences(stock, position, state, command)
            n_turns += 1
            has_won |= position.won
        n_won += has_won
    assert different == []
    assert n_turns == N_GAMES * N_TURNS
    assert n_won >= N_GAMES // 3, "every second game is the searching expert's, and is played on after it was won"
