"""The mini_math benchmark: a word problem, a short working, and a last line `#### N`.

A problem is a story in one or two steps with its working and its answer; answers are whole numbers and never negative.
Only the strictly read final answer counts (`exact_match`): a right number without its line earns nothing, and the views
distinguish "cannot be read" and "wrong".

The corpus of the tiny base model has worked answers that are often wrong in one of two ways: a *slip* gets a step wrong
and carries it on to a well-formed final line; a *lost line* gets the result right and omits or spoils the final line.
How often an answer is right depends on the kind of problem, so that a model which imitates the corpus is between floor
and ceiling under greedy sampling too.

Promises: the same numbers in the same steps are the same problem in whatever words, and no two splits share one; the
corpus has only problems of the train pool. Does NOT compare with published GSM8K scores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.home import Players, Source, foreign_answers, pick, reference_answer
from agent2.benchmarks.mini.tool_questions import right_share
from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.records import Environment, Item, Message, SamplingSettings, Scorer, Split
from agent2.scorers.answers import FinalAnswerScorer, final_answer_line

PEOPLE = ("Ann", "Ben", "Eva", "Ida", "Leo", "Max", "Tom", "Zoe")
GOODS = ("pens", "cups", "eggs", "nuts", "hats", "toys", "cards", "coins")
_MORE = ("gets {n} more", "buys {n} more", "finds {n} more")
_LESS = ("loses {n}", "gives away {n}", "sells {n}")
_BOXES = ("{person} has {a} boxes with {b} {goods} each.", "{person} fills {a} boxes with {b} {goods} each.")

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
FOOTER = " End with #### and the number."
_FORMAT_SHARE = 0.3
"""Share of the wrong answers that are wrong in their last line only."""


@dataclass(frozen=True, slots=True)
class WordProblem:
    """One word problem."""

    kind: str
    """One of `KINDS`."""
    numbers: Sequence[int]
    """Operands in the order in which the steps use them; one more than there are steps."""
    text: str

    @property
    def steps(self) -> list[tuple[int, str, int, int]]:
        """Left side, operation, right side and result of each step."""
        steps, value = [], self.numbers[0]
        for symbol, number in zip(_STEPS[self.kind], self.numbers[1:], strict=True):
            result = apply_operator(symbol, value, number)
            steps.append((value, symbol, number, result))
            value = result
        return steps

    @property
    def answer(self) -> int:
        """The result of the last step."""
        return self.steps[-1][-1]


def apply_operator(symbol: str, left: int, right: int) -> int:
    """The value of `left symbol right` for `+`, `-` and `*`."""
    return {"+": left + right, "-": left - right, "*": left * right}[symbol]


def draw_problem(rng: np.random.Generator) -> WordProblem:
    """A random problem of a random kind."""
    kind = KINDS[int(rng.choice(len(KINDS), p=_SHARES))]
    numbers = _numbers(rng, kind)
    person, goods = pick(rng, PEOPLE), pick(rng, GOODS)
    opening = pick(rng, _BOXES) if "multiply" in kind else "{person} has {a} {goods}."
    text = opening.format(person=person, goods=goods, a=numbers[0], b=numbers[1])
    changes = numbers[2:] if "multiply" in kind else numbers[1:]
    symbols = _STEPS[kind][-len(changes) :] if changes else ""
    clauses = [
        pick(rng, _MORE if symbol == "+" else _LESS).format(n=number)
        for symbol, number in zip(symbols, changes, strict=True)
    ]
    if clauses:
        text += f" {person} {' and '.join(clauses)}."
    return WordProblem(kind, numbers, f"{text} How many {goods} now?")


def worked_answer(steps: Sequence[tuple[int, str, int, int]]) -> str:
    """One line for each step, then the line with the final answer."""
    lines = [f"{left} {symbol} {right} = {result}" for left, symbol, right, result in steps]
    return "\n".join([*lines, final_answer_line(steps[-1][-1])])


def canonical(problem: WordProblem) -> str:
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
    boxes, per_box = draw(2, 9), draw(2, 9)
    match kind:
        case "multiply":
            return [boxes, per_box]
        case "multiply_add":
            return [boxes, per_box, draw(2, 20)]
        case _:
            return [boxes, per_box, draw(2, min(20, boxes * per_box - 1))]


SOURCE: Source[WordProblem] = Source("mini_math", draw_problem, canonical, lambda problem: prompt(problem))


def prompt(problem: WordProblem) -> str:
    """The user message."""
    return problem.text + FOOTER


class MiniMath:
    """Generated word problems in four disjoint splits."""

    name = "mini_math"
    version = "1.0"
    primary_metric = "exact_match"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.0, max_tokens=48)
    attempts = 1

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [to_item(problem, split, secret) for problem in SOURCE.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def scorer(self) -> Scorer:
        """The final answer, read strictly."""
        return FinalAnswerScorer()

    def players(self) -> Players:
        """References and foreign answers, which are now and then right by chance."""
        return Players(reference_answer, foreign_answers, floor_at_most=0.10)

    def environment_version(self) -> str:
        """Name and version of the world."""
        return QUESTION_WORLD


def to_item(problem: WordProblem, split: Split, secret: bytes | None = None) -> Item:
    """The item of a problem; its reference is a whole worked answer, as in GSM8K."""
    return Item(
        id=SOURCE.item_id(problem, split, secret),
        split=split,
        prompt=prompt(problem),
        reference=worked_answer(problem.steps),
        payload={"kind": problem.kind, "n_steps": len(problem.steps)},
    )


def pretraining_examples(
    rng: np.random.Generator, n: int, mean_right_share: float = 0.55, spread: float = 0.3
) -> list[list[Message]]:
    """N chats of two messages. mean_right_share: 0 to 1, over kinds of problems; spread: see `right_share`."""
    chats = []
    for problem in islice(SOURCE.train_draws(rng), n):
        answer = draw_answer(problem, rng, mean_right_share, spread)
        chats.append([Message("user", prompt(problem)), Message("assistant", answer)])
    return chats


def draw_answer(problem: WordProblem, rng: np.random.Generator, mean_right_share: float, spread: float) -> str:
    """A worked answer; its kind of problem decides how often it is right."""
    is_right = rng.random() < right_share(f"mini_math {problem.kind}", mean_right_share, spread)
    return worked_answer(problem.steps) if is_right else mistaken_answer(problem, rng)


def mistaken_answer(problem: WordProblem, rng: np.random.Generator) -> str:
    """A wrong answer that a careless model might write."""
    if rng.random() < _FORMAT_SHARE:
        working = worked_answer(problem.steps).rpartition("\n")[0]
        return working if rng.random() < 0.5 else f"{working}\nThe answer is {problem.answer}."
    return worked_answer(_steps_with_slip(problem, rng))


def _steps_with_slip(problem: WordProblem, rng: np.random.Generator) -> list[tuple[int, str, int, int]]:
    """The steps with one result off by one or by ten, carried on through the following steps."""
    wrong_step = int(rng.integers(len(problem.steps)))
    value, steps = problem.numbers[0], []
    for index, (_, symbol, number, _) in enumerate(problem.steps):
        result = apply_operator(symbol, value, number)
        if index == wrong_step:
            # never below 0: no answer of this benchmark is negative
            result += int(rng.choice([1, 10])) if result <= 10 else int(rng.choice([-10, -1, 1, 10]))
        steps.append((value, symbol, number, result))
        value = result
    return steps
