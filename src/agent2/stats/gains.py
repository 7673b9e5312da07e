"""How much better: absolute, relative and held-out gain, spread over seeds, gap closed, normalised score.

Promises: scores are compared as they are (rates 0-1 in, shares out; percent only in the written delta); sides are
paired by name, never by position; a task or seed without a score is left out and counted. Does NOT say whether
a gain is real: `comparisons` has the paired interval and the noise band.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.measure import Measure, Values, measure, with_gaps


@dataclass(frozen=True, slots=True)
class Gain:
    """One score before and after."""

    old: float
    new: float

    @property
    def absolute(self) -> float:
        """New minus old; for rates, 100 times it are percentage points."""
        return self.new - self.old

    @property
    def relative(self) -> float | None:
        """Absolute gain as a share of the size of the old score; None when that is 0."""
        return self.absolute / abs(self.old) if self.old else None

    def __str__(self) -> str:
        relative = "" if self.relative is None else f", {self.relative:+.1%} of the old score"
        return f"{self.old:.4f} -> {self.new:.4f} ({self.absolute:+.4f}{relative}; n=1 pair, no interval)"


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """How consistent a gain is over training seeds."""

    mean: Measure
    std: float
    """Sample standard deviation over seeds (n - 1)."""
    lowest: float
    highest: float
    share_positive: float
    """Seeds that gained anything; 1 is consistent."""

    def __str__(self) -> str:
        return (
            f"{self.mean}, std {self.std:.4f}, {self.lowest:+.4f} to {self.highest:+.4f}, "
            f"{self.share_positive:.0%} of seeds gained"
        )


def gain(old: float, new: float) -> Gain:
    """Absolute and relative gain of one score over its baseline. Raises NotEnoughData for NaN or infinity."""
    for name, value in (("old", old), ("new", new)):
        if not math.isfinite(value):
            raise NotEnoughData(f"the {name} score is {value}; a gain needs both scores")
    return Gain(float(old), float(new))


def held_out_gain(
    old_by_task: Mapping[Hashable, float | None], new_by_task: Mapping[Hashable, float | None]
) -> Measure:
    """Mean absolute gain over held-out tasks, each counted once: does the improvement generalise.

    Tasks are paired by name; one that either side lacks, or has no score for, is missing. The interval is over
    tasks. Raises NotEnoughData if no task has both scores.
    """
    tasks = list(dict.fromkeys([*old_by_task, *new_by_task]))
    differences = [_difference(old_by_task.get(task), new_by_task.get(task)) for task in tasks]
    return measure(differences, "held-out gain")


def seed_spread(gains_R: Values) -> SeedSpread:
    """Mean, standard deviation and range of a gain (or score) over training seeds.

    gains_R: one number for each seed; None where the run gave none. Raises NotEnoughData below two seeds: one
    run says nothing of consistency.
    """
    vector = with_gaps(gains_R, "gains_R")
    there = vector[~np.isnan(vector)]
    if there.size < 2:
        raise NotEnoughData(f"a spread over seeds needs at least 2 runs with a result, got {there.size}")
    return SeedSpread(
        measure(vector, "gain over seeds"),
        float(there.std(ddof=1)),
        float(there.min()),
        float(there.max()),
        float((there > 0.0).mean()),
    )


def gap_closed(baseline: float, agent: float, top: float) -> float:
    """(agent - baseline) / (top - baseline): 1 reaches the top, 0 is the baseline; may lie outside.

    top: the best human or published result, the end of the scale; it may be the lower number where lower is
    better. Raises NotEnoughData when a value is not finite, ValueError when top equals baseline.
    Source: PAPERS #104 (MLRC-Bench); times 100 it is the paper's figure.
    """
    if not math.isfinite(agent):
        raise NotEnoughData(f"the agent's score is {agent}; a gap can only be closed by a score")
    return float(normalised_score(agent, baseline, top))


def normalised_score(scores: ArrayLike, random: ArrayLike, expert: ArrayLike) -> NDArray[np.float64]:
    """(score - random) / (expert - random), elementwise; shapes broadcast, so scores_RT takes random_T.

    0 is a random player, 1 an expert; may lie outside. Times 100 it is D4RL's figure (Fu et al. 2020, as
    generally known; not checked against the paper). A NaN score stays NaN: it is missing. Raises NotEnoughData
    when `scores` is empty or a reference is not finite, ValueError for an infinite score or expert = random.
    """
    score, floor, ceiling = (np.asarray(values, dtype=np.float64) for values in (scores, random, expert))
    if score.size == 0:
        raise NotEnoughData("no scores to normalise")
    if bool(np.isinf(score).any()):
        raise ValueError("scores hold an infinity; a score that is not known is NaN")
    if not bool(np.isfinite(floor).all() and np.isfinite(ceiling).all()):
        raise NotEnoughData("a reference score (random or baseline, expert or top) is missing or infinite")
    if bool(np.any(ceiling == floor)):
        raise ValueError("both reference scores are equal, so there is no scale between them; choose other references")
    return np.asarray((score - floor) / (ceiling - floor), dtype=np.float64)


def rate_delta(old: float | None, new: float | None) -> str:
    """`44.8 -> 44.1 (-0.7)`: rates given 0-1, shown in percent, the change in percentage points.

    The change is that of the exact rates, then rounded. A missing side is said.
    """
    if old is None or new is None or not math.isfinite(old + new):
        return f"{_percent(old)} -> {_percent(new)} (no change known)"
    return f"{_percent(old)} -> {_percent(new)} ({_signed(100.0 * (new - old))})"


def count_delta(old: float | None, new: float | None) -> str:
    """`612 -> 941 (+53.8%)`: lengths and counts, the change in percent of the old value.

    Whole numbers are shown whole, others with one decimal. From 0 there is no relative change, which is said.
    """
    if old is None or new is None or not math.isfinite(old + new):
        return f"{_count(old)} -> {_count(new)} (no change known)"
    change = "no relative change from 0" if old == 0.0 else f"{_signed(100.0 * (new - old) / abs(old))}%"
    return f"{_count(old)} -> {_count(new)} ({change})"


def _difference(old: float | None, new: float | None) -> float | None:
    return None if old is None or new is None else new - old


def _percent(rate: float | None) -> str:
    return "missing" if rate is None or not math.isfinite(rate) else f"{_unsigned_zero(100.0 * rate):.1f}"


def _count(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "missing"
    return str(int(value)) if float(value).is_integer() else f"{value:.1f}"


def _signed(value: float) -> str:
    return f"{_unsigned_zero(value):+.1f}"


def _unsigned_zero(value: float) -> float:
    return 0.0 if round(value, 1) == 0.0 else value
