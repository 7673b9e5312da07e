"""The mini_functions benchmark: one question, a few offered functions, one message with the calls.

Three kinds of items: `simple` (one call), `parallel` (two calls in one message, in any order) and `none` (no offered
function fits; the right answer is the word none). The calls are executed: `executable_accuracy` compares names and
results, the view `ast_match` also how the arguments were written.

The corpus of the tiny base model has questions and calls, often wrong; how often depends on the function, from rarely
to mostly, so that a model which imitates the corpus is between floor and ceiling under greedy sampling too.

Promises: the corpus has only contents of the train pool. Does NOT compare with published BFCL scores: functions,
questions and sizes are our own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from agent2.benchmarks.home import Source, pick
from agent2.benchmarks.mini.tool_questions import (
    ToolQuestion,
    careless_arguments,
    draw_arguments,
    draw_question,
    right_share,
)
from agent2.environments.tools import ToolCall, ToolRules, write_call, write_calls
from agent2.environments.tools.toolboxes import FUNCTIONS, FunctionToolbox
from agent2.environments.tools.world import NAME, VERSION, ToolWorld, WorldSettings
from agent2.records import Environment, Item, JsonValue, Message, SamplingSettings, Scorer, Split, canonical_json
from agent2.scorers.tool_calls import FunctionCallScorer

HEADER = 'Reply with a JSON call {"name": ..., "arguments": {...}}, a list of calls, or none.\n'
NONE = "none"
KINDS = ("simple", "parallel", "none")
_KIND_SHARES = (0.7, 0.2, 0.1)
_N_OFFERED = 3
SETTINGS = WorldSettings(ToolRules(max_tool_calls=4), is_single_turn=True)


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """The content of one item."""

    kind: str
    questions: Sequence[ToolQuestion]
    offered: Sequence[str]

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that are asked for."""
        return [] if self.kind == "none" else [ToolCall(q.capability, q.arguments) for q in self.questions]

    @property
    def prompt(self) -> str:
        """The user message."""
        tools = " ".join(FUNCTIONS[name].spec.signature for name in self.offered)
        return f"{HEADER}Tools: {tools}\n{' '.join(question.text for question in self.questions)}"


def draw_task(rng: np.random.Generator) -> FunctionTask:
    """A random task of a random kind."""
    kind = KINDS[int(rng.choice(len(KINDS), p=_KIND_SHARES))]
    names = sorted(FUNCTIONS)
    questions = [draw_question(rng, pick(rng, names)) for _ in range(2 if kind == "parallel" else 1)]
    asked_names = {question.capability for question in questions}
    others = [name for name in names if name not in asked_names]
    rng.shuffle(others)
    fitting = [] if kind == "none" else sorted(asked_names)
    offered = [*fitting, *others[: _N_OFFERED - len(fitting)]]
    rng.shuffle(offered)
    return FunctionTask(kind, questions, offered)


def _canonical(task: FunctionTask) -> str:
    """The question without wording and offered functions."""
    return canonical_json(sorted([q.capability, sorted(q.arguments.items())] for q in task.questions)).decode()


SOURCE = Source("mini_functions", draw_task, _canonical, lambda task: task.prompt)


class MiniFunctions:
    """Generated function-calling items in four disjoint splits."""

    name = "mini_functions"
    version = "1.0"
    primary_metric = "executable_accuracy"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.0, max_tokens=64)
    attempts = 1
    tool_protocol = SETTINGS.as_protocol()

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [to_item(task, split, secret) for task in SOURCE.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh tool world with the functions of one item."""
        return ToolWorld(FunctionToolbox, SETTINGS)

    def scorer(self) -> Scorer:
        """Executable accuracy; AST match is a view."""
        return FunctionCallScorer()

    def environment_version(self) -> str:
        """Name and version of the world, and a digest of its rules and faults."""
        return f"{NAME}-v{VERSION}+{SETTINGS.digest}"


def to_item(task: FunctionTask, split: Split, secret: bytes | None = None) -> Item:
    """The item of a task, with the expected results."""
    return Item(
        id=SOURCE.item_id(task, split, secret),
        split=split,
        prompt=task.prompt,
        reference=write_calls(task.calls) if task.calls else NONE,
        payload={"kind": task.kind, "tools": list(task.offered), "gold": [_gold(call) for call in task.calls]},
    )


def _gold(call: ToolCall) -> dict[str, JsonValue]:
    function = FUNCTIONS[call.name]
    arguments = function.spec.with_defaults(call.arguments)
    optional = {p.name: p.default for p in function.spec.parameters if p.default is not None}
    return {"name": call.name, "arguments": arguments, "optional": optional, "result": function.run(arguments)}


def mistaken_answer(task: FunctionTask, rng: np.random.Generator) -> str:
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


def pretraining_examples(
    rng: np.random.Generator, n: int, mean_right_share: float = 0.55, spread: float = 0.3
) -> list[list[Message]]:
    """N chats of two messages. mean_right_share: 0 to 1, over functions; spread: see `right_share`."""
    # two streams: which tasks are drawn does not depend on how many mistakes are made
    draws, chance = rng.spawn(2)
    chats = []
    for task in islice(SOURCE.train_draws(draws), n):
        is_right = chance.random() < right_share(
            f"{task.kind} {task.questions[0].capability}", mean_right_share, spread
        )
        right = write_calls(task.calls) if task.calls else NONE
        chats.append(
            [Message("user", task.prompt), Message("assistant", right if is_right else mistaken_answer(task, chance))]
        )
    return chats
