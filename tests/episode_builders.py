"""A small world to train in, and a model that can play it now and then: a key is in one of three places."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import torch

from agent2.errors import EnvironmentFailed
from agent2.records import Item, JsonValue, Message, Split, Step
from agent2.training.reference import TokenBatch
from model_builders import make_model

PLACES = ("box", "desk", "sofa")
THINGS = ("key", "cup", "pen", "coin")
PLAYS = [
    (f"find the {object_name}", f"go {place}") for object_name in THINGS for place in (*PLACES, PLACES[0], PLACES[1])
]
"""What the model reads: any place, whatever is asked."""


class Hunt:
    """Go to the place where the thing is; each wrong place says that there is nothing. Three turns."""

    def __init__(self) -> None:
        self.item: Item | None = None
        self.n_invalid = 0
        self.won = False

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        self.item = item
        return [Message("user", item.prompt)]

    def act(self, action: str) -> Step:
        assert self.item is not None
        words = action.split()
        if len(words) != 2 or words[0] != "go" or words[1] not in PLACES:
            self.n_invalid += 1
            return Step("what?", done=False)
        self.won = words[1] == self.item.payload["place"]
        return Step(None if self.won else "nothing here", done=self.won)

    def state(self) -> Mapping[str, JsonValue]:
        return {"won": self.won, "n_invalid": self.n_invalid}


class BreaksAtFirst(Hunt):
    """The first worlds of a run break when they are opened."""

    n_failures = 0

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        if BreaksAtFirst.n_failures > 0:
            BreaksAtFirst.n_failures -= 1
            raise EnvironmentFailed("the world would not open")
        return super().reset(item, seed)


def make_items(n: int = 12) -> list[Item]:
    """The pen is always in the box, the key on the desk, and so on: it can be learned from the prompt."""
    return [
        Item(f"hunt-{i}", Split.TRAIN, f"find the {THINGS[i % 4]}", payload={"place": PLACES[i % 4 % 3]})
        for i in range(n)
    ]


def make_player(folder: Path, steps: int = 150) -> Path:
    """A model that mostly goes somewhere."""
    return make_model(folder, PLAYS, steps)


def grpo_loss(logprobs_NT, batch, advantages_N, clip, normalise):
    """The yardstick for TRL's trainer; episodes without a learned token count as episodes with loss 0.

        ratio = exp(log_prob - log_prob when drawn)
        loss  = -min(ratio * advantage, clip(ratio) * advantage)        for each token the policy drew

    averaged over the tokens of an episode and then over episodes (`sequence`), or over all tokens at once (`token`).
    Source: Shao et al. 2024, arXiv:2402.03300, eq. 3; clip from above by its own bound: Yu et al. 2025,
    arXiv:2503.14476, section 3.1.
    """
    # 1 where nothing is learned: there the old one may be that of a token whose new one was not computed
    ratio_NT = torch.exp((logprobs_NT - batch.old_logprobs_NT) * batch.is_learned_NT)
    clipped_NT = ratio_NT.clamp(1 - clip.below, 1 + clip.above)
    advantages_N1 = advantages_N[:, None]
    gain_NT = torch.minimum(ratio_NT * advantages_N1, clipped_NT * advantages_N1) * batch.is_learned_NT
    n_learned_N = batch.is_learned_NT.sum(1)
    if normalise == "sequence":
        return -(gain_NT.sum(1) / n_learned_N.clamp(min=1)).mean()
    return -gain_NT.sum() / n_learned_N.sum().clamp(min=1)


def rows_of(batch, chosen):
    """Some of the episodes, cut to the longest of them."""
    longest = int(batch.is_real_NT[chosen].sum(1).max())
    return TokenBatch(*(getattr(batch, field.name)[chosen, :longest] for field in fields(batch)))
