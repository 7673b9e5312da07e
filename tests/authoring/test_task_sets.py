"""Task sets are read as cards, played in a sandbox, and end in one record an attempt."""

import json

import pytest

from agent2.authoring.task_cards import read_cards
from agent2.errors import ConfigError
from cli_builders import run_agent2 as agent2

TASKS = [
    {"id": "sum", "prompt": "1 + 1?", "verify_type": "exact_match", "expected_answer": "2"},
    {
        "id": "sorted",
        "prompt": "Sort b, a; one a line.",
        "setup": {"files": {"expected.txt": "a\nb\n"}},
        "max_turns": 3,
        "verify_type": "execution",
        "verify_script": "#!/bin/sh\ncmp answer.txt expected.txt\n",
    },
]
PLAYERS = """
def strong(chat):
    return "2" if "1 + 1" in chat[-1].content else "a\\nb\\n"


def previous(chat):
    return "2"


def weak(chat):
    return "no"
"""


def test_tasks_of_a_set_are_played_and_leave_their_records(tmp_path):
    (tmp_path / "tasks.json").write_text(json.dumps({"tasks": TASKS}))
    (tmp_path / "matrix.yaml").write_text("other: {medium: 2}\n")
    (tmp_path / "players.py").write_text(PLAYERS)
    roles = [f"--role={role}=scripted:players.py:{role}" for role in ("weak", "previous", "strong")]
    made = agent2("bench", "new", "b", "--matrix", "matrix.yaml", "--cards", "tasks.json", home=tmp_path)
    assert made.returncode == 0, made.stderr
    assert agent2("bench", "pilot", "b", *roles, home=tmp_path).returncode == 0

    def passed(role):
        ended = agent2("bench", "results", f"b/pilots/1/{role}", "--json", home=tmp_path)
        return {record["task_id"]: record["passed"] for record in json.loads(ended.stdout)}

    assert passed("strong") == {"b-sum": True, "b-sorted": True}
    assert passed("previous") == {"b-sum": True, "b-sorted": False}
    assert passed("weak") == {"b-sum": False, "b-sorted": False}
    draft = (tmp_path / "b" / "pilots" / "1" / "draft" / "dev.jsonl").read_text()
    assert "cmp answer.txt" not in [json.loads(line)["prompt"] for line in draft.splitlines()][1]


def test_a_task_for_a_judge_is_refused(tmp_path):
    (tmp_path / "tasks.json").write_text(json.dumps([{**TASKS[0], "verify_type": "llm_judge", "rubric": "kind"}]))
    with pytest.raises(ConfigError, match="cannot be played as a card"):
        read_cards(tmp_path / "tasks.json")
