"""Time to reach a target: performance profiles of submissions over workloads, and one score.

Promises: a target that was not reached takes infinite time, never a large number; a workload whose held-out
variant was not reached counts as not reached. Times must come from one kind of hardware.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.estimates import finite_vector
from agent2.stats.measure import UNIT, Measure, measure


@dataclass(frozen=True, slots=True)
class TimeProfiles:
    """Every submission's times relative to the fastest one."""

    names: tuple[str, ...]
    ratios_SW: NDArray[np.float64]
    """Time / fastest time on that workload; infinite where not reached."""
    scores: tuple[Measure, ...]
    """Area under each profile from 1 to max_ratio, divided by max_ratio - 1; interval over workloads."""
    max_ratio: float

    def profile(self, ratio: float) -> NDArray[np.float64]:
        """Share of workloads that each submission solves within `ratio` of the fastest; rises with ratio."""
        if not ratio >= 1.0 or math.isinf(ratio):
            raise ValueError(f"ratio={ratio} must be finite and at least 1, the fastest submission itself")
        return np.asarray((self.ratios_SW <= ratio).mean(axis=1), dtype=np.float64)

    def __str__(self) -> str:
        ranked = sorted(zip(self.names, self.scores, strict=True), key=lambda pair: (-pair[1].value, pair[0]))
        shown = ", ".join(f"{name} {score}" for name, score in ranked)
        return f"{shown} (n={self.ratios_SW.shape[1]} workloads, profile up to {self.max_ratio:g})"


def time_to_target(times_P: ArrayLike, scores_P: ArrayLike, target: float) -> float:
    """When a run first scored at least the target; infinity if it never did.

    times_P: increasing, not negative. Scores must be finite (leave out points that were not measured).
    Raises NotEnoughData if empty, ValueError for times that cannot be.
    """
    times, scores = finite_vector(times_P, "times_P"), finite_vector(scores_P, "scores_P")
    if times.size != scores.size:
        raise ValueError(f"times_P has {times.size} points, scores_P {scores.size}; they must match")
    if times[0] < 0 or np.any(np.diff(times) <= 0):
        raise ValueError("times_P must not be negative and must increase from point to point")
    reached = scores >= target
    return float(times[reached.argmax()]) if reached.any() else math.inf


def compare_times(
    names: Sequence[str],
    times_SW: ArrayLike,
    held_out_SW: ArrayLike | None = None,
    max_ratio: float = 4.0,
) -> TimeProfiles:
    """Profiles and scores of submissions.

    times_SW: submissions x workloads, positive; infinity where the target was not reached, never NaN (a run
    that was lost must be repeated or its workload left out). held_out_SW: times on a held-out variant of each
    workload; where infinite, the workload counts as not reached. A workload that nobody reached counts, with
    nothing, for everybody. Profile: share of workloads with ratio <= tau; its area is exact, not sampled. Intervals
    are over workloads, those of `measure`: a single workload has none.
    Raises NotEnoughData without submissions or workloads or with NaN, ValueError for times that are not positive.
    Source: AlgoPerf (PAPERS #88), time to result, held-out variants [A]; profile score as generally known,
    partly checked against public pages.
    """
    times = _times(times_SW, "times_SW")
    if len(names) != times.shape[0] or len(set(names)) != len(names):
        raise ValueError(f"{len(names)} names for {times.shape[0]} submissions; each needs one of its own")
    if not max_ratio > 1.0 or math.isinf(max_ratio):
        raise ValueError(f"max_ratio={max_ratio} must be finite and above 1")
    if held_out_SW is not None:
        held_out = _times(held_out_SW, "held_out_SW")
        if held_out.shape != times.shape:
            raise ValueError(f"held_out_SW has shape {held_out.shape}, times_SW {times.shape}; they must match")
        times = np.where(np.isinf(held_out), np.inf, times)
    fastest = times.min(axis=0)
    ratios = np.full(times.shape, np.inf)
    np.divide(times, fastest, out=ratios, where=np.isfinite(fastest))
    # the integral of 1[ratio <= tau] over tau from 1 to max_ratio is what is left after ratio
    areas_SW = np.clip(max_ratio - ratios, 0.0, None) / (max_ratio - 1.0)
    scores = tuple(measure(areas, "time score", UNIT) for areas in areas_SW)
    return TimeProfiles(tuple(names), ratios, scores, max_ratio)


def _times(values: ArrayLike, what: str) -> NDArray[np.float64]:
    times = np.asarray(values, dtype=np.float64)
    if times.ndim != 2 or 0 in times.shape:
        raise NotEnoughData(f"{what} must be submissions x workloads with one of each at least, got {times.shape}")
    missing = int(np.isnan(times).sum())
    if missing:
        raise NotEnoughData(
            f"{what} holds {missing} missing times; a target not reached is infinity, a lost run is not"
        )
    if np.any(times <= 0):
        raise ValueError(f"{what} must be positive")
    return times
