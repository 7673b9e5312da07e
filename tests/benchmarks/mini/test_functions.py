from collections import Counter
from itertools import islice

import numpy as np
import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import Pool, reference_answer
from agent2.benchmarks.mini.functions import (
    SOURCE,
    draw_task,
    mistaken_answer,
    pretraining_examples,
    to_item,
)
from agent2.errors import ConfigError
from agent2.records import Split
from tool_builders import mean_score, play_with, random_call

SECRET = b"s" * 32
N = 200


@pytest.fixture(scope="module")
def benchmark():
    return load_benchmark("mini_functions")


@pytest.mark.parametrize("split", list(Split))
def test_the_oracle_scores_one_and_a_random_caller_next_to_nothing(benchmark, split):
    items = benchmark.items(split, N, SECRET)
    rng = np.random.default_rng(0)
    assert mean_score(play_with(benchmark, items, reference_answer)) == 1.0
    assert mean_score(play_with(benchmark, items, lambda item, _: random_call(item, rng))) < 0.05
    assert mean_score(play_with(benchmark, items, lambda item, _: "")) == 0.0


def test_kinds_come_in_their_shares_and_only_the_word_none_has_no_call(benchmark):
    items = benchmark.items(Split.DEV, N, None)
    kinds = Counter(item.payload["kind"] for item in items)
    assert kinds["simple"] > kinds["parallel"] > kinds["none"] > 0.04 * N
    for item in items:
        assert (item.reference == "none") == (item.payload["kind"] == "none") == (not item.payload["gold"])
        names = {call["name"] for call in item.payload["gold"]}
        assert names <= set(item.payload["tools"])


def test_more_items_than_there_are_and_hidden_ones_without_the_secret_are_refused(benchmark):
    assert len({item.id for item in benchmark.items(Split.TRAIN, 500, None)}) == 500
    with pytest.raises(ConfigError, match="installation secret"):
        benchmark.items(Split.TEST_PRIVATE, 1, None)


def test_a_mistake_is_never_right(benchmark):
    rng = np.random.default_rng(0)
    tasks = [draw_task(rng) for _ in range(200)]
    messages = {task.prompt: mistaken_answer(task, rng) for task in tasks}
    items = [to_item(task, Split.TRAIN) for task in tasks]
    assert mean_score(play_with(benchmark, items, lambda item, _: messages[item.prompt])) == 0.0


@pytest.mark.parametrize(("share", "value"), [(1.0, 1.0), (0.0, 0.0)])
def test_the_corpus_is_right_as_often_as_asked(benchmark, share, value):
    chats = pretraining_examples(np.random.default_rng(1), 150, mean_right_share=share, spread=0.0)
    tasks = islice(SOURCE.train_draws(np.random.default_rng(1).spawn(2)[0]), 150)
    items = [to_item(task, Split.TRAIN) for task in tasks]
    messages = {chat[0].content: chat[1].content for chat in chats}
    assert mean_score(play_with(benchmark, items, lambda item, _: messages[item.prompt])) == value


def test_one_seed_is_one_corpus():
    first, again, other_seed = (pretraining_examples(np.random.default_rng(seed), 50) for seed in (0, 0, 1))
    assert first == again != other_seed


def test_the_corpus_draws_from_the_train_pool():
    tasks = islice(SOURCE.train_draws(np.random.default_rng(0)), 300)
    assert {SOURCE.pool_of(task) for task in tasks} == {Pool.TRAIN}
