import pytest

from agent2.arena.facade import RLBenchEnvironment
from agent2.errors import ConfigError
from trial_builders import write_task

COPY = """
import os, shutil
shutil.copytree(os.environ["MODEL_PATH"], os.environ["OUTPUT_DIR"] + "/model")
print("pipeline done")
"""


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    return RLBenchEnvironment(str(write_task(tmp_path)), out=tmp_path / "trials")


def test_the_environment_tells_models_budget_and_datasets(environment):
    assert environment.available_models[0].endswith("/base")
    assert "tiny-arithmetic" in environment.available_models
    assert environment.compute_budget["wall_clock_s"] == 60
    assert environment.datasets == {"train": 30, "dev": 10, "test_public": 20, "test_private": 20}


def test_feedback_on_an_unknown_run_is_refused(environment):
    with pytest.raises(ConfigError, match="unknown run 'nothing'"):
        environment.get_feedback("nothing")


@pytest.mark.slow
def test_a_solution_is_run_submitted_and_remembered(environment):
    result = environment.submit_solution(COPY)
    assert result["agent_end"] == "exited"
    assert "pipeline done" in result["log_tail"]
    assert [s["state"] for s in result["submissions"]] == ["scored"]
    assert result["gain"]["delta"] == 0.0
    assert environment.get_feedback(result["run_id"]) == result
    failed = environment.submit_solution("raise ValueError('no pipeline')")
    assert failed["run_id"] != result["run_id"]
    assert failed["agent_end"] == "crashed"
    assert failed["submissions"] == []
    assert failed["gain"] is None
