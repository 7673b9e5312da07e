"""MATH, MATH-500 and private problems on small files of our own in the official layouts."""

import json

import pytest

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.records import Split

SECRET = b"s" * 32


def problem(number):
    solution = rf"Half of {number} is $\frac{{{number}}}{{2}}$, so $\boxed{{\frac{{{number}}}{{2}}}}$."
    return {"problem": f"Half of {number}?", "level": "Level 1", "type": "Algebra", "solution": solution}


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_math_reads_one_file_for_each_problem_and_takes_the_box(tmp_path):
    for portion, start in (("train", 1), ("test", 101)):
        for k in range(20):
            path = tmp_path / portion / "algebra" / f"{k}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(problem(start + k)))
    benchmark = load_benchmark("math", tmp_path)
    counts = [benchmark.count(split, SECRET) for split in Split]
    assert dict(zip(Split, counts, strict=True)) == {
        Split.TRAIN: 18,
        Split.DEV: 2,
        Split.TEST_PUBLIC: 10,
        Split.TEST_PRIVATE: 10,
    }
    item = benchmark.items(Split.DEV, 1, None)[0]
    number = int(item.prompt.split("?")[0].split()[-1])
    assert item.payload["task_type"] == "Algebra" and r"within \boxed{}" in item.prompt
    right, unboxed = rf"so \boxed{{{number / 2}}}", rf"so {number}/2"
    assert [score_messages(benchmark, item, [text]).value for text in (right, unboxed, r"\boxed{0}")] == [1, 0, 0]


def test_math_500_has_its_answers_in_a_field(tmp_path):
    rows = [problem(k) | {"answer": rf"\frac{{{k}}}{{2}}", "subject": "Algebra"} for k in range(1, 11)]
    write_lines(tmp_path / "test.jsonl", rows)
    benchmark = load_benchmark("math_500", tmp_path)
    item = benchmark.items(Split.DEV, 1, None)[0]
    assert score_messages(benchmark, item, [item.reference]).value == 1.0
    assert benchmark.count(Split.DEV, None) == 2 and "+" in benchmark.version


def test_a_private_set_has_whole_numbers_and_another_answer_is_refused(tmp_path):
    rows = [{"question": f"What is {k} + 1?", "answer": k + 1} for k in range(10)]
    write_lines(tmp_path / "test.jsonl", rows)
    benchmark = load_benchmark("aime_private", tmp_path)
    item = benchmark.items(Split.DEV, 1, None)[0]
    assert [score_messages(benchmark, item, [text]).value for text in (r"\boxed{005}", r"\boxed{6}")] == [1, 0]
    write_lines(tmp_path / "test.jsonl", [*rows, {"question": "Half?", "answer": "1/2"}])
    with pytest.raises(ConfigError, match=r"test.jsonl:11: the answer '1/2' is not a whole number"):
        load_benchmark("aime_private", tmp_path).count(Split.DEV, None)
