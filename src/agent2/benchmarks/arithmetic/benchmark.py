"""The arithmetic benchmark: one question, one exact answer.

The difficulty of the arena's task is fixed here (one operation, + and -, operands 0 to 99), because a
score is comparable only at one difficulty; `splits.generate` makes any other. Completions are drawn
at temperature 0.6 and top-p 0.95, one attempt for each item, so that two evaluations of one checkpoint
differ as real evaluations do.

Does NOT compare with published results on RandomCalculation: items, model and prompt are our own.

The corpus is what the tiny base model reads before it is handed to an agent: sums and differences of the train pool,
often wrong. Only `right_share` of the answers are right; each of the others is one of a few plausible mistakes (off by
one, off by ten, the other operation), drawn evenly. A model that has read it knows the right answer as one
candidate among several, which is what reinforcement learning can then bring out. Gains on such a base show that a
pipeline works; they do NOT show that it would teach a model anything it did not have in it.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

import numpy as np

from agent2.benchmarks.arithmetic.splits import (
    POOL_VERSION,
    Expression,
    ExpressionDifficulty,
    Operation,
    canonical,
    count_at_most,
    generate,
    pool_of,
    read_expression,
    source_of,
    text_of,
    value_of,
)
from agent2.benchmarks.keyed_splits import Pool
from agent2.environments.question import NAME, VERSION, QuestionEnvironment
from agent2.errors import ConfigError
from agent2.models.tiny_recipe import BaseModel, TinyRecipe
from agent2.records import Environment, Item, SamplingSettings, Scorer, Split
from agent2.scorers.answers import RationalScorer, format_rational, parse_rational

TASK_DIFFICULTY = ExpressionDifficulty(n_operations=1, max_operand=99, operators="+-")


def prompt(expression: Expression) -> str:
    """The question, as the one user message of an item."""
    return f"Calculate {text_of(expression)}"


class Arithmetic:
    """Random expressions at one difficulty, in four disjoint splits."""

    name = "arithmetic"
    version = "1.0"
    primary_metric = "accuracy"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.6, top_p=0.95, max_tokens=12)
    attempts = 1

    def __init__(self, difficulty: ExpressionDifficulty = TASK_DIFFICULTY) -> None:
        self.difficulty = difficulty

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split, always the same ones for one secret; each text is read back and checked.

        Raises ConfigError if a hidden split is asked for without the secret, or if the split has fewer.
        """
        most = count_at_most(split, self.difficulty)
        expressions = list(islice(source_of(self.difficulty).distinct(split, secret), n)) if n <= most else []
        if len(expressions) < n:
            there = len(expressions) if n <= most else f"at most {most}"
            raise ConfigError(
                f"arithmetic: {n} items of split {split.value!r} were asked for, there are {there} at "
                f"{self.difficulty}; ask for fewer or make the difficulty wider"
            )
        return [self._item(expression, split, secret) for expression in expressions]

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def scorer(self) -> Scorer:
        """Exact equality on rationals."""
        return RationalScorer()

    def environment_version(self) -> str:
        """Name and version of the world."""
        return f"{NAME}-v{VERSION}"

    def _item(self, expression: Expression, split: Split, secret: bytes | None) -> Item:
        reference = format_rational(value_of(expression))
        oracle = format_rational(value_of(read_expression(text_of(expression))))
        if verify(oracle, reference) != 1.0:
            raise ConfigError(
                f"arithmetic: {text_of(expression)} is shown, its text is worth {oracle} and its tree {reference}; "
                "the generator is broken, report it"
            )
        return Item(
            id=source_of(self.difficulty).item_id(expression, split, secret),
            split=split,
            prompt=prompt(expression),
            reference=reference,
            payload={"n_operations": self.difficulty.n_operations},
        )


def verify(answer: str, reference: str) -> float:
    """1.0 if the answer is the reference as a rational number, else 0.0.

    Raises ConfigError if the reference is not a number.
    """
    expected = parse_rational(reference)
    if expected is None:
        raise ConfigError(f"reference {reference!r} is not one integer, fraction or decimal; correct the item")
    return float(parse_rational(answer) == expected)


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
        if pool_of(canonical(expression)) is not Pool.TRAIN:
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
