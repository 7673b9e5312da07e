"""What holds for each of mini_knowledge, mini_math and mini_ifeval."""

import importlib
from itertools import islice

import numpy as np
import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.home import foreign_answers, reference_answer
from agent2.errors import ConfigError
from agent2.records import HIDDEN_SPLITS, Rollout, RolloutStatus, Split, Usage

SECRET, OTHER_SECRET = b"s" * 32, b"t" * 32
NAMES = ("mini_knowledge", "mini_math", "mini_ifeval")
FLOORS = {"mini_knowledge": 0.30, "mini_math": 0.08, "mini_ifeval": 0.10}
for_each_name = pytest.mark.parametrize("name", NAMES)


def module_of(name):
    return importlib.import_module(f"agent2.benchmarks.{name.replace('_', '.')}")


def corpus_of(name):
    return module_of(name).pretraining_examples


def source_of(name):
    return module_of(name).SOURCE


def play(benchmark, item, answer):
    world = benchmark.environment()
    prompt = world.reset(item, seed=0)
    assert world.act(answer).done
    state = world.state()
    rollout = Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, prompt, (), state["answer"], state, Usage())
    return benchmark.scorer().score(item, rollout)


@pytest.mark.parametrize("split", list(Split))
@for_each_name
def test_the_oracle_scores_one_on_every_item_and_the_random_player_lies_near_the_floor(name, split):
    benchmark = load_benchmark(name)
    items = benchmark.items(split, 300, SECRET)
    assert {play(benchmark, item, reference_answer(item, [])).value for item in items} == {1.0}
    at_random = foreign_answers(items)
    assert np.mean([play(benchmark, item, at_random(item, [])).value for item in items]) < FLOORS[name]


@for_each_name
def test_no_two_splits_share_a_question_in_any_wording(name):
    source = source_of(name)
    canonicals = {split: {source.canonical(task) for task in source.first(split, 300, SECRET)} for split in Split}
    assert sum(map(len, canonicals.values())) == len(set().union(*canonicals.values()))


@for_each_name
def test_hidden_items_follow_the_secret_and_visible_ones_do_not(name):
    benchmark = load_benchmark(name)
    for split in Split:
        ours = {item.prompt for item in benchmark.items(split, 200, SECRET)}
        theirs = {item.prompt for item in benchmark.items(split, 200, OTHER_SECRET)}
        assert (ours == theirs) == (split not in HIDDEN_SPLITS)
    with pytest.raises(ConfigError, match="installation secret"):
        benchmark.items(Split.TEST_PRIVATE, 1, None)


@for_each_name
def test_items_are_stable_and_have_unique_ids(name):
    benchmark = load_benchmark(name)
    items = benchmark.items(Split.DEV, 300, None)
    assert items == load_benchmark(name).items(Split.DEV, 300, None)
    assert len({item.id for item in items}) == len({item.prompt for item in items}) == 300


@for_each_name
def test_prompts_and_answers_are_short_enough_for_a_tiny_model(name):
    benchmark = load_benchmark(name)
    items = benchmark.items(Split.TRAIN, 300, None)
    assert max(len(item.prompt) for item in items) <= 160
    assert max(len(item.reference) for item in items) <= 110
    assert max(len(item.reference.split()) for item in items) <= 24


@for_each_name
def test_the_corpus_is_one_for_one_seed_and_shows_no_dev_or_hidden_item(name):
    first, again = (corpus_of(name)(np.random.default_rng(3), 400) for _ in range(2))
    assert first == again != corpus_of(name)(np.random.default_rng(4), 400)
    assert {tuple(message.role for message in chat) for chat in first} == {("user", "assistant")}
    prompts = {chat[0].content for chat in first}
    benchmark = load_benchmark(name)
    for split in (Split.DEV, *HIDDEN_SPLITS):
        assert prompts.isdisjoint(item.prompt for item in benchmark.items(split, 500, SECRET))


def share_right(name, mean_right_share, spread):
    """Of the answers that the corpus gives, as the benchmark's own scorer sees them."""
    benchmark, rng = load_benchmark(name), np.random.default_rng(0)
    tasks = islice(source_of(name).train_draws(np.random.default_rng(1)), 500)
    answer, to_item = module_of(name).draw_answer, module_of(name).to_item
    pairs = [(to_item(task, Split.TRAIN), answer(task, rng, mean_right_share, spread)) for task in tasks]
    return np.mean([play(benchmark, item, text).value for item, text in pairs])


@for_each_name
def test_the_share_of_right_answers_is_what_was_asked_for(name):
    assert share_right(name, 1.0, 0.0) == 1.0
    assert share_right(name, 0.0, 0.0) <= 0.02
    assert 0.3 < share_right(name, 0.6, 0.3) < 0.7
