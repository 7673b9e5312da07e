"""The base model of the embedded `household` task: shipped with the package, made by a recipe that is here too.

`build` trains it (some minutes on one core) on games that were played badly (see
`agent2.benchmarks.household.corpus`). In the first stage every token is learned, what the game says too, so the model
gets to know the world and not only the words of a command; in the second one only commands are. "shelf 1" and "shelf 2"
begin as nearly the same vector as "shelf", so that a goal and what it is about look alike from the start.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from agent2.benchmarks.household.corpus import HouseholdCorpusSettings, household_corpus
from agent2.models.tiny import StageOptions, build_chat_base, chat_recipe
from agent2.models.tiny_recipe import BaseModel, OnProgress
from agent2.records import JsonValue

N_TOKENIZER_CHATS = 2000
OWN_PART = 0.5
"""Of a numbered name's first vector: how much is its own, beside its word's."""


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir; returns what `made.json` says.

    Raises ConfigError if the entry is not the one of household, or without the alfworld package.
    """
    recipe, _ = chat_recipe(entry, HouseholdCorpusSettings)
    return build_chat_base(
        entry,
        out_dir,
        on_progress,
        HouseholdCorpusSettings,
        lambda corpus: [household_corpus(corpus)] * 2,
        prepare=partial(liken_names, pieces=recipe.pieces),
        stage_options=StageOptions(1, N_TOKENIZER_CHATS),
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
