"""What a tiny base model reads of this benchmark: questions and calls, often wrong.

How often depends on the function, from rarely to mostly, so that a model which imitates the corpus lies between
floor and ceiling under greedy sampling too. Only contents of the train pool.
"""

from itertools import islice

import numpy as np

from agent2.benchmarks.mini_functions.benchmark import NONE, SOURCE, FunctionTask
from agent2.benchmarks.mini_functions.players import mistaken
from agent2.benchmarks.tool_questions import right_share
from agent2.environments.tools.calls import write_calls
from agent2.records import Message


def pretraining_examples(
    rng: np.random.Generator, n: int, mean_right_share: float = 0.55, spread: float = 0.3
) -> list[list[Message]]:
    """That many chats of two messages. mean_right_share: 0 to 1, over functions; spread: see `right_share`."""
    draws, chance = rng.spawn(2)
    chats = []
    for task in islice(SOURCE.train_draws(draws), n):
        is_right = chance.random() < right_share(_feature(task), mean_right_share, spread)
        right = write_calls(task.calls) if task.calls else NONE
        chats.append(
            [Message("user", task.prompt), Message("assistant", right if is_right else mistaken(task, chance))]
        )
    return chats


def _feature(task: FunctionTask) -> str:
    return f"{task.kind} {task.questions[0].capability}"
