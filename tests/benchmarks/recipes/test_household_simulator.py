from dataclasses import replace

import numpy as np
import pytest

from agent2.benchmarks.household.generate import COOL, SIZES, TWO, WorldObject, draw_layout, game_of
from agent2.benchmarks.recipes.household import GameSimulator, impossible_command, wandering_command
from agent2.environments.household.engine import shared_engine
from agent2.environments.household.expert import SearchExpert
from agent2.errors import ConfigError

TURNS = 20


def compare(layout, rng):
    """Play a game on both by turns of the expert and of chance; returns whether it was won."""
    simulator, expert = GameSimulator(layout), SearchExpert(0)
    position = shared_engine().start(game_of(layout))
    assert position.observation.endswith(simulator.opening())
    expert.read(simulator.opening())
    for _ in range(TURNS):
        possible = simulator.admissible()
        assert sorted(possible) == sorted(command for command in position.admissible if command != "help")
        draw = rng.random()
        if draw < 0.6:
            command = expert.next_command()
        elif draw < 0.85:
            command = wandering_command(possible, rng, idle_share=0.5)
        else:
            command = impossible_command(simulator, rng)
        position = shared_engine().move(position, command)
        observation = simulator.step(command)
        assert (observation, simulator.is_won) == (position.observation, position.won), command
        expert.read(observation)
        if simulator.is_won:
            return True
    return False


def has_no_knife(layout):
    return not any(placed.type in ("Knife", "ButterKnife") for placed in layout.objects)


@pytest.mark.slow
def test_observations_commands_and_wins_are_those_of_the_engine():
    rng = np.random.default_rng(11)
    n_won = sum(compare(draw_layout(rng, SIZES["tiny"]), rng) for _ in range(30))
    assert n_won > 20


@pytest.mark.slow
def test_cooling_and_bringing_two_are_those_of_the_engine_too():
    rng = np.random.default_rng(12)
    small = replace(SIZES["small"], task_types=(COOL, TWO))
    layouts = [layout for layout in (draw_layout(rng, small) for _ in range(40)) if has_no_knife(layout)]
    assert {layout.task_type for layout in layouts[:8]} == {COOL, TWO}
    assert sum(compare(layout, rng) for layout in layouts[:8]) > 2


@pytest.mark.engine
def test_a_layout_with_a_knife_is_refused():
    layout = draw_layout(np.random.default_rng(0), SIZES["tiny"])
    knife = WorldObject("Knife_bar_00", "Knife", layout.receptacles[0].id)
    with pytest.raises(ConfigError, match="does not know knives"):
        GameSimulator(replace(layout, objects=(*layout.objects, knife)))
