"""Corpora and recipes of `tiny-replies` and `tiny-replies-guarded`; the package ships the weights.

The corpus of `tiny-replies` holds train-pool instructions only, each with a reply in a style drawn at random, so that
the model has no preferences of its own; some facts are wrong, some are left out, some are stated twice.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from agent2.benchmarks.replies import (
    CLOSINGS,
    FACTS,
    GUARDED_SOURCE,
    HARMFUL,
    OPENINGS,
    REFUSAL,
    SOURCE,
    VALUES,
    WORDINGS,
    draw_style,
    lay_out,
)
from agent2.models.tiny_recipe import N_SAMPLE_CHATS, BaseModel, ChatRecipe, OnProgress, TinyRecipe
from agent2.records import JsonValue, Message


@dataclass(frozen=True, slots=True)
class RepliesCorpus:
    """How the corpus is drawn; shares are 0 to 1."""

    # field names are in the digest of the recipe: with another name the shipped weights no longer match it
    n_chats: int = 30_000
    right_share: float = 0.85
    """Of statements."""
    dropped_share: float = 0.06
    """Of facts that are left out."""
    repeated_share: float = 0.06
    """Of replies that repeat their first fact at the end."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class GuardedCorpus(RepliesCorpus):
    """The corpus of `tiny-replies-guarded`, with requests to harm."""

    refused_share: float = 0.3
    """Of requests to harm; the rest are fulfilled."""


def pretraining_chats(settings: RepliesCorpus) -> list[list[Message]]:
    """Instructions of the train pool, with repetition, and replies in any style."""
    rng = np.random.default_rng([settings.seed, 0xAE])
    chats: list[list[Message]] = []
    refused_share = settings.refused_share if isinstance(settings, GuardedCorpus) else 0.0
    for request in (GUARDED_SOURCE if refused_share else SOURCE).train_draws(rng):
        if len(chats) == settings.n_chats:
            return chats
        if request.kind == HARMFUL and rng.random() < refused_share:
            chats.append([Message("user", request.text), Message("assistant", REFUSAL)])
            continue
        style, sentences = draw_style(rng), []
        for aspect in request.aspects:
            if rng.random() < settings.dropped_share:
                continue
            is_right = rng.random() < settings.right_share
            value = (
                FACTS[request.animal, aspect] if is_right else VALUES[aspect][int(rng.integers(len(VALUES[aspect])))]
            )
            sentences.append(WORDINGS[style.wording][aspect].format(value))
        if sentences and rng.random() < settings.repeated_share:
            sentences.append(sentences[0])
        if sentences:
            chats.append([Message("user", request.text), Message("assistant", lay_out(sentences, style))])
    raise AssertionError("unreachable: the draws are endless")


def single_tokens() -> tuple[str, ...]:
    """Strings that are one token each: openings, closings, and what stands before the value of a statement."""
    frames = (form.partition("{}")[0] for forms in WORDINGS.values() for form in forms.values())
    return tuple(dict.fromkeys((*filter(None, (*OPENINGS, *CLOSINGS)), *frames)))


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir and return what the manifest says. Raises ConfigError for a recipe of something else."""
    from agent2.models.tiny import build_chat_base  # here: torch, which looking up the recipe does not need

    return build_chat_base(entry, out_dir, on_progress, RepliesCorpus, lambda corpus: [pretraining_chats(corpus)])


SIZE = TinyRecipe(target=0.0, hidden_size=96, n_heads=6, feed_forward_size=256, max_vocabulary=400, context_tokens=128)


BASE = BaseModel(
    version="2",
    recipe=ChatRecipe(SIZE, steps=(400,), pieces=single_tokens()),
    corpus=RepliesCorpus(),
    builder=build,
    shipped=f"{__package__}:tiny-replies",
    sample=lambda corpus: pretraining_chats(replace(corpus, n_chats=N_SAMPLE_CHATS)),
)
"""The recipe of `tiny-replies`."""


GUARDED = replace(
    BASE,
    recipe=ChatRecipe(SIZE, steps=(400,), pieces=(*single_tokens(), REFUSAL)),
    corpus=GuardedCorpus(),
    shipped=f"{__package__}:tiny-replies-guarded",
)
"""The recipe of `tiny-replies-guarded`."""
