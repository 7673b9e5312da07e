"""Worlds that items are played in, with the simplest of them: `QuestionEnvironment` asks once and takes one answer.

`ENVIRONMENTS` names the worlds that a benchmark made of data alone may choose; installed packages add to it
(`agent2.plugins`). A world of a plug-in has a `name` and a `version` beside the members of
`agent2.records.Environment`.

The question promises: single use, deterministic, and `state()["answer"]` is the answer exactly as the model wrote it.
Does NOT judge the answer and does NOT know whether it was cut off at the token limit: the turn's stop reason says so.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agent2.errors import EnvironmentFailed
from agent2.pictures import of_payload, place_pictures
from agent2.records import Item, JsonValue, Message, Step

ENVIRONMENTS: Mapping[str, str] = MappingProxyType(
    {
        "chat": "agent2.environments.chat:ChatEnvironment",
        "function_prompt": "agent2.environments.function_prompt:FunctionPromptEnvironment",
        "likelihood": "agent2.environments.likelihood:LikelihoodEnvironment",
        "openenv": "agent2.environments.openenv:OpenEnvWorld",
        "option_orders": "agent2.environments.option_orders:OptionOrdersEnvironment",
        "question": "agent2.environments:QuestionEnvironment",
        "search": "agent2.environments.search.world:document_world",
    }
)


class QuestionEnvironment:
    """Asks one question, after a system message and solved examples if there are any, and takes one answer."""

    name, version = "question", "1.0"

    def __init__(self, system: str | None = None, examples: Sequence[tuple[str, str]] = ()) -> None:
        """examples: question and answer of each."""
        self._system, self._examples = system, examples
        self._item_id: str | None = None
        self._answer: str | None = None
        self._task_type: Mapping[str, JsonValue] = {}

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The question as a user message; the seed changes nothing. Raises EnvironmentFailed when reused."""
        if self._item_id is not None:
            raise EnvironmentFailed(
                f"question environment was already used for item {self._item_id!r} and cannot play {item.id!r}; "
                "make a fresh one for each rollout"
            )
        self._item_id = item.id
        self._task_type = {"task_type": item.payload["task_type"]} if "task_type" in item.payload else {}
        opening = [] if self._system is None else [Message("system", self._system)]
        for question, answer in self._examples:
            opening += [Message("user", question), Message("assistant", answer)]
        return [*opening, place_pictures("user", item.prompt, of_payload(item.payload))]

    def act(self, action: str) -> Step:
        """Take the answer; the episode is over. Raises EnvironmentFailed before reset or after an answer."""
        if self._item_id is None:
            raise EnvironmentFailed("question environment got an answer before it asked; call reset first")
        if self._answer is not None:
            raise EnvironmentFailed(f"item {self._item_id!r} was answered already; one answer ends the episode")
        self._answer = action
        return Step(observation=None, done=True)

    def state(self) -> Mapping[str, JsonValue]:
        """`answer`: what the model wrote, None until it has; `task_type`: of items whose payload names one."""
        return {"answer": self._answer, **self._task_type}


QUESTION_WORLD = f"{QuestionEnvironment.name}-v{QuestionEnvironment.version}"
"""The `environment_version` of benchmarks of single questions."""
