"""Asynchronous runs of `train_online_grpo`, with a real model in a small world."""

import copy
import math
import threading
from dataclasses import replace

import pytest
import torch
from transformers import TrainerCallback

from agent2.errors import ConfigError
from agent2.models.checkpoint import inspect_checkpoint
from agent2.training.online_grpo import (
    OnlineGrpoHooks,
    OnlineGrpoSettings,
    coming_items,
    make_trainer,
    train_online_grpo,
    validate_settings,
)
from agent2.training.reference import Clip, to_batch, token_logprobs
from episode_builders import Hunt, make_items, make_player

SETTINGS = OnlineGrpoSettings(
    batches=4, prompts_per_batch=4, generations=8, max_turns=2, max_tokens=6, learning_rate=5e-3, warmup_updates=0
)
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_player(tmp_path_factory.mktemp("base"))


def run(base, folder, world=Hunt, **changed):
    lines = []
    settings = replace(SETTINGS, **changed)
    hooks = OnlineGrpoHooks(on_log=lines.append)
    report = train_online_grpo(base, make_items(), world, folder / "model", settings, hooks)
    return inspect_checkpoint(report.checkpoint).weights_digest, lines


def without_times(lines):
    of_time = ("t", "seconds", "environment_s", "generation_s", "training_s")
    return [{name: value for name, value in line.items() if name not in of_time} for line in lines]


@slow
def test_without_staleness_the_weights_and_the_log_are_those_of_the_synchronous_run(base, tmp_path):
    synchronous, expected = run(base, tmp_path / "a")
    in_turns, lines = run(base, tmp_path / "b", max_staleness=0)
    assert in_turns == synchronous
    of_asynchronous = ("updates_behind", "trainer_idle_s", "player_idle_s", "importance_mean", "importance_max")
    assert not any(name in line for name in of_asynchronous for line in expected)
    kept = [{n: v for n, v in line.items() if n not in of_asynchronous} for line in without_times(lines)]
    assert kept == without_times(expected)
    assert all(line["updates_behind"] == 0 for line in lines)


@slow
@pytest.mark.parametrize(
    ("updates", "max_staleness", "behind"), [(2, 2, [0, 2, 2, 2]), (2, 5, [0, 2, 4, 4]), (1, 1, [0, 1, 1, 1])]
)
def test_staleness_never_exceeds_the_bound_and_the_log_says_how_much_it_was(
    base, tmp_path, updates, max_staleness, behind
):
    _, lines = run(base, tmp_path, updates_per_batch=updates, max_staleness=max_staleness)
    assert [line["updates_behind"] for line in lines] == behind
    assert max(behind) <= max_staleness
    assert [line["staleness"] for line in lines] == [n + (updates - 1) / 2 for n in behind]
    assert all(line["trainer_idle_s"] >= 0 and line["player_idle_s"] >= 0 for line in lines)
    stale = [line for line in lines if line["updates_behind"] and "importance_max" in line]
    assert stale and all("logprob_gap" not in line for line in stale), "old weights are no other sampler"
    assert any(line["importance_max"] > 1.001 for line in stale)


@slow
def test_a_stale_run_is_a_function_of_its_seed(base, tmp_path):
    digests = [run(base, tmp_path / name, max_staleness=4)[0] for name in "ab"]
    assert digests[0] == digests[1] != run(base, tmp_path / "c")[0]


@slow
def test_the_weights_of_a_stale_batch_have_the_gradient_of_a_hand_calculation(base, tmp_path):
    """Ratio to the sampler's probability, clipped on both sides, of the second batch, whose weights are one old."""
    narrow = {"clip": Clip(below=0.1, above=0.05), "max_importance": 1.06}  # beyond them is a token on any CPU
    settings = replace(SETTINGS, batches=2, updates_per_batch=1, max_staleness=1, kl_episodes=0, **narrow)

    class Catcher(TrainerCallback):
        """Keeps the model before the second update, and its gradients."""

        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 1:
                self.model = copy.deepcopy(kwargs["model"])

        def on_pre_optimizer_step(self, args, state, control, **kwargs):
            self.gradients = [None if p.grad is None else p.grad.clone() for p in kwargs["model"].parameters()]

    catcher = Catcher()
    trainer = make_trainer(base, make_items(), Hunt, tmp_path / "model", settings, OnlineGrpoHooks(callbacks=[catcher]))
    trainer.args.max_grad_norm = 0.0
    try:
        trainer.train()
    finally:
        trainer.player.close()
    episodes, advantages = trainer.batch.episodes, trainer.batch.judged.advantages_PG.flatten()
    assert trainer.batch.updates_behind == 1
    rows = to_batch(
        [[*e.prompt_ids, *e.completion_ids] for e in episodes],
        [[False] * len(e.prompt_ids) + e.is_sampled for e in episodes],
        [[0.0] * len(e.prompt_ids) + e.logprobs for e in episodes],
        pad=0,
    )
    catcher.model.zero_grad()
    now_NT = token_logprobs(catcher.model, rows, settings.temperature)
    n_capped = n_clipped = 0
    gain = torch.tensor(0.0)
    for now_T, old_T, learned_T, advantage in zip(
        now_NT, rows.old_logprobs_NT, rows.is_learned_NT, advantages, strict=True
    ):
        gains = []
        for now, old in zip(now_T[learned_T], old_T[learned_T], strict=True):
            ratio = (now - old).exp()
            n_capped += bool(ratio > 1.06) and bool(advantage < 0)
            n_clipped += not 0.9 <= ratio.item() <= 1.05
            gains.append(torch.min(ratio.clamp(max=1.06) * advantage, ratio.clamp(0.9, 1.05) * advantage))
        gain = gain + torch.stack(gains).mean() / len(episodes)
    (-gain).backward()
    ours, theirs = (
        torch.cat([(torch.zeros_like(p) if g is None else g).flatten().double() for p, g in pairs])
        for pairs in (
            [(p, p.grad) for p in catcher.model.parameters()],
            list(zip(catcher.model.parameters(), catcher.gradients, strict=True)),
        )
    )
    assert n_clipped > 0 and n_capped > 0, f"a batch without such tokens would show nothing: {n_clipped}, {n_capped}"
    assert float(theirs.norm()) == pytest.approx(float(ours.norm()), rel=1e-3)
    assert float(torch.dot(ours, theirs) / (ours.norm() * theirs.norm())) > 0.999


class BurnsDown(Hunt):
    """A world with a bug that shows in the third batch."""

    n_opened = 0

    def reset(self, item, seed):
        BurnsDown.n_opened += 1
        if BurnsDown.n_opened > 80:
            raise ZeroDivisionError("the world burned down")
        return super().reset(item, seed)


@slow
def test_a_crash_of_the_playing_thread_ends_the_training_with_its_reason(base, tmp_path):
    BurnsDown.n_opened = 0
    with pytest.raises(ZeroDivisionError, match="the world burned down"):
        run(base, tmp_path, world=BurnsDown, max_staleness=2)
    assert "agent2-plays-ahead" not in {thread.name for thread in threading.enumerate()}


@slow
def test_a_run_that_ends_early_leaves_no_thread(base, tmp_path):
    hooks = OnlineGrpoHooks(stop=lambda line: "enough")
    settings = replace(SETTINGS, max_staleness=2, batches=50)
    report = train_online_grpo(base, make_items(), Hunt, tmp_path / "model", settings, hooks)
    assert report.stopped == "enough" and report.steps == 2
    assert "agent2-plays-ahead" not in {thread.name for thread in threading.enumerate()}


class Listening:
    """A player that writes down what it is asked for."""

    def __init__(self, player):
        self.asked, self._player = [], player

    def play(self, item_numbers, trainer):
        self.asked.append(list(item_numbers))
        return self._player.play(item_numbers, trainer)


@slow
@pytest.mark.parametrize("updates", [1, 2])
def test_items_are_foreseen_in_the_order_in_which_the_trainer_asks_for_them(base, tmp_path, updates):
    """More than two passes over twelve items, four a batch."""
    settings = replace(SETTINGS, batches=7, updates_per_batch=updates, kl_episodes=0)
    trainer = make_trainer(base, make_items(), Hunt, tmp_path / "model", settings, OnlineGrpoHooks())
    trainer.player = listening = Listening(trainer.player)
    foreseen = coming_items(trainer, settings)
    trainer.train()
    assert len(listening.asked) == 7
    assert [next(foreseen) for _ in listening.asked] == listening.asked


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"max_staleness": -1}, "max_staleness is -1; set it to 0, or to at least the 2 updates"),
        ({"max_staleness": 1}, "max_staleness is 1; set it to 0, or to at least the 2 updates"),
        ({"max_staleness": 2, "mask_observations": False}, "max_staleness needs mask_observations"),
        ({"max_staleness": 2, "max_importance": 1.2}, "max_importance is 1.2; set it above the clip, 1.28"),
        ({"max_staleness": 2, "max_importance": math.nan}, "max_importance is nan"),
    ],
)
def test_settings_that_cannot_be_asynchronous_are_refused_by_name(changed, sentence):
    with pytest.raises(ConfigError, match=sentence):
        validate_settings(OnlineGrpoSettings(**changed), 100)


@pytest.mark.parametrize("max_staleness", [None, 0, 2, 7])
def test_settings_that_can_be_are_taken(max_staleness):
    settings = OnlineGrpoSettings(max_staleness=max_staleness)
    validate_settings(settings, 100)
    assert settings.batches_ahead == {None: 0, 0: 0, 2: 1, 7: 3}[max_staleness]
