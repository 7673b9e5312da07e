"""The how-to pages, followed to the letter."""

import re
from pathlib import Path

import pytest
import yaml

from agent2.arena.agents import load_agent
from agent2.arena.analysis.analyse import analyse
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.verdicts import Route, Verdict
from agent2.arena.evidence import SubmissionState
from agent2.arena.plan import new_trial
from agent2.arena.task_check import check_task
from agent2.arena.tasks import Stage, TaskSpec, load_task
from agent2.arena.trial import run_trial
from trial_builders import quiet, write_task

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def snippet(page, language):
    """The one block of a language on a page."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    return found


def write_documented_agent(folder):
    folder.mkdir()
    (folder / "agent.yaml").write_text(snippet("add-an-agent.md", "yaml"))
    (folder / "main.py").write_text(snippet("add-an-agent.md", "python"))
    return folder


def test_the_agent_of_the_page_is_read(tmp_path):
    agent = load_agent(str(write_documented_agent(tmp_path / "my-agent")))
    assert agent.spec.command == ["python", "/agent/main.py"]


@pytest.mark.slow
def test_the_agent_of_the_page_trains_and_is_scored(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    agent = write_documented_agent(tmp_path / "my-agent")
    root = new_trial(str(write_task(tmp_path)), str(agent), 0, tmp_path / "trials")
    run_trial(root, quiet)
    evidence = read_evidence(root)
    assert [s.state for s in evidence.submissions] == [SubmissionState.SCORED], evidence.agent_log_tail
    assert evidence.submissions[0].note == "first try"
    analysis = analyse(evidence)
    assert analysis.route.route is Route.SFT
    verdicts = {stage.stage: stage.verdict for stage in analysis.stages}
    assert verdicts[Stage.DESIGN] is verdicts[Stage.IMPLEMENTATION] is verdicts[Stage.EXECUTION] is Verdict.PASS


def test_every_variable_on_the_page_is_given_and_every_given_one_of_ours_is_on_it(tmp_path):
    from agent2.arena.assignment import InsidePaths, TrialConfig, environment

    task = load_task("arithmetic")
    config = TrialConfig(
        trial_id="t", task=task, agent="nop", seed=0, sandbox="none", budget=task.budget, base_model="m"
    )
    given = set(environment(config, InsidePaths("/workspace", "/model", "/agent", 8000)))
    rows = [line for line in (PAGES / "add-an-agent.md").read_text().splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", row.split("|")[1])}
    set_for_libraries = {"OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HF_HUB_OFFLINE", "PYTHONUNBUFFERED"}
    assert told == given - set_for_libraries


def test_the_task_of_the_page_is_whole_and_sound(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    path = tmp_path / "my-task.yaml"
    path.write_text(snippet("add-a-task.md", "yaml"))
    task = load_task(str(path))
    assert task.name == "my-task"
    assert set(yaml.safe_load(path.read_text())) == set(TaskSpec.model_fields)
    assert all(finding.ok for finding in check_task(task))
