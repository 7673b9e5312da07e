"""Word problems: a story in one or two steps, its working and its answer.

A story is text around numbers; the same numbers in the same steps are the same problem in whatever words, and no two
splits share one. All answers are whole numbers, none is negative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from agent2.scorers.final_answer import final_answer_line

PEOPLE = ("Ann", "Ben", "Eva", "Ida", "Leo", "Max", "Tom", "Zoe")
THINGS = ("pens", "cups", "eggs", "nuts", "hats", "toys", "cards", "coins")
_MORE = ("gets {n} more", "buys {n} more", "finds {n} more")
_LESS = ("loses {n}", "gives away {n}", "sells {n}")
_BOXES = ("{who} has {a} boxes with {b} {what} each.", "{who} fills {a} boxes with {b} {what} each.")

KINDS = ("add", "subtract", "multiply", "add_subtract", "multiply_add", "multiply_subtract")
_SHARES = (0.2, 0.2, 0.1, 0.2, 0.15, 0.15)
_STEPS: Mapping[str, str] = MappingProxyType(
    {
        "add": "+",
        "subtract": "-",
        "multiply": "*",
        "add_subtract": "+-",
        "multiply_add": "*+",
        "multiply_subtract": "*-",
    }
)
"""The operations of each kind, in order."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One word problem."""

    kind: str
    """One of `KINDS`."""
    numbers: Sequence[int]
    """In the order in which the steps use them; one more than there are steps."""
    text: str

    @property
    def steps(self) -> list[tuple[int, str, int, int]]:
        """Left side, operation, right side and result of each step."""
        found, value = [], self.numbers[0]
        for symbol, number in zip(_STEPS[self.kind], self.numbers[1:], strict=True):
            result = apply(symbol, value, number)
            found.append((value, symbol, number, result))
            value = result
        return found

    @property
    def answer(self) -> int:
        """The result of the last step."""
        return self.steps[-1][-1]


def apply(symbol: str, left: int, right: int) -> int:
    """The value of `left symbol right` for `+`, `-` and `*`."""
    return {"+": left + right, "-": left - right, "*": left * right}[symbol]


def draw_problem(rng: np.random.Generator) -> Problem:
    """A random problem of a random kind."""
    kind = KINDS[int(rng.choice(len(KINDS), p=_SHARES))]
    numbers = _numbers(rng, kind)
    who, what = _pick(rng, PEOPLE), _pick(rng, THINGS)
    opening = _pick(rng, _BOXES) if "multiply" in kind else "{who} has {a} {what}."
    text = opening.format(who=who, what=what, a=numbers[0], b=numbers[1])
    changes = numbers[2:] if "multiply" in kind else numbers[1:]
    symbols = _STEPS[kind][-len(changes) :] if changes else ""
    clauses = [
        _pick(rng, _MORE if symbol == "+" else _LESS).format(n=number)
        for symbol, number in zip(symbols, changes, strict=True)
    ]
    if clauses:
        text += f" {who} {' and '.join(clauses)}."
    return Problem(kind, numbers, f"{text} How many {what} now?")


def worked_answer(steps: Sequence[tuple[int, str, int, int]]) -> str:
    """One line for each step, then the line with the final answer."""
    lines = [f"{left} {symbol} {right} = {result}" for left, symbol, right, result in steps]
    return "\n".join([*lines, final_answer_line(steps[-1][-1])])


def canonical(problem: Problem) -> str:
    """Steps and numbers without the story; sums and products in either order."""
    numbers = list(problem.numbers)
    if problem.kind.startswith(("add", "multiply")):
        numbers[:2] = sorted(numbers[:2])
    return f"{_STEPS[problem.kind]} {' '.join(map(str, numbers))}"


def _numbers(rng: np.random.Generator, kind: str) -> list[int]:
    def draw(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    if kind == "add":
        return [draw(2, 40), draw(2, 40)]
    if kind == "subtract":
        first = draw(4, 60)
        return [first, draw(2, first - 1)]
    if kind == "add_subtract":
        first, second = draw(2, 30), draw(2, 30)
        return [first, second, draw(2, first + second - 1)]
    boxes, each = draw(2, 9), draw(2, 9)
    match kind:
        case "multiply":
            return [boxes, each]
        case "multiply_add":
            return [boxes, each, draw(2, 20)]
        case _:
            return [boxes, each, draw(2, min(20, boxes * each - 1))]


def _pick(rng: np.random.Generator, choices: Sequence[str]) -> str:
    return choices[int(rng.integers(len(choices)))]
