"""Direct preference optimisation with TRL's DPOTrainer: raise what was preferred above what was not.

Pairs are {"prompt": messages, "chosen": messages, "rejected": messages}, in the model's own chat template. The
reference model is the one that training begins with; the loss is that of Rafailov et al. 2023 (arXiv:2305.18290, eq.
7). The log (`running`) and TRL's trainer state are written beside out_dir. Does NOT compare episodes.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import set_seed
from trl import DPOConfig, DPOTrainer

from agent2.errors import ConfigError
from agent2.training.running import (
    LogWriter,
    OnLog,
    TrainReport,
    load_for_training,
    log_path,
    run_and_save,
    use_threads,
)

PAIR_FIELDS = frozenset({"prompt", "chosen", "rejected"})


@dataclass(frozen=True, slots=True)
class DpoSettings:
    """Hyperparameters of DPO; the defaults fit the tiny models."""

    epochs: float = 2.0
    batch_size: int = 64
    learning_rate: float = 3e-4
    beta: float = 0.1
    """How strongly the model is held to the reference."""
    warmup_steps: int = 5
    max_tokens: int = 256
    """Longest pair, prompt and completion together; longer ones are cut."""
    log_every_steps: int = 10
    seed: int = 0


def train_dpo(
    model_path: Path,
    pairs: Sequence[Mapping[str, Any]],
    out_dir: Path,
    settings: DpoSettings,
    on_log: OnLog | None = None,
) -> TrainReport:
    """Train the model in model_path on preference pairs and save it in out_dir.

    Randomness: all of it from settings.seed. Raises ConfigError if there are no pairs or one lacks a field.
    """
    started = time.monotonic()
    if not pairs:
        raise ConfigError("train_dpo: there are no pairs; give at least one {'prompt', 'chosen', 'rejected'}")
    for index, pair in enumerate(pairs):
        if missing := PAIR_FIELDS - set(pair):
            raise ConfigError(f"train_dpo: pair {index} has no {' and no '.join(sorted(missing))}")
    use_threads()
    set_seed(settings.seed)
    model, tokenizer = load_for_training(model_path)
    reference, _ = load_for_training(model_path)
    trainer = DPOTrainer(
        model=model,
        ref_model=reference,
        args=DPOConfig(
            output_dir=str(out_dir),
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=settings.warmup_steps,
            beta=settings.beta,
            max_length=settings.max_tokens,
            adam_beta2=0.98,
            logging_steps=settings.log_every_steps,
            seed=settings.seed,
            bf16=False,
            activation_checkpointing=False,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list([{name: pair[name] for name in sorted(PAIR_FIELDS)} for pair in pairs]),
        processing_class=tokenizer,
        callbacks=[LogWriter(log_path(out_dir), "dpo", on_log)],
    )
    return run_and_save(trainer, model_path, out_dir, started)
