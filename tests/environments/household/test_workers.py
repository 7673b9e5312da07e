import os
import random
import signal
import time

import pytest

from agent2.environments.household.workers import Workers
from agent2.environments.household.world import HouseholdSettings, HouseholdWorld
from agent2.errors import ConfigError, EnvironmentFailed
from agent2.evaluation.engine import Attempt, PlaySettings, act_all, play, reset_all
from agent2.models.scripted import ScriptedSampler
from agent2.records import Fault, Item, RolloutStatus, SamplingSettings, Score
from household_games import game_item, games

SETTINGS = HouseholdSettings()


@pytest.fixture(scope="module")
def workers():
    with Workers(2) as started:
        yield started


def items(n):
    return [game_item(game, number) for number, game in enumerate(games(n))]


def actions_for(item, n):
    """What a chance player does, known beforehand."""
    world, rng = HouseholdWorld(SETTINGS), random.Random(item.id)
    world.reset(item, 0)
    actions = []
    for _ in range(n):
        actions.append(rng.choice([*world.admissible(), "dance", "\ud800"]))
        if world.act(actions[-1]).done:
            break
    return actions


def told(world, item, actions):
    return [*world.reset(item, 0), *(world.act(action) for action in actions), world.state()]


@pytest.mark.slow
def test_an_episode_in_a_process_is_the_episode_here(workers):
    for item in items(6):
        actions = actions_for(item, 8)
        assert told(workers.world(SETTINGS), item, actions) == told(HouseholdWorld(SETTINGS), item, actions)
    assert len(workers.pids) == 2


@pytest.mark.slow
def test_many_episodes_take_a_turn_at_once(workers):
    many = items(40)
    here = [HouseholdWorld(SETTINGS) for _ in many]
    there, openings = zip(*reset_all(lambda: workers.world(SETTINGS), [(item, 0) for item in many]), strict=True)
    assert list(openings) == [world.reset(item, 0) for world, item in zip(here, many, strict=True)]
    for _ in range(3):
        commands = [world.admissible()[-1] for world in here]
        steps = act_all(zip(there, commands, strict=True))
        assert steps == [world.act(command) for world, command in zip(here, commands, strict=True)]
    assert there[0].ask_expert() == here[0].ask_expert()


@pytest.mark.slow
def test_errors_of_the_world_come_through(workers):
    world = workers.world(SETTINGS)
    with pytest.raises(EnvironmentFailed, match="not begun"):
        world.act("look")
    with pytest.raises(EnvironmentFailed, match="not a record"):
        world.reset(Item("x", items(1)[0].split, ""), 0)
    item = items(1)[0]
    other = workers.world(HouseholdSettings(max_turns=1))
    other.reset(item, 0)
    with pytest.raises(EnvironmentFailed, match="already used"):
        other.reset(item, 0)
    other.act("look")
    assert other.max_turns == HouseholdWorld(HouseholdSettings(max_turns=1)).max_turns == 1
    assert [type(result) for result in act_all([(other, "look")])] == [EnvironmentFailed]


class WonScorer:
    name = "won"
    version = "1"

    def score(self, item, rollout):
        return Score(float(rollout.state["won"]), "from the state")


class DyingWorld:
    """A worker's world whose process is killed before its second action, as often as told."""

    def __init__(self, workers, deaths):
        self._workers, self._world, self._deaths, self._n_actions = workers, workers.world(SETTINGS), deaths, 0

    def reset(self, item, seed):
        return self._world.reset(item, seed)

    def act(self, action):
        self._n_actions += 1
        if self._n_actions == 2 and self._deaths:
            os.kill(self._deaths.pop()(), signal.SIGKILL)
        return self._world.act(action)

    def state(self):
        return self._world.state()


def rollout_with_deaths(n_deaths):
    with Workers(1) as workers:
        deaths = [lambda: workers.pids[0]] * n_deaths
        sampler = ScriptedSampler(lambda messages: "look")
        settings = PlaySettings(SamplingSettings(), max_turns=3)
        attempt = Attempt(items(1)[0], 0, 0)
        (scored,) = play([attempt], sampler, lambda: DyingWorld(workers, deaths), WonScorer(), settings)
    return scored


@pytest.mark.slow
def test_a_process_that_dies_in_mid_episode_costs_one_visible_retry():
    scored = rollout_with_deaths(1)
    assert scored.rollout.status is RolloutStatus.TURN_CAP
    assert (scored.rollout.retries, scored.score.value) == (1, 0.0)
    assert len(scored.rollout.turns) == 3
    assert "environment fault: household worker 0" in scored.rollout.reason
    assert "has died in the middle of an episode" in scored.rollout.reason


@pytest.mark.slow
def test_a_process_that_dies_twice_leaves_a_missing_score():
    scored = rollout_with_deaths(2)
    assert scored.rollout.status is RolloutStatus.FAILED
    assert (scored.rollout.fault, scored.score.value) == (Fault.ENVIRONMENT, None)


@pytest.mark.slow
def test_a_process_that_dies_costs_its_own_episodes_and_no_others():
    many = items(12)
    here = [HouseholdWorld(SETTINGS) for _ in many]
    for world, item in zip(here, many, strict=True):
        world.reset(item, 0)
    with Workers(2) as workers:
        there = [world for world, _ in reset_all(lambda: workers.world(SETTINGS), [(item, 0) for item in many])]
        os.kill(workers.pids[0], signal.SIGKILL)
        steps = act_all([(world, "look") for world in there])
        assert len(workers.pids) == 1
    lost = [step for step in steps if isinstance(step, EnvironmentFailed)]
    assert 0 < len(lost) < len(many) and all("household worker 0" in str(error) for error in lost)
    assert all(step in lost or step == world.act("look") for world, step in zip(here, steps, strict=True))


@pytest.mark.slow
def test_a_silent_process_is_given_up_and_replaced():
    with Workers(1, timeout_s=300) as workers:
        item = items(1)[0]
        world, neighbour = workers.world(SETTINGS), workers.world(SETTINGS)
        world.reset(item, 0)
        neighbour.reset(item, 0)
        (pid,) = workers.pids
        workers.timeout_s = 0.3
        os.kill(pid, signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(EnvironmentFailed, match=r"was silent for 0\.3 s"):
            world.act("look")
        assert time.monotonic() - started < 200
        with pytest.raises(EnvironmentFailed, match="lost together with this episode"):
            neighbour.act("look")
        workers.timeout_s = 300
        fresh = workers.world(SETTINGS)
        fresh.reset(item, 0)
        assert workers.pids != [pid]


@pytest.mark.slow
def test_openings_that_together_are_longer_than_a_pipe_do_not_stop_both_sides(workers):
    """Neither side may wait for the other to read; with an alarm, since the failure is to wait for ever."""
    examples = [{"role": "user", "content": "x" * 20_000 + "{observation}"}]
    long = [game_item(game, number, opening=examples) for number, game in enumerate(games(2))]
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(300)
    try:
        begun = reset_all(lambda: workers.world(SETTINGS), [(long[n % 2], n) for n in range(48)])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number, (_, (opening,)) in enumerate(begun):
        (alone,) = HouseholdWorld(SETTINGS).reset(long[number % 2], number)
        assert opening == alone


@pytest.mark.slow
def test_a_process_that_takes_no_request_is_given_up():
    with Workers(1, timeout_s=300) as workers:
        world = workers.world(SETTINGS)
        world.reset(items(1)[0], 0)
        (pid,) = workers.pids
        workers.timeout_s = 0.3
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EnvironmentFailed, match=r"took no request for 0\.3 s"):
            world.act("x" * 300_000)


def test_no_process_is_no_workers():
    with pytest.raises(ConfigError, match="ask for at least 1"):
        Workers(0)


def test_workers_may_be_closed_twice_and_unused():
    workers = Workers(2)
    workers.close()
    workers.close()
    assert workers.pids == []
