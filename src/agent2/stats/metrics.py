"""pass@k from counts of correct attempts.

Promises: averages are over items, never over pooled attempts; an empty or incomplete input raises
NotEnoughData. Does NOT decide what a missing score means: the caller leaves it out and says how many.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.estimates import finite_vector


def pass_at_k_by_item(n_correct_I: ArrayLike, n_samples_I: ArrayLike, k: int) -> NDArray[np.float64]:
    """For each item, the chance that at least one of k attempts drawn without replacement is correct.

    n_correct_I, n_samples_I: correct and all attempts at each item; the numbers of attempts may differ.
    Unbiased: 1 - C(n-c, k) / C(n, k). Raises NotEnoughData if an item has fewer than k attempts, ValueError
    for counts that cannot be.
    Source: Chen et al. 2021, arXiv:2107.03374, eq. 1.
    """
    correct = finite_vector(n_correct_I, "n_correct_I")
    samples = finite_vector(n_samples_I, "n_samples_I")
    if correct.shape != samples.shape:
        raise ValueError(f"n_correct_I has {correct.size} items, n_samples_I {samples.size}; they must match")
    if k < 1:
        raise ValueError(f"k={k} must be at least 1")
    if np.any(correct < 0) or np.any(correct > samples) or np.any(correct % 1) or np.any(samples % 1):
        raise ValueError("n_correct_I must be whole numbers between 0 and n_samples_I")
    short = int(np.count_nonzero(samples < k))
    if short:
        raise NotEnoughData(f"pass@{k} needs {k} attempts at each item; {short} of {samples.size} items have fewer")
    none_correct = np.ones_like(samples)
    for drawn in range(k):  # C(n-c, k) / C(n, k) as a product of ratios: no large factorials
        none_correct *= np.maximum(samples - correct - drawn, 0.0) / (samples - drawn)
    return 1.0 - none_correct


def pass_at_k(n_correct_I: ArrayLike, n_samples_I: ArrayLike, k: int) -> float:
    """pass@k averaged over items; see `pass_at_k_by_item`."""
    return float(pass_at_k_by_item(n_correct_I, n_samples_I, k).mean())
