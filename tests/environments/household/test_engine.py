import os
import random
import subprocess
import sys

import pytest

from agent2.environments.household.engine import NOTHING_HAPPENS, Engine, shared_engine
from agent2.environments.household.game import engine_parts
from agent2.environments.household.world import HouseholdSettings, HouseholdWorld
from household_games import game_item, games, stock_engine

pytestmark = pytest.mark.engine


def random_walk(engine, game, n, seed):
    """Positions of a random walk, the beginning first."""
    rng, positions = random.Random(seed), [engine.start(game)]
    for _ in range(n):
        positions.append(engine.move(positions[-1], rng.choice(positions[-1].admissible)))
    return positions


def records_of(positions):
    return [(position.observation, position.won, position.admissible, position.facts) for position in positions]


def test_a_position_can_be_gone_on_from_any_number_of_times():
    engine = Engine(n_solvers=1)
    start = engine.start(games(1)[0])
    first, second = [command for command in start.admissible if command.startswith("go to")][:2]
    once = engine.move(start, first)
    elsewhere = engine.move(start, second)
    again = engine.move(start, first)
    assert once.observation == again.observation != elsewhere.observation
    assert start.facts != once.facts == again.facts


def test_games_that_take_turns_on_one_solver_play_as_if_alone():
    first, second = games(2)
    alone = [records_of(random_walk(Engine(), game, 8, seed=1)) for game in (first, second)]
    engine, rngs = Engine(n_solvers=1), [random.Random(1), random.Random(1)]
    positions = [[engine.start(first)], [engine.start(second)]]
    for _ in range(8):
        for rng, walk in zip(rngs, positions, strict=True):
            walk.append(engine.move(walk[-1], rng.choice(walk[-1].admissible)))
    assert [records_of(walk) for walk in positions] == alone


def test_the_same_turn_is_played_once():
    engine, game = Engine(), games(1)[0]
    first = records_of(random_walk(engine, game, 10, seed=3))
    n_played = engine.n_played
    assert records_of(random_walk(engine, game, 10, seed=3)) == first
    assert engine.n_played == n_played <= 10


def test_an_impossible_command_changes_nothing():
    engine = Engine()
    start = engine.start(games(1)[0])
    after = engine.move(start, "take the world from shelf 1")
    assert after.observation == NOTHING_HAPPENS
    assert (after.facts, after.admissible, after.won) == (start.facts, start.admissible, start.won)
    assert engine.n_played == 0


def test_forgetting_games_bounds_memory_and_leaves_positions_alive():
    engine, many = Engine(memory_mib=0), games(4)
    old_position = random_walk(engine, many[0], 3, seed=0)[-1]
    for game in many[1:]:
        engine.start(game)
    n_played = engine.n_played
    random_walk(engine, many[0], 3, seed=0)
    assert engine.n_played == n_played + 3
    reference = random_walk(Engine(), many[0], 3, seed=0)[-1]
    command = old_position.admissible[0]
    assert engine.move(old_position, command).observation == Engine().move(reference, command).observation


def test_a_lamp_that_is_used_twice_is_not_mistaken_for_one_that_is_used_once():
    game = next(game for game in games(60) if game.task_type == "look_at_obj_in_light")
    ours, theirs = Engine(), stock_engine()
    position = ours.start(game)
    theirs.load(game.as_file())
    state = theirs.reset()
    lamp = next(fact.split("(")[1][:-1] for fact in position.facts if fact.startswith("toggleable("))
    spot = next(fact.split(", ")[1][:-1] for fact in position.facts if fact.startswith(f"inreceptacle({lamp}, "))
    for command in (f"go to {spot}", f"use {lamp}", f"use {lamp}", f"examine {lamp}", f"use {lamp}"):
        position = ours.move(position, command)
        state, _, _ = theirs.step(command)
        assert (position.observation, list(position.admissible)) == (state.feedback, state["admissible_commands"])


def test_the_installed_packages_stay_as_they_are():
    arguments, data = list(sys.argv), os.environ.get("ALFWORLD_DATA")
    random_walk(Engine(), games(1)[0], 3, seed=0)
    parts = engine_parts()
    assert parts.solver.pddl2sas.__module__ == "fast_downward.interface"
    assert parts.textgen._parse_and_convert.__module__ == "textworld.envs.pddl.textgen"
    assert parts.logic._parse_and_convert.__module__ == "textworld.envs.pddl.logic"
    assert parts.queries.parse_conjunctive_query.__func__.__module__ == "textworld.logic"
    assert (list(sys.argv), os.environ.get("ALFWORLD_DATA")) == (arguments, data)


def test_it_plays_where_home_does_not_exist_and_creates_no_folder(tmp_path):
    item, home = game_item(games(1)[0]), tmp_path / "none"
    program = (
        "import sys, msgspec\n"
        "from agent2.records import Item\n"
        "from agent2.environments.household.world import HouseholdSettings, HouseholdWorld\n"
        "assert not {'alfworld', 'textworld', 'fast_downward'} & set(sys.modules)  # imported when first needed\n"
        "item = msgspec.json.decode(sys.stdin.buffer.read(), type=Item)\n"
        "world = HouseholdWorld(HouseholdSettings())\n"
        "sys.stdout.write(world.reset(item, 0)[0].content)\n"
    )
    import msgspec

    environment = {**os.environ, "HOME": str(home), "ALFWORLD_DATA": str(home / "data")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=msgspec.json.encode(item),
        env=environment,
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == HouseholdWorld(HouseholdSettings()).reset(item, 0)[0].content
    assert not home.exists()


def test_a_process_has_one_engine():
    assert shared_engine() is shared_engine()


def test_two_hundred_full_games_are_remembered_at_once():
    """The smaller published choice of train games has 200; a second round should load none of them again."""
    engine = Engine()
    position = random_walk(engine, games(1, "full")[0], 20, seed=0)[-1]
    assert 200 * position.game.n_bytes <= engine._limit
