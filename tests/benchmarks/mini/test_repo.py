from itertools import islice

import numpy as np
import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import Pool
from agent2.benchmarks.mini.repo import (
    SETTINGS,
    SOURCE,
    MiniRepo,
    oracle,
    pretraining_examples,
    random_player,
    to_item,
    wrong_line,
)
from agent2.environments.tools.world import USUAL_FAULTS, FaultSettings, WorldSettings
from agent2.errors import ConfigError
from agent2.records import Split
from tool_builders import SUBMIT, call_text, mean_score, play_with

SECRET = b"s" * 32
N = 200


@pytest.fixture(scope="module")
def benchmark():
    return load_benchmark("mini_repo")


@pytest.mark.parametrize("split", list(Split))
def test_the_oracle_resolves_all_in_spite_of_faults_and_random_edits_next_to_nothing(benchmark, split):
    items = benchmark.items(split, N, SECRET)
    rng = np.random.default_rng(0)
    oracles = play_with(benchmark, items, oracle)
    assert mean_score(oracles) == 1.0
    assert {scored.score.labels for scored in oracles} == {()}
    assert sum(scored.score.views["tool_errors_recovered"] for scored in oracles) > 0.1 * N
    assert mean_score(play_with(benchmark, items, lambda item, chat: random_player(item, chat, rng))) < 0.05


def test_submitting_or_talking_without_a_patch_resolves_nothing(benchmark):
    items = benchmark.items(Split.DEV, N, None)
    assert mean_score(play_with(benchmark, items, lambda item, _: call_text(*SUBMIT))) == 0.0
    assert mean_score(play_with(benchmark, items, lambda item, _: "Fixed, all tests pass.")) == 0.0


@pytest.mark.parametrize("kind", USUAL_FAULTS)
def test_the_oracle_recovers_from_every_kind_of_fault(kind):
    faults = FaultSettings(rate=1.0, kinds=(kind,), n_positions=3)
    benchmark = MiniRepo(WorldSettings(SETTINGS.rules, faults))
    rollouts = play_with(benchmark, benchmark.items(Split.DEV, 50, None), oracle)
    assert mean_score(rollouts) == 1.0
    assert all(scored.score.views[f"recovered_{kind}"] >= 1 for scored in rollouts)


def test_an_episode_is_replayed_to_the_letter(benchmark):
    items = benchmark.items(Split.DEV, 60, None)
    first, again = play_with(benchmark, items, oracle), play_with(benchmark, items, oracle)
    for original, replayed in zip(first, again, strict=True):
        assert (original.rollout.turns, original.rollout.state, original.score) == (
            replayed.rollout.turns,
            replayed.rollout.state,
            replayed.score,
        )


def test_the_mistaken_line_of_the_corpus_is_never_the_right_one(benchmark):
    for item in benchmark.items(Split.TRAIN, N, None):
        assert wrong_line(item.reference) != item.reference


def test_hidden_items_need_the_secret(benchmark):
    with pytest.raises(ConfigError, match="installation secret"):
        benchmark.items(Split.TEST_PRIVATE, 1, None)


def test_the_corpus_shows_mistakes_danger_and_recoveries_and_is_the_same_for_one_seed():
    first, again, other_seed = (pretraining_examples(np.random.default_rng(seed), 150) for seed in (0, 0, 1))
    assert first == again != other_seed
    text = "\n".join(message.content for chat in first for message in chat)
    for sign in ('"error": "timeout"', '"name": "login"', "needs confirmation", '"passed"', "not"):
        assert sign in text
    tasks = islice(SOURCE.train_draws(np.random.default_rng(0)), 200)
    assert {SOURCE.pool_of(task) for task in tasks} == {Pool.TRAIN}


def test_a_clean_corpus_is_what_the_oracle_says(benchmark):
    chats = pretraining_examples(np.random.default_rng(3), 80, mean_right_share=1.0, spread=0.0)
    tasks = islice(SOURCE.train_draws(np.random.default_rng(3).spawn(2)[0]), 80)
    for chat, item in zip(chats, (to_item(task, Split.TRAIN) for task in tasks), strict=True):
        for place in range(1, len(chat), 2):
            assert chat[place].content == oracle(item, chat[:place])
    assert any("timeout" in message.content for chat in chats for message in chat)
