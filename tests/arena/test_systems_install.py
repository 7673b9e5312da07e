"""Installing from a small npm and from wheels on disk; what was installed is run in the sandbox."""

import json
import os

import pytest
import yaml

from agent2.arena.agents import agent_names, load_agent
from agent2.arena.systems import (
    InstallOptions,
    find_installed,
    install_system,
    installed_versions,
    require_installed,
)
from agent2.errors import ConfigError
from system_builders import write_npm, write_npm_agent, write_wheel


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def silent(message):
    pass


def install(agent_folder, npm, on_progress=silent):
    return install_system(load_agent(str(agent_folder)), InstallOptions(npm=str(npm)), on_progress)


@pytest.mark.slow
def test_an_npm_system_is_installed_at_its_pin_with_a_manifest(home, tmp_path):
    agent = write_npm_agent(tmp_path / "mine")
    news = []
    system = install(agent, write_npm(tmp_path / "bin"), news.append)
    assert system.folder == home / "agents" / "mine" / "1.2.3"
    manifest = json.loads((system.folder / "manifest.json").read_text())
    assert (manifest["package"], manifest["version"], manifest["said"]) == ("tool", "1.2.3", "tool 1.2.3")
    assert manifest["installer"] == "npm 10.0.0"
    assert news == ["installing tool 1.2.3", "tool: asking it for its version"]
    program = system.tree / "node_modules" / "tool" / "bin" / "tool"
    assert program.stat().st_mode & 0o055 == 0o055  # the sandboxed program is another user
    assert require_installed(load_agent(str(agent))) == system
    assert [path.name for path in system.folder.parent.iterdir()] == ["1.2.3"]  # no draft is left


@pytest.mark.slow
def test_what_is_installed_and_unchanged_is_not_installed_again(home, tmp_path):
    agent, npm = write_npm_agent(tmp_path / "mine"), write_npm(tmp_path / "bin")
    first = install(agent, npm)
    os.unlink(npm)
    assert install(agent, npm) == first


@pytest.mark.slow
def test_a_system_that_was_changed_is_refused_and_installed_anew(home, tmp_path):
    folder, npm = write_npm_agent(tmp_path / "mine"), write_npm(tmp_path / "bin")
    program = install(folder, npm).tree / "node_modules" / "tool" / "bin" / "tool"
    program.write_text("#!/bin/sh\necho evil\n")
    with pytest.raises(ConfigError, match=r"not as installed .*run: agent2 agents install /"):
        require_installed(load_agent(str(folder)))
    install(folder, npm)
    assert "evil" not in program.read_text()
    require_installed(load_agent(str(folder)))


@pytest.mark.slow
def test_what_a_killed_installer_left_is_no_installation_and_is_cleared_away(home, tmp_path):
    folder, npm = write_npm_agent(tmp_path / "mine"), write_npm(tmp_path / "bin")
    old, new = home / "agents" / "mine" / ".1.2.3-old", home / "agents" / "mine" / ".1.2.3-new"
    for draft in (old, new):
        draft.mkdir(parents=True)
        (draft / "manifest.json").write_text("{}")
    os.utime(old, (1, 1))
    with pytest.raises(ConfigError, match=r"version 1\.2\.3 is pinned, it is not installed"):
        require_installed(load_agent(str(folder)))
    install(folder, npm)
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.slow
def test_a_program_of_another_version_is_not_installed(home, tmp_path):
    with pytest.raises(ConfigError, match=r"tool 1\.2\.3: prints 'tool 1\.2\.4'"):
        install(write_npm_agent(tmp_path / "mine"), write_npm(tmp_path / "bin", says="1.2.4"))
    assert installed_versions("mine") == []
    assert list((home / "agents" / "mine").iterdir()) == []


@pytest.mark.slow
def test_a_program_that_says_nothing_is_not_installed(home, tmp_path):
    agent = write_npm_agent(tmp_path / "mine", install={**npm_source(), "version_arguments": ["--silent"]})
    with pytest.raises(ConfigError, match="printed nothing"):
        install(agent, write_npm(tmp_path / "bin", program="true"))


def npm_source():
    return {"npm": {"package": "tool", "version": "1.2.3", "program": "tool/bin/tool"}}


def test_what_the_registry_says_is_passed_on(home, tmp_path):
    with pytest.raises(ConfigError, match="other: npm failed with status 1 and said: npm error 404 Not Found"):
        install(write_npm_agent(tmp_path / "mine", package="other"), write_npm(tmp_path / "bin"))


def test_without_npm_the_message_says_what_to_install(home, tmp_path):
    with pytest.raises(ConfigError, match=r"no-npm is not on PATH.*install Node\.js"):
        install(write_npm_agent(tmp_path / "mine"), "no-npm")


def test_a_package_without_its_program_is_refused(home, tmp_path):
    source = {"npm": {"package": "tool", "version": "1.2.3", "program": "tool-x64/tool"}}
    with pytest.raises(ConfigError, match="contains no tool-x64/tool"):
        install(write_npm_agent(tmp_path / "mine", install=source), write_npm(tmp_path / "bin"))


def test_an_agent_without_a_system_has_nothing_to_install(home):
    with pytest.raises(ConfigError, match="agent grpo: has nothing to install"):
        install_system(load_agent("grpo"), InstallOptions(), silent)


def test_another_version_does_not_do(home, tmp_path):
    agent = load_agent(str(write_npm_agent(tmp_path / "mine")))
    old_version = home / "agents" / "mine" / "1.2.2"
    old_version.mkdir(parents=True)
    (old_version / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"version 1\.2\.3 is pinned, installed: 1\.2\.2; run: agent2 agents install"):
        require_installed(agent)


@pytest.mark.parametrize("text", ["", "{}", '{"name": 3}'])
def test_a_damaged_manifest_is_told(home, tmp_path, text):
    agent = load_agent(str(write_npm_agent(tmp_path / "mine")))
    folder = home / "agents" / "mine" / "1.2.3"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match=r"manifest\.json: cannot be read"):
        find_installed(agent)


@pytest.mark.slow
def test_a_python_system_gets_an_environment_of_its_own_with_everything_pinned(home, tmp_path, monkeypatch):
    main = """
        import sys
        from helperlib import NAME
        print("snake 0.5.0 with", NAME, "in", sys.prefix)
    """
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "snake", "0.5.0", main)
    for version in ("1.0", "2.0"):
        wheel = write_wheel(wheels, "helperlib", version, "")
        add_file(wheel, "helperlib/__init__.py", f"NAME = 'helperlib {version}'\n")
    agent = tmp_path / "mine"
    agent.mkdir()
    source = {"package": "snake", "version": "0.5.0", "module": "snake", "requirements": ["helperlib"]}
    install_spec = {"python": source | {"constraints": "constraints.txt"}, "version_output": "snake 0[.]5[.]0"}
    spec = {"name": "mine", "description": "d", "command": ["{{program}}"], "install": install_spec}
    (agent / "agent.yaml").write_text(yaml.safe_dump(spec))
    (agent / "constraints.txt").write_text("helperlib==1.0\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    system = install_system(load_agent(str(agent)), InstallOptions(), silent)
    assert system.manifest.said == "snake 0.5.0 with helperlib 1.0 in /installed"
    assert system.manifest.program == ["{tree}/bin/python", "-I", "-m", "snake"]


def add_file(wheel, name, text):
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, data in (files | {name: text.encode()}).items():
            archive.writestr(file, data)


def test_every_packaged_system_is_pinned_with_all_that_it_needs():
    systems = {name: load_agent(name) for name in agent_names() if load_agent(name).spec.install is not None}
    assert set(systems) == {"claude-code", "codex", "gemini-cli", "mini-swe-agent", "opencode", "openhands"}
    for name, agent in systems.items():
        assert agent.spec.llm is not None, name
        assert agent.spec.transcript is not None, name
        python = agent.spec.install.python
        if python is not None:
            lines = (agent.folder / python.constraints).read_text().splitlines()
            assert lines and all("==" in line for line in lines), name
