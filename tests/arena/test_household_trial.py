"""The published task from the command line to the report, on a small folder in the official layout."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from agent2.benchmarks import BASE_MODELS
from agent2.cards.reader import iter_rollouts
from agent2.cli import app
from agent2.models.bases import ensure_base_model
from household_builders import write_official


def with_room_for_the_prompt(model, folder):
    """The tiny model with a longer context than it was trained for: two examples are some 1,400 of its tokens."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    return folder


@pytest.mark.slow
@pytest.mark.thorough
def test_a_model_is_scored_on_the_official_layout_and_told_by_type(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    data = write_official(tmp_path / "data", n_train=40, n_seen=1, n_unseen=1)
    model = with_room_for_the_prompt(ensure_base_model("tiny-household", BASE_MODELS), tmp_path / "model")
    sizes = {"train": 2, "dev": 1, "test_public": 1, "test_private": 1}
    overrides = [part for split, n in sizes.items() for part in ("--set", f"task.n_items.{split}={n}")]
    arguments = ["run", "alfworld", "--model", str(model), "--data", str(data), "--out", str(tmp_path / "trials")]
    result = CliRunner().invoke(app, [*arguments, *overrides])
    assert result.exit_code == 0, (result.output, result.exception)
    (trial,) = (tmp_path / "trials").iterdir()
    report = json.loads((trial / "report" / "report.json").read_text())
    assert report["trial"]["agent"] == "nop"
    assert sum(row["base"]["n"] for row in report["trial"]["by_type"]) == 1
    rollouts = list(iter_rollouts(trial / "cards" / "base-test_private"))
    assert all("Your task is to:" in scored.rollout.prompt[0].content for scored in rollouts)
    assert all(scored.rollout.turns for scored in rollouts)
    text = (trial / "report" / "report.md").read_text()
    assert "Private scores by task type" in text
    assert "published task" in text
    assert "valid_unseen" not in (trial / "workspace" / "data" / "train.jsonl").read_text()
