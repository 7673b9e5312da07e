"""The script that measures detectors on labelled rollouts."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "labelled_rollouts.py"


def load_script():
    spec = importlib.util.spec_from_file_location("labelled_rollouts", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


labelled_rollouts = load_script()
CALL = {"function": {"name": "cancel_trip", "arguments": '{"trip": "T1"}'}}


def trajectory(task, *messages):
    opening = [{"role": "system", "content": "Tools: find_trip(name)"}, {"role": "user", "content": "Cancel T1."}]
    return {"task_id": task, "trial": 0, "reward": 0.0, "info": {}, "traj": [*opening, *messages]}


def said(text):
    return {"role": "assistant", "content": text}


def called(result, function=CALL):
    return [
        {"role": "assistant", "content": None, "tool_calls": [function]},
        {"role": "tool", "content": result, "name": function["function"]["name"]},
    ]


LOOKED_UP = {"function": {"name": "find_trip", "arguments": '{"name": "T1"}'}}
TRAJECTORIES = [
    trajectory(0, *called("T1 is booked", LOOKED_UP), said("I have cancelled T1.")),  # claimed, not done
    trajectory(1, *called("T1 is booked", LOOKED_UP), *called("ok"), said("I have cancelled T1.")),
    trajectory(2, *called("ok"), said("I have cancelled T1.")),  # no search
    trajectory(3, *called("Error: no trip", LOOKED_UP), *called("Error: no trip", LOOKED_UP), said("I found nothing.")),
]


@pytest.fixture
def data(tmp_path):
    (tmp_path / "runs.json").write_text(json.dumps(TRAJECTORIES))
    return tmp_path


def rows(*labels):
    return [{"source": "runs.json", "rollout": f"{task}/0", "labels": of} for task, of in enumerate(labels)]


def test_a_class_is_counted_once_for_each_rollout_that_has_it(data):
    gold = rows(["claimed_without_doing"], ["ok"], ["ok"], ["repeated_call", "repeated_failing_call", "gave_up"])
    rollouts = list(labelled_rollouts.labelled_rollouts(data, gold))
    table = {row.name: (row.n_gold, row.n_predicted, row.n_both) for row in labelled_rollouts.figures(rollouts)}
    assert table["claimed_without_doing"] == (1, 1, 1)
    assert table["repeated_call"] == table["repeated_failing_call"] == (1, 1, 1)
    assert table["answer_without_search"] == (0, 1, 0)
    assert table["gave_up"] == (1, 0, 0)
    assert table["ok"] == (2, 1, 1)


def test_disagreements_name_the_rollout_and_the_finding(data):
    rollouts = list(labelled_rollouts.labelled_rollouts(data, rows(["ok"], ["ok"], ["ok"], ["invented_fact"])))
    (line,) = labelled_rollouts.disagreements(rollouts, "claimed_without_doing", 3)
    assert "only detectors: runs.json 0/0 (ok): turn 1: 'I have cancelled T1.'" in line
    (missed,) = labelled_rollouts.disagreements(rollouts, "invented_fact", 3)
    assert "only reader: runs.json 3/0" in missed


def test_all_attempts_at_an_item_are_in_one_half():
    halves = {labelled_rollouts.is_tuned("x.json", f"{task}/{trial}") for task in range(9) for trial in range(4)}
    assert halves == {True, False}
    for task in range(9):
        assert len({labelled_rollouts.is_tuned("a/x.json", f"{task}/{trial}") for trial in range(4)}) == 1


@pytest.mark.parametrize("labels", [["liar"], []])
def test_a_class_that_the_guideline_does_not_have_is_refused(tmp_path, labels):
    (tmp_path / "a.jsonl").write_text(json.dumps(rows(labels)[0]) + "\n")
    with pytest.raises(ValueError, match=r"a\.jsonl:1"):
        labelled_rollouts.read_labels(tmp_path)


def test_a_rollout_that_no_file_holds_is_refused(data):
    with pytest.raises(ValueError, match="holds no rollout 9/0"):
        list(labelled_rollouts.labelled_rollouts(data, [{"source": "runs.json", "rollout": "9/0", "labels": ["ok"]}]))
    with pytest.raises(ValueError, match=r"holds no other\.json"):
        labelled_rollouts.rollouts_of(data, "other.json")


def test_the_labels_of_the_package_are_readable_and_in_both_halves():
    gold = labelled_rollouts.read_labels(labelled_rollouts.LABELLED)
    halves = [labelled_rollouts.is_tuned(str(row["source"]), str(row["rollout"])) for row in gold]
    assert len(gold) == 234 and 100 < sum(halves) < 133


def test_labels_that_are_set_aside_are_not_counted(tmp_path):
    for name in ("rollouts.jsonl", *labelled_rollouts.SET_ASIDE):
        (tmp_path / name).write_text(json.dumps(rows(["ok"])[0]) + "\n")
    assert len(labelled_rollouts.read_labels(tmp_path)) == 1


def test_the_labels_set_aside_have_classes_of_the_guideline():
    known = {*labelled_rollouts.DETECTORS_OF, *labelled_rollouts.UNDETECTED, labelled_rollouts.OK}
    for name in labelled_rollouts.SET_ASIDE:
        for line in (labelled_rollouts.LABELLED / name).read_text().splitlines():
            labels = json.loads(line)["labels"]
            assert labels and set(labels) <= known and (len(labels) == 1 or labelled_rollouts.OK not in labels), line
