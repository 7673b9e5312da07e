"""Comparisons of two checkpoints on the same items: difference, noise band, power, many comparisons.

Promises: differences are taken item by item, pairs are made by item id; intervals and p-values come from the pairs;
the same data and generator give the same numbers; memory stays bounded. Items with a missing score must be left out,
and counted, by the caller. `judge` is the only place that calls a difference better or worse: pages, criteria, charts
and the terminal ask it; it makes no correction for many comparisons: give it the corrected p-value (`holm`).

Three intervals: `paired_evidence`, of a pair of cards (gates, `agent2 compare`, `agent2 cards compare`), is Tango's
for verdicts, which keeps its coverage with few items and few changed verdicts, else paired t, and draws no random
numbers; `paired_difference`, of a trial, is the percentile bootstrap's over items (93% at 20 items, measured; of width
0 when all pairs differ equally, which is why `judge` reads the p-value as well); `over_items_and_seeds` covers the
luck of training runs too. "No significant drop" is not "no worse": a gate holds the lower end of the interval against
its margin.

Power is that of the exact two-sided McNemar test, computed, not simulated. It depends on the difference of the solve
rates and on the discordance, the share of items that exactly one of two checkpoints solves; take that from an earlier
comparison: power computed from an observed difference says nothing that its p-value does not.

scipy is imported by the functions that need it, scipy.stats where nothing smaller does: it takes half a second of
processor time to load, every command that starts a trial imports this module, and a page that compares waits for it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.estimates import (
    CHUNK_ELEMENTS,
    ITEMS,
    ITEMS_AND_SEEDS,
    Estimate,
    PairedDifference,
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
EDGE = 1e-12
"""How near to -1 and 1 a difference of rates is looked for."""
N_FLIPS = 10_000
MOST_FLIPPED = 2_000
"""Items beyond which a permutation test shows nothing that the t test does not."""
SEED = 20_260
"""Of the sign flips; fixed, so that a decision is the same when it is made again."""
EXACT_PAIRS = 1_000_000
"""Discordant pairs up to which power is summed exactly; there the approximation differs by less than 0.001."""
NEGLIGIBLE = 1e-12
"""Numbers of discordant pairs rarer than this are left out of a sum."""


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
    pair: PairedDifference,
    band: float | None = None,
    *,
    is_higher_better: bool = True,
    p_value: float | None = None,
) -> Judgement:
    """Better or worse only if interval, p-value and noise band all say so; else unclear.

    band: half-width of the noise band in the unit of `pair`; None or 0: not known (a band of nothing shows
    nothing). p_value: corrected for several comparisons, in place of the pair's own. Raises NotEnoughData for a pair
    without an interval.
    """
    p = pair.p_value if p_value is None else p_value
    against = []
    low, high = pair.change.interval
    if low <= TIE and high >= -TIE:
        against.append("the interval contains 0")
    if not p <= SIGNIFICANCE:  # NaN too
        against.append(f"p = {p:.2f}")
    if band and abs(pair.change.value) <= band:
        against.append("it is within the noise band")
    if against:
        return Judgement(Claim.UNCLEAR, ", ".join(against))
    claim = Claim.BETTER if (pair.change.value > 0) is is_higher_better else Claim.WORSE
    return Judgement(claim, "interval, p-value and noise band agree" if band else "interval and p-value agree")


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
    change = Estimate(float(difference.mean()), low, high, a.size, method=f"paired bootstrap, {test}")
    return PairedDifference(change, p_value)


def mcnemar_p(n_only_a: int, n_only_b: int) -> float:
    """Exact two-sided p-value of the discordant pairs: items that only a, or only b, solved. 1.0 without any."""
    from scipy.special import bdtr

    return min(1.0, 2.0 * float(bdtr(min(n_only_a, n_only_b), n_only_a + n_only_b, 0.5)))


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


def over_items_and_seeds(difference_SI: ArrayLike, confidence: float = 0.95) -> PairedDifference:
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
    from scipy import stats

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
    residual = table - delta - seed_S[:, None] - item_I[None, :]
    df_s, df_i = n_seeds - 1, n_items - 1
    ms_s, ms_i = n_items * float(seed_S @ seed_S) / df_s, n_seeds * float(item_I @ item_I) / df_i
    ms_r = float((residual * residual).sum()) / (df_s * df_i)
    total = max(ms_s + ms_i - ms_r, ms_s, ms_i)  # the estimate itself can come out below its parts, even below 0
    error = float(np.sqrt(total / (n_seeds * n_items)))
    if error <= TIE:
        return _over_both(delta, 0.0, n_items, n_seeds, _sign_p(delta, n_items))
    spread = ms_s**2 / df_s + ms_i**2 / df_i + ms_r**2 / (df_s * df_i)
    df = min(max(1.0, total**2 / spread), MOST_DF_PER_SEED * df_s)
    half = float(stats.t.ppf((1.0 + confidence) / 2.0, df)) * error
    p_value = 2.0 * float(stats.t.sf(abs(delta) / error, df))
    return _over_both(delta, half, n_items, n_seeds, p_value)


def _over_both(delta: float, half_width: float, n_items: int, n_seeds: int, p_value: float) -> PairedDifference:
    method = f"two-way random effects over items and {n_seeds} seeds, Satterthwaite t"
    change = Estimate(delta, delta - half_width, delta + half_width, n_items, method=method)
    return PairedDifference(change, p_value, ITEMS_AND_SEEDS)


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
    low, high = score.interval
    return max(score.value - low, high - score.value)


def tango_interval(n_only_a: int, n_only_b: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Score interval of the difference of two paired rates, a - b: the differences that are not rejected.

    n_only_a, n_only_b: items solved by a alone and by b alone, of n. Within -1 to 1. Raises NotEnoughData for
    n < 1, ValueError for counts that cannot be.
    Source: Tango 1998, Statistics in Medicine 17:891-908 (as generally known; not checked against the paper).
    """
    from scipy.special import ndtri

    if n < 1:
        raise NotEnoughData(f"a paired difference of {n} items has no interval; at least one is needed")
    if min(n_only_a, n_only_b) < 0 or n_only_a + n_only_b > n:
        raise ValueError(f"{n_only_a} and {n_only_b} discordant items of {n} cannot be")
    z = float(ndtri((1.0 + confidence) / 2.0))
    # the lower end is the upper end of b - a, mirrored
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
    if tango_z(n_only_a, n_only_b, n, 1.0 - EDGE) > -z:
        return 1.0
    # `tango_z` is 0 at the observed difference and falls from there, so that exactly one root lies above it; halved
    # here until no number lies between, as scipy.optimize takes a third of a second to load
    low, high = max((n_only_a - n_only_b) / n, EDGE - 1.0), 1.0 - EDGE
    while low < (middle := (low + high) / 2.0) < high:
        if tango_z(n_only_a, n_only_b, n, middle) > -z:
            low = middle
        else:
            high = middle
    return high


def paired_evidence(old: Mapping[str, float], new: Mapping[str, float]) -> PairedDifference | None:
    """The difference new - old over the items that both have; None if there are none (or one that is not a verdict).

    Values of 0 and 1 get Tango's interval and exact McNemar, others the paired t interval and sign flips (beyond
    `MOST_FLIPPED` items the paired t test). The same values give the same numbers on every machine. `n_missing` counts
    the items that only one of the two has.
    """
    from scipy.special import stdtrit

    items = sorted(old.keys() & new.keys())
    n_missing = len(old.keys() | new.keys()) - len(items)
    if not items:
        return None
    before, after = np.array([old[item] for item in items]), np.array([new[item] for item in items])
    difference, n = after - before, len(items)
    value = float(difference.mean())
    if np.isin(before, (0.0, 1.0)).all() and np.isin(after, (0.0, 1.0)).all():
        return verdict_difference(n, int((difference > 0).sum()), int((difference < 0).sum()), n_missing)
    if n < 2:
        return None
    sd = float(difference.std(ddof=1))
    half_width = float(stdtrit(n - 1, 0.975)) * (sd / math.sqrt(n))
    p_value, test = _p_value(difference)
    change = Estimate(value, value - half_width, value + half_width, n, n_missing, f"paired t, {test}")
    return PairedDifference(change, p_value, sd=sd)


def verdict_difference(n: int, n_won: int, n_lost: int, n_missing: int = 0) -> PairedDifference:
    """The difference of two solve rates on n items, of which the new side alone solves n_won and the old alone n_lost.

    Raises as `tango_interval`.
    """
    low, high = tango_interval(n_won, n_lost, n)
    change = Estimate((n_won - n_lost) / n, low, high, n, n_missing, "Tango score interval, exact McNemar")
    return PairedDifference(change, mcnemar_p(n_won, n_lost), n_won=n_won, n_lost=n_lost)


def _p_value(difference: NDArray[np.float64]) -> tuple[float, str]:
    """Two-sided p-value of "no difference", and the name of its test."""
    if difference.size <= MOST_FLIPPED or np.ptp(difference) <= TIE:
        few = difference[:MOST_FLIPPED]  # equal differences: as many as are flipped say it all
        return sign_flip_p(few, np.random.default_rng(SEED), N_FLIPS), f"{N_FLIPS} sign flips"
    from scipy import stats

    return float(stats.ttest_1samp(difference, 0.0).pvalue), "paired t test"


def holm(p_values: ArrayLike) -> tuple[float, ...]:
    """Adjusted p-values of a family of comparisons, in the order given: to be held against the level of the family.

    Step-down: the i-th smallest of n times n - i + 1, made monotone, at most 1; bounds the chance of any false finding
    under any dependence. The family must be fixed before the p-values are seen. Raises NotEnoughData for no or not
    finite p-values, ValueError outside 0-1.
    Source: Holm 1979, Scandinavian Journal of Statistics 6:65-70.
    """
    p = finite_vector(p_values, "p_values")
    outside = p[(p < 0.0) | (p > 1.0)]
    if outside.size:
        raise ValueError(f"p_values holds {outside.size} values outside 0-1, for example {outside[0]:g}")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)), 1.0)
    return tuple(adjusted.tolist())


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """What a paired comparison of n items can see."""

    n: int
    """Items."""
    difference: float
    """True difference that is to be seen, in units of the score."""
    spread: float
    """Discordance."""
    power: float
    """Chance that the test is significant if the true difference is `difference`."""
    alpha: float
    method: str

    def __str__(self) -> str:
        return (
            f"n={self.n} items see a difference of {self.difference:.4f} (spread {self.spread:.4f}) "
            f"with power {self.power:.3f} at alpha {self.alpha:g} ({self.method})"
        )


def mcnemar_power(n: int, difference: float, discordance: float, alpha: float = 0.05) -> float:
    """Chance that exact McNemar on n items is significant.

    difference: between the solve rates, -discordance to discordance; at 0 the result is the test's size, at
    most alpha. Sums over the number of discordant pairs, which is binomial(n, discordance); given it, the pairs
    for a are binomial with chance (1 + difference / discordance) / 2. Beyond `EXACT_PAIRS` discordant pairs the
    normal approximation of the same test (Connor 1987) takes the place of the sum. Raises NotEnoughData for n < 1,
    ValueError for rates that cannot be.
    """
    from scipy import stats

    if not 0.0 < discordance <= 1.0:
        raise ValueError(f"discordance={discordance} must be in 0-1 and be above 0: without it nothing differs")
    if not abs(difference) <= discordance:
        raise ValueError(f"difference={difference} cannot exceed discordance={discordance} in size")
    _check_chance(alpha, "alpha")
    if n < 1:
        raise NotEnoughData(f"{n} items have no power; at least one is needed")
    if n * discordance > EXACT_PAIRS:
        z_alpha = float(stats.norm.ppf(1.0 - alpha / 2.0)) * math.sqrt(discordance)
        # 0 where every item is discordant in one direction; the tiny floor makes the power 1 instead of undefined
        spread = math.sqrt(max(discordance - difference**2, 1e-300))
        shift = abs(difference) * math.sqrt(n)
        return float(stats.norm.cdf((shift - z_alpha) / spread) + stats.norm.cdf((-shift - z_alpha) / spread))
    n_discordant = _likely_counts(n, discordance)
    share = (1.0 + difference / discordance) / 2.0
    critical = _critical(n_discordant, alpha)
    rejected = stats.binom.cdf(critical, n_discordant, share) + stats.binom.cdf(critical, n_discordant, 1.0 - share)
    return float(np.clip(stats.binom.pmf(n_discordant, n, discordance) @ rejected, 0.0, 1.0))


def detectable_difference(n: int, discordance: float, power: float = 0.8, alpha: float = 0.05) -> PowerPlan:
    """Minimal detectable effect of a suite of verdicts: the smallest difference of rates seen with this power.

    Raises NotEnoughData if even a difference as large as the discordance is not seen, ValueError for chances
    outside 0-1.
    """
    from scipy import optimize

    _check_chance(power, "power")
    largest = mcnemar_power(n, discordance, discordance, alpha)
    if largest < power:
        raise NotEnoughData(
            f"{n} items at discordance {discordance:g} reach power {largest:.3f} at most, {power:g} is asked; add items"
        )
    if mcnemar_power(n, 0.0, discordance, alpha) >= power:
        raise ValueError(f"power={power} is not above the chance of a false finding; ask for more, for example 0.8")
    difference = optimize.brentq(
        lambda delta: mcnemar_power(n, delta, discordance, alpha) - power, 0.0, discordance, xtol=1e-9
    )
    return PowerPlan(n, float(difference), discordance, power, alpha, _method(n, discordance))


def _method(n: int, discordance: float) -> str:
    return "exact McNemar" if n * discordance <= EXACT_PAIRS else "McNemar, normal approximation"


def _likely_counts(n: int, chance: float) -> NDArray[np.int64]:
    from scipy import stats

    low = int(stats.binom.ppf(NEGLIGIBLE, n, chance))
    return np.arange(max(0, low), int(stats.binom.isf(NEGLIGIBLE, n, chance)) + 1)


def _critical(n_discordant: NDArray[np.int64], alpha: float) -> NDArray[np.int64]:
    """Most pairs for the weaker side at which the test is still significant; -1 if it never is."""
    from scipy import stats

    critical = np.asarray(stats.binom.ppf(alpha / 2.0, n_discordant, 0.5), dtype=np.int64)
    return np.where(stats.binom.cdf(critical, n_discordant, 0.5) <= alpha / 2.0, critical, critical - 1)


def _check_chance(value: float, name: str) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name}={value} must be between 0 and 1")
