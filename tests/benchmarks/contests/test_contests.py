"""LiveCodeBench on small files of our own in the official layout; programs run in the sandbox."""

import base64
import json
import pickle
import zlib

import pytest

from agent2.benchmarks import load_benchmark
from agent2.benchmarks.contests import AFTER, read_tests
from agent2.errors import ConfigError
from agent2.records import Rollout, RolloutStatus, Split, Usage
from agent2.sandbox.backends import find_sandbox
from agent2.scorers.sandboxed import SandboxRunner

SECRET = b"s" * 32


def packed(tests):
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def row(number, **changes):
    tests = [{"input": f"{k}\n{number}\n", "output": f"{k + number}\n", "testtype": "stdin"} for k in range(3)]
    return {
        "question_title": f"Sum {number}",
        "question_content": f"Add two numbers, one of them {number}.",
        "platform": "atcoder",
        "question_id": f"abc{number}",
        "contest_id": "abc",
        "contest_date": f"2024-0{1 + number % 6}-01T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(tests[:1]),
        "private_test_cases": packed(tests[1:]),
        "metadata": "{}",
    } | changes


def method(number):
    tests = [{"input": f"[1, {number}]\n{k}", "output": json.dumps([1 + k, number + k])} for k in range(2)]
    return row(
        number,
        starter_code="class Solution:\n    def shift(self, values: List[int], by: int) -> List[int]:\n        ",
        public_test_cases=json.dumps(tests[:1]),
        private_test_cases=json.dumps(tests[1:]),
        metadata=json.dumps({"func_name": "shift"}),
    )


def load(folder, rows):
    (folder / "test.jsonl").write_text("".join(json.dumps(values) + "\n" for values in rows))
    return load_benchmark("livecodebench", folder)


def every(benchmark):
    return [item for split in Split for item in benchmark.items(split, benchmark.count(split, SECRET), SECRET)]


def rollout(item, answer):
    return Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, (), (), answer, {}, Usage())


def test_programs_and_methods_are_judged_by_all_tests(tmp_path):
    benchmark = load(tmp_path, [row(1), row(2), method(3), method(4)])
    items = {item.id: item for item in every(benchmark)}
    reads, fills = items["livecodebench-abc1"], items["livecodebench-abc3"]
    assert (
        "standard input" in reads.prompt and "class Solution" in fills.prompt and reads.payload["task_type"] == "easy"
    )
    answers = [
        (reads, "```python\na = int(input())\nprint(a + int(input()))\n```", 1.0),
        (
            reads,
            "```python\nimport sys\nprint(float(sum(map(int, sys.stdin.buffer.read().split()))))\nexit()\n```",
            1.0,
        ),
        (reads, "```python\nprint(1)\n```", 0.0),
        (reads, "```python\nprint(int(input())\n```", 0.0),
        (
            fills,
            "```python\nclass Solution:\n    def shift(self, v: List[int], by):\n        return [k + by for k in v]\n",
            1.0,
        ),
        (fills, "```python\nclass Solution:\n    def shift(self, v, by):\n        return v\n```", 0.0),
    ]
    batch = [(item, rollout(item, answer)) for item, answer, _ in answers]
    scores = benchmark.scorer().score_batch_on(SandboxRunner(find_sandbox(), tmp_path), batch)
    assert [score.value for score in scores] == [value for *_, value in answers], [s.reason for s in scores]
    assert scores[2].views["sample_passed"] == 1.0 and "only_sample_tests_pass" in scores[2].labels


def test_problems_before_a_day_are_left_out_and_the_version_says_so(tmp_path, monkeypatch):
    rows = [row(k) for k in range(12)]
    whole = load(tmp_path, rows)
    monkeypatch.setenv(AFTER, "2024-04-01")
    newer = load(tmp_path, rows)
    assert (len(every(whole)), len(every(newer))) == (12, 6)
    assert newer.version == f"{whole.version}+from-2024-04-01"
    monkeypatch.setenv(AFTER, "2025-01-01")
    with pytest.raises(ConfigError, match="the newest problem is of 2024-06-01; bring newer files"):
        every(load(tmp_path, rows))
    monkeypatch.setenv(AFTER, "April")
    with pytest.raises(ConfigError, match=r"LIVECODEBENCH_AFTER is 'April'; set it to a day"):
        load(tmp_path, rows)


class Hostile:
    def __reduce__(self):
        return (print, ("it ran",))


def test_a_pickle_that_would_run_something_is_refused(tmp_path, capsys):
    text = base64.b64encode(zlib.compress(pickle.dumps(Hostile()))).decode()
    with pytest.raises(ValueError, match=r"it names builtins.print, and only a text is expected"):
        read_tests(text)
    assert "it ran" not in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"test.jsonl:1: its tests .*; restore the file"):
        every(load(tmp_path, [row(1, private_test_cases=text)]))
    with pytest.raises(ConfigError, match=r"test.jsonl:1: its tests are no list of input and output"):
        every(load(tmp_path, [row(1, private_test_cases="[1]")]))
