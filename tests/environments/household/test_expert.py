import numpy as np
import pytest

from agent2.benchmarks.household.generate import SIZES, draw_layout, game_of, opening
from agent2.benchmarks.recipes.household import NOTHING, GameSimulator
from agent2.environments.household.engine import shared_engine
from agent2.environments.household.expert import SearchExpert
from agent2.errors import EnvironmentFailed

ROOM = "You are in the middle of a room. Looking quickly around you, you see a desk 1, a cabinet 1, and a shelf 1.\n\n"


def player(goal, *observations):
    expert = SearchExpert(seed=0)
    expert.read(f"{ROOM}Your task is to: {goal}.")
    for observation in observations:
        expert.read(observation)
    return expert


def layouts(name, n, seed):
    rng = np.random.default_rng(seed)
    return [draw_layout(rng, SIZES[name]) for _ in range(n)]


def is_won_by_expert_in_simulator(layout):
    simulator, expert = GameSimulator(layout), SearchExpert(seed=0)
    observation = simulator.opening()
    for _ in range(SIZES["tiny"].max_turns):
        expert.read(observation)
        observation = simulator.step(expert.next_command())
        if simulator.is_won:
            return True
    return False


def is_won_by_chance_in_simulator(layout, rng):
    simulator = GameSimulator(layout)
    for _ in range(SIZES["tiny"].max_turns):
        commands = simulator.admissible()
        simulator.step(commands[int(rng.integers(len(commands)))])
        if simulator.is_won:
            return True
    return False


def is_won_by_expert_on_engine(layout, max_turns):
    engine, expert = shared_engine(), SearchExpert(seed=0)
    position = engine.start(game_of(layout))
    for _ in range(max_turns):
        expert.read(position.observation)
        position = engine.move(position, expert.next_command())
        if position.won:
            return True
    return False


@pytest.mark.engine
def test_it_wins_nearly_every_tiny_game_within_the_turns_and_chance_nearly_none():
    rng = np.random.default_rng(0)
    games = layouts("tiny", 300, seed=1)
    assert sum(map(is_won_by_expert_in_simulator, games)) >= 0.95 * len(games)
    assert sum(is_won_by_chance_in_simulator(layout, rng) for layout in games) <= 0.1 * len(games)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n"), [("tiny", 40), ("small", 12), ("full", 8)])
def test_it_wins_on_the_real_engine_too(name, n):
    won = [is_won_by_expert_on_engine(layout, SIZES[name].max_turns) for layout in layouts(name, n, seed=2)]
    assert sum(won) >= 0.95 * n


def test_it_looks_into_receptacles_in_the_order_of_the_opening_and_opens_what_is_closed():
    expert = player("put a mug in shelf")
    assert expert.next_command() == "go to desk 1"
    expert.read("You arrive at desk 1. On the desk 1, you see a pen 1.")
    assert expert.next_command() == "go to cabinet 1"
    expert.read("You arrive at cabinet 1. The cabinet 1 is closed.")
    assert expert.next_command() == "open cabinet 1"
    expert.read("You open the cabinet 1. The cabinet 1 is open. In it, you see a mug 1.")
    assert expert.next_command() == "take mug 1 from cabinet 1"


def test_it_goes_on_from_what_somebody_else_did():
    expert = player(
        "clean some mug and put it in shelf",
        "You arrive at desk 1. On the desk 1, you see a pen 1, and a mug 1.",
        "You pick up the pen 1 from the desk 1.",
        "You arrive at shelf 1. On the shelf 1, you see nothing.",
    )
    assert expert.next_command() == "move pen 1 to shelf 1"
    expert.read("You move the pen 1 to the shelf 1.")
    assert expert.next_command() == "go to desk 1"


def test_two_targets_end_up_in_the_same_receptacle():
    expert = player(
        "find two pen and put them in shelf",
        "You arrive at shelf 1. On the shelf 1, you see a pen 2.",
        "You arrive at desk 1. On the desk 1, you see a pen 1.",
    )
    assert expert.next_command() == "take pen 1 from desk 1"


def test_a_command_without_effect_is_not_repeated_for_ever():
    expert = player("put a mug in shelf")
    commands = []
    for _ in range(6):
        commands.append(expert.next_command())
        expert.read(NOTHING)
    assert commands.count("go to desk 1") < 6


def test_openings_that_it_does_not_understand_are_refused():
    with pytest.raises(EnvironmentFailed, match="is not an opening"):
        player("paint the wall")
    with pytest.raises(EnvironmentFailed, match="before it read the opening"):
        SearchExpert(seed=0).next_command()


@pytest.mark.engine
@pytest.mark.parametrize("name", SIZES)
def test_every_goal_sentence_of_the_generated_games_is_understood(name):
    for layout in layouts(name, 60, seed=4):
        SearchExpert(seed=0).read(opening(layout))
