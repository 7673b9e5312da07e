"""A world of one exchange: the item's prompt goes in, one answer comes out.

Promises: single use, deterministic, and `state()["answer"]` is the answer exactly as the model wrote it.
Does NOT judge the answer and does NOT know whether it was cut off at the token limit: the turn's stop
reason says so. The oracle and random players bracket every benchmark that is played here.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from agent2.errors import EnvironmentFailed
from agent2.records import Item, JsonValue, Message, Step

NAME = "question"
VERSION = "1.0"


class QuestionEnvironment:
    """Asks one question, behind a system message if there is one, and takes one answer."""

    name, version = NAME, VERSION

    def __init__(self, system: str | None = None) -> None:
        self._system = system
        self._item_id: str | None = None
        self._answer: str | None = None

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The question as a user message; the seed changes nothing. Raises EnvironmentFailed when reused."""
        if self._item_id is not None:
            raise EnvironmentFailed(
                f"question environment was already used for item {self._item_id!r} and cannot play {item.id!r}; "
                "make a fresh one for each rollout"
            )
        self._item_id = item.id
        opening = [] if self._system is None else [Message("system", self._system)]
        return [*opening, Message("user", item.prompt)]

    def act(self, action: str) -> Step:
        """Take the answer; the episode is over. Raises EnvironmentFailed before reset or after an answer."""
        if self._item_id is None:
            raise EnvironmentFailed("question environment got an answer before it asked; call reset first")
        if self._answer is not None:
            raise EnvironmentFailed(f"item {self._item_id!r} was answered already; one answer ends the episode")
        self._answer = action
        return Step(observation=None, done=True)

    def state(self) -> Mapping[str, JsonValue]:
        """`answer`: what the model wrote, None until it has."""
        return {"answer": self._answer}


def oracle_answer(item: Item) -> str:
    """The answer of a player who knows the reference: the ceiling of every benchmark with one.

    Raises EnvironmentFailed if the item has no reference.
    """
    if item.reference is None:
        raise EnvironmentFailed(f"item {item.id!r} has no reference answer; it has no oracle in this world")
    return item.reference


def random_answer(item: Item, others: Sequence[Item], rng: np.random.Generator) -> str:
    """The answer of a player who knows what answers look like but not the question: the floor.

    others: items whose references are drawn from, the item itself left out.
    Raises EnvironmentFailed if there is no other item with a reference.
    """
    references = [other.reference for other in others if other.id != item.id and other.reference is not None]
    if not references:
        raise EnvironmentFailed(f"item {item.id!r}: no other item has a reference to draw a random answer from")
    return references[int(rng.integers(len(references)))]
