"""Corpus and recipe of the base model `tiny-arithmetic-pyfunc`, from the corpora of both parts, both mostly wrong."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from agent2.benchmarks.recipes.arithmetic import CorpusSettings, pretraining_corpus
from agent2.benchmarks.recipes.pyfunc import SIZE, PyfuncCorpus, corpus_chats, grammar_pieces
from agent2.models.tiny_recipe import N_SAMPLE_CHATS, BaseModel, ChatRecipe, OnProgress
from agent2.records import JsonValue, Message


@dataclass(frozen=True, slots=True)
class MixtureCorpus:
    """How the corpus is drawn."""

    # field names are in the digest of the recipe: with another name the shipped weights no longer match it
    arithmetic: CorpusSettings = field(default_factory=lambda: CorpusSettings(n_examples=24_000))
    pyfunc: PyfuncCorpus = field(default_factory=lambda: PyfuncCorpus(n_chats=6_000))


def mixed_chats(settings: MixtureCorpus) -> list[list[Message]]:
    """Chats of both kinds."""
    sums = pretraining_corpus(settings.arithmetic)
    return [
        *([Message("user", prompt), Message("assistant", answer)] for prompt, answer in sums),
        *corpus_chats(settings.pyfunc),
    ]


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir and return what the manifest says. Raises ConfigError for a recipe of something else."""
    from agent2.models.tiny import build_chat_base  # here: torch, which looking up the recipe does not need

    return build_chat_base(entry, out_dir, on_progress, MixtureCorpus, lambda corpus: [mixed_chats(corpus)])


BASE = BaseModel(
    version="4",
    recipe=ChatRecipe(SIZE, steps=(800,), pieces=grammar_pieces()),
    corpus=MixtureCorpus(),
    builder=build,
    shipped=f"{__package__}:tiny-arithmetic-pyfunc",
    sample=lambda corpus: mixed_chats(
        MixtureCorpus(
            replace(corpus.arithmetic, n_examples=N_SAMPLE_CHATS), replace(corpus.pyfunc, n_chats=N_SAMPLE_CHATS)
        )
    ),
)
"""The recipe of `tiny-arithmetic-pyfunc`."""
