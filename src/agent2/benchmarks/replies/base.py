"""Builds the base model of `replies`."""

from pathlib import Path

import torch
import transformers

from agent2.benchmarks.replies.corpus import RepliesCorpus, pretraining_chats
from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.loading import no_progress_bars
from agent2.models.tiny import build_on_chats
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress
from agent2.records import JsonValue


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Pre-train, save in out_dir, and return what the manifest says. Raises ConfigError for another kind of recipe."""
    recipe, settings = entry.recipe, entry.corpus
    if not isinstance(recipe, ChatRecipe) or not isinstance(settings, RepliesCorpus):
        raise ConfigError("tiny-replies is made from chats of replies; see agent2.benchmarks.BASES")
    on_progress(f"drawing {settings.n_chats} chats")
    chats = pretraining_chats(settings)

    def told(step: int, loss: float) -> None:
        on_progress(f"pre-training: step {step} of {sum(recipe.steps)}, loss {loss:.2f}")

    with no_progress_bars():
        report = build_on_chats(recipe, [chats], out_dir, told)
    return {
        "weights_digest": inspect_checkpoint(out_dir).weights_digest,
        "parameters": report.n_parameters,
        "loss": round(report.loss, 4),
        "seconds": round(report.seconds, 1),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
