"""The permutation test, and corrections for many comparisons.

Permutation test of two unpaired samples: runs of one agent against runs of another.

Items are paired and belong to `comparisons.paired_difference`; runs with different seeds are not. The test asks
how often a random split of the pooled runs differs as much as the one seen.

Promises: all splits are tried when there are no more than `n_replicates`, so small samples get their exact
p-value; otherwise the split seen counts as one of the random ones, so that p is never 0.

Corrections for many comparisons: adjusted p-values of Holm and of Benjamini and Hochberg.

An adjusted p-value is compared with the level meant for the whole family: Holm bounds the chance of any false
finding under any dependence, Benjamini-Hochberg the expected share of false ones among the findings, for
independent or positively dependent tests.

Does NOT decide which comparisons form a family: that must be fixed before the p-values are seen.
"""

import math
from dataclasses import dataclass
from itertools import chain, combinations, islice

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.aggregates import few_runs_warning
from agent2.stats.comparisons import TIE
from agent2.stats.estimates import CHUNK_ELEMENTS, finite_vector, interval, resampled_means


@dataclass(frozen=True, slots=True)
class UnpairedDifference:
    """How far the runs of a are ahead of the runs of b."""

    delta: float
    """Mean of a - mean of b."""
    low: float
    high: float
    n_a: int
    n_b: int
    p_value: float
    """Two-sided, of "the labels a and b mean nothing"."""
    method: str
    warning: str = ""
    """Why the interval may not hold what it says (the p-value does); empty if nothing is known against it."""

    def __str__(self) -> str:
        warning = f"; {self.warning}" if self.warning else ""
        return (
            f"{self.delta:+.4f} [{self.low:+.4f}, {self.high:+.4f}] "
            f"(n={self.n_a} and {self.n_b}, p={self.p_value:.2g}, {self.method}{warning})"
        )


def unpaired_difference(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    rng: np.random.Generator,
    n_replicates: int = 10_000,
    confidence: float = 0.95,
) -> UnpairedDifference:
    """Mean of a - mean of b with a bootstrap interval (each side resampled) and a permutation p-value.

    scores_a, scores_b: one score a run, at least two each; the numbers of runs may differ. The interval is too
    narrow for few runs, which the record warns about; the p-value is right for any number. Equal scores on both
    sides give p = 1. Raises NotEnoughData for fewer than two runs on a side or values that are not finite,
    ValueError for n_replicates < 1.
    Source: Efron and Tibshirani 1993, chapters 13 and 15; Phipson and Smyth 2010, doi:10.2202/1544-6115.1585.
    """
    a, b = finite_vector(scores_a, "scores_a"), finite_vector(scores_b, "scores_b")
    if min(a.size, b.size) < 2:
        raise NotEnoughData(f"{a.size} and {b.size} runs; an unpaired comparison needs at least 2 on each side")
    p_value, test = permutation_p(a, b, rng, n_replicates)
    replicates = resampled_means(a, rng, n_replicates) - resampled_means(b, rng, n_replicates)
    low, high = interval(replicates, confidence)
    delta, warning = float(a.mean() - b.mean()), few_runs_warning(min(a.size, b.size))
    return UnpairedDifference(delta, low, high, a.size, b.size, p_value, f"bootstrap, {test}", warning)


def permutation_p(
    scores_a: NDArray[np.float64], scores_b: NDArray[np.float64], rng: np.random.Generator, n_replicates: int
) -> tuple[float, str]:
    """Two-sided permutation p-value of a difference of means, and how it was computed.

    Exact over all splits when there are no more than n_replicates of them. Raises ValueError for n_replicates < 1.
    """
    if n_replicates < 1:
        raise ValueError(f"n_replicates={n_replicates} must be at least 1")
    pooled = np.concatenate([scores_a, scores_b])
    pooled = pooled - pooled.mean()  # then a split's difference grows with the sum of its first part
    n_a, n_splits = scores_a.size, math.comb(pooled.size, scores_a.size)
    observed = abs(float(pooled[:n_a].sum())) - TIE * max(1.0, float(np.abs(pooled).sum()))
    rows = max(1, CHUNK_ELEMENTS // pooled.size)
    if n_splits <= n_replicates:
        splits = combinations(range(pooled.size), n_a)
        at_least = 0
        for start in range(0, n_splits, rows):
            chosen = np.fromiter(chain.from_iterable(islice(splits, min(rows, n_splits - start))), dtype=np.intp)
            at_least += int(np.count_nonzero(np.abs(pooled[chosen.reshape(-1, n_a)].sum(axis=1)) >= observed))
        return at_least / n_splits, f"all {n_splits} splits"
    at_least = 1
    for start in range(0, n_replicates, rows):
        table = np.broadcast_to(pooled, (min(rows, n_replicates - start), pooled.size))
        sums = rng.permuted(table, axis=1)[:, :n_a].sum(axis=1)
        at_least += int(np.count_nonzero(np.abs(sums) >= observed))
    return at_least / (n_replicates + 1), f"{n_replicates} random splits"


@dataclass(frozen=True, slots=True)
class AdjustedPValues:
    """The p-values of a family after correction, in the order given."""

    p_values: tuple[float, ...]
    """As they came."""
    adjusted: tuple[float, ...]
    method: str

    @property
    def n(self) -> int:
        """Comparisons in the family."""
        return len(self.adjusted)

    def significant(self, level: float = 0.05) -> tuple[bool, ...]:
        """Which comparisons hold at the level of the family. Raises ValueError unless 0 < level < 1."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level={level} must be between 0 and 1, for example 0.05")
        return tuple(p <= level for p in self.adjusted)

    def __str__(self) -> str:
        found = sum(self.significant())
        smallest = min(self.adjusted)
        return f"{found} of n={self.n} comparisons significant at 0.05, smallest p={smallest:.2g} ({self.method})"


def holm(p_values: ArrayLike) -> AdjustedPValues:
    """Holm's step-down p-values: the i-th smallest of n times n - i + 1, made monotone, at most 1.

    Raises NotEnoughData for no or not finite p-values, ValueError outside 0-1.
    Source: Holm 1979, Scandinavian Journal of Statistics 6:65-70.
    """
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return AdjustedPValues(tuple(p.tolist()), tuple(adjusted.tolist()), "Holm")


def benjamini_hochberg(p_values: ArrayLike) -> AdjustedPValues:
    """Benjamini and Hochberg's step-up p-values, by scipy. Raises as `holm`.

    Source: Benjamini and Hochberg 1995, JRSS B 57:289-300.
    """
    p = _checked(p_values)
    adjusted = stats.false_discovery_control(p, method="bh")
    return AdjustedPValues(tuple(p.tolist()), tuple(adjusted.tolist()), "Benjamini-Hochberg")


def _checked(p_values: ArrayLike) -> NDArray[np.float64]:
    p = finite_vector(p_values, "p_values")
    outside = p[(p < 0.0) | (p > 1.0)]
    if outside.size:
        raise ValueError(f"p_values holds {outside.size} values outside 0-1, for example {outside[0]:g}")
    return p
