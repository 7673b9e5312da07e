import random
from dataclasses import replace

import pytest
from msgspec import structs

from agent2.environments.household.engine import Engine
from agent2.environments.household.world import HouseholdFaults, HouseholdSettings, HouseholdWorld
from agent2.errors import ConfigError, Fault
from agent2.evaluation.engine import Attempt, play_by
from agent2.evaluation.rescoring import play_again
from agent2.records import RolloutStatus
from household_games import game_item, games

pytestmark = pytest.mark.engine

SETTINGS = HouseholdSettings(faults=HouseholdFaults(rate=0.3), max_turns=12)


def world():
    return HouseholdWorld(SETTINGS)


def played(item, seed):
    """A rollout by a player that mixes expert, chance and nonsense."""
    rng = random.Random(seed)

    def player(attempt, its_world, chat):
        choice = rng.random()
        if choice < 0.1:
            return "dance"
        return rng.choice(its_world.admissible()) if choice < 0.4 else its_world.ask_expert()

    ((_, rollout),) = play_by(player, [Attempt(item, 0, seed)], world, max_turns=12)
    return structs.replace(rollout, state={**rollout.state, "n_asked": 0})  # a replay asks nobody


def stored(n_games, n_seeds):
    for number, game in enumerate(games(n_games, seed=11)):
        item = game_item(game, number)
        for seed in range(n_seeds):
            yield item, played(item, seed)


def test_200_rollouts_are_played_again_with_the_same_observations_and_verdicts():
    fresh, n_won = Engine(), 0
    for item, rollout in (rollouts := list(stored(40, 5))):
        assert play_again(item, rollout, lambda: HouseholdWorld(SETTINGS, fresh)) == ""
        n_won += rollout.state["won"]
    assert len(rollouts) == 200
    assert 20 < n_won < 200


@pytest.fixture
def played_item():
    return next(iter(stored(1, 1)))


def test_a_changed_observation_is_found_at_its_turn(played_item):
    item, rollout = played_item
    turns = [*rollout.turns]
    turns[2] = structs.replace(turns[2], observation="You win.")
    difference = play_again(item, structs.replace(rollout, turns=turns), world)
    assert difference.startswith("turn 3: the observation was 'You win.', and is ")


def test_a_changed_verdict_and_a_changed_end_are_found(played_item):
    item, rollout = played_item
    won = rollout.state["won"]
    difference = play_again(item, structs.replace(rollout, state={**rollout.state, "won": not won}), world)
    assert difference == f"the final state's won was {not won}, and is {won} now"
    status = RolloutStatus.TURN_CAP if won else RolloutStatus.COMPLETED
    assert "the episode ended with status" in play_again(item, structs.replace(rollout, status=status), world)


def test_a_changed_opening_is_found(played_item):
    other_item = game_item(games(2, seed=11)[1], 0)
    assert play_again(other_item, played_item[1], world).startswith("the opening was")


def test_actions_after_the_end_are_found(played_item):
    item, rollout = played_item
    longer = structs.replace(
        rollout, turns=[structs.replace(rollout.turns[0], action="dance", observation="Nothing happens.")] * 13
    )
    assert play_again(item, longer, world) == "turn 13: the episode is over before it"


def test_a_rollout_that_failed_is_compared_as_far_as_it_went(played_item):
    item, rollout = played_item
    half = structs.replace(rollout, status=RolloutStatus.FAILED, fault=Fault.MODEL, turns=rollout.turns[:2], state={})
    assert play_again(item, half, world) == ""
    assert play_again(item, structs.replace(half, turns=[]), world) == ""


def test_other_settings_do_not_replay(played_item):
    settings = replace(SETTINGS, show_admissible=True)
    assert play_again(*played_item, lambda: HouseholdWorld(settings)).startswith("the opening was")


def test_a_rollout_of_another_item_is_refused(played_item):
    with pytest.raises(ConfigError, match="not 'household-5'"):
        play_again(game_item(games(1)[0], number=5), played_item[1], world)
