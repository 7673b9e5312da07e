"""Who may see which expression.

Every canonical expression falls into one of the pools of `keyed_splits`, so nothing visible ever shows a hidden one; at
the difficulty of the arena's task the hidden pool holds about five times as many as the two hidden splits use.

Does NOT keep an agent from practising on the whole space of expressions: with operands up to 99 it is
small enough to be covered, which would be learning arithmetic by exhaustion, not knowing the test.

Random arithmetic expressions of any length, with exact values.

`generate(seed, difficulty)` is the whole generator: the same seed and difficulty give the same expression
on every machine. Values are rationals, so division never rounds, and no expression divides by zero.

An expression's *canonical* text is the same for all orders of the operands of sums and products
(`3 + 5` and `5 + 3`, `(1 + 2) + 3` and `3 + (2 + 1)`): splits are disjoint by it. It does NOT identify
expressions that are equal for deeper reasons (`2 * 3` and `3 + 3`).
"""

import ast
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.keyed_splits import Pool, Source, pool_of_text
from agent2.errors import ConfigError
from agent2.records import Split

MAX_OPERATIONS = 20
MAX_OPERAND = 10**9
"""With it the value of the longest expression still fits into an answer."""
_MAX_DRAWS = 10_000

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
        return _from_syntax(ast.parse(text.strip(), mode="eval").body)
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


POOL_VERSION = "arithmetic-pools-1"


def pool_of(canonical_text: str) -> Pool:
    """The pool of an expression, by a public hash of its canonical text."""
    return pool_of_text(canonical_text, POOL_VERSION)


def source_of(difficulty: ExpressionDifficulty) -> Source[Expression]:
    """The expressions of a difficulty; no split has the same canonical text twice."""
    draw = partial(_grow, difficulty.n_operations, difficulty)
    return Source("arithmetic", draw, canonical, canonical, POOL_VERSION, max_barren_draws=20_000)


def count_at_most(split: Split, difficulty: ExpressionDifficulty) -> int:
    """A number that the expressions of a split do not exceed, without drawing any.

    All trees of the difficulty, times the share of the split, plus six standard deviations of what a hash gives it.
    """
    n = difficulty.n_operations
    shapes = math.comb(2 * n, n) // (n + 1)
    trees = int(shapes * len(difficulty.operators) ** n * (difficulty.max_operand + 1) ** (n + 1))
    mean = trees * {Split.TRAIN: 7, Split.DEV: 1}.get(split, 2) // 12
    return mean + 6 * math.isqrt(mean) + 10
