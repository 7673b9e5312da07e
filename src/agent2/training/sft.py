"""Supervised fine-tuning with TRL's SFTTrainer: imitate the given answers.

Rows are {"prompt", "answer"}: each becomes a user message and an assistant message in the model's own chat
template, and the loss is on the answer and its end only. The log (see `logs`) and TRL's trainer state are
written beside out_dir. One torch thread unless $AGENT2_THREADS says more; a CUDA device is used if present.

Does NOT pack, quantise, or hold out data: measure on a split of your own.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from datasets import Dataset
from transformers import PrinterCallback, set_seed
from trl import SFTConfig, SFTTrainer

from agent2.errors import ConfigError
from agent2.training.checkpoints import load_for_training, save_checkpoint, use_threads
from agent2.training.logs import LOG_NAME, STATE_NAME, LogWriter, OnLog
from agent2.training.reports import TrainReport

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SftSettings:
    """Hyperparameters of supervised fine-tuning; the defaults fit the tiny models."""

    epochs: float = 4.0
    batch_size: int = 64
    learning_rate: float = 2e-3
    warmup_steps: int = 10
    max_tokens: int = 256
    """Longest row, prompt and answer together; TRL cuts longer ones."""
    log_every_steps: int = 10
    seed: int = 0


def train_sft(
    model_path: Path,
    rows: Sequence[Mapping[str, str]],
    out_dir: Path,
    settings: SftSettings,
    on_log: OnLog | None = None,
) -> TrainReport:
    """Fine-tune the model in model_path on rows and save it in out_dir.

    Randomness: all of it from settings.seed. Raises ConfigError if there are no rows or one lacks a field.
    """
    started = time.monotonic()
    conversations = [_conversation(row, index) for index, row in enumerate(rows)]
    if not conversations:
        raise ConfigError("train_sft: there are no rows to learn from; give at least one {'prompt', 'answer'}")
    use_threads()
    set_seed(settings.seed)
    model, tokenizer = load_for_training(model_path)
    log_path = out_dir.parent / LOG_NAME
    trainer = SFTTrainer(
        model=model,
        args=_arguments(settings, out_dir),
        train_dataset=Dataset.from_list(conversations),
        processing_class=tokenizer,
        callbacks=[LogWriter(log_path, "sft", on_log)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.state.save_to_json(str(out_dir.parent / STATE_NAME))
    save_checkpoint(trainer.model, model_path, out_dir)
    report = TrainReport(out_dir, trainer.state.global_step, time.monotonic() - started, log_path)
    _log.info("sft: %d steps in %.1f s", report.steps, report.seconds)
    return report


def _conversation(row: Mapping[str, str], index: int) -> dict[str, list[dict[str, str]]]:
    missing = {"prompt", "answer"} - set(row)
    if missing:
        raise ConfigError(f"train_sft: row {index} has no {' and no '.join(sorted(missing))}; it has {sorted(row)}")
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "completion": [{"role": "assistant", "content": row["answer"]}],
    }


def _arguments(settings: SftSettings, out_dir: Path) -> SFTConfig:
    return SFTConfig(
        output_dir=str(out_dir),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup_steps,
        max_length=settings.max_tokens,
        completion_only_loss=True,
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
