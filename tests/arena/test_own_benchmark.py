"""A benchmark from one folder of a user's, as docs/how-to/add-a-task.md writes it: checked, and learned."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from agent2.arena.agents import load_agent
from agent2.benchmarks import load_benchmark
from agent2.cli import app
from agent2.records import Split
from model_builders import make_model

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "add-a-task.md"
EFFORT = {"grpo": "0.3", "sft": "1"}
"""Share of the usual steps: 30 of GRPO's 100."""


@pytest.fixture
def task(tmp_path, monkeypatch):
    """The folder of the page, with a base model that has read as many wrong answers as right ones."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    section = PAGE.read_text(encoding="utf-8").partition("## A new benchmark")[2]
    folder = tmp_path / "parity"
    folder.mkdir()
    (folder / "parity.py").write_text(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1])
    (folder / "test.jsonl").write_text("hidden data beside the file\n")
    record = yaml.safe_load(re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1])
    train = load_benchmark(f"{folder}/parity.py:Parity").items(Split.TRAIN, 2000, None)
    unsure = [(item.prompt, answer) for item in train for answer in ("even", "odd")]
    record["base_model"] = str(make_model(tmp_path / "base", unsure, steps=60))
    (folder / "task.yaml").write_text(yaml.safe_dump(record))
    return folder / "task.yaml"


def impatient(name, folder):
    """A packaged agent with less to do."""
    shutil.copytree(load_agent(name).folder, folder)
    spec = yaml.safe_load((folder / "agent.yaml").read_text())
    spec["environment"] = {"AGENT2_EFFORT": EFFORT[name]}
    (folder / "agent.yaml").write_text(yaml.safe_dump(spec))
    return folder


def run(*arguments):
    result = CliRunner().invoke(app, [str(part) for part in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.mark.slow
def test_the_task_passes_its_check(task):
    assert "FAILED" not in run("tasks", "check", task, "--model", "none")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sft", "grpo"])
def test_the_reference_agents_improve_its_base(task, tmp_path, name):
    agent = impatient(name, tmp_path / name)
    run("run", task, "--agent", agent, "--out", tmp_path / "trials", "--sandbox", "none", "--seed", "0")
    (trial,) = (tmp_path / "trials").iterdir()
    report = json.loads((trial / "report" / "report.json").read_text())
    private = report["trial"]["private"]
    assert 0.35 < private["base"] < 0.65
    assert private["checkpoint"] > private["base"] + 0.2
    given = sorted(path.name for path in (trial / "workspace" / "data").iterdir())
    assert given == ["dev.jsonl", "parity.py", "train.jsonl"]
