"""Metrics over several attempts at each item: pass@1, pass@k and pass^k.

Promises: every value is the exact average over all ways to draw k of an item's n attempts without replacement,
so none depends on the order of attempts and none needs a generator; averages are over items. An attempt
without a verdict (None or NaN) is left out; an item with fewer than k judged attempts is left out of that
metric; both are counted, neither is zero. `selection` has what chooses one attempt of several.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.measure import UNIT, Measure, Values, measure, with_gaps
from agent2.stats.metrics import pass_at_k_by_item


@dataclass(frozen=True, slots=True)
class Tally:
    """How often each item was solved."""

    n_correct_I: NDArray[np.int64]
    n_samples_I: NDArray[np.int64]
    """Judged attempts."""
    n_missing: int
    """Attempts without a verdict, over all items."""


@dataclass(frozen=True, slots=True)
class PassMetrics:
    """pass@1 next to what k attempts add and what they show of reliability; never pass@k alone."""

    k: int
    pass_at_1: Measure
    pass_at_k: Measure
    pass_hat_k: Measure

    def __str__(self) -> str:
        return f"pass@1 {self.pass_at_1}; pass@{self.k} {self.pass_at_k}; pass^{self.k} {self.pass_hat_k}"


def tally(solved_IA: ArrayLike | Sequence[Sequence[float | None]]) -> Tally:
    """Counts of solved and judged attempts.

    solved_IA: items x attempts, 1 or True where solved, None or NaN where there is no verdict; rows may differ
    in length. Raises NotEnoughData without items, ValueError for a verdict other than 0 or 1.
    """
    array = np.asarray(solved_IA) if isinstance(solved_IA, np.ndarray) else None
    if array is None or array.ndim != 2:
        rows = [verdicts(row) for row in cast(Sequence[Sequence[float | None]], solved_IA)]
        n_samples = np.array([np.count_nonzero(~np.isnan(row)) for row in rows], dtype=np.int64)
        n_correct = np.array([np.nansum(row) for row in rows], dtype=np.int64)
        n_missing = sum(row.size for row in rows) - int(n_samples.sum())
    elif array.dtype == np.bool_:
        n_correct = np.count_nonzero(array, axis=1).astype(np.int64)
        n_samples, n_missing = np.full(array.shape[0], array.shape[1], dtype=np.int64), 0
    else:
        solved = verdicts(array.ravel()).reshape(array.shape)
        there = ~np.isnan(solved)
        n_samples = np.count_nonzero(there, axis=1).astype(np.int64)
        n_correct = np.nansum(solved, axis=1).astype(np.int64)
        n_missing = int(array.size - n_samples.sum())
    if n_samples.size == 0:
        raise NotEnoughData("no items; at least one item with attempts is needed")
    return Tally(n_correct, n_samples, n_missing)


def pass_hat_k_by_item(n_correct_I: ArrayLike, n_samples_I: ArrayLike, k: int) -> NDArray[np.float64]:
    """For each item, the chance that all of k attempts drawn without replacement are correct: pass^k.

    Unbiased: C(c, k) / C(n, k), which is one minus pass@k of the failures. 0 when c < k. Raises as
    `metrics.pass_at_k_by_item`.
    Source: Yao et al. 2024 (tau-bench), as generally known; not checked against the paper.
    """
    correct, samples = np.asarray(n_correct_I, dtype=np.float64), np.asarray(n_samples_I, dtype=np.float64)
    if correct.shape != samples.shape:
        raise ValueError(f"n_correct_I has {correct.size} items, n_samples_I {samples.size}; they must match")
    return 1.0 - pass_at_k_by_item(samples - correct, samples, k)


def pass_hat_k(n_correct_I: ArrayLike, n_samples_I: ArrayLike, k: int) -> float:
    """pass^k averaged over items; see `pass_hat_k_by_item`."""
    return float(pass_hat_k_by_item(n_correct_I, n_samples_I, k).mean())


def pass_at_k_curve(n_correct_I: ArrayLike, n_samples_I: ArrayLike, max_k: int) -> NDArray[np.float64]:
    """pass@1 ... pass@max_k averaged over items; entry k - 1 holds pass@k. Never falls with k.

    One pass over the distinct pairs of counts, so 10,000 items x 256 attempts take milliseconds. Raises as
    `metrics.pass_at_k_by_item` at k = max_k.
    """
    pass_at_k_by_item(n_correct_I, n_samples_I, 1)
    pairs = np.stack([np.asarray(n_correct_I, dtype=np.int64), np.asarray(n_samples_I, dtype=np.int64)])
    width = int(pairs.max()) + 1
    codes, items = np.unique(pairs[0] * width + pairs[1], return_counts=True)
    correct, samples = codes // width, codes % width
    pass_at_k_by_item(correct, samples, max_k)
    curve, none_correct = np.empty(max_k), np.ones(codes.size)
    for drawn in range(max_k):
        none_correct *= np.maximum(samples - correct - drawn, 0) / (samples - drawn)
        curve[drawn] = 1.0 - float(none_correct @ items) / pairs.shape[1]
    return np.maximum.accumulate(curve)  # the mean of equal terms may fall by the last bit


def pass_metrics(counted: Tally, k: int) -> PassMetrics:
    """pass@1, pass@k and pass^k with intervals over items.

    counted: see `tally`. Items with fewer than k judged attempts are left out of the two k-metrics and counted
    in their n_missing; items without any, also of pass@1. Raises NotEnoughData when no item has k.
    """
    return PassMetrics(
        k,
        measure(_by_item(counted, 1, pass_at_k_by_item), "pass@1", UNIT),
        measure(_by_item(counted, k, pass_at_k_by_item), f"pass@{k}", UNIT),
        measure(_by_item(counted, k, pass_hat_k_by_item), f"pass^{k}", UNIT),
    )


def verdicts(values: Values) -> NDArray[np.float64]:
    """0, 1 or NaN (no verdict) for each attempt. Raises ValueError for anything else."""
    vector = with_gaps(values, "solved_IA")
    if not bool(np.all(np.isnan(vector) | (vector == 0.0) | (vector == 1.0))):
        raise ValueError("solved_IA must hold 0 or 1 for each attempt (None where there is no verdict)")
    return vector


def _by_item(
    counted: Tally, k: int, metric: Callable[[ArrayLike, ArrayLike, int], NDArray[np.float64]]
) -> NDArray[np.float64]:
    if k < 1:
        raise ValueError(f"k={k} must be at least 1")
    values = np.full(counted.n_samples_I.size, np.nan)
    enough = counted.n_samples_I >= k
    if enough.any():
        values[enough] = metric(counted.n_correct_I[enough], counted.n_samples_I[enough], k)
    return values
