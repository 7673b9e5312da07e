"""Corpus and recipe of `tiny-vision`, the base model of the mini benchmarks of pictures; the package ships the weights.

Pictures and questions of the train pools with right answers, a third from each benchmark. Training ends while the model
still misreads a part of them, which leaves something to learn.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent2.benchmarks.mini.vision import SOURCES, SceneQuestion, SeenQuestion
from agent2.errors import ConfigError
from agent2.models.tiny_recipe import N_SAMPLE_CHATS, BaseModel, OnProgress, VisionRecipe
from agent2.records import JsonValue

if TYPE_CHECKING:
    from agent2.models.tiny_vision import SeenExample

PIECES = (
    "What color is the ",
    "What is left of the ",
    "What is right of the ",
    "What is above the ",
    "What is below the ",
    "How many shapes are ",
    "What is the value of ",
    "Which bar is highest?",
    "How much higher is ",
    " than ",
    "What is in row ",
    ", column ",
    "Which number is in line ",
)
"""Frames of the questions, one token each: so an example is 25 tokens instead of 40."""
N_VOCABULARY_TEXTS = 600
MAX_TURNS = 10
"""Questions about one picture in an example: what the encoder saw is paid for once."""


@dataclass(frozen=True, slots=True)
class VisionCorpus:
    """How the corpus is drawn."""

    seed: int = 0
    n_vocabulary_texts: int = N_VOCABULARY_TEXTS
    """Questions whose words make the vocabulary."""


def questions_of(corpus: VisionCorpus) -> Iterator[SeenQuestion]:
    """Endless questions of the train pools, from each benchmark in turn."""
    draws = [
        source.train_draws(np.random.default_rng([corpus.seed, place])) for place, source in enumerate(SOURCES.values())
    ]
    while True:
        for draw in draws:
            yield next(draw)


def example_of(question: SeenQuestion, answer_of: Callable[[SceneQuestion], str] | None = None) -> "SeenExample":
    """A scene as training reads it: up to `MAX_TURNS` of its questions, the one that was drawn first.

    answer_of: the answers to learn; None: the right ones.
    """
    from agent2.models.tiny_vision import SeenExample

    further = [entry for entry in question.questions if entry.text != question.text]
    rng = np.random.default_rng(question.jitter)
    chosen = [further[int(place)] for place in rng.permutation(len(further))[: MAX_TURNS - 1]]
    first = next(entry for entry in question.questions if entry.text == question.text)
    turns = [(entry.text, entry.answer if answer_of is None else answer_of(entry)) for entry in (first, *chosen)]
    return SeenExample(question.pixels(), turns, question.cells)


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir and return what the manifest says. Raises ConfigError for a recipe of something else."""
    from agent2.models.tiny import threads
    from agent2.models.tiny_vision import build_on_pictures

    recipe, corpus = entry.recipe, entry.corpus
    if not isinstance(recipe, VisionRecipe) or not isinstance(corpus, VisionCorpus):
        raise ConfigError("only recipes with VisionCorpus can be made here; see agent2.benchmarks.BASES")
    questions = questions_of(corpus)
    first = [next(questions) for _ in range(corpus.n_vocabulary_texts)]
    texts = [question.text for question in first], [question.answer for question in first]
    batches = (
        [example_of(next(questions)) for _ in range(recipe.batch_size)]
        for _ in range(recipe.naming_steps + recipe.steps)
    )

    def report_step(step: int, loss: float) -> None:
        on_progress(f"step {step} of {recipe.steps}: loss {loss:.3f}")

    with threads(recipe.threads):
        report = build_on_pictures(recipe, texts, batches, out_dir, report_step)
    return {
        "parameters": report.n_parameters,
        "steps": recipe.steps,
        "loss": round(report.loss, 4),
        "seconds": round(report.seconds, 1),
    }


def _sample(corpus: VisionCorpus) -> list[list[str]]:
    questions = questions_of(corpus)
    return [
        [question.text, question.answer, question.scene]
        for question, _ in zip(questions, range(N_SAMPLE_CHATS), strict=False)
    ]


BASE = BaseModel(
    version="1",
    recipe=VisionRecipe(steps=700, naming_steps=400, pieces=PIECES),
    corpus=VisionCorpus(),
    builder=build,
    shipped=f"{__package__}:tiny-vision",
    sample=_sample,
)
"""The recipe of `tiny-vision`."""
