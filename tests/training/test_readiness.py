"""Tiny models: a broken reward, template or skill is told from a base on which RL can start."""

import json

import numpy as np
import pytest
from datasets import are_progress_bars_disabled
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging
from typer.testing import CliRunner

from agent2.benchmarks import BASE_MODELS
from agent2.benchmarks.arithmetic import Arithmetic, ExpressionDifficulty
from agent2.benchmarks.home import with_scorer
from agent2.cli import app
from agent2.errors import ConfigError
from agent2.models.bases import ensure_base_model
from agent2.records import Score, Split
from agent2.training.readiness import ReadinessSettings, gap_of, measure_readiness
from agent2.training.readiness_rules import Advice, load_rules, recommend
from model_builders import make_model

RULES = load_rules()
SMALL = ReadinessSettings(attempts=4, max_in_flight=16)


class AlwaysOne:
    name, version = "always_one", "1.0"

    def score(self, item, rollout):
        return Score(1.0, "everybody is right")


class Coin:
    """Another verdict each time."""

    name, version = "coin", "1.0"
    calls = 0

    def score(self, item, rollout):
        Coin.calls += 1
        is_right = rollout.turns[0].action == item.reference
        return Score(1.0 if is_right else float(bool(rollout.turns[0].action) and Coin.calls % 3 == 0), "a coin")


@pytest.fixture(scope="module")
def tiny_arithmetic():
    return ensure_base_model("tiny-arithmetic", BASE_MODELS)


def measured(folder, benchmark, n_items=8):
    return measure_readiness(folder, benchmark, benchmark.items(Split.TRAIN, n_items, None), SMALL, RULES)


@pytest.mark.slow
def test_a_base_that_solves_some_items_may_start_and_one_that_solves_none_is_to_be_distilled(tiny_arithmetic):
    measures = measured(tiny_arithmetic, Arithmetic(), 16)
    assert recommend(measures, RULES).advice is Advice.READY
    assert measures["sampler_gap"].value < 1e-3 and measures["parameters_without_gradient"].value == 0
    assert measures["reference_score"].value == 1.0 and measures["nonsense_score"].value == 0.0
    hard = Arithmetic(ExpressionDifficulty(n_operations=4, max_operand=900, operators="*+-"))
    assert recommend(measured(tiny_arithmetic, hard), RULES).advice is Advice.DISTILL


@pytest.mark.slow
def test_a_reward_that_pays_everybody_or_flips_a_coin_is_broken(tiny_arithmetic):
    paid = recommend(measured(tiny_arithmetic, with_scorer(Arithmetic(), AlwaysOne())), RULES)
    assert (paid.advice, paid.rule) == (Advice.REWARD, "nonsense")
    assert paid.figures == {"nonsense_score": 1.0}
    flipped = recommend(measured(tiny_arithmetic, with_scorer(Arithmetic(), Coin())), RULES)
    assert flipped.advice is Advice.REWARD


@pytest.mark.slow
def test_an_untrained_model_lacks_the_format_and_a_template_that_drops_the_question_is_named(tmp_path):
    base = make_model(tmp_path / "base")
    assert recommend(measured(base, Arithmetic()), RULES).advice is Advice.SFT
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = "{% for message in messages %}[{{ message['role'] }}]{{ eos_token }}{% endfor %}"
    tokenizer.save_pretrained(base)
    recommendation = recommend(measured(base, Arithmetic()), RULES)
    assert (recommendation.advice, recommendation.rule) == (Advice.PIPELINE, "template")


@pytest.mark.slow
def test_a_template_that_fails_without_a_word_is_named_too(tmp_path):
    base = make_model(tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = "{{ raise_exception('') }}"
    tokenizer.save_pretrained(base)
    shown = measured(base, Arithmetic())["template_shows_prompt"]
    assert shown.value == 0.0 and shown.note == "the chat template fails: TemplateError"


def test_nothing_to_play_and_models_without_weights_are_refused():
    with pytest.raises(ConfigError, match="0 items"):
        measure_readiness("anything", Arithmetic(), [], SMALL, RULES)
    for arguments, message in (
        (["--task", "arithmetic", "--checkpoint", "http://host/v1#m"], "needs weights"),
        (["--task", "gsm8k_nothing"], "gsm8k_nothing"),
    ):
        result = CliRunner().invoke(app, ["readiness", *arguments])
        assert message in str(result.exception)


@pytest.mark.slow
def test_the_command_prints_advice_rule_and_figures_and_writes_them(tmp_path, tiny_arithmetic):
    arguments = ["--task", "arithmetic", "--checkpoint", str(tiny_arithmetic), "--items", "8", "--attempts", "4"]
    bars = transformers_logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    result = CliRunner().invoke(app, ["readiness", *arguments, "--out", str(tmp_path / "out")])
    assert (transformers_logging.is_progress_bar_enabled(), are_progress_bars_disabled()) == bars
    record = json.loads((tmp_path / "out" / "readiness.json").read_text())
    assert record["advice"] in result.stdout and record["rule"] in result.stdout
    assert result.exit_code == (0 if record["advice"] == "RL can start" else 1)
    assert set(record["measures"]) == set(RULES.measures)
    assert all(entry["value"] is not None or entry["note"] for entry in record["measures"].values())


def test_the_gap_of_sampler_and_trainer_has_its_mean_and_a_histogram_of_ratios():
    gap = gap_of(np.array([0.0, 1e-6, -1e-6, 0.05, -0.8]))
    assert (gap.value, gap.n) == (0.8, 5)
    assert gap.note == "mean 0.17; ratios trainer/sampler: below 0.5 1, to 1.01 3, to 1.1 1"
    assert gap_of(np.zeros(0)).value is None
