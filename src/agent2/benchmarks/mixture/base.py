"""The tiny base model of `arithmetic_pyfunc`: made from the corpora of the two tiny bases, both mostly wrong."""

from dataclasses import dataclass, field
from pathlib import Path

from agent2.benchmarks.arithmetic.benchmark import CorpusSettings, pretraining_corpus
from agent2.benchmarks.pyfunc.base import SIZE, PyfuncCorpus, corpus_chats, grammar_pieces
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress, built_on_chats
from agent2.records import JsonValue, Message


@dataclass(frozen=True, slots=True)
class MixtureCorpus:
    """How the corpus is drawn."""

    arithmetic: CorpusSettings = field(default_factory=lambda: CorpusSettings(n_examples=24_000))
    pyfunc: PyfuncCorpus = field(default_factory=lambda: PyfuncCorpus(n_chats=6_000))


def mixed_chats(settings: MixtureCorpus) -> list[list[Message]]:
    """Chats of both kinds."""
    sums = pretraining_corpus(settings.arithmetic)
    return [
        *([Message("user", asked), Message("assistant", answer)] for asked, answer in sums),
        *corpus_chats(settings.pyfunc),
    ]


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir and return what the manifest says. Raises ConfigError for a recipe of something else."""
    return built_on_chats(entry, out_dir, on_progress, MixtureCorpus, mixed_chats)


BASE = BaseModel(
    version="3",
    recipe=ChatRecipe(SIZE, steps=(800,), pieces=grammar_pieces()),
    corpus=MixtureCorpus(),
    builder=build,
)
"""The recipe of `tiny-arithmetic-pyfunc`."""
