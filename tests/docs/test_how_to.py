"""The how-to pages, followed to the letter."""

import json
import re
from pathlib import Path

import pytest
import yaml

from agent2.arena.agents import load_agent
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.analysis.verdicts import Route, Verdict
from agent2.arena.evidence import SubmissionState
from agent2.arena.plan import new_trial
from agent2.arena.spec import Stage, TaskSpec
from agent2.arena.systems import InstallOptions, LlmInside, install_system, launch_plan
from agent2.arena.task_check import check_task
from agent2.arena.tasks import load_task
from agent2.arena.trial import run_trial
from agent2.llm.scripted_replies import load_script
from scripted_llm_builders import KEY, KEY_VARIABLE, scripted_upstream
from system_builders import LAUNCH_FIELDS, write_npm
from trial_builders import quiet, write_task

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def snippet(page, language, number=0):
    """A block of a language on a page, counted from 0."""
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)[number]


def write_documented_agent(folder):
    folder.mkdir()
    (folder / "agent.yaml").write_text(snippet("add-an-agent.md", "yaml"))
    (folder / "main.py").write_text(snippet("add-an-agent.md", "python"))
    return folder


def test_the_agent_of_the_page_is_read(tmp_path):
    agent = load_agent(str(write_documented_agent(tmp_path / "my-agent")))
    assert agent.spec.command == ["python", "/agent/main.py"]


@pytest.mark.slow
def test_the_agent_of_the_page_trains_and_is_scored(common_home, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(common_home))
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


@pytest.mark.slow
def test_the_driven_agent_of_the_page_works_with_the_scripted_llm_of_the_page(common_home, tmp_path, monkeypatch):
    """The script's training is short work for a random base model; the port of the page is replaced by a free one."""
    monkeypatch.setenv("AGENT2_HOME", str(common_home))
    monkeypatch.setenv("SCRIPTED_LLM_KEY", KEY)
    agent = tmp_path / "my-llm-agent"
    agent.mkdir()
    (agent / "agent.yaml").write_text(snippet("add-an-agent.md", "yaml", 1))
    (agent / "main.py").write_text(snippet("add-an-agent.md", "python", 1))
    documented = snippet("add-an-agent.md", "yaml", 2)
    server, run = snippet("add-an-agent.md", "sh").splitlines()
    assert "agent2.llm.scripted_server --script arithmetic --port 8900" in server
    assert run == "agent2 run arithmetic --agent ./my-llm-agent --driver scripted.yaml"
    with scripted_upstream(tmp_path / "upstream", "arithmetic") as upstream:
        driver = tmp_path / "scripted.yaml"
        keyed = documented.replace("http://127.0.0.1:8900", upstream.url) + f"api_key_env: {KEY_VARIABLE}\n"
        assert upstream.url in keyed
        driver.write_text(keyed)
        task = str(write_task(tmp_path))
        root = new_trial(task, str(agent), 0, tmp_path / "trials", overrides=[f"driver={driver}"])
        run_trial(root, quiet)
        served = upstream.served()
    evidence = read_evidence(root)
    assert [s.note for s in evidence.submissions] == ["30 steps", "90 steps"], evidence.agent_log_tail
    assert len({s.revision for s in evidence.submissions}) == 2
    steps = load_script("arithmetic").steps
    assert [row["step"] for row in served] == list(range(len(steps)))
    tokens = evidence.llm.totals.tokens
    assert (tokens.input, tokens.output) == (sum(s.usage.input for s in steps), sum(s.usage.output for s in steps))
    assert evidence.llm.totals.dollars is None  # nobody told a price, so the cost is unknown and not 0


@pytest.mark.slow
def test_the_system_of_the_page_is_installed_and_started(tmp_path, monkeypatch):
    from agent2.arena.assignment import InsidePaths
    from agent2.arena.spec import TrialConfig

    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    folder = tmp_path / "my-system"
    folder.mkdir()
    (folder / "agent.yaml").write_text(snippet("add-an-agent.md", "yaml", 3))
    agent = load_agent(str(folder))
    install_system(agent, InstallOptions(npm=str(write_npm(tmp_path / "bin"))), lambda message: None)
    task = load_task("arithmetic")
    config = TrialConfig(
        trial_id="t", task=task, agent=str(folder), seed=0, sandbox="bubblewrap", budget=task.budget, base_model="m"
    )
    inside, llm = InsidePaths("/workspace", "/model", "/agent", 8000), LlmInside("http://127.0.0.1:8001", "dummy", "m")
    plan = launch_plan(agent, config, inside, llm, tmp_path / "launch")
    assert plan.command[-4:] == ("/installed/node_modules/tool/bin/tool", "run", "--yes", plan.prompt)
    assert plan.environment == {"TOOL_API_KEY": "dummy"}
    config_file = json.loads(plan.home_files[".tool/config.json"])
    assert config_file == {"base_url": "http://127.0.0.1:8001/v1", "model": "m", "telemetry": False}
    assert re.search(agent.spec.volatile[0], "in ses_1fb9f64b2001")


def test_every_field_that_the_page_promises_exists(tmp_path, monkeypatch):
    rows = [line for line in (PAGES / "add-an-agent.md").read_text().splitlines() if re.match(r"\| `[a-z]", line)]
    told = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    assert told == LAUNCH_FIELDS


def test_every_variable_on_the_page_is_given_and_every_given_one_of_ours_is_on_it(tmp_path):
    from agent2.arena.assignment import InsidePaths, environment
    from agent2.arena.spec import TrialConfig

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
