"""What every recipe does before and after the steps: load the model, save it unchanged in all but its weights.

Promises: the saved tokenizer, chat template and generation config are those of the model that training
began with, whatever a trainer did to them meanwhile. Does NOT shard, quantise or merge adapters.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from agent2.errors import ConfigError

THREADS_VARIABLE = "AGENT2_THREADS"

OnCheckpoint = Callable[[int, Path], None]
"""Told after how many steps (or batches) which folder was saved; training waits until it returns."""


def use_threads() -> int:
    """Set torch's threads from $AGENT2_THREADS (default 1: two on shared cores can be ten times slower).

    Returns the number. Raises ConfigError if the variable is not a positive integer.
    """
    text = os.environ.get(THREADS_VARIABLE, "1")
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"${THREADS_VARIABLE} is {text!r}; set it to a positive number of threads")
    torch.set_num_threads(int(text))
    return int(text)


def load_for_training(model_path: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in float32 and its tokenizer, padding on the left. Raises ConfigError if there is no such folder."""
    if not (model_path / "config.json").is_file():
        raise ConfigError(f"{model_path}: no config.json there; give the folder of a model in Hugging Face layout")
    model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(model_path, padding_side="left")
    return model, tokenizer


def save_checkpoint(model: PreTrainedModel, model_path: Path, out_dir: Path) -> None:
    """Write weights (safetensors) to out_dir, with the tokenizer and generation config of model_path."""
    in_use = model.generation_config
    if (model_path / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(model_path)
    try:
        model.save_pretrained(out_dir)
    finally:
        model.generation_config = in_use
    AutoTokenizer.from_pretrained(model_path).save_pretrained(out_dir)


class CheckpointSaver(TrainerCallback):  # type: ignore[misc]
    """Saves the model at given steps of the trainer and tells the caller."""

    def __init__(
        self,
        moments: Mapping[int, tuple[str, int]],
        model_path: Path,
        out_dir: Path,
        on_checkpoint: OnCheckpoint | None,
    ) -> None:
        """moments: for each step, what to add to the folder's name and the number to tell."""
        self._moments = moments
        self._model_path = model_path
        self._out_dir = out_dir
        self._on_checkpoint = on_checkpoint

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save if this is one of the moments."""
        if state.global_step not in self._moments:
            return
        name, number = self._moments[state.global_step]
        folder = self._out_dir.with_name(f"{self._out_dir.name}-{name}")
        save_checkpoint(kwargs["model"], self._model_path, folder)
        if self._on_checkpoint is not None:
            self._on_checkpoint(number, folder)
