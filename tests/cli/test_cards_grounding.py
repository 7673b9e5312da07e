"""`agent2 cards ground` and the import of tau-bench trajectories."""

import json
import re

import pytest
from msgspec import structs
from typer.testing import CliRunner

from agent2.cards.imports.foreign_log import write_foreign
from agent2.cards.imports.formats import read_log
from agent2.cards.reader import iter_rollouts, validate_card
from agent2.cards.writer import CardWriter
from agent2.cli import app
from agent2.errors import Agent2Error, ConfigError
from agent2.records import Score, ScoredRollout, Split
from card_builders import make_header, make_record


def invoke(*arguments):
    return CliRunner().invoke(app, ["cards", *map(str, arguments)])


def tool_record(item, value, answer, error=None):
    record = make_record(item, value, text=answer)
    call = {"turn": 0, "name": "stock", "arguments": {"item": "lamp"}, "result": None if error else 17, "error": error}
    state = {"answer": answer, "tool_calls": [call]}
    turns = [
        structs.replace(record.rollout.turns[0], action='{"name": "stock"}', observation="17"),
        *record.rollout.turns,
    ]
    prompt = [structs.replace(record.rollout.prompt[0], content="How many lamps are there?")]
    return ScoredRollout(structs.replace(record.rollout, state=state, prompt=prompt, turns=turns), record.score)


@pytest.fixture
def card(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        writer.append(tool_record("right", 1.0, "There are 17."))
        writer.append(tool_record("lies", 1.0, "There are 93 \x1b[31mlamps."))
        writer.append(tool_record("admits", 0.0, "The tool timed out, I do not know.", error="timeout"))
        writer.append(make_record("plain", 1.0))
        writer.close()
    return tmp_path / "card"


def test_findings_are_counted_with_the_scores_that_they_got(card):
    result = invoke("ground", card, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    by_name = {detector["name"]: detector for detector in document["detectors"]}
    assert document["n_rollouts"] == 4 and document["n_checked"] == 3 and document["n_without_tools"] == 1
    assert by_name["invented_number"]["n_rollouts"] == 1 and by_name["invented_number"]["found"]["mean"] == 1.0
    assert by_name["wrong_tool"]["n_rollouts"] is None, "the items are not at hand"
    assert "wrong_tool" in document["notes"][0]
    assert document["made_up"]["mean"] == 1.0 and document["admitted"] == {"n": 1, "n_missing": 0, "mean": 0.0}
    assert {entry["item"] for entry in document["findings"]} == {"lies"}
    assert "93" in {entry["finding"]["what"] for entry in document["findings"]}


def test_the_table_shows_the_words_without_control_characters(card):
    result = invoke("ground", card)
    assert result.exit_code == 0 and "invented_number" in result.output and "lies#0" in result.output
    assert "\x1b[31m" not in result.output
    assert "3 of 4 rollouts checked (1 without tools" in result.output


def test_one_detector_alone(card):
    document = json.loads(invoke("ground", card, "--detector", "unknown_tool", "--json").stdout)
    assert [detector["name"] for detector in document["detectors"]] == ["unknown_tool"] and document["findings"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--detector", "invented_numbr"], "invented_number"),
        (["--n", "-1"], "negative"),
        (["--settings", "max_tokens=9"], "--judge"),
        (["--judge", "nowhere/at-all"], "nowhere"),
    ],
)
def test_wrong_options_are_bad_input(card, arguments, message):
    result = invoke("ground", card, *arguments)
    assert isinstance(result.exception, Agent2Error) and message in str(result.exception)


def test_a_card_without_tools_is_bad_input(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        writer.append(make_record("a", 1.0))
        writer.close()
    result = invoke("ground", tmp_path / "card")
    assert isinstance(result.exception, ConfigError) and "no rollout has tool calls" in str(result.exception)


def trajectory(task, trial, reward, **changes):
    call = {"id": "c", "type": "function", "function": {"name": "cancel", "arguments": '{"id": "R-1"}'}}
    messages = [
        {"role": "system", "content": "Policy."},
        {"role": "user", "content": "Cancel R-1."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "cancel", "content": "Error: no such booking"},
        {"role": "assistant", "content": "R-1 has been cancelled."},
        {"role": "user", "content": "###STOP###"},
    ]
    info = {"task": {"instruction": f"task {task}", "actions": []}}
    return {"task_id": task, "trial": trial, "reward": reward, "info": info, "traj": messages} | changes


def write(tmp_path, rows):
    ordered = [{**{key: row[key] for key in row if key != "trial"}, "trial": row["trial"]} for row in rows]
    path = tmp_path / "model-airline.json"
    path.write_text(json.dumps(ordered))
    return path


def test_trajectories_of_tau_bench_become_a_card_with_their_rewards_and_can_be_checked(tmp_path):
    rows = [trajectory(task, trial, float(task == 0)) for task in (0, 1) for trial in range(2)]
    result = invoke("import", write(tmp_path, rows), tmp_path / "card")
    assert result.exit_code == 0, result.output
    assert "0.5000" in result.output and validate_card(tmp_path / "card") == []
    records = list(iter_rollouts(tmp_path / "card"))
    assert {(record.rollout.item_id, record.rollout.attempt) for record in records} == {
        ("0", 0),
        ("0", 1),
        ("1", 0),
        ("1", 1),
    }
    document = json.loads(invoke("ground", tmp_path / "card", "--json").stdout)
    assert {entry["finding"]["detector"] for entry in document["findings"]} == {"claimed_action"}


def test_the_summary_of_several_attempts_shows_pass_hat_k(tmp_path):
    solved = [4, 2, 1, 0]
    rows = [trajectory(task, trial, float(trial < n)) for task, n in enumerate(solved) for trial in range(4)]
    invoke("import", write(tmp_path, rows), tmp_path / "card")
    result = invoke("show", tmp_path / "card")
    values = {name: float(value) for name, value in re.findall(r"(pass\^\d).* of \d +([\d.]+)", result.output)}
    assert values == {"pass^1": 0.4375, "pass^2": 0.2917, "pass^3": 0.25, "pass^4": 0.25}
    single = [trajectory(task, 0, 1.0) for task in range(3)]
    (tmp_path / "one").mkdir()
    invoke("import", write(tmp_path / "one", single), tmp_path / "single")
    assert "pass^" not in invoke("show", tmp_path / "single").output


@pytest.mark.parametrize(
    "rows",
    [
        [{"task_id": 1, "traj": [], "trial": 0}],
        [trajectory(0, 0, "high")],
        [trajectory(0, 0, 1.0, traj=[{"role": "assistant", "tool_calls": [{"id": 1}]}])],
        [3],
    ],
)
def test_trajectories_in_another_layout_are_bad_input(tmp_path, rows):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(rows))
    with pytest.raises(ConfigError, match="trajectory 0"):
        read_log(path, format_name="tau-bench")


def test_a_reward_outside_0_to_1_is_missing(tmp_path):
    rows = [trajectory(task, 0, 1.0) for task in range(19)] + [trajectory(20, 0, 2.0)]
    summary = write_foreign(read_log(write(tmp_path, rows)), tmp_path / "card", Split.TEST_PUBLIC)
    assert summary.n_missing == 1


def test_missing_scores_are_no_zero(tmp_path):
    with CardWriter(tmp_path / "card", make_header()) as writer:
        record = tool_record("a", 1.0, "There are 93.")
        writer.append(ScoredRollout(record.rollout, Score(None, "lost", make_record("x", None).score.fault)))
        writer.close()
    document = json.loads(invoke("ground", tmp_path / "card", "--json").stdout)
    assert document["made_up"] == {"n": 1, "n_missing": 1, "mean": None}
