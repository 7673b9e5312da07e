import json
import tomllib

import pytest
import yaml

from agent2.arena.agents import agent_names, load_agent
from agent2.arena.assignment import InsidePaths
from agent2.arena.spec import TrialConfig
from agent2.arena.systems import (
    LAUNCH,
    MANIFEST,
    InstallManifest,
    InstallOptions,
    LlmInside,
    install_system,
    launch_plan,
    system_folder,
    tree_digest,
)
from agent2.arena.tasks import load_task
from agent2.errors import ConfigError
from agent2.llm.records import WireProtocol
from agent2.sandbox.backends import find_sandbox
from agent2.sandbox.spec import SandboxSpec
from system_builders import LAUNCH_FIELDS, write_npm, write_npm_agent

INSIDE = InsidePaths("/workspace", "/model", "/agent", 8000)
LLM = LlmInside(url="http://127.0.0.1:8001", key="dummy-key", model='org/model "x"')


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def config(sandbox="bubblewrap"):
    task = load_task("arithmetic")
    return TrialConfig(trial_id="t", task=task, agent="a", seed=0, sandbox=sandbox, budget=task.budget, base_model="m")


def write_agent(folder, **spec):
    folder.mkdir()
    record = {"name": folder.name, "description": "d", "command": ["python", "/agent/main.py"]}
    (folder / "agent.yaml").write_text(yaml.safe_dump(record | spec))
    return load_agent(str(folder))


def pretend_installed(agent):
    """A manifest and a tree that match the pin, without any program."""
    install = agent.spec.install
    folder = system_folder(agent.spec.name, install.version)
    (folder / "tree").mkdir(parents=True)
    manifest = InstallManifest(
        name=agent.spec.name,
        package=install.source.package,
        version=install.version,
        program=["{tree}/program", "--first"],
        said="",
        digest=tree_digest(folder / "tree"),
        size_mib=0,
        runtime=["/usr/bin/node", "/opt/python"],
        installer="test",
        seconds=0,
    )
    (folder / MANIFEST).write_text(manifest.model_dump_json())


def plan_of(agent, llm=LLM, folder="/trial/launch", sandbox="bubblewrap", inside=INSIDE):
    from pathlib import Path

    return launch_plan(agent, config(sandbox), inside, llm, Path(folder))


def test_an_agent_without_fields_is_started_as_it_says(home, tmp_path):
    agent = write_agent(tmp_path / "plain", environment={"A": "b"})
    plan = plan_of(agent, llm=None)
    assert (plan.command, plan.environment, plan.home_files) == (("python", "/agent/main.py"), {"A": "b"}, {})
    assert [mount.inside for mount in plan.mounts] == [LAUNCH]


def test_fields_are_filled_in_everywhere(home, tmp_path):
    agent = write_agent(
        tmp_path / "driven",
        llm="openai-chat",
        command=["tool", "--url={{llm_url}}/v1", "{{prompt_file}}", "{{workspace}}", "{{agent}}"],
        environment={"KEY": "{{llm_key}}", "CONFIG": "{{home}}/.tool"},
        files={".tool/config.json": '{"model": {{ model | tojson }}}'},
    )
    plan = plan_of(agent)
    assert plan.command[-5:] == (
        "tool",
        "--url=http://127.0.0.1:8001/v1",
        f"{LAUNCH}/prompt.md",
        "/workspace",
        "/agent",
    )
    assert plan.environment == {"KEY": "dummy-key", "CONFIG": "/home/agent/.tool"}
    assert json.loads(plan.home_files[".tool/config.json"]) == {"model": LLM.model}


def test_the_program_stands_for_its_whole_command_line_and_is_bound_read_only(home, tmp_path):
    agent = load_agent(str(write_npm_agent(tmp_path / "mine", command=["{{program}}", "run", "{{ installed }}/x"])))
    pretend_installed(agent)
    plan = plan_of(agent, llm=None)
    assert plan.command == ("/installed/program", "--first", "run", "/installed/x")
    mounts = {mount.inside: (str(mount.host), mount.writable) for mount in plan.mounts}
    assert mounts["/installed"] == (str(home / "agents" / "mine" / "1.2.3" / "tree"), False)
    assert mounts["/opt/python"] == ("/opt/python", False)
    assert "/usr/bin/node" not in mounts  # every sandbox has /usr


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"llm": "openai-chat"}, "agent bad is driven by an LLM; pass one with --driver"),
        ({"command": ["{{llm_url}}"]}, r"command: '\{\{llm_url\}\}' cannot be filled in.*fields: agent"),
        ({"environment": {"A": "{{modle}}"}}, "environment: A: .*'modle' is undefined"),
        ({"files": {"x": "{% if %}"}}, "files: x: "),
        ({"files": {"../x": ""}}, r"files: '\.\./x' leads out of the home folder"),
        ({"files": {"/etc/x": ""}}, "leads out of the home folder"),
    ],
)
def test_a_launch_that_cannot_be_made_says_why(home, tmp_path, spec, complaint):
    agent = write_agent(tmp_path / "bad", **spec)
    with pytest.raises(ConfigError, match=complaint):
        plan_of(agent, llm=None)


@pytest.mark.parametrize(
    "text",
    [
        "{{ cycler.__init__.__globals__.os.environ }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ workspace.__init__.__globals__ }}",
    ],
)
def test_the_texts_of_an_agent_cannot_run_code_on_the_host(home, tmp_path, text):
    agent = write_agent(tmp_path / "hostile", environment={"X": text})
    with pytest.raises(ConfigError, match=r"unsafe|access"):
        launch_plan(agent, config(), INSIDE, LLM, tmp_path / "launch")


def test_a_system_that_is_not_installed_is_named_with_the_command(home):
    with pytest.raises(
        ConfigError, match=r"agent codex: version .* is pinned, it is not installed; run: agent2 agents install codex"
    ):
        plan_of(load_agent("codex"))


@pytest.mark.parametrize("name", [n for n in agent_names() if load_agent(n).spec.install is not None])
def test_every_packaged_system_is_told_its_llm_its_key_and_the_prompt(home, name):
    agent = load_agent(name)
    pretend_installed(agent)
    plan = plan_of(agent)
    values = [*plan.command, *plan.environment.values(), *plan.home_files.values()]
    assert any(LLM.url in word for word in values)
    assert LLM.key in plan.environment.values()
    assert all(LLM.key not in text for text in plan.home_files.values())
    assert plan.prompt in plan.command
    assert "/installed/program" in plan.command
    assert not any("{{" in word or "}}}" in word for word in plan.command)
    for path, text in plan.home_files.items():
        assert (tomllib.loads if path.endswith(".toml") else json.loads)(text) is not None


def test_the_prompt_is_one_for_all_and_names_assignment_and_grader(home):
    prompts = set()
    for name in ("codex", "claude-code"):
        agent = load_agent(name)
        pretend_installed(agent)
        prompts.add(plan_of(agent).prompt)
    (prompt,) = prompts
    assert "/workspace/ASSIGNMENT.md" in prompt
    assert INSIDE.grading_url in prompt


def test_every_field_exists_for_a_driven_system(home, tmp_path):
    environment = {name: f"{{{{{name}}}}}" for name in LAUNCH_FIELDS if name != "program"}
    command = ["{{program}}", "x"]
    agent = load_agent(str(write_npm_agent(tmp_path / "mine", llm="gemini", environment=environment, command=command)))
    pretend_installed(agent)
    plan = plan_of(agent)
    assert set(plan.environment) == LAUNCH_FIELDS - {"program"}
    assert all(plan.environment.values())


def test_without_a_sandbox_the_users_home_is_left_alone(home, tmp_path):
    agent = write_agent(tmp_path / "driven", llm="openai-chat", files={".tool/config": "x"})
    plan = plan_of(agent, folder=str(tmp_path / "launch"), sandbox="none")
    assert plan.environment["HOME"] == str(tmp_path / "launch" / "home")
    assert plan.command == ("python", "/agent/main.py")


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
def test_an_installed_program_starts_with_its_files_in_its_home(home, tmp_path, sandbox):
    program = 'pwd; cat "$HOME/.tool/config"; echo; cat "$1"; echo >> "$HOME/.tool/config"'
    folder = write_npm_agent(tmp_path / "mine", files={".tool/config": "in {{workspace}}"})
    agent = load_agent(str(folder))
    install_system(agent, InstallOptions(npm=str(write_npm(tmp_path / "bin", program=program)), sandbox=sandbox), print)
    chosen, workspace = find_sandbox(sandbox), tmp_path / "workspace"
    chosen.prepare_workspace(workspace)
    inside_workspace = chosen.visible_path(workspace, "/workspace")
    inside = InsidePaths(inside_workspace, "/model", chosen.visible_path(folder, "/agent"), 8000)
    plan = plan_of(agent, llm=None, folder=tmp_path / "launch", sandbox=sandbox, inside=inside)
    plan.write()
    log = tmp_path / "log"
    spec = SandboxSpec(plan.command, workspace, log, mounts=plan.mounts, environment=plan.environment)
    ended = chosen.start(spec).wait(120)
    assert ended is not None and ended.code == 0, log.read_text()
    assert log.read_text() == f"{inside_workspace}\nin {inside_workspace}\n{plan.prompt}"


def test_writing_replaces_an_earlier_launch(home, tmp_path):
    agent = write_agent(tmp_path / "driven", files={".tool/config": "new"})
    folder = tmp_path / "launch"
    (folder / "home" / "old").mkdir(parents=True)
    plan_of(agent, llm=None, folder=folder).write()
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) == [
        "home/.tool/config",
        "prompt.md",
    ]
    assert (folder / "home" / ".tool" / "config").stat().st_mode & 0o004


def test_the_protocols_are_those_of_the_systems():
    spoken = {name: load_agent(name).spec.llm for name in agent_names()}
    assert spoken["codex"] is WireProtocol.OPENAI_RESPONSES
    assert spoken["claude-code"] is WireProtocol.ANTHROPIC
    assert spoken["gemini-cli"] is WireProtocol.GEMINI
    assert {spoken[name] for name in ("opencode", "openhands", "mini-swe-agent")} == {WireProtocol.OPENAI_CHAT}
