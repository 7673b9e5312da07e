"""GRPO without machinery, start to finish: a small base model, the reference trainer, and what it gained.

Run it with `python examples/reference_trainer.py`; it takes half a minute on one core. The base model is made on
the spot from sums that are often wrong, so that it knows the right answers as one candidate among several;
the trainer sees prompts and rewards only.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent2.models.tiny import build_tiny
from agent2.models.tiny_recipe import TinyRecipe
from agent2.training.reference import AgenticGRPOTrainer, AnswerTask, CausalPolicy, GRPOConfig, evaluate_model

LARGEST = 9
STEPS = 60
PROMPTS_PER_STEP = 64
RECIPE = TinyRecipe(
    target=0.4, hidden_size=64, n_layers=1, n_heads=4, feed_forward_size=128, max_vocabulary=280, batch_size=64
)


def exact(answer: str, truth: str) -> float:
    """1 for the right text, 0 for another."""
    return 1.0 if answer.strip() == truth else 0.0


def questions() -> list[dict[str, str]]:
    """All sums of two digits."""
    pairs = [(a, b) for a in range(LARGEST + 1) for b in range(LARGEST + 1)]
    return [{"prompt": f"{a} + {b}", "answer": str(a + b)} for a, b in pairs]


def careless_corpus(n_examples: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Sums of which half are one too many."""
    operands = rng.integers(LARGEST + 1, size=(n_examples, 2)).tolist()
    slips = rng.integers(2, size=n_examples).tolist()
    return [(f"{a} + {b}", str(a + b + slip)) for (a, b), slip in zip(operands, slips, strict=True)]


class Player:
    """A policy seen as a model that gives one answer to each input."""

    def __init__(self, policy: CausalPolicy) -> None:
        self.policy = policy

    def generate(self, inputs: Sequence[str]) -> list[str]:
        """One drawn answer to each input."""
        with torch.no_grad():
            return [group[0].text for group in self.policy.generate(list(inputs), 1)]


def main() -> tuple[float, float]:
    """Make the base model, train it, and return its accuracy before and after."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    rows = questions()
    task = AnswerTask("sums", rows * 4, exact)

    def probe(model: torch.nn.Module, tokenizer: object) -> float:
        torch.manual_seed(0)
        return evaluate_model(Player(CausalPolicy(model, tokenizer, 4)), [task])["sums"]

    with tempfile.TemporaryDirectory() as folder:
        build_tiny(RECIPE, careless_corpus(20_000, rng), probe, Path(folder))
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    policy = CausalPolicy(model, tokenizer, max_new_tokens=4)
    before = probe(model, tokenizer)
    trainer = AgenticGRPOTrainer(policy, GRPOConfig(reward=exact, n_responses=8, learning_rate=1e-3))
    for step in range(1, STEPS + 1):
        batch = [rows[index] for index in rng.integers(len(rows), size=PROMPTS_PER_STEP)]
        report = trainer.train_step(
            {"prompts": [row["prompt"] for row in batch], "answers": [row["answer"] for row in batch]}
        )
        if step % 10 == 0:
            print(f"step {step}: loss {report.loss:+.3f}, reward {report.mean_reward:.2f}")
    after = probe(model, tokenizer)
    print(f"{task.name}: {100 * before:.0f}% before, {100 * after:.0f}% after {STEPS} steps")
    return before, after


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
