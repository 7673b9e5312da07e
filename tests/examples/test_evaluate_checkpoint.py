import json
import runpy
from pathlib import Path

import pytest

from agent2.benchmarks import load_benchmark
from agent2.records import Split

EXAMPLE = Path(__file__).parents[2] / "examples" / "evaluate_checkpoint.py"


@pytest.mark.slow
def test_the_evaluation_example_trains_two_checkpoints_and_decides(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    code = runpy.run_path(str(EXAMPLE))["main"](tmp_path / "checkpoints", 1)
    (folder,) = (tmp_path / "evaluations").iterdir()
    report = json.loads((folder / "report.json").read_text())
    assert code == (0 if report["release_decision"] in {"candidate", "release"} else 1)
    assert (report["checkpoint"], report["baseline"]) == ("grpo", "sft")
    assert report["evaluation"]["benchmarks"]["mini_math"]["checkpoint"]["missing"] == 0
    assert report["decision"]["evidence_gate"]["problems"] == []


def test_the_reward_of_the_example_is_the_scorers_verdict():
    item = load_benchmark("mini_math").items(Split.TRAIN, 1, None)[0]
    reward = runpy.run_path(str(EXAMPLE))["reward_of"]([item])
    assert reward([item.reference, ""], [item.id, item.id]) == [1.0, 0.0]
