import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent2.cards.writer import CardWriter
from agent2.cli import app
from agent2.errors import Agent2Error, ConfigError
from card_builders import make_header, make_record


def invoke(*arguments, **options):
    return CliRunner().invoke(app, ["cards", *map(str, arguments)], **options)


def write(path, values):
    with CardWriter(path, make_header()) as writer:
        for item, value in values.items():
            writer.append(make_record(item, value, text=f"answer of {item} \x1b[31mred"))
        writer.close()
    return path


def test_a_rollout_is_replayed_by_number_or_by_item(tmp_path):
    card = write(tmp_path / "card", {"a": 1.0, "b": 0.0})
    by_item = invoke("replay", card, "--id", "b")
    assert by_item.exit_code == 0, by_item.output
    assert "answer of b" in by_item.output and "score: 0" in by_item.output
    assert "\x1b[31mred" not in by_item.output and "\\x1b[31mred" in by_item.output
    assert "answer of a" in invoke("replay", card).output
    stepped = invoke("replay", card, "--step", input="\n" * 9)
    assert stepped.exit_code == 0 and "answer of a" in stepped.output


@pytest.mark.parametrize("arguments", [["--id", "z"], ["--id", "a", "--attempt", "3"], ["--n", "7"], ["--n", "-1"]])
def test_a_rollout_that_is_not_there_is_bad_input(tmp_path, arguments):
    result = invoke("replay", write(tmp_path / "card", {"a": 1.0}), *arguments)
    assert isinstance(result.exception, ConfigError) and "has no" in str(result.exception)


def test_two_cards_are_compared_with_the_three_questions(tmp_path):
    old, new = write(tmp_path / "old", {"a": 1.0, "b": 0.0}), write(tmp_path / "new", {"a": 1.0, "b": 1.0})
    result = invoke("compare", old, new)
    assert result.exit_code == 0, result.output
    for text in ("learned or avoided failures", "success or cost", "process or rules", "+50.0 points"):
        assert text in result.output


def test_a_log_of_lm_eval_becomes_a_card_and_what_is_assumed_is_told(tmp_path):
    row = {
        "doc_id": 0,
        "resps": [["4"]],
        "filtered_resps": ["4"],
        "metrics": ["exact_match"],
        "exact_match": 1.0,
        "target": "4",
    }
    log = tmp_path / "samples_sums.jsonl"
    log.write_text(json.dumps(row) + "\n")
    result = invoke("import", log, tmp_path / "card")
    assert result.exit_code == 0, result.output
    assert "exact_match@none: 1.0000" in result.output and "assumed: seconds: 0" in result.output
    assert invoke("validate", tmp_path / "card").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["old.json", "card", "--filter", "x"], "only samples of lm-eval"),
        (["old.json", "card", "--format", "lmeval"], "did you mean 'lm-eval'?"),
        (["old.json", "card", "--format", "lm-eval"], "old.json:1: is no line of lm-eval"),
        (["notes.txt", "card"], "notes.txt: is not JSON"),
        (["other.json", "card"], "other.json: is in no format that can be imported; read are inspect-ai's .json"),
        (["old.json", "card", "--trajectories", "--format", "inspect"], "remove --metric, --filter and --format"),
        (["log.json", "card", "--split", "test"], "unknown split"),
        (["log.json", "card"], "cannot be read"),
    ],
)
def test_a_wrong_import_is_bad_input(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text(json.dumps({"eval": {"task": "sums", "model": "m"}, "samples": []}))
    Path("other.json").write_text('{"results": 1}')
    Path("notes.txt").write_text("done")
    result = invoke("import", *arguments)
    assert isinstance(result.exception, Agent2Error) and message in str(result.exception)


def test_an_import_tells_what_is_missing_and_why(tmp_path):
    samples = [
        {"id": name, "epoch": 1, "input": "?", "target": "4", "scores": {"grader": {"value": value}}}
        for name, value in {"a": "C", "b": float("nan"), "c": float("nan")}.items()
    ]
    log = tmp_path / "log.json"
    log.write_text(json.dumps({"eval": {"task": "sums", "model": "m"}, "samples": samples}))
    result = invoke("import", log, tmp_path / "card")
    assert result.exit_code == 0 and "grader: 1.0000" in result.output
    assert "missing: 2 x grader is nan, not a number" in result.output
