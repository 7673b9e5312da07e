"""The mini_math benchmark: a word problem, a short working, and a last line `#### N`.

Only the strictly read final answer counts (`exact_match`): a right number without its line earns nothing, and the
views tell "cannot read it" and "wrong" apart. Does NOT compare with published GSM8K scores.
"""

from agent2.benchmarks.home import Players, foreign_answers, reference_answer
from agent2.benchmarks.keyed_splits import Source
from agent2.benchmarks.mini_math.problems import Problem, canonical, draw_problem, worked_answer
from agent2.environments.question import NAME, VERSION, QuestionEnvironment
from agent2.records import Environment, Item, SamplingSettings, Scorer, Split
from agent2.scorers.final_answer import FinalAnswerScorer

FOOTER = " End with #### and the number."
SOURCE: Source[Problem] = Source("mini_math", draw_problem, canonical, lambda problem: prompt(problem))


def prompt(problem: Problem) -> str:
    """The user message."""
    return problem.text + FOOTER


class MiniMath:
    """Generated word problems in four disjoint splits."""

    name = "mini_math"
    version = "1.0"
    primary_metric = "exact_match"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.0, max_tokens=48)
    attempts = 1

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [to_item(problem, split, secret) for problem in SOURCE.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def scorer(self) -> Scorer:
        """The final answer, read strictly."""
        return FinalAnswerScorer()

    def players(self) -> Players:
        """Who brackets the problems; a foreign answer is now and then right by chance."""
        return Players(reference_answer, foreign_answers, floor_at_most=0.10)

    def environment_version(self) -> str:
        """Name and version of the world."""
        return f"{NAME}-v{VERSION}"


def to_item(problem: Problem, split: Split, secret: bytes | None = None) -> Item:
    """The item of a problem; its reference is a whole worked answer, as in GSM8K."""
    return Item(
        id=SOURCE.item_id(problem, split, secret),
        split=split,
        prompt=prompt(problem),
        reference=worked_answer(problem.steps),
        payload={"kind": problem.kind, "n_steps": len(problem.steps)},
    )
