"""Comparisons of two checkpoints on the same items: difference, noise band, non-inferiority.

Paired comparisons: two checkpoints on the same items, one checkpoint with itself, and what may be said of it.

Promises: differences are taken item by item; intervals and p-values come from the pairs; the same data and
generator give the same numbers; memory stays bounded. Items with a missing score must be left out, and
counted, by the caller. `judge` is the only place that calls a difference better or worse: pages, criteria,
charts and the terminal ask it. The interval of `paired_difference` is the percentile bootstrap's over items:
somewhat too narrow below about 20 items (93% at 20, measured), and of width 0 when all pairs differ equally,
which is why `judge` reads the p-value as well. `over_items_and_seeds` covers both what was asked and the luck of
training runs.

Makes no correction for many comparisons: give `judge` the corrected p-value.

Non-inferiority: is a new checkpoint no worse than a reference by more than a margin, on the same items?

"No significant drop" is not that: too few items never show a drop. Here the lower end of the interval of
new - reference has to stay above -margin; otherwise the outcome is inferior (the upper end lies below it) or
inconclusive (more items are needed).

Promises: verdicts (0 or 1) use Tango's score interval, which does not shrink to nothing when no item differs;
other scores use the paired t interval and a warning when all differences are equal. Missing scores are left
out, and counted, by the caller. The margin must be fixed before the scores are seen.

Paired evidence out of two sets of item values: difference, interval, p-value, items won and lost.

Promises: pairs are made by item id, never by position; the same values give the same numbers on every machine
(sign flips use a fixed seed); 0/1 values get Tango's interval and exact McNemar, others the paired t interval and sign
flips, beyond 2,000 items the paired t test, which agrees with them there and costs nothing.

The one interval for a pair of cards: gates, `agent2 compare` and `agent2 cards compare` all take it from here. Tango's
keeps its coverage with few items and few changed verdicts, where the bootstrap's is too narrow or of width 0; and no
random numbers are drawn for it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

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
