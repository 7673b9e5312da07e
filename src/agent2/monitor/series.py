"""The measurements of one training run: series of numbers over optimiser steps, under one set of names.

Trainers name the same quantity in many ways (`objective/kl`, `train/kl`, `kl`); `canonical_name` maps what it
knows to the names in `MEANING` and keeps every other name as it is, so that a suite's metrics (`gsm8k_exact_match`)
and anything else a run logs stay available.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

PRIVATE = "private"
"""Series of the score on the private set."""
MEANING: MappingProxyType[str, str] = MappingProxyType(
    {
        "reward": "mean training reward",
        "kl": "divergence from the reference policy, nats",
        "entropy": "entropy of the policy, nats a token",
        "length": "mean response length, tokens",
        "length_characters": "mean response length, characters",
        "clipped": "share of responses cut off",
        "loss": "training loss",
        "reward_std": "spread of rewards within groups",
        "reward_margin": "reward of chosen minus rejected",
        "verifier_accuracy": "agreement of verifier and human spot-checks",
        "win_rate": "win rate against the baseline",
        "success": "success rate of the agent",
        "cost": "cost of one rollout or task",
        "latency": "seconds of one rollout",
        "safety_violation_rate": "share of rollouts with a safety violation",
        "factuality": "share of factual answers",
        "refusal_rate": "share of refusals",
        "repetition_rate": "share of repetitive responses",
        "kl_initial": "divergence from the initial model, nats a token",
        "turns": "turns of an episode",
        "action_length": "mean length of one message, tokens",
        "invalid_share": "share of invalid actions",
        "unterminated_share": "share of messages cut off",
        "repeated_share": "share of messages that repeat the one before",
        "stutter_share": "share of messages in which a run of letters comes again at once",
        "signal_share": "share of groups with different rewards",
        "foreign_share": "share of learned tokens that were not drawn",
        "logprob_gap": "largest difference between sampler and trainer, nats",
        PRIVATE: "score on the private set",
    }
)

_ALIASES: MappingProxyType[str, str] = MappingProxyType(
    {
        "rewards/mean": "reward",
        "reward/mean": "reward",
        "reward_mean": "reward",
        "mean_reward": "reward",
        "env/reward/total": "reward",
        "critic/rewards/mean": "reward",
        "objective/scores": "reward",
        "objective/kl": "kl",
        "kl_divergence": "kl",
        "actor/kl_loss": "kl",
        "mean_kl": "kl",
        "actor/entropy": "entropy",
        "objective/entropy": "entropy",
        "policy/entropy_avg": "entropy",
        "completions/mean_length": "length",
        "completion_length": "length",
        "response_length": "length",
        "response_length_mean": "length",
        "response_length/mean": "length",
        "mean_length": "length",
        "length_mean": "length",
        "mean_response_length": "length",
        "mean_completion_length": "length",
        "completion_length_mean": "length",
        "mean_tokens": "length",
        "mean_length_tokens": "length",
        "length_chars": "length_characters",
        "mean_length_chars": "length_characters",
        "mean_length_characters": "length_characters",
        "response_length_chars": "length_characters",
        "response_length_characters": "length_characters",
        "completions/clipped_ratio": "clipped",
        "response_length/clip_ratio": "clipped",
        "rewards/margins": "reward_margin",
        "reward_std": "reward_std",
        "cost_to_success": "cost",
        "cost_per_task": "cost",
        "dollars": "cost",
        "success_rate": "success",
        "task_success": "success",
        "safety_violation": "safety_violation_rate",
        "private_score": "private",
        "test_private": "private",
        "latency_s": "latency",
    }
)
_PREFIXES = ("train/", "eval/", "train_", "eval_")


def canonical_name(name: str) -> str:
    """Our name for what a trainer logged; an unknown name comes back without its `train/` or `eval/` prefix."""
    bare = name.strip()
    for prefix in _PREFIXES:
        bare = bare.removeprefix(prefix)
    lowered = bare.lower()
    if lowered in MEANING:
        return lowered
    return _ALIASES.get(lowered, bare)


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity over a run; steps strictly ascending, values finite."""

    name: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)

    def until(self, step: int) -> "Series":
        """What was known at a step, itself included."""
        n = int(np.searchsorted(self.steps, step, side="right"))
        return Series(self.name, self.steps[:n], self.values[:n])


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """All series of one run."""

    name: str
    series: Mapping[str, Series]
    notes: Sequence[str] = field(default_factory=tuple)
    """What the reader had to put right or leave out: steps out of order, values that are no numbers."""

    def get(self, name: str) -> Series | None:
        """The series of a name; None if the run did not log it."""
        return self.series.get(name)

    @property
    def last_step(self) -> int:
        """The latest step of any series."""
        return max((int(series.steps[-1]) for series in self.series.values() if len(series)), default=0)

    def until(self, step: int) -> "TrainingLog":
        """The run as it was known at a step."""
        cut = {name: series.until(step) for name, series in self.series.items()}
        return TrainingLog(self.name, {name: series for name, series in cut.items() if len(series)}, self.notes)


@dataclass(frozen=True, slots=True)
class Reading:
    """One number that a log holds."""

    step: int
    name: str
    value: float
    where: str
    """Line or record, for messages."""


def assemble(name: str, readings: Iterable[Reading], notes: Sequence[str] = ()) -> TrainingLog:
    """Series from readings in the order in which they were logged.

    Steps out of order are sorted; of two readings at one step the later logged one counts; values that are not
    finite are left out. All three are said in the notes, with the first place.
    """
    points: dict[str, dict[int, float]] = {}
    told: dict[str, tuple[int, str]] = {}
    latest: dict[str, int] = {}
    for reading in readings:
        column = points.setdefault(reading.name, {})
        if not np.isfinite(reading.value):
            _count(told, f"{reading.name}: value is {reading.value}, left out", reading.where)
            continue
        if reading.step < latest.get(reading.name, reading.step):
            _count(told, f"{reading.name}: steps out of order, sorted", reading.where)
        if reading.step in column:
            _count(told, f"{reading.name}: a step comes twice, the later line counts", reading.where)
        latest[reading.name] = max(reading.step, latest.get(reading.name, reading.step))
        column[reading.step] = reading.value
    series = {}
    for column_name, column in points.items():
        if column:
            steps = sorted(column)
            series[column_name] = Series(
                column_name, np.array(steps, dtype=np.int64), np.array([column[s] for s in steps], dtype=np.float64)
            )
    found = [f"{text} ({n} times, first at {where})" for text, (n, where) in told.items()]
    return TrainingLog(name, series, (*notes, *found))


def _count(told: dict[str, tuple[int, str]], text: str, where: str) -> None:
    n, first = told.get(text, (0, where))
    told[text] = (n + 1, first)
