"""Reinforcement learning with TRL's GRPOTrainer: sample, verify, and prefer what did better than its group.

Rows are {"prompt", "answer"}: the model sees the prompt only, the reward function sees what the model wrote
and the answer. A row may bring its whole opening as {"messages": [{"role", "content"}, ...]} beside the prompt. The
log (see `logs`) and TRL's trainer state are written beside out_dir. One torch thread unless $AGENT2_THREADS says
more; a CUDA device is used if present.

A reward that no member of a group earns, or that all of them earn, teaches nothing: the base model must
solve some of the prompts some of the time. Does NOT do multi-turn episodes: see `online_grpo`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from trl import GRPOConfig, GRPOTrainer

from agent2.training.running import (
    CheckpointSaver,
    LogWriter,
    OnCheckpoint,
    OnLog,
    TrainReport,
    load_for_training,
    log_path,
    require_rows,
    run_and_save,
    use_threads,
)

Reward = Callable[[list[str], list[str]], list[float]]
"""Completions and the answers of their rows, in the same order, to one reward each."""


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """Hyperparameters of GRPO; the defaults fit the tiny models."""

    steps: int = 150
    prompts_per_step: int = 32
    generations: int = 8
    """Completions of one prompt, the group that a reward is compared within."""
    learning_rate: float = 5e-4
    temperature: float = 1.0
    max_completion_tokens: int = 12
    kl_coefficient: float = 0.0
    """Weight of the divergence from the base model; 0 spares the reference model."""
    loss_type: str = "dapo"
    checkpoint_steps: tuple[int, ...] = ()
    """After these steps the model is saved as `<out_dir>-step<N>` and the caller is told."""
    log_every_steps: int = 5
    max_seconds: float | None = None
    """Training ends with the first step after so long; None: no limit."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class GrpoHooks:
    """What a caller wants to be told while training goes."""

    on_log: OnLog | None = None
    on_checkpoint: OnCheckpoint | None = None
    callbacks: Sequence[TrainerCallback] = ()
    """Of the trainer, such as a monitor's; they come after our own."""


def train_grpo(
    model_path: Path,
    rows: Sequence[Mapping[str, Any]],
    reward: Reward,
    out_dir: Path,
    settings: GrpoSettings,
    hooks: GrpoHooks | None = None,
) -> TrainReport:
    """Train the model in model_path on the prompts of rows and save it in out_dir.

    Randomness: all of it from settings.seed. Raises ConfigError if there are no rows or one lacks a field.
    """
    started = time.monotonic()
    hooks = hooks or GrpoHooks()
    require_rows("train_grpo", rows)
    use_threads()
    set_seed(settings.seed)
    model, tokenizer = load_for_training(model_path)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=_trl_reward(reward),
        args=_arguments(settings, out_dir),
        train_dataset=Dataset.from_list([_prompt(row) for row in rows]),
        processing_class=tokenizer,
        callbacks=[
            LogWriter(log_path(out_dir), "grpo", hooks.on_log),
            CheckpointSaver(
                {step: (f"step{step}", step) for step in settings.checkpoint_steps},
                model_path,
                out_dir,
                hooks.on_checkpoint,
            ),
            *([_Deadline(started + settings.max_seconds)] if settings.max_seconds is not None else []),
            *hooks.callbacks,
        ],
    )
    return run_and_save(trainer, model_path, out_dir, started)


class _Deadline(TrainerCallback):  # type: ignore[misc]
    """Ends training once the time is up."""

    def __init__(self, until: float) -> None:
        self._until = until

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Look at the clock."""
        control.should_training_stop = control.should_training_stop or time.monotonic() > self._until


def _prompt(row: Mapping[str, Any]) -> dict[str, Any]:
    opening = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
    return {"prompt": [dict(message) for message in opening], "answer": row["answer"]}


def _trl_reward(reward: Reward) -> Callable[..., list[float]]:
    """The reward in the shape that TRL calls: completions are lists with one assistant message."""

    def verifier(completions: list[list[dict[str, str]]], answer: list[str], **_: Any) -> list[float]:
        return reward([messages[-1]["content"] for messages in completions], answer)

    return verifier


def _arguments(settings: GrpoSettings, out_dir: Path) -> GRPOConfig:
    return GRPOConfig(
        output_dir=str(out_dir),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.prompts_per_step * settings.generations,
        num_generations=settings.generations,
        max_completion_length=settings.max_completion_tokens,
        temperature=settings.temperature,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant",
        beta=settings.kl_coefficient,
        loss_type=settings.loss_type,
        adam_beta2=0.98,
        logging_steps=settings.log_every_steps,
        seed=settings.seed,
        bf16=False,
        activation_checkpointing=False,
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
