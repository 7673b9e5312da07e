"""How well a benchmark tells models apart, and whether it orders them as a reference does.

Separability is the share of pairs of models whose intervals do not overlap; agreement with confidence counts a
pair only where both the benchmark and the reference separate it; the Brier score judges how sure the benchmark
was of each order.

Source of all three: Li et al. 2024 (Arena-Hard and BenchBuilder), arXiv:2406.11939; the +1, -1, 0 rule and the
Brier score as generally known, not checked against the paper.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.estimates import finite_vector


@dataclass(frozen=True, slots=True)
class PairShare:
    """A number averaged over pairs of models."""

    value: float
    n_models: int
    n_pairs: int
    method: str
    n_separated: int
    """Pairs that the intervals separate (on both sides, for an agreement)."""

    def __str__(self) -> str:
        return (
            f"{self.value:.4f} (n={self.n_pairs} pairs of {self.n_models} models, "
            f"{self.n_separated} separated, {self.method})"
        )


def separability(low_N: ArrayLike, high_N: ArrayLike) -> PairShare:
    """Share of the pairs of models whose intervals do not overlap; touching intervals overlap. 0-1.

    low_N, high_N: ends of one interval a model. Raises NotEnoughData for fewer than two models or ends that are
    not finite, ValueError for unequal lengths or a low end above the high one.
    """
    order = _separated(low_N, high_N, "")
    n_separated = int(np.count_nonzero(order))
    return PairShare(n_separated / order.size, _models(order), order.size, "separability", n_separated)


def agreement_with_confidence(
    low_N: ArrayLike, high_N: ArrayLike, reference_low_N: ArrayLike, reference_high_N: ArrayLike
) -> PairShare:
    """Mean over pairs of +1 (both separate it, same order), -1 (both, opposite order), 0 (either does not).

    -1 to 1. The models come in the same order on both sides. Raises as `separability`.
    """
    order = _separated(low_N, high_N, "")
    reference = _separated(reference_low_N, reference_high_N, "reference_")
    if order.size != reference.size:
        raise ValueError(f"{_models(order)} models here, {_models(reference)} in the reference; give the same ones")
    product = order * reference
    n_separated = int(np.count_nonzero(product))
    return PairShare(float(product.mean()), _models(order), order.size, "agreement with confidence", n_separated)


def pair_brier_score(strengths_RN: ArrayLike, reference_N: ArrayLike) -> PairShare:
    """Mean over pairs of (chance that i is ahead of j - whether it is in the reference)^2: 0 is best, 0.25 a coin.

    strengths_RN: bootstrap replicates x models (`ranking.strength_replicates`); the chance is the share of
    replicates with i ahead, ties as half. reference_N: one score a model; a tie there counts as 0.5. Raises
    NotEnoughData for fewer than two models or no replicates, ValueError for shapes that do not match.
    """
    reference = finite_vector(reference_N, "reference_N")
    strengths = np.asarray(strengths_RN, dtype=np.float64)
    if strengths.ndim != 2 or strengths.shape[1] != reference.size:
        raise ValueError(f"strengths_RN has the shape {strengths.shape}, expected replicates x {reference.size} models")
    finite_vector(strengths.ravel(), "strengths_RN")
    first, second = _pairs(reference.size)
    ahead = np.array([_share_ahead(strengths[:, i], strengths[:, j]) for i, j in zip(first, second, strict=True)])
    outcome = 0.5 + 0.5 * np.sign(reference[first] - reference[second])
    is_separated = (ahead < 0.025) | (ahead > 0.975)
    value = float(np.square(ahead - outcome).mean())
    return PairShare(value, reference.size, ahead.size, "Brier score", int(np.count_nonzero(is_separated)))


def _share_ahead(strength_i: NDArray[np.float64], strength_j: NDArray[np.float64]) -> float:
    return float(np.mean(0.5 + 0.5 * np.sign(strength_i - strength_j)))


def _separated(low_N: ArrayLike, high_N: ArrayLike, what: str) -> NDArray[np.int64]:
    """For each pair: 1 if the first lies above the second, -1 if below, 0 if their intervals overlap."""
    low, high = finite_vector(low_N, f"{what}low_N"), finite_vector(high_N, f"{what}high_N")
    if low.size != high.size:
        raise ValueError(f"{what}low_N has {low.size} models, {what}high_N {high.size}; give both ends of each")
    if np.any(low > high):
        model = int(np.flatnonzero(low > high)[0])
        raise ValueError(
            f"model {model} has the {what}interval {low[model]:g} to {high[model]:g}; low must not exceed high"
        )
    first, second = _pairs(low.size)
    order: NDArray[np.int64] = (low[first] > high[second]).astype(np.int64) - (low[second] > high[first])
    return order


def _pairs(n_models: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    if n_models < 2:
        raise NotEnoughData(f"{n_models} models make no pair; at least 2 are needed")
    first, second = np.triu_indices(n_models, k=1)
    return first, second


def _models(pairs: NDArray[np.int64]) -> int:
    """The number of models that make so many pairs."""
    return (1 + int(np.sqrt(1 + 8 * pairs.size) + 0.5)) // 2
