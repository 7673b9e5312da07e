"""Pairs of answers on small files of our own in the official layouts."""

import json

import pytest

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_messages
from agent2.records import Split

SECRET = b"s" * 32


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def every(benchmark):
    return [item for split in Split for item in benchmark.items(split, benchmark.count(split, SECRET), SECRET)]


def accuracy(benchmark, items, answer):
    values = [score_messages(benchmark, item, [answer(item)]).value for item in items]
    return sum(values) / len(values)


def reward_rows(n):
    subsets = ["alpacaeval-easy", "mt-bench-hard", "donotanswer", "math-prm", "hep-go", "a-new-subset"]
    return [
        {"id": k, "prompt": f"Say {k}.", "chosen": f"It is {k}.", "rejected": "No.", "subset": subsets[k % 6]}
        for k in range(n)
    ]


def test_reward_bench_asks_for_the_chosen_answer_in_a_hashed_order(tmp_path):
    write_lines(tmp_path / "filtered.jsonl", reward_rows(120))
    benchmark = load_benchmark("reward_bench", tmp_path)
    items = every(benchmark)
    assert len(items) == 120
    kinds = {item.payload["task_type"] for item in items}
    assert kinds == {"Chat", "Chat Hard", "Safety", "Reasoning: math", "Reasoning: code", "a-new-subset"}
    for item in items[:5]:
        assert item.payload["options"]["AB".index(item.reference)].startswith("It is")
    assert accuracy(benchmark, items, lambda item: f"Because. The answer is ({item.reference})") == 1.0
    assert 0.35 < accuracy(benchmark, items, lambda item: "The answer is (A)") < 0.65
    assert accuracy(benchmark, items, lambda item: "Both are good.") == 0.0


def test_an_answer_of_own_pairs_may_be_a_chat_and_a_pair_that_comes_twice_is_refused(tmp_path):
    chat = [{"role": "user", "content": "Hello?"}]
    rows = [
        {
            "prompt": chat,
            "chosen": [*chat, {"role": "assistant", "content": f"Hello {k}."}],
            "rejected": [*chat, {"role": "assistant", "content": "Go away."}],
            "segment": "shop" if k % 2 else "bank",
        }
        for k in range(8)
    ]
    write_lines(tmp_path / "preferences.jsonl", rows)
    items = every(load_benchmark("preferences_internal", tmp_path))
    assert {item.payload["task_type"] for item in items} == {"shop", "bank"}
    assert all("Hello?" in item.prompt and "role" not in item.prompt for item in items)
    write_lines(tmp_path / "preferences.jsonl", [*rows, rows[0]])
    with pytest.raises(ConfigError, match=r"preferences.jsonl:9: id .* also appears at .*:1"):
        every(load_benchmark("preferences_internal", tmp_path))


@pytest.mark.parametrize("missing", ["chosen", "rejected", "prompt"])
def test_a_pair_without_one_of_its_texts_is_refused(tmp_path, missing):
    rows = reward_rows(4)
    del rows[2][missing]
    write_lines(tmp_path / "filtered.jsonl", rows)
    with pytest.raises(ConfigError, match=r"filtered.jsonl:3: field '(pair|question)' is missing"):
        every(load_benchmark("reward_bench", tmp_path))


def test_judge_bench_and_llmbar_keep_the_order_of_the_file(tmp_path):
    judged = [
        {
            "pair_id": f"p{k}",
            "source": "mmlu-pro-law" if k % 2 else "livecodebench",
            "question": f"Question {k}?",
            "response_A": "first",
            "response_B": "second",
            "label": "A>B" if k % 2 else "B>A",
        }
        for k in range(8)
    ]
    write_lines(tmp_path / "dataset=judgebench,response_model=x.jsonl", judged)
    items = every(load_benchmark("judge_bench", tmp_path))
    assert {(item.payload["task_type"], item.reference) for item in items} == {("knowledge", "A"), ("coding", "B")}
    (tmp_path / "Natural").mkdir()
    pairs = [{"input": f"Do {k}.", "output_1": "done", "output_2": "no", "label": 1 + k % 2} for k in range(8)]
    (tmp_path / "Natural" / "dataset.json").write_text(json.dumps(pairs))
    assert sorted(item.reference for item in every(load_benchmark("llmbar", tmp_path))) == ["A"] * 4 + ["B"] * 4
    write_lines(tmp_path / "dataset=judgebench,response_model=x.jsonl", [judged[0] | {"label": "A=B"}])
    with pytest.raises(ConfigError, match="field 'better' is missing"):
        every(load_benchmark("judge_bench", tmp_path))
