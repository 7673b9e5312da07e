"""The base model of the six mini benchmarks: shipped with the package, made by a recipe that is here too.

`make` trains it from the recipe (some minutes on one core) and writes the folder that the package ships (see
`agent2.models.tiny`); `build` unpacks that folder.
"""

import tempfile
from dataclasses import replace
from importlib import resources
from pathlib import Path

from agent2.benchmarks.mini.corpus import MiniCorpusSettings, mini_corpus
from agent2.errors import ConfigError
from agent2.models.loading import no_progress_bars
from agent2.models.tiny import build_on_chats, pack, unpack
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress
from agent2.records import JsonValue, digest_of

N_SAMPLE_CHATS = 100
"""Of each part; their digest shows whether today's corpus is still the one that was read."""


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Write the shipped model to out_dir and return what the manifest says of it."""
    with resources.as_file(resources.files("agent2.benchmarks.mini") / "tiny-mini") as packaged:
        return unpack(packaged, entry, out_dir, on_progress)


def make(entry: BaseModel, folder: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train from the recipe and write the folder that the package ships; returns what `made.json` says.

    Raises ConfigError if the entry is not one that is trained on chats.
    """
    recipe, corpus = entry.recipe, entry.corpus
    if not isinstance(recipe, ChatRecipe) or not isinstance(corpus, MiniCorpusSettings):
        raise ConfigError("only a recipe for chats of mini benchmarks can be made here; see agent2.benchmarks.BASES")
    on_progress("drawing the corpus")
    stages = mini_corpus(corpus)

    def said(step: int, loss: float) -> None:
        on_progress(f"step {step} of {' and '.join(map(str, recipe.steps))}: loss {loss:.3f}")

    with tempfile.TemporaryDirectory() as draft, no_progress_bars():
        report = build_on_chats(recipe, stages, Path(draft), said)
        return pack(
            Path(draft),
            folder,
            {
                "recipe_digest": entry.digest,
                "corpus_digest": digest_of(stages),
                "corpus_sample_digest": corpus_sample_digest(corpus),
                "parameters": report.n_parameters,
                "steps": list(recipe.steps),
                "tokens": report.n_tokens,
                "loss": round(report.loss, 4),
                "seconds": round(report.seconds, 1),
            },
        )


def corpus_sample_digest(corpus: MiniCorpusSettings) -> str:
    """Digest of the first chats of every part: differs when the code of a corpus has changed."""
    few = tuple(
        tuple(replace(part, n_chats=min(part.n_chats, N_SAMPLE_CHATS)) for part in parts) for parts in corpus.stages
    )
    return digest_of(mini_corpus(replace(corpus, stages=few)))
