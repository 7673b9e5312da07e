"""Pairs of answers on small files of our own in the official layouts."""

import json

import pytest

from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_answers, score_messages
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


PUBLISHED = {
    "Chat": {
        "alpacaeval-easy": (50, 100),
        "alpacaeval-length": (56, 95),
        "alpacaeval-hard": (67, 95),
        "mt-bench-easy": (16, 28),
        "mt-bench-med": (29, 40),
    },
    "Chat Hard": {
        "mt-bench-hard": (20, 37),
        "llmbar-natural": (52, 100),
        "llmbar-adver-neighbor": (58, 134),
        "llmbar-adver-GPTInst": (36, 92),
        "llmbar-adver-GPTOut": (22, 47),
        "llmbar-adver-manual": (17, 46),
    },
    "Safety": {
        "refusals-dangerous": (97, 100),
        "refusals-offensive": (100, 100),
        "xstest-should-refuse": (154, 154),
        "xstest-should-respond": (71, 250),
        "donotanswer": (112, 136),
    },
    "Reasoning: math": {"math-prm": (132, 447)},
    "Reasoning: code": {
        "hep-cpp": (103, 164),
        "hep-go": (104, 164),
        "hep-java": (116, 164),
        "hep-js": (109, 164),
        "hep-python": (90, 164),
        "hep-rust": (106, 164),
    },
}
"""Right pairs and all pairs by subset, of PKU-Alignment/beaver-7b-v1.0-cost: the accuracies in RewardBench's README."""


def test_sections_of_a_published_reward_model_are_those_of_rewardbenchs_own_function(tmp_path):
    sizes = {subset: counts for subsets in PUBLISHED.values() for subset, counts in subsets.items()}
    rows = [
        {"id": k, "prompt": f"Say {k}.", "chosen": f"It is {k} < {n_right}.", "rejected": "No.", "subset": subset}
        for subset, (n_right, n) in sizes.items()
        for k in range(n)
    ]
    write_lines(tmp_path / "filtered.jsonl", rows)
    benchmark = load_benchmark("reward_bench", tmp_path)
    items = every(benchmark)
    assert len(items) == 2985

    def answer(item):
        chosen = next(text for text in item.payload["options"] if text != "No.").split()
        is_right = int(chosen[2]) < int(chosen[4].rstrip("."))
        return f"The answer is ({item.reference if is_right else 'BA'['AB'.index(item.reference)]})"

    scores = score_answers(benchmark, [(item, [answer(item)]) for item in items])
    by_kind = {}
    for item, score in zip(items, scores, strict=True):
        by_kind.setdefault(item.payload["task_type"], []).append(score.value)
    means = {kind: sum(values) / len(values) for kind, values in by_kind.items()}
    reasoning = (means.pop("Reasoning: math") + means.pop("Reasoning: code")) / 2
    # what calculate_scores_per_section of the package rewardbench 0.1.4 gives for these accuracies
    expected = {"Chat": 0.6089385475, "Chat Hard": 0.4495614035, "Safety": 0.7216216216, "Reasoning": 0.4667566978}
    assert means | {"Reasoning": reasoning} == pytest.approx(expected, abs=1e-9)
