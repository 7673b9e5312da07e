"""Who may see which expression.

Every canonical expression falls into one of three pools by a public hash: `hidden` (4 of 12), `dev` (1)
and `train` (7, also the only source of the pre-training corpus). So nothing visible ever shows a hidden
expression, and a list of all visible items says nothing about which ones are asked.

Hidden items are drawn from the hidden pool with a stream of seeds keyed by HMAC(installation secret), and
a keyed bit of each expression decides between `test_public` and `test_private`. Without the secret one
knows the pool, not the choice; at the difficulty of the arena's task the pool holds about five times as
many expressions as the two hidden splits use.

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
import hashlib
import hmac
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import count
from types import MappingProxyType

import numpy as np

from agent2.errors import ConfigError
from agent2.records import HIDDEN_SPLITS, Split, derive_seed

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
_MAX_BARREN_DRAWS = 20_000
"""So many draws without a new expression mean that the split is used up."""


class ExpressionPool(StrEnum):
    """The part of all expressions that a split draws from."""

    TRAIN = "train"
    DEV = "dev"
    HIDDEN = "hidden"


def pool_of(canonical_text: str) -> ExpressionPool:
    """The pool of an expression, by a public hash of its canonical text."""
    digest = hashlib.sha256(f"{POOL_VERSION}\0{canonical_text}".encode()).digest()
    bucket = int.from_bytes(digest[:4], "big") % 12
    if bucket < 4:
        return ExpressionPool.HIDDEN
    return ExpressionPool.DEV if bucket == 4 else ExpressionPool.TRAIN


def distinct_expressions(split: Split, difficulty: ExpressionDifficulty, secret: bytes | None) -> Iterator[Expression]:
    """The expressions of a split in their fixed order, each canonical text once.

    Ends when the split is used up. Raises ConfigError if a hidden split is asked for without the secret.
    """
    if split in HIDDEN_SPLITS and not secret:
        raise ConfigError(
            f"split {split.value!r} of arithmetic is hidden and needs the installation secret; "
            "only the grader may ask for it"
        )
    seen: set[str] = set()
    barren = 0
    for seed in _seeds(split, secret):
        expression = generate(seed, difficulty)
        text = canonical(expression)
        if text in seen or not _belongs(text, split, secret):
            barren += 1
            if barren >= _MAX_BARREN_DRAWS:
                return
            continue
        seen.add(text)
        barren = 0
        yield expression


def count_at_most(split: Split, difficulty: ExpressionDifficulty) -> int:
    """A number that the expressions of a split do not exceed, without drawing any.

    All trees of the difficulty, times the share of the split, plus six standard deviations of what a hash gives it.
    """
    n = difficulty.n_operations
    shapes = math.comb(2 * n, n) // (n + 1)
    trees = int(shapes * len(difficulty.operators) ** n * (difficulty.max_operand + 1) ** (n + 1))
    mean = trees * {Split.TRAIN: 7, Split.DEV: 1}.get(split, 2) // 12
    return mean + 6 * math.isqrt(mean) + 10


def item_id(canonical_text: str, split: Split, secret: bytes | None) -> str:
    """A stable id; that of a hidden item is keyed, so that a list of ids reveals no expressions."""
    message = f"arithmetic item\0{canonical_text}".encode()
    if split in HIDDEN_SPLITS and secret:
        return "arithmetic-" + hmac.new(secret, message, hashlib.sha256).hexdigest()[:16]
    return "arithmetic-" + hashlib.sha256(message).hexdigest()[:16]


def _seeds(split: Split, secret: bytes | None) -> Iterator[int]:
    for index in count():
        if split in HIDDEN_SPLITS and secret:
            digest = hmac.new(secret, f"arithmetic draw\0{split.value}\0{index}".encode(), hashlib.sha256).digest()
            yield int.from_bytes(digest[:16], "big")
        else:
            yield derive_seed("arithmetic draw", split.value, index)


def _belongs(canonical_text: str, split: Split, secret: bytes | None) -> bool:
    pool = pool_of(canonical_text)
    if split is Split.TRAIN:
        return pool is ExpressionPool.TRAIN
    if split is Split.DEV:
        return pool is ExpressionPool.DEV
    if pool is not ExpressionPool.HIDDEN or not secret:
        return False
    keyed = hmac.new(secret, f"arithmetic side\0{canonical_text}".encode(), hashlib.sha256).digest()
    return (keyed[0] & 1 == 0) == (split is Split.TEST_PUBLIC)
