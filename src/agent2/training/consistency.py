"""Do sampler and trainer mean the same model, and does the trainer compute the gradient it should?

One batch of episodes is played and looked at from all sides before a long run is trusted to the pair:

    log-probabilities   of the drawn tokens, from the sampler and from the training pass over the same tokens
    gradient            of TRL's trainer against the compact loss (`grpo_loss`) on the same episodes
    parameters          each one that can be trained has a gradient, and none is broken

Promises: nothing is trained; the checkpoint stays as it is. Does NOT check a KL term (the compact loss has none) or
what a second update on the same batch does.
"""

import copy
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from agent2.records import Item
from agent2.training.episode_rewards import Success, won
from agent2.training.episodes import Episode
from agent2.training.online_grpo import MakeEnvironment, OnlineGrpoHooks, make_trainer
from agent2.training.online_settings import OnlineGrpoSettings
from agent2.training.reference import TokenBatch, grpo_loss, to_batch, token_logprobs
from agent2.training.trl_adapter import ROWS_PER_PASS

LARGEST_GAP = 1e-4
"""Between the two log-probabilities of a token, in float32."""
LEAST_COSINE = 0.999
RATIO_EDGES = (0.0, 0.5, 0.8, 0.9, 0.99, 0.999, 1.001, 1.01, 1.1, 1.25, 2.0, float("inf"))
"""Of the histogram of probability ratios, trainer over sampler."""


@dataclass(frozen=True, slots=True)
class Consistency:
    """What one batch showed."""

    n_tokens: int
    """Drawn tokens that were compared."""
    mean_gap: float
    """Of the absolute differences between log-probabilities."""
    largest_gap: float
    ratio_counts: Sequence[int]
    """Tokens by probability ratio, between neighbouring `RATIO_EDGES`."""
    cosine: float | None
    """Between TRL's gradient and the compact loss'; None: no group had a signal, so both are zero."""
    norm_trl: float
    norm_compact: float
    without_gradient: Sequence[str]
    """Trainable parameters whose gradient is absent, zero everywhere or not finite, under TRL."""

    @property
    def problems(self) -> list[str]:
        """One sentence for each thing that does not fit; empty: go ahead."""
        found = []
        if self.largest_gap > LARGEST_GAP:
            found.append(
                f"sampler and trainer differ by up to {self.largest_gap:.2g} in the log-probability of a token (mean "
                f"{self.mean_gap:.2g}, limit {LARGEST_GAP:g}): compare dtype, attention implementation and temperature"
            )
        if self.cosine is None:
            found.append("no group had a signal, so no gradient could be compared: use easier items or a better model")
            return found
        if self.cosine < LEAST_COSINE:
            found.append(f"TRL's gradient and the compact loss' have cosine {self.cosine:.5f}, below {LEAST_COSINE}")
        if self.without_gradient:
            found.append(
                f"{len(self.without_gradient)} trainable parameters get no usable gradient, such as "
                f"{self.without_gradient[0]}: a backward pass is missing"
            )
        return found


def check_consistency(
    model_path: Path,
    items: Sequence[Item],
    make_environment: MakeEnvironment,
    settings: OnlineGrpoSettings,
    success: Success = won,
) -> Consistency:
    """Play one batch with the checkpoint and compare. Raises what `train_online_grpo` does."""
    settings = replace(settings, batches=1, updates_per_batch=1, warmup_updates=0, kl_weight=0.0, kl_episodes=0)
    settings = replace(settings, refresh_reference_every=None, checkpoint_batches=(), mask_observations=True)
    with tempfile.TemporaryDirectory() as folder:
        catcher = _GradientCatcher()
        hooks = OnlineGrpoHooks(success=success, callbacks=[catcher])
        trainer = make_trainer(model_path, items, make_environment, Path(folder) / "model", settings, hooks)
        trainer.args.max_grad_norm = 0.0  # clipping would hide a wrong norm
        model = copy.deepcopy(trainer.model)
        trainer.train()
        batch = trainer.batch
    tokens = _tokens(batch.episodes, batch.is_kept.tolist()).to(model.device)
    advantages_N = batch.judged.advantages_PG.flatten().to(model.device)
    gaps = _compact_backward(model, tokens, advantages_N, settings)
    compact = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return _compare(catcher.gradients, compact, gaps)


def _compact_backward(
    model: Any, tokens: TokenBatch, advantages_N: Tensor, settings: OnlineGrpoSettings
) -> NDArray[np.float64]:
    """Gradients of the compact loss into the model, some rows at a time; returns the gaps to the sampler."""
    model.zero_grad()
    gaps = []
    n_learned, n_rows = int(tokens.is_learned_NT.sum()), len(advantages_N)
    for chosen in torch.split(torch.arange(n_rows, device=advantages_N.device), ROWS_PER_PASS):
        some = tokens.rows(chosen)
        logprobs_NT = token_logprobs(model, some, settings.temperature)
        gaps.append((logprobs_NT.detach() - some.old_logprobs_NT)[some.is_learned_NT].double().cpu())
        on_policy = replace(some, old_logprobs_NT=logprobs_NT.detach())
        loss = grpo_loss(logprobs_NT, on_policy, advantages_N[chosen], settings.clip, settings.normalise)
        n_here = int(some.is_learned_NT.sum())
        share = len(chosen) / n_rows if settings.normalise == "sequence" else n_here / max(1, n_learned)
        (loss * share).backward()  # type: ignore[no-untyped-call]
    found: NDArray[np.float64] = torch.cat(gaps).numpy()
    return found


def _compare(trl: Mapping[str, Tensor | None], compact: Mapping[str, Tensor], gaps: NDArray[np.float64]) -> Consistency:
    own = torch.cat([compact[name].flatten().double() for name in compact])
    other = torch.cat([_or_zeros(trl.get(name), compact[name]).flatten().double() for name in compact])
    norm_own, norm_other = float(own.norm()), float(other.norm())
    has_signal = norm_own > 0 or norm_other > 0
    return Consistency(
        n_tokens=len(gaps),
        mean_gap=float(np.abs(gaps).mean()) if len(gaps) else 0.0,
        largest_gap=float(np.abs(gaps).max()) if len(gaps) else 0.0,
        ratio_counts=np.histogram(np.exp(gaps), RATIO_EDGES)[0].tolist(),
        cosine=float(torch.dot(own, other) / max(norm_own * norm_other, 1e-300)) if has_signal else None,
        norm_trl=norm_other,
        norm_compact=norm_own,
        without_gradient=without_gradient(trl) if has_signal else [],
    )


def without_gradient(gradients: Mapping[str, Tensor | None]) -> list[str]:
    """Names of parameters whose gradient is absent, zero everywhere or not finite."""
    return [
        name
        for name, gradient in gradients.items()
        if gradient is None or not bool(gradient.isfinite().all()) or not bool(gradient.any())
    ]


def _or_zeros(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient


def _tokens(episodes: Sequence[Episode], is_kept: Sequence[bool]) -> TokenBatch:
    return to_batch(
        [[*e.prompt_ids, *e.completion_ids] for e in episodes],
        [
            [False] * len(e.prompt_ids) + [drawn and kept for drawn in e.is_drawn]
            for e, kept in zip(episodes, is_kept, strict=True)
        ],
        [[0.0] * len(e.prompt_ids) + e.logprobs for e in episodes],
        pad=0,
    )


class _GradientCatcher(TrainerCallback):  # type: ignore[misc]
    """Keeps the gradients of the first update."""

    def __init__(self) -> None:
        self.gradients: dict[str, Tensor | None] = {}

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Copy them before the optimiser clears them."""
        trainable = ((name, p) for name, p in kwargs["model"].named_parameters() if p.requires_grad)
        self.gradients = {name: None if p.grad is None else p.grad.clone() for name, p in trainable}
