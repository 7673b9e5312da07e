"""Intervals beside Wilson's: exact for rates, and for means of observations that come in clusters.

A cluster is what was sampled independently (a document, a repository, an item with many attempts); the
observations inside one resemble each other, so their number says little about how sure the mean is.

Promises: few clusters are warned about in the record, one cluster raises NotEnoughData, a missing value (NaN)
raises NotEnoughData with the number missing. The clustered intervals do NOT cover clusters whose size depends
on the score.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.estimates import CHUNK_ELEMENTS, Estimate, check_confidence, check_counts, finite_vector, interval
from agent2.stats.measure import Bounds, with_gaps

FEW_CLUSTERS = 20
"""Fewer clusters than this are warned about (a rule of thumb; the literature says 20 to 50)."""


@dataclass(frozen=True, slots=True)
class ClusteredEstimate:
    """A mean whose interval counts clusters, not observations."""

    value: float
    low: float
    high: float
    n: int
    """Observations."""
    n_clusters: int
    method: str
    warning: str = ""
    """Why the interval may be too narrow; empty if nothing is known against it."""

    def __str__(self) -> str:
        warning = f"; {self.warning}" if self.warning else ""
        return (
            f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}] "
            f"(n={self.n} in {self.n_clusters} clusters, {self.method}{warning})"
        )


def clopper_pearson(n_success: int, n: int, confidence: float = 0.95) -> Estimate:
    """A rate with its exact interval: never covers less than it says, so it is wider than Wilson's.

    Raises NotEnoughData for n < 1 and ValueError for counts or a confidence that cannot be.
    Source: Clopper and Pearson 1934, Biometrika 26:404-413, as computed by scipy.
    """
    check_counts(n_success, n)
    check_confidence(confidence)
    bounds = stats.binomtest(n_success, n).proportion_ci(confidence, method="exact")
    return Estimate(n_success / n, float(bounds.low), float(bounds.high), n, "Clopper-Pearson")


def clustered_mean(
    values: ArrayLike, clusters: ArrayLike, confidence: float = 0.95, bounds: Bounds | None = None
) -> ClusteredEstimate:
    """The mean of all observations with a cluster-robust t interval on clusters - 1 degrees of freedom.

    values, clusters: one number and one label an observation. bounds: where values may lie, (0, 1) for rates; the
    interval is cut there, and is not without them. Squared error: G / (G - 1) * sum over the G clusters
    of (sum of value - mean)^2, over n^2; with one observation a cluster it is the usual one. Equal values give
    width 0. Raises NotEnoughData for an empty or not finite input or fewer than 2 clusters, ValueError for
    unequal lengths or values out of bounds.
    Source: Liang and Zeger 1986, Biometrika 73:13-22; for evaluations Miller 2024, arXiv:2411.00640; the
    G / (G - 1) correction and the degrees of freedom as generally known, not checked against the papers.
    """
    check_confidence(confidence)
    vector, index, n_clusters = _grouped(values, clusters)
    lowest, highest = bounds or (-math.inf, math.inf)
    with_gaps(vector, "values", bounds)
    mean = float(vector.mean())
    deviation_G = np.bincount(index, vector - mean, minlength=n_clusters)
    error = float(np.sqrt(n_clusters / (n_clusters - 1) * np.square(deviation_G).sum())) / vector.size
    half_width = float(stats.t.ppf((1.0 + confidence) / 2.0, n_clusters - 1)) * error
    low, high = max(lowest, mean - half_width), min(highest, mean + half_width)
    warning = _few_clusters(n_clusters)
    return ClusteredEstimate(mean, low, high, vector.size, n_clusters, "cluster-robust t", warning)


def cluster_bootstrap_mean(
    values: ArrayLike,
    clusters: ArrayLike,
    rng: np.random.Generator,
    n_replicates: int = 10_000,
    confidence: float = 0.95,
) -> ClusteredEstimate:
    """The mean of all observations with a percentile interval from resampling whole clusters.

    A replicate is the sum of the drawn clusters over their number of observations. Raises as `clustered_mean`.
    Source: Davison and Hinkley 1997, section 3.8 (as generally known; not checked against the book).
    """
    vector, index, n_clusters = _grouped(values, clusters)
    if n_replicates < 1:
        raise ValueError(f"n_replicates={n_replicates} must be at least 1")
    sum_G = np.bincount(index, vector, minlength=n_clusters)
    size_G = np.bincount(index, minlength=n_clusters)
    means = np.empty(n_replicates)
    rows = max(1, CHUNK_ELEMENTS // n_clusters)
    for start in range(0, n_replicates, rows):
        stop = min(start + rows, n_replicates)
        drawn = rng.integers(n_clusters, size=(stop - start, n_clusters))
        means[start:stop] = sum_G[drawn].sum(axis=1) / size_G[drawn].sum(axis=1)
    low, high = interval(means, confidence)
    method = f"cluster bootstrap, {n_replicates} replicates"
    return ClusteredEstimate(
        float(vector.mean()), low, high, vector.size, n_clusters, method, _few_clusters(n_clusters)
    )


def _grouped(values: ArrayLike, clusters: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.intp], int]:
    vector = finite_vector(values, "values")
    labels = np.asarray(clusters)
    if labels.shape != vector.shape:
        raise ValueError(f"values has {vector.size} observations, clusters the shape {labels.shape}; give one each")
    distinct, index = np.unique(labels, return_inverse=True)
    if distinct.size < 2:
        raise NotEnoughData(f"all {vector.size} observations are in one cluster; an interval needs at least 2")
    return vector, index, distinct.size


def _few_clusters(n_clusters: int) -> str:
    return f"fewer than {FEW_CLUSTERS} clusters: the interval may be too narrow" if n_clusters < FEW_CLUSTERS else ""
