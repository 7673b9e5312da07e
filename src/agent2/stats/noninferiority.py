"""Non-inferiority: is a new checkpoint no worse than a reference by more than a margin, on the same items?

"No significant drop" is not that: too few items never show a drop. Here the lower end of the interval of
new - reference has to stay above -margin; otherwise the outcome is inferior (the upper end lies below it) or
inconclusive (more items are needed).

Promises: verdicts (0 or 1) use Tango's score interval, which does not shrink to nothing when no item differs;
other scores use the paired t interval and a warning when all differences are equal. Missing scores are left
out, and counted, by the caller. The margin must be fixed before the scores are seen.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from agent2.errors import NotEnoughData
from agent2.stats.estimates import check_confidence, finite_vector

EDGE = 1e-12
"""How near to -1 and 1 a difference of rates is looked for."""


class NonInferiorityOutcome(StrEnum):
    """What the interval says about the margin."""

    NON_INFERIOR = "non-inferior"
    INFERIOR = "inferior"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class NonInferiority:
    """A paired difference held against a margin."""

    delta: float
    """Mean of new - reference."""
    low: float
    high: float
    margin: float
    """How much worse is still accepted, in units of the score."""
    n: int
    """Items with both scores."""
    p_value: float
    """One-sided, of "worse by the margin or more"."""
    outcome: NonInferiorityOutcome
    method: str
    warning: str = ""

    def __str__(self) -> str:
        warning = f"; {self.warning}" if self.warning else ""
        return (
            f"{self.outcome} at margin {self.margin:g}: {self.delta:+.4f} [{self.low:+.4f}, {self.high:+.4f}] "
            f"(n={self.n}, p={self.p_value:.2g}, {self.method}{warning})"
        )


def noninferiority(
    scores_new: ArrayLike, scores_reference: ArrayLike, margin: float, confidence: float = 0.95
) -> NonInferiority:
    """Hold the paired difference new - reference against -margin.

    scores_new, scores_reference: one score an item, in the same order of items. confidence: of the two-sided
    interval; each end by itself errs with half of what is left (0.95: one-sided 2.5%). Raises NotEnoughData for
    no items, one item of other scores than verdicts, or values that are not finite; ValueError for unequal
    lengths or a margin that is not above 0 (for verdicts: 0 to 1).
    """
    new, reference = finite_vector(scores_new, "scores_new"), finite_vector(scores_reference, "scores_reference")
    if new.size != reference.size:
        raise ValueError(f"scores_new has {new.size} items, scores_reference {reference.size}; pair them first")
    check_confidence(confidence)
    is_verdict = bool(np.isin(new, (0.0, 1.0)).all() and np.isin(reference, (0.0, 1.0)).all())
    if not 0.0 < margin < (1.0 if is_verdict else math.inf):
        raise ValueError(
            f"margin={margin} must be above 0{' and below 1' if is_verdict else ''}, in units of the score"
        )
    difference = new - reference
    warning = ""
    if is_verdict:
        n_new, n_reference = int((difference > 0).sum()), int((difference < 0).sum())
        low, high = tango_interval(n_new, n_reference, new.size, confidence)
        p_value = float(stats.norm.sf(tango_z(n_new, n_reference, new.size, -margin)))
        method = "Tango score interval"
    else:
        if new.size < 2:
            raise NotEnoughData("one item with other scores than 0 and 1 has no interval; at least 2 are needed")
        error = float(difference.std(ddof=1)) / math.sqrt(new.size)
        half_width = float(stats.t.ppf((1.0 + confidence) / 2.0, new.size - 1)) * error
        low, high = float(difference.mean()) - half_width, float(difference.mean()) + half_width
        distance = float(difference.mean()) + margin
        standardised = distance / error if error > 0 else math.copysign(math.inf, distance)
        p_value = float(stats.t.sf(standardised, new.size - 1))
        method = "paired t"
        if error == 0:
            warning = "all differences are equal: the interval has no width"
    outcome = _outcome(low, high, margin)
    return NonInferiority(float(difference.mean()), low, high, margin, new.size, p_value, outcome, method, warning)


def tango_interval(n_only_a: int, n_only_b: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of the difference of two paired rates, a - b: the differences that are not rejected.

    n_only_a, n_only_b: items solved by a alone and by b alone, of n. Within -1 to 1. Raises NotEnoughData for
    n < 1, ValueError for counts that cannot be.
    Source: Tango 1998, Statistics in Medicine 17:891-908 (as generally known; not checked against the paper).
    """
    if n < 1:
        raise NotEnoughData(f"a paired difference of {n} items has no interval; at least one is needed")
    if min(n_only_a, n_only_b) < 0 or n_only_a + n_only_b > n:
        raise ValueError(f"{n_only_a} and {n_only_b} discordant items of {n} cannot be")
    z = float(stats.norm.ppf((1.0 + confidence) / 2.0))
    return -_upper_end(n_only_b, n_only_a, n, z), _upper_end(n_only_a, n_only_b, n, z)


def tango_z(n_only_a: int, n_only_b: int, n: int, delta: float) -> float:
    """How many standard errors the observed difference of two paired rates lies above `delta`.

    The standard error is that of the most likely rates among those with the difference `delta` (-1 < delta < 1).
    Source: Tango 1998, as `tango_interval`; the quadratic is the likelihood equation of the rate of "b alone".
    """
    b = -(n_only_a + n_only_b) + (2 * n - n_only_a + n_only_b) * delta
    c = -n_only_b * delta * (1.0 - delta)
    rate_only_b = (math.sqrt(max(b * b - 8.0 * n * c, 0.0)) - b) / (4.0 * n)
    variance = n * (2.0 * rate_only_b + delta * (1.0 - delta))
    distance = n_only_a - n_only_b - n * delta
    if variance <= 0.0:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / math.sqrt(variance)


def _upper_end(n_only_a: int, n_only_b: int, n: int, z: float) -> float:
    observed = (n_only_a - n_only_b) / n
    if tango_z(n_only_a, n_only_b, n, 1.0 - EDGE) > -z:
        return 1.0
    start = max(observed, EDGE - 1.0)
    return float(optimize.brentq(lambda delta: tango_z(n_only_a, n_only_b, n, delta) + z, start, 1.0 - EDGE))


def _outcome(low: float, high: float, margin: float) -> NonInferiorityOutcome:
    if low > -margin:
        return NonInferiorityOutcome.NON_INFERIOR
    return NonInferiorityOutcome.INFERIOR if high < -margin else NonInferiorityOutcome.INCONCLUSIVE
