"""The mini_apis benchmark: find the API, call it, answer.

The names of the APIs and of their parameters differ from item to item, so each must be searched for before it is
called; two capabilities change a cart or bookings, and what counts is what is in them. Tools fail on purpose in a
share of the episodes (`FAULTS`), by the episode's seed. The value is API-call accuracy; the answer is a view.

Does NOT compare with published API-Bank scores: APIs, questions and sizes are our own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agent2.benchmarks.home import Players, at_random
from agent2.benchmarks.keyed_splits import Source
from agent2.benchmarks.mini_apis.players import oracle, random_player
from agent2.benchmarks.tool_questions import Question, draw_question, pick
from agent2.environments.tools.apis import ACTIONS, CAPABILITIES, PREFIXES, SEARCH, Api, ApiToolbox
from agent2.environments.tools.calls import ToolCall
from agent2.environments.tools.catalogue import FUNCTIONS
from agent2.environments.tools.faults import LOGIN, FaultSettings
from agent2.environments.tools.spec import Permission, ToolRules
from agent2.environments.tools.world import NAME, VERSION, ToolWorld, WorldSettings
from agent2.records import Environment, Item, JsonValue, Message, SamplingSettings, Scorer, Split, canonical_json
from agent2.scorers.tool_calls import ApiCallScorer

HEADER = (
    'Reply with one JSON call {"name": ..., "arguments": {...}}, and with the answer alone when you are done.\n'
    f"Tools: {SEARCH.signature} {LOGIN}()\nKeywords: {' '.join(CAPABILITIES)}\n"
)
FAULTS = FaultSettings(rate=0.3, n_positions=2)
PERMISSIONS = frozenset({Permission.READING, Permission.RECORD_CHANGES})
SETTINGS = WorldSettings(ToolRules(PERMISSIONS, max_tool_calls=6, parallel_tool_calls=False), FAULTS)
DONE = "done"


@dataclass(frozen=True, slots=True)
class ApiTask:
    """One item before it is put into words."""

    question: Question
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
        """What that call gives."""
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
    """What is asked, wording and API aside."""
    question = task.question
    return canonical_json([question.capability, sorted(question.arguments.items())]).decode()


def _shown(task: ApiTask) -> str:
    """What the model sees in the end: the question and the API that it finds."""
    return f"{task.prompt}\n{task.api.spec.signature}"


SOURCE = Source("mini_apis", draw_task, _canonical, _shown)


class MiniApis:
    """Generated API tasks in four disjoint splits."""

    name = "mini_apis"
    version = "1.0"
    primary_metric = "api_call_accuracy"
    max_turns = 7
    sampling = SamplingSettings(temperature=0.0, max_tokens=40)
    attempts = 1
    tool_protocol = SETTINGS.as_protocol()

    def __init__(self, settings: WorldSettings = SETTINGS) -> None:
        self._settings = settings

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [to_item(task, split, secret) for task in SOURCE.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh tool world with the APIs of one item."""
        return ToolWorld(ApiToolbox, self._settings)

    def scorer(self) -> Scorer:
        """API-call accuracy."""
        return ApiCallScorer()

    def players(self) -> Players:
        """Who brackets the episodes."""
        return Players(oracle=oracle, random=at_random(random_player), n_played=75)

    def expert(self, item: Item, chat: Sequence[Message]) -> str:
        """What the oracle says next."""
        return oracle(item, chat)

    def environment_version(self) -> str:
        """Name and version of the world, and what its rules and faults are."""
        return f"{NAME}-v{VERSION}+{self._settings.digest}"


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


def _target(question: Question) -> Mapping[str, JsonValue]:
    """Cart and bookings as they should be in the end."""
    row = list(question.arguments.values())
    return {
        "cart": [row] if question.capability == "order" else [],
        "bookings": [row] if question.capability == "book" else [],
    }
