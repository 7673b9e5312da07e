import json

import pytest

from agent2.errors import ConfigError, Fault
from agent2.records import Rollout, RolloutStatus, Score, ScoredRollout, Split, StopReason, Turn, Usage
from agent2.scorers.task_set import load_task_set, parse_task_set, task_results

EXACT = {"id": "capital", "prompt": "Capital of France?", "verify_type": "exact_match", "expected_answer": "Paris"}
SCRIPT = {
    "id": "sum",
    "prompt": "Write add.py",
    "setup": {"files": {"tests/check.py": "x = 1"}, "image": "python"},
    "max_turns": 3,
    "verify_type": "execution",
    "verify_script": "test -s answer.txt",
}
RUBRIC = {"id": "poem", "prompt": "A poem.", "verify_type": "llm_judge", "rubric": "Is it a poem?"}


def parse(*tasks):
    return parse_task_set(json.dumps(list(tasks)), "set.json")


def refused(text):
    with pytest.raises(ConfigError) as caught:
        parse_task_set(text if isinstance(text, str) else json.dumps(text), "set.json")
    return str(caught.value)


def test_a_list_and_an_object_with_tasks_are_the_same_set(tmp_path):
    path = tmp_path / "set.json"
    path.write_text(json.dumps({"tasks": [EXACT, SCRIPT, RUBRIC]}))
    assert load_task_set(path) == parse(EXACT, SCRIPT, RUBRIC)
    assert load_task_set(path).digest == parse(EXACT, SCRIPT, RUBRIC).digest != parse(EXACT).digest


def test_turns_are_limited_to_twenty_unless_said_otherwise():
    assert [task.max_turns for task in parse(EXACT, SCRIPT).tasks] == [20, 3]


def test_items_carry_what_verification_needs():
    exact, script, _ = parse(EXACT, SCRIPT, RUBRIC).items(Split.TEST_PUBLIC)
    assert (exact.id, exact.split, exact.reference) == ("capital", Split.TEST_PUBLIC, "Paris")
    assert script.payload["verify_script"] == "test -s answer.txt" and script.payload["max_turns"] == 3
    assert script.payload["setup"]["files"] == {"tests/check.py": "x = 1"}


def test_an_unknown_verify_type_is_read_and_warned_of():
    tasks = parse(EXACT, EXACT | {"id": "other", "verify_type": "exact_mach"})
    (warning,) = tasks.warnings
    assert "task 'other': verify_type 'exact_mach' is unknown, it will never pass" in warning


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ([EXACT, EXACT], "set.json: task 2: id 'capital' appears twice"),
        ([{**EXACT, "expected_answer": None}], "task 1 'capital': "),
        (
            [{key: SCRIPT[key] for key in SCRIPT if key != "verify_script"}],
            "verify_type 'execution' needs verify_script",
        ),
        ([{**RUBRIC, "rubric": None}], "verify_type 'llm_judge' needs rubric"),
        ([{**EXACT, "promt": "x"}], "task 1 'capital': unknown key 'promt'; did you mean 'prompt'?"),
        ([{key: EXACT[key] for key in EXACT if key != "verify_type"}], "key 'verify_type' is missing"),
        ([{**EXACT, "max_turns": 0}], "max_turns"),
        ([{**SCRIPT, "setup": {"files": {"../x": ""}}}], "'../x' is not a path below the task's own folder"),
        ([{**SCRIPT, "setup": {"files": {"/etc/passwd": ""}}}], "'/etc/passwd' is not a path below"),
        ([{**SCRIPT, "setup": {"files": {"a": 1}}}], "setup.files must map relative paths to texts"),
        ([EXACT, 7], "task 2: "),
        ([], "a list of at least one task is needed"),
        ({"task": [EXACT]}, "an object with keys ['task']"),
        ("[{]", "set.json:1: not valid JSON"),
        ('[{"id": "a", "id": "b"}]', "key 'id' appears twice in one object"),
        ('[{"id": "a", "max_turns": NaN}]', "NaN is not a JSON number"),
    ],
)
def test_a_bad_task_set_is_refused_with_the_task_and_the_reason(text, reason):
    assert reason in refused(text)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.json: cannot be read"):
        load_task_set(tmp_path / "none.json")


def scored(value, *, state=None, views=None, answer="Paris"):
    turn = Turn("a", None, StopReason.END, 1, 1)
    rollout = Rollout("capital", 0, 1, RolloutStatus.COMPLETED, (), (turn, turn), answer, state or {}, Usage())
    return ScoredRollout(rollout, Score(value, "why", Fault.JUDGE if value is None else None, views or {}))


@pytest.mark.parametrize(("value", "passed"), [(1.0, True), (0.5, False), (0.0, False), (None, None)])
def test_a_result_says_whether_the_task_passed_and_none_for_not_known(value, passed):
    (result,) = task_results([scored(value)])
    assert (result.task_id, result.passed, result.turns, result.final_answer) == ("capital", passed, 2, "Paris")


@pytest.mark.parametrize(
    ("record", "calls"),
    [
        (scored(1.0), None),
        (scored(1.0, state={"tool_calls": [{}, {}]}), 2),
        (scored(1.0, state={"tool_calls": 3}), 3),
        (scored(1.0, state={"tool_calls": 3}, views={"tool_calls": 4.0}), 4),
    ],
)
def test_tool_calls_are_counted_where_something_counts_them(record, calls):
    assert task_results([record])[0].tool_calls == calls
