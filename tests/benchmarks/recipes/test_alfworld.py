"""The tiny base model for official games: what its recipe reads of a data folder, and the player that it imitates."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from agent2.arena.audit import familiar_texts
from agent2.arena.scoring import LoadedTask
from agent2.arena.spec import SplitSizes
from agent2.arena.tasks import load_task
from agent2.benchmarks import BASE_MODELS
from agent2.benchmarks.alfworld import AUTHORS_EXAMPLES, Alfworld, OfficialData, is_dev
from agent2.benchmarks.household.generate import CLEAN, LOOK, PICK, layout_in
from agent2.benchmarks.recipes.alfworld import SIZE, build, official_corpus, room_of, vocabulary, with_data
from agent2.environments.household.game import TASK_TYPES
from agent2.errors import ConfigError
from agent2.evaluation.engine import PlaySettings
from agent2.integrity.leaks import NgramIndex
from agent2.models.bases import ensure_base_model
from agent2.models.tiny import build_word_tokenizer, encode_chats
from agent2.records import Item, Split
from agent2.training.visible import play_once
from household_builders import draw, write_official, write_trial

pytestmark = pytest.mark.engine

ENTRY = BASE_MODELS["tiny-alfworld"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_official(tmp_path_factory.mktemp("alfworld"))


@pytest.fixture(scope="module")
def completed(folder):
    return with_data(ENTRY, folder)


def few(entry, n=60, **settings):
    return official_corpus(replace(entry.corpus, n_chats=n, **settings))


def games_of(folder):
    return OfficialData(folder).first("train", 12, lambda place: not is_dev(place))


def test_the_recipe_holds_the_rooms_names_and_prompts_of_the_train_games(folder, completed):
    items = Alfworld(folder).items(Split.TRAIN, 12, None)
    names = {f" {name}" for item in items for name in re.findall(r"\ba (\w+ \d+)", item.prompt)}
    assert " shelf 1" in names and names <= set(completed.recipe.pieces)
    assert not [piece for piece in completed.recipe.pieces if "?" in piece], "a goal's variables are no names"
    assert {room_of(official.game) for official in games_of(folder)} <= {room for room, _ in completed.corpus.rooms}
    prompts = dict(zip(TASK_TYPES, completed.corpus.prompts, strict=True))
    assert all(item.payload["opening"][0]["content"] == prompts[item.payload["task_type"]] for item in items)
    assert completed.from_data == "" and len(set(completed.recipe.pieces)) == len(completed.recipe.pieces)


def test_a_hidden_or_a_dev_game_changes_nothing_and_a_train_game_makes_another_model(folder, completed, tmp_path):
    data = write_official(tmp_path, n_seen=1, n_unseen=2)
    assert with_data(ENTRY, data).digest == completed.digest
    write_trial(data, "train", draw(50, "full"), "trial_T1", task="pick-dev-8")  # a dev folder, by the public hash
    assert is_dev("train/pick-dev-8/trial_T1") and not is_dev("train/pick-train-0/trial_T2")
    assert with_data(ENTRY, data).digest == completed.digest
    write_trial(data, "train", draw(51, "full"), "trial_T2", task="pick-train-0")
    assert with_data(ENTRY, data).digest != completed.digest


def test_without_games_it_says_where_they_were_looked_for_and_an_incomplete_recipe_is_not_built(tmp_path):
    with pytest.raises(ConfigError, match=r"no official games in .*nowhere.*alfworld-download"):
        with_data(ENTRY, tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="completed from official games"):
        build(ENTRY, tmp_path, print)
    with pytest.raises(ConfigError, match="only a recipe for chats of official games"):
        with_data(BASE_MODELS["tiny-mini"], tmp_path)


def test_the_authors_examples_are_read_where_their_file_is(tmp_path):
    data = write_official(tmp_path)
    (data / AUTHORS_EXAMPLES).write_text(
        "{" + ", ".join(f'"react_{key}_{n}": "theirs {key}"' for key in _KEYS for n in range(2)) + "}"
    )
    assert all("theirs" in prompt for prompt in with_data(ENTRY, data).corpus.prompts)


_KEYS = ("put", "clean", "heat", "cool", "examine", "puttwo")


def test_numbers_go_up_to_the_highest_that_a_game_shows_and_to_three():
    names = vocabulary([draw(3, "full")])
    numbers = [int(word.rpartition(" ")[2]) for word in names if word.rpartition(" ")[2].isdigit()]
    assert {1, 2, 3} <= set(numbers) and " drawer" in names and len(set(names)) == len(names)


def test_chats_are_in_the_prompt_of_the_benchmark_one_token_for_its_examples_and_fit_the_context(completed):
    chats = few(completed)
    assert chats == few(completed) and len(chats) == 60
    assert all(chat[0].content.startswith(tuple(p.split("{")[0] for p in completed.corpus.prompts)) for chat in chats)
    assert all(chat[0].content.endswith("\n>") and chat[-1].role == "assistant" for chat in chats)
    tokenizer = build_word_tokenizer(chats[:20], completed.recipe)
    lengths = [len(ids) for ids, _ in encode_chats(tokenizer, chats)]
    assert max(lengths) <= completed.recipe.model.context_tokens
    assert len(tokenizer(chats[0][0].content)["input_ids"]) < 60 < len(chats[0][0].content) // 40


def test_the_player_wins_unless_it_walks_on_and_then_only_what_is_looked_at_under_a_lamp(completed):
    never = few(completed, often=0.0, rarely=0.0, wandering=0.0)
    assert sum(len(chat) < 100 for chat in never) > 50, "a searching expert ends nearly all games before the last turn"
    always = few(completed, often=1.0, rarely=0.0, wandering=0.0)
    commands = {message.content.split()[0] for chat in always for message in chat if message.role == "assistant"}
    assert not commands & {"move", "clean", "heat", "cool"} and {"go", "take", "use"} <= commands
    ended = [chat for chat in always if len(chat) < 100]
    assert ended and all(chat[-1].content.startswith("use") for chat in ended)


@pytest.mark.parametrize(("task_type", "types"), [(LOOK, ("Bed", "Drawer")), (CLEAN, ("Cabinet", "CounterTop"))])
def test_a_room_without_a_place_for_the_lamp_or_without_the_tool_suits_no_such_task(task_type, types):
    rng = np.random.default_rng(0)
    assert layout_in(rng, SIZE, types, task_type) is None
    layout = layout_in(rng, SIZE, ("Cabinet", "CounterTop", "SideTable", "SinkBasin"), PICK)
    assert layout is not None and [receptacle.type for receptacle in layout.receptacles][-1] == "SinkBasin"


@pytest.mark.slow
def test_a_shortened_recipe_makes_a_model_that_plays_in_the_prompt_of_the_benchmark(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    model = replace(ENTRY.recipe.model, hidden_size=32, n_layers=1, feed_forward_size=64)
    recipe = replace(ENTRY.recipe, model=model, steps=(6, 3), batch_tokens=1024, report_every_steps=3)
    short, progress = replace(ENTRY, recipe=recipe, corpus=replace(ENTRY.corpus, n_chats=30)), []
    folder_of_model = ensure_base_model("tiny-alfworld", {"tiny-alfworld": short}, progress.append, data=folder)
    assert progress[0].startswith("playing 30 games in the rooms of ") and "step 3 of 6 and 3" in progress[-1]
    assert json.loads((folder_of_model / "manifest.json").read_text())["steps"] == [6, 3]
    benchmark = Alfworld(folder)
    score = play_once(
        folder_of_model, benchmark, benchmark.items(Split.TRAIN, 2, None), PlaySettings(benchmark.sampling, 3)
    )
    assert score.n_missing == 0


def test_the_solved_examples_of_a_prompt_are_no_leak_and_a_hidden_game_still_is(folder):
    sizes = SplitSizes(train=4, dev=1, test_public=1, test_private=4)
    loaded = LoadedTask(load_task("alfworld").model_copy(update={"n_items": sizes}), Alfworld(folder), b"s" * 32)
    example = loaded.items(Split.TRAIN)[0].payload["opening"][0]["content"]
    same_room = example[example.index("You are in") : example.index(".\n>")]
    hidden = [Item("as in the example", Split.TEST_PRIVATE, same_room), Item("other", Split.TEST_PRIVATE, OTHER)]
    index = NgramIndex([item.prompt for item in hidden], familiar_texts(loaded))
    assert [hit.item for hit in index.search(f"{example}\n{OTHER}")] == [1]


OTHER = "You are in the middle of a room. Looking around you, you see " + ", ".join(f"a safe {n}" for n in range(20))
