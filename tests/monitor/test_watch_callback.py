"""A real TRL run beside a real `agent2 watch`: decisions while it trains, and a pause where it collapses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import SFTConfig, SFTTrainer

from agent2.files import write_json
from agent2.models.checkpoint import inspect_checkpoint
from agent2.monitor.checkpoint_watch import ACTION, LOG
from agent2.monitor.signals import PAUSE_FILE
from agent2.monitor.watch_callback import WatchCallback
from model_builders import make_model

N_ITEMS, SAVE_EVERY, N_STEPS, COLLAPSE_AT = 60, 2, 20, 13
QUESTIONS = [f"{number} + 1" for number in range(N_ITEMS)]
SUITE = """
name: yes_suite
version: v1.0
track: llm_core
description: One benchmark whose answer is always yes.
control_group: {kind: sft, checkpoint: null}
task_distribution:
  production_tasks: [{name: affirm, difficulty: easy, benchmarks: [yes_quiz]}]
protocol:
  sampling: {temperature: 0.0, top_p: 1.0, n: 1, max_tokens: 4}
cadence:
  dev: {split: dev, n_items: null}
  nightly: {split: test_public, n_items: null}
  candidate: {split: test_private, n_items: null, spot_check: true}
benchmarks:
  - name: yes_quiz
    source: ./quiz
    split: test_public
    metric: yes_accuracy
    n_items: null
    scorer: {name: exact, tier: reference}
metrics: [{name: yes_accuracy, benchmark: yes_quiz, role: primary}]
gates:
  - {kind: evidence, name: evidence}
  - {kind: historical_best, name: best_kept, drop: 0.2, unit: points, evaluations: 1}
  - {kind: regression, name: holds, metrics: [yes_accuracy], tolerance: 0.03, margin: 0.12}
failure_taxonomy: {wrong_answer: algorithm}
"""


def write_suite(folder: Path) -> Path:
    """The suite, and its benchmark as a user would write it."""
    quiz = folder / "quiz"
    quiz.mkdir()
    lines = [json.dumps({"question": question, "answer": "yes"}) for question in QUESTIONS]
    (quiz / "dev.jsonl").write_text("\n".join(lines) + "\n")
    (quiz / "test.jsonl").write_text("\n".join(line.replace(" + 1", " + 2") for line in lines) + "\n")
    (quiz / "benchmark.yaml").write_text(
        'name: yes_quiz\nversion: "1.0"\nfiles: {dev: dev.jsonl, test: test.jsonl}\nprompt: "{question}"\n'
        "answer: answer\nscorer: {name: exact}\nsampling: {temperature: 0.0, max_tokens: 4}\n"
    )
    path = folder / "yes.yaml"
    path.write_text(SUITE)
    return path


class Collapse(TrainerCallback):
    """Puts noise on all weights at one step, as a run that diverges."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == COLLAPSE_AT:
            torch.manual_seed(0)
            with torch.no_grad():
                for weights in kwargs["model"].parameters():
                    weights.add_(torch.randn_like(weights))


def train(base: Path, out: Path, callback: TrainerCallback) -> int:
    """An SFT run in TRL that learns to say yes, saves every two steps and collapses at step 13; the last step."""
    torch.set_num_threads(1)
    rows = [
        {
            "prompt": [{"role": "user", "content": question}],
            "completion": [{"role": "assistant", "content": "yes"}],
        }
        for question in QUESTIONS
    ]
    config = SFTConfig(
        output_dir=str(out), max_steps=N_STEPS, per_device_train_batch_size=16, learning_rate=2e-2,
        save_steps=SAVE_EVERY, logging_steps=1, report_to=[], use_cpu=True, seed=0, max_length=128,
        lr_scheduler_type="constant", bf16=False,
    )  # fmt: skip
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(base),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(base),
        callbacks=[Collapse(), callback],
    )
    trainer.train()
    return trainer.state.global_step


def begin_watch(folder: Path, run: Path, out: Path) -> "subprocess.Popen[str]":
    command = [
        sys.executable, "-m", "agent2", "watch", str(run), "--suite", str(folder / "yes.yaml"),
        "--baseline", str(folder / "base"), "--out", str(out), "--until", str(N_STEPS),
        "--set", "watch.settle_s=5", "--set", "watch.poll_s=0.5",
    ]  # fmt: skip
    environment = os.environ | {"AGENT2_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def events(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / LOG).read_text().splitlines()] if (out / LOG).exists() else []


@pytest.mark.slow
def test_ten_checkpoints_are_watched_live_and_training_pauses_at_the_collapse(tmp_path):
    write_suite(tmp_path)
    make_model(tmp_path / "base")
    run, out = tmp_path / "runs" / "sft", tmp_path / "evaluations" / "sft"
    run.mkdir(parents=True)
    watch = begin_watch(tmp_path, run, out)
    killed = []

    class KillsTheWatch(TrainerCallback):
        """A watch that is killed and started again loses nothing."""

        def on_save(self, args, state, control, **kwargs):
            process = (watch, *killed)[-1]
            assert process.poll() is None, process.communicate()[0]
            if state.global_step == 8 and not killed:
                watch.send_signal(signal.SIGKILL)
                watch.wait()
                killed.append(begin_watch(tmp_path, run, out))

    callback = WatchCallback(out, wait_s=120.0)
    try:
        last = train(tmp_path / "base", run, _Both(KillsTheWatch(), callback))
    finally:
        for process in (watch, *killed):
            process.kill()  # not SIGINT: where tests run in the background of a shell, programs ignore it
            process.communicate(timeout=120)
    evaluated = [event for event in events(out) if event["event"] == "evaluated"]
    assert [event["step"] for event in evaluated] == [2, 4, 6, 8, 10, 12, 14], "each once, though it was killed"
    assert last == 14, "the checkpoint after the collapse at 13 is the last"
    assert [event["training_action"] for event in evaluated] == ["continue"] * 6 + ["pause"]
    assert evaluated[5]["value"] > 0.9 and evaluated[6]["value"] < 0.1
    pause = json.loads((out / PAUSE_FILE).read_text())
    assert pause["evaluated_step"] == 14 and Path(pause["resume_from"]).parent == run.resolve()
    assert callback.stopped_by["action"] == "pause" and "best_kept" in " ".join(pause["reasons"])


class _Both(TrainerCallback):
    """Two callbacks, the first one first."""

    def __init__(self, *callbacks):
        self.callbacks = callbacks

    def _pass_on(self, name, *arguments, **kwargs):
        for callback in self.callbacks:
            getattr(callback, name)(*arguments, **kwargs)

    def on_train_begin(self, *arguments, **kwargs):
        self._pass_on("on_train_begin", *arguments, **kwargs)

    def on_step_end(self, *arguments, **kwargs):
        self._pass_on("on_step_end", *arguments, **kwargs)

    def on_save(self, *arguments, **kwargs):
        self._pass_on("on_save", *arguments, **kwargs)


def request(out: Path, action: str, **fields: object) -> None:
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / ACTION, {"action": action, "step": 4, "reasons": ["it fell"], "at": time.time(), **fields})


def step_of(callback: WatchCallback, model: object = None, output_dir: Path = Path("run")) -> bool:
    """One step of a trainer; whether training is to stop."""
    control, args = SimpleNamespace(should_training_stop=False), SimpleNamespace(output_dir=str(output_dir))
    callback.on_step_end(args, SimpleNamespace(global_step=6), control, model=model)
    return control.should_training_stop


def test_a_request_from_before_the_training_is_ignored_and_a_new_one_is_not(tmp_path):
    request(tmp_path, "pause")
    callback = WatchCallback(tmp_path)
    callback.on_train_begin(None, SimpleNamespace(global_step=0), SimpleNamespace())
    assert not step_of(callback) and not (tmp_path / PAUSE_FILE).exists()
    request(tmp_path, "pause_human_review", last_good=None)
    assert step_of(callback)
    record = json.loads((tmp_path / PAUSE_FILE).read_text())
    assert record["needs_human_review"] and record["step"] == 6 and record["evaluated_step"] == 4


def test_without_a_watch_or_with_a_damaged_request_training_goes_on(tmp_path, caplog):
    callback = WatchCallback(tmp_path / "nowhere", wait_s=0.0)
    callback.on_train_begin(None, SimpleNamespace(global_step=0), SimpleNamespace())
    assert f"{tmp_path / 'nowhere'} is not there yet" in caplog.text
    caplog.clear()
    WatchCallback(tmp_path).on_train_begin(None, SimpleNamespace(global_step=0), SimpleNamespace())
    assert not caplog.text
    assert not step_of(callback)
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / ACTION).write_text('{"action": ')
    assert not step_of(callback)


def test_a_rollback_loads_the_best_checkpoint_and_one_that_is_gone_pauses(tmp_path):
    base = make_model(tmp_path / "base")
    digest = inspect_checkpoint(base).weights_digest
    for last_good, is_rolled_back in ((base, True), (tmp_path / "gone", False)):
        model = AutoModelForCausalLM.from_pretrained(base)
        with torch.no_grad():
            next(model.parameters()).add_(1.0)
        callback = WatchCallback(tmp_path)
        request(tmp_path, "rollback", last_good=str(last_good), last_good_step=2)
        assert step_of(callback, model, tmp_path)
        model.save_pretrained(tmp_path / "after")
        AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "after")
        assert (inspect_checkpoint(tmp_path / "after").weights_digest == digest) is is_rolled_back
        assert json.loads((tmp_path / PAUSE_FILE).read_text())["is_rolled_back"] is is_rolled_back


def test_a_rollback_to_weights_outside_the_training_or_linked_into_it_pauses(tmp_path):
    run, elsewhere = tmp_path / "run", make_model(tmp_path / "elsewhere")
    own = make_model(run / "checkpoint-2")
    (run / "checkpoint-4").symlink_to(elsewhere)
    for last_good, is_rolled_back in (
        (elsewhere, False), (run / "checkpoint-4", False), (run / ".." / "elsewhere", False), ("a/hub-name", False),
        (["list"], False), ("nul\0", False), (own, True),
    ):  # fmt: skip
        request(tmp_path, "rollback", last_good=last_good if isinstance(last_good, list) else str(last_good))
        callback = WatchCallback(tmp_path)
        assert step_of(callback, AutoModelForCausalLM.from_pretrained(own), run)
        assert json.loads((tmp_path / PAUSE_FILE).read_text())["is_rolled_back"] is is_rolled_back


def test_requests_that_no_watch_writes_neither_stop_nor_hang_a_training(tmp_path):
    for action, fields in (("continue", {}), ("delete", {}), ("pause", {"reasons": 5})):
        request(tmp_path, action, **fields)
        assert not step_of(WatchCallback(tmp_path))
    (tmp_path / ACTION).write_text("[" * 100_000)
    assert not step_of(WatchCallback(tmp_path))
    (tmp_path / ACTION).unlink()
    os.mkfifo(tmp_path / ACTION)
    assert not step_of(WatchCallback(tmp_path))
    (tmp_path / ACTION).unlink()
    request(tmp_path, "pause")
    assert step_of(WatchCallback(tmp_path)), "an honest one does"
