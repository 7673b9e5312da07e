"""Which training methods the training logs of a workspace show, read from the names of their metrics.

Logs are written by the agent's programs: they show what those programs report, not that weights changed.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from agent2.arena.analysis.code_signals import Method
from agent2.arena.evidence import MetricPoint

_PREFERENCE = re.compile(r"rewards?/(chosen|rejected|margins|accuracies)$|logps/(chosen|rejected)$")
_RL = re.compile(
    r"(^|[/_])(rewards?|reward_std|reward_mean|advantages?|kl|approx_kl|clip_ratio|clip_frac|policy_loss|policy_avg"
    r"|rlhf_reward|episode_return|returns?)($|[/_])"
)
_LOSS = re.compile(r"(^|[/_])(loss|mean_token_accuracy)$")


@dataclass(frozen=True, slots=True)
class LoggedTraining:
    """What one training log shows up to some moment."""

    file: str
    method: Method
    first_t: float
    n_points: int
    keys: tuple[str, ...]
    """The metrics that say so."""


class TrainingLogs:
    """The training logs of a trial, read once; `until` then takes as many steps as there are files and metrics."""

    def __init__(self, metrics: Sequence[MetricPoint]) -> None:
        self._times: dict[str, list[float]] = {}
        self._first_seen: dict[str, dict[Method, dict[str, float]]] = {}
        methods: dict[str, Method | None] = {}
        for point in sorted(metrics, key=lambda point: point.t):
            self._times.setdefault(point.file, []).append(point.t)
            by_method = self._first_seen.setdefault(point.file, {})
            for key in point.values:
                if key not in methods:
                    methods[key] = _method_of(key)
                method = methods[key]
                if method is not None:
                    by_method.setdefault(method, {}).setdefault(key, point.t)

    def until(self, t: float) -> tuple[LoggedTraining, ...]:
        """What the lines up to a moment show, one method a file, in the order of the files' first lines."""
        found = []
        for file, times in self._times.items():
            n_points = bisect_right(times, t)
            for method in (Method.PREFERENCE, Method.RL, Method.SFT):
                seen = self._first_seen[file].get(method, {})
                keys = sorted(key for key, first in seen.items() if first <= t)
                if keys:
                    found.append(LoggedTraining(file, method, times[0], n_points, tuple(keys[:6])))
                    break
        return tuple(sorted(found, key=lambda log: (log.first_t, log.file)))


def _method_of(key: str) -> Method | None:
    """What a metric of this name shows."""
    patterns = ((Method.PREFERENCE, _PREFERENCE), (Method.RL, _RL), (Method.SFT, _LOSS))
    return next((method for method, pattern in patterns if pattern.search(key)), None)


def logged_training(metrics: Sequence[MetricPoint], until: float | None = None) -> tuple[LoggedTraining, ...]:
    """The methods that training logs show, one a file, in the order of their first line.

    until: only lines written up to then (Unix seconds). A log with a loss alone counts as supervised; one with
    no metric of training is left out.
    """
    return TrainingLogs(metrics).until(math.inf if until is None else until)
