"""TRL's trainer, as `agent2.training.grpo` changes it, has the gradient of the compact loss."""

import copy
import logging
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from agent2.training.grpo import ROWS_PER_PASS
from agent2.training.online_grpo import OnlineGrpoHooks, OnlineGrpoSettings, make_trainer, success_from_state
from agent2.training.reference import to_batch, token_logprobs
from episode_builders import Hunt, grpo_loss, make_items, make_player, rows_of

SETTINGS = OnlineGrpoSettings(
    batches=1,
    prompts_per_batch=12,
    generations=8,
    updates_per_batch=1,
    warmup_updates=0,
    kl_episodes=0,
    max_turns=2,
    max_tokens=6,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_player(tmp_path_factory.mktemp("base"))


class GradientCatcher(TrainerCallback):
    """Keeps the gradients of the first update, before the optimiser clears them."""

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        trainable = ((name, p) for name, p in kwargs["model"].named_parameters() if p.requires_grad)
        self.gradients = {name: None if p.grad is None else p.grad.clone() for name, p in trainable}


@dataclass
class Compared:
    """One batch of episodes: what the sampler and the compact loss say of it, and TRL's gradient."""

    gaps: np.ndarray  # of drawn tokens, trainer's log-probability less the sampler's
    cosine: float
    norm_trl: float
    norm_compact: float
    without_gradient: list[str]


def compare(base, folder, settings, success=success_from_state):
    catcher = GradientCatcher()
    hooks = OnlineGrpoHooks(success=success, callbacks=[catcher])
    trainer = make_trainer(base, make_items(), Hunt, folder / "model", settings, hooks)
    trainer.args.max_grad_norm = 0.0  # clipping would hide a wrong norm
    model = copy.deepcopy(trainer.model)
    trainer.train()
    gaps = compact_backward(model, trainer.batch, settings)
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    trl = {name: catcher.gradients.get(name) for name in gradients}
    ours = torch.cat([gradient.flatten().double() for gradient in gradients.values()])
    theirs = torch.cat(
        [(torch.zeros_like(gradients[n]) if g is None else g).flatten().double() for n, g in trl.items()]
    )
    cosine = float(torch.dot(ours, theirs) / max(float(ours.norm() * theirs.norm()), 1e-300))
    lacking = [n for n, g in catcher.gradients.items() if g is None or not g.isfinite().all() or not g.any()]
    return Compared(gaps, cosine, float(theirs.norm()), float(ours.norm()), lacking)


def compact_backward(model, batch, settings):
    """Gradients of the compact loss into the model, some rows at a time; returns the gaps to the sampler."""
    episodes, is_learned = batch.episodes, batch.is_learned.tolist()
    tokens = to_batch(
        [[*e.prompt_ids, *e.completion_ids] for e in episodes],
        [
            [False] * len(e.prompt_ids) + [is_sampled and counts for is_sampled in e.is_sampled]
            for e, counts in zip(episodes, is_learned, strict=True)
        ],
        [[0.0] * len(e.prompt_ids) + e.logprobs for e in episodes],
        pad=0,
    ).to(model.device)
    advantages_N = batch.judged.advantages_PG.flatten().to(model.device)
    model.zero_grad()
    gaps = []
    n_learned, n_rows = int(tokens.is_learned_NT.sum()), len(advantages_N)
    for chosen in torch.split(torch.arange(n_rows, device=advantages_N.device), ROWS_PER_PASS):
        chunk = rows_of(tokens, chosen)
        logprobs_NT = token_logprobs(model, chunk, settings.temperature)
        gaps.append((logprobs_NT.detach() - chunk.old_logprobs_NT)[chunk.is_learned_NT].double().cpu())
        on_policy = replace(chunk, old_logprobs_NT=logprobs_NT.detach())
        loss = grpo_loss(logprobs_NT, on_policy, advantages_N[chosen], settings.clip, settings.normalise)
        share = len(chosen) / n_rows
        if settings.normalise == "token":
            share = int(chunk.is_learned_NT.sum()) / max(1, n_learned)
        (loss * share).backward()
    return torch.cat(gaps).numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"normalise": "token"},
        {"advantage": "leave-one-out", "by_spread": False, "temperature": 0.7},
        {"decay": 0.5, "max_episode_tokens": 25},
    ],
)
def test_trl_and_the_compact_loss_have_one_gradient_and_the_sampler_agrees(base, tmp_path, changed):
    compared = compare(base, tmp_path, replace(SETTINGS, **changed))
    assert compared.cosine >= 0.999
    assert compared.norm_trl == pytest.approx(compared.norm_compact, rel=1e-4)
    assert np.abs(compared.gaps).max() < 1e-4 and len(compared.gaps) > 100
    assert compared.without_gradient == []


@pytest.mark.slow
def test_without_a_signal_both_gradients_are_zero(base, tmp_path):
    compared = compare(base, tmp_path, SETTINGS, success=lambda episode: 1.0)
    assert compared.norm_trl == compared.norm_compact == 0


@pytest.mark.slow
def test_a_sampler_that_draws_from_another_distribution_is_reported_at_the_first_batch(base, tmp_path, caplog):
    def warnings_at(temperature):
        caplog.clear()
        trainer = make_trainer(base, make_items(), Hunt, tmp_path / "model", SETTINGS, OnlineGrpoHooks())
        trainer.player._batch_maker.settings = replace(SETTINGS, temperature=temperature)
        with caplog.at_level(logging.WARNING, "agent2.training.grpo"):
            trainer.train()
        return [record.getMessage() for record in caplog.records]

    assert warnings_at(SETTINGS.temperature) == []
    (message,) = warnings_at(0.5)
    assert "sampler and trainer differ by up to" in message and "compare dtype" in message
