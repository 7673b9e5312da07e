"""Players that bracket the benchmark, and the mistakes that a corpus shows."""

import numpy as np

from agent2.benchmarks.mini_functions.benchmark import NONE, FunctionTask
from agent2.benchmarks.tool_questions import careless_arguments, draw_arguments, pick
from agent2.environments.tools.calls import ToolCall, write_call
from agent2.records import Item


def oracle(item: Item) -> str:
    """The right message."""
    return str(item.reference)


def random_player(item: Item, rng: np.random.Generator) -> str:
    """A well-formed call of a random offered function with random arguments."""
    name = pick(rng, item.payload["tools"])
    return write_call(ToolCall(name, draw_arguments(rng, name)))


def mistaken(task: FunctionTask, rng: np.random.Generator) -> str:
    """A wrong message that a careless model might write.

    Mistakes are few and follow from the task, so that they are easily learned and unlearned: a call where none
    fits; none where one does; only the first of two calls; the last argument misread.
    """
    if task.kind == "none":
        name = task.offered[0]
        return write_call(ToolCall(name, draw_arguments(rng, name)))
    calls = task.calls
    if rng.random() < 0.15:
        return NONE
    if len(calls) > 1:
        return write_call(calls[0])
    return write_call(ToolCall(calls[0].name, careless_arguments(calls[0].arguments)))
