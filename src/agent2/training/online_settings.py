"""Settings of online reinforcement learning over episodes, and which of them make no sense together.

The defaults are those that worked on a model of 0.7 million weights in the household world; each switch that can
spoil a run says so. `require_sense` refuses what cannot work; what is merely unwise is warned of.
"""

import logging
from dataclasses import dataclass
from typing import Literal

from agent2.errors import ConfigError
from agent2.training.reference import Baseline, Clip, Normalise

_log = logging.getLogger(__name__)

DEFAULT_CLIP = Clip()

RewardKind = Literal["binary", "composite"]


@dataclass(frozen=True, slots=True)
class OnlineGrpoSettings:
    """Hyperparameters of `train_online_grpo`."""

    batches: int = 36
    """Batches of episodes that are played; the optimiser makes `batches * updates_per_batch` steps."""
    prompts_per_batch: int = 32
    generations: int = 8
    """Episodes of one item, the group that a reward is compared within."""
    updates_per_batch: int = 2
    """Optimiser steps on each batch, each on its own part of it; 1 is strictly on-policy."""
    learning_rate: float = 4e-4
    warmup_updates: int = 10
    temperature: float = 1.0
    max_tokens: int = 12
    """Of one message of the model."""
    max_turns: int = 12
    """Where the world's own `max_turns` is lower, that one counts."""
    reward: RewardKind = "binary"
    """binary: 1 for success, else 0. composite: also pays for valid and ended messages, which can be had without
    success; it is there to be compared with, not to be used."""
    decay: float = 1.0
    """Success in T turns is worth decay ** (T - 1); 1: turns are free."""
    advantage: Baseline = "group"
    by_spread: bool = True
    """Divide advantages by the spread of their group."""
    normalise: Normalise = "sequence"
    """sequence: every episode weighs the same; token: long ones weigh more, which at a high learning rate ends in
    messages that never end."""
    clip: Clip = DEFAULT_CLIP
    mask_observations: bool = True
    """False trains the model to predict the world's words as if it had drawn them: for showing what goes wrong."""
    mask_truncated: bool = False
    """Leave out lost episodes whose last message was cut off or that used up the context; False: they are failures. One
    that was cut off earlier and played on is never left out."""
    mask_capped: bool = False
    """Also leave out episodes that hit the turn cap. Then only wins are left and nothing can be learned: for
    showing what goes wrong."""
    max_episode_tokens: int | None = None
    """Leave out longer episodes; None: none is too long."""
    kl_weight: float = 0.0
    """Weight of the divergence from the reference model; runs of several hundred batches want 0.001 or more."""
    refresh_reference_every: int | None = None
    """Batches after which the reference model becomes the policy of then; None: never."""
    kl_episodes: int = 32
    """Episodes of each batch on which the divergence from the initial model is measured; 0: not measured."""
    in_flight: int = 256
    """Most episodes that are played at once."""
    checkpoint_batches: tuple[int, ...] = ()
    """After these batches the model is saved as `<out_dir>-batch<N>` and the caller is told."""
    max_seconds: float | None = None
    """No new batch is begun after so long; None: no limit."""
    stop_at_success: float | None = None
    """Training ends once the mean success of the last five batches reaches this; None: never."""
    seed: int = 0

    @property
    def episodes_per_batch(self) -> int:
        """Prompts times generations."""
        return self.prompts_per_batch * self.generations


def require_sense(settings: OnlineGrpoSettings, n_items: int) -> None:
    """Refuse settings that cannot work, naming the field; warn of those that seldom do.

    n_items: how many items there are to play. Raises ConfigError.
    """
    low = {
        "batches": 1,
        "prompts_per_batch": 1,
        "generations": 2,
        "updates_per_batch": 1,
        "max_tokens": 1,
        "max_turns": 1,
        "in_flight": 1,
        "kl_episodes": 0,
        "warmup_updates": 0,
        "kl_weight": 0,
    }
    for name, least in low.items():
        if getattr(settings, name) < least:
            raise ConfigError(f"train_online_grpo: {name} is {getattr(settings, name)}; set it to at least {least}")
    if not settings.temperature > 0:
        raise ConfigError(f"train_online_grpo: temperature is {settings.temperature}; episodes need chance, set it > 0")
    if not 0 < settings.decay <= 1:
        raise ConfigError(f"train_online_grpo: decay is {settings.decay}; set it above 0 and at most 1")
    if n_items < settings.prompts_per_batch:
        raise ConfigError(
            f"train_online_grpo: {n_items} items for {settings.prompts_per_batch} prompts a batch; "
            "give more items or lower prompts_per_batch"
        )
    if settings.episodes_per_batch % settings.updates_per_batch:
        raise ConfigError(
            f"train_online_grpo: {settings.episodes_per_batch} episodes a batch cannot be cut into "
            f"{settings.updates_per_batch} equal updates; change updates_per_batch"
        )
    if settings.refresh_reference_every is not None and not settings.kl_weight:
        raise ConfigError("train_online_grpo: refresh_reference_every without kl_weight has no effect; set kl_weight")
    if settings.reward == "composite":
        _log.warning(
            "composite reward: messages that are valid and ended pay without success, so they can rise while success "
            "does not; watch `reward_success`, or use the binary reward"
        )
    if settings.mask_capped:
        _log.warning("mask_capped leaves only episodes that ended by themselves: where only success ends one, "
                     "no group keeps a signal")  # fmt: skip
