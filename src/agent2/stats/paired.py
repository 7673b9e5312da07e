"""Paired evidence out of two sets of item values: difference, interval, p-value, items won and lost.

Promises: pairs are made by item id, never by position; the same values give the same numbers on every machine
(sign flips use a fixed seed); 0/1 values get Tango's interval and exact McNemar, others the paired t interval and sign
flips, beyond 2,000 items the paired t test, which agrees with them there and costs nothing.

The one interval for a pair of cards: gates, `agent2 compare` and `agent2 cards compare` all take it from here. Tango's
keeps its coverage with few items and few changed verdicts, where the bootstrap's is too narrow or of width 0; and no
random numbers are drawn for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from agent2.stats.comparisons import TIE, mcnemar_p, sign_flip_p
from agent2.stats.noninferiority import noninferiority

CONFIDENCE = 0.95
N_FLIPS = 10_000
MOST_FLIPPED = 2_000
"""Items beyond which a permutation test shows nothing that the t test does not."""
SEED = 20_260
"""Of the sign flips; fixed, so that a decision is the same when it is made again."""
ANY_MARGIN = 0.5
"""The interval does not depend on the margin; gates hold their own against it."""


@dataclass(frozen=True, slots=True)
class PairedEvidence:
    """The difference new - old on the same items."""

    delta: float
    """In the metric's units."""
    low: float
    """Lower end of the 95% interval (Tango's score interval for verdicts, else paired t)."""
    high: float
    n: int
    """Items with a value on both sides."""
    p_value: float
    """Two-sided, of "no difference" (exact McNemar or sign flips)."""
    method: str
    n_won: int | None = None
    """Items that only the new side solves; None, as is `n_lost`: the values are not verdicts."""
    n_lost: int | None = None
    sd: float | None = None
    """Standard deviation of the paired differences, where the values are not verdicts."""


def paired_evidence(old: Mapping[str, float], new: Mapping[str, float]) -> PairedEvidence | None:
    """The difference new - old over the items that both have; None if there are none (or one that is not a verdict)."""
    items = sorted(old.keys() & new.keys())
    if not items:
        return None
    before = np.array([old[item] for item in items])
    after = np.array([new[item] for item in items])
    difference = after - before
    is_verdict = bool(np.isin(before, (0.0, 1.0)).all() and np.isin(after, (0.0, 1.0)).all())
    if not is_verdict and len(items) < 2:
        return None
    found = noninferiority(after, before, ANY_MARGIN, CONFIDENCE)
    if is_verdict:
        won, lost = int((difference > 0).sum()), int((difference < 0).sum())
        method = f"{found.method}, exact McNemar"
        p_value = mcnemar_p(won, lost)
        return PairedEvidence(found.delta, found.low, found.high, found.n, p_value, method, won, lost)
    p_value, test = _p_value(difference)
    sd = float(difference.std(ddof=1))
    method = f"{found.method}, {test}"
    return PairedEvidence(found.delta, found.low, found.high, found.n, p_value, method, sd=sd)


def _p_value(difference: NDArray[np.float64]) -> tuple[float, str]:
    """Two-sided p-value of "no difference", and the name of its test."""
    if difference.size <= MOST_FLIPPED or np.ptp(difference) <= TIE:
        few = difference[:MOST_FLIPPED]  # equal differences: as many as are flipped say it all
        return sign_flip_p(few, np.random.default_rng(SEED), N_FLIPS), f"{N_FLIPS} sign flips"
    return float(stats.ttest_1samp(difference, 0.0).pvalue), "paired t test"
