from dataclasses import replace
from functools import partial

import pytest

from agent2.benchmarks import load_benchmark
from agent2.environments.household.world import HouseholdSettings, HouseholdWorld
from agent2.errors import ConfigError
from agent2.records import Split
from agent2.training.visible import TraceSettings, collect_traces

pytestmark = pytest.mark.engine

HOUSEHOLD = load_benchmark("household")
GAMES = HOUSEHOLD.items(Split.TRAIN, 12, None)
CLUMSY = TraceSettings(episodes_per_item=3, clumsy_share=1.0, clumsy_rate=0.5, impossible_rate=0.5)


def actions(row):
    return [message for message in row["messages"] if message["role"] == "assistant"]


def test_won_games_become_conversations_that_end_with_an_action():
    traces = collect_traces(GAMES, HOUSEHOLD.environment, TraceSettings(clumsy_share=0.0))
    assert traces.n_played == 24
    assert len(traces.rows) >= 23
    assert traces.n_actions == sum(len(actions(row)) for row in traces.rows)
    for row in traces.rows:
        roles = [message["role"] for message in row["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert all(message.get("learn", True) for message in actions(row))


def test_clumsy_actions_are_shown_and_not_learned_and_games_lost_by_them_are_left_out():
    traces = collect_traces(GAMES, HOUSEHOLD.environment, CLUMSY)
    masked = [message for row in traces.rows for message in actions(row) if not message.get("learn", True)]
    n_actions = sum(len(actions(row)) for row in traces.rows)
    assert 0.2 < len(masked) / n_actions < 0.6
    assert len(traces.rows) < traces.n_played
    observations = [
        message["content"] for row in traces.rows for message in row["messages"] if message["role"] == "user"
    ]
    assert "Nothing happens." in observations
    assert "help" not in {message["content"] for message in masked}


def test_clumsiness_is_learned_if_asked():
    traces = collect_traces(GAMES[:4], HOUSEHOLD.environment, replace(CLUMSY, learn_clumsy=True))
    assert all("learn" not in message for row in traces.rows for message in actions(row))


def test_every_row_can_be_played_again_to_a_win():
    traces = collect_traces(GAMES[:4], HOUSEHOLD.environment, replace(CLUMSY, clumsy_rate=0.3))
    openings = {item.prompt: item for item in GAMES}
    for row in traces.rows:
        world = HouseholdWorld(HOUSEHOLD.settings)
        observation = world.reset(openings[row["messages"][0]["content"]], 0)[0].content
        for message in row["messages"]:
            if message["role"] == "user":
                assert message["content"] == observation
            else:
                observation = world.act(message["content"]).observation
        assert world.state()["won"]


def test_one_seed_gives_the_same_traces_and_another_seed_others():
    first, again = (collect_traces(GAMES[:6], HOUSEHOLD.environment, CLUMSY).rows for _ in range(2))
    assert first == again
    assert collect_traces(GAMES[:6], HOUSEHOLD.environment, replace(CLUMSY, seed=1)).rows != first


def test_more_turns_than_the_world_takes_are_the_turns_that_it_takes():
    shortest = TraceSettings(episodes_per_item=1, clumsy_share=0.0, max_turns=3)
    short = partial(HouseholdWorld, HouseholdSettings(max_turns=3))
    traces, same = (collect_traces(GAMES, short, replace(shortest, max_turns=n)) for n in (12, 3))
    assert (traces.rows, traces.n_actions) == (same.rows, same.n_actions)
    assert len(traces.rows) < traces.n_played == len(GAMES), "games that were lost are counted and left out"


@pytest.mark.parametrize("settings", [replace(CLUMSY, episodes_per_item=0), replace(CLUMSY, max_turns=0)])
def test_settings_that_play_nothing_are_refused(settings):
    with pytest.raises(ConfigError, match="must be at least 1"):
        collect_traces(GAMES, HOUSEHOLD.environment, settings)
