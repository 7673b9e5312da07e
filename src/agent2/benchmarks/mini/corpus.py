"""The recipe of the base model `tiny-mini` and its corpus: chats of all six mini benchmarks, mixed.

Each part says how many chats it gives and how often they are right; the latter is what decides how good a model that
imitates the corpus is at that benchmark. Promises: only contents of the train pools; one set of settings, one corpus.
"""

import importlib
from dataclasses import dataclass

import numpy as np

from agent2.benchmarks.mini.drills import DRILLS
from agent2.benchmarks.mini_apis import benchmark as mini_apis
from agent2.benchmarks.mini_functions import benchmark as mini_functions
from agent2.benchmarks.mini_math import benchmark as mini_math
from agent2.benchmarks.mini_repo import benchmark as mini_repo
from agent2.errors import ConfigError
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, TinyRecipe
from agent2.records import Message


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """What one benchmark contributes."""

    benchmark: str
    n_chats: int
    mean_right_share: float
    """0 to 1; what it is a mean over is said by the benchmark's `pretraining_examples`."""
    drill: str = ""
    """A name of `drills.DRILLS` instead of the benchmark's own chats; the share is not used."""


@dataclass(frozen=True, slots=True)
class MiniCorpusSettings:
    """How the corpus is drawn."""

    stages: tuple[tuple[CorpusPart, ...], ...] = (
        (
            CorpusPart("mini_knowledge", 16_000, 0.55),
            CorpusPart("mini_math", 24_000, 0.55),
            CorpusPart("mini_ifeval", 14_000, 0.55),
            CorpusPart("mini_functions", 20_000, 0.55),
            CorpusPart("mini_apis", 9_000, 0.7),
            CorpusPart("mini_repo", 6_000, 0.65),
        ),
        (
            CorpusPart("mini_knowledge", 14_000, 0.85),
            CorpusPart("mini_math", 24_000, 0.85),
            CorpusPart("mini_ifeval", 12_000, 0.8),
            CorpusPart("mini_functions", 6_000, 0.55),
            CorpusPart("mini_apis", 3_000, 0.7),
            CorpusPart("mini_repo", 5_000, 0.75),
        ),
        (
            CorpusPart("mini_math", 9_000, 1.0, drill="sums"),
            CorpusPart("mini_math", 13_000, 0.8),
            CorpusPart("mini_knowledge", 4_000, 1.0, drill="letters"),
            CorpusPart("mini_knowledge", 12_000, 0.85),
            CorpusPart("mini_ifeval", 1_500, 0.8),
            CorpusPart("mini_functions", 1_500, 0.55),
            CorpusPart("mini_apis", 1_000, 0.7),
            CorpusPart("mini_repo", 700, 0.75),
        ),
        (
            CorpusPart("mini_knowledge", 30_000, 1.0, drill="letter_pairs"),
            CorpusPart("mini_knowledge", 6_000, 0.85),
            CorpusPart("mini_math", 1_500, 1.0, drill="sums"),
            CorpusPart("mini_math", 2_000, 0.8),
            CorpusPart("mini_functions", 1_000, 0.6),
            CorpusPart("mini_repo", 500, 0.75),
        ),
        (
            CorpusPart("mini_knowledge", 4_000, 1.0, drill="letter_pairs"),
            CorpusPart("mini_knowledge", 13_000, 0.8),
            CorpusPart("mini_math", 3_000, 1.0, drill="sums"),
            CorpusPart("mini_math", 7_000, 0.8),
            CorpusPart("mini_math", 6_000, 0.0, drill="lost_lines"),
            CorpusPart("mini_ifeval", 8_000, 0.7),
            CorpusPart("mini_functions", 7_000, 0.6),
            CorpusPart("mini_apis", 3_500, 0.75),
            CorpusPart("mini_repo", 2_500, 0.75),
        ),
    )
    """One after the other; the later ones are about what the earlier ones left near the floor."""
    seed: int = 0

    @property
    def benchmarks(self) -> list[str]:
        """Names of the benchmarks of all stages, each once."""
        return list(dict.fromkeys(part.benchmark for parts in self.stages for part in parts))


def mini_corpus(settings: MiniCorpusSettings) -> list[list[list[Message]]]:
    """The chats of every stage, part after part. Raises ConfigError for a benchmark without a corpus."""
    return [
        [chat for part in parts for chat in _chats(part, settings.seed + stage)]
        for stage, parts in enumerate(settings.stages)
    ]


def _chats(part: CorpusPart, seed: int) -> list[list[Message]]:
    try:
        corpus = importlib.import_module(f"agent2.benchmarks.{part.benchmark}.corpus")
    except ModuleNotFoundError as error:
        raise ConfigError(f"benchmark {part.benchmark!r} has no corpus; take one of the mini benchmarks") from error
    rng = np.random.default_rng([seed, sum(part.benchmark.encode())])
    if part.drill:
        return DRILLS[part.drill](rng, part.n_chats)
    chats: list[list[Message]] = corpus.pretraining_examples(rng, part.n_chats, mean_right_share=part.mean_right_share)
    return chats


def single_tokens() -> tuple[str, ...]:
    """Strings that are worth a token: frames of calls and replies, fixed instructions."""
    frames = (
        '{"name": "',
        '", "arguments": {"',
        '", "arguments": {}}',
        '": "',
        '", "',
        '"}}',
        '{"result": ',
        '{"error": "',
    )
    return (*frames, mini_functions.HEADER, mini_apis.HEADER, mini_repo.HEADER, mini_math.FOOTER)


BASE = BaseModel(
    version="2",
    recipe=ChatRecipe(
        TinyRecipe(target=1.0, n_layers=4, max_vocabulary=900, context_tokens=512, warmup_steps=20),
        steps=(1600, 1100, 1000, 700, 1200),
        batch_tokens=2048,
        pieces=single_tokens(),
    ),
    corpus=MiniCorpusSettings(),
    builder="agent2.benchmarks.mini.base:build",
    origin=("agent2.arena.tiny_mini:build", "arithmetic-pools-1"),
)
