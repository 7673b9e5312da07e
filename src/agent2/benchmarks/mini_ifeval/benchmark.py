"""The mini_ifeval benchmark: write about a topic under one or two verifiable instructions.

Prompt-level strict accuracy is the score; instruction-level and loose accuracy and the four classes (keyword, length,
format, language) are views. The checkers are those for the published IFEval; the items are our own and short, so
scores do NOT compare with published ones. `rows` reads the official file.
"""

from agent2.benchmarks.home import Players, foreign_answers, reference_answer
from agent2.benchmarks.keyed_splits import Source
from agent2.benchmarks.mini_ifeval.tasks import WritingTask, canonical, draw_task
from agent2.environments.question import NAME, VERSION, QuestionEnvironment
from agent2.errors import ConfigError
from agent2.records import Environment, Item, SamplingSettings, Scorer, Split
from agent2.scorers.constraints.instructions import read_instructions
from agent2.scorers.constraints.scorer import ConstraintScorer

SOURCE: Source[WritingTask] = Source("mini_ifeval", draw_task, canonical, lambda task: task.prompt)


class MiniIfeval:
    """Generated writing tasks in four disjoint splits."""

    name = "mini_ifeval"
    version = "1.0"
    primary_metric = "prompt_level_accuracy"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.0, max_tokens=64)
    attempts = 1

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [to_item(task, split, secret) for task in SOURCE.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def scorer(self) -> Scorer:
        """The instruction checks."""
        return ConstraintScorer()

    def players(self) -> Players:
        """Who brackets the tasks; a foreign text now and then follows the instructions."""
        return Players(reference_answer, foreign_answers, floor_at_most=0.10)

    def environment_version(self) -> str:
        """Name and version of the world."""
        return f"{NAME}-v{VERSION}"


def to_item(task: WritingTask, split: Split, secret: bytes | None = None) -> Item:
    """The item of a task; its reference is one text of many that follow the instructions.

    Raises ConfigError if that text does not follow them: then the generator is broken.
    """
    names = [wish.name for wish in task.wishes]
    kwargs = [dict(wish.arguments) for wish in task.wishes]
    answer = task.answer
    for instruction in read_instructions(names, kwargs, "mini_ifeval"):
        finding = instruction.check(answer)
        if not finding.followed:
            raise ConfigError(
                f"mini_ifeval: {task.prompt!r}: its own answer {answer!r} fails {instruction.name} ({finding.seen}); "
                "the generator is broken, report it"
            )
    return Item(
        id=SOURCE.item_id(task, split, secret),
        split=split,
        prompt=task.prompt,
        reference=answer,
        payload={"instruction_id_list": names, "kwargs": kwargs},
    )
