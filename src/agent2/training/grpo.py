"""GRPO and RLOO with TRL's trainers: sample, verify, and prefer what did better than its group.

Rows are {"prompt", "answer"}: the model sees the prompt only, the reward function sees what the model wrote and the
answer. A row may bring its whole opening as {"messages": [{"role", "content"}, ...]} beside the prompt. The log (see
`logs`) and TRL's trainer state are written beside out_dir. One torch thread unless $AGENT2_THREADS says more; a CUDA
device is used if present. A reward that no member of a group earns, or that all of them earn, teaches nothing: the
base model must solve some of the prompts some of the time. RLOO (Ahmadian et al. 2024, arXiv:2402.14740) compares each
completion with the mean of the others in its group, does not divide by their spread, and weighs whole completions.

`OnlineTrainer` is for multi-turn episodes (`online_grpo`). TRL samples through its `rollout_func`, and computes loss,
clipping, KL term, accumulation and optimiser steps. The subclass changes three things: advantages and the loss mask
come from `online_grpo.judge`; old log-probabilities are those of the sampler instead of a second forward pass; and
log-probabilities are computed in small batches of like length, for rows that the loss depends on. The loss and its
gradient are TRL's (`tests/training/test_grpo_trl_gradient.py` compares them with a compact loss). Written against TRL
1.16 (pinned). Does NOT do tools, images, vLLM or several processes.
"""

import logging
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from datasets import Dataset
from torch import Tensor
from transformers import TrainerCallback, set_seed
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from agent2.errors import ConfigError
from agent2.training.episodes import Episode
from agent2.training.running import (
    CheckpointSaver,
    LogWriter,
    OnCheckpoint,
    OnLog,
    TimeLimit,
    TrainReport,
    load_for_training,
    log_path,
    require_rows,
    run_and_save,
    trainer_arguments,
    use_threads,
)

_log = logging.getLogger(__name__)

ROWS_PER_PASS = 32
"""Rows of like length that go through the model together."""
NO_SIGNAL = 1e-8
"""Advantages smaller than this count as zero."""
LARGEST_GAP = 1e-2
"""Between the sampler's and the trainer's log-probability of a token, nats; rounding in float32 was up to 3e-4."""

Reward = Callable[[list[str], list[str]], list[float]]
"""Completions and the answers of their rows, in the same order, to one reward each."""


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """Hyperparameters of GRPO and RLOO; the defaults fit the tiny models."""

    steps: int = 150
    prompts_per_step: int = 32
    generations: int = 8
    """Completions of one prompt, the group that a reward is compared within."""
    learning_rate: float = 5e-4
    temperature: float = 1.0
    max_completion_tokens: int = 12
    kl_coefficient: float = 0.0
    """Weight of the divergence from the base model; 0 spares the reference model."""
    loss_type: str = "dapo"
    """Of GRPO; RLOO has one."""
    checkpoint_steps: tuple[int, ...] = ()
    """After these steps the model is saved as `<out_dir>-step<N>` and the caller is notified."""
    checkpoint_s: float | None = None
    """If none of those steps came within so long, the next step to end is saved in place of them; None: no limit."""
    log_every_steps: int = 5
    max_seconds: float | None = None
    """No step but the first begins that would end later, if it took as long as the last one; None: no limit."""
    rows_per_pass: int | None = None
    """Completions that go through the model together, a divisor of a step's; None: all of them."""
    lora_rank: int = 0
    """Of an adapter that is trained instead of the weights; 0: all weights are trained."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class GrpoHooks:
    """What a caller is notified of during training."""

    on_log: OnLog | None = None
    on_checkpoint: OnCheckpoint | None = None
    callbacks: Sequence[TrainerCallback] = ()
    """Of the trainer, such as a monitor's; they come after our own."""


def train_grpo(
    model_path: Path,
    rows: Sequence[Mapping[str, Any]],
    reward: Reward,
    out_dir: Path,
    settings: GrpoSettings,
    hooks: GrpoHooks | None = None,
) -> TrainReport:
    """Train the model in model_path on the prompts of rows and save it in out_dir.

    Randomness: all of it from settings.seed. Raises ConfigError if there are no rows or one lacks a field.
    """
    return _train("grpo", model_path, rows, reward, out_dir, settings, hooks or GrpoHooks())


def train_rloo(
    model_path: Path,
    rows: Sequence[Mapping[str, Any]],
    reward: Reward,
    out_dir: Path,
    settings: GrpoSettings,
    hooks: GrpoHooks | None = None,
) -> TrainReport:
    """The same with the leave-one-out baseline and the loss of RLOO."""
    return _train("rloo", model_path, rows, reward, out_dir, settings, hooks or GrpoHooks())


def _train(
    name: Literal["grpo", "rloo"],
    model_path: Path,
    rows: Sequence[Mapping[str, Any]],
    reward: Reward,
    out_dir: Path,
    settings: GrpoSettings,
    hooks: GrpoHooks,
) -> TrainReport:
    started = time.monotonic()
    require_rows(f"train_{name}", rows)
    use_threads()
    set_seed(settings.seed)
    model, tokenizer = load_for_training(model_path, settings.lora_rank)
    shared = _arguments(settings, out_dir)
    kind, arguments = (
        (GRPOTrainer, GRPOConfig(**shared, loss_type=settings.loss_type))
        if name == "grpo"
        else (RLOOTrainer, RLOOConfig(**shared))
    )
    trainer = kind(
        model=model,
        reward_funcs=_trl_reward(reward),
        args=arguments,
        train_dataset=Dataset.from_list([_prompt(row) for row in rows]),
        processing_class=tokenizer,
        callbacks=[
            LogWriter(log_path(out_dir), name, hooks.on_log),
            TimeLimit(started, settings.max_seconds),  # first: what is done at a checkpoint is no part of a step
            CheckpointSaver(
                {step: (f"step{step}", step) for step in settings.checkpoint_steps},
                model_path,
                out_dir,
                hooks.on_checkpoint,
                math.inf if settings.checkpoint_s is None else started + settings.checkpoint_s,
            ),
            *hooks.callbacks,
        ],
    )
    return run_and_save(trainer, model_path, out_dir, started, name, settings)


def _prompt(row: Mapping[str, Any]) -> dict[str, Any]:
    opening = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
    return {"prompt": [dict(message) for message in opening], "answer": row["answer"]}


def _trl_reward(reward: Reward) -> Callable[..., list[float]]:
    """The reward in the shape that TRL calls: completions are lists with one assistant message."""

    def verifier(completions: list[list[dict[str, str]]], answer: list[str], **_: Any) -> list[float]:
        return reward([messages[-1]["content"] for messages in completions], answer)

    return verifier


def _arguments(settings: GrpoSettings, out_dir: Path) -> dict[str, Any]:
    n_rows = settings.prompts_per_step * settings.generations
    rows_per_pass = settings.rows_per_pass or n_rows
    if n_rows % rows_per_pass:
        raise ConfigError(
            f"rows_per_pass is {rows_per_pass}; take a divisor of the {n_rows} completions of a step "
            f"({settings.prompts_per_step} prompts, {settings.generations} each)"
        )
    return {
        **trainer_arguments(out_dir, settings.learning_rate, settings.seed),
        "max_steps": settings.steps,
        "per_device_train_batch_size": rows_per_pass,
        "gradient_accumulation_steps": n_rows // rows_per_pass,
        "num_generations": settings.generations,
        "max_completion_length": settings.max_completion_tokens,
        "temperature": settings.temperature,
        "lr_scheduler_type": "constant",
        "beta": settings.kl_coefficient,
        "logging_steps": settings.log_every_steps,
    }


class ExclusionReason(StrEnum):
    """Why an episode is left out of the loss."""

    FAILED = "failed"
    TRUNCATED = "truncated"
    CAPPED = "capped"
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """Rewards, exclusions and advantages of a batch of episodes; axes P groups, G members."""

    rewards: Sequence[float | None]
    """For each episode; None: it failed."""
    excluded: Sequence[ExclusionReason | None]
    advantages_PG: torch.Tensor
    measures: Mapping[str, float]
    """For the log, by the names of `logs`."""


@dataclass(slots=True)
class Batch:
    """A batch of episodes, judged, in the order of TRL's prompts."""

    episodes: Sequence[Episode]
    judged: JudgedBatch
    measures: Mapping[str, float]
    """More for the log: seconds, divergence."""
    updates_behind: int | None = None
    """Updates between the weights that played it and its first update; None: it was played by the policy itself."""
    played_at: float = field(default_factory=time.perf_counter)

    @property
    def is_learned(self) -> Tensor:
        """For each episode, whether it counts in the loss."""
        return torch.tensor([reason is None for reason in self.judged.excluded])


class BatchPlayer(Protocol):
    """Plays and judges one batch."""

    def play(self, item_numbers: Sequence[int], trainer: Any) -> Batch:
        """item_numbers: one for each episode, groups adjacent."""

    def close(self) -> None:
        """End what it runs beside the trainer."""


class OnlineTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose batches are episodes."""

    def __init__(self, player: BatchPlayer, *, mask_observations: bool, **arguments: Any) -> None:
        self.player = player
        self._mask_observations = mask_observations
        self._batch: Batch | None = None
        self._inputs: Mapping[str, Tensor] | None = None
        self._updates = 0
        self._has_warned = False
        with warnings.catch_warnings():  # TRL warns that the interface may change, which is why it is pinned
            warnings.filterwarnings("ignore", message="You are using 'rollout_func'", category=UserWarning)
            super().__init__(reward_funcs=[self._rewards], rollout_func=self._roll_out, **arguments)

    @property
    def batch(self) -> Batch:
        """The batch in use."""
        if self._batch is None:
            raise RuntimeError("no batch has been played yet")
        return self._batch

    def _roll_out(self, prompts: Sequence[Sequence[Mapping[str, Any]]], trainer: Any) -> dict[str, Any]:
        self._batch = self.player.play([int(prompt[0]["item"]) for prompt in prompts], self)
        self._updates = 0
        episodes = self._batch.episodes
        return {
            "prompt_ids": [episode.prompt_ids for episode in episodes],
            "completion_ids": [episode.completion_ids for episode in episodes],
            "logprobs": [episode.logprobs for episode in episodes],
            # TRL's name for the mask of sampled tokens among those of the world; it comes back as `tool_mask`.
            "env_mask": [[int(sampled) for sampled in episode.is_sampled] for episode in episodes],
        }

    def _rewards(self, **_: Any) -> list[float | None]:
        return list(self.batch.judged.rewards)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's batch with our advantages and loss mask."""
        outputs: dict[str, Any] = super()._generate_and_score_completions(inputs)
        batch, real_NC, sampled_NC = self.batch, outputs["completion_mask"], outputs["tool_mask"]
        allowed_NC = sampled_NC if self._mask_observations else torch.ones_like(sampled_NC)
        outputs["tool_mask"] = allowed_NC * batch.is_learned.to(real_NC)[:, None]
        outputs["advantages"] = batch.judged.advantages_PG.flatten().to(outputs["advantages"])
        learned_NC = real_NC * outputs["tool_mask"]
        if batch.updates_behind:  # TRL takes a batch with one update for one of the policy as it is
            outputs["old_per_token_logps"] = outputs["sampling_per_token_logps"]
        # TRL's own count includes the episodes that are left out, which would scale the loss down.
        outputs["num_items_in_batch"] = learned_NC.sum()
        n_foreign = int((learned_NC * (1 - sampled_NC)).sum())
        self._note({"foreign_share": n_foreign / max(1, int(learned_NC.sum()))})
        self._note({**batch.judged.measures, **batch.measures})
        return outputs

    def _compute_loss(self, model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
        self._inputs = inputs
        try:
            loss: Tensor = super()._compute_loss(model, inputs)
        finally:
            self._inputs = None
        self._note({"staleness": float((self.batch.updates_behind or 0) + self._updates)})
        self._updates += 1
        return loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, **options: Any
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Log-probabilities and entropies of completion tokens, N x C, of the rows that matter."""
        n_rows = len(input_ids)
        # TRL asks here for the old log-probabilities, before the loss: the sampler has them already.
        if self._inputs is None and model is not self.ref_model and self._mask_observations:
            logprobs = [torch.tensor(episode.logprobs) for episode in self.batch.episodes]
            sampled_NC = torch.nn.utils.rnn.pad_sequence(logprobs, batch_first=True).to(input_ids.device)
            return sampled_NC, None, None
        rows = torch.arange(n_rows, device=input_ids.device)
        if self._inputs is not None and self.beta == 0:  # without a KL term a row without advantage has no gradient
            rows = rows[self._inputs["advantages"].abs() > NO_SIGNAL]
        options["batch_size"] = None  # TRL would cut each chunk once more
        pieces: list[Tensor] = []
        entropies: list[Tensor] = []
        order = rows[attention_mask[rows].sum(1).argsort()]  # rows of like length share a pass: less padding
        for chunk in torch.split(order, ROWS_PER_PASS) if len(order) else ():
            logps, entropy = self._forward_rows(model, input_ids, attention_mask, logits_to_keep, chunk, options)
            pieces.append(logps)
            entropies.append(entropy)
        if self._inputs is None:
            return _scattered(pieces, order, n_rows, input_ids), None, None
        return self._with_sampled_rows(model, pieces, entropies, order)

    def _forward_rows(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        n_kept: int,
        rows: Tensor,
        options: dict[str, Any],
    ) -> tuple[Tensor, Tensor]:
        """TRL's pass over some rows, cut to the columns they use; padded back to n_kept columns."""
        mask = attention_mask[rows]
        columns = mask.any(0).nonzero().flatten()
        first, end = int(columns[0]), int(columns[-1]) + 1
        n_prompt = input_ids.shape[1] - n_kept
        logps, entropy, _ = super()._get_per_token_logps_and_entropies(
            model, input_ids[rows, first:end], mask[:, first:end], end - n_prompt, **options
        )
        missing = n_kept - (end - n_prompt)
        pad = torch.nn.functional.pad
        return pad(logps, (0, missing)), pad(logps.detach() if entropy is None else entropy.detach(), (0, missing))

    def _with_sampled_rows(
        self, model: Any, pieces: list[Tensor], entropies: list[Tensor], order: Tensor
    ) -> tuple[Tensor, Tensor, None]:
        """The rows that were computed, and for the remaining ones the log-probabilities from sampling."""
        inputs = self._inputs or {}
        sampled_NC = inputs["sampling_per_token_logps"]
        logps_NC, entropy_NC = sampled_NC.clone(), -sampled_NC
        if pieces:
            computed = torch.cat(pieces)
            logps_NC = logps_NC.index_copy(0, order, computed)
            entropy_NC = entropy_NC.index_copy(0, order, torch.cat(entropies))
            is_sampled = sampled_NC[order] != 0
            gap_M = (computed.detach() - sampled_NC[order])[is_sampled]
            if self._updates == 0 and not self.batch.updates_behind:
                self._note_gap(float(gap_M.abs().max()) if len(gap_M) else 0.0)
            if self.batch.updates_behind is not None and len(gap_M):
                self._note({"importance_mean": float(gap_M.exp().mean()), "importance_max": float(gap_M.exp().max())})
        else:  # a loss that depends on no row still has to be differentiable
            logps_NC = logps_NC + 0.0 * sum(parameter.sum() for parameter in model.parameters())
        return logps_NC, entropy_NC, None

    def _note_gap(self, gap: float) -> None:
        if gap > LARGEST_GAP and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "sampler and trainer differ by up to %.2g in the log-probability of a token (rounding stays below %g): "
                "compare dtype, attention implementation and temperature",
                gap,
                LARGEST_GAP,
            )
        self._note({"logprob_gap": gap})

    def _note(self, measures: Mapping[str, float]) -> None:
        """Add to TRL's log, which averages over the updates between two lines."""
        for name, value in measures.items():
            self._metrics["train"][name].append(float(value))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's log, with the seconds that the updates of this batch took."""
        if self._batch is not None and self.model.training:
            self._note({"training_s": time.perf_counter() - self._batch.played_at})
            self._batch.played_at = time.perf_counter()
        super().log(logs, start_time)


def _scattered(pieces: Sequence[Tensor], order: Tensor, n_rows: int, like: Tensor) -> Tensor:
    width = pieces[0].shape[1]
    whole = torch.zeros(n_rows, width, device=like.device, dtype=pieces[0].dtype)
    return whole.index_copy(0, order, torch.cat(list(pieces)))
