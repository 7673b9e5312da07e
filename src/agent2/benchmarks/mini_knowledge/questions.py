"""Questions about the world with four options in random order.

A question is a fact, three wrong options and the place of the right one. Which fact and which options, in whatever
order and wording, is what no two splits share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent2.benchmarks.mini_knowledge.world import BEINGS, FACTS, PROPERTIES

LETTERS = "ABCD"
WORDINGS = ("Which {name} does {being} have?", "What is the {name} of {being}?")
STATEMENT_PROMPT = "Tell the {name} of {being}."


@dataclass(frozen=True, slots=True)
class Question:
    """One multiple-choice question."""

    being: str
    name: str
    """Of the property."""
    options: Sequence[str]
    """Four different values, in the order of the letters."""
    wording: str

    @property
    def letter(self) -> str:
        """Of the right option."""
        return LETTERS[list(self.options).index(FACTS[self.being, self.name])]

    @property
    def text(self) -> str:
        """The user message."""
        asked = self.wording.format(name=self.name, being=self.being)
        return "\n".join([asked, *(f"{letter} {option}" for letter, option in zip(LETTERS, self.options, strict=True))])


def draw_question(rng: np.random.Generator) -> Question:
    """A random question; every place is equally likely for the right option."""
    being = BEINGS[int(rng.integers(len(BEINGS)))]
    name = list(PROPERTIES)[int(rng.integers(len(PROPERTIES)))]
    right = FACTS[being, name]
    others = [value for value in PROPERTIES[name] if value != right]
    options = [right, *(others[int(place)] for place in rng.choice(len(others), size=len(LETTERS) - 1, replace=False))]
    order = rng.permutation(len(options))
    wording = WORDINGS[int(rng.integers(len(WORDINGS)))]
    return Question(being, name, tuple(options[int(place)] for place in order), wording)


def canonical(question: Question) -> str:
    """The fact and its options without order and wording."""
    return f"{question.being} {question.name} {' '.join(sorted(question.options))}"
