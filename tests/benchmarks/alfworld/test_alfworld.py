import json

import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.alfworld import AUTHORS_EXAMPLES
from agent2.benchmarks.home import ProvidesCount
from agent2.benchmarks.household import expert
from agent2.environments.household.game import TASK_TYPES
from agent2.errors import ConfigError
from agent2.evaluation.engine import Attempt, PlaySettings, play
from agent2.evaluation.suite_draft import suite_of
from agent2.models.sources import ScriptedSampler
from agent2.records import Split
from household_builders import SECRET, write_official

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_official(tmp_path_factory.mktemp("alfworld"), n_train=40, size="small")


def play_items(benchmark, items, reply):
    settings = PlaySettings(benchmark.sampling, benchmark.max_turns)
    attempts = [Attempt(item, 0, 0) for item in items]
    return list(play(attempts, ScriptedSampler(reply, capacity=1), benchmark.environment, benchmark.scorer(), settings))


def test_splits_are_the_published_folders_and_dev_a_part_of_train(folder):
    benchmark = load_benchmark("alfworld", folder)
    places = {split: 4 if split is Split.TEST_PUBLIC else 2 for split in Split}
    items_by_split = {split: benchmark.items(split, n, SECRET) for split, n in places.items()}
    assert {i.payload["trial"].split("/")[0] for i in items_by_split[Split.TEST_PRIVATE]} == {"valid_unseen"}
    assert {i.payload["trial"].split("/")[0] for i in items_by_split[Split.TEST_PUBLIC]} == {"valid_seen"}
    assert {i.payload["trial"].split("/")[0] for i in [*items_by_split[Split.DEV], *items_by_split[Split.TRAIN]]} == {
        "train"
    }
    ids = [item.id for items in items_by_split.values() for item in items]
    assert len(set(ids)) == len(ids)


def test_an_evaluation_may_ask_for_all_games_of_the_folder(folder):
    benchmark = load_benchmark("alfworld", folder)
    assert isinstance(benchmark, ProvidesCount)
    assert [benchmark.count(split, SECRET) for split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE)] == [4, 6]
    n_train, n_dev = benchmark.count(Split.TRAIN, None), benchmark.count(Split.DEV, None)
    assert n_train + n_dev == 40 and len(benchmark.items(Split.DEV, n_dev, None)) == n_dev
    with pytest.raises(ConfigError, match="for the grader only"):
        benchmark.count(Split.TEST_PRIVATE, None)
    assert suite_of("alfworld").cadence.dev.n_items is None


def test_the_published_conditions_hold():
    benchmark = load_benchmark("alfworld")
    assert (benchmark.max_turns, benchmark.sampling.temperature, benchmark.attempts) == (50, 0.0, 1)


def test_a_workspace_may_not_have_the_evaluation_games(folder):
    with pytest.raises(ConfigError, match="for the grader only"):
        load_benchmark("alfworld", folder).items(Split.TEST_PRIVATE, 1, None)


@pytest.mark.parametrize("name", ["alfworld", "alfworld_chat"])
def test_an_expert_wins_under_either_protocol_without_the_data_folder(folder, name):
    items = load_benchmark(name, folder).items(Split.TEST_PRIVATE, 3, SECRET)
    results = play_items(load_benchmark(name), items, lambda chat: expert(None, chat))  # an item brings its game along
    assert [scored.score.value for scored in results] == [1.0] * 3


def test_the_prompt_shown_is_the_rooms_own_opening(folder):
    benchmark = load_benchmark("alfworld_chat", folder)
    for item in benchmark.items(Split.TEST_PRIVATE, 3, SECRET):
        (message,) = benchmark.environment().reset(item, 0)
        assert item.prompt in message.content


def test_a_thought_is_answered_ok_and_costs_a_turn(folder):
    benchmark = load_benchmark("alfworld", folder)
    (item,) = benchmark.items(Split.TEST_PRIVATE, 1, SECRET)
    world = benchmark.environment()
    (message,) = world.reset(item, 0)
    assert message.content.count("Your task is to:") == 3
    assert message.content.endswith("\n>")
    assert world.act("> think: I look around first.").observation == "OK."
    assert world.state()["n_turns"] == 1
    assert world.state()["n_invalid"] == 0


def test_a_visible_row_leaves_the_examples_out_and_gets_them_back(folder):
    benchmark = load_benchmark("alfworld", folder)
    (item,) = benchmark.items(Split.TRAIN, 1, None)
    row = benchmark.visible_row(item)
    assert "opening" not in row
    assert benchmark.item_of(row).payload == {key: item.payload[key] for key in ("game", "task_type", "opening")}


def test_the_authors_own_examples_are_used_where_their_file_lies(tmp_path):
    write_official(tmp_path, n_unseen=1)
    keys = ("put", "clean", "heat", "cool", "examine", "puttwo")
    texts = {f"react_{key}_{n}": f"example {key} {n}" for key in keys for n in range(3)}
    (tmp_path / AUTHORS_EXAMPLES).write_text(json.dumps(texts))
    benchmark = load_benchmark("alfworld", tmp_path)
    (item,) = benchmark.items(Split.TEST_PRIVATE, 1, SECRET)
    (message,) = benchmark.environment().reset(item, 0)
    assert "example " in message.content
    assert message.content.count("Your task is to:") == 1
    (train,) = benchmark.items(Split.TRAIN, 1, None)
    row = json.loads(json.dumps(benchmark.visible_row(train)))
    assert load_benchmark("alfworld").item_of(row).payload["opening"] == train.payload["opening"]
    (tmp_path / AUTHORS_EXAMPLES).write_text(json.dumps({"react_put_0": ""}))
    with pytest.raises(ConfigError, match="is not the published file of ReAct examples"):
        benchmark.items(Split.TEST_PRIVATE, 1, SECRET)


def test_a_benchmark_that_makes_its_items_takes_no_folder(tmp_path):
    with pytest.raises(ConfigError, match=r"reads no data folder .* for .*alfworld, alfworld_chat"):
        load_benchmark("household", tmp_path)


def test_scores_are_told_by_the_six_published_types(folder):
    """Real rollouts: games of one type are played by an expert, the others by a player that wins nothing."""
    benchmark = load_benchmark("alfworld_chat", folder)
    items = benchmark.items(Split.TRAIN, 24, None)
    types = [item.payload["task_type"] for item in items]
    assert len(set(types)) >= 4
    won = play_items(
        benchmark, [item for item in items if item.payload["task_type"] == types[0]], lambda chat: expert(None, chat)
    )
    lost = play_items(benchmark, [item for item in items if item.payload["task_type"] != types[0]], lambda chat: "look")
    views = [scored.score.views for scored in [*won, *lost]]
    views_by_type = {
        name: [sum(view[f"{count}_{name}"] for view in views) for count in ("games", "won")] for name in TASK_TYPES
    }
    n_won = sum(scored.score.value for scored in won)
    assert n_won > 0
    assert views_by_type == {name: [types.count(name), n_won if name == types[0] else 0] for name in TASK_TYPES}
    assert all(sum(view[f"games_{name}"] for name in TASK_TYPES) == 1 for view in views)
