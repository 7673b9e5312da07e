import pytest

from agent2.arena.agents import agent_names, load_agent
from agent2.errors import ConfigError


def test_the_reference_agents_are_packaged():
    assert {"nop", "base-copy", "sft", "grpo"} <= set(agent_names())


@pytest.mark.parametrize("name", agent_names())
def test_every_packaged_agent_loads_and_has_its_program(name):
    agent = load_agent(name)
    assert agent.spec.name == name
    programs = [part.removeprefix("/agent/") for part in agent.spec.command if part.startswith("/agent/")]
    assert programs
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
