"""The base model of the embedded `household` task: shipped with the package, made by a recipe that is here too.

`make` trains it from the recipe (some minutes on one core) on games that were played badly (see
`agent2.benchmarks.household.corpus`) and writes the folder that the package ships: weights in half precision, about
1.5 MB, and `made.json` with the digests of recipe, corpus and weights. In the first stage every token is learned, what
the game says too, so the model gets to know the world and not only the words of a command; in the second one only
commands are. "shelf 1" and "shelf 2" begin as nearly the same vector as "shelf", so that a goal and what it is about
look alike from the start.

Promises: `build` gives the same weights on every machine. Does NOT promise that `make` gives the shipped weights
again on another machine or version of torch (float order differs).
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from agent2.benchmarks.household.corpus import HouseholdCorpusSettings, household_corpus
from agent2.errors import ConfigError
from agent2.models.loading import no_progress_bars
from agent2.models.tiny import (
    all_learned,
    build_model,
    build_word_tokenizer,
    encode_chats,
    pack,
    threads,
    train_stage,
    unpack,
)
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress
from agent2.records import JsonValue, Message, digest_of

N_SAMPLE_CHATS = 200
"""Their digest shows whether today's corpus is still the one that was read."""
N_TOKENIZER_CHATS = 2000
OWN_PART = 0.5
"""Of a numbered name's first vector: how much is its own, beside its word's."""


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Write the shipped model to out_dir and return what the manifest says of it.

    Raises ConfigError if the shipped weights are not those of `made.json`, or were made by another recipe.
    """
    with resources.as_file(resources.files("agent2.benchmarks.household") / "tiny-household") as packaged:
        return unpack(packaged, entry, out_dir, on_progress)


def make(entry: BaseModel, folder: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train from the recipe and write the folder that the package ships; returns what `made.json` says.

    Raises ConfigError if the entry is not the one of household, or without the alfworld package.
    """
    recipe, settings = entry.recipe, entry.corpus
    if not isinstance(recipe, ChatRecipe) or not isinstance(settings, HouseholdCorpusSettings):
        raise ConfigError("only a recipe for chats of household games can be made here; see agent2.benchmarks.BASES")
    started = time.perf_counter()
    on_progress(f"playing {settings.n_chats} games")
    chats = household_corpus(settings)

    def said(step: int, loss: float) -> None:
        on_progress(f"step {step} of {' and '.join(map(str, recipe.steps))}: loss {loss:.3f}")

    with TemporaryDirectory() as draft, no_progress_bars(), threads(recipe.threads):
        tokenizer = build_word_tokenizer(chats[:N_TOKENIZER_CHATS], recipe)
        model = build_model(tokenizer, recipe.model)
        liken_names(model, tokenizer, recipe.pieces)
        commands_learned = encode_chats(tokenizer, chats)
        _, n_first = train_stage(model, all_learned(commands_learned), recipe, 0, said)
        losses, n_second = train_stage(model, commands_learned, recipe, 1, said)
        model.eval()
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        tail = losses[-max(1, len(losses) // 10) :]
        made: dict[str, JsonValue] = {
            "recipe_digest": entry.digest,
            "corpus_digest": digest_of(chats),
            "corpus_sample_digest": corpus_sample_digest(settings),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "steps": list(recipe.steps),
            "tokens": n_first + n_second,
            "loss": round(sum(tail) / len(tail), 4),
            "seconds": round(time.perf_counter() - started, 1),
        }
        return pack(Path(draft), folder, made)


@torch.no_grad()
def liken_names(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, pieces: Sequence[str]) -> None:
    """Begin each numbered name (" shelf 1") near its word (" shelf"): the word's vector plus a part of its own."""
    vectors_VD = model.get_input_embeddings().weight
    number = {piece: tokenizer.convert_tokens_to_ids(piece) for piece in pieces}
    for piece, own in number.items():
        word, _, last = piece.rpartition(" ")
        if last.isdigit() and word in number:
            vectors_VD[own] = vectors_VD[number[word]] + OWN_PART * vectors_VD[own]


def corpus_sample_digest(settings: HouseholdCorpusSettings) -> str:
    """Digest of the first chats: differs when the code of the corpus has changed."""
    few: list[list[Message]] = household_corpus(replace(settings, n_chats=min(settings.n_chats, N_SAMPLE_CHATS)))
    return digest_of(few)
