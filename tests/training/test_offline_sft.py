import json

import pytest

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import SamplingSettings
from agent2.training.offline import SftSettings, train_sft
from agent2.training.reference import AnswerTask, ChatModel, evaluate_model
from model_builders import make_model, make_rows

pytestmark = pytest.mark.slow


def exact(answer, truth):
    return float(answer == truth)


def accuracy(checkpoint, rows):
    task = AnswerTask("digits", rows, exact)
    return evaluate_model(ChatModel(checkpoint, SamplingSettings(max_tokens=4)), [task])["digits"]


def test_it_learns_the_answers_and_logs_a_falling_loss(tmp_path):
    base, rows = make_model(tmp_path / "base"), make_rows()
    lines = []
    settings = SftSettings(epochs=40, batch_size=20, learning_rate=1e-2)
    report = train_sft(base, rows, tmp_path / "run" / "model", settings, lines.append)
    assert accuracy(report.checkpoint, rows) > accuracy(base, rows) + 0.3
    assert report.steps == 200
    written = [json.loads(line) for line in report.log.read_text().splitlines()]
    assert written == lines
    assert written[-1]["step"] == 200
    assert written[-1]["loss"] < written[0]["loss"] / 2
    assert "reward" not in written[0]
    assert (tmp_path / "run" / "trainer_state.json").is_file()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path):
    base, rows = make_model(tmp_path / "base"), make_rows()
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_sft(base, rows, tmp_path / name / "model", SftSettings(epochs=1, seed=seed))
    digests = [inspect_checkpoint(tmp_path / name / "model").weights_digest for name in "abc"]
    assert digests[0] == digests[1] != digests[2]


def test_training_takes_one_step_even_if_its_time_is_up_and_what_was_learned_is_saved(tmp_path):
    base, rows = make_model(tmp_path / "base"), make_rows()
    settings = SftSettings(epochs=40, batch_size=20, learning_rate=1e-2, warmup_steps=0, max_seconds=0.0)
    report = train_sft(base, rows, tmp_path / "run" / "model", settings)
    assert report.steps == 1
    assert inspect_checkpoint(report.checkpoint).weights_digest != inspect_checkpoint(base).weights_digest


def test_no_rows_or_a_row_without_an_answer_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no rows to train on"):
        train_sft(tmp_path, [], tmp_path / "out", SftSettings())
    with pytest.raises(ConfigError, match="row 0 has no answer"):
        train_sft(tmp_path, [{"prompt": "1 + 1"}], tmp_path / "out", SftSettings())


def test_conversations_are_learned_where_they_are_to_be(tmp_path):
    base = make_model(tmp_path / "base")
    rows = [
        {
            "messages": [
                {"role": "user", "content": row["prompt"]},
                {"role": "assistant", "content": "7", "learn": False},
                {"role": "user", "content": "no"},
                {"role": "assistant", "content": "1"},
            ]
        }
        for row in make_rows()
    ]
    lines = []
    settings = SftSettings(epochs=10, batch_size=20, learning_rate=1e-2)
    report = train_sft(base, rows, tmp_path / "run" / "model", settings, lines.append)
    assert lines[-1]["loss"] < lines[0]["loss"] / 4
    answers = ChatModel(report.checkpoint, SamplingSettings(max_tokens=3)).generate(["1 + 2", "3 + 3"])
    assert answers == ["1", "1"], "the 7 was seen in every row and never learned"


def test_a_conversation_that_cannot_be_used_is_refused(tmp_path):
    base = make_model(tmp_path / "base")
    rows = [{"messages": [{"role": "user", "content": "1 + 1"}]}]
    with pytest.raises(ConfigError, match="row 0 has no assistant message to learn from"):
        train_sft(base, rows, tmp_path / "out", SftSettings())
