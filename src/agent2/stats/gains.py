"""Gains: over seeds and held-out tasks, gap closed, curves of a search's best attempt, time to a target.

Promises: scores are compared as they are (rates 0-1); sides are paired by name, never by position; a task or seed
without a score is left out and counted. A target that was not reached takes infinite time, never a large
number; a workload whose held-out variant was not reached counts as not reached; times must come from one kind of
hardware. Does NOT say whether a gain is real: `comparisons` has the paired interval and the noise band.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.estimates import UNIT, Bounds, Estimate, Values, finite_vector, measure, with_gaps


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """How consistent a gain is over training seeds."""

    mean: Estimate
    std: float
    """Sample standard deviation over seeds (n - 1)."""
    lowest: float
    highest: float
    share_positive: float
    """Seeds that gained anything; 1 is consistent."""

    def __str__(self) -> str:
        return (
            f"{self.mean}, std {self.std:.4f}, {self.lowest:+.4f} to {self.highest:+.4f}, "
            f"{self.share_positive:.0%} of seeds gained"
        )


def held_out_gain(
    old_by_task: Mapping[Hashable, float | None], new_by_task: Mapping[Hashable, float | None]
) -> Estimate:
    """Mean absolute gain over held-out tasks, each counted once: does the improvement generalise.

    Tasks are paired by name; one that either side lacks, or has no score for, is missing. The interval is over
    tasks. Raises NotEnoughData if no task has both scores.
    """
    tasks = list(dict.fromkeys([*old_by_task, *new_by_task]))
    differences = [_difference(old_by_task.get(task), new_by_task.get(task)) for task in tasks]
    return measure(differences, "held-out gain")


def seed_spread(gains_R: Values) -> SeedSpread:
    """Mean, standard deviation and range of a gain (or score) over training seeds.

    gains_R: one number for each seed; None where the run gave none. Raises NotEnoughData below two seeds: one
    run says nothing of consistency.
    """
    vector = with_gaps(gains_R, "gains_R")
    recorded = vector[~np.isnan(vector)]
    if recorded.size < 2:
        raise NotEnoughData(f"a spread over seeds needs at least 2 runs with a result, got {recorded.size}")
    return SeedSpread(
        measure(vector, "gain over seeds"),
        float(recorded.std(ddof=1)),
        float(recorded.min()),
        float(recorded.max()),
        float((recorded > 0.0).mean()),
    )


def gap_closed(baseline: float, agent: float, top: float) -> float:
    """(agent - baseline) / (top - baseline): 1 reaches the top, 0 is the baseline; may lie outside.

    top: the best human or published result, the end of the scale; it may be the lower number where lower is
    better. Raises NotEnoughData when a value is not finite, ValueError when top equals baseline.
    Source: "MLRC-Bench: Can Language Agents Solve Machine Learning Research Challenges?"; times 100 it is the paper's
    figure.
    """
    if not math.isfinite(agent):
        raise NotEnoughData(f"the agent's score is {agent}; a gap can only be closed by a score")
    return float(normalised_score(agent, baseline, top))


def normalised_score(scores: ArrayLike, random: ArrayLike, expert: ArrayLike) -> NDArray[np.float64]:
    """(score - random) / (expert - random), elementwise; shapes broadcast, so scores_RT takes random_T.

    0 is a random player, 1 an expert; may lie outside. Times 100 it is D4RL's figure (Fu et al. 2020, as
    generally known; not checked against the paper). A NaN score stays NaN: it is missing. Raises NotEnoughData
    when `scores` is empty or a reference is not finite, ValueError for an infinite score or expert = random.
    """
    score, floor, ceiling = (np.asarray(values, dtype=np.float64) for values in (scores, random, expert))
    if score.size == 0:
        raise NotEnoughData("no scores to normalise")
    if bool(np.isinf(score).any()):
        raise ValueError("scores hold an infinity; a score that is not known is NaN")
    if not bool(np.isfinite(floor).all() and np.isfinite(ceiling).all()):
        raise NotEnoughData("a reference score (random or baseline, expert or top) is missing or infinite")
    if bool(np.any(ceiling == floor)):
        raise ValueError("both reference scores are equal, so there is no scale between them; choose other references")
    return np.asarray((score - floor) / (ceiling - floor), dtype=np.float64)


def _difference(old: float | None, new: float | None) -> float | None:
    return None if old is None or new is None else new - old


@dataclass(frozen=True, slots=True)
class IncumbentCurve:
    """The best attempt known after each unit of cost."""

    costs_T: NDArray[np.float64]
    """Cost spent after each attempt."""
    best_T: NDArray[np.float64]
    """Score of the incumbent then; never falls."""
    incumbents_T: NDArray[np.int64]
    """Which attempt that was; the earlier one of equals."""

    def at(self, cost: float) -> float | None:
        """Score of the incumbent once `cost` was spent; None before the first attempt was made."""
        done = int(np.searchsorted(self.costs_T, cost, side="right"))
        return float(self.best_T[done - 1]) if done else None

    def __str__(self) -> str:
        return (
            f"incumbent {self.best_T[-1]:.4f} after cost {self.costs_T[-1]:g} (n={self.best_T.size} attempts, "
            f"last change at {self.incumbents_T[-1] + 1})"
        )


def incumbent_curve(costs_T: ArrayLike, scores_T: ArrayLike, start: float | None = None) -> IncumbentCurve:
    """Anytime curve of a search: what was the best so far, after how much cost.

    costs_T: cost of each attempt in the order tried, not negative. scores_T: the score of each. start: the score known
    before anything is spent; it is the first point, at cost 0. Raises NotEnoughData if there is no score or one is not
    finite, ValueError for negative costs or unequal lengths.
    """
    costs, scores = np.asarray(costs_T, dtype=np.float64), np.asarray(scores_T, dtype=np.float64)
    if costs.size != scores.size:
        raise ValueError(f"costs_T has {costs.size} attempts, scores_T {scores.size}; they must match")
    if start is not None:
        costs, scores = np.concatenate([[0.0], costs]), np.concatenate([[start], scores])
    costs, scores = finite_vector(costs, "costs_T"), finite_vector(scores, "scores_T")
    if np.any(costs < 0):
        raise ValueError("costs_T must not be negative")
    best = np.maximum.accumulate(scores)
    is_new = np.concatenate([[True], scores[1:] > best[:-1]])
    incumbents = np.maximum.accumulate(np.where(is_new, np.arange(scores.size), 0))
    return IncumbentCurve(np.cumsum(costs), best, incumbents)


def mean_incumbent_curve(
    curves: Sequence[IncumbentCurve], costs_G: ArrayLike, bounds: Bounds | None = None
) -> list[Estimate]:
    """Mean over repeated searches of the incumbent's score, at each cost of a grid, with an interval over searches.

    bounds: between which scores lie, where that is known; intervals stay inside.
    Every search must have made an attempt by the first cost. Raises NotEnoughData otherwise.
    """
    grid = finite_vector(costs_G, "costs_G")
    if not curves:
        raise NotEnoughData("there is no search to average over")
    late = sum(float(curve.costs_T[0]) > grid.min() for curve in curves)
    if late:
        raise NotEnoughData(f"{late} of {len(curves)} searches had made no attempt at cost {grid.min():g}")
    values_CG = np.array([curve.best_T[np.searchsorted(curve.costs_T, grid, side="right") - 1] for curve in curves])
    return [measure(values_C.tolist(), "incumbent", bounds) for values_C in values_CG.T]


@dataclass(frozen=True, slots=True)
class TimeProfiles:
    """Every submission's times relative to the fastest one."""

    names: tuple[str, ...]
    ratios_SW: NDArray[np.float64]
    """Time / fastest time on that workload; infinite where not reached."""
    scores: tuple[Estimate, ...]
    """Area under each profile from 1 to max_ratio, divided by max_ratio - 1; interval over workloads."""
    max_ratio: float

    def profile(self, ratio: float) -> NDArray[np.float64]:
        """Share of workloads that each submission solves within `ratio` of the fastest; rises with ratio."""
        if not ratio >= 1.0 or math.isinf(ratio):
            raise ValueError(f"ratio={ratio} must be finite and at least 1, the fastest submission itself")
        return np.asarray((self.ratios_SW <= ratio).mean(axis=1), dtype=np.float64)

    def __str__(self) -> str:
        ranked = sorted(zip(self.names, self.scores, strict=True), key=lambda pair: (-pair[1].value, pair[0]))
        listing = ", ".join(f"{name} {score}" for name, score in ranked)
        return f"{listing} (n={self.ratios_SW.shape[1]} workloads, profile up to {self.max_ratio:g})"


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
    workload; where infinite, the workload counts as not reached. A workload that no run reached counts as 0 for every
    submission. Profile: share of workloads with ratio <= tau; its area is exact, not sampled. Intervals
    are over workloads, those of `measure`: a single workload has none.
    Raises NotEnoughData without submissions or workloads or with NaN, ValueError for times that are not positive.
    Source: "Benchmarking Neural Network Training Algorithms" (AlgoPerf) for time to result and held-out variants;
    profile score as generally known, partly checked against public pages.
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


def _times(values: ArrayLike, name: str) -> NDArray[np.float64]:
    times = np.asarray(values, dtype=np.float64)
    if times.ndim != 2 or 0 in times.shape:
        raise NotEnoughData(f"{name} must be submissions x workloads with one of each at least, got {times.shape}")
    missing = int(np.isnan(times).sum())
    if missing:
        raise NotEnoughData(
            f"{name} holds {missing} missing times; a target not reached is infinity, a lost run is not"
        )
    if np.any(times <= 0):
        raise ValueError(f"{name} must be positive")
    return times
