"""What a tiny base model reads of this benchmark: worked answers, often wrong in one of two ways.

A *slip* gets a step wrong and carries it on to a well-formed final line; a *lost line* gets the sum right and leaves
the final line out or spoils it. How often an answer is right depends on the kind of problem, so that a model which
imitates the corpus lies between floor and ceiling under greedy sampling too. Only problems of the train pool.
"""

import numpy as np

from agent2.benchmarks.mini_math.benchmark import SOURCE, prompt
from agent2.benchmarks.mini_math.problems import Problem, apply, worked_answer
from agent2.benchmarks.tool_questions import right_share
from agent2.records import Message

_FORMAT_SHARE = 0.3
"""Share of the wrong answers that are wrong in their last line only."""


def pretraining_examples(
    rng: np.random.Generator, n: int, mean_right_share: float = 0.55, spread: float = 0.3
) -> list[list[Message]]:
    """Draws n chats of two messages. mean_right_share: 0 to 1, over kinds of problems; spread: see `right_share`."""
    problems = SOURCE.train_draws(rng)
    return [_chat(next(problems), rng, mean_right_share, spread) for _ in range(n)]


def drawn_answer(problem: Problem, rng: np.random.Generator, mean_right_share: float, spread: float) -> str:
    """A worked answer, right as often as the kind of problem says."""
    is_right = rng.random() < right_share(f"mini_math {problem.kind}", mean_right_share, spread)
    return worked_answer(problem.steps) if is_right else mistaken(problem, rng)


def mistaken(problem: Problem, rng: np.random.Generator) -> str:
    """A wrong answer that a careless model might write."""
    if rng.random() < _FORMAT_SHARE:
        working = worked_answer(problem.steps).rpartition("\n")[0]
        return working if rng.random() < 0.5 else f"{working}\nThe answer is {problem.answer}."
    return worked_answer(_with_slip(problem, rng))


def _with_slip(problem: Problem, rng: np.random.Generator) -> list[tuple[int, str, int, int]]:
    """The steps with one result off by one or by ten, carried on through what follows."""
    wrong_step = int(rng.integers(len(problem.steps)))
    value, steps = problem.numbers[0], []
    for index, (_, symbol, number, _) in enumerate(problem.steps):
        result = apply(symbol, value, number)
        if index == wrong_step:
            result += int(rng.choice([1, 10])) if result <= 10 else int(rng.choice([-10, -1, 1, 10]))
        steps.append((value, symbol, number, result))
        value = result
    return steps


def _chat(problem: Problem, rng: np.random.Generator, mean_right_share: float, spread: float) -> list[Message]:
    answer = drawn_answer(problem, rng, mean_right_share, spread)
    return [Message("user", prompt(problem)), Message("assistant", answer)]
