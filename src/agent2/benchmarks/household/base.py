"""The base model of the embedded `household` task: shipped with the package, made by a recipe that is here too.

`make` trains it from the recipe (some minutes on one core) on games that were played badly (see
`agent2.benchmarks.household.corpus`) and writes the folder that the package ships: weights in half precision, about
1.5 MB, and `made.json` with the digests of recipe, corpus and weights. In the first stage every token is learned, what
the game says too, so the model gets to know the world and not only the words of a command; in the second one only
commands are. "shelf 1" and "shelf 2" begin as nearly the same vector as "shelf", so that a goal and what it is about
look alike from the start.

Promises: unpacked, the weights are the same on every machine. Does NOT promise that `make` gives the shipped weights
again on another machine or version of torch (float order differs).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from agent2.benchmarks.household.corpus import HouseholdCorpusSettings, household_corpus
from agent2.models.tiny import ChatReading, chat_recipe, make_on_chats
from agent2.models.tiny_recipe import BaseModel, OnProgress
from agent2.records import JsonValue, Message, digest_of

N_SAMPLE_CHATS = 200
"""Their digest shows whether today's corpus is still the one that was read."""
N_TOKENIZER_CHATS = 2000
OWN_PART = 0.5
"""Of a numbered name's first vector: how much is its own, beside its word's."""


def make(entry: BaseModel, folder: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train from the recipe and write the folder that the package ships; returns what `made.json` says.

    Raises ConfigError if the entry is not the one of household, or without the alfworld package.
    """
    recipe, settings = chat_recipe(entry, HouseholdCorpusSettings)
    on_progress(f"playing {settings.n_chats} games")
    chats = household_corpus(settings)
    return make_on_chats(
        entry,
        folder,
        on_progress,
        [chats] * len(recipe.steps),
        {"corpus_digest": digest_of(chats), "corpus_sample_digest": corpus_sample_digest(settings)},
        prepare=partial(liken_names, pieces=recipe.pieces),
        reading=ChatReading(1, N_TOKENIZER_CHATS),
    )


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
