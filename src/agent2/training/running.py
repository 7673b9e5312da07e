"""The parts that all recipes share: checks of rows, one log format, checkpoints, limits and the run itself.

The saved tokenizer, chat template and generation config are those of the model that training began with, whatever a
trainer changed in the meantime; where an adapter was trained, it is merged: what is saved is a whole model. Does NOT
shard or quantise.

The log is JSON lines, written as training runs. A line holds `phase`, `step`, `t` (Unix seconds), `seconds` (since
training began) and those of `loss`, `reward`, `reward_std`, `kl`, `entropy`, `length` (tokens of a completion),
`clipped` (share of completions cut off), `grad_norm`, `learning_rate` and `parameters_without_gradient` (so far) that
the trainer measured. What was not measured is absent, never zero. DPO adds `rewards/margins` (its implicit reward of
the chosen answer minus that of the rejected one) and `rewards/accuracies` (share of pairs where that is above 0).
Online training over episodes (`online_grpo`) adds:

    success             share of episodes with full success
    kl_initial          nats a token from the initial model (`kl` is from the reference)
    turns, length, action_length             messages and sampled tokens of an episode, sampled tokens of a message
    invalid_share, unterminated_share, repeated_share, stutter_share    of messages: not valid, cut off, same as the one
                        before, a run of letters repeated at once
    capped_share, retried_share, masked_failed, masked_truncated, masked_capped, masked_too_long    of episodes
    signal_share        groups whose rewards differ
    clip_share          tokens whose ratio was clipped
    foreign_share       tokens in the loss that the policy did not sample: 0 unless observations are not masked
    logprob_gap         largest difference between sampler and trainer on the same token
    staleness           updates since the weights that played the episodes, the earlier ones of the batch included
    updates_behind, trainer_idle_s, player_idle_s   of asynchronous runs: updates between those weights and the batch's
                        first update; seconds that the trainer waited for the batch, the thread for its weights
    importance_mean, importance_max     the same: ratio of a drawn token's probability to that when it was drawn
    environment_s, generation_s, training_s
    reward_success, reward_valid, reward_format                         of a composite reward
"""

import copy
import json
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from agent2.contract.recipe_card import recipe_card, write_recipe_card
from agent2.errors import ConfigError
from agent2.models.gradients import GradientWatch

_log = logging.getLogger(__name__)

THREADS_VARIABLE = "AGENT2_THREADS"
LOG_NAME = "train_log.jsonl"
STATE_NAME = "trainer_state.json"
MODEL_NAME = "model"
FIELDS = frozenset({"prompt", "answer"})
_TRAINER_FIELDS = {
    "loss": "loss",
    "reward": "reward",
    "reward_std": "reward_std",
    "kl": "kl",
    "entropy": "entropy",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "clipped",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "clip_ratio/region_mean": "clip_share",
    "rewards/margins": "rewards/margins",
    "rewards/accuracies": "rewards/accuracies",
}
EPISODE_FIELDS = (
    "success", "kl_initial", "turns", "action_length", "invalid_share", "unterminated_share", "repeated_share",
    "stutter_share", "capped_share", "retried_share", "masked_failed", "masked_truncated", "masked_capped",
    "masked_too_long", "signal_share", "foreign_share", "logprob_gap", "staleness", "environment_s", "generation_s",
    "training_s", "reward_success", "reward_valid", "reward_format", "updates_behind", "trainer_idle_s",
    "player_idle_s", "importance_mean", "importance_max",
)  # fmt: skip
"""Logged under their own names by online training."""
_LOG_FIELDS = {**_TRAINER_FIELDS, **{name: name for name in EPISODE_FIELDS}}

OnCheckpoint = Callable[[int, Path], None]
"""Called with the number of steps (or batches) and the folder that was saved; training waits until it returns."""
LogLine = dict[str, float | str]
OnLog = Callable[[LogLine], None]


def use_threads() -> int:
    """Set torch's threads from $AGENT2_THREADS (default 1: two on shared cores can be ten times slower).

    Returns the number. Raises ConfigError if the variable is not a positive integer.
    """
    text = os.environ.get(THREADS_VARIABLE, "1")
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"${THREADS_VARIABLE} is {text!r}; set it to a positive number of threads")
    torch.set_num_threads(int(text))
    return int(text)


def load_for_training(model_path: Path, lora_rank: int = 0) -> tuple[Any, PreTrainedTokenizerBase]:
    """The model in float32 and its tokenizer, padding on the left. Raises ConfigError if there is no such folder.

    lora_rank: of an adapter on every linear layer but the head, which is trained instead of the weights (Hu et al.
    2021, arXiv:2106.09685; its scale is 2); 0: all weights are trained.
    """
    if not (model_path / "config.json").is_file():
        raise ConfigError(f"{model_path}: no config.json there; give the folder of a model in Hugging Face layout")
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model_path, padding_side="left")
    if lora_rank:
        adapter = LoraConfig(r=lora_rank, lora_alpha=2 * lora_rank, target_modules="all-linear", task_type="CAUSAL_LM")
        return get_peft_model(model, adapter), tokenizer
    return model, tokenizer


def save_checkpoint(model: Any, model_path: Path, out_dir: Path) -> None:
    """Write weights (safetensors) to out_dir, with the tokenizer and generation config of model_path.

    An adapter is merged into a copy of its model: training goes on with the adapter.
    """
    if isinstance(model, PeftModel):
        model = copy.deepcopy(model).merge_and_unload()
    trainer_config = model.generation_config
    if (model_path / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(model_path)
    try:
        model.save_pretrained(out_dir)
    finally:
        model.generation_config = trainer_config
    AutoTokenizer.from_pretrained(model_path).save_pretrained(out_dir)


class CheckpointSaver(TrainerCallback):  # type: ignore[misc]
    """Saves the model at given steps of the trainer and notifies the caller."""

    def __init__(
        self,
        steps: Mapping[int, tuple[str, int]],
        model_path: Path,
        out_dir: Path,
        on_checkpoint: OnCheckpoint | None,
        until: float = math.inf,
    ) -> None:
        """steps: for each step at which to save, the suffix of the folder's name and the number to report.

        until: on `time.monotonic`; if none was saved by then, the step that ends next is, in place of all others.
        """
        self._steps = dict(steps)
        self._until = until
        self._model_path = model_path
        self._out_dir = out_dir
        self._on_checkpoint = on_checkpoint

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save if this is one of the steps, or if it became too late to wait for one."""
        step = state.global_step
        if time.monotonic() > self._until:
            self._steps = {step: (f"step{step}", step)}
        if step not in self._steps:
            return
        self._until = math.inf
        suffix, number = self._steps.pop(step)
        folder = self._out_dir.with_name(f"{self._out_dir.name}-{suffix}")
        save_checkpoint(kwargs["model"], self._model_path, folder)
        if self._on_checkpoint is not None:
            self._on_checkpoint(number, folder)


class TimeLimit(TrainerCallback):  # type: ignore[misc]
    """Ends training before the step that would end after a time, if it took as long as the last one; at least one."""

    def __init__(self, started: float, max_seconds: float | None) -> None:
        """started: `time.monotonic()` when the recipe began. max_seconds: None means no limit."""
        self._until = math.inf if max_seconds is None else started + max_seconds
        self._step_began = started

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the time."""
        self._step_began = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop if there is no time for another step."""
        now = time.monotonic()
        is_over = now + (now - self._step_began) > self._until
        control.should_training_stop = control.should_training_stop or is_over


class LogWriter(TrainerCallback):  # type: ignore[misc]
    """Appends a line for every log of a trainer, and notifies the caller."""

    def __init__(self, path: Path, phase: str, on_log: OnLog | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._phase = phase
        self._on_log = on_log
        self._started = time.monotonic()
        self._gradients = GradientWatch()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Note which parameters this update has a gradient for."""
        self._gradients.update(kwargs["model"])

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append the measured values; the summary that a trainer logs at its end has no loss or reward."""
        measured = {
            ours: float(logs[theirs]) for theirs, ours in _LOG_FIELDS.items() if logs and logs.get(theirs) is not None
        }
        if not {"loss", "reward"} & set(measured):
            return
        if self._gradients.has_looked:
            measured["parameters_without_gradient"] = float(len(self._gradients.names))
        line: LogLine = {
            "phase": self._phase,
            "step": state.global_step,
            "t": round(time.time(), 3),
            "seconds": round(time.monotonic() - self._started, 3),
            **measured,
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()  # a monitor may follow the file
        if self._on_log is not None:
            self._on_log(line)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the file; parameters that no update touched are named."""
        self._file.close()
        if names := self._gradients.names:
            _log.warning(
                "%d trainable parameters had no gradient in any update, among them %s: look for an operation without a "
                "backward pass, or freeze them",
                len(names),
                ", ".join(names[:3]),
            )


@dataclass(frozen=True, slots=True)
class TrainReport:
    """The outcome of a recipe."""

    checkpoint: Path
    steps: int
    seconds: float
    """Loading and saving included, imports not."""
    log: Path
    stopped: str = ""
    """Why training ended before its last step; empty if it did not."""


def require_rows(recipe: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise ConfigError unless there are rows and each has a prompt and an answer, naming the first that has not."""
    if not rows:
        raise ConfigError(f"{recipe}: there are no rows to train on; give at least one {{'prompt', 'answer'}}")
    for index, row in enumerate(rows):
        missing = FIELDS - set(row)
        if missing:
            raise ConfigError(f"{recipe}: row {index} has no {' and no '.join(sorted(missing))}; it has {sorted(row)}")


def log_path(out_dir: Path) -> Path:
    """The training log of a run that saves to out_dir: beside the checkpoint, so that the latter holds nothing else."""
    return _run_folder(out_dir) / LOG_NAME


def _run_folder(out_dir: Path) -> Path:
    """The folder around a checkpoint called `model`. Any other name is that of the run: siblings share no log."""
    return out_dir.parent if out_dir.name == MODEL_NAME else out_dir.with_name(f"{out_dir.name}-log")


def trainer_arguments(out_dir: Path, learning_rate: float, seed: int) -> dict[str, Any]:
    """TRL's arguments of every recipe: full precision, Adam's second moment, nothing saved or reported by TRL."""
    return {
        "output_dir": str(out_dir),
        "learning_rate": learning_rate,
        "adam_beta2": 0.98,
        "seed": seed,
        "bf16": False,
        "activation_checkpointing": False,
        "use_cpu": not torch.cuda.is_available(),
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def run_and_save(
    trainer: Any, model_path: Path, out_dir: Path, started: float, recipe: str, settings: Any
) -> TrainReport:
    """Train, write recipe card and trainer's state beside the log and the model into out_dir.

    started: `time.monotonic()` when the recipe began. settings: the recipe's own.
    """
    trainer.remove_callback(PrinterCallback)  # prints every log to standard output where progress bars are off
    write_recipe_card(_run_folder(out_dir), recipe_card(recipe, str(model_path), settings, trainer.args))
    with warnings.catch_warnings():  # of a name that TRL reads
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        trainer.train()
    trainer.state.save_to_json(str(log_path(out_dir).with_name(STATE_NAME)))
    save_checkpoint(trainer.model, model_path, out_dir)
    report = TrainReport(out_dir, trainer.state.global_step, time.monotonic() - started, log_path(out_dir))
    _log.info("%s: %d steps in %.1f s", type(trainer).__name__, report.steps, report.seconds)
    return report
