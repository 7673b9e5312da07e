"""What a tiny base model reads before it is handed to an agent: sums and differences, often wrong.

Only `right_share` of the answers are right; each of the others is one of a few plausible mistakes (off by
one, off by ten, the other operation), drawn evenly. A model that has read it knows the right answer as one
candidate among several, which is what reinforcement learning can then bring out. Gains on such a base show that a
pipeline works; they do NOT show that it would teach a model anything it did not have in it.

Promises: only expressions of the train pool, never a dev or hidden one; one seed, one corpus.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from agent2.benchmarks.arithmetic.benchmark import TASK_DIFFICULTY, prompt
from agent2.benchmarks.arithmetic.splits import (
    POOL_VERSION,
    Expression,
    ExpressionDifficulty,
    ExpressionPool,
    Operation,
    canonical,
    generate,
    pool_of,
    value_of,
)
from agent2.models.tiny_recipe import BaseModel, TinyRecipe
from agent2.scorers.answers import format_rational


@dataclass(frozen=True, slots=True)
class CorpusSettings:
    """How the corpus is drawn."""

    n_examples: int = 40_000
    right_share: float = 0.35
    """Share of right answers, 0 to 1."""
    seed: int = 0
    difficulty: ExpressionDifficulty = TASK_DIFFICULTY


def pretraining_corpus(settings: CorpusSettings) -> list[tuple[str, str]]:
    """(prompt, answer) pairs with repetition, from the train pool only."""
    rng = np.random.default_rng([settings.seed, 0xC0])
    examples: list[tuple[str, str]] = []
    while len(examples) < settings.n_examples:
        expression = generate(int(rng.integers(2**62)), settings.difficulty)
        if pool_of(canonical(expression)) is not ExpressionPool.TRAIN:
            continue
        is_right = rng.random() < settings.right_share
        value = value_of(expression) if is_right else plausible_mistake(expression, rng)
        examples.append((prompt(expression), format_rational(value)))
    return examples


def plausible_mistake(expression: Expression, rng: np.random.Generator) -> Fraction:
    """A wrong value that a careless calculator might give."""
    value = value_of(expression)
    candidates = [value + 1, value - 10, _other_operation(expression)]
    wrong = [candidate for candidate in candidates if candidate is not None and candidate != value]
    return wrong[int(rng.integers(len(wrong)))]


def _other_operation(expression: Expression) -> Fraction | None:
    """The value had + been read as - or the other way round at the outermost operation; None for others."""
    swapped = {"+": "-", "-": "+"}
    if isinstance(expression, int) or expression.symbol not in swapped:
        return None
    return value_of(Operation(swapped[expression.symbol], expression.left, expression.right))


BASE = BaseModel(
    version="2",
    recipe=TinyRecipe(target=0.27),
    corpus=CorpusSettings(),
    builder="agent2.benchmarks.arithmetic.base:build",
    origin=("agent2.arena.tiny_arithmetic:build", POOL_VERSION),
)
"""The recipe of `tiny-arithmetic`."""
