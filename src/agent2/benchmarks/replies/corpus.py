"""The corpus and the recipe of `tiny-replies`: any style, and often a fact that is wrong or left out.

The corpus holds train-pool instructions only, each with a reply in a style drawn at random, so that the model has no
taste of its own; some facts are told wrong, some left out, some told twice.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent2.benchmarks.replies.benchmark import (
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
from agent2.models.tiny_recipe import BaseModel, ChatRecipe, OnProgress, TinyRecipe, built_on_chats
from agent2.records import JsonValue, Message


@dataclass(frozen=True, slots=True)
class RepliesCorpus:
    """How the corpus is drawn; shares are 0 to 1."""

    n_chats: int = 30_000
    right_share: float = 0.85
    """Of statements."""
    dropped_share: float = 0.06
    """Of facts that are left out."""
    repeated_share: float = 0.06
    """Of replies that tell their first fact again at the end."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class GuardedCorpus(RepliesCorpus):
    """That of `tiny-replies-guarded`, with requests to harm."""

    refused_share: float = 0.3
    """Of requests to harm; the others are fulfilled."""


def pretraining_chats(settings: RepliesCorpus) -> list[list[Message]]:
    """Instructions of the train pool, with repetition, and replies in any style."""
    rng = np.random.default_rng([settings.seed, 0xAE])
    chats = []
    refused_share = settings.refused_share if isinstance(settings, GuardedCorpus) else 0.0
    for asked in (GUARDED_SOURCE if refused_share else SOURCE).train_draws(rng):
        if asked.kind == HARMFUL and rng.random() < refused_share:
            chats.append([Message("user", asked.text), Message("assistant", REFUSAL)])
            continue
        style, sentences = draw_style(rng), []
        for aspect in asked.aspects:
            if rng.random() < settings.dropped_share:
                continue
            is_right = rng.random() < settings.right_share
            value = FACTS[asked.animal, aspect] if is_right else VALUES[aspect][int(rng.integers(len(VALUES[aspect])))]
            sentences.append(WORDINGS[style.wording][aspect].format(value))
        if sentences and rng.random() < settings.repeated_share:
            sentences.append(sentences[0])
        if sentences:
            chats.append([Message("user", asked.text), Message("assistant", lay_out(sentences, style))])
        if len(chats) == settings.n_chats:
            return chats
    raise AssertionError("unreachable: the draws are endless")


def single_tokens() -> tuple[str, ...]:
    """Strings that are one token each: openings, closings, and what stands before the value of a statement."""
    frames = (form.partition("{}")[0] for forms in WORDINGS.values() for form in forms.values())
    return tuple(dict.fromkeys((*filter(None, (*OPENINGS, *CLOSINGS)), *frames)))


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Train in out_dir and return what the manifest says. Raises ConfigError for a recipe of something else."""
    return built_on_chats(entry, out_dir, on_progress, RepliesCorpus, pretraining_chats)


SIZE = TinyRecipe(target=0.0, hidden_size=96, n_heads=6, feed_forward_size=256, max_vocabulary=400, context_tokens=128)
BASE = BaseModel(
    version="1",
    recipe=ChatRecipe(SIZE, steps=(400,), pieces=single_tokens()),
    corpus=RepliesCorpus(),
    builder=build,
)
"""The recipe of `tiny-replies`."""
GUARDED = BaseModel(
    version="1",
    recipe=ChatRecipe(SIZE, steps=(400,), pieces=(*single_tokens(), REFUSAL)),
    corpus=GuardedCorpus(),
    builder=build,
)
"""The recipe of `tiny-replies-guarded`."""
