"""The page about scorers, followed to the letter."""

import re
from pathlib import Path

import pytest

from agent2.benchmarks import load_benchmark
from agent2.cards.judgement import read_judgement
from agent2.cards.reader import read_summary
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.rescoring import judge_cards
from agent2.evaluation.runner import evaluate
from agent2.evaluation.scoring import score_played
from agent2.models.sources import ScriptedSampler
from agent2.records import Item, Rollout, RolloutStatus, Split, StopReason, Turn, Usage
from agent2.scorers.python_tests import read_tests

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-scorer.md"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The names that the blocks of the page define, run in a folder with a card."""
    monkeypatch.chdir(tmp_path)
    benchmark = load_benchmark("arithmetic")
    items = benchmark.items(Split.DEV, 10, None)
    references = {item.prompt: item.reference for item in items}
    plan = EvaluationPlan(benchmark, Split.DEV, items, "scripted", "c" * 64, "t" * 64, "none")
    sampler = ScriptedSampler(lambda messages: f"It is {references[messages[-1].content]}, I think.")
    evaluate(plan, sampler, tmp_path / "card")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)
    return names


def test_every_block_of_the_page_runs_and_does_what_it_says(page, tmp_path):
    assert read_summary(tmp_path / "card").score.value == 0.0
    assert read_summary(tmp_path / "card-contains").score.value == 1.0
    found = page["Contains"]().score(Item("i", Split.DEV, "?"), None)
    assert found.value is None and found.fault is not None
    assert len(read_tests(page["item_payload"]["tests"])) == 3
    turn = Turn("yes", None, StopReason.END, 0, 0)
    rollout = Rollout("i", 0, 0, RolloutStatus.COMPLETED, [], [turn], "yes", {}, Usage())
    (record,) = score_played([(Item("i", Split.DEV, "?"), rollout)], page["Judge"]())
    assert record.score.value == 1.0
    judge_cards(tmp_path / "card", tmp_path / "card", tmp_path / "judged", page["Shorter"]())
    assert read_judgement(tmp_path / "judged").n_ties == 10


def test_the_evaluation_that_is_a_test_passes_with_a_model_that_adds_and_fails_with_one_that_does_not(page):
    with pytest.raises(AssertionError):
        page["test_the_model_still_adds"]()
    right = {item.prompt: item.reference for item in load_benchmark("arithmetic").items(Split.DEV, 10, None)}
    page["my_model"] = right.__getitem__
    page["test_the_model_still_adds"]()
