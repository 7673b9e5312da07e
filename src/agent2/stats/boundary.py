"""The boundary of what a base model can do: items it never solves, and what training gains and loses there.

Promises: pass@1 and pass@k stand together, so that sharpening (only pass@1 rises) is not taken for new
ability; pass@k is unbiased. Items without attempts must be left out, and counted, by the caller.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.stats.comparisons import PairedDifference, paired_difference
from agent2.stats.measure import UNIT, Measure, measure
from agent2.stats.metrics import pass_at_k_by_item

LEVEL = 0.05
"""p-values from here on show no change."""


class Change(StrEnum):
    """What training did; a change is shown where its interval leaves out 0 and its p-value is below 0.05."""

    EXPANSION = "expansion"
    """pass@k rose."""
    SHARPENING = "sharpening"
    """pass@1 rose and pass@k is not shown to."""
    NARROWING = "narrowing"
    """pass@k fell, whatever pass@1 did."""
    NONE_SHOWN = "no change shown"


@dataclass(frozen=True, slots=True)
class BoundaryReport:
    """A trained model beside its base, on the same items."""

    k: int
    pass_at_1: PairedDifference
    """Trained - base."""
    pass_at_k: PairedDifference
    expansion: Measure | None
    """Chance that the trained model solves, within k, an item the base never solved; None if there is none."""
    shrinkage: Measure | None
    """Chance that the trained model, within k, does not solve an item the base solved; None if there is none."""
    change: Change

    def __str__(self) -> str:
        return (
            f"{self.change}: pass@1 {self.pass_at_1}; pass@{self.k} {self.pass_at_k}; "
            f"expansion {self.expansion or 'none to gain'}; shrinkage {self.shrinkage or 'none to lose'}"
        )


def boundary_items(n_correct_BI: ArrayLike, n_samples_BI: ArrayLike, min_samples: int = 1024) -> NDArray[np.int64]:
    """Indices of the items that no base model solved in at least min_samples attempts each.

    n_correct_BI, n_samples_BI: base models x items (a vector is one model). May be empty. Raises
    NotEnoughData if a model has fewer attempts at an item, ValueError for counts that cannot be.
    Source: MATH-Beyond (PAPERS #33; 1024 attempts in the abstract).
    """
    correct, samples = np.atleast_2d(np.asarray(n_correct_BI)), np.atleast_2d(np.asarray(n_samples_BI))
    if correct.shape != samples.shape or correct.ndim != 2:
        raise ValueError(f"n_correct_BI has shape {correct.shape}, n_samples_BI {samples.shape}; they must match")
    pass_at_k_by_item(correct.ravel(), samples.ravel(), max(1, min_samples))  # checks counts and attempts
    return np.flatnonzero((correct == 0).all(axis=0))


def compare_boundaries(
    base: tuple[ArrayLike, ArrayLike],
    trained: tuple[ArrayLike, ArrayLike],
    k: int,
    rng: np.random.Generator,
    n_replicates: int = 10_000,
) -> BoundaryReport:
    """pass@1, pass@k, expansion and shrinkage of a trained model against its base.

    base, trained: (correct, attempts) of each item, in one order of items; at least k attempts each. The base
    never solved an item if none of its attempts did, so expansion is only as strict as the base's attempts
    are many: with few, part of it is luck, and likewise for shrinkage. Intervals are over items. k > 1.
    Raises NotEnoughData for fewer than k attempts or no items, ValueError for counts that cannot be.
    Source: pass@k of Chen et al. 2021, arXiv:2107.03374, eq. 1; expansion of MATH-Beyond (PAPERS #33);
    shrinkage as generally known, not checked against the paper.
    """
    if k < 2:
        raise ValueError(f"k={k} must be at least 2; pass@1 is always reported beside it")
    base_1, base_k = (pass_at_k_by_item(*base, j) for j in (1, k))
    trained_1, trained_k = (pass_at_k_by_item(*trained, j) for j in (1, k))
    if base_1.size != trained_1.size:
        raise ValueError(f"base has {base_1.size} items, trained {trained_1.size}; pair them item by item first")
    gain_1 = paired_difference(trained_1, base_1, rng, n_replicates)
    gain_k = paired_difference(trained_k, base_k, rng, n_replicates)
    never = base_1 == 0
    expansion = measure(trained_k[never], "expansion", UNIT) if never.any() else None
    shrinkage = measure(1.0 - trained_k[~never], "shrinkage", UNIT) if not never.all() else None
    return BoundaryReport(k, gain_1, gain_k, expansion, shrinkage, _change(gain_1, gain_k))


def _change(gain_1: PairedDifference, gain_k: PairedDifference) -> Change:
    moves_k = gain_k.p_value < LEVEL  # the interval of few equal differences has no width
    if gain_k.low > 0 and moves_k:
        return Change.EXPANSION
    if gain_k.high < 0 and moves_k:
        return Change.NARROWING
    return Change.SHARPENING if gain_1.low > 0 and gain_1.p_value < LEVEL else Change.NONE_SHOWN
