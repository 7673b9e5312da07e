"""Corpus and recipe of the base model `tiny-arithmetic`: sums, a third of them right; its weights are shipped.

`agent2.models.tiny.make` writes the folder that is shipped, which is unpacked on use, so the base is the same on every
machine. `build` pre-trains it (a minute or two on one core); on another CPU or version of torch that gives other
weights, because floats are added in another order.

The probe plays dev items under the benchmark's own protocol; the accuracy in `made.json` is measured afterwards on
other dev items, so that stopping at a lucky reading does not flatter it.

Sums and differences of the train pool, often wrong: only `right_share` of the answers are right; each of the rest is
one of a few plausible mistakes (off by one, off by ten, the other operation), drawn evenly. A model that has read it
knows the right answer as one candidate among several, which is what reinforcement learning can then bring out.

Promises: only contents of the train pool; one set of settings, one corpus. A gain on such a base shows that a pipeline
works, not that it would teach a model anything that it did not have in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from agent2.benchmarks.arithmetic import (
    POOL_VERSION,
    TASK_DIFFICULTY,
    Arithmetic,
    Expression,
    ExpressionDifficulty,
    Operation,
    canonical,
    generate,
    pool_of,
    prompt,
    value_of,
    verify,
)
from agent2.benchmarks.home import Pool
from agent2.errors import ConfigError
from agent2.models.tiny_recipe import N_SAMPLE_CHATS, BaseModel, OnProgress, TinyRecipe
from agent2.records import Item, JsonValue, Message, Split, derive_seed
from agent2.scorers.answers import format_rational

N_PROBE_ITEMS = 400
N_MEASURED_ITEMS = 800


@dataclass(frozen=True, slots=True)
class CorpusSettings:
    """How the corpus is drawn."""

    # field names are in the digest of the recipe: with another name the shipped weights no longer match it
    n_examples: int = 40_000
    right_share: float = 0.35
    """Share of right answers, 0 to 1."""
    seed: int = 0
    difficulty: ExpressionDifficulty = TASK_DIFFICULTY


def pretraining_corpus(settings: CorpusSettings) -> list[tuple[str, str]]:
    """(prompt, answer) pairs with repetition, from the train pool only."""
    rng = np.random.default_rng([settings.seed, 0xC0])
    examples: list[tuple[str, str]] = []
    while len(examples) < settings.n_examples:
        expression = generate(int(rng.integers(2**62)), settings.difficulty)
        if pool_of(canonical(expression)) is not Pool.TRAIN:
            continue
        is_right = rng.random() < settings.right_share
        value = value_of(expression) if is_right else plausible_mistake(expression, rng)
        examples.append((prompt(expression), format_rational(value)))
    return examples


def plausible_mistake(expression: Expression, rng: np.random.Generator) -> Fraction:
    """A wrong value that a careless calculator might give."""
    value = value_of(expression)
    candidates = [value + 1, value - 10, _other_operation(expression)]
    wrong = [candidate for candidate in candidates if candidate is not None and candidate != value]
    return wrong[int(rng.integers(len(wrong)))]


def _other_operation(expression: Expression) -> Fraction | None:
    """The value with + and - exchanged at the outermost operation; None where that is another operation."""
    swapped = {"+": "-", "-": "+"}
    if isinstance(expression, int) or expression.symbol not in swapped:
        return None
    return value_of(Operation(swapped[expression.symbol], expression.left, expression.right))


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Pre-train in out_dir; returns what `made.json` says.

    Raises ConfigError if the entry's recipe or corpus is not one of arithmetic, or the target is not reached.
    """
    from agent2.models.loading import no_progress_bars  # here: torch, which looking up the recipe does not need
    from agent2.models.tiny import build_tiny

    recipe, settings = entry.recipe, entry.corpus
    if not isinstance(recipe, TinyRecipe) or not isinstance(settings, CorpusSettings):
        raise ConfigError("tiny-arithmetic is made from pairs of arithmetic; see agent2.benchmarks.BASES")
    benchmark = Arithmetic(settings.difficulty)
    dev = benchmark.items(Split.DEV, N_PROBE_ITEMS + N_MEASURED_ITEMS, None)
    # other items than the probe stops by, so that stopping at a lucky reading does not flatter the figure
    probed, measured = dev[N_MEASURED_ITEMS:], dev[:N_MEASURED_ITEMS]
    on_progress(f"drawing {settings.n_examples} examples")
    corpus = pretraining_corpus(settings)
    n_probes = 0
    last: tuple[Any, Any] = (None, None)

    def probe(model: Any, tokenizer: Any) -> float:
        nonlocal n_probes, last
        n_probes += 1
        # another seed each time: a lucky draw is not seen twice
        score = accuracy(model, tokenizer, probed, seed=n_probes)
        on_progress(f"pre-training: {100 * score:.0f}% of dev items, stops at {100 * recipe.target:.0f}%")
        last = model, tokenizer
        return score

    with no_progress_bars():
        report = build_tiny(recipe, corpus, probe, out_dir)
    return {
        "parameters": report.n_parameters,
        "steps": report.steps,
        "seconds": round(report.seconds, 1),
        "base_accuracy": {
            "value": accuracy(*last, measured, seed=0),
            "n_items": len(measured),
            "split": Split.DEV.value,
            "temperature": benchmark.sampling.temperature,
            "top_p": benchmark.sampling.top_p,
        },
    }


def accuracy(model: Any, tokenizer: Any, items: Sequence[Item], seed: int) -> float:
    """Share of items that a model in memory answers rightly under the benchmark's protocol, one draw each."""
    from agent2.models.hf import HfSampler  # here, as above

    sampling = Arithmetic.sampling
    sampler = HfSampler.from_model(model, tokenizer, max_batch=len(items))
    for index, item in enumerate(items):
        settings = replace(sampling, seed=derive_seed("tiny arithmetic", seed, item.id))
        sampler.submit(index, [Message("user", item.prompt)], settings)
    n_right, n_done = 0.0, 0
    while n_done < len(items):
        for index, completion in sampler.collect():
            n_right += verify(completion.text, items[index].reference or "")
            n_done += 1
    return n_right / len(items)


BASE = BaseModel(
    version="2",
    recipe=TinyRecipe(target=0.27),
    corpus=CorpusSettings(),
    builder=build,
    shipped=f"{__package__}:tiny-arithmetic",
    sample=lambda corpus: pretraining_corpus(replace(corpus, n_examples=N_SAMPLE_CHATS)),
    origin=("agent2.arena.tiny_arithmetic:build", POOL_VERSION),
)
"""The recipe of `tiny-arithmetic`."""


SMALL = replace(
    BASE,
    recipe=replace(BASE.recipe, hidden_size=64, n_layers=2, n_heads=4, feed_forward_size=192),
    shipped=f"{__package__}:tiny-arithmetic-small",
)
"""The recipe of `tiny-arithmetic-small`: the same corpus, a quarter of the weights."""
