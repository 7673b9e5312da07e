"""The packages themselves, where they are installed below `$AGENT2_BRIDGES_HOME`."""

import json
import os
from pathlib import Path

import pytest

from agent2.benchmarks import load_benchmark
from agent2.evaluation.check import play_items
from agent2.records import Rollout, RolloutStatus, Split, Usage

HOME = os.environ.get("AGENT2_BRIDGES_HOME")
SECRET = b"s" * 32
SUMS = """task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "Question: {{input}}\\nAnswer:"
doc_to_target: "{{target}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 16}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
INSPECT = """from inspect_ai import Task, task
from inspect_ai.dataset import json_dataset
from inspect_ai.scorer import match
from inspect_ai.solver import generate, system_message


@task
def sums():
    return Task(dataset=json_dataset("sums.jsonl"), solver=[system_message("Be brief."), generate()], scorer=match())
"""
VERIFIERS = """import json
import verifiers as vf
from datasets import Dataset


def load_environment():
    with open("sums.jsonl") as file:
        rows = [json.loads(line) for line in file]
    dataset = Dataset.from_list([{"question": row["input"], "answer": row["target"]} for row in rows])
    parser = vf.XMLParser(["answer"])

    def right(completion, answer, parser, **kwargs):
        return float(parser.parse_answer(completion) == answer)

    rubric = vf.Rubric([right, parser.get_format_reward_func()], [1.0, 0.0], parser=parser)
    return vf.SingleTurnEnv(dataset=dataset, system_prompt="Be brief.", parser=parser, rubric=rubric)
"""

pytestmark = [pytest.mark.slow]


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Loads a benchmark of a bridge that is installed, and ends its process."""
    benchmarks = []

    def load(name):
        bridge = name.partition(":")[0]
        if HOME is None or not (Path(HOME) / "bridges" / bridge / "agent2-bridge.json").is_file():
            pytest.skip(f"bridge {bridge} is not installed below $AGENT2_BRIDGES_HOME")
        monkeypatch.setenv("AGENT2_HOME", HOME)
        benchmarks.append(load_benchmark(name))
        return benchmarks[-1]

    yield load
    for benchmark in benchmarks:
        benchmark.close()


def values(benchmark, items, messages):
    rollouts = [
        Rollout(item.id, 0, 0, RolloutStatus.COMPLETED, [], [], message, {"answer": message}, Usage())
        for item, message in zip(items, messages, strict=True)
    ]
    return [score.value for score in benchmark.scorer().score_batch(list(zip(items, rollouts, strict=True)))]


@pytest.mark.parametrize("generator", ["leg_counting", "chain_sum", "family_relationships", "prime_factorization"])
def test_two_processes_make_the_same_items_and_take_their_references(play, generator):
    first, second = play(f"reasoning_gym:{generator}"), play(f"reasoning_gym:{generator}")
    for split in Split:
        items = first.items(split, 5, SECRET)
        assert items == second.items(split, 5, SECRET)
        assert values(second, items, [item.reference for item in items]) == [1.0] * 5
        assert values(second, items, ["<answer>zzz</answer>"] * 5) == [0.0] * 5
        assert values(second, items, ["zzz"] * 5) == [0.0] * 5


@pytest.mark.parametrize(
    "name", ["bfcl:multi_turn_base", "bfcl:multi_turn_miss_func", "tau2:telecom", "miniwob:twenty"]
)
def test_episodes_of_expected_calls_score_one_and_those_without_calls_nothing(play, name):
    benchmark = play(name)
    items = benchmark.items(Split.TEST_PUBLIC, 5, SECRET)
    expected = play_items(benchmark, items, lambda item, world, chat: world.ask_expert())
    silent = play_items(benchmark, items, lambda item, world, chat: "")
    assert [record.score.value for record in expected] == [1.0] * 5
    assert [record.score.value for record in silent] == [0.0] * 5


@pytest.mark.parametrize(
    ("name", "text"),
    [("lm-eval:sums.yaml", SUMS), ("inspect:sums.py", INSPECT), ("verifiers:sums.py", VERIFIERS)],
)
def test_a_task_of_a_file_takes_its_references_and_no_other_answer(play, tmp_path, monkeypatch, name, text):
    folder = tmp_path / "tasks"
    folder.mkdir()  # readable by the sandbox's user, unlike tmp_path
    monkeypatch.chdir(folder)
    Path(name.partition(":")[2]).write_text(text)
    rows = [{"input": f"What is {number} + 1?", "target": str(number + 1)} for number in range(30)]
    Path("sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmark = play(name)
    items = benchmark.items(Split.TEST_PUBLIC, 5, SECRET)
    assert values(benchmark, items, [item.reference for item in items]) == [1.0] * 5
    assert values(benchmark, items, ["zzz"] * 5) == [0.0] * 5
