"""Corrections for many comparisons: adjusted p-values of Holm and of Benjamini and Hochberg.

An adjusted p-value is compared with the level meant for the whole family: Holm bounds the chance of any false
finding under any dependence, Benjamini-Hochberg the expected share of false ones among the findings, for
independent or positively dependent tests.

Does NOT decide which comparisons form a family: that must be fixed before the p-values are seen.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from agent2.stats.estimates import finite_vector


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
