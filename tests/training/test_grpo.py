import json

import pytest

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.training.grpo import GrpoHooks, GrpoSettings, train_grpo, train_rloo
from model_builders import make_model, make_rows

pytestmark = pytest.mark.slow


def starts_with_one(completions, answers):
    return [float(completion.startswith("1")) for completion in completions]


def test_it_moves_the_model_towards_what_is_rewarded_and_hands_out_checkpoints_on_the_way(tmp_path):
    base = make_model(tmp_path / "base")
    saved, lines = [], []
    settings = GrpoSettings(
        steps=60,
        prompts_per_step=8,
        learning_rate=5e-3,
        max_completion_tokens=3,
        checkpoint_steps=(30,),
        log_every_steps=10,
    )
    report = train_grpo(
        base,
        make_rows(),
        starts_with_one,
        tmp_path / "run" / "model",
        settings,
        GrpoHooks(lines.append, lambda step, folder: saved.append((step, inspect_checkpoint(folder).weights_digest))),
    )
    assert [step for step, _ in saved] == [30]
    final = inspect_checkpoint(report.checkpoint)
    assert len({saved[0][1], final.weights_digest, inspect_checkpoint(base).weights_digest}) == 3
    assert final.chat_template_digest == inspect_checkpoint(base).chat_template_digest
    assert lines[-1]["reward"] > 0.8 > 0.3 > lines[0]["reward"]
    assert {"loss", "entropy", "length", "t", "seconds"} <= set(lines[0])
    assert [json.loads(line) for line in report.log.read_text().splitlines()] == lines
    assert (tmp_path / "run" / "trainer_state.json").is_file()


def test_no_rows_or_a_row_without_an_answer_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no rows to train on"):
        train_grpo(tmp_path, [], starts_with_one, tmp_path / "out", GrpoSettings())
    with pytest.raises(ConfigError, match="row 0 has no answer"):
        train_grpo(tmp_path, [{"prompt": "1 + 1"}], starts_with_one, tmp_path / "out", GrpoSettings())


def test_rloo_moves_the_model_towards_what_is_rewarded_too(tmp_path):
    lines = []
    settings = GrpoSettings(
        steps=40, prompts_per_step=8, learning_rate=5e-3, max_completion_tokens=3, log_every_steps=10
    )
    report = train_rloo(
        make_model(tmp_path / "base"), make_rows(), starts_with_one, tmp_path / "run" / "model", settings,
        GrpoHooks(lines.append),
    )  # fmt: skip
    assert report.steps == 40 and {line["phase"] for line in lines} == {"rloo"}
    assert lines[-1]["reward"] > 0.7 > 0.3 > lines[0]["reward"]
