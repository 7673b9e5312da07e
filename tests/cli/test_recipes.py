import json
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from agent2.arena.recipe_comparison import RUN_FILE, digest_of_base, resolve_options
from agent2.arena.recipe_rows import RecipeRun
from agent2.arena.tasks import load_task
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.cli import app
from agent2.models.bases import ensure_base_model
from agent2.records import Split
from trial_builders import quiet


def write_finished(out, n_dev):
    """The folder of a comparison with one finished run, on so many dev items."""
    task = load_task("arithmetic")
    (recipe,) = resolve_options(task, ["recommended"])
    dev = load_benchmark(task.benchmark).items(Split.DEV, n_dev, None)
    base = ensure_base_model(task.base_model, BASE_MODELS, quiet)
    run = RecipeRun(recipe.name, 0, recipe.digest, digest_of_base(base, dev), 0.06, 0.3, (), 60.0, 60.0, 40)
    folder = out / task.name / recipe.name / "seed-0"
    folder.mkdir(parents=True)
    (folder / RUN_FILE).write_text(json.dumps(asdict(run)))


def compare(*arguments):
    fixed = ["recipes", "compare", "arithmetic", "--option", "recommended", "--seeds", "1"]
    return CliRunner().invoke(app, [*fixed, *arguments])


@pytest.mark.parametrize("wanted", [7, 100_000])
def test_the_number_of_dev_items_is_the_one_that_was_played(tmp_path, wanted):
    n_played = min(wanted, load_task("arithmetic").n_items.dev)
    write_finished(tmp_path, n_played)
    arguments = ("--dev", str(wanted), "--out", str(tmp_path))
    as_json = compare(*arguments, "--json")
    assert as_json.exit_code == 0, as_json.output
    assert json.loads(as_json.stdout)["n_dev"] == n_played
    assert f"base model: 6.0% of {n_played} dev items" in compare(*arguments).stdout
    other = compare("--dev", str(n_played - 1), "--out", str(tmp_path))
    assert other.exit_code != 0 and "dev items" in str(other.exception or other.output), "the control: other items"
