"""The mini_knowledge benchmark: which value does a being of the closed world have, A, B, C or D?

The closed world has invented beings, each with one value for every property. The facts are fixed and public, as those
of a textbook are; what is hidden is which question is asked with which options. A question is a fact, three wrong
options and the position of the right one, in random order; the views `chose_a` to `chose_d` show a preference for one
letter.

The corpus of the tiny base model has bare facts and questions that are often answered wrongly with another of their
options; how often depends on the property, so that a model which imitates the corpus knows some properties well and
others hardly. Every fact is stated correctly in a share of the examples.

Promises: no two splits share a fact with its options, in whatever order and wording; the corpus has only questions of
the train pool, while the facts themselves belong to no split. Does NOT compare with published MMLU scores, and asks for
facts that only this project's corpora hold: a model that was never trained on them scores a quarter at best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.home import Source
from agent2.benchmarks.mini.tool_questions import right_share
from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.records import Environment, Item, Message, SamplingSettings, Scorer, Split
from agent2.scorers.choice import ChoiceScorer

BEINGS = (
    "arlo", "bexa", "cori", "dunu", "elmi", "fola", "giso", "hara", "ilpo", "joka", "kemi", "lusa",
    "mavo", "nebi", "oruk", "pilo", "quen", "rasu", "soti", "tavo", "ulma", "vesu", "wido", "zefa",
)  # fmt: skip
PROPERTIES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "color": ("red", "blue", "green", "gold", "black", "white", "pink", "gray"),
        "food": ("fish", "rice", "nuts", "bread", "honey", "grass", "corn", "milk"),
        "home": ("cave", "lake", "tree", "hill", "desert", "river", "island", "forest"),
    }
)
_WORLD_SEED = 20_260_801
LETTERS = "ABCD"
WORDINGS = ("Which {name} does {being} have?", "What is the {name} of {being}?")
STATEMENT_PROMPT = "Tell the {name} of {being}."
FACT_SHARE = 0.3
"""Share of the examples that state a bare fact."""


def _facts() -> Mapping[tuple[str, str], str]:
    rng = np.random.default_rng(_WORLD_SEED)
    return MappingProxyType(
        {
            (being, name): values[int(rng.integers(len(values)))]
            for being in BEINGS
            for name, values in PROPERTIES.items()
        }
    )


FACTS = _facts()
"""(being, property) -> value."""


@dataclass(frozen=True, slots=True)
class KnowledgeQuestion:
    """One multiple-choice question."""

    being: str
    name: str
    """Name of the property."""
    options: Sequence[str]
    """Four different values, in the order of the letters."""
    wording: str

    @property
    def letter(self) -> str:
        """The letter of the right option."""
        return LETTERS[list(self.options).index(FACTS[self.being, self.name])]

    @property
    def text(self) -> str:
        """The user message."""
        question = self.wording.format(name=self.name, being=self.being)
        return "\n".join(
            [question, *(f"{letter} {option}" for letter, option in zip(LETTERS, self.options, strict=True))]
        )


def draw_question(rng: np.random.Generator) -> KnowledgeQuestion:
    """A random question; the right option is equally likely at every position."""
    being = BEINGS[int(rng.integers(len(BEINGS)))]
    name = list(PROPERTIES)[int(rng.integers(len(PROPERTIES)))]
    right = FACTS[being, name]
    others = [value for value in PROPERTIES[name] if value != right]
    options = [right, *(others[int(index)] for index in rng.choice(len(others), size=len(LETTERS) - 1, replace=False))]
    order = rng.permutation(len(options))
    wording = WORDINGS[int(rng.integers(len(WORDINGS)))]
    return KnowledgeQuestion(being, name, tuple(options[int(index)] for index in order), wording)


def canonical(question: KnowledgeQuestion) -> str:
    """The fact and its options without order and wording."""
    return f"{question.being} {question.name} {' '.join(sorted(question.options))}"


SOURCE: Source[KnowledgeQuestion] = Source("mini_knowledge", draw_question, canonical, lambda question: question.text)


class MiniKnowledge:
    """Generated multiple-choice questions in four disjoint splits."""

    name = "mini_knowledge"
    version = "1.0"
    primary_metric = "accuracy"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.0, max_tokens=16)
    attempts = 1

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [to_item(question, split, secret) for question in SOURCE.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def scorer(self) -> Scorer:
        """The letter, by rule."""
        return ChoiceScorer()

    def environment_version(self) -> str:
        """Name and version of the world."""
        return QUESTION_WORLD


def to_item(question: KnowledgeQuestion, split: Split, secret: bytes | None = None) -> Item:
    """The item of a question; its reference is a letter."""
    return Item(
        id=SOURCE.item_id(question, split, secret),
        split=split,
        prompt=question.text,
        reference=question.letter,
        payload={"property": question.name, "options": list(question.options)},
    )


def pretraining_examples(
    rng: np.random.Generator, n: int, mean_right_share: float = 0.55, spread: float = 0.3
) -> list[list[Message]]:
    """N chats of two messages.

    mean_right_share: of questions, 0 to 1, over properties (bare facts are always right); spread: see `right_share`.
    """
    questions = SOURCE.train_draws(rng)
    facts = list(FACTS.items())
    chats = []
    for _ in range(n):
        if rng.random() < FACT_SHARE:
            (being, name), answer = facts[int(rng.integers(len(facts)))]
            prompt = STATEMENT_PROMPT.format(name=name, being=being)
        else:
            question = next(questions)
            prompt, answer = question.text, draw_answer(question, rng, mean_right_share, spread)
        chats.append([Message("user", prompt), Message("assistant", answer)])
    return chats


def draw_answer(question: KnowledgeQuestion, rng: np.random.Generator, mean_right_share: float, spread: float) -> str:
    """A letter; the property decides how often it is the right one."""
    is_right = rng.random() < right_share(f"mini_knowledge {question.name}", mean_right_share, spread)
    return question.letter if is_right else mistaken_answer(question, rng)


def mistaken_answer(question: KnowledgeQuestion, rng: np.random.Generator) -> str:
    """The letter of a wrong option."""
    wrong = [letter for letter in LETTERS if letter != question.letter]
    return wrong[int(rng.integers(len(wrong)))]
