"""The script that compares two readers of the same rollouts."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "labelled_agreement.py"


def load_script():
    spec = importlib.util.spec_from_file_location("labelled_agreement", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


labelled_agreement = load_script()


def labels_of(*classes):
    return {("runs.json", f"{item}/0"): frozenset(names) for item, names in enumerate(classes)}


def test_each_class_is_counted_over_the_rollouts_of_both():
    first = labels_of(["ok"], ["gave_up"], ["gave_up", "wrong_tool"], ["ok"], ["repeated_call"])
    second = labels_of(["ok"], ["gave_up"], ["gave_up"], ["gave_up"])
    by_name = {row.name: row for row in labelled_agreement.agreement(first, second)}
    assert list(by_name) == ["gave_up", "ok", "wrong_tool"]  # repeated_call: a rollout that the second did not label
    gave_up = by_name["gave_up"]
    assert (gave_up.n_both, gave_up.n_neither, gave_up.n_only_first, gave_up.n_only_second) == (2, 1, 0, 1)
    assert gave_up.kappa.value == pytest.approx(0.5)  # 3 of 4 agree, 1/2 by chance
    assert by_name["wrong_tool"].n_only_first == 1 and by_name["wrong_tool"].kappa.value == pytest.approx(0)


def test_a_class_that_all_rollouts_have_says_nothing_beyond_chance():
    (row,) = labelled_agreement.agreement(labels_of(["ok"], ["ok"]), labels_of(["ok"], ["ok"]))
    assert row.n_both == 2 and row.kappa is None


def test_a_rollout_of_one_reader_only_or_labelled_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"did not label runs\.json 1/0"):
        labelled_agreement.agreement(labels_of(["ok"]), labels_of(["ok"], ["ok"]))
    line = json.dumps({"source": "runs.json", "rollout": "0/0", "labels": ["ok"]}) + "\n"
    (tmp_path / "a.jsonl").write_text(line * 2)
    with pytest.raises(ValueError, match="twice"):
        labelled_agreement.read_labels(tmp_path / "a.jsonl")


def test_the_guideline_has_the_counts_of_the_two_passes():
    folder = labelled_agreement.LABELLED
    first, second = (labelled_agreement.read_labels(folder / name) for name in ("rollouts.jsonl", "second_pass.jsonl"))
    text = (folder / "GUIDELINE.md").read_text(encoding="utf-8")
    assert len(second) == 30
    for row in labelled_agreement.agreement(first, second):
        counts = f"{row.n_both} | {row.n_neither} | {row.n_only_first} | {row.n_only_second}"
        assert f"| `{row.name}` | {counts} | {row.kappa.value:.2f} " in text
