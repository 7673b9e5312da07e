"""Measured numbers: value, interval, and how many observations are behind it or missing.

One number with what stands behind it: how many observations, how many missing, what interval.

Promises: None and NaN are missing: left out, counted, never zero; an infinity or a value outside the stated
bounds is a mistake and raises ValueError; nothing left raises NotEnoughData. Intervals are Wilson's for values
that are all 0 or 1, else Student's t over the independent units, cut at the bounds. A single unit has no
interval; equal values that are not verdicts give width 0. Student's interval is too narrow for a few skewed
units: resample (`estimates.bootstrap_mean`) where a decision hangs on it.

Intervals beside Wilson's: exact for rates, and for means of observations that come in clusters.

A cluster is what was sampled independently (a document, a repository, an item with many attempts); the
observations inside one resemble each other, so their number says little about how sure the mean is.

Promises: few clusters are warned about in the record, one cluster raises NotEnoughData, a missing value (NaN)
raises NotEnoughData with the number missing. The clustered intervals do NOT cover clusters whose size depends
on the score.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import stdtrit

from agent2.errors import NotEnoughData
from agent2.stats.estimates import (
    CHUNK_ELEMENTS,
    Estimate,
    check_confidence,
    check_counts,
    finite_vector,
    interval,
    wilson,
)

Values: TypeAlias = ArrayLike | Sequence[float | None]
"""One number for each observation; None or NaN where it is missing."""
Bounds: TypeAlias = tuple[float, float]
UNIT: Bounds = (0.0, 1.0)
"""Bounds of rates, probabilities and scores."""
COUNTS: Bounds = (0.0, math.inf)


@dataclass(frozen=True, slots=True)
class Measure:
    """A value with its interval, the units behind it and what was missing."""

    value: float
    low: float | None
    """None, as is `high`: one unit only, so nothing is known of the spread."""
    high: float | None
    n: int
    """Independent units behind the value (items, pairs, seeds)."""
    n_missing: int
    """Observations asked for that could not be judged or recorded."""
    method: str
    """How the interval was made."""

    def __str__(self) -> str:
        span = "" if self.low is None or self.high is None else f" [{self.low:.4f}, {self.high:.4f}]"
        missing = f", {self.n_missing} missing" if self.n_missing else ""
        return f"{self.value:.4f}{span} (n={self.n}{missing}, {self.method})"


def with_gaps(values: Values, what: str, bounds: Bounds | None = None) -> NDArray[np.float64]:
    """The values as a float vector with NaN where they are missing. Raises ValueError for what no value may be."""
    vector = np.asarray(cast(ArrayLike, values), dtype=np.float64)
    if vector.ndim != 1:
        raise ValueError(f"{what} must be a vector, got an array of shape {vector.shape}")
    if np.isinf(vector).any():
        raise ValueError(f"{what} holds an infinity; a value that is not known is None or NaN")
    if bounds is not None and bool(np.any((vector < bounds[0]) | (vector > bounds[1]))):
        worst = vector[(vector < bounds[0]) | (vector > bounds[1])][0]
        raise ValueError(f"{what} holds {worst:g}; it must be between {bounds[0]:g} and {bounds[1]:g}")
    return vector


def same_length(what: str, **vectors: NDArray[np.float64]) -> None:
    """Raises ValueError when vectors that go observation by observation differ in length."""
    if len({vector.size for vector in vectors.values()}) > 1:
        sizes = ", ".join(f"{name} {vector.size}" for name, vector in vectors.items())
        raise ValueError(f"{what} needs as many values on each side, got {sizes}; pair them by id first")


def measure(values: Values, what: str, bounds: Bounds | None = None, confidence: float = 0.95) -> Measure:
    """The mean over what is there.

    values: one number for each independent unit. what: names them in messages. bounds: where values may lie;
    with (0, 1), values that are all 0 or 1 get Wilson's interval. Raises NotEnoughData if nothing is there.
    """
    vector = with_gaps(values, what, bounds)
    there = vector[~np.isnan(vector)]
    n_missing = vector.size - there.size
    if there.size == 0:
        raise NotEnoughData(f"{what}: nothing to average ({n_missing} missing); at least one observation is needed")
    if bounds == UNIT and np.isin(there, UNIT).all():
        rate = wilson(int(there.sum()), there.size, confidence)
        return Measure(rate.value, rate.low, rate.high, rate.n, n_missing, rate.method)
    value = float(there.mean())
    if there.size == 1:
        return Measure(value, None, None, 1, n_missing, "no interval")
    error = float(there.std(ddof=1)) / math.sqrt(there.size)
    return _student(value, error, there.size, n_missing, bounds, confidence)


def measure_by_item(
    values: Values, items: Sequence[Hashable], what: str, bounds: Bounds | None = None, confidence: float = 0.95
) -> Measure:
    """The mean over items of the means within each item, so that many attempts at one item are one unit.

    values: one number for each attempt; items: the id of its item. An item without any value is left out, and
    its attempts are among the missing. Raises as `measure`, ValueError if the lengths differ.
    """
    vector = with_gaps(values, what, bounds)
    if len(items) != vector.size:
        raise ValueError(f"{what} has {vector.size} values for {len(items)} item ids; give one id for each value")
    there = ~np.isnan(vector)
    sums, counts = _sums_by_item(np.where(there, vector, 0.0), items), _sums_by_item(there.astype(np.float64), items)
    n_missing = int(vector.size - there.sum())
    if not there.any():
        raise NotEnoughData(f"{what}: nothing to average ({n_missing} missing); at least one observation is needed")
    means = sums[counts > 0] / counts[counts > 0]
    if bounds is not None:
        means = np.clip(means, *bounds)  # a mean of values in bounds may leave them by the last bit
    found = measure(means, what, bounds, confidence)
    return Measure(found.value, found.low, found.high, found.n, n_missing, found.method)


def ratio_of_sums(
    parts: Values, wholes: Values, what: str, items: Sequence[Hashable] | None = None, confidence: float = 0.95
) -> Measure:
    """Sum of parts over sum of wholes: a rate of events, when runs have unequal numbers of events.

    parts, wholes: counts for each run, 0 <= part <= whole; a run with either missing is left out and counted.
    items: ids of the runs' items, which are then the independent units; without, each run is one. Units
    without events do not count in n. The interval is Student's with the linearised variance of a ratio, as
    generally known (Cochran 1977, chapter 6; not checked against the book); it has width 0 when all units have the
    same rate, except for rates of 0 and 1: they get Wilson's, each unit taken as one verdict. Raises
    NotEnoughData when there are no events at all, ValueError for counts that cannot be.
    """
    part, whole = with_gaps(parts, f"{what}: parts", COUNTS), with_gaps(wholes, f"{what}: wholes", COUNTS)
    same_length(what, parts=part, wholes=whole)
    there = ~(np.isnan(part) | np.isnan(whole))
    n_missing = int(part.size - there.sum())
    part, whole = np.where(there, part, 0.0), np.where(there, whole, 0.0)
    if bool(np.any(part > whole)):
        raise ValueError(f"{what}: a part is larger than its whole; check the counts")
    if items is not None:
        if len(items) != part.size:
            raise ValueError(f"{what} has {part.size} runs for {len(items)} item ids; give one id for each run")
        part, whole = _sums_by_item(part, items), _sums_by_item(whole, items)
    part, whole = part[whole > 0], whole[whole > 0]
    if whole.size == 0:
        raise NotEnoughData(f"{what}: no events in any run ({n_missing} runs missing), so there is no rate")
    value, n = float(part.sum() / whole.sum()), whole.size
    if value in UNIT:
        sure = wilson(n if value else 0, n, confidence)
        return Measure(sure.value, sure.low, sure.high, n, n_missing, sure.method)
    if n == 1:
        return Measure(value, None, None, 1, n_missing, "no interval")
    error = math.sqrt(n / (n - 1) * float(np.square(part - value * whole).sum())) / float(whole.sum())
    return _student(value, error, n, n_missing, UNIT, confidence)


def _student(value: float, error: float, n: int, n_missing: int, bounds: Bounds | None, confidence: float) -> Measure:
    check_confidence(confidence)
    half_width = float(stdtrit(n - 1, (1.0 + confidence) / 2.0)) * error
    lowest, highest = bounds or (-math.inf, math.inf)
    return Measure(value, max(lowest, value - half_width), min(highest, value + half_width), n, n_missing, "Student t")


def _sums_by_item(values: NDArray[np.float64], items: Sequence[Hashable]) -> NDArray[np.float64]:
    numbers: dict[Hashable, int] = {}
    index = [numbers.setdefault(item, len(numbers)) for item in items]
    return np.bincount(np.asarray(index, dtype=np.intp), weights=values, minlength=len(numbers)).astype(np.float64)


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
