import math
from pathlib import Path

import pytest
import torch
from transformers import TrainerControl, TrainerState

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.training.running import (
    CheckpointSaver,
    TimeLimit,
    load_for_training,
    log_path,
    save_checkpoint,
    use_threads,
)
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


def steps_trained(limit, seconds):
    """How many steps of these lengths a time limit allows."""
    clock, state, control = [0.0], TrainerState(), TrainerControl()
    limit_of_time = TimeLimit(0.0, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent2.training.running.time.monotonic", lambda: clock[0])
        for number, length in enumerate(seconds, start=1):
            limit_of_time.on_step_begin(None, state, control)
            clock[0] += length
            limit_of_time.on_step_end(None, state, control)
            if control.should_training_stop:
                return number
    return None


@pytest.mark.parametrize(
    ("limit", "seconds", "trained"),
    [
        (100, [20] * 9, 5),  # the fifth ends at 100, in time
        (100, [30] * 9, 3),  # a fourth would end at 120
        (100, [10, 60, 60], 2),  # a step became slower: no third
        (0, [10, 10], 1),  # the first always runs
        (None, [1e6] * 4, None),
    ],
)
def test_no_step_begins_that_would_end_after_the_time(limit, seconds, trained):
    assert steps_trained(limit, seconds) == trained


def saved_steps(steps, until, seconds_each, n_steps):
    """At which steps a saver saves."""
    saved, clock = [], [0.0]
    saver = CheckpointSaver(
        {step: (f"step{step}", step) for step in steps}, None, Path("out/model"), lambda n, _: saved.append(n), until
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent2.training.running.time.monotonic", lambda: clock[0])
        patch.setattr("agent2.training.running.save_checkpoint", lambda *_: None)
        for step in range(1, n_steps + 1):
            clock[0] += seconds_each
            state = TrainerState()
            state.global_step = step
            saver.on_step_end(None, state, None, model=None)
    return saved


def test_on_a_slow_machine_the_first_step_after_a_time_is_saved_in_place_of_one_that_may_never_come():
    assert saved_steps([20], 700.0, 200.0, 8) == [4]
    assert saved_steps([20], 700.0, 10.0, 90) == [20]
    assert saved_steps([2, 20], 700.0, 200.0, 30) == [2, 20]
    assert saved_steps([], 700.0, 200.0, 8) == [4]
    assert saved_steps([], math.inf, 200.0, 8) == []
