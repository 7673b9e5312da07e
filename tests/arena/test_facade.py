import subprocess
import sys
from pathlib import Path

import pytest

from agent2.arena.facade import SUBMITTER, RLBenchEnvironment
from agent2.errors import ConfigError
from trial_builders import write_task

COPY = """
import os, shutil
shutil.copytree(os.environ["MODEL_PATH"], os.environ["OUTPUT_DIR"] + "/model")
print("pipeline done")
"""


@pytest.fixture
def environment(home, tmp_path):
    return RLBenchEnvironment(str(write_task(tmp_path)), out=tmp_path / "trials")


def test_the_environment_tells_models_budget_and_datasets(environment):
    assert environment.available_models[0].endswith("/base")
    assert "tiny-arithmetic" in environment.available_models
    assert environment.compute_budget["wall_clock_s"] == 600
    assert environment.datasets == {"train": 30, "dev": 10, "test_public": 20, "test_private": 20}


def test_feedback_on_an_unknown_run_is_refused(environment):
    with pytest.raises(ConfigError, match="unknown run 'nothing'"):
        environment.get_feedback("nothing")


@pytest.mark.slow
@pytest.mark.thorough
def test_a_solution_is_run_submitted_and_remembered(environment):
    result = environment.submit_solution(COPY)
    assert result["agent_end"] == "exited"
    assert "pipeline done" in result["log_tail"]
    assert [s["state"] for s in result["submissions"]] == ["scored"]
    assert result["gain"]["change"]["value"] == 0.0
    assert environment.get_feedback(result["run_id"]) == result
    failed = environment.submit_solution("raise ValueError('no pipeline')")
    assert failed["run_id"] != result["run_id"]
    assert failed["agent_end"] == "crashed"
    assert failed["submissions"] == []
    assert failed["gain"] is None


def test_a_solution_that_could_not_be_started_does_not_stand_in_the_way_of_the_next(environment, tmp_path):
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"unknown key 'budget\.wall_clocks'"):
            environment.submit_solution(COPY, overrides=("budget.wall_clocks=3",))
    assert len(list((tmp_path / "trials" / "solutions").iterdir())) == 2


@pytest.mark.parametrize(("code", "is_submitted"), [("0", True), ("", True), ("3", False)])
def test_a_solution_that_ends_by_exit_is_submitted_if_it_ended_well(tmp_path, code, is_submitted):
    program = SUBMITTER.replace("/agent/solution.py", str(tmp_path / "solution.py"))
    (tmp_path / "solution.py").write_text(f"import sys\nsys.exit({code})\n")
    (tmp_path / "out" / "model").mkdir(parents=True)
    (tmp_path / "httpx.py").write_text(FAKE_CLIENT)
    variables = {
        "GRADING_SERVER_URL": "http://grader",
        "OUTPUT_DIR": str(tmp_path / "out"),
        "PYTHONPATH": str(tmp_path),
    }
    ended = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False)
    assert ("submitted" in ended.stdout) == is_submitted
    assert ended.returncode == (0 if is_submitted else 3), ended.stderr


FAKE_CLIENT = """
class Answer:
    text = "submitted"

    def json(self):
        return {"submissions": []}

def get(url, timeout):
    return Answer()

def post(url, **body):
    return Answer()
"""


def test_the_example_explains_itself_and_runs_no_trial_when_asked_for_help(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "facade.py"
    shown = subprocess.run(
        [sys.executable, example, "--help"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert shown.returncode == 0 and "hand in pipeline code" in shown.stdout and not any(tmp_path.iterdir())
