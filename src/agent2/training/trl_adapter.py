"""TRL's GRPOTrainer for episodes: the one place that knows TRL's inside.

TRL draws through its `rollout_func`, and computes loss, clipping, KL term, accumulation and optimiser steps. This
subclass changes three things: advantages and the loss mask come from our `judge`; old log-probabilities are those
of the sampler instead of a second forward pass; and log-probabilities are computed in small batches of like
length, for rows that the loss depends on. What that saves is padding and passes whose result is known; the loss
and its gradient are TRL's (`tests/training/test_trl_gradient.py` compares them with `grpo_loss`).

Written against TRL 1.16 (pinned). Does NOT do tools, images, vLLM or several processes.
"""

import logging
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import torch
from torch import Tensor
from trl import GRPOTrainer

from agent2.training.episodes import Episode

ROWS_PER_PASS = 32
"""Rows of like length that go through the model together."""
NO_SIGNAL = 1e-8
"""Advantages smaller than this are none."""
LARGEST_GAP = 1e-2
"""Between the sampler's and the trainer's log-probability of a token, nats; rounding in float32 was up to 3e-4."""
_log = logging.getLogger(__name__)


class Excluded(StrEnum):
    """Why an episode is left out of the loss."""

    FAILED = "failed"
    TRUNCATED = "truncated"
    CAPPED = "capped"
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True)
class Judged:
    """A batch of episodes as the loss sees it; axes P groups, G members."""

    rewards: Sequence[float | None]
    """For each episode; None: it broke."""
    excluded: Sequence[Excluded | None]
    advantages_PG: torch.Tensor
    measures: Mapping[str, float]
    """For the log, by the names of `logs`."""


@dataclass(slots=True)
class Batch:
    """A batch of episodes, judged, in the order of TRL's prompts."""

    episodes: Sequence[Episode]
    judged: Judged
    measures: Mapping[str, float]
    """More for the log: seconds, divergence."""
    played_at: float = field(default_factory=time.perf_counter)

    @property
    def is_kept(self) -> Tensor:
        """For each episode, whether it counts in the loss."""
        return torch.tensor([why is None for why in self.judged.excluded])


class Player(Protocol):
    """Plays and judges one batch."""

    def play(self, item_numbers: Sequence[int], trainer: Any) -> Batch:
        """item_numbers: one for each episode, groups standing together."""


class OnlineTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose batches are episodes."""

    def __init__(self, player: Player, *, mask_observations: bool, **arguments: Any) -> None:
        self._player = player
        self._mask_observations = mask_observations
        self._batch: Batch | None = None
        self._inputs: Mapping[str, Tensor] | None = None
        self._updates = 0
        self._has_warned = False
        with warnings.catch_warnings():  # that the interface may change is why TRL is pinned
            warnings.filterwarnings("ignore", message="You are using 'rollout_func'", category=UserWarning)
            super().__init__(reward_funcs=[self._rewards], rollout_func=self._roll_out, **arguments)

    @property
    def batch(self) -> Batch:
        """The batch in use."""
        if self._batch is None:
            raise RuntimeError("no batch has been played yet")
        return self._batch

    def _roll_out(self, prompts: Sequence[Sequence[Mapping[str, Any]]], trainer: Any) -> dict[str, Any]:
        self._batch = self._player.play([int(prompt[0]["item"]) for prompt in prompts], self)
        self._updates = 0
        episodes = self._batch.episodes
        return {
            "prompt_ids": [episode.prompt_ids for episode in episodes],
            "completion_ids": [episode.completion_ids for episode in episodes],
            "logprobs": [episode.logprobs for episode in episodes],
            "env_mask": [[int(drawn) for drawn in episode.is_drawn] for episode in episodes],
        }

    def _rewards(self, **_: Any) -> list[float | None]:
        return list(self.batch.judged.rewards)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's batch with our advantages and loss mask."""
        made: dict[str, Any] = super()._generate_and_score_completions(inputs)
        batch, real_NC, drawn_NC = self.batch, made["completion_mask"], made["tool_mask"]
        allowed_NC = drawn_NC if self._mask_observations else torch.ones_like(drawn_NC)
        made["tool_mask"] = allowed_NC * batch.is_kept.to(real_NC)[:, None]
        made["advantages"] = batch.judged.advantages_PG.flatten().to(made["advantages"])
        learned_NC = real_NC * made["tool_mask"]
        made["num_items_in_batch"] = learned_NC.sum()
        n_foreign = int((learned_NC * (1 - drawn_NC)).sum())
        self._note({"foreign_share": n_foreign / max(1, int(learned_NC.sum()))})
        self._note({**batch.judged.measures, **batch.measures})
        return made

    def _compute_loss(self, model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
        self._inputs = inputs
        try:
            loss: Tensor = super()._compute_loss(model, inputs)
        finally:
            self._inputs = None
        self._note({"staleness": float(self._updates)})
        self._updates += 1
        return loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, **options: Any
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Log-probabilities and entropies of completion tokens, N x C, of the rows that matter."""
        n_rows = len(input_ids)
        if self._inputs is None and model is not self.ref_model and self._mask_observations:
            drawn = [torch.tensor(episode.logprobs) for episode in self.batch.episodes]
            known_NC = torch.nn.utils.rnn.pad_sequence(drawn, batch_first=True).to(input_ids.device)
            return known_NC, None, None
        rows = torch.arange(n_rows, device=input_ids.device)
        if self._inputs is not None and self.beta == 0:
            rows = rows[self._inputs["advantages"].abs() > NO_SIGNAL]
        options["batch_size"] = None
        pieces: list[Tensor] = []
        entropies: list[Tensor] = []
        order = rows[attention_mask[rows].sum(1).argsort()]
        for chosen in torch.split(order, ROWS_PER_PASS) if len(order) else ():
            logps, entropy = self._pass_over(model, input_ids, attention_mask, logits_to_keep, chosen, options)
            pieces.append(logps)
            entropies.append(entropy)
        if self._inputs is None:
            return _scattered(pieces, order, n_rows, input_ids), None, None
        return self._with_known_rows(model, pieces, entropies, order)

    def _pass_over(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        n_kept: int,
        chosen: Tensor,
        options: dict[str, Any],
    ) -> tuple[Tensor, Tensor]:
        """TRL's pass over some rows, cut to the columns they use; padded back to n_kept columns."""
        mask = attention_mask[chosen]
        used = mask.any(0).nonzero().flatten()
        first, end = int(used[0]), int(used[-1]) + 1
        n_prompt = input_ids.shape[1] - n_kept
        logps, entropy, _ = super()._get_per_token_logps_and_entropies(
            model, input_ids[chosen, first:end], mask[:, first:end], end - n_prompt, **options
        )
        missing = n_kept - (end - n_prompt)
        pad = torch.nn.functional.pad
        return pad(logps, (0, missing)), pad(logps.detach() if entropy is None else entropy.detach(), (0, missing))

    def _with_known_rows(
        self, model: Any, pieces: list[Tensor], entropies: list[Tensor], order: Tensor
    ) -> tuple[Tensor, Tensor, None]:
        """The rows that were computed, and for the others what was known when they were drawn."""
        inputs = self._inputs or {}
        drawn_NC = inputs["sampling_per_token_logps"]
        logps_NC, entropy_NC = drawn_NC.clone(), -drawn_NC
        if pieces:
            computed = torch.cat(pieces)
            logps_NC = logps_NC.index_copy(0, order, computed)
            entropy_NC = entropy_NC.index_copy(0, order, torch.cat(entropies))
            if self._updates == 0:
                is_drawn = drawn_NC[order] != 0
                gap = (computed.detach() - drawn_NC[order]).abs()[is_drawn]
                self._note_gap(float(gap.max()) if len(gap) else 0.0)
        else:  # a loss that depends on no row still has to be one that can be differentiated
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
        """Into TRL's log, which averages over the updates between two lines."""
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
