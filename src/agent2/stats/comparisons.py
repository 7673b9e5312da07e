"""Paired comparisons: two checkpoints on the same items, one checkpoint with itself, and what may be said of it.

Promises: differences are taken item by item; intervals and p-values come from the pairs; the same data and
generator give the same numbers; memory stays bounded. Items with a missing score must be left out, and
counted, by the caller. `judge` is the only place that calls a difference better or worse: pages, criteria,
charts and the terminal ask it. The interval of `paired_difference` is the percentile bootstrap's over items:
somewhat too narrow below about 20 items (93% at 20, measured), and of width 0 when all pairs differ equally,
which is why `judge` reads the p-value as well. `over_items_and_seeds` covers both what was asked and the luck of
training runs.

Makes no correction for many comparisons: give `judge` the corrected p-value.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.estimates import (
    CHUNK_ELEMENTS,
    bootstrap_mean,
    check_confidence,
    finite_vector,
    interval,
    resampled_means,
    wilson,
)

TIE = 1e-12
"""Two resampled differences closer than this are equal (float noise of sums)."""
SIGNIFICANCE = 0.05
"""Level of a two-sided p-value that goes with a 95% interval."""
MOST_DF_PER_SEED = 4.0
"""Of an interval over items and seeds; measured, without it two seeds covered 88% where the seeds' spread rules."""
ITEMS, ITEMS_AND_SEEDS = "items", "items and seeds"
"""What an interval is over."""


class PairedEstimate(Protocol):
    """A difference with its interval and p-value, in any unit."""

    @property
    def delta(self) -> float:
        """New minus old."""

    @property
    def low(self) -> float:
        """Lower end of the interval."""

    @property
    def high(self) -> float:
        """Upper end."""

    @property
    def p_value(self) -> float:
        """Two-sided, of "no difference"."""


class Claim(StrEnum):
    """What a paired estimate allows to be said."""

    BETTER = "better"
    WORSE = "worse"
    UNCLEAR = "unclear"
    """Which is not "equal": the interval says how large the difference may be."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A claim with its reason."""

    claim: Claim
    why: str
    """As a clause: "the interval contains 0, p = 0.07"."""

    def __str__(self) -> str:
        return f"{self.claim.value} ({self.why})"


def judge(
    pair: PairedEstimate,
    band: float | None = None,
    *,
    is_higher_better: bool = True,
    p_value: float | None = None,
) -> Judgement:
    """Better or worse only if interval, p-value and noise band all say so; else unclear.

    band: half-width of the noise band in the unit of `pair`; None or 0: not known (a band of nothing shows
    nothing). p_value: corrected for several comparisons, in place of the pair's own.
    """
    p = pair.p_value if p_value is None else p_value
    against = []
    if pair.low <= TIE and pair.high >= -TIE:
        against.append("the interval contains 0")
    if not p <= SIGNIFICANCE:  # NaN too
        against.append(f"p = {p:.2f}")
    if band and abs(pair.delta) <= band:
        against.append("it is within the noise band")
    if against:
        return Judgement(Claim.UNCLEAR, ", ".join(against))
    claim = Claim.BETTER if (pair.delta > 0) is is_higher_better else Claim.WORSE
    return Judgement(claim, "interval, p-value and noise band agree" if band else "interval and p-value agree")


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How far a is ahead of b on the same items."""

    delta: float
    """Mean of a - b."""
    low: float
    high: float
    n: int
    """Items with both scores."""
    p_value: float
    """Two-sided, of "no difference"."""
    method: str

    @property
    def n_items(self) -> int:
        """The same as `n`, in the words of `TwoLevelDifference`."""
        return self.n

    def __str__(self) -> str:
        return (
            f"{self.delta:+.4f} [{self.low:+.4f}, {self.high:+.4f}] (n={self.n}, p={self.p_value:.2g}, {self.method})"
        )


@dataclass(frozen=True, slots=True)
class NoiseBandEstimate:
    """How far one checkpoint is from itself."""

    half_width: float
    """95% quantile of the absolute paired difference."""
    n_replicates: int
    """Resampled comparisons behind it."""
    n_items: int
    n_runs: int
    """Evaluations of the checkpoint at each item."""
    over: str = "items and sampling seeds"
    """What was drawn again: "items" where every run scored every item alike, as under greedy decoding."""

    def __str__(self) -> str:
        return (
            f"+-{self.half_width:.4f} (95%, over {self.over}; n={self.n_items} items x {self.n_runs} runs, "
            f"{self.n_replicates} resampled comparisons)"
        )


@dataclass(frozen=True, slots=True)
class TwoLevelDifference:
    """A mean difference over items and training seeds at once."""

    delta: float
    low: float
    high: float
    p_value: float
    """Two-sided, of "no difference"."""
    n_items: int
    n_seeds: int
    degrees_of_freedom: float
    """Of the t interval, by Satterthwaite."""
    method: str = "two-way random effects, Satterthwaite t"


def paired_difference(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    rng: np.random.Generator,
    n_replicates: int = 10_000,
    confidence: float = 0.95,
) -> PairedDifference:
    """Mean of a - b with a paired bootstrap interval and a p-value.

    scores_a, scores_b: one score an item, in the same order of items. The p-value is exact McNemar when all
    scores are 0 or 1, else a sign-flip permutation test with n_replicates flips. Raises NotEnoughData if
    empty or not finite, ValueError if the lengths differ.
    Source: McNemar 1947 (exact form: binomial on discordant pairs); Efron and Tibshirani 1993.
    """
    a, b = finite_vector(scores_a, "scores_a"), finite_vector(scores_b, "scores_b")
    if a.size != b.size:
        raise ValueError(f"scores_a has {a.size} items, scores_b {b.size}; pair them item by item first")
    difference = a - b
    low, high = interval(resampled_means(difference, rng, n_replicates), confidence)
    if np.isin(a, (0.0, 1.0)).all() and np.isin(b, (0.0, 1.0)).all():
        p_value, test = mcnemar_p(int((difference > 0).sum()), int((difference < 0).sum())), "exact McNemar"
    else:
        p_value, test = sign_flip_p(difference, rng, n_replicates), f"{n_replicates} sign flips"
    return PairedDifference(float(difference.mean()), low, high, a.size, p_value, f"paired bootstrap, {test}")


def mcnemar_p(n_only_a: int, n_only_b: int) -> float:
    """Exact two-sided p-value of the discordant pairs: items that only a, or only b, solved. 1.0 without any."""
    n_discordant = n_only_a + n_only_b
    if n_discordant == 0:
        return 1.0
    return float(stats.binomtest(n_only_a, n_discordant, 0.5).pvalue)


def sign_flip_p(difference: NDArray[np.float64], rng: np.random.Generator, n_replicates: int) -> float:
    """Two-sided permutation p-value of a mean difference: signs of the pairs flipped at random.

    Counts the observed signs as one flip, so it is never 0. Source: Phipson and Smyth 2010, doi:10.2202/1544-6115.1585.
    """
    observed = abs(difference.sum()) - TIE * max(1.0, float(np.abs(difference).sum()))
    rows = max(1, CHUNK_ELEMENTS // difference.size)
    at_least = 0
    for start in range(0, n_replicates, rows):
        shape = (min(rows, n_replicates - start), difference.size)
        signs = rng.integers(0, 2, size=shape, dtype=np.int8) * 2.0 - 1.0
        at_least += int(np.count_nonzero(np.abs(signs @ difference) >= observed))
    return (at_least + 1) / (n_replicates + 1)


def over_items_and_seeds(difference_SI: ArrayLike, confidence: float = 0.95) -> TwoLevelDifference:
    """Mean difference with an interval for other items and other training seeds, both drawn at random.

    difference_SI: seeds x items, every seed scored on the same items; differences of scores. With mean squares
    of seeds, items and the rest, the variance of the mean is (MS_s + MS_i - MS_r) / (S I), taken no smaller than
    that of seeds or of items alone; its degrees of freedom are Satterthwaite's, no fewer than 1, no more than
    `MOST_DF_PER_SEED` for each seed beyond the first: two seeds that agree by luck do not make it sure. Still too
    narrow where two seeds differ far more than items do (simulated: `benchmarks/coverage.py`). Raises NotEnoughData
    for fewer than two seeds or items, or values that are not finite.
    Source: Satterthwaite 1946 (Biometrics Bulletin 2:110); crossed items and runs as in Clark 1973 (JVLVB 12:335)
    and Brennan 2001, Generalizability Theory, chapter 2.
    """
    check_confidence(confidence)
    table = np.asarray(difference_SI, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        raise NotEnoughData(
            f"an interval over items and seeds needs at least 2 of each, got seeds x items of {table.shape}"
        )
    finite_vector(table.ravel(), "difference_SI")
    n_seeds, n_items = table.shape
    delta = float(table.mean())
    seed_S, item_I = table.mean(axis=1) - delta, table.mean(axis=0) - delta
    rest = table - delta - seed_S[:, None] - item_I[None, :]
    df_s, df_i = n_seeds - 1, n_items - 1
    ms_s, ms_i = n_items * float(seed_S @ seed_S) / df_s, n_seeds * float(item_I @ item_I) / df_i
    ms_r = float((rest * rest).sum()) / (df_s * df_i)
    total = max(ms_s + ms_i - ms_r, ms_s, ms_i)
    error = float(np.sqrt(total / (n_seeds * n_items)))
    if error <= TIE:
        return TwoLevelDifference(delta, delta, delta, _sign_p(delta, n_items), n_items, n_seeds, 1.0)
    spread = ms_s**2 / df_s + ms_i**2 / df_i + ms_r**2 / (df_s * df_i)
    df = min(max(1.0, total**2 / spread), MOST_DF_PER_SEED * df_s)
    half = float(stats.t.ppf((1.0 + confidence) / 2.0, df)) * error
    p_value = 2.0 * float(stats.t.sf(abs(delta) / error, df))
    return TwoLevelDifference(delta, delta - half, delta + half, p_value, n_items, n_seeds, df)


def noise_band(scores_RI: ArrayLike, rng: np.random.Generator, n_replicates: int = 2000) -> NoiseBandEstimate:
    """How large a paired difference is when nothing differs but sampling seeds and items.

    scores_RI: replicates (sampling seeds of one checkpoint) x items, at least two replicates; the draws of an
    item must not depend on those of another. Each of the n_replicates comparisons resamples the items and
    gives each one two different replicates, drawn item by item: pairing whole replicates would add the
    chance difference between the few that were run. The half-width is the 95% quantile of |mean
    difference|. Where all replicates are alike (greedy decoding), that would be 0 and say nothing: the band is
    then how far the checkpoint's score moves when the items are drawn again (the longer arm of its 95% interval;
    Wilson's for verdicts). Raises NotEnoughData for fewer than two replicates, no items or values that are not
    finite.
    """
    scores = np.asarray(scores_RI, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[0] < 2:
        raise NotEnoughData(f"a noise band needs at least 2 replicates x items, got an array of shape {scores.shape}")
    finite_vector(scores.ravel(), "scores_RI")
    n_runs, n_items = scores.shape
    if np.ptp(scores, axis=0).max() <= TIE:
        return NoiseBandEstimate(_item_band(scores[0], rng, n_replicates), n_replicates, n_items, n_runs, ITEMS)
    means = np.empty(n_replicates)
    for replicate in range(n_replicates):  # one at a time: memory stays that of one comparison
        items = rng.integers(n_items, size=n_items)
        first = rng.integers(n_runs, size=n_items)
        second = (first + rng.integers(1, n_runs, size=n_items)) % n_runs
        means[replicate] = np.mean(scores[first, items] - scores[second, items])
    return NoiseBandEstimate(float(np.quantile(np.abs(means), 0.95)), n_replicates, n_items, n_runs)


def _sign_p(delta: float, n: int) -> float:
    """Of n differences that are all equal: the two sign vectors that are as extreme."""
    return 1.0 if abs(delta) <= TIE else min(1.0, 2.0 * 0.5**n)


def _item_band(scores_I: NDArray[np.float64], rng: np.random.Generator, n_replicates: int) -> float:
    is_verdict = np.isin(scores_I, (0.0, 1.0)).all()
    score = wilson(int(scores_I.sum()), scores_I.size) if is_verdict else bootstrap_mean(scores_I, rng, n_replicates)
    return max(score.value - score.low, score.high - score.value)
