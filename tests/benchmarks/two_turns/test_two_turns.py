"""MT-Bench on a small file of our own in the official layout, with a scripted judge."""

import json

import pytest

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError, Fault
from agent2.evaluation.engine import score_messages
from agent2.records import Split

JUDGE = """
import json

def rate(chat):
    text = chat[-1].text
    answer = text.split("<<< answer")[1]
    is_second = "Assistant: " in text.split("<<< answer")[0]
    has_reference = "<<< reference" in text
    rating = 4 if is_second else 10 if has_reference else 7
    return json.dumps({"quote": "word", "verdict": 1 if "xyzzy" in answer else rating})
"""


def load(folder, n=8):
    questions = [
        {"question_id": 81 + k, "category": "writing" if k % 2 else "math", "turns": [f"First {k}?", f"Second {k}?"]}
        for k in range(n)
    ]
    references = [
        {"question_id": 81 + k, "choices": [{"index": 0, "turns": ["one", "two"]}]} for k in range(n) if k % 2 == 0
    ]
    (folder / "reference_answer").mkdir(exist_ok=True)
    for path, rows in (("question.jsonl", questions), ("reference_answer/gpt-4.jsonl", references)):
        (folder / path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_benchmark("mt_bench", folder)


def test_both_turns_are_played_and_rated_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    (tmp_path / "judge.py").write_text(JUDGE)
    (tmp_path / "judge.yaml").write_text(f"model: 'scripted:{tmp_path}/judge.py:rate'\n")
    benchmark = load(tmp_path)
    items = {item.payload["task_type"]: item for item in benchmark.items(Split.DEV, 6, None)}
    scores = {kind: score_messages(benchmark, item, ["a word", "another word"]) for kind, item in items.items()}
    assert {kind: (score.views["rating_1"], score.views["rating_2"]) for kind, score in scores.items()} == {
        "math": (10.0, 4.0),
        "writing": (7.0, 4.0),
    }
    assert scores["math"].value == pytest.approx((9 / 9 + 3 / 9) / 2)
    assert score_messages(benchmark, items["math"], ["xyzzy", "xyzzy"]).value == 0.0


def test_without_a_judge_the_verdict_is_missing_and_never_zero(tmp_path):
    benchmark = load(tmp_path)
    score = score_messages(benchmark, benchmark.items(Split.DEV, 1, None)[0], ["a", "b"])
    assert (score.value, score.fault) == (None, Fault.JUDGE) and "write judge.yaml with model: MODEL" in score.reason


def test_a_question_of_one_turn_is_refused_with_its_place(tmp_path):
    benchmark = load(tmp_path)
    (tmp_path / "question.jsonl").write_text(json.dumps({"question_id": 1, "category": "x", "turns": ["one"]}) + "\n")
    with pytest.raises(ConfigError, match=r"question.jsonl:1: field 'turns' is not a list of 2 texts"):
        benchmark.items(Split.DEV, 1, None)
