"""Numbers that a local model gives without writing: how likely it finds each of some answers, and a reward.

Loads as `loading` does: safetensors only, no code from the folder, no network, no weight left at random.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from agent2.errors import CheckpointError, SamplerFailed
from agent2.models.loading import context_length, load_model, load_tokenizer
from agent2.records import Message


class Likelihoods:
    """A causal language model that is asked which of some answers it would begin with."""

    def __init__(self, folder: Path, dtype: str = "float32", device: str = "cpu") -> None:
        """Raises CheckpointError if the folder is not a complete causal LM with a chat template."""
        self._model, self._tokenizer = load_model(folder, dtype, device), load_tokenizer(folder)
        self._context = context_length(self._model.config.get_text_config(decoder=True))
        if not getattr(self._tokenizer, "chat_template", None):
            raise CheckpointError(f"{folder}: has no chat template, so no prompt can be made for it")

    @torch.inference_mode()
    def of(self, chat: Sequence[Message], before: str, options: Sequence[str]) -> tuple[Mapping[str, float], int]:
        """Log-probability of each option, in nats, right after `before`, with which the answer begins; tokens read.

        An option of several tokens has the sum of theirs. Raises SamplerFailed if the chat does not fit the context.
        """
        messages = [{"role": message.role, "content": message.content} for message in chat]
        text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) + before
        rows = [self._tokenizer(text + option, add_special_tokens=False)["input_ids"] for option in options]
        n_read, longest = sum(map(len, rows)), max(map(len, rows))
        if longest > self._context:
            raise SamplerFailed(f"the prompt of {longest} tokens does not fit the model's context of {self._context}")
        first = _first_difference(rows)
        if all(len(row) == first + 1 for row in rows):  # one token each: one pass for all of them
            logprobs_V = self._logprobs(rows[0][:-1])[-1]
            return {option: float(logprobs_V[row[-1]]) for option, row in zip(options, rows, strict=True)}, first
        found = {}
        for option, row in zip(options, rows, strict=True):
            logprobs_TV = self._logprobs(row[:-1])
            found[option] = float(sum(logprobs_TV[place - 1, row[place]] for place in range(first, len(row))))
        return found, n_read

    def _logprobs(self, tokens: Sequence[int]) -> Tensor:
        logits_TV = self._model(input_ids=torch.tensor([tokens], device=self._model.device)).logits[0]
        return torch.log_softmax(logits_TV.float(), dim=-1)


def _first_difference(rows: Sequence[Sequence[int]]) -> int:
    """The first place at which the rows differ; at least 1."""
    for place, tokens in enumerate(zip(*rows, strict=False)):
        if len(set(tokens)) > 1:
            return max(1, place)
    return max(1, min(map(len, rows)) - 1)


class Rewards:
    """A sequence classifier that says how good an answer is."""

    def __init__(self, folder: Path, dtype: str = "float32", device: str = "cpu") -> None:
        """Raises CheckpointError if the folder is not a complete sequence classifier with one or two labels."""
        self._model = load_model(folder, dtype, device, AutoModelForSequenceClassification)
        self._tokenizer = load_tokenizer(folder)
        self._context = context_length(self._model.config.get_text_config(decoder=True))
        if self._model.config.num_labels not in (1, 2):
            raise CheckpointError(
                f"{folder}: gives {self._model.config.num_labels} labels; a reward model has one or two"
            )

    @torch.inference_mode()
    def of(self, instruction: str, answer: str) -> tuple[float, int]:
        """The reward as a logit, of two labels the second one's less the first one's; tokens read.

        Raises SamplerFailed for a text that does not fit the context: what is cut off is not judged.
        """
        if getattr(self._tokenizer, "chat_template", None):
            chat = [{"role": "user", "content": instruction}, {"role": "assistant", "content": answer}]
            tokens: Any = self._tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)
        else:
            tokens = self._tokenizer(instruction, answer)["input_ids"]
        if len(tokens) > self._context:
            raise SamplerFailed(f"the text of {len(tokens)} tokens does not fit the model's context of {self._context}")
        logits = self._model(input_ids=torch.tensor([tokens], device=self._model.device)).logits[0].float()
        return float(logits[0] if len(logits) == 1 else logits[1] - logits[0]), len(tokens)
