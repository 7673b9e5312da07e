"""A checkpoint that answers prompts, and a task of prompts with known answers: what `evaluate_model` takes.

Answers are drawn as the arena draws them (one user message, the model's own chat template, a seed for each
prompt). Does NOT write a card: scores that are published come from `agent2.evaluation`, this is for an agent
that wants to know on its dev data whether it is getting anywhere.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from agent2.errors import SamplerFailed
from agent2.models.hf import HfSampler
from agent2.records import Message, SamplingSettings, derive_seed


class ChatModel:
    """A checkpoint with a way of drawing from it."""

    def __init__(self, checkpoint: Path, sampling: SamplingSettings, max_batch: int = 256) -> None:
        """sampling: its seed names the stream; each prompt draws from its own part of it."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._sampler = HfSampler(checkpoint, max_batch=max_batch, device=device)
        self._sampling = sampling

    def generate(self, inputs: Sequence[str]) -> list[str]:
        """One answer to each prompt. Raises SamplerFailed if one could not be drawn."""
        for index, prompt in enumerate(inputs):
            seed = derive_seed("chat model", self._sampling.seed, index)
            self._sampler.submit(index, [Message("user", prompt)], replace(self._sampling, seed=seed))
        answers: dict[int, str] = {}
        while len(answers) < len(inputs):
            for index, completion in self._sampler.collect():
                if completion.fault is not None:
                    raise SamplerFailed(f"no answer to {inputs[index]!r}: {completion.reason}")
                answers[index] = completion.text
        return [answers[index] for index in range(len(inputs))]


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """Rows of {"prompt", "answer"} and a verifier; the metric is the mean reward."""

    name: str
    rows: Sequence[Mapping[str, str]]
    verify: Callable[[str, str], float]

    @property
    def inputs(self) -> Sequence[str]:
        """The prompts."""
        return [row["prompt"] for row in self.rows]

    def evaluate(self, predictions: Sequence[str]) -> float:
        """Mean reward of predictions in the order of the rows."""
        rewards = [self.verify(given, row["answer"]) for given, row in zip(predictions, self.rows, strict=True)]
        return sum(rewards) / len(rewards)
