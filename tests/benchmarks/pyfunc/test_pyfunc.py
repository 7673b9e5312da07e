"""Generated functions: what they say, their tests, who brackets them, and mutants."""

import numpy as np
import pytest

from agent2.arena.spec import SplitSizes
from agent2.arena.task_check import check_task
from agent2.arena.tasks import load_task
from agent2.benchmarks import load_benchmark
from agent2.benchmarks.pyfunc import (
    FAMILIES,
    GeneratedFunction,
    Pyfunc,
    draw_inputs,
    mutants,
    repeat_examples,
    to_item,
    wrong_answers,
)
from agent2.benchmarks.recipes.pyfunc import PyfuncCorpus, corpus_chats, grammar_pieces
from agent2.errors import ConfigError
from agent2.evaluation.engine import score_answers
from agent2.records import Split

SECRET = b"s" * 32
SCALED = GeneratedFunction("lists", ((0, 4), (4, 3)), 1)


def test_a_function_says_in_words_what_its_lines_do():
    assert SCALED.docstring == "Take xs, keep the items above 4, multiply each item by 3, return the sum."
    assert SCALED.body == "    xs = [x for x in xs if x > 4]\n    xs = [x * 3 for x in xs]\n    return sum(xs)"
    assert SCALED.values([([5, 1, 7],), ([],)]) == [36, 0]
    grows = GeneratedFunction("recursion", ((3, 2), (0, None)), 5)
    assert grows.docstring == "At 0 return 5. Else take the value at n - 1, multiply by 2, add n."
    assert grows.values([(0,), (1,), (2,)]) == [5, 11, 24]
    assert GeneratedFunction("strings", ((6, "ab"), (0, None)), 1).values([("xyz",)]) == [5]


def test_sample_tests_are_shown_and_hidden_and_variant_ones_have_other_inputs():
    item = to_item(SCALED, "one", Split.TRAIN)
    sample = [test.removeprefix("assert ").split(" == ") for test in item.payload["sample_tests"]]
    assert all(f">>> {call}\n    {value}" in item.prompt for call, value in sample)
    hidden = [*item.payload["tests"], *item.payload["variant_tests"]]
    assert (len(sample), len(item.payload["tests"]), len(item.payload["variant_tests"])) == (2, 4, 3)
    assert not any(test.removeprefix("assert ").split(" == ")[0] in item.prompt for test in hidden)
    assert "assert solve([]) == 0" in item.payload["variant_tests"]
    assert to_item(SCALED, "one", Split.TRAIN) == item


@pytest.mark.parametrize("family", FAMILIES)
def test_mutants_differ_from_the_function_on_some_input(family):
    rng = np.random.default_rng(0)
    draw = Pyfunc(families=[family]).source.draw
    for _ in range(10):
        function = draw(rng)
        wrong = mutants(function, rng, 4)
        assert wrong and len({mutant.body for mutant in wrong}) == len(wrong)
        tried = [*draw_inputs(family, 5, rng), *draw_inputs(family, 5, rng, is_variant=True)]
        assert all(mutant.body != function.body for mutant in wrong)
        assert len(function.values(tried)) == 10


def test_the_difficulty_is_the_number_of_steps():
    for name, allowed in (("pyfunc", {2, 3}), ("pyfunc_hard", {4})):
        items = load_benchmark(name).items(Split.TRAIN, 60, None)
        assert {len(item.payload["made_of"]["steps"]) for item in items} == allowed
        assert {item.payload["task_type"] for item in items} == set(FAMILIES)
    for wrong in ({"n_steps": (0,)}, {"n_steps": (5,)}, {"families": ("poetry",)}):
        with pytest.raises(ConfigError, match="pyfunc"):
            Pyfunc(**wrong)


def test_splits_are_disjoint_and_large_enough_for_the_task():
    benchmark, sizes = load_benchmark("pyfunc"), load_task("pyfunc").n_items
    bodies = [{item.reference for item in benchmark.items(split, sizes[split], SECRET)} for split in Split]
    assert sum(map(len, bodies)) == len(set().union(*bodies)) == sum(sizes[split] for split in Split)


@pytest.mark.slow
def test_the_reference_passes_and_mutants_and_the_repeated_examples_do_not():
    items = load_benchmark("pyfunc").items(Split.DEV, 8, None)
    right = score_answers(Pyfunc(), [(item, [item.reference]) for item in items])
    assert [score.value for score in right] == [1.0] * 8
    tricks = score_answers(Pyfunc(), [(item, [repeat_examples(item, [])]) for item in items])
    assert [score.value for score in tricks] == [0.0] * 8
    assert all("only_sample_tests_pass" in score.labels for score in tricks)
    wrong = score_answers(Pyfunc(), [(item, [answer]) for item in items for answer in wrong_answers(item)])
    assert len(wrong) > 20 and sum(score.value == 0.0 for score in wrong) >= 0.9 * len(wrong)


@pytest.mark.slow
def test_the_task_passes_its_check_which_prints_the_detection_rate(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    few = SplitSizes(train=6, dev=6, test_public=6, test_private=6)
    task = load_task("pyfunc").model_copy(update={"n_items": few})
    progress_calls = []
    findings = {
        finding.name: finding for finding in check_task(task, None, lambda *progress: progress_calls.append(progress))
    }
    assert [name for name, finding in findings.items() if finding.ok is not True] == []
    mutants = [(done, total) for check, done, total in progress_calls if check == "answers that are known to be wrong"]
    assert len(mutants) > 24 and mutants[-1][0] == mutants[-1][1] > mutants[0][0]
    assert "floor: a player that hard-codes the sample tests" in findings
    assert "detection rate" in findings["verifier: known-wrong answers are detected"].detail


@pytest.mark.slow
def test_a_verifier_that_accepts_what_the_examples_accept_fails_the_check(tmp_path, monkeypatch):
    """Without its hidden tests the benchmark lets the trick through and detects too little."""
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))

    class Careless(Pyfunc):
        def items(self, split, n, secret):
            drawn_items = super().items(split, n, secret)
            for item in drawn_items:
                first = item.payload["sample_tests"][:1]
                item.payload.update(sample_tests=first, tests=first, variant_tests=[])
            return drawn_items

    few = SplitSizes(train=6, dev=6, test_public=6, test_private=6)
    findings = check_task(load_task("pyfunc").model_copy(update={"n_items": few}), Careless())
    failed = {finding.name for finding in findings if finding.ok is False}
    assert {"floor: a player that hard-codes the sample tests", "verifier: known-wrong answers are detected"} <= failed


def test_the_corpus_of_the_tiny_base_is_mostly_wrong_and_shows_train_functions_only():
    chats = corpus_chats(PyfuncCorpus(n_chats=300))
    benchmark = Pyfunc()
    references = {item.prompt: item.reference for item in benchmark.items(Split.TRAIN, 4000, None)}
    hidden = {item.prompt for item in benchmark.items(Split.TEST_PRIVATE, 500, SECRET)}
    prompts = [user.content for user, _ in chats]
    assert not hidden & set(prompts)
    is_right = [
        references[user.content] == assistant.content for user, assistant in chats if user.content in references
    ]
    assert len(is_right) > 100 and 0.1 < sum(is_right) / len(is_right) < 0.35
    assert "    xs = [x for x in xs if x > " in grammar_pieces()
