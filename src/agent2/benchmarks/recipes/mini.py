"""Corpus and recipe of the base model `tiny-mini`: chats of all six mini benchmarks, mixed.

The package ships the weights. Each part of the corpus says how many chats it gives and how often they are right; the
latter decides how good a model that imitates the corpus is at that benchmark. Some parts are drills: *sums* and
*letters* train two skills that questions alone teach too slowly (steps of worked answers without their stories, eight
in a chat; which letter precedes a value), *lost_lines* one bad habit (worked answers that end before their last line).
`build` trains the model (half an hour on one core).

Promises: only contents of the train pools (a sum is a step of a visible problem, letters ask for no fact); one set of
settings, one corpus.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.mini import apis as mini_apis
from agent2.benchmarks.mini import functions as mini_functions
from agent2.benchmarks.mini import math as mini_math
from agent2.benchmarks.mini import repo as mini_repo
from agent2.benchmarks.mini.knowledge import LETTERS, PROPERTIES
from agent2.benchmarks.mini.math import SOURCE, prompt, worked_answer
from agent2.errors import ConfigError
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress, TinyRecipe
from agent2.records import JsonValue, Message

N_SUMS = 8
LOST_KINDS = ("add", "add_subtract", "multiply_add")
N_SAMPLE_CHATS = 100
"""Of each part, for the sample of the corpus."""


def sums(rng: np.random.Generator, n: int) -> list[list[Message]]:
    """N chats of two messages, the second with eight sums."""
    steps = (step for problem in SOURCE.train_draws(rng) for step in problem.steps)
    chats = []
    for _ in range(n):
        lines = [f"{left} {symbol} {right} = {result}" for left, symbol, right, result in islice(steps, N_SUMS)]
        chats.append([Message("user", "Work out."), Message("assistant", "\n".join(lines))])
    return chats


def letters(rng: np.random.Generator, n: int, n_queries: int = 3) -> list[list[Message]]:
    """N chats that ask for the letters of four values, one after the other."""
    names = list(PROPERTIES)
    chats = []
    for _ in range(n):
        options = [
            str(option) for option in rng.permutation(PROPERTIES[names[int(rng.integers(len(names)))]])[: len(LETTERS)]
        ]
        listed = "\n".join(f"{letter} {option}" for letter, option in zip(LETTERS, options, strict=True))
        chat: list[Message] = []
        order = rng.permutation(len(LETTERS)).tolist()
        for index in islice(cycle(order), n_queries):
            question = f"Which is {options[index]}?"
            chat += [
                Message("user", question if chat else f"{question}\n{listed}"),
                Message("assistant", LETTERS[index]),
            ]
        chats.append(chat)
    return chats


def lost_lines(rng: np.random.Generator, n: int) -> list[list[Message]]:
    """N worked answers of three kinds of problems without their last line.

    A model that was trained on more of these than of whole answers omits the line when it is sampled greedily, and now
    and then writes it at a higher temperature: something that a reward for readable final answers can bring out.
    """
    problems = (problem for problem in SOURCE.train_draws(rng) if problem.kind in LOST_KINDS)
    chats = []
    for problem in islice(problems, n):
        working = worked_answer(problem.steps).rpartition("\n")[0]
        chats.append([Message("user", prompt(problem)), Message("assistant", working)])
    return chats


DRILLS: Mapping[str, Callable[[np.random.Generator, int], list[list[Message]]]] = MappingProxyType(
    {"sums": sums, "lost_lines": lost_lines, "letters": letters, "letter_pairs": partial(letters, n_queries=2)}
)


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """The contribution of one benchmark to a stage."""

    benchmark: str
    n_chats: int
    mean_right_share: float
    """0 to 1; the benchmark's `pretraining_examples` says over what."""
    drill: str = ""
    """A name of `DRILLS` instead of the benchmark's own chats; the share is not used."""


@dataclass(frozen=True, slots=True)
class MiniCorpusSettings:
    """How the corpus is drawn."""

    # field names are in the digest of the recipe: with another name the shipped weights no longer match it
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
    """In training order; later stages repeat what earlier ones left near the floor."""
    seed: int = 0


def mini_corpus(settings: MiniCorpusSettings) -> list[list[list[Message]]]:
    """The chats of every stage, part after part. Raises ConfigError for a benchmark without a corpus."""
    return [
        [chat for part in parts for chat in _chats_of_part(part, settings.seed + stage)]
        for stage, parts in enumerate(settings.stages)
    ]


def _chats_of_part(part: CorpusPart, seed: int) -> list[list[Message]]:
    try:
        corpus = importlib.import_module(f"agent2.benchmarks.mini.{part.benchmark.removeprefix('mini_')}")
    except ModuleNotFoundError as error:
        raise ConfigError(f"benchmark {part.benchmark!r} has no corpus; take one of the mini benchmarks") from error
    # a number for the name that is the same in every process, which hash() is not
    rng = np.random.default_rng([seed, sum(part.benchmark.encode())])
    if part.drill:
        return DRILLS[part.drill](rng, part.n_chats)
    chats: list[list[Message]] = corpus.pretraining_examples(rng, part.n_chats, mean_right_share=part.mean_right_share)
    return chats


def single_tokens() -> tuple[str, ...]:
    """Strings that become one token each: frames of calls and replies, fixed instructions."""
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


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir; returns what `made.json` says. Raises ConfigError for a recipe of something else."""
    from agent2.models.tiny import build_chat_base  # torch, which a look-up of the recipe does not need

    return build_chat_base(entry, out_dir, on_progress, MiniCorpusSettings, mini_corpus)


def sample(corpus: MiniCorpusSettings) -> list[list[list[Message]]]:
    """The first chats of every part."""
    few = tuple(tuple(replace(part, n_chats=N_SAMPLE_CHATS) for part in parts) for parts in corpus.stages)
    return mini_corpus(replace(corpus, stages=few))


BASE = BaseModel(
    version="2",
    recipe=ChatRecipe(
        TinyRecipe(target=1.0, n_layers=4, max_vocabulary=900, context_tokens=512, warmup_steps=20),
        steps=(1600, 1100, 1000, 700, 1200),
        batch_tokens=2048,
        pieces=single_tokens(),
    ),
    corpus=MiniCorpusSettings(),
    builder=build,
    shipped=f"{__package__}:tiny-mini",
    sample=sample,
    origin=("agent2.arena.tiny_mini:build", "arithmetic-pools-1"),
)
