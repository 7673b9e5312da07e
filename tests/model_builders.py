"""Models for tests that need weights but no ability: made in a moment, in Hugging Face layout."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent2.models.tiny import build_tiny
from agent2.models.tiny_recipe import TinyRecipe

DIGITS = [(f"{a} + {b}", str(a + b)) for a in range(10) for b in range(10)]
SMALL = TinyRecipe(
    target=0.0,
    hidden_size=32,
    n_layers=1,
    n_heads=2,
    feed_forward_size=64,
    max_vocabulary=280,
    batch_size=32,
    probe_every_steps=2,
    max_steps=2,
)


def make_model(folder: Path, corpus: Sequence[tuple[str, str]] = DIGITS, steps: int = 2) -> Path:
    """A model of 17 thousand weights that has read a corpus (sums of digits) for so many steps."""
    build_tiny(replace(SMALL, probe_every_steps=steps, max_steps=steps), corpus, lambda model, tokenizer: 0.0, folder)
    return folder


def make_rows() -> list[dict[str, str]]:
    """Sums of digits as rows of a train split."""
    return [{"prompt": prompt, "answer": answer} for prompt, answer in DIGITS]
