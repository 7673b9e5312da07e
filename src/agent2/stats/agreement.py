"""Agreement of raters: Cohen's kappa, Krippendorff's alpha, and errors that two raters have in common.

Intervals are bootstraps over items. A missing rating is None, never a category of its own.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent2.errors import NotEnoughData
from agent2.stats.estimates import Estimate

REPLICATES = 2000
Ratings = Sequence[Hashable | None]
"""One category for each item, None where the rater gave none."""


@dataclass(frozen=True, slots=True)
class SharedErrors:
    """How often two raters are wrong on the same items."""

    both_wrong: Estimate
    expected: float
    """Share of items on which both would be wrong if their errors were independent."""
    correlation: float | None
    """Phi coefficient of the two errors; None: one rater made none, or only errors."""


def cohens_kappa(one: Ratings, other: Ratings, seed: int = 0) -> Estimate:
    """Agreement of two raters beyond chance: 1 is perfect, 0 is chance. Items that either left out are missing.

    Raises ValueError for different lengths, NotEnoughData without an item rated by both, or where both gave one and the
    same category to all. Source: Cohen 1960, Educational and Psychological Measurement 20:37-46.
    """
    if len(one) != len(other):
        raise ValueError(f"kappa needs one rating of each rater for each item, got {len(one)} and {len(other)}")
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    if not pairs:
        raise NotEnoughData("kappa: no item was rated by both")
    categories = {value: place for place, value in enumerate(dict.fromkeys(value for pair in pairs for value in pair))}
    if len(categories) == 1:
        raise NotEnoughData("kappa: both raters gave the same category to all items; nothing can be said beyond chance")
    codes = np.array([[categories[a], categories[b]] for a, b in pairs])

    def kappa(chosen: NDArray[np.int64]) -> float:
        table = np.zeros((len(categories), len(categories)))
        np.add.at(table, (chosen[:, 0], chosen[:, 1]), 1.0)
        table /= table.sum()
        expected = float(table.sum(axis=1) @ table.sum(axis=0))
        return float("nan") if expected == 1.0 else (float(np.trace(table)) - expected) / (1.0 - expected)

    return _bootstrapped(kappa, codes, len(one) - len(pairs), seed)


def krippendorff_alpha(ratings_RI: Sequence[Ratings], seed: int = 0) -> Estimate:
    """Agreement of any number of raters on nominal categories; ratings may be missing.

    ratings_RI: one sequence for each rater, of equal lengths. Items with fewer than two ratings are missing. Raises
    ValueError for other lengths, NotEnoughData without an item rated twice, or with one category only.
    Source: Krippendorff 2011, Computing Krippendorff's Alpha-Reliability.
    """
    if len({len(ratings) for ratings in ratings_RI}) != 1:
        raise ValueError("alpha needs as many ratings of each rater; put None where one is missing")
    values = dict.fromkeys(value for ratings in ratings_RI for value in ratings if value is not None)
    categories = {value: place for place, value in enumerate(values)}
    counts = np.zeros((len(ratings_RI[0]), len(categories)))
    for ratings in ratings_RI:
        for item, value in enumerate(ratings):
            if value is not None:
                counts[item, categories[value]] += 1.0
    pairable = counts[counts.sum(axis=1) >= 2]
    if not pairable.size or (pairable.sum(axis=0) > 0).sum() < 2:
        raise NotEnoughData("alpha: needs items rated at least twice, with at least two categories")

    def alpha(chosen: NDArray[np.float64]) -> float:
        n_ratings = chosen.sum(axis=1)
        observed = ((chosen * (chosen - 1.0)).sum(axis=1) / (n_ratings - 1.0)).sum()
        totals, n = chosen.sum(axis=0), chosen.sum()
        expected = (totals * (totals - 1.0)).sum() / (n - 1.0)
        return float("nan") if n == expected else 1.0 - (n - observed) / (n - expected)

    return _bootstrapped(alpha, pairable, len(counts) - len(pairable), seed)


def shared_errors(one: Sequence[bool | None], other: Sequence[bool | None], seed: int = 0) -> SharedErrors:
    """Whether two raters are wrong together. one, other: whether each is wrong on an item, None where unknown.

    Raises ValueError for different lengths, NotEnoughData without an item that both rated.
    """
    if len(one) != len(other):
        raise ValueError(f"shared errors need one value of each rater for each item, got {len(one)} and {len(other)}")
    pairs = np.array([(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None], dtype=float)
    if not pairs.size:
        raise NotEnoughData("shared errors: no item was rated by both")
    rates, spread = pairs.mean(axis=0), pairs.std(axis=0)
    together = pairs.prod(axis=1)
    both = _bootstrapped(lambda chosen: float(chosen.mean()), together, len(one) - len(pairs), seed)
    covariance = float(together.mean() - rates.prod())
    return SharedErrors(both, float(rates.prod()), covariance / float(spread.prod()) if spread.all() else None)


def _bootstrapped(
    statistic: Callable[[NDArray[Any]], float], rows: NDArray[Any], n_missing: int, seed: int
) -> Estimate:
    rng = np.random.default_rng(seed)
    draws = [statistic(rows[rng.integers(len(rows), size=len(rows))]) for _ in range(REPLICATES)]
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return Estimate(statistic(rows), float(low), float(high), len(rows), n_missing, "bootstrap over items")
