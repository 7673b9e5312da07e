"""The tiny base model of `pyfunc`: made on this machine from functions that are mostly wrong.

What it reads: functions of the train pool with their bodies, of which only `right_share` are right; each of the others
is a plausible mistake (a constant, a step, the order, the end). So it knows the right body as one candidate among
several, which is what imitation and reinforcement learning can then bring out. Every phrase and every line of code is
one token, so that a model of half a million weights learns it in about a minute.

Promises: only functions of the train pool; one seed, one corpus. A gain on such a base shows that a pipeline works; it
does NOT show that it would teach a model anything it did not have in it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent2.benchmarks.pyfunc.benchmark import FAMILIES, Pyfunc, mutants, to_item
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress, TinyRecipe, built_on_chats
from agent2.records import JsonValue, Message, Split


@dataclass(frozen=True, slots=True)
class PyfuncCorpus:
    """How the corpus is drawn."""

    n_chats: int = 12_000
    right_share: float = 0.2
    """Share of right bodies, 0 to 1."""
    seed: int = 0


def corpus_chats(settings: PyfuncCorpus) -> list[list[Message]]:
    """Chats of a prompt and a body."""
    rng = np.random.default_rng([settings.seed, 0xF0])
    drawn = Pyfunc().source.train_draws(rng)
    chats: list[list[Message]] = []
    while len(chats) < settings.n_chats:
        function = next(drawn)
        item = to_item(function, "", Split.TRAIN)
        body = function.body
        if rng.random() >= settings.right_share:
            wrong = mutants(function, rng, 1)
            if not wrong:
                continue
            body = wrong[0].body
        chats.append([Message("user", item.prompt), Message("assistant", body)])
    return chats


def grammar_pieces() -> tuple[str, ...]:
    """Phrases and lines of code, cut where a constant stands; each is one token."""
    found: set[str] = {
        '):\n    """',
        "\n\n    >>> solve(",
        ")\n    ",
        "\n    >>> solve(",
        '\n    """',
        ", ",
        "return r",
    }
    found |= {"    if n < 1:\n        return ", "    r = solve(n - 1)\n", ". Else take the value at n - 1, "}
    for family in FAMILIES.values():
        found |= {f"def solve({family.parameters}", f"Take {family.parameters.partition(',')[0]}, "}
        for step in (*family.steps, *family.ends):
            for text in (step.words, f"    {step.code}"):
                found |= {part for part in re.split(r"\{c\}", text.format(c="{c}")) if len(part) > 1}
    return tuple(sorted(found, key=lambda piece: (-len(piece), piece)))


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir and return what the manifest says. Raises ConfigError for a recipe of something else."""
    return built_on_chats(entry, out_dir, on_progress, PyfuncCorpus, corpus_chats)


SIZE = TinyRecipe(target=0.0, hidden_size=96, n_layers=3, n_heads=6, feed_forward_size=256, max_vocabulary=320)
BASE = BaseModel(
    version="2",
    recipe=ChatRecipe(SIZE, steps=(260,), pieces=grammar_pieces()),
    corpus=PyfuncCorpus(),
    builder=build,
)
"""The recipe of `tiny-pyfunc`."""
