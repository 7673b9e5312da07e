import pytest

from agent2.arena.agents import agent_names, load_agent
from agent2.errors import ConfigError


def test_the_reference_agents_are_packaged():
    assert {"nop", "base-copy", "sft", "grpo", "sft-grpo", "static-only"} <= set(agent_names())


def test_the_systems_of_strangers_are_packaged():
    systems = {"claude-code", "codex", "gemini-cli", "mini-swe-agent", "opencode", "openhands"}
    assert {name for name in agent_names() if load_agent(name).spec.install is not None} == systems


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("llm: openai", "openai-chat"),
        ("volatile: ['(']", "not a regular expression"),
        ("instal: {}", "did you mean 'install'"),
        ("install: {}", "name exactly one of npm and python"),
        ("transcript: {format: nobody}", "unknown format 'nobody'"),
    ],
)
def test_a_wrong_word_about_a_system_is_told_with_its_line(tmp_path, line, complaint):
    (tmp_path / "agent.yaml").write_text(f"name: mine\ndescription: d\ncommand: [x]\n{line}\n")
    with pytest.raises(ConfigError, match=r"agent\.yaml:4: ") as caught:
        load_agent(str(tmp_path))
    assert complaint in str(caught.value)


@pytest.mark.parametrize("name", agent_names())
def test_every_packaged_agent_loads_and_has_its_program(name):
    agent = load_agent(name)
    assert agent.spec.name == name
    arguments = [word.replace("{{agent}}", "/agent") for word in agent.spec.command]
    programs = [word.removeprefix("/agent/") for word in arguments if word.startswith("/agent/")]
    assert programs or "{{program}}" in arguments
    assert all((agent.folder / program).is_file() for program in programs)


def test_an_unknown_agent_gets_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'grpo'"):
        load_agent("gpro")


def test_a_folder_without_a_spec_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no agent\.yaml in that folder"):
        load_agent(str(tmp_path))


def test_a_users_own_agent_is_taken_from_its_folder(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: mine\ndescription: d\ncommand: [python, /agent/x.py]\n")
    agent = load_agent(str(tmp_path))
    assert agent.spec.name == "mine"
    before = agent.digest
    (tmp_path / "x.py").write_text("print(1)\n")
    assert load_agent(str(tmp_path)).digest != before
