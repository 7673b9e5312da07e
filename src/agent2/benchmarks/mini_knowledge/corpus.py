"""What a tiny base model reads of this benchmark: bare facts and questions, often wrong.

How often depends on the property, so that a model which imitates the corpus knows some things well and others
hardly. Every fact is told as it is in a share of the examples; a wrong answer to a question is one of its other
options. Only questions of the train pool; the facts themselves belong to no split.
"""

import numpy as np

from agent2.benchmarks.mini_knowledge.benchmark import SOURCE
from agent2.benchmarks.mini_knowledge.questions import LETTERS, STATEMENT_PROMPT, Question
from agent2.benchmarks.mini_knowledge.world import FACTS
from agent2.benchmarks.tool_questions import right_share
from agent2.records import Message

FACT_SHARE = 0.3
"""Share of the examples that tell a bare fact."""


def pretraining_examples(
    rng: np.random.Generator, n: int, mean_right_share: float = 0.55, spread: float = 0.3
) -> list[list[Message]]:
    """Draws n chats of two messages.

    mean_right_share: of questions, 0 to 1, over properties (bare facts are always right); spread: see `right_share`.
    """
    questions = SOURCE.train_draws(rng)
    return [
        _fact(rng) if rng.random() < FACT_SHARE else _asked(next(questions), rng, mean_right_share, spread)
        for _ in range(n)
    ]


def drawn_answer(question: Question, rng: np.random.Generator, mean_right_share: float, spread: float) -> str:
    """A letter, the right one as often as the property says."""
    is_right = rng.random() < right_share(f"mini_knowledge {question.name}", mean_right_share, spread)
    return question.letter if is_right else mistaken(question, rng)


def mistaken(question: Question, rng: np.random.Generator) -> str:
    """The letter of a wrong option."""
    wrong = [letter for letter in LETTERS if letter != question.letter]
    return wrong[int(rng.integers(len(wrong)))]


def _asked(question: Question, rng: np.random.Generator, mean_right_share: float, spread: float) -> list[Message]:
    answer = drawn_answer(question, rng, mean_right_share, spread)
    return [Message("user", question.text), Message("assistant", answer)]


def _fact(rng: np.random.Generator) -> list[Message]:
    (being, name), value = list(FACTS.items())[int(rng.integers(len(FACTS)))]
    return [Message("user", STATEMENT_PROMPT.format(name=name, being=being)), Message("assistant", value)]
