from dataclasses import replace

import pytest

from agent2.environments.household.world import (
    REPLIES,
    HouseholdFaultKind,
    HouseholdFaults,
    HouseholdSettings,
    HouseholdWorld,
    plan_injector,
)
from agent2.errors import ConfigError
from household_games import game_item, games

pytestmark = pytest.mark.engine


def broken_world(kind):
    """A world whose first possible command is broken."""
    world = HouseholdWorld(HouseholdSettings(faults=HouseholdFaults(rate=1.0, kinds=(kind,), n_positions=1)))
    world.reset(game_item(games(1)[0]), seed=1)
    return world


def counts(world):
    state = world.state()
    return state["n_faults"], state["n_recovered"]


def go_command(world):
    return next(command for command in world.admissible() if command.startswith("go to"))


def test_a_timeout_is_made_good_by_repeating():
    world = broken_world(HouseholdFaultKind.TIMEOUT)
    command = go_command(world)
    assert world.act(command).observation == REPLIES[HouseholdFaultKind.TIMEOUT]
    assert counts(world) == (1, 0)
    assert world.act(command).observation.startswith("You arrive at")
    assert counts(world) == (1, 1)


def test_a_denial_lasts_until_the_player_has_looked_around():
    world = broken_world(HouseholdFaultKind.PERMISSION_DENIED)
    command = go_command(world)
    for n_faults in (1, 2):
        assert world.act(command).observation == REPLIES[HouseholdFaultKind.PERMISSION_DENIED]
        assert counts(world) == (n_faults, 0)
    assert world.act("look").observation.startswith("You are in the middle")
    assert world.act(command).observation.startswith("You arrive at")
    assert counts(world) == (2, 1)


def test_an_empty_reply_hides_a_command_that_was_carried_out():
    world = broken_world(HouseholdFaultKind.EMPTY_RESULT)
    assert world.act(go_command(world)).observation == ""
    assert counts(world) == (1, 0)
    assert world.act("look").observation.startswith("You are facing the")
    assert counts(world) == (1, 1)


def test_another_command_does_not_make_a_timeout_good():
    world = broken_world(HouseholdFaultKind.TIMEOUT)
    first, second = [command for command in world.admissible() if command.startswith("go to")][:2]
    world.act(first)
    world.act(second)
    assert counts(world) == (1, 0)


def test_foolish_commands_are_not_broken():
    world = broken_world(HouseholdFaultKind.TIMEOUT)
    assert world.act("dance").observation == "Nothing happens."
    assert counts(world) == (0, 0)


def test_faults_come_from_the_seed_and_at_the_rate():
    settings = HouseholdFaults(rate=0.3)
    plans = [plan_injector(seed, settings) for seed in range(2000)]
    assert plans == [plan_injector(seed, settings) for seed in range(2000)]
    share = sum(plan.kind is not None for plan in plans) / len(plans)
    assert 0.26 < share < 0.34
    assert {plan.kind for plan in plans} == {None, *HouseholdFaultKind}
    assert {plan.position for plan in plans if plan.kind} == set(range(4))


def test_nothing_is_broken_by_default():
    assert all(plan_injector(seed, HouseholdFaults()).kind is None for seed in range(100))


@pytest.mark.parametrize("changes", [{"rate": 1.5}, {"rate": -0.1}, {"kinds": ()}, {"n_positions": 0}])
def test_settings_that_leave_nothing_to_draw_are_refused(changes):
    with pytest.raises(ConfigError, match="household faults"):
        replace(HouseholdFaults(), **changes)


@pytest.mark.parametrize("kind", list(HouseholdFaultKind))
def test_the_state_says_which_turn_served_the_need(kind):
    world = broken_world(kind)
    command, recorded = go_command(world), [{"turn": 0, "kind": str(kind), "recovered": None}]
    assert "injected_faults" not in world.state()
    world.act(command)
    world.act("dance")
    (event,) = world.state()["injected_faults"]
    assert [{key: event[key] for key in ("turn", "kind", "recovered")}] == recorded
    world.act("look")
    world.act(command)
    (event,) = world.state()["injected_faults"]
    assert event["recovered"] == (2 if kind is HouseholdFaultKind.EMPTY_RESULT else 3)
