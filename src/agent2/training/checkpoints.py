"""What every recipe does before and after the steps: load the model, save it unchanged in all but its weights.

Promises: the saved tokenizer, chat template and generation config are those of the model that training
began with, whatever a trainer did to them meanwhile. Does NOT shard, quantise or merge adapters.
"""

import os
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from agent2.errors import ConfigError

THREADS_VARIABLE = "AGENT2_THREADS"


def use_threads() -> int:
    """Set torch's threads from $AGENT2_THREADS (default 1: two on shared cores can be ten times slower).

    Returns the number. Raises ConfigError if the variable is no positive integer.
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
