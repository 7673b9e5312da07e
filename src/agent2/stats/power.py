"""Planning: how many items a comparison needs, and what a suite of given size can see.

For verdicts two numbers matter: the difference of the solve rates and the discordance, the share of items that
exactly one of the two checkpoints solves. Checkpoints of one family often disagree on few items, and then few
items are enough; take the discordance from an earlier paired comparison.

Promises: power is that of the exact two-sided McNemar test (`comparisons.mcnemar_p`) or of the two-sided paired
t test, computed, not simulated. Nothing here looks at the data that will be tested: power computed from an
observed difference says nothing that its p-value does not.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from agent2.errors import NotEnoughData

EXACT_PAIRS = 1_000_000
"""Discordant pairs up to which power is summed exactly; there the approximation differs by less than 0.001."""
MAX_ITEMS = 10_000_000
"""Larger suites are not planned for."""
NEGLIGIBLE = 1e-12
"""Numbers of discordant pairs rarer than this are left out of a sum."""


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """What a paired comparison of n items can see."""

    n: int
    """Items."""
    difference: float
    """True difference that is to be seen, in units of the score."""
    spread: float
    """Discordance (verdicts) or standard deviation of the paired differences (other scores)."""
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
    _check_rates(difference, discordance)
    _check_chance(alpha, "alpha")
    if n < 1:
        raise NotEnoughData(f"{n} items have no power; at least one is needed")
    if n * discordance > EXACT_PAIRS:
        z_alpha = float(stats.norm.ppf(1.0 - alpha / 2.0)) * math.sqrt(discordance)
        spread = math.sqrt(max(discordance - difference**2, 1e-300))
        shift = abs(difference) * math.sqrt(n)
        return float(stats.norm.cdf((shift - z_alpha) / spread) + stats.norm.cdf((-shift - z_alpha) / spread))
    n_discordant = _likely_counts(n, discordance)
    share = (1.0 + difference / discordance) / 2.0
    critical = _critical(n_discordant, alpha)
    rejected = stats.binom.cdf(critical, n_discordant, share) + stats.binom.cdf(critical, n_discordant, 1.0 - share)
    return float(np.clip(stats.binom.pmf(n_discordant, n, discordance) @ rejected, 0.0, 1.0))


def items_for_difference(difference: float, discordance: float, power: float = 0.8, alpha: float = 0.05) -> PowerPlan:
    """How many items it takes to see a difference of solve rates at a given discordance.

    Starts at the normal approximation n = (z_{1 - alpha/2} sqrt(d) + z_power sqrt(d - difference^2))^2 /
    difference^2 and goes on to an n whose exact power suffices while that of n - 1 does not. Exact power rises in
    small saws, so another n close by may do too. Raises ValueError for a difference of 0 or beyond the
    discordance and chances outside 0-1, NotEnoughData beyond 10 million items.
    Source: Connor 1987, Biometrics 43:207-211 (as generally known; not checked against the paper).
    """
    _check_rates(difference, discordance)
    _check_chance(alpha, "alpha")
    _check_chance(power, "power")
    if difference == 0:
        raise ValueError("difference=0 cannot be seen with any number of items; pass the smallest one that matters")
    z_alpha, z_power = float(stats.norm.ppf(1.0 - alpha / 2.0)), float(stats.norm.ppf(power))
    root = z_alpha * math.sqrt(discordance) + z_power * math.sqrt(max(discordance - difference**2, 0.0))
    approximate = max(1.0, (root / abs(difference)) ** 2)
    if approximate > MAX_ITEMS:
        raise NotEnoughData(
            f"a difference of {difference:g} would need {approximate:.3g} items; more than any suite has"
        )
    enough = math.ceil(approximate)
    step = max(1, enough // 50)
    while mcnemar_power(enough, difference, discordance, alpha) < power:
        enough += step
    short = max(0, enough - step)
    while short and mcnemar_power(short, difference, discordance, alpha) >= power:
        enough, short = short, max(0, short - step)
    while enough - short > 1:
        middle = (enough + short) // 2
        if mcnemar_power(middle, difference, discordance, alpha) < power:
            short = middle
        else:
            enough = middle
    reached = mcnemar_power(enough, difference, discordance, alpha)
    return PowerPlan(enough, abs(difference), discordance, reached, alpha, _method(enough, discordance))


def detectable_difference(n: int, discordance: float, power: float = 0.8, alpha: float = 0.05) -> PowerPlan:
    """Minimal detectable effect of a suite of verdicts: the smallest difference of rates seen with this power.

    Raises NotEnoughData if even a difference as large as the discordance is not seen, ValueError for chances
    outside 0-1.
    """
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


def detectable_mean_difference(n: int, sd: float, power: float = 0.8, alpha: float = 0.05) -> PowerPlan:
    """Minimal detectable effect for scores that are not verdicts: the mean paired difference seen with this power.

    n: items (or runs, paired by seed). sd: standard deviation of the paired differences, above 0. Raises
    NotEnoughData for n < 2, ValueError for chances outside 0-1 or an sd that cannot be.
    Source: the noncentral t distribution, as computed by scipy.
    """
    _check_chance(power, "power")
    _check_chance(alpha, "alpha")
    if n < 2:
        raise NotEnoughData(f"{n} items have no spread; at least 2 are needed")
    if not 0.0 < sd < math.inf:
        raise ValueError(f"sd={sd} must be above 0: with equal differences every difference is seen")
    if power <= alpha:
        raise ValueError(f"power={power} is not above alpha={alpha}; ask for more, for example 0.8")
    upper = 1.0 / math.sqrt(n)
    while _t_power(upper, n, alpha) < power:
        upper *= 2.0
    effect = optimize.brentq(lambda size: _t_power(size, n, alpha) - power, 0.0, upper, xtol=1e-10)
    return PowerPlan(n, float(effect) * sd, sd, power, alpha, "paired t test")


def _method(n: int, discordance: float) -> str:
    return "exact McNemar" if n * discordance <= EXACT_PAIRS else "McNemar, normal approximation"


def _t_power(effect: float, n: int, alpha: float) -> float:
    critical = stats.t.ppf(1.0 - alpha / 2.0, n - 1)
    shift = effect * math.sqrt(n)
    far_tail = np.nan_to_num(stats.nct.cdf(-critical, n - 1, shift))  # scipy has NaN where it is far below 1e-16
    return float(stats.nct.sf(critical, n - 1, shift) + far_tail)


def _likely_counts(n: int, chance: float) -> NDArray[np.int64]:
    low = int(stats.binom.ppf(NEGLIGIBLE, n, chance))
    return np.arange(max(0, low), int(stats.binom.isf(NEGLIGIBLE, n, chance)) + 1)


def _critical(n_discordant: NDArray[np.int64], alpha: float) -> NDArray[np.int64]:
    """Most pairs for the weaker side at which the test is still significant; -1 if it never is."""
    critical = np.asarray(stats.binom.ppf(alpha / 2.0, n_discordant, 0.5), dtype=np.int64)
    return np.where(stats.binom.cdf(critical, n_discordant, 0.5) <= alpha / 2.0, critical, critical - 1)


def _check_rates(difference: float, discordance: float) -> None:
    if not 0.0 < discordance <= 1.0:
        raise ValueError(f"discordance={discordance} must be in 0-1 and be above 0: without it nothing differs")
    if not abs(difference) <= discordance:
        raise ValueError(f"difference={difference} cannot exceed discordance={discordance} in size")


def _check_chance(value: float, what: str) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{what}={value} must be between 0 and 1")
