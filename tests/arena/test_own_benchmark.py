"""A benchmark from one folder of a user's, as docs/how-to/add-a-task.md writes it: it passes its check."""

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from agent2.benchmarks import load_benchmark
from agent2.cli import app
from agent2.records import Split
from model_builders import make_model

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "add-a-task.md"


@pytest.fixture
def task(tmp_path, monkeypatch):
    """The folder of the page, with a base model that has read every answer to every question."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    section = PAGE.read_text(encoding="utf-8").partition("## A new benchmark")[2]
    folder = tmp_path / "sounds"
    folder.mkdir()
    (folder / "sounds.py").write_text(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1])
    (folder / "test.jsonl").write_text("hidden data beside the file\n")
    record = yaml.safe_load(re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1])
    train = load_benchmark(f"{folder}/sounds.py:Sounds").items(Split.TRAIN, 2000, None)
    unsure = [(item.prompt, answer) for item in train for answer in ("moo", "meow", "woof", "quack")]
    record["base_model"] = str(make_model(tmp_path / "base", unsure, steps=60))
    (folder / "task.yaml").write_text(yaml.safe_dump(record))
    return folder / "task.yaml"


def run(*arguments):
    result = CliRunner().invoke(app, [str(part) for part in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.mark.slow
def test_the_task_passes_its_check(task):
    assert "FAILED" not in run("tasks", "check", task, "--model", "none")
