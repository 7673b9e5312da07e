"""Training of the base model of the embedded `household` task; the package ships its weights.

`build` trains it (some minutes on one core) on games that were played badly (see
`agent2.benchmarks.household.corpus`). In the first stage every token is learned, the game's messages too, so the model
learns the world and not only the form of a command; in the second one only commands are. "shelf 1" and "shelf 2" begin
as nearly the same vector as "shelf", so that a goal and the objects that it names look alike from the start.
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
"""Weight of a numbered name's own initial vector, which is added to that of its word."""


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
        prepare=partial(init_numbered_names, pieces=recipe.pieces),
        stage_options=StageOptions(1, N_TOKENIZER_CHATS),
    )


@torch.no_grad()
def init_numbered_names(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, pieces: Sequence[str]) -> None:
    """Start each numbered name (" shelf 1") near its word (" shelf"): the word's vector plus a part of its own."""
    embeddings_VD = model.get_input_embeddings().weight
    token_ids = {piece: tokenizer.convert_tokens_to_ids(piece) for piece in pieces}
    for piece, row in token_ids.items():
        word, _, last = piece.rpartition(" ")
        if last.isdigit() and word in token_ids:
            embeddings_VD[row] = embeddings_VD[token_ids[word]] + OWN_PART * embeddings_VD[row]
