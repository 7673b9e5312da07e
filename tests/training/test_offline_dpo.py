import json

import pytest

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import SamplingSettings
from agent2.training.offline import DpoSettings, train_dpo
from agent2.training.reference import ChatModel
from model_builders import make_model, make_rows


def assistant_message(text):
    return [{"role": "assistant", "content": text}]


def test_no_pairs_and_a_pair_without_a_field_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="there are no pairs"):
        train_dpo(tmp_path, [], tmp_path / "out", DpoSettings())
    with pytest.raises(ConfigError, match="pair 0 has no rejected"):
        train_dpo(tmp_path, [{"prompt": [], "chosen": assistant_message("1")}], tmp_path / "out", DpoSettings())


@pytest.mark.slow
def test_the_preferred_answer_becomes_more_likely_and_the_log_shows_it(tmp_path):
    base = make_model(tmp_path / "base")
    prompts = [row["prompt"] for row in make_rows()]
    pairs = [
        {
            "prompt": [{"role": "user", "content": prompt}],
            "chosen": assistant_message("7"),
            "rejected": assistant_message("3"),
        }
        for prompt in prompts
    ]
    lines = []
    settings = DpoSettings(epochs=6, batch_size=20, learning_rate=5e-3, log_every_steps=5)
    report = train_dpo(base, pairs, tmp_path / "run" / "model", settings, lines.append)
    assert report.steps == 30 and inspect_checkpoint(report.checkpoint).weights_digest
    assert [json.loads(line) for line in report.log.read_text().splitlines()] == lines
    assert lines[-1]["rewards/margins"] > lines[0]["rewards/margins"] and lines[-1]["rewards/accuracies"] > 0.9

    def share_of(text, checkpoint):
        answers = ChatModel(checkpoint, SamplingSettings(temperature=1.0, max_tokens=1)).generate(prompts)
        return sum(answer.startswith(text) for answer in answers) / len(answers)

    assert share_of("7", report.checkpoint) > share_of("7", base)
    assert share_of("3", report.checkpoint) < 0.2
