"""Corpus and recipe of the base model `tiny-pyfunc`: function bodies, most of them wrong; its weights are shipped.

Functions of the train pool with their bodies, of which only `right_share` are right; each of the rest is a plausible
mistake (a constant, a step, the order, the end). So the model knows the right body as one candidate among several,
which is what imitation and reinforcement learning can then bring out. Every phrase and every line of code is one token,
so that a model of half a million weights learns it in about a minute.

Promises: only contents of the train pool; one set of settings, one corpus. A gain on such a base shows that a pipeline
works, not that it would teach a model anything that it did not have in it.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agent2.benchmarks.pyfunc import FAMILIES, Pyfunc, mutants, to_item
from agent2.models.tiny_recipe import N_SAMPLE_CHATS, BaseModel, ChatRecipe, OnProgress, TinyRecipe
from agent2.records import JsonValue, Message, Split


@dataclass(frozen=True, slots=True)
class PyfuncCorpus:
    """How the corpus is drawn."""

    # field names are in the digest of the recipe: with another name the shipped weights no longer match it
    n_chats: int = 12_000
    right_share: float = 0.2
    """Share of right bodies, 0 to 1."""
    seed: int = 0


def corpus_chats(settings: PyfuncCorpus) -> list[list[Message]]:
    """Chats of a prompt and a body."""
    rng = np.random.default_rng([settings.seed, 0xF0])
    functions = Pyfunc().source.train_draws(rng)
    chats: list[list[Message]] = []
    while len(chats) < settings.n_chats:
        function = next(functions)
        item = to_item(function, "", Split.TRAIN)
        body = function.body
        if rng.random() >= settings.right_share:
            mistakes = mutants(function, rng, 1)
            if not mistakes:
                continue
            body = mistakes[0].body
        chats.append([Message("user", item.prompt), Message("assistant", body)])
    return chats


def grammar_pieces() -> tuple[str, ...]:
    """Phrases and lines of code, cut where a constant stands; each is one token."""
    pieces: set[str] = {
        '):\n    """',
        "\n\n    >>> solve(",
        ")\n    ",
        "\n    >>> solve(",
        '\n    """',
        ", ",
        "return r",
    }
    pieces |= {"    if n < 1:\n        return ", "    r = solve(n - 1)\n", ". Else take the value at n - 1, "}
    for family in FAMILIES.values():
        pieces |= {f"def solve({family.parameters}", f"Take {family.parameters.partition(',')[0]}, "}
        for step in (*family.steps, *family.ends):
            for text in (step.phrase, f"    {step.code}"):
                pieces |= {part for part in re.split(r"\{c\}", text.format(c="{c}")) if len(part) > 1}
    return tuple(sorted(pieces, key=lambda piece: (-len(piece), piece)))


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir and return what the manifest says. Raises ConfigError for a recipe of something else."""
    from agent2.models.tiny import build_chat_base  # here: torch, which looking up the recipe does not need

    return build_chat_base(entry, out_dir, on_progress, PyfuncCorpus, lambda corpus: [corpus_chats(corpus)])


SIZE = TinyRecipe(target=0.0, hidden_size=96, n_layers=3, n_heads=6, feed_forward_size=256, max_vocabulary=320)


BASE = BaseModel(
    version="3",
    recipe=ChatRecipe(SIZE, steps=(260,), pieces=grammar_pieces()),
    corpus=PyfuncCorpus(),
    builder=build,
    shipped=f"{__package__}:tiny-pyfunc",
    sample=lambda corpus: corpus_chats(replace(corpus, n_chats=N_SAMPLE_CHATS)),
)
"""The recipe of `tiny-pyfunc`."""


SMALL = replace(
    BASE,
    recipe=replace(BASE.recipe, model=replace(SIZE, hidden_size=64, n_layers=2, n_heads=4, feed_forward_size=192)),
    shipped=f"{__package__}:tiny-pyfunc-small",
)
"""The recipe of `tiny-pyfunc-small`: the same corpus, a third of the weights."""
