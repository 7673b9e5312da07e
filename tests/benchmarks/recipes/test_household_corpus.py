from dataclasses import replace

import pytest

from agent2.benchmarks.household.generate import SIZES, opening, source_of
from agent2.benchmarks.recipes.household import NOTHING, HouseholdCorpusSettings, household_corpus, single_tokens
from agent2.records import Split

pytestmark = pytest.mark.engine

SETTINGS = HouseholdCorpusSettings(n_chats=300)
CHATS = household_corpus(SETTINGS)


def test_one_set_of_settings_gives_one_corpus():
    assert household_corpus(replace(SETTINGS, n_chats=20)) == CHATS[:20]
    assert household_corpus(replace(SETTINGS, n_chats=20, seed=1)) != CHATS[:20]


def test_chats_begin_with_an_opening_end_with_a_command_and_keep_within_the_turns():
    for chat in CHATS:
        assert [message.role for message in chat] == ["user", "assistant"] * (len(chat) // 2)
        assert "Your task is to:" in chat[0].content
        assert len(chat) <= 2 * SIZES["tiny"].max_turns


def test_no_hidden_and_no_dev_game_is_in_the_corpus():
    source = source_of(SIZES["tiny"])
    openings = {chat[0].content for chat in CHATS}
    layouts = source.first(Split.DEV, 400, None) + source.first(Split.TEST_PUBLIC, 1000, b"secret")
    assert not openings & {opening(layout) for layout in layouts}


def test_most_games_are_not_won_and_some_commands_have_no_effect():
    observations = [message.content for chat in CHATS for message in chat if message.role == "user"]
    assert 0.05 < sum(text == NOTHING for text in observations) / len(observations) < 0.25
    assert sum(len(chat) == 2 * SIZES["tiny"].max_turns for chat in CHATS) / len(CHATS) > 0.8


def test_all_that_can_be_named_in_the_tiny_world_is_worth_a_token():
    tokens = set(single_tokens(SIZES["tiny"]))
    assert {" shelf 1", " sinkbasin 1", " desklamp 1", " apple 2", " mug"} <= tokens
    assert len(tokens) == len(single_tokens(SIZES["tiny"]))
