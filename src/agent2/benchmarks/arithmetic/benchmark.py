"""The arithmetic benchmark: one question, one exact answer.

The difficulty of the arena's task is fixed here (one operation, + and -, operands 0 to 99), because a
score is comparable only at one difficulty; `expressions.generate` makes any other. Completions are drawn
at temperature 0.6 and top-p 0.95, one attempt for each item, so that two evaluations of one checkpoint
differ as real evaluations do.

Does NOT compare with published results on RandomCalculation: items, model and prompt are our own.
"""

from itertools import islice

from agent2.benchmarks.arithmetic.rewards import verify
from agent2.benchmarks.arithmetic.splits import (
    Expression,
    ExpressionDifficulty,
    canonical,
    count_at_most,
    distinct_expressions,
    item_id,
    read_expression,
    text_of,
    value_of,
)
from agent2.environments.question import NAME, VERSION, QuestionEnvironment
from agent2.errors import ConfigError
from agent2.records import Environment, Item, SamplingSettings, Scorer, Split
from agent2.scorers.answers import RationalScorer, format_rational

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
        expressions = list(islice(distinct_expressions(split, self.difficulty, secret), n)) if n <= most else []
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
            id=item_id(canonical(expression), split, secret),
            split=split,
            prompt=prompt(expression),
            reference=reference,
            payload={"n_operations": self.difficulty.n_operations},
        )
