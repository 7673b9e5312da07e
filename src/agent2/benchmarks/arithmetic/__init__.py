"""Exact arithmetic after RandomCalculation: generated expressions, rational answers, hidden splits.

Source of the idea: "Reasoning or Memorization? Unreliable Results of Reinforcement Learning Due to Data Contamination"
(RandomCalculation).

Expressions. `generate(seed, difficulty)` is the whole generator: the same seed and difficulty give the same expression
on every machine. Values are rationals, so division never rounds, and no expression divides by zero. An expression's
*canonical* text is the same for all orders of the operands of sums and products (`3 + 5` and `5 + 3`, `(1 + 2) + 3` and
`3 + (2 + 1)`).

Items. The difficulty of the arena's task is fixed here (one operation, + and -, operands 0 to 99), because a score is
comparable only at one difficulty. Every canonical expression falls into one of the pools of `home.Source`, so nothing
visible ever shows a hidden one; at this difficulty the hidden pool holds about five times as many as the two hidden
splits use. Completions are drawn at temperature 0.6 and top-p 0.95, one attempt for each item, so that two evaluations
of one checkpoint differ as real evaluations do.

Does NOT compare with published results on RandomCalculation: items, model and prompt are our own. Does NOT identify
expressions that are equal for deeper reasons (`2 * 3` and `3 + 3`). Does NOT prevent an agent from practising on the
whole space of expressions: with operands up to 99 it is small enough to be covered, which would be learning arithmetic
by exhaustion, not knowing the test.
"""

import ast
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import islice
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.home import Pool, Source, pool_of_text
from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.errors import ConfigError
from agent2.records import Environment, Item, SamplingSettings, Scorer, Split
from agent2.scorers.answers import RationalScorer, format_rational, parse_rational
from agent2.syntax import parse_expression

MAX_OPERATIONS = 20
MAX_OPERAND = 10**9
"""At this size the value of the longest expression still fits into an answer."""
_MAX_DRAWS = 10_000
POOL_VERSION = "arithmetic-pools-1"

OPERATORS: MappingProxyType[str, Callable[[Fraction, Fraction], Fraction]] = MappingProxyType(
    {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
)
_COMMUTATIVE = frozenset("+*")
_SYMBOLS = MappingProxyType({ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"})


@dataclass(frozen=True, slots=True)
class ExpressionDifficulty:
    """How hard an expression is. Raises ConfigError for values out of range."""

    n_operations: int = 1
    """1 to 20."""
    max_operand: int = 99
    """Operands are drawn evenly from 0 to this; 1 to a thousand million."""
    operators: str = "+-"
    """Drawn evenly from these, a subset of `+-*/`."""

    def __post_init__(self) -> None:
        if not 1 <= self.n_operations <= MAX_OPERATIONS:
            raise ConfigError(f"difficulty: n_operations is {self.n_operations}; take 1 to {MAX_OPERATIONS}")
        if not 1 <= self.max_operand <= MAX_OPERAND:
            raise ConfigError(
                f"difficulty: max_operand is {self.max_operand}; take at least 1 and at most {MAX_OPERAND}"
            )
        if not self.operators or set(self.operators) - set(OPERATORS):
            raise ConfigError(f"difficulty: operators is {self.operators!r}; take some of {''.join(OPERATORS)!r}")


@dataclass(frozen=True, slots=True)
class Operation:
    """Two expressions joined by an operator."""

    symbol: str
    left: "Expression"
    right: "Expression"


Expression = int | Operation


def generate(seed: int, difficulty: ExpressionDifficulty) -> Expression:
    """A random expression with exactly `n_operations` operations.

    seed: any non-negative integer. Tree shapes are drawn by splitting the remaining operations evenly at
    random; a divisor that is zero is drawn again.
    """
    return _grow(difficulty.n_operations, difficulty, np.random.default_rng(seed))


def value_of(expression: Expression) -> Fraction:
    """The exact value. Raises ZeroDivisionError if it is not defined."""
    if isinstance(expression, int):
        return Fraction(expression)
    return OPERATORS[expression.symbol](value_of(expression.left), value_of(expression.right))


def text_of(expression: Expression) -> str:
    """Infix text; an operand that is itself an operation is in parentheses."""
    if isinstance(expression, int):
        return str(expression)
    return f"{_operand_text(expression.left)} {expression.symbol} {_operand_text(expression.right)}"


def read_expression(text: str) -> Expression:
    """The expression that a text shows, by the usual precedence; undoes `text_of`.

    Raises ConfigError if the text is anything but non-negative integers, + - * / and parentheses.
    """
    try:
        return _from_syntax(parse_expression(text.strip()))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(
            f"{text!r} is not an arithmetic expression ({error}); write it as in '3 * (4 - 1)'"
        ) from error


def canonical(expression: Expression) -> str:
    """One text for all orders and groupings of the operands of sums and of products."""
    if isinstance(expression, int):
        return str(expression)
    if expression.symbol in _COMMUTATIVE:
        terms = sorted(_terms(expression, expression.symbol))
    else:
        terms = [canonical(expression.left), canonical(expression.right)]
    return f"({expression.symbol} {' '.join(terms)})"


def _grow(n_operations: int, difficulty: ExpressionDifficulty, rng: np.random.Generator) -> Expression:
    if n_operations == 0:
        return int(rng.integers(difficulty.max_operand + 1))
    symbol = difficulty.operators[int(rng.integers(len(difficulty.operators)))]
    n_left = int(rng.integers(n_operations))
    left = _grow(n_left, difficulty, rng)
    for _ in range(_MAX_DRAWS):
        right = _grow(n_operations - 1 - n_left, difficulty, rng)
        if symbol != "/" or value_of(right) != 0:
            return Operation(symbol, left, right)
    raise ConfigError(f"difficulty {difficulty}: {_MAX_DRAWS} divisors in a row are zero; raise max_operand")


def _from_syntax(node: ast.expr) -> Expression:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _SYMBOLS:
        return Operation(_SYMBOLS[type(node.op)], _from_syntax(node.left), _from_syntax(node.right))
    raise ValueError(f"{type(node).__name__} is not allowed")


def _operand_text(expression: Expression) -> str:
    return str(expression) if isinstance(expression, int) else f"({text_of(expression)})"


def _terms(expression: Expression, symbol: str) -> list[str]:
    if isinstance(expression, Operation) and expression.symbol == symbol:
        return _terms(expression.left, symbol) + _terms(expression.right, symbol)
    return [canonical(expression)]


def pool_of(canonical_text: str) -> Pool:
    """The pool of an expression, by a public hash of its canonical text."""
    return pool_of_text(canonical_text, POOL_VERSION)


def source_of(difficulty: ExpressionDifficulty) -> Source[Expression]:
    """The expressions of a difficulty; no split has the same canonical text twice."""
    draw = partial(_grow, difficulty.n_operations, difficulty)
    return Source("arithmetic", draw, canonical, canonical, POOL_VERSION, max_barren_draws=20_000)


def count_at_most(split: Split, difficulty: ExpressionDifficulty) -> int:
    """An upper bound on the number of expressions of a split, without drawing any.

    All trees of the difficulty times the share of the split, plus six standard deviations for the hash's choice.
    """
    n = difficulty.n_operations
    shapes = math.comb(2 * n, n) // (n + 1)
    trees = int(shapes * len(difficulty.operators) ** n * (difficulty.max_operand + 1) ** (n + 1))
    mean = trees * {Split.TRAIN: 7, Split.DEV: 1}.get(split, 2) // 12
    return mean + 6 * math.isqrt(mean) + 10


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
        # without it, a request for more than there are would draw until thousands in a row are not new
        upper_bound = count_at_most(split, self.difficulty)
        expressions = list(islice(source_of(self.difficulty).distinct(split, secret), n)) if n <= upper_bound else []
        if len(expressions) < n:
            available = len(expressions) if n <= upper_bound else f"at most {upper_bound}"
            raise ConfigError(
                f"arithmetic: {n} items of split {split.value!r} were asked for, there are {available} at "
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
        return QUESTION_WORLD

    def _item(self, expression: Expression, split: Split, secret: bytes | None) -> Item:
        reference = format_rational(value_of(expression))
        oracle = format_rational(value_of(read_expression(text_of(expression))))
        if verify(oracle, reference) != 1.0:
            raise ConfigError(
                f"arithmetic: the text {text_of(expression)} has the value {oracle}, its tree {reference}; "
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
