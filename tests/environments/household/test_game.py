import json

import pytest

from agent2.environments.household.engine import Engine
from agent2.environments.household.game import Game, GameBroken
from agent2.errors import EnvironmentFailed
from household_games import games, stock_engine

pytestmark = pytest.mark.engine


def broken(game, **changes):
    return Game(**{"task_type": game.task_type, "goal": game.goal, "problem": game.problem, **changes})


def pick_game():
    return next(game for game in games(40) if game.task_type == "pick_and_place_simple")


def test_a_game_goes_through_json_and_leaves_out_what_the_wheel_ships():
    game = pick_game()
    payload = json.loads(json.dumps(game.as_payload()))
    assert Game.from_payload(payload) == game
    assert sorted(payload) == ["goal", "problem", "task_type"]
    assert game.digest != broken(game, goal="put some mug in bed").digest


def test_an_official_file_gives_the_game_without_its_walkthrough():
    game = pick_game()
    data = {**game.as_file(), "walkthrough": ["go to shelf 1"]}
    assert Game.from_file(data, game.task_type) == game
    assert "walkthrough" not in Game.from_file(data, game.task_type).as_payload()


def test_a_grammar_of_its_own_stays_in_the_game_and_is_played():
    game = pick_game()
    data = game.as_file()
    data["grammar"] = data["grammar"].replace("You open the {r.name}.", "Creak! {r.name}.")
    changed = Game.from_file(data, game.task_type)
    assert changed.grammar is not None
    assert changed.as_file()["grammar"] == data["grammar"]
    assert Engine().start(changed).observation == Engine().start(game).observation


@pytest.mark.parametrize("goal", ["put mug & pen in bed", "put some mug in bed; now", "put some mug in bed // now"])
def test_a_goal_in_unusual_signs_is_said_as_the_stock_engine_says_it(goal):
    game, stock = broken(pick_game(), goal=goal), stock_engine()
    stock.load(game.as_file())
    assert Engine().start(game).observation == stock.reset().feedback


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (None, "is None, not a record"),
        ("game", "not a record"),
        ({}, "None as task_type"),
        ({"task_type": "x", "goal": "y", "problem": 3}, "3 as problem"),
        ({"task_type": "x", "goal": "y", "problem": "z", "walkthrough": []}, "unknown fields"),
    ],
)
def test_an_item_without_a_whole_game_is_refused(payload, sentence):
    with pytest.raises(GameBroken, match=sentence):
        Game.from_payload(payload)


def test_a_file_of_an_older_grammar_is_refused_with_the_command_that_differs():
    game = pick_game()
    data = game.as_file()
    data["grammar"] = data["grammar"].replace("move {o} to {r}", "put {o} in/on {r}")
    with pytest.raises(
        GameBroken, match=r"PutObject.*move \{o\} to \{r\}.*put \{o\} in/on \{r\}.*alfworld-download -f"
    ):
        Game.from_file(data, game.task_type)


@pytest.mark.parametrize("part", ["pddl_domain", "pddl_problem", "grammar"])
def test_half_a_file_is_refused(part):
    game = pick_game()
    data = game.as_file()
    del data[part]
    with pytest.raises(GameBroken, match=f"lacks {part}.*alfworld-download -f"):
        Game.from_file(data, game.task_type)


def test_a_file_that_says_it_is_unsolvable_is_refused():
    with pytest.raises(GameBroken, match="cannot be solved"):
        Game.from_file({**pick_game().as_file(), "solvable": False}, "pick_and_place_simple")


def goal_of(problem):
    return problem[problem.index("(:goal") :]


def test_an_unsolvable_game_is_refused_when_it_begins():
    game = pick_game()
    nowhere = (
        "(:goal (and (exists (?r - receptacle) (exists (?o - object) (and (objectType ?o PencilType) (opened ?r)))))))"
    )
    with pytest.raises(GameBroken, match="cannot be solved"):
        Engine().start(broken(game, problem=game.problem.replace(goal_of(game.problem), nowhere)))


@pytest.mark.parametrize(
    "goal", ["(:goal (and (atLocation agent1 loc_bar_0))))", "(:goal (and (receptacleAtLocation {} loc_bar_1))))"]
)
def test_a_game_that_is_won_already_is_refused(goal):
    game = pick_game()
    first = game.problem.split(" - receptacle", 1)[0].rsplit("\n", 1)[1].strip()
    won = game.problem.replace(goal_of(game.problem), goal.format(first))
    with pytest.raises(GameBroken, match="already won"):
        Engine().start(broken(game, problem=won))


@pytest.mark.parametrize("problem", ["", "not pddl", "(define (problem x) (:domain alfred) (:objects) (:init"])
def test_a_problem_that_is_no_pddl_is_refused(problem):
    with pytest.raises(GameBroken, match="cannot be translated"):
        Engine().start(broken(pick_game(), problem=problem))


def test_a_grammar_that_is_none_is_refused():
    with pytest.raises(GameBroken, match="grammar cannot be read"):
        Engine().start(broken(pick_game(), grammar="grammar :: nothing"))


def test_a_broken_game_is_an_environment_fault():
    assert issubclass(GameBroken, EnvironmentFailed)
    assert GameBroken("x").fault.value == "environment"
