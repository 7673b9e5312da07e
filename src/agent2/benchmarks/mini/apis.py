"""The mini_apis benchmark: find the API, call it, answer.

The names of the APIs and of their parameters differ from item to item, so each must be searched for before it is
called; two capabilities change a cart or bookings, and what counts is the final state of these. Tools fail on purpose
in a share of the episodes (`FAULTS`), by the episode's seed. The value is API-call accuracy; the answer is a view.

Players are stateless: they decide from the task and the chat so far, so that any of them can take over at any point. In
the corpus of the tiny base model each message is right or mistaken by chance; how often depends on the capability and
on what comes next (search, call, answer, recovery), so that a model which imitates the corpus is between floor and
ceiling under greedy sampling too.

Promises: the corpus has only contents of the train pool. Does NOT compare with published API-Bank scores: APIs,
questions and sizes are our own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from agent2.benchmarks.home import Source, pick
from agent2.benchmarks.mini.tool_questions import (
    EpisodeParts,
    ToolEpisodes,
    ToolQuestion,
    careless_arguments,
    draw_arguments,
    draw_question,
    right_share,
)
from agent2.environments.tools import Permission, ToolCall, ToolRules, write_call
from agent2.environments.tools.toolboxes import ACTIONS, CAPABILITIES, FUNCTIONS, PREFIXES, SEARCH, Api, ApiToolbox
from agent2.environments.tools.world import LOGIN, FaultSettings, ToolFaultKind, WorldSettings
from agent2.records import Item, JsonValue, Message, SamplingSettings, Scorer, Split, canonical_json
from agent2.scorers.tool_calls import ApiCallScorer

LOGIN_CALL = ToolCall(LOGIN, {})
GAVE_UP = "failed"
HEADER = (
    'Reply with one JSON call {"name": ..., "arguments": {...}}, and with the answer alone when you are done.\n'
    f"Tools: {SEARCH.signature} {LOGIN}()\nKeywords: {' '.join(CAPABILITIES)}\n"
)
FAULTS = FaultSettings(rate=0.3, n_positions=2)
PERMISSIONS = frozenset({Permission.READING, Permission.RECORD_CHANGES})
SETTINGS = WorldSettings(ToolRules(PERMISSIONS, max_tool_calls=6, parallel_tool_calls=False), FAULTS)
DONE = "done"
_AFTER_ERROR: Mapping[str, float] = {
    ToolFaultKind.TIMEOUT: 0.85,
    ToolFaultKind.PERMISSION_DENIED: 0.65,
    ToolFaultKind.EMPTY_RESULT: 0.35,
}
"""How often the message after an error is right; 0.25 after any other error."""
CLEAN = (1.0, 0.0)
"""Mean right share and spread of a corpus without mistakes."""
_WHEN_DONE = 0.9
"""How often a successful call is not repeated."""


def oracle(item: Item, messages: Sequence[Message]) -> str:
    """The right next message: search, call, answer; repeat what failed, after `login` where it was denied."""
    payload, done = item.payload, successful_calls(messages)
    failed = last_error(messages)
    if failed is not None and failed.startswith(ToolFaultKind.PERMISSION_DENIED):
        return write_call(LOGIN_CALL)
    if SEARCH.name not in done:
        return write_call(ToolCall(SEARCH.name, {"keyword": payload["capability"]}))
    gold = payload["gold"]
    if gold["name"] not in done:
        return write_call(ToolCall(gold["name"], gold["arguments"]))
    return str(item.reference)


def random_player(item: Item, messages: Sequence[Message], rng: np.random.Generator) -> str:
    """Searches for something, calls a random API with random arguments, then says a random number."""
    if len(messages) == 1:
        return write_call(ToolCall(SEARCH.name, {"keyword": pick(rng, CAPABILITIES)}))
    if len(messages) == 3:
        api = Api(pick(rng, CAPABILITIES), pick(rng, PREFIXES), int(rng.integers(2)))
        return write_call(api.call(draw_arguments(rng, api.capability)))
    return str(int(rng.integers(100)))


def mistaken_action(item: Item, messages: Sequence[Message]) -> str:
    """A wrong next message that a careless model might write.

    Gives up after an error; guesses the API instead of searching; misreads the last argument; calls once more.
    """
    payload, done, gold = item.payload, successful_calls(messages), item.payload["gold"]
    if last_error(messages) is not None:
        return GAVE_UP
    if SEARCH.name not in done:
        guess = Api(payload["capability"], PREFIXES[0], 0)
        renamed = zip((p.name for p in guess.spec.parameters), gold["arguments"].values(), strict=True)
        return write_call(ToolCall(guess.spec.name, dict(renamed)))
    arguments = gold["arguments"] if gold["name"] in done else careless_arguments(gold["arguments"])
    return write_call(ToolCall(gold["name"], arguments))


def successful_calls(messages: Sequence[Message]) -> list[str]:
    """Names of the successful calls in order, read from the chat alone."""
    return [name for name, reply in _exchanges(messages) if "result" in reply]


def last_error(messages: Sequence[Message]) -> str | None:
    """The error of the last call; None if it succeeded."""
    exchanges = _exchanges(messages)
    return None if not exchanges else exchanges[-1][1].get("error")


def _exchanges(messages: Sequence[Message]) -> list[tuple[str, dict[str, JsonValue]]]:
    pairs = zip(messages[1::2], messages[2::2], strict=False)
    return [
        (json.loads(call_message.text)["name"], json.loads(reply_message.text)) for call_message, reply_message in pairs
    ]


@dataclass(frozen=True, slots=True)
class ApiTask:
    """The content of one item."""

    question: ToolQuestion
    api: Api

    @property
    def search(self) -> ToolCall:
        """The search that finds the API."""
        return ToolCall(SEARCH.name, {"keyword": self.question.capability})

    @property
    def call(self) -> ToolCall:
        """The call that is asked for."""
        return self.api.call(self.question.arguments)

    @property
    def result(self) -> JsonValue:
        """The result of that call."""
        if self.question.capability in ACTIONS:
            return DONE
        return FUNCTIONS[self.question.capability].run(self.question.arguments)

    @property
    def prompt(self) -> str:
        """The user message."""
        return f"{HEADER}{self.question.text}"


def draw_task(rng: np.random.Generator) -> ApiTask:
    """A random task."""
    capability = pick(rng, CAPABILITIES)
    return ApiTask(draw_question(rng, capability), Api(capability, pick(rng, PREFIXES), int(rng.integers(2))))


def _canonical(task: ApiTask) -> str:
    """The question without wording and API."""
    question = task.question
    return canonical_json([question.capability, sorted(question.arguments.items())]).decode()


def _text_seen(task: ApiTask) -> str:
    """All that the model sees: the question and the API that it finds."""
    return f"{task.prompt}\n{task.api.spec.signature}"


SOURCE = Source("mini_apis", draw_task, _canonical, _text_seen)


class MiniApis(ToolEpisodes[ApiTask]):
    """Generated API tasks in four disjoint splits."""

    name = "mini_apis"
    primary_metric = "api_call_accuracy"
    max_turns = 7
    sampling = SamplingSettings(temperature=0.0, max_tokens=40)

    def __init__(self, settings: WorldSettings = SETTINGS) -> None:
        super().__init__(EpisodeParts(SOURCE, to_item, ApiToolbox, oracle, random_player), settings)

    def scorer(self) -> Scorer:
        """API-call accuracy."""
        return ApiCallScorer()


def to_item(task: ApiTask, split: Split, secret: bytes | None = None) -> Item:
    """The item of a task, with the call that is asked for and the state that it leaves."""
    call = task.call
    return Item(
        id=SOURCE.item_id(task, split, secret),
        split=split,
        prompt=task.prompt,
        reference=str(task.result),
        payload={
            "capability": task.api.capability,
            "prefix": task.api.prefix,
            "dialect": task.api.dialect,
            "gold": {"name": call.name, "arguments": dict(call.arguments), "result": task.result},
            "target": _target(task.question),
        },
    )


def _target(question: ToolQuestion) -> Mapping[str, JsonValue]:
    """The right final cart and bookings."""
    row = list(question.arguments.values())
    return {
        "cart": [row] if question.capability == "order" else [],
        "bookings": [row] if question.capability == "book" else [],
    }


def pretraining_examples(
    rng: np.random.Generator, n: int, mean_right_share: float = 0.7, spread: float = 0.3
) -> list[list[Message]]:
    """N chats of several turns.

    mean_right_share: of searches and calls, 0 to 1, over capabilities; spread: see `right_share`.
    With 1.0 and 0.0 every message is right, also after errors.
    """
    return MiniApis().train_chats(rng, n, partial(_careless_action, (mean_right_share, spread)))


def _careless_action(
    shares: tuple[float, float], item: Item, rng: np.random.Generator, messages: Sequence[Message]
) -> str:
    """The right next message, or a mistake; what comes next decides how often it is right."""
    error, done = last_error(messages), successful_calls(messages)
    if shares == CLEAN:
        share = 1.0
    elif error is not None:
        share = _AFTER_ERROR.get(error.partition(":")[0], 0.25)
    elif item.payload["gold"]["name"] in done:
        share = _WHEN_DONE
    else:
        share = right_share(f"{item.payload['capability']} {SEARCH.name in done}", *shares)
    return oracle(item, messages) if rng.random() < share else mistaken_action(item, messages)
