"""The mini_knowledge benchmark: which value does a being of the closed world have, A, B, C or D?

The order of options is drawn for every question; the views `chose_a` to `chose_d` show a liking for one letter. Does
NOT compare with published MMLU scores, and asks for facts that only this project's corpora hold: a model that has
never read them scores a quarter at best.
"""

from agent2.benchmarks.keyed_splits import Source
from agent2.benchmarks.mini_knowledge.questions import Question, canonical, draw_question
from agent2.environments.question import NAME, VERSION, QuestionEnvironment
from agent2.records import Environment, Item, SamplingSettings, Scorer, Split
from agent2.scorers.choice import ChoiceScorer

SOURCE: Source[Question] = Source("mini_knowledge", draw_question, canonical, lambda question: question.text)


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
        return f"{NAME}-v{VERSION}"


def to_item(question: Question, split: Split, secret: bytes | None = None) -> Item:
    """The item of a question; its reference is a letter."""
    return Item(
        id=SOURCE.item_id(question, split, secret),
        split=split,
        prompt=question.text,
        reference=question.letter,
        payload={"property": question.name, "options": list(question.options)},
    )
