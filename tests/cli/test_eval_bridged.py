"""`agent2 eval agent_tool_regression_v1` over bridges, with scripted players and a fake package in the sandbox."""

import json
import sys

import pytest

from agent2.cli import main
from bridge_fakes import install_playable_bridge

PLAYERS = '''
import json


def right(messages):
    """Counts as the user says, and calls nothing where no user asks to reach a number."""
    asked = next((message.text for message in messages if message.text.startswith("Reach ")), None)
    if asked is None:
        return "I cannot do that."
    call = json.dumps({"name": "add", "arguments": {"n": int(asked.split()[1].rstrip("."))}})
    said = sum(message.role == "assistant" for message in messages)
    return [call, "Done.", f"[{call}, {call}]", "Done again."][said]


def silent(messages):
    return "I cannot do that."
'''


@pytest.fixture
def agent2(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "players.py").write_text(PLAYERS)
    install_playable_bridge("bfcl", "multi_turn_base")
    install_playable_bridge("tau2", "retail")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["agent2", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return exit_info.value.code or 0, captured.out, captured.err

    return run


def test_the_agent_suite_plays_episodes_over_the_bridges_and_ends_in_a_decision(tmp_path, agent2):
    command = ("eval", "agent_tool_regression_v1", "--role", "dev", "--set", "cadence.dev.n_items=2", "--out")
    sides = [f"scripted:players.py:{name}" for name in ("right", "silent")]
    _, out, err = agent2(*command, "good", "--checkpoint", sides[0], "--baseline", sides[1])
    assert "agent_tool_regression_episodes is played for agent_tool_regression_v1" in err
    report = json.loads((tmp_path / "good" / "report.json").read_text())
    assert report["bfcl_multi_turn_accuracy"] == "0.0% -> 100.0% (+100.0)", err
    assert report["tau2_retail_reward"] == "0.0% -> 100.0% (+100.0)" and "release decision:" in out
    code, out, _ = agent2(*command, "bad", "--checkpoint", sides[1], "--baseline", sides[0])
    assert code == 1 and "- tau2.retail was skipped: bfcl.multi_turn_base scored 0.0%" in out
