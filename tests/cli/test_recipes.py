import json

import pytest
from typer.testing import CliRunner

from agent2.arena import recipe_comparison
from agent2.arena.recipe_rows import RecipeRun
from agent2.arena.tasks import load_task
from agent2.cli import app


@pytest.fixture
def asked(monkeypatch):
    """Arguments of each comparison, which ends at once with one run an option."""
    calls = []

    def compare(task, recipes, seeds, out, n_dev, on_step):
        calls.append(n_dev)
        run = RecipeRun("", 0, "", "", 0.06, 0.3, (), 60.0, 60.0, 40)
        return [recipe_comparison.summarise(recipe, [run]) for recipe in recipes]

    monkeypatch.setattr(recipe_comparison, "compare_recipes", compare)
    return calls


def compare(*arguments):
    result = CliRunner().invoke(app, ["recipes", "compare", "household", "--option", "recommended", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("wanted", [7, 100_000])
def test_the_number_of_dev_items_is_the_one_that_was_played(asked, tmp_path, wanted):
    there = load_task("household").n_items.dev
    played = min(wanted, there)
    said = json.loads(compare("--dev", str(wanted), "--out", str(tmp_path), "--json"))
    assert (asked, said["n_dev"]) == ([played], played)
    assert f"base model: 6.0% of {played} dev items" in compare("--dev", str(wanted), "--out", str(tmp_path))
