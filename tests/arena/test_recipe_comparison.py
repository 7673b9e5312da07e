"""Recipes compared: which options are refused, that a finished run is not run again, and what a table says."""

from dataclasses import asdict, replace

import pytest
import yaml

from agent2.arena import recipe_comparison
from agent2.arena.recipe_comparison import (
    RUN_FILE,
    TABLE,
    compare_recipes,
    resolve_options,
    summarise,
)
from agent2.arena.recipe_rows import RecipeRun
from agent2.arena.tasks import load_task
from agent2.errors import ConfigError
from agent2.records import digest_of
from agent2.reports.recipe_table import recipe_table
from agent2.reports.text import DASH


def a_run(seed=0, final=0.5, **fields) -> RecipeRun:
    values = {"base": 0.3, "dangers": ("policy_drift",), "seconds": 60.0, "cpu_seconds": 30.0, "updates": 40}
    return RecipeRun("recommended", seed, "r", "b", final=final, **values | fields)


def table_with(tmp_path, **option):
    content = yaml.safe_load(TABLE.read_text())
    content["options"] = {"recommended": {"about": "the start"}, "mine": {"about": "mine", **option}}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_arithmetic_and_household_have_ten_options_or_more_and_each_differs():
    for task in ("arithmetic", "household"):
        recipes = resolve_options(load_task(task), [])
        assert len(recipes) >= 10
        assert len({recipe.digest for recipe in recipes}) == len(recipes)


@pytest.mark.parametrize(
    ("task", "option", "sentence"),
    [
        ("arithmetic", {"settings": {"refresh_reference_every": 5}}, "without kl_weight has no effect"),
        ("arithmetic", {"settings": {"updates_per_batch": 1, "clip": {"below": 0.1}}}, "clip has no effect"),
        ("arithmetic", {"settings": {"decay": 0.9}}, "decay has no effect where an item has one turn"),
        ("arithmetic", {"best_of": 4, "settings": {"kl_weight": 0.1}}, "takes the place of RL"),
        ("arithmetic", {"items": 5}, "5 items for 32 prompts"),
        ("arithmetic", {"items": 40, "sft_first": 100}, "sft_first 100 is more than its 40 items"),
        ("arithmetic", {"settings": {"normalize": "token"}}, "'normalize' is no field"),
        ("arithmetic", {"settings": {"clip": {"beneath": 0.1}}}, "beneath"),
        ("arithmetic", {}, "runs what recommended runs"),
        ("household", {"best_of": 4}, "best_of is for questions"),
        ("household", {"only": "questions", "items": 100}, "is for questions"),
    ],
)  # fmt: skip
def test_options_that_contradict_each_other_or_change_nothing_are_refused_before_anything_runs(
    tmp_path, task, option, sentence
):
    with pytest.raises(ConfigError, match=sentence):
        resolve_options(load_task(task), ["recommended", "mine"], table_with(tmp_path, **option))


def test_an_unknown_option_gets_the_nearest_and_a_task_whose_scorer_runs_programs_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'token-loss'"):
        resolve_options(load_task("arithmetic"), ["token-los"])
    with pytest.raises(ConfigError, match="runs programs or asks a judge"):
        resolve_options(load_task("pyfunc"), [])


def test_the_interval_is_over_seeds_and_a_failed_run_is_missing_and_not_zero():
    (recipe,) = resolve_options(load_task("arithmetic"), ["recommended"])
    failed = a_run(2, None, problem="it broke", dangers=())
    result = summarise(recipe, [a_run(0, 0.5), a_run(1, 0.6), failed])
    assert result.gain.value == pytest.approx(0.25)
    assert (result.gain.n, result.gain.n_missing) == (2, 1)
    assert result.gain.low < 0.2 < 0.3 < result.gain.high
    assert dict(result.dangers) == {"policy_drift": 2}
    lost = summarise(recipe, [failed])
    assert lost.gain is None
    assert recipe_table([lost]).cells()[0][2:5] == ["0", DASH, DASH]
    assert summarise(recipe, [a_run()]).gain.low is None


def test_a_finished_run_is_not_run_again_and_other_settings_are_refused(home, tmp_path, monkeypatch):
    task = load_task("arithmetic")
    recipes = resolve_options(task, ["recommended", "kl"])
    played = []

    def run(recipe, seed, *_):
        played.append((recipe.name, seed))
        return replace(a_run(seed), option=recipe.name, recipe_digest=recipe.digest)

    monkeypatch.setattr(recipe_comparison, "_run", run)
    monkeypatch.setattr(recipe_comparison, "_score", lambda *_: 0.3)
    first = compare_recipes(task, recipes, range(2), tmp_path, 20, lambda message: None)
    assert len(played) == 4
    again = compare_recipes(task, recipes, range(3), tmp_path, 20, lambda message: None)
    assert len(played) == 6
    assert [asdict(result.runs[0]) for result in again] == [asdict(result.runs[0]) for result in first]
    with pytest.raises(ConfigError, match="other settings, base model or dev items"):
        compare_recipes(task, recipes, range(1), tmp_path, 30, lambda message: None)
    changed = replace(recipes[0], settings={**recipes[0].settings, "kl_weight": 0.5})
    with pytest.raises(ConfigError, match="other settings"):
        compare_recipes(task, [changed], range(1), tmp_path, 20, lambda message: None)
    (tmp_path / "kl" / "seed-0" / RUN_FILE).write_text('{"option": ')
    with pytest.raises(ConfigError, match="remove it"):
        compare_recipes(task, recipes, range(1), tmp_path, 20, lambda message: None)


@pytest.mark.parametrize(
    ("task", "option", "sentence"),
    [
        ("arithmetic", {"learn_by": "ipo"}, "without best_of has no answers"),
        ("arithmetic", {"learn_by": "kto", "best_of": 4, "settings": {"generations": 4}}, "'generations' is none of"),
        ("arithmetic", {"learn_by": "dpo", "best_of": 4, "settings": {"loss": "ipo"}}, "'loss' is none of"),
        ("arithmetic", {"learn_by": "dpo", "best_of": 4, "settings": {"beta": -1}}, "beta is -1"),
        ("household", {"learn_by": "kto", "best_of": 4}, "learn_by is for questions"),
    ],
)
def test_preferences_without_answers_or_with_settings_of_other_methods_are_refused(tmp_path, task, option, sentence):
    with pytest.raises(ConfigError, match=sentence):
        resolve_options(load_task(task), ["mine"], table_with(tmp_path, **option))


def test_methods_that_learn_from_the_same_answers_are_other_recipes_and_best_of_n_stays_the_recipe_it_was():
    recipes = {recipe.name: recipe for recipe in resolve_options(load_task("arithmetic"), [])}
    assert [recipes[name].learn_by for name in ("best-of-n", "dpo", "ipo", "kto")] == ["imitation", "dpo", "ipo", "kto"]
    before = [dict(recipes["best-of-n"].settings), 1000, 0, 8]
    assert recipes["best-of-n"].digest == digest_of(before), "finished runs of earlier versions are not run again"


@pytest.mark.slow
@pytest.mark.parametrize("learn_by", ["dpo", "ipo", "kto"])
def test_preferences_between_drawn_answers_are_trained_on_measured_and_logged(home, tmp_path, learn_by):
    task = load_task("arithmetic")
    option = {"learn_by": learn_by, "best_of": 4, "items": 40, "settings": {"epochs": 1, "batch_size": 8}}
    (recipe,) = resolve_options(task, ["mine"], table_with(tmp_path, **option))
    (result,) = compare_recipes(task, [recipe], range(1), tmp_path / "runs", 20, lambda message: None)
    (run,) = result.runs
    assert run.problem == "" and run.gain is not None and run.updates >= 1
    assert (tmp_path / "runs" / "mine" / "seed-0" / learn_by / "train_log.jsonl").is_file()
