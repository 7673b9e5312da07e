import pytest
import torch

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.training.running import load_for_training, log_path, save_checkpoint, use_threads
from model_builders import make_model


def test_only_the_weights_change_whatever_a_trainer_did_to_the_rest(tmp_path):
    base = make_model(tmp_path / "base")
    model, tokenizer = load_for_training(base)
    model.generation_config.temperature = 0.123
    tokenizer.chat_template = "changed"
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    save_checkpoint(model, base, tmp_path / "out")
    before, after = inspect_checkpoint(base), inspect_checkpoint(tmp_path / "out")
    assert before.weights_digest != after.weights_digest
    assert before.chat_template_digest == after.chat_template_digest
    for name in ("generation_config.json", "tokenizer.json"):
        assert (base / name).read_text() == (tmp_path / "out" / name).read_text()


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no config\.json there"):
        load_for_training(tmp_path)


def test_threads_come_from_the_environment_and_are_one_otherwise(monkeypatch):
    before = torch.get_num_threads()
    try:
        monkeypatch.delenv("AGENT2_THREADS", raising=False)
        assert use_threads() == torch.get_num_threads() == 1
        monkeypatch.setenv("AGENT2_THREADS", "many")
        with pytest.raises(ConfigError, match="'many'; set it to a positive number"):
            use_threads()
    finally:
        torch.set_num_threads(before)


def test_runs_that_save_to_sibling_folders_share_no_log(tmp_path):
    assert log_path(tmp_path / "grpo" / "model") == tmp_path / "grpo" / "train_log.jsonl"
    logs = {log_path(tmp_path / name) for name in ("sft", "grpo")}
    assert logs == {tmp_path / "sft-log" / "train_log.jsonl", tmp_path / "grpo-log" / "train_log.jsonl"}
