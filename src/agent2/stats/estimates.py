"""One record for every number with an interval, and the intervals: Wilson for rates, Student's t, the bootstrap.

`Estimate` is the record that every room uses, from here to the pages and JSON files; `Notation` is how one is written.

Promises: the same data and generator give the same numbers; memory stays bounded however many items there are. None
and NaN are missing: left out, counted, never zero; an infinity or a value outside the stated bounds raises ValueError;
too little data raises NotEnoughData and never becomes a NaN. `measure` takes Wilson's interval for values that are all
0 or 1, else Student's t over the independent units, cut at the bounds; a single unit has no interval, and equal values
that are not verdicts give width 0. Student's is too narrow for a few skewed units, the percentile bootstrap below
about 20 items (it covers 91% at 20, 95% at 600, measured).
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias, cast

from agent2.errors import NotEnoughData

# Every reader of a card loads this module, most for its records alone; numpy takes longer to load than all the rest.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

CHUNK_ELEMENTS = 1 << 21
"""Most resampled values held at once."""
ITEMS, ITEMS_AND_SEEDS = "items", "items and seeds"
"""What an interval is over."""

Values: TypeAlias = "ArrayLike | Sequence[float | None]"
"""One number for each observation; None or NaN where it is missing."""
Bounds: TypeAlias = tuple[float, float]
UNIT: Bounds = (0.0, 1.0)
"""Bounds of rates, probabilities and scores."""
COUNTS: Bounds = (0.0, math.inf)


@dataclass(frozen=True, slots=True)
class Notation:
    """How numbers of one kind are written: `RAW` 0.6000, `PERCENT` 60.0%, `POINTS` +28.0."""

    spec: str
    """Format of one number, as `format` reads it."""
    scale: float = 1.0
    unit: str = ""

    def number(self, value: float) -> str:
        """One number; what rounds to zero has no sign."""
        text = format(self.scale * value, self.spec)
        return (text if text.strip("+-0.") else text.lstrip("+-")) + self.unit

    def interval(self, estimate: "Estimate | None", missing: str = "") -> str:
        """`[low, high]` without a unit; `missing` where there is no interval."""
        if estimate is None or estimate.low is None or estimate.high is None:
            return missing
        bare = replace(self, unit="")
        return f"[{bare.number(estimate.low)}, {bare.number(estimate.high)}]"

    def estimate(self, estimate: "Estimate | None", missing: str = "none") -> str:
        """`value [low, high]`; `missing` where nothing was measured."""
        if estimate is None:
            return missing
        return f"{self.number(estimate.value)} {self.interval(estimate)}".rstrip()


RAW, PERCENT, POINTS = Notation(".4f"), Notation(".1f", 100.0, "%"), Notation("+.1f", 100.0)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval (95% unless `method` names another confidence) and the data behind it.

    Rates, scores and their differences are 0-1 (percent and points exist in text only). A number of which nothing is
    known is None in place of the record.
    """

    value: float
    low: float | None
    """None, as is `high`: nothing is known of the spread (one unit only, or a number that holds by identity or rule).
    """
    high: float | None
    n: int
    """Independent units behind it: items (not rollouts), pairs, runs or seeds, as `method` says."""
    n_missing: int = 0
    """Observations that could not be judged or recorded."""
    method: str = ""
    """How the interval was made, and over what."""

    def __post_init__(self) -> None:
        """Raises ValueError for half an interval, or one that is empty."""
        if (self.low is None) is not (self.high is None):
            raise ValueError(f"an interval has two ends or none; got low={self.low} and high={self.high}")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"the interval from {self.low} to {self.high} is empty")

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper end. Raises NotEnoughData where there is none."""
        if self.low is None or self.high is None:
            raise NotEnoughData(f"{self.value:.4g} of n={self.n} has no interval ({self.method})")
        return self.low, self.high

    def scaled(self, factor: float) -> "Estimate":
        """In another unit; a negative factor swaps the ends."""
        low, high = (None, None) if self.low is None else sorted(factor * end for end in self.interval)
        return replace(self, value=factor * self.value, low=low, high=high)

    def __str__(self) -> str:
        missing = f", {self.n_missing} missing" if self.n_missing else ""
        return f"{RAW.estimate(self)} (n={self.n}{missing}, {self.method})"


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How far one side is ahead of the other on the same units, and how certain that is."""

    change: Estimate
    """Mean of new - old, in the metric's units; `n` items have a value on both sides, `n_missing` on one at most."""
    p_value: float
    """Two-sided, of "no difference"."""
    over: str = ITEMS
    """What interval and p-value are over: items, or items and training seeds."""
    n_won: int | None = None
    """Items that only the new side solves; None, as is `n_lost`: not counted, or the values are not verdicts."""
    n_lost: int | None = None
    sd: float | None = None
    """Standard deviation of the paired differences, where the values are not verdicts."""

    def reversed(self) -> "PairedDifference":
        """Old minus new."""
        return replace(self, change=self.change.scaled(-1.0), n_won=self.n_lost, n_lost=self.n_won)

    def __str__(self) -> str:
        notation = replace(RAW, spec="+.4f")
        return f"{notation.estimate(self.change)} (n={self.change.n}, p={self.p_value:.2g}, {self.change.method})"


def finite_vector(values: "ArrayLike", name: str) -> "NDArray[np.float64]":
    """The values as a float vector. Raises NotEnoughData if it is empty or holds a NaN or an infinity."""
    import numpy as np

    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1:
        raise ValueError(f"{name} must be a vector, got an array of shape {vector.shape}")
    if vector.size == 0:
        raise NotEnoughData(f"{name} is empty; at least one observation is needed")
    broken = int(np.count_nonzero(~np.isfinite(vector)))
    if broken:
        raise NotEnoughData(f"{name} holds {broken} missing or infinite of {vector.size} values; leave them out first")
    return vector


def wilson(n_success: int, n: int, confidence: float = 0.95) -> Estimate:
    """A rate with its Wilson score interval (two-sided).

    Raises NotEnoughData for n < 1 and ValueError for counts or a confidence that cannot be.
    Source: Wilson 1927, JASA 22:209-212.
    """
    check_counts(n_success, n)
    check_confidence(confidence)
    z = NormalDist().inv_cdf((1.0 + confidence) / 2.0)
    rate = n_success / n
    scale = 1.0 + z * z / n
    middle = (rate + z * z / (2 * n)) / scale
    half_width = z / scale * math.sqrt(rate * (1.0 - rate) / n + z * z / (4 * n * n))
    # rounding would leave the end a little above 0, or below 1, where it is exact
    low = 0.0 if n_success == 0 else middle - half_width
    high = 1.0 if n_success == n else middle + half_width
    return Estimate(rate, low, high, n, method="Wilson")


def bootstrap_mean(
    values: "ArrayLike", rng: "np.random.Generator", n_replicates: int = 10_000, confidence: float = 0.95
) -> Estimate:
    """A mean with its percentile bootstrap interval.

    values: one number for each independent unit (average the attempts at an item first, so that items are
    resampled as clusters). Raises NotEnoughData if empty or not finite.
    Source: Efron and Tibshirani 1993, chapter 13.
    """
    vector = finite_vector(values, "values")
    low, high = interval(resampled_means(vector, rng, n_replicates), confidence)
    method = f"bootstrap over items, {n_replicates} replicates"
    return Estimate(float(vector.mean()), low, high, vector.size, method=method)


def interval(replicates: "NDArray[np.float64]", confidence: float = 0.95) -> tuple[float, float]:
    """The central share of the replicates: their lower and upper quantile."""
    import numpy as np

    check_confidence(confidence)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(replicates, [tail, 1.0 - tail])
    return float(low), float(high)


def resampled_means(
    values: "NDArray[np.float64]", rng: "np.random.Generator", n_replicates: int
) -> "NDArray[np.float64]":
    """Means of n_replicates resamples with replacement, each as large as `values`.

    Few distinct values (verdicts, differences of verdicts) are drawn as multinomial counts, which has the
    same distribution and costs nothing with the number of items.
    """
    import numpy as np

    if n_replicates < 1:
        raise ValueError(f"n_replicates={n_replicates} must be at least 1")
    n = values.size
    distinct, counts = np.unique(values, return_counts=True)
    has_ties = distinct.size * 8 <= n
    means = np.empty(n_replicates)
    rows = max(1, CHUNK_ELEMENTS // (distinct.size if has_ties else n))
    for start in range(0, n_replicates, rows):
        stop = min(start + rows, n_replicates)
        if has_ties:
            means[start:stop] = rng.multinomial(n, counts / n, size=stop - start) @ distinct / n
        else:
            means[start:stop] = values[rng.integers(n, size=(stop - start, n))].mean(axis=1)
    return means


def check_confidence(confidence: float) -> None:
    """Raises ValueError for a confidence outside 0-1."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence={confidence} must be between 0 and 1, for example 0.95")


def check_counts(n_success: int, n: int) -> None:
    """Raises NotEnoughData for n < 1 and ValueError for more successes than observations, or fewer than 0."""
    if n < 1:
        raise NotEnoughData(f"a rate of {n} observations has no interval; at least one is needed")
    if not 0 <= n_success <= n:
        raise ValueError(f"{n_success} successes of {n} observations cannot be")


def with_gaps(values: Values, name: str, bounds: Bounds | None = None) -> "NDArray[np.float64]":
    """The values as a float vector with NaN where they are missing.

    Raises ValueError for an infinity, or a value outside the bounds.
    """
    import numpy as np

    vector = np.asarray(cast("ArrayLike", values), dtype=np.float64)
    if vector.ndim != 1:
        raise ValueError(f"{name} must be a vector, got an array of shape {vector.shape}")
    if np.isinf(vector).any():
        raise ValueError(f"{name} holds an infinity; a value that is not known is None or NaN")
    if bounds is not None and bool(np.any((vector < bounds[0]) | (vector > bounds[1]))):
        worst = vector[(vector < bounds[0]) | (vector > bounds[1])][0]
        raise ValueError(f"{name} holds {worst:g}; it must be between {bounds[0]:g} and {bounds[1]:g}")
    return vector


def require_same_length(metric: str, **vectors: "NDArray[np.float64]") -> None:
    """Raise ValueError when vectors that are paired by position differ in length; metric: names them in the message."""
    if len({vector.size for vector in vectors.values()}) > 1:
        sizes = ", ".join(f"{name} {vector.size}" for name, vector in vectors.items())
        raise ValueError(f"{metric} needs as many values on each side, got {sizes}; pair them by id first")


def measure(values: Values, name: str, bounds: Bounds | None = None, confidence: float = 0.95) -> Estimate:
    """The mean over the values that are not missing.

    values: one number for each independent unit. name: of the values, for messages. bounds: where values may lie;
    with (0, 1), values that are all 0 or 1 get Wilson's interval. Raises NotEnoughData if all values are missing.
    """
    import numpy as np

    vector = with_gaps(values, name, bounds)
    present = vector[~np.isnan(vector)]
    n_missing = vector.size - present.size
    if present.size == 0:
        raise NotEnoughData(f"{name}: nothing to average ({n_missing} missing); at least one observation is needed")
    if bounds == UNIT and np.isin(present, UNIT).all():
        rate = wilson(int(present.sum()), present.size, confidence)
        return replace(rate, n_missing=n_missing)
    value = float(present.mean())
    if present.size == 1:
        return Estimate(value, None, None, 1, n_missing, "no interval")
    error = float(present.std(ddof=1)) / math.sqrt(present.size)
    return _student(value, error, present.size, n_missing, bounds, confidence)


def measure_by_item(
    values: Values, items: Sequence[Hashable], name: str, bounds: Bounds | None = None, confidence: float = 0.95
) -> Estimate:
    """The mean over items of the means within each item, so that many attempts at one item are one unit.

    values: one number for each attempt; items: the id of its item. An item without any value is left out, and
    its attempts are among the missing. Raises as `measure`, ValueError if the lengths differ.
    """
    import numpy as np

    vector = with_gaps(values, name, bounds)
    if len(items) != vector.size:
        raise ValueError(f"{name} has {vector.size} values for {len(items)} item ids; give one id for each value")
    is_present = ~np.isnan(vector)
    sums, counts = (
        _sums_by_item(np.where(is_present, vector, 0.0), items),
        _sums_by_item(is_present.astype(np.float64), items),
    )
    n_missing = int(vector.size - is_present.sum())
    if not is_present.any():
        raise NotEnoughData(f"{name}: nothing to average ({n_missing} missing); at least one observation is needed")
    means = sums[counts > 0] / counts[counts > 0]
    if bounds is not None:
        means = np.clip(means, *bounds)  # a mean of values in bounds may leave them by the last bit
    estimate = measure(means, name, bounds, confidence)
    return replace(estimate, n_missing=n_missing)


def ratio_of_sums(
    parts: Values, wholes: Values, name: str, items: Sequence[Hashable] | None = None, confidence: float = 0.95
) -> Estimate:
    """Sum of parts over sum of wholes: a rate of events, when runs have unequal numbers of events.

    parts, wholes: counts for each run, 0 <= part <= whole; a run with either missing is left out and counted.
    items: ids of the runs' items, which are then the independent units; without, each run is one. Units
    without events do not count in n. The interval is Student's with the linearised variance of a ratio, as
    generally known (Cochran 1977, chapter 6; not checked against the book); it has width 0 when all units have the
    same rate, except for rates of 0 and 1: they get Wilson's, each unit taken as one verdict. Raises
    NotEnoughData when there are no events at all, ValueError for counts that cannot be.
    """
    import numpy as np

    part, whole = with_gaps(parts, f"{name}: parts", COUNTS), with_gaps(wholes, f"{name}: wholes", COUNTS)
    require_same_length(name, parts=part, wholes=whole)
    is_known = ~(np.isnan(part) | np.isnan(whole))
    n_missing = int(part.size - is_known.sum())
    part, whole = np.where(is_known, part, 0.0), np.where(is_known, whole, 0.0)
    if bool(np.any(part > whole)):
        raise ValueError(f"{name}: a part is larger than its whole; check the counts")
    if items is not None:
        if len(items) != part.size:
            raise ValueError(f"{name} has {part.size} runs for {len(items)} item ids; give one id for each run")
        part, whole = _sums_by_item(part, items), _sums_by_item(whole, items)
    part, whole = part[whole > 0], whole[whole > 0]
    if whole.size == 0:
        raise NotEnoughData(f"{name}: no events in any run ({n_missing} runs missing), so there is no rate")
    value, n = float(part.sum() / whole.sum()), whole.size
    if value in UNIT:
        rate = wilson(n if value else 0, n, confidence)
        return replace(rate, n_missing=n_missing)
    if n == 1:
        return Estimate(value, None, None, 1, n_missing, "no interval")
    error = math.sqrt(n / (n - 1) * float(np.square(part - value * whole).sum())) / float(whole.sum())
    return _student(value, error, n, n_missing, UNIT, confidence)


def _student(value: float, error: float, n: int, n_missing: int, bounds: Bounds | None, confidence: float) -> Estimate:
    from scipy.special import stdtrit  # half a second to load, and every reader of a card loads this module

    check_confidence(confidence)
    half_width = float(stdtrit(n - 1, (1.0 + confidence) / 2.0)) * error
    lowest, highest = bounds or (-math.inf, math.inf)
    return Estimate(value, max(lowest, value - half_width), min(highest, value + half_width), n, n_missing, "Student t")


def _sums_by_item(values: "NDArray[np.float64]", items: Sequence[Hashable]) -> "NDArray[np.float64]":
    import numpy as np

    numbers: dict[Hashable, int] = {}
    index = [numbers.setdefault(item, len(numbers)) for item in items]
    return np.bincount(np.asarray(index, dtype=np.intp), weights=values, minlength=len(numbers)).astype(np.float64)
