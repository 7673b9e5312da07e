"""Which training methods the training logs of a workspace show, read from the names of their metrics.

Logs are written by the agent's programs: they show what those programs report, not that weights changed.
"""

import re
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


def logged_training(metrics: Sequence[MetricPoint], until: float | None = None) -> tuple[LoggedTraining, ...]:
    """The methods that training logs show, one a file, in the order of their first line.

    until: only lines written up to then (Unix seconds). A log with a loss alone counts as supervised; one with
    no metric of training is left out.
    """
    by_file: dict[str, list[MetricPoint]] = {}
    for point in metrics:
        if until is None or point.t <= until:
            by_file.setdefault(point.file, []).append(point)
    found = []
    for file, points in by_file.items():
        keys = sorted({key for point in points for key in point.values})
        for method, pattern in ((Method.PREFERENCE, _PREFERENCE), (Method.RL, _RL), (Method.SFT, _LOSS)):
            matching = tuple(key for key in keys if pattern.search(key))
            if matching:
                found.append(LoggedTraining(file, method, min(p.t for p in points), len(points), matching[:6]))
                break
    return tuple(sorted(found, key=lambda log: (log.first_t, log.file)))
