import json

import pytest

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import SamplingSettings
from agent2.training.offline import DpoSettings, KtoSettings, train_dpo, train_kto
from agent2.training.reference import ChatModel
from model_builders import make_model, make_rows


def message(role, text):
    return [{"role": role, "content": text}]


def share_of(text, prompts, checkpoint):
    answers = ChatModel(checkpoint, SamplingSettings(temperature=1.0, max_tokens=1)).generate(prompts)
    return sum(answer.startswith(text) for answer in answers) / len(answers)


def a_row(is_good, **fields):
    return {"prompt": message("user", "1"), "completion": message("assistant", "1"), "is_good": is_good, **fields}


@pytest.mark.parametrize(
    ("rows", "settings", "sentence"),
    [
        ([], KtoSettings(), "0 good and 0 bad answers"),
        ([a_row(True)] * 3, KtoSettings(), "3 good and 0 bad answers"),
        ([a_row(False)], KtoSettings(), "0 good and 1 bad answers"),
        ([a_row(True), {"prompt": [], "completion": []}], KtoSettings(), "row 1 has no is_good"),
        ([a_row(True), a_row(False)], KtoSettings(batch_size=1), "two answers a step"),
    ],
)
def test_judged_answers_of_one_kind_and_rows_without_a_field_are_refused(tmp_path, rows, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        train_kto(tmp_path, rows, tmp_path / "out", settings)


@pytest.mark.slow
def test_ipo_raises_the_margin_to_its_aim_and_no_further(tmp_path):
    base = make_model(tmp_path / "base")
    prompts = [row["prompt"] for row in make_rows()]
    pairs = [
        {
            "prompt": message("user", prompt),
            "chosen": message("assistant", "7"),
            "rejected": message("assistant", "3"),
        }
        for prompt in prompts
    ]
    margins = {}
    for loss in ("sigmoid", "ipo"):
        settings = DpoSettings(epochs=12, batch_size=20, learning_rate=5e-3, beta=0.5, loss=loss, log_every_steps=5)
        report = train_dpo(base, pairs, tmp_path / loss / "model", settings)
        lines = [json.loads(line) for line in report.log.read_text().splitlines()]
        margins[loss] = lines[-1]["rewards/margins"] / settings.beta  # nats of a whole answer
        assert {line["phase"] for line in lines} == {"ipo" if loss == "ipo" else "dpo"}
    # an answer is its text and the end of the message: two tokens, each to differ by 1 / (2 * 0.5) nats
    assert 1.0 < margins["ipo"] < 4.0 < margins["sigmoid"]


@pytest.mark.slow
def test_kto_makes_good_answers_likelier_than_bad_ones_that_belong_to_other_prompts(tmp_path):
    base = make_model(tmp_path / "base")
    prompts = [row["prompt"] for row in make_rows()]
    rows = [
        {
            "prompt": message("user", prompt),
            "completion": message("assistant", "7" if number % 3 else "3"),
            "is_good": bool(number % 3),
        }
        for number, prompt in enumerate(prompts)
    ]
    settings = KtoSettings(epochs=8, batch_size=20, learning_rate=5e-3, log_every_steps=5)
    report = train_kto(base, rows, tmp_path / "run" / "model", settings)
    assert inspect_checkpoint(report.checkpoint).weights_digest
    lines = [json.loads(line) for line in report.log.read_text().splitlines()]
    assert lines[-1]["phase"] == "kto" and lines[-1]["rewards/margins"] > lines[0]["rewards/margins"]
    assert share_of("7", prompts, report.checkpoint) > share_of("7", prompts, base)
    assert share_of("3", prompts, report.checkpoint) < 0.2
