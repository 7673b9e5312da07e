"""Pilot of a new benchmark with baselines: too hard, outdated, or healthy.

Promises: at least three baselines (B16: supervised model, previous production model, strong model); the
verdict is read from their rates (B17) and names how many scores were missing. Does NOT tell a benchmark that
is too hard from a scorer that is broken: look at an oracle's score for that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent2.errors import NotEnoughData
from agent2.stats.measure import UNIT, Measure, measure

MIN_BASELINES = 3
NEAR = 0.05
"""All rates within this of 0 or 1 count as "near 0" or "near 100%"."""
HEALTHY = (0.40, 0.80)
"""Where the main model's rate should lie."""


class Health(StrEnum):
    """Verdict on a benchmark's difficulty."""

    TOO_HARD = "too hard or scorer broken"
    OUTDATED = "outdated"
    HEALTHY = "healthy"
    MAIN_TOO_LOW = "main model below 40%"
    MAIN_TOO_HIGH = "main model above 80%"


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a pilot says."""

    health: Health
    rates: Mapping[str, Measure]
    """Baseline -> rate with interval over items, and how many of them had no score."""
    main: str
    spread: float
    """Highest - lowest rate: what the benchmark has to tell baselines apart with."""

    def __str__(self) -> str:
        lost = sum(rate.n_missing for rate in self.rates.values())
        return (
            f"{self.health}: {self.main} {self.rates[self.main]}; {len(self.rates)} baselines {self.spread:.4f} apart"
            + (f"; {lost} scores missing" if lost else "")
        )


def calibrate(scores: Mapping[str, Sequence[float | None]], main: str) -> Calibration:
    """The verdict on a benchmark from a pilot of baselines.

    scores: baseline -> score of each item between 0 and 1; None or NaN is missing, left out and counted. main:
    the baseline that the benchmark is for. Verdicts, in this order: all rates at most 0.05: too hard or scorer
    broken; all at least 0.95: outdated; else by the main model's rate, healthy from 0.40 to 0.80. Intervals
    are those of `measure`. Raises NotEnoughData for fewer than three baselines or one without any score,
    ValueError for scores outside 0-1 or an unknown main.
    Source: REQUIREMENTS B16, B17; "near" is our reading.
    """
    if len(scores) < MIN_BASELINES:
        raise NotEnoughData(f"a pilot needs at least {MIN_BASELINES} baselines, got {len(scores)}: {sorted(scores)}")
    if main not in scores:
        raise ValueError(f"main model {main!r} is not among the baselines {sorted(scores)}")
    rates = {name: measure(values, f"baseline {name}", UNIT) for name, values in scores.items()}
    values_B = [rate.value for rate in rates.values()]
    return Calibration(_verdict(values_B, rates[main].value), rates, main, max(values_B) - min(values_B))


def _verdict(rates: list[float], main: float) -> Health:
    if max(rates) <= NEAR:
        return Health.TOO_HARD
    if min(rates) >= 1.0 - NEAR:
        return Health.OUTDATED
    if main < HEALTHY[0]:
        return Health.MAIN_TOO_LOW
    return Health.MAIN_TOO_HIGH if main > HEALTHY[1] else Health.HEALTHY
