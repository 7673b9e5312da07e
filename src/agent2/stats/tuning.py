"""Tuning: the incumbent, how much of its score is luck of the tuning seeds, and what each unit of cost bought.

Promises: tuning and test seeds are disjoint, or nothing is computed; all configurations are judged on the same
tuning seeds; a missing score is refused by name, never a zero.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.estimates import Estimate, check_confidence, finite_vector


@dataclass(frozen=True, slots=True)
class TuningGap:
    """What tuning promised, and what new seeds gave."""

    incumbent: str
    n_configurations: int
    tune_mean: float
    n_tune_seeds: int
    test: Estimate
    """Mean of the incumbent on test seeds, t interval over seeds."""
    gap: Estimate
    """tune_mean - test mean: positive if tuning promised too much. Welch interval; n is the test seeds."""

    def __str__(self) -> str:
        return (
            f"{self.incumbent} (best of {self.n_configurations} on {self.n_tune_seeds} seeds): "
            f"test {self.test}; tuning-overfit gap {self.gap}"
        )


@dataclass(frozen=True, slots=True)
class IncumbentCurve:
    """The best configuration known after each unit of cost."""

    costs_T: NDArray[np.float64]
    """Cost spent after each configuration tried."""
    best_T: NDArray[np.float64]
    """Tuning mean of the incumbent then; never falls."""
    incumbents_T: NDArray[np.int64]
    """Which configuration that was; the earlier one of equals."""

    def at(self, cost: float) -> float | None:
        """Tuning mean of the incumbent once `cost` was spent; None before the first configuration was done."""
        done = int(np.searchsorted(self.costs_T, cost, side="right"))
        return float(self.best_T[done - 1]) if done else None

    def __str__(self) -> str:
        return (
            f"incumbent {self.best_T[-1]:.4f} after cost {self.costs_T[-1]:g} (n={self.best_T.size} configurations, "
            f"last change at {self.incumbents_T[-1] + 1})"
        )


def tuning_gap(
    tuning: Mapping[str, Mapping[int, float]], test: Mapping[int, float], confidence: float = 0.95
) -> TuningGap:
    """Choose the incumbent by its mean on tuning seeds and compare it with its test seeds.

    tuning: configuration -> seed -> score, the same seeds for each. test: seed -> score of the incumbent
    (`choose_incumbent` names it), at least two seeds, none of them a tuning seed. The gap's interval treats
    the incumbent's tuning seeds as if it had not been chosen for them: its centre shows the bias of the
    choice, its width only the seeds. One tuning seed: the gap has only the test seeds' spread. Raises
    NotEnoughData for no configuration, fewer than two test seeds or missing scores, ValueError for seeds in both.
    Source: HPO in RL (PAPERS #38) for separation and incumbent; the Welch interval is ours.
    """
    incumbent = choose_incumbent(tuning)
    both = sorted(set(tuning[incumbent]) & set(test))
    if both:
        raise ValueError(f"seeds {both[:5]} are both tuning and test seeds; test on seeds that tuning never saw")
    if len(test) < 2:
        raise NotEnoughData(f"a test mean with an interval needs at least 2 test seeds, got {len(test)}")
    check_confidence(confidence)
    tune_scores = finite_vector(list(tuning[incumbent].values()), f"tuning scores of {incumbent}")
    test_scores = finite_vector(list(test.values()), "test scores")
    n_tune, n_test = tune_scores.size, test_scores.size
    var_test = float(test_scores.var(ddof=1)) / n_test
    var_tune = float(tune_scores.var(ddof=1)) / n_tune if n_tune > 1 else 0.0
    weight = var_test**2 / (n_test - 1) + (var_tune**2 / (n_tune - 1) if n_tune > 1 else 0.0)
    freedom = (var_test + var_tune) ** 2 / weight if weight > 0 else math.inf
    tune_mean, test_mean = float(tune_scores.mean()), float(test_scores.mean())
    half_test = _t(confidence, n_test - 1) * math.sqrt(var_test)
    half_gap = _t(confidence, freedom) * math.sqrt(var_test + var_tune)
    gap = tune_mean - test_mean
    return TuningGap(
        incumbent,
        len(tuning),
        tune_mean,
        n_tune,
        Estimate(test_mean, test_mean - half_test, test_mean + half_test, n_test, "t over seeds"),
        Estimate(gap, gap - half_gap, gap + half_gap, n_test, "Welch t over seeds"),
    )


def choose_incumbent(tuning: Mapping[str, Mapping[int, float]]) -> str:
    """The configuration of highest mean over the tuning seeds; the first one of equals.

    Raises NotEnoughData for no configuration or missing scores, ValueError if seeds differ between them.
    """
    if not tuning:
        raise NotEnoughData("there is no configuration to choose from")
    seeds = set(next(iter(tuning.values())))
    means: dict[str, float] = {}
    for name, scores in tuning.items():
        if set(scores) != seeds:
            raise ValueError(f"{name} was tuned on seeds {sorted(scores)}, others on {sorted(seeds)}; use the same")
        means[name] = float(finite_vector(list(scores.values()), f"tuning scores of {name}").mean())
    return max(means, key=lambda name: means[name])


def incumbent_curve(costs_T: ArrayLike, means_T: ArrayLike) -> IncumbentCurve:
    """Anytime curve of a search: what was the best so far, after how much cost.

    costs_T: cost of each configuration in the order tried, positive. means_T: its mean over the tuning seeds.
    Raises NotEnoughData if empty or not finite, ValueError for costs that are not positive or unequal lengths.
    """
    costs, means = finite_vector(costs_T, "costs_T"), finite_vector(means_T, "means_T")
    if costs.size != means.size:
        raise ValueError(f"costs_T has {costs.size} configurations, means_T {means.size}; they must match")
    if np.any(costs <= 0):
        raise ValueError("costs_T must be positive: every configuration tried has a cost")
    best = np.maximum.accumulate(means)
    is_new = np.concatenate([[True], means[1:] > best[:-1]])
    incumbents = np.maximum.accumulate(np.where(is_new, np.arange(means.size), 0))
    return IncumbentCurve(np.cumsum(costs), best, incumbents)


def mean_incumbent_curve(curves: Sequence[IncumbentCurve], costs_G: ArrayLike) -> NDArray[np.float64]:
    """Mean over repeated searches of the incumbent's tuning mean, at each cost of a grid.

    Every search must have finished a configuration by the first cost. Raises NotEnoughData otherwise.
    """
    grid = finite_vector(costs_G, "costs_G")
    if not curves:
        raise NotEnoughData("there is no search to average over")
    late = sum(float(curve.costs_T[0]) > grid.min() for curve in curves)
    if late:
        raise NotEnoughData(f"{late} of {len(curves)} searches had no configuration done at cost {grid.min():g}")
    values = [curve.best_T[np.searchsorted(curve.costs_T, grid, side="right") - 1] for curve in curves]
    return np.asarray(np.mean(values, axis=0), dtype=np.float64)


def _t(confidence: float, freedom: float) -> float:
    return float(stats.t.ppf((1.0 + confidence) / 2.0, freedom))
