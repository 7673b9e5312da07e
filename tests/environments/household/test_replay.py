import random
from dataclasses import replace

import pytest

from agent2.environments.household.engine import Engine
from agent2.environments.household.faults import HouseholdFaults
from agent2.environments.household.replay import Difference, Snapshot, replay, take_snapshot
from agent2.environments.household.world import HouseholdSettings, HouseholdWorld
from agent2.errors import ConfigError
from agent2.records import Rollout, RolloutStatus, StopReason, Turn, Usage
from household_games import game_item, games

SETTINGS = HouseholdSettings(faults=HouseholdFaults(rate=0.3), max_turns=12)


def played(item, seed, settings=SETTINGS):
    """A rollout by a player that mixes expert, chance and nonsense."""
    world, rng, turns = HouseholdWorld(settings), random.Random(seed), []
    opening = world.reset(item, seed)
    status = RolloutStatus.TURN_CAP
    for _ in range(settings.max_turns):
        choice = rng.random()
        action = "dance" if choice < 0.1 else rng.choice(world.admissible()) if choice < 0.4 else world.ask_expert()
        step = world.act(action)
        turns.append(Turn(action, step.observation, StopReason.END, 0, 0))
        if step.done:
            status = RolloutStatus.COMPLETED
            break
    state = {**world.state(), "n_asked": 0}  # a replay asks nobody
    return Rollout(item.id, 0, seed, status, opening, turns, None, state, Usage())


def snapshots(n_games, n_seeds):
    for number, game in enumerate(games(n_games, seed=11)):
        item = game_item(game, number)
        for seed in range(n_seeds):
            yield take_snapshot(item, played(item, seed), SETTINGS)


def test_200_stored_rollouts_are_played_again_with_the_same_observations_and_verdicts():
    fresh, n_won = Engine(), 0
    stored = [snapshot.to_json() for snapshot in snapshots(40, 5)]
    for data in stored:
        snapshot = Snapshot.from_json(data)
        assert replay(snapshot, fresh) is None
        n_won += snapshot.state["won"]
    assert len(stored) == 200
    assert 20 < n_won < 200


@pytest.fixture
def snapshot():
    return next(iter(snapshots(1, 1)))


def test_a_changed_observation_is_found_at_its_turn(snapshot):
    changed = [*snapshot.observations]
    changed[2] = "You win."
    difference = replay(replace(snapshot, observations=tuple(changed)))
    assert (difference.turn, difference.what, difference.recorded) == (2, "observation", "You win.")
    assert str(difference).startswith("turn 2: observation was 'You win.', the replay gives ")


def test_a_changed_verdict_is_found(snapshot):
    forged = {**snapshot.state, "won": not snapshot.state["won"]}
    assert replay(replace(snapshot, state=forged)) == Difference(None, "won", forged["won"], snapshot.state["won"])


def test_a_changed_opening_is_found(snapshot):
    other = next(iter(snapshots(2, 1)))
    item = game_item(games(2, seed=11)[1])
    assert replay(replace(other, item=item)).what == "opening"


def test_actions_after_the_end_are_found(snapshot):
    n = SETTINGS.max_turns + 1
    longer = replace(snapshot, actions=("look",) * n, observations=("",) * n, state=None)
    assert replay(longer).what == "observation"
    looks = replace(snapshot, actions=("dance",) * n, observations=("Nothing happens.",) * n, state=None)
    difference = replay(looks)
    assert (difference.turn, difference.what) == (SETTINGS.max_turns, "end")


def test_a_rollout_that_broke_off_is_compared_as_far_as_it_went(snapshot):
    item = snapshot.item
    whole = played(item, 0)
    half = replace(whole, status=RolloutStatus.FAILED, turns=whole.turns[:2], state={})
    taken = take_snapshot(item, half, SETTINGS)
    assert taken.state is None
    assert replay(taken) is None


def test_other_settings_do_not_replay(snapshot):
    assert replay(replace(snapshot, settings=replace(SETTINGS, show_admissible=True))).what == "opening"


def test_a_rollout_of_another_item_is_refused(snapshot):
    other = game_item(games(1)[0], number=5)
    with pytest.raises(ConfigError, match="not of 'household-5'"):
        take_snapshot(other, played(snapshot.item, 0), SETTINGS)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"item": 3}'])
def test_something_else_is_no_snapshot(data):
    with pytest.raises(ConfigError, match="not a snapshot"):
        Snapshot.from_json(data)
