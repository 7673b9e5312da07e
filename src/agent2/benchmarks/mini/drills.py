"""Drills for a tiny base model: two skills that questions alone teach too slowly, and one bad habit.

*sums*: steps of worked answers without their stories, eight in a chat. *letters*: which letter stands before a value.
*lost_lines*: worked answers that end before their last line. All of the train pool: a sum is a step of a problem that
may be read, letters ask for no fact.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle, islice
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.mini_knowledge.questions import LETTERS
from agent2.benchmarks.mini_knowledge.world import PROPERTIES
from agent2.benchmarks.mini_math.benchmark import SOURCE, prompt
from agent2.benchmarks.mini_math.problems import worked_answer
from agent2.records import Message

N_SUMS = 8
LOST_KINDS = ("add", "add_subtract", "multiply_add")


def sums(rng: np.random.Generator, n: int) -> list[list[Message]]:
    """That many chats of two messages, the second with eight sums."""
    steps = (step for problem in SOURCE.train_draws(rng) for step in problem.steps)
    chats = []
    for _ in range(n):
        lines = [f"{left} {symbol} {right} = {result}" for left, symbol, right, result in islice(steps, N_SUMS)]
        chats.append([Message("user", "Work out."), Message("assistant", "\n".join(lines))])
    return chats


def letters(rng: np.random.Generator, n: int, n_queries: int = 3) -> list[list[Message]]:
    """That many chats in which lettered values are asked for one after the other, each of the four in turn."""
    names = list(PROPERTIES)
    chats = []
    for _ in range(n):
        options = [
            str(one) for one in rng.permutation(PROPERTIES[names[int(rng.integers(len(names)))]])[: len(LETTERS)]
        ]
        listed = "\n".join(f"{letter} {option}" for letter, option in zip(LETTERS, options, strict=True))
        chat: list[Message] = []
        order = rng.permutation(len(LETTERS)).tolist()
        for place in islice(cycle(order), n_queries):
            asked = f"Which is {options[place]}?"
            chat += [Message("user", asked if chat else f"{asked}\n{listed}"), Message("assistant", LETTERS[place])]
        chats.append(chat)
    return chats


def lost_lines(rng: np.random.Generator, n: int) -> list[list[Message]]:
    """That many worked answers of three kinds of problems without their last line.

    A model that has read more of them than of whole answers leaves the line out when it is sampled greedily, and now
    and then writes it otherwise: something that a reward for readable final answers can bring out.
    """
    problems = (problem for problem in SOURCE.train_draws(rng) if problem.kind in LOST_KINDS)
    chats = []
    for problem in islice(problems, n):
        working = worked_answer(problem.steps).rpartition("\n")[0]
        chats.append([Message("user", prompt(problem)), Message("assistant", working)])
    return chats


DRILLS: Mapping[str, Callable[[np.random.Generator, int], list[list[Message]]]] = MappingProxyType(
    {"sums": sums, "lost_lines": lost_lines, "letters": letters, "letter_pairs": partial(letters, n_queries=2)}
)
