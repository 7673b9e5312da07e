"""Suite evaluations of real models: in this process, and behind a real server."""

from dataclasses import replace

import pytest

from agent2.analysis.outcome import read_outcome
from agent2.cards.reader import iter_rollouts
from agent2.evaluation.suite_plan import SuiteRequest
from agent2.evaluation.suite_run import run_suite
from agent2.models.sources import LoadSettings, find_checkpoint
from agent2.records import Item
from model_builders import make_model
from served_fakes import transformers_serve
from suite_fakes import Sums, make_suite

N_ITEMS, N_ATTEMPTS = 125, 4
CHANGES = (
    ("temperature: 0.0", "temperature: 1.0"),
    ("n: 1, max_tokens: 16", f"n: {N_ATTEMPTS}, max_tokens: 4"),
    ("{split: dev, n_items: 100}", f"{{split: dev, n_items: {N_ITEMS}}}"),
    ("metric: sums_accuracy, n_items: 60", f"metric: sums_accuracy, n_items: {N_ITEMS}"),
    ("metric: doubles_accuracy\n    n_items: 60", f"metric: doubles_accuracy\n    n_items: {N_ITEMS}"),
    ("at_least: 0.3", "at_least: 0.0"),
)  # fmt: skip


class Digits(Sums):
    """Sums that the small model has read about, so that its answers are short and uncertain."""

    def item(self, item_id, split, number):
        a, b = number % 10, number // 10 % 10
        return Item(item_id, split, f"{a} + {b}", str(a + b))


class MoreDigits(Digits):
    name = "doubles"


def find_benchmark(name):
    return {"sums": Digits, "doubles": MoreDigits}[name]()


def actions(out, outcome):
    return {
        (card, record.rollout.item_id, record.rollout.attempt): [turn.action for turn in record.rollout.turns]
        for benchmark in outcome.benchmarks
        for card in benchmark.cards.values()
        for record in iter_rollouts(out / card)
    }


@pytest.mark.slow
@pytest.mark.thorough
def test_an_hf_evaluation_that_was_interrupted_differs_in_at_most_one_rollout_of_a_thousand(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    settings = LoadSettings(device="cpu")
    old = find_checkpoint(str(make_model(tmp_path / "old", steps=30)), settings)
    new = find_checkpoint(str(make_model(tmp_path / "new", steps=60)), settings)
    whole = SuiteRequest(make_suite(tmp_path, *CHANGES), old, new, tmp_path / "whole", find_benchmark=find_benchmark)
    cut = replace(whole, out=tmp_path / "cut")

    def stop(message, done=None, total=None):
        if done == 333:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_suite(cut, stop)
    with pytest.raises(KeyboardInterrupt):
        run_suite(cut, lambda message, done=None, total=None: stop(message, done) if "baseline" in message else None)
    actions_by_run = {}
    for request in (whole, cut):
        run_suite(request)
        outcome = read_outcome(request.out)
        actions_by_run[request.out.name] = actions(request.out, outcome)
        assert {
            benchmark.summaries[side].n_missing for benchmark in outcome.benchmarks for side in benchmark.cards
        } == {0}
    differing = [
        key for key, rollout_actions in actions_by_run["whole"].items() if actions_by_run["cut"][key] != rollout_actions
    ]
    assert len(actions_by_run["whole"]) == 4 * N_ITEMS * N_ATTEMPTS == 2000
    assert len(differing) <= 2, differing
    assert len({tuple(rollout_actions) for rollout_actions in actions_by_run["whole"].values()}) > 5, "the draws vary"


@pytest.mark.slow
@pytest.mark.thorough
def test_a_suite_is_evaluated_against_a_real_server(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))
    model = make_model(tmp_path / "model", steps=200)
    greedy = (("n_items: 60, scorer", "n_items: 20, scorer"), ("at_least: 0.3", "at_least: 0.0"))
    suite = make_suite(tmp_path, *greedy, ("max_tokens: 16", "max_tokens: 4"), ("margin: 0.2", "margin: 0.4"))
    with transformers_serve(model, tmp_path) as url:
        source = find_checkpoint(f"{url}#{model}")
        request = SuiteRequest(suite, source, source, tmp_path / "e", find_benchmark=find_benchmark)
        run_suite(request)
    outcome = read_outcome(request.out)
    cards = [benchmark.summaries[side] for benchmark in outcome.benchmarks for side in benchmark.cards]
    assert [card.n_missing for card in cards] == [0, 0, 0, 0]
    assert all(card.completion_tokens > 0 for card in cards)
    numbers = outcome.evidence.metrics["sums_accuracy"]
    assert numbers.old == numbers.new, "greedy answers of one model"
    assert any("the server's word" in caveat for caveat in outcome.identity.sides["baseline"].caveats)
