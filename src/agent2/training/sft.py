"""Supervised fine-tuning with TRL's SFTTrainer: imitate the given answers.

Rows are {"prompt", "answer"}: each becomes a user message and an assistant message in the model's own chat
template, and the loss is on the answer and its end only. Or they are conversations, {"messages": [...]} (see
`chats`): the loss is on what the assistant says, except for messages with `"learn": false`. The log (see `logs`)
and TRL's trainer state are written beside out_dir. One torch thread unless $AGENT2_THREADS says more; a CUDA
device is used if present.

Does NOT pack, quantise, or hold out data: measure on a split of your own.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import set_seed
from trl import SFTConfig, SFTTrainer

from agent2.training.chats import labelled_chats
from agent2.training.running import (
    LogWriter,
    OnLog,
    TrainReport,
    load_for_training,
    log_path,
    require_rows,
    run_and_save,
    use_threads,
)


@dataclass(frozen=True, slots=True)
class SftSettings:
    """Hyperparameters of supervised fine-tuning; the defaults fit the tiny models."""

    epochs: float = 4.0
    batch_size: int = 64
    learning_rate: float = 2e-3
    warmup_steps: int = 10
    max_tokens: int = 256
    """Longest row, prompt and answer together; TRL cuts longer ones, a longer conversation is refused."""
    log_every_steps: int = 10
    seed: int = 0


def train_sft(
    model_path: Path,
    rows: Sequence[Mapping[str, Any]],
    out_dir: Path,
    settings: SftSettings,
    on_log: OnLog | None = None,
) -> TrainReport:
    """Fine-tune the model in model_path on rows and save it in out_dir.

    rows: all pairs or all conversations. Randomness: all of it from settings.seed. Raises ConfigError if there are
    no rows or one cannot be used.
    """
    started = time.monotonic()
    are_chats = bool(rows) and "messages" in rows[0]
    if not are_chats:
        require_rows("train_sft", rows)
    use_threads()
    set_seed(settings.seed)
    model, tokenizer = load_for_training(model_path)
    if are_chats:
        examples: list[dict[str, Any]] = [*labelled_chats(rows, tokenizer, settings.max_tokens, "train_sft")]
    else:
        examples = [_conversation(row) for row in rows]
    trainer = SFTTrainer(
        model=model,
        args=_arguments(settings, out_dir, are_chats=are_chats),
        train_dataset=Dataset.from_list(examples),
        processing_class=tokenizer,
        callbacks=[LogWriter(log_path(out_dir), "sft", on_log)],
    )
    return run_and_save(trainer, model_path, out_dir, started)


def _conversation(row: Mapping[str, Any]) -> dict[str, list[dict[str, str]]]:
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def _arguments(settings: SftSettings, out_dir: Path, *, are_chats: bool) -> SFTConfig:
    return SFTConfig(
        output_dir=str(out_dir),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup_steps,
        max_length=settings.max_tokens,
        completion_only_loss=not are_chats,
        dataset_kwargs={"skip_prepare_dataset": True} if are_chats else None,
        train_sampling_strategy="group_by_length" if are_chats else "random",
        packing=False,
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
