"""Task cards of strangers: what reaches beyond its folder, or could never be judged, is refused where it is read."""

import json

import pytest

from agent2.authoring.task_cards import read_cards
from agent2.errors import ConfigError

COMMAND = {"success_verifier": {"type": "command", "command": "false"}}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"solution": {"../../stolen": "x"}, **COMMAND}, "not a path below the task's own folder"),
        ({"solution": {"/etc/passwd": None}, **COMMAND}, "not a path below the task's own folder"),
        ({"initial_state": {"files": {"a": "1", "a/b": "2"}}, **COMMAND}, "'a/b' is below a file"),
        ({"initial_state": {"files": {"a/b": "1", "a//b": "2"}}, **COMMAND}, "names the same file"),
        ({"initial_state": {"files": {"x" * 256: "1"}}, **COMMAND}, "not a path below"),
        ({"initial_state": {"repo": "a\0b"}, **COMMAND}, "is no path"),
        ({"answer": float("nan")}, "no finite number"),
        ({"answer": float("inf")}, "no finite number"),
        ({"answer": "1", "success_verifier": {"type": "nonsense"}}, "'nonsense' is no verifier"),
        ({"answer": "1", "success_verifier": {"type": "pair_judge"}}, "'pair_judge' is no verifier"),
        ({"answer": "0", "options": [str(number) for number in range(27)]}, "27 options"),
        ({"answer": "1", "budget": {"max_minutes": float("inf")}}, "max_minutes"),
        ({"answer": "1", "prompt": "\ud800"}, "prompt"),
    ],
)
def test_a_card_that_cannot_be_used_is_refused_with_its_place(tmp_path, fields, reason):
    path = tmp_path / "cards.jsonl"
    path.write_text(json.dumps({"prompt": "What?", **fields}) + "\n")
    with pytest.raises(ConfigError, match=reason) as refused:
        read_cards(path)
    assert str(refused.value).startswith(f"{path}:1:")


def test_paths_are_read_in_their_plain_form(tmp_path):
    path = tmp_path / "cards.jsonl"
    path.write_text(json.dumps({"prompt": "What?", "initial_state": {"files": {"./a//b": "1"}}, **COMMAND}))
    assert read_cards(path)[0].initial_state.files == {"a/b": "1"}
