import json
import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

import base_model_fakes
from agent2 import installation
from agent2.benchmarks import BASE_MODELS
from agent2.benchmarks.recipes.arithmetic import CorpusSettings
from agent2.errors import ConfigError
from agent2.models.bases import cached_path, ensure_base_model
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.packaged import MADE
from agent2.models.tiny import corpus_sample_digest, make
from agent2.models.tiny_recipe import BaseModel, TinyRecipe
from agent2.training.dev_scores import dev_scores


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def table(builder="build"):
    return {"fake": BaseModel("1", TinyRecipe(target=0.5), CorpusSettings(), f"base_model_fakes:{builder}", (builder,))}


def test_a_model_is_built_once_with_a_manifest_and_found_in_the_cache_afterwards():
    messages = []
    folder = ensure_base_model("fake", table(), messages.append)
    assert ensure_base_model("fake", table(), messages.append) == folder
    assert messages == ["building"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["recipe"]["recipe"]["target"] == 0.5
    assert (manifest["seed"], manifest["threads"], manifest["base_accuracy"]) == (0, 1, {"value": 0.5})
    assert [path.name for path in installation.models_dir().iterdir()] == [folder.name]


def test_a_changed_recipe_is_another_folder():
    entry = table()["fake"]
    changed = replace(entry, recipe=replace(entry.recipe, seed=1))
    folders = {ensure_base_model("fake", {"fake": recipe}) for recipe in (entry, changed)}
    assert len(folders) == 2


PROCESS = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from agent2.models.bases import ensure_base_model
from agent2.models.tiny_recipe import BaseModel
from agent2.benchmarks.recipes.arithmetic import CorpusSettings
from agent2.models.tiny_recipe import TinyRecipe
entry = BaseModel("1", TinyRecipe(target=0.5), CorpusSettings(), "base_model_fakes:build_slowly", ("slow",))
ensure_base_model("fake", {"fake": entry}, print)
"""


def test_processes_that_need_a_model_at_once_build_it_once():
    fakes = str(Path(base_model_fakes.__file__).parent)
    command = [sys.executable, "-c", PROCESS, fakes]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=300)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sum("building" in lines for lines in outputs) == 1
    assert len(list(installation.models_dir().iterdir())) == 1


def test_of_two_builders_the_first_to_finish_wins():
    folder = ensure_base_model("fake", table("lose_the_race"))
    assert json.loads((folder / "manifest.json").read_text()) == {"who": "winner"}
    assert len(list(installation.models_dir().iterdir())) == 1


def test_a_recipe_that_reads_data_is_completed_from_the_folder_that_is_given(tmp_path):
    entry = replace(table()["fake"], from_data="base_model_fakes:with_data")
    (tmp_path / "small").write_text("1")
    first = ensure_base_model("fake", {"fake": entry}, data=tmp_path / "small")
    (tmp_path / "small").write_text("2")
    assert ensure_base_model("fake", {"fake": entry}, data=tmp_path / "small") != first
    manifest = json.loads((first / "manifest.json").read_text())
    assert manifest["recipe"]["corpus"] == "1" and manifest["recipe"]["from_data"] == ""
    with pytest.raises(ConfigError, match="no data in None"):
        ensure_base_model("fake", {"fake": entry})


def test_a_build_that_breaks_leaves_nothing_behind():
    with pytest.raises(OSError, match="disk is full"):
        ensure_base_model("fake", table("fail"))
    assert list(installation.models_dir().iterdir()) == []


def test_a_folder_of_the_users_own_is_taken_as_it_is(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert ensure_base_model(str(tmp_path), BASE_MODELS) == tmp_path.resolve()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"empty: no config\.json in"):
        ensure_base_model(str(tmp_path / "empty"), BASE_MODELS)
    with pytest.raises(
        ConfigError, match=r"nowhere: there is no such folder, .* hf download OWNER/NAME --local-dir FOLD"
    ):
        ensure_base_model(str(tmp_path / "nowhere"), BASE_MODELS)


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"did you mean 'tiny-arithmetic'\?"):
        ensure_base_model("tiny-arithmetics", BASE_MODELS)
    with pytest.raises(ConfigError, match="unknown base model"):
        cached_path("tiny-arithmetics", BASE_MODELS)


def test_a_name_of_a_hub_is_kept_and_answered_with_the_command_that_gets_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        ensure_base_model("Qwen/Qwen2.5-1.5B-Instruct", BASE_MODELS)
    message = str(caught.value)
    assert message.startswith(
        "base model Qwen/Qwen2.5-1.5B-Instruct: there is no such folder, and nothing is downloaded"
    )
    assert "hf download Qwen/Qwen2.5-1.5B-Instruct --local-dir models/Qwen2.5-1.5B-Instruct" in message
    for path in ("models/Qwen2.5-1.5B-Instruct", str(tmp_path / "Qwen"), "./mine"):
        with pytest.raises(ConfigError, match="hf download OWNER/NAME"):
            ensure_base_model(path, BASE_MODELS)


def test_nothing_is_cached_before_it_is_built():
    assert {cached_path(name, BASE_MODELS) for name in BASE_MODELS} == {None}


SHIPPED = sorted(name for name, entry in BASE_MODELS.items() if entry.shipped)


def packaged(name):
    package, _, folder = BASE_MODELS[name].shipped.partition(":")
    return Path(str(resources.files(package))) / folder


def made(name):
    return json.loads((packaged(name) / MADE).read_text())


def test_every_base_that_needs_no_official_data_is_shipped():
    assert (
        sorted(name for name in BASE_MODELS if not (BASE_MODELS[name].from_data or BASE_MODELS[name].is_fetched))
        == SHIPPED
    )


@pytest.mark.engine
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_base_is_small_and_was_made_by_the_recipe_and_corpus_of_today(name):
    again = f"run: python benchmarks/tiny_bases.py make {name}"
    assert sum(file.stat().st_size for file in packaged(name).iterdir()) < 2.5e6
    assert made(name)["recipe_digest"] == BASE_MODELS[name].digest, again
    assert made(name)["corpus_sample_digest"] == corpus_sample_digest(BASE_MODELS[name]), again


@pytest.mark.engine
@pytest.mark.parametrize("name", SHIPPED)
def test_a_change_of_the_corpus_changes_the_digest_of_its_sample(name):
    entry, corpus = BASE_MODELS[name], BASE_MODELS[name].corpus
    is_mixed = name == "tiny-arithmetic-pyfunc"
    changed = replace(corpus, pyfunc=replace(corpus.pyfunc, seed=7)) if is_mixed else replace(corpus, seed=7)
    assert corpus_sample_digest(replace(entry, corpus=changed)) != made(name)["corpus_sample_digest"]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_same_weights_are_unpacked_everywhere_and_the_manifest_says_how_they_were_made(name):
    messages = []
    folder = ensure_base_model(name, BASE_MODELS, messages.append)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert messages == ["unpacking the weights that the package ships"]
    assert manifest["weights_digest"] == inspect_checkpoint(folder).weights_digest
    assert manifest["weights_sha256"] == made(name)["weights_sha256"]
    assert (manifest["packaged"], manifest["seed"], manifest["threads"]) == (True, 0, 1)
    assert 100_000 < manifest["parameters"] < 1_000_000
    assert cached_path(name, BASE_MODELS) == folder


@pytest.mark.thorough
@pytest.mark.slow
def test_the_arithmetic_base_answers_some_items_and_not_most_says_how_it_was_made_and_its_task_is_sound():
    folder = ensure_base_model("tiny-arithmetic", BASE_MODELS)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["base_accuracy"]["n_items"] == 800
    score = dev_scores(folder, ["arithmetic"], 800)["arithmetic"]["score"]
    assert 0.15 < score < 0.45
    assert score == pytest.approx(
        manifest["base_accuracy"]["value"], abs=0.06
    )  # three standard errors of the difference
    checked = subprocess.run(
        [sys.executable, "-m", "agent2", "tasks", "check", "arithmetic"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    assert "headroom" in checked.stdout and "FAILED" not in checked.stdout


@pytest.mark.thorough
def test_the_recipe_makes_an_arithmetic_base_again(tmp_path):
    again = make(BASE_MODELS["tiny-arithmetic"], tmp_path / "made", lambda message: None)
    assert 0.15 < again["base_accuracy"]["value"] < 0.45
    assert again["recipe_digest"] == made("tiny-arithmetic")["recipe_digest"]


def test_the_digests_of_the_packaged_recipes_are_those_of_cached_folders_and_shipped_weights():
    fixed = {name for name, base in BASE_MODELS.items() if not (base.from_data or base.is_fetched)}
    assert {name: BASE_MODELS[name].digest[:16] for name in fixed} == {
        "tiny-arithmetic": "5810b26ac35fa649",
        "tiny-arithmetic-pyfunc": "60453d4371997933",
        "tiny-arithmetic-small": "9b18558502715761",
        "tiny-dialogue": "09098e6f422b62c0",
        "tiny-household": "ae74913f9346b877",
        "tiny-mini": "56483cc9f21a9bbf",
        "tiny-pyfunc": "36beb363f13f4331",
        "tiny-pyfunc-small": "ff78dae3479e0a0a",
        "tiny-replies": "4a442a252405ab63",
        "tiny-replies-guarded": "6a8ed660f9d91269",
        "tiny-search": "f2dfa36281072cd7",
        "tiny-shop": "18133d87a2ce1180",
        "tiny-vision": "a1d4fb546f6ad87a",
    }
