import json
import subprocess
import sys
from dataclasses import replace

import pytest

from agent2 import installation
from agent2.arena.base_models import BASE_MODELS, BaseModel, cached_path, ensure_base_model
from agent2.benchmarks.arithmetic.corpus import CorpusSettings
from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.tiny_recipe import TinyRecipe


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def table(builder="build"):
    return {"fake": BaseModel("1", TinyRecipe(target=0.5), CorpusSettings(), f"base_model_fakes:{builder}", (builder,))}


def test_a_model_is_built_once_with_a_manifest_and_found_in_the_cache_afterwards():
    said = []
    folder = ensure_base_model("fake", said.append, table())
    assert ensure_base_model("fake", said.append, table()) == folder
    assert said == ["building"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["recipe"]["recipe"]["target"] == 0.5
    assert (manifest["seed"], manifest["threads"], manifest["base_accuracy"]) == (0, 1, {"value": 0.5})
    assert [path.name for path in installation.models_dir().iterdir()] == [folder.name]


def test_a_changed_recipe_is_another_folder():
    entry = table()["fake"]
    changed = replace(entry, recipe=replace(entry.recipe, seed=1))
    folders = {ensure_base_model("fake", None, {"fake": one}) for one in (entry, changed)}
    assert len(folders) == 2


def test_of_two_builders_the_first_to_finish_wins():
    folder = ensure_base_model("fake", None, table("lose_the_race"))
    assert json.loads((folder / "manifest.json").read_text()) == {"who": "winner"}
    assert len(list(installation.models_dir().iterdir())) == 1


def test_a_build_that_breaks_leaves_nothing_behind():
    with pytest.raises(OSError, match="disk is full"):
        ensure_base_model("fake", None, table("fail"))
    assert list(installation.models_dir().iterdir()) == []


def test_a_folder_of_the_users_own_is_taken_as_it_is(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert ensure_base_model(str(tmp_path)) == tmp_path.resolve()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"empty: no config\.json in"):
        ensure_base_model(str(tmp_path / "empty"))
    with pytest.raises(
        ConfigError, match=r"nowhere: there is no such folder, .* hf download OWNER/NAME --local-dir FOLD"
    ):
        ensure_base_model(str(tmp_path / "nowhere"))


def test_an_unknown_name_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"did you mean 'tiny-arithmetic'\?"):
        ensure_base_model("tiny-arithmetics")
    with pytest.raises(ConfigError, match="unknown base model"):
        cached_path("tiny-arithmetics")


def test_a_name_of_a_hub_is_kept_and_answered_with_the_command_that_gets_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        ensure_base_model("Qwen/Qwen2.5-1.5B-Instruct")
    said = str(caught.value)
    assert said.startswith("base model Qwen/Qwen2.5-1.5B-Instruct: there is no such folder, and nothing is downloaded")
    assert "hf download Qwen/Qwen2.5-1.5B-Instruct --local-dir models/Qwen2.5-1.5B-Instruct" in said
    for path in ("models/Qwen2.5-1.5B-Instruct", str(tmp_path / "Qwen"), "./mine"):
        with pytest.raises(ConfigError, match="hf download OWNER/NAME"):
            ensure_base_model(path)


def test_nothing_is_cached_before_it_is_built():
    assert {cached_path(name) for name in BASE_MODELS} == {None}


@pytest.mark.slow
def test_the_arithmetic_base_answers_some_items_and_not_most_says_how_it_was_made_and_its_task_is_sound():
    said = []
    folder = ensure_base_model("tiny-arithmetic", said.append)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert 0.15 < manifest["base_accuracy"]["value"] < 0.45
    assert manifest["base_accuracy"]["n_items"] == 800
    assert manifest["weights_digest"] == inspect_checkpoint(folder).weights_digest
    assert cached_path("tiny-arithmetic") == folder
    assert "of dev items" in said[-1]
    checked = subprocess.run(
        [sys.executable, "-m", "agent2", "tasks", "check", "arithmetic"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    assert "headroom" in checked.stdout and "FAILED" not in checked.stdout


def test_the_digests_of_the_packaged_recipes_are_those_of_cached_folders_and_shipped_weights():
    assert {name: BASE_MODELS[name].digest[:16] for name in BASE_MODELS} == {
        "tiny-arithmetic": "8c3de0af4ae5b5c7",
        "tiny-household": "ae74913f9346b877",
        "tiny-mini": "56483cc9f21a9bbf",
    }
