"""Length-controlled win rates: what is planted is found, length alone gains nothing, and what is needed is named."""

import json
import sys

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import spearmanr
from typer.testing import CliRunner

from agent2.cards.judgement import length_controlled_of
from agent2.cards.reader import read_summary
from agent2.cli import app
from agent2.errors import CardError, ConfigError, NotEnoughData
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.rescoring import judge_cards
from agent2.evaluation.runner import evaluate
from agent2.models.sources import ScriptedSampler
from agent2.records import Preference, Split
from agent2.stats.length_control import estimate_difficulty, length_controlled, standardised

BIAS = 2.0
"""Of the planted judge, per tanh of a standard deviation of the difference in length."""


def test_the_difference_in_length_is_standardised_by_hand():
    assert standardised([10, 30], [30, 10]) == pytest.approx(np.tanh([20 / np.sqrt(800), -20 / np.sqrt(800)]))
    assert list(standardised([5, 7], [4, 6])) == [0.0, 0.0]  # all differ alike, so length explains nothing


def test_difficulties_are_estimated_from_several_models():
    rng = np.random.default_rng(0)
    hard, slopes = rng.normal(0, 1.2, 300), np.tanh(rng.normal(0, 1, (25, 300)))
    skill, bias = rng.normal(0, 1, (25, 1)), rng.normal(-1, 0.5, (25, 1))
    preferred = expit(skill + bias * slopes + hard)
    noisy = (rng.random(preferred.shape) < preferred).astype(float)
    noisy[rng.random(noisy.shape) < 0.1] = np.nan
    assert spearmanr(estimate_difficulty(preferred, slopes), hard).statistic > 0.99
    assert spearmanr(estimate_difficulty(noisy, slopes), hard).statistic > 0.85
    published = [(float(b), 1.0, float(s)) for b, s in zip(bias[:, 0], skill[:, 0], strict=True)]
    difficulties = estimate_difficulty(preferred, slopes, published)
    assert np.abs(difficulties - hard).mean() < np.abs(estimate_difficulty(preferred, slopes) - hard).mean() + 0.05
    with pytest.raises(NotEnoughData, match="at least two models"):
        estimate_difficulty(preferred[:1], slopes[:1])


def test_too_few_verdicts_and_columns_of_another_length_are_refused():
    with pytest.raises(NotEnoughData, match="49 preferences; at least 50"):
        length_controlled([0.5] * 49 + [np.nan] * 10, range(59), range(59))
    with pytest.raises(ConfigError, match="60 preferences"):
        length_controlled([0.5] * 60, range(60), range(60), [0.0])


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ConfigError, match="install the extra winrate"):
        length_controlled([0.5] * 60, range(60), range(1, 61))


class Biased:
    """Prefers what is longer, by a logistic curve, and what says "good"."""

    name, version = "biased", "1.0"

    def __init__(self, spread):
        self._spread = spread

    def prefer(self, item, first, second):
        by_length = BIAS * np.tanh((len(first.answer) - len(second.answer)) / self._spread)
        by_word = 1.5 * (first.answer.count("good") - second.answer.count("good"))
        return Preference(float(expit(by_length + by_word)), "planted")


def card(folder, answer, n=120):
    """Answers to arithmetic items, by the item's number."""
    from agent2.benchmarks import load_benchmark

    benchmark = load_benchmark("arithmetic")
    items = benchmark.items(Split.DEV, n, None)
    number = {item.prompt: place for place, item in enumerate(items)}
    sampler = ScriptedSampler(lambda messages: answer(number[messages[-1].content]))
    plan = EvaluationPlan(benchmark, Split.DEV, items, folder.name, folder.name, "none", "float32")
    evaluate(plan, sampler, folder)
    return folder


LENGTHS = np.random.default_rng(1).integers(40, 160, size=(2, 120))


def judged(tmp_path, name, answer):
    old = tmp_path / "old"
    if not old.exists():
        card(old, lambda n: "x" * LENGTHS[0, n])
    new = card(tmp_path / name, answer)
    spread = np.std([len(answer(n)) - LENGTHS[0, n] for n in range(120)], ddof=1)
    judge_cards(old, new, tmp_path / f"judged-{name}", Biased(spread))
    return tmp_path / f"judged-{name}"


def test_an_optimiser_that_only_lengthens_its_answers_gains_nothing(scikit_learn, tmp_path):
    before = judged(tmp_path, "before", lambda n: "x" * LENGTHS[1, n])
    after = judged(tmp_path, "after", lambda n: "x" * (LENGTHS[1, n] + 60))
    good = judged(tmp_path, "good", lambda n: ("good " + "x" * LENGTHS[1, n])[: LENGTHS[1, n]])
    assert read_summary(after).score.value > read_summary(before).score.value + 0.15
    shorter, longer, better = length_controlled_of([before, after, good])
    assert longer.raw == pytest.approx(read_summary(after).score.value)
    assert abs(longer.rate.value - shorter.rate.value) < 0.03 and abs(longer.rate.value - 0.5) < 0.03
    assert better.rate.value > 0.7  # quality is not taken away
    (alone,) = length_controlled_of([after])
    assert alone.difficulty is None and abs(alone.rate.value - 0.5) < 0.03 and alone.length > 1.0


def test_the_interval_covers_the_planted_rate_with_and_without_a_difficulty(scikit_learn):
    rng, covered = np.random.default_rng(1), 0
    for trial in range(20):
        ours, theirs, hard = rng.normal(0, 1, 150), rng.normal(0.3, 1, 150), rng.normal(0, 1, 150) * (trial % 2)
        quality, slope = 0.4 + hard, -standardised(ours, theirs)
        preferred = (rng.random(150) < expit(quality + 1.5 * slope)).astype(float)
        rate = length_controlled(preferred, ours, theirs, hard if trial % 2 else None).rate
        assert rate.low < rate.value < rate.high
        covered += rate.low <= expit(quality).mean() <= rate.high
    assert covered >= 16


def test_cards_of_other_items_or_without_lengths_are_refused(tmp_path):
    judged_card = judged(tmp_path, "one", lambda n: "x" * LENGTHS[1, n])
    with pytest.raises(CardError, match="has no lengths of two answers"):
        length_controlled_of([tmp_path / "one"])
    few = card(tmp_path / "few", lambda n: "x", n=60)
    judge_cards(few, few, tmp_path / "judged-few", Biased(10.0))
    with pytest.raises(CardError, match="is of other items"):
        length_controlled_of([judged_card, tmp_path / "judged-few"])
    with pytest.raises(CardError, match="difficulty of item"):
        length_controlled_of([judged_card], {"nothing": 1.0})


def test_the_command_prints_a_row_for_each_card_or_names_the_extra(scikit_learn, tmp_path, monkeypatch):
    card = judged(tmp_path, "one", lambda n: "x" * LENGTHS[1, n])
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "sklearn", None)
        refused = CliRunner().invoke(app, ["cards", "length-control", str(card)])
    assert isinstance(refused.exception, ConfigError) and "install the extra winrate" in str(refused.exception)
    (tmp_path / "broken.json").write_text("[1]")
    wrong = CliRunner().invoke(
        app, ["cards", "length-control", str(card), "--difficulty", str(tmp_path / "broken.json")]
    )
    assert isinstance(wrong.exception, ConfigError) and "give a JSON object" in str(wrong.exception)
    result = CliRunner().invoke(app, ["cards", "length-control", str(card), "--json"])
    (row,) = json.loads(result.output)
    assert row["card"] == str(card) and 0.3 < row["length_controlled"]["rate"]["value"] < 0.7
    assert "give 3 cards or --difficulty" in CliRunner().invoke(app, ["cards", "length-control", str(card)]).output
