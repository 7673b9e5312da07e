"""Do the intervals and tests keep their word? Coverage, family-wise error and power, by simulation.

    python benchmarks/coverage.py [--repetitions 10000] [--quick] [--seed 0] [--out coverage.json]

Promised, and exit code 1 if broken: 95% Wilson and paired bootstrap intervals cover the truth in 93% to 97% of
cases for rates of 0.1 to 0.9 and 100 or 500 items; AdaStop calls equal agents different in at most 5% of studies
(5 agents or more, Gaussian or skewed scores, all equal or some); exact McNemar has the power that was planned.
Tabulated, with a warning where they fall outside: few items, IQM of few runs, unequal spreads.

Fast because a paired interval of verdicts depends only on the two numbers of discordant items: the shipped
function is asked once for each such pair (all its replicates), not once a repetition. Where scores are not
verdicts it is asked each time with fewer replicates, and the table says so. AdaStop studies of a batch share
their random relabellings, which leaves the error rate as it is and costs a little precision.
"""

import sys

sys.path.pop(0)  # this folder: its file names must not hide the standard library's

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from agent2.stats.aggregates import iqm
from agent2.stats.comparisons import (
    mcnemar_p,
    mcnemar_power,
    over_items_and_seeds,
    paired_difference,
)
from agent2.stats.estimates import bootstrap_mean, wilson
from agent2.stats.sequential import AdaStop, AdaStopSettings, SequentialVerdict, SignSource, sampled_signs

RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
ITEMS = (100, 500)
COVERAGE = (0.93, 0.97)
ENOUGH = 10_000
"""Repetitions from which on the bounds are taken unchanged."""
FEW_REPLICATES = 1000
BATCH = 50
"""AdaStop studies that share their relabellings."""
DESIGN = AdaStopSettings(n_seeds=5, n_interims=5, max_permutations=2000)


@dataclass(frozen=True)
class Row:
    """One measured share."""

    section: str
    setting: str
    value: float
    repetitions: int
    low: float | None = None
    """Bounds; None is none."""
    high: float | None = None
    promised: bool = False
    note: str = ""

    @property
    def is_within(self) -> bool:
        """The share keeps its bounds; those of a test's error and power allow for the simulation's own error."""
        return (self.low is None or self.value >= self.low) and (self.high is None or self.value <= self.high)

    def line(self) -> str:
        """For the table."""
        verdict = "" if self.low is None and self.high is None else "ok" if self.is_within else "WARNING"
        verdict = "BROKEN" if verdict == "WARNING" and self.promised else verdict
        return f"  {self.setting:<58}{self.value:>8.4f}  {verdict:<8}{self.note}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every section; 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=10_000, help="simulated studies of each row")
    parser.add_argument("--quick", action="store_true", help="a tenth of the repetitions: a smoke test")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    options = parser.parse_args(arguments)
    repetitions = max(100, options.repetitions // 10) if options.quick else options.repetitions
    rows: list[Row] = []
    for number, (title, section) in enumerate(SECTIONS.items()):
        started = time.perf_counter()
        print(title, flush=True)
        for row in section(repetitions, np.random.default_rng([options.seed, number])):
            rows.append(row)
            print(row.line(), flush=True)
        print(f"  ({time.perf_counter() - started:.0f} s)", flush=True)
    broken = [row for row in rows if row.promised and not row.is_within]
    warned = [row for row in rows if not row.promised and not row.is_within]
    print(f"{repetitions} repetitions: {len(broken)} of {sum(r.promised for r in rows)} promises broken, ", end="")
    print(f"{len(warned)} warnings")
    if options.out:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        print(options.out)
    return 1 if broken else 0


def wilson_coverage(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """One interval for each count; the exact coverage is beside the simulated one."""
    for n in ITEMS:
        bounds = np.array([(e.low, e.high) for e in (wilson(count, n) for count in range(n + 1))])
        for rate in RATES:
            covers = (bounds[:, 0] <= rate) & (rate <= bounds[:, 1])
            share = float(covers[rng.binomial(n, rate, size=10 * repetitions)].mean())
            exact = float(stats.binom.pmf(np.arange(n + 1), n, rate) @ covers)
            note = f"exact {exact:.4f}, {10 * repetitions} repetitions"
            yield Row(
                "wilson", f"p={rate} n={n}", share, 10 * repetitions, *_bounds(repetitions), promised=True, note=note
            )


def paired_coverage(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Verdicts of two checkpoints that both solve a share p of the items, with correlation rho."""
    for n in ITEMS:
        interval_of: dict[tuple[int, int], tuple[float, float]] = {}
        for rho in (0.0, 0.5):
            for rate in RATES:
                discordance = 2 * rate * (1 - rate) * (1 - rho)
                share = _paired_share(n, discordance, 0.0, repetitions, rng, interval_of)
                setting = f"p={rate} n={n} correlation={rho} (discordance {discordance:.3f})"
                yield Row("paired", setting, share, repetitions, *_bounds(repetitions), promised=True)
        share = _paired_share(n, 0.3, 0.1, repetitions, rng, interval_of)
        yield Row(
            "paired",
            f"10 points apart, discordance 0.3, n={n}",
            share,
            repetitions,
            *_bounds(repetitions),
            promised=True,
        )


def items_and_seeds(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Verdict-like differences with effects of seeds, items and their rest; two-way random effects."""
    repetitions = min(repetitions, 4000)
    for n_seeds in (2, 3, 5, 10):
        for seed_sd, item_sd, rest_sd in ((0.0, 0.3, 0.4), (0.03, 0.3, 0.4), (0.1, 0.3, 0.4), (0.1, 0.0, 0.4)):
            hits = 0
            for _ in range(repetitions):
                table = seed_sd * rng.normal(size=(n_seeds, 1)) + item_sd * rng.normal(size=(1, 300))
                result = over_items_and_seeds(table + rest_sd * rng.normal(size=(n_seeds, 300)))
                hits += result.change.low <= 0.0 <= result.change.high
            setting = f"{n_seeds} seeds x 300 items, sd of seeds {seed_sd}, items {item_sd}"
            yield Row(
                "items and seeds", setting, hits / repetitions, repetitions, COVERAGE[0], 1.0, promised=n_seeds >= 5
            )


def few_items(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Where percentile bootstrap intervals are known to be narrow."""
    for n, discordance in ((10, 0.5), (20, 0.5), (30, 0.3), (50, 0.2), (100, 0.036), (100, 0.02)):
        share = _paired_share(n, discordance, 0.0, repetitions, rng, {})
        yield Row("few items", f"paired verdicts, n={n}, discordance {discordance}", share, repetitions, *COVERAGE)
    note = f"{FEW_REPLICATES} replicates"
    for n, discordance, difference in ((50, 0.1, 0.05), (100, 0.04, 0.03), (500, 0.04, 0.03)):
        share = _paired_share(n, discordance, difference, repetitions, rng, {})
        setting = f"paired verdicts, n={n}, discordance {discordance}, apart {difference}"
        yield Row("few items", setting, share, repetitions, *COVERAGE)
    for n in (5, 10, 20, 50, 100):
        held = 0
        for _ in range(repetitions // 5):
            estimate = bootstrap_mean(rng.beta(0.5, 1.5, size=n), rng, FEW_REPLICATES)
            held += estimate.low <= 0.25 <= estimate.high
        share = held / (repetitions // 5)
        yield Row("few items", f"mean of skewed scores, n={n}", share, repetitions // 5, *COVERAGE, note=note)


def few_runs(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """IQM over 10 tasks of different means, Gaussian runs; the truth is the IQM of very many runs."""
    means = np.linspace(0.2, 0.8, 10)
    many = np.sort((means + rng.normal(0, 0.1, size=(200_000, 10))).ravel())
    truth = float(many[many.size // 4 : -(many.size // 4)].mean())
    n_studies = repetitions
    for n_runs in (3, 5, 10, 20):
        held = 0
        for _ in range(n_studies):
            estimate = iqm(means + rng.normal(0, 0.1, size=(n_runs, 10)), rng, FEW_REPLICATES).estimate
            held += estimate.low <= truth <= estimate.high
        note = f"{FEW_REPLICATES} replicates"
        yield Row("few runs", f"IQM of {n_runs} runs x 10 tasks", held / n_studies, n_studies, *COVERAGE, note=note)


def family_wise_error(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Studies that call any equal pair different."""

    def gaussian(means: NDArray[np.float64], n: int) -> NDArray[np.float64]:
        return means[:, None] + rng.normal(size=(means.size, n))

    def skewed(means: NDArray[np.float64], n: int) -> NDArray[np.float64]:
        return means[:, None] + rng.lognormal(0, 1, size=(means.size, n))

    def unequal(means: NDArray[np.float64], n: int) -> NDArray[np.float64]:
        spreads = np.linspace(0.5, 3, means.size)[:, None]
        return np.asarray(means[:, None] + spreads * rng.normal(size=(means.size, n)))

    cases: tuple[tuple[str, tuple[float, ...], _Draw, bool], ...] = (
        ("5 equal agents, Gaussian", (0, 0, 0, 0, 0), gaussian, True),
        ("5 equal agents, log-normal", (0, 0, 0, 0, 0), skewed, True),
        ("3 equal agents, 2 equal ones 1.5 sd ahead", (0, 0, 0, 1.5, 1.5), gaussian, True),
        ("8 equal agents, Gaussian", (0,) * 8, gaussian, True),
        ("5 agents of equal mean and spreads from 0.5 to 3", (0, 0, 0, 0, 0), unequal, False),
    )
    for setting, means, draw, promised in cases:
        is_full = promised and len(means) == 5
        n_studies = repetitions if is_full else repetitions // 5
        design = DESIGN if is_full else replace(DESIGN, max_permutations=3000)
        study = _adastop_studies(np.array(means, dtype=np.float64), draw, n_studies, design, rng)
        sure = wilson(round(study.false_share * n_studies), n_studies, 0.99)
        power_note = "" if math.isnan(study.power) else f"; pairs that differ found {study.power:.1%}"
        note = f"{n_studies} studies, 99% interval {sure.low:.4f} to {sure.high:.4f}{power_note}"
        allowed = 0.05 + 2.58 * math.sqrt(0.05 * 0.95 / n_studies)
        yield Row("adastop", setting, study.false_share, n_studies, None, allowed, promised, note)


def runs_saved(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """AdaStop beside the same test with all seeds at once: runs, and pairs found."""

    def gaussian(means: NDArray[np.float64], n: int) -> NDArray[np.float64]:
        return means[:, None] + rng.normal(size=(means.size, n))

    n_studies = max(100, repetitions // 5)
    early = AdaStopSettings(n_seeds=5, n_interims=5, beta=0.05, max_permutations=2000)
    cases = (("2 sd apart", (0.0, 2.0, 4.0, 6.0, 8.0)), ("one 2 sd ahead", (0.0, 0.0, 0.0, 0.0, 2.0)))
    fixed = AdaStopSettings(n_seeds=25, n_interims=1, max_permutations=2000)
    for label, means in cases:
        for name, design in (("AdaStop", DESIGN), ("AdaStop, beta 0.05", early), ("fixed 25 seeds", fixed)):
            study = _adastop_studies(np.array(means), gaussian, n_studies, design, rng)
            note = f"pairs that differ found {study.power:.1%}, false {study.false_share:.2%}"
            yield Row("runs saved", f"5 agents, {label}: {name}", study.saved, n_studies, note=note)


def power_table(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Simulated power of exact McNemar beside the computed one; bounds are four simulation errors."""
    for n in (100, 500, 2000):
        for discordance, difference in ((0.1, 0.02), (0.1, 0.05), (0.3, 0.05), (0.3, 0.1)):
            planned = mcnemar_power(n, difference, discordance)
            yield _power_row(n, difference, discordance, planned, repetitions, rng)


SECTIONS: dict[str, Callable[[int, np.random.Generator], Iterator[Row]]] = {
    "Coverage of the Wilson interval": wilson_coverage,
    "Coverage of the paired bootstrap interval (10,000 replicates)": paired_coverage,
    "Coverage of the interval over items and seeds": items_and_seeds,
    "Coverage with few items": few_items,
    "Coverage of the IQM interval with few runs": few_runs,
    f"AdaStop family-wise error, {DESIGN.n_interims} interims of {DESIGN.n_seeds} seeds": family_wise_error,
    "Share of runs saved by AdaStop against 25 seeds for every agent": runs_saved,
    "Power of exact McNemar, simulated": power_table,
}

_Draw = Callable[[NDArray[np.float64], int], NDArray[np.float64]]


def _bounds(repetitions: int) -> tuple[float, float]:
    """What is promised; a run too short to tell gets three simulation errors more."""
    slack = 0.0 if repetitions >= ENOUGH else 3 * math.sqrt(0.05 * 0.95 / repetitions)
    return COVERAGE[0] - slack, COVERAGE[1] + slack


def _paired_share(
    n: int,
    discordance: float,
    difference: float,
    repetitions: int,
    rng: np.random.Generator,
    interval_of: dict[tuple[int, int], tuple[float, float]],
) -> float:
    """Share of paired bootstrap intervals that hold the true difference."""
    up, down = (discordance + difference) / 2, (discordance - difference) / 2
    counts, weights = np.unique(
        rng.multinomial(n, [up, down, 1 - up - down], repetitions)[:, :2], axis=0, return_counts=True
    )
    held = 0
    for (n_up, n_down), weight in zip(counts.tolist(), weights.tolist(), strict=True):
        if (n_up, n_down) not in interval_of:
            scores_a, scores_b = np.zeros(n), np.zeros(n)
            scores_a[:n_up] = 1.0
            scores_b[n_up : n_up + n_down] = 1.0
            result = paired_difference(scores_a, scores_b, rng)
            interval_of[n_up, n_down] = result.change.interval
        low, high = interval_of[n_up, n_down]
        held += weight * (low <= difference <= high)
    return held / repetitions


@dataclass(frozen=True)
class _Studies:
    false_share: float
    """Studies with an equal pair called different, or a pair called the wrong way round."""
    power: float
    """Pairs that differ and were called so."""
    saved: float
    """Share of the design's runs that were not needed."""


def _adastop_studies(
    means: NDArray[np.float64], draw: _Draw, n_studies: int, design: AdaStopSettings, rng: np.random.Generator
) -> _Studies:
    names = [f"a{i}" for i in range(means.size)]
    signs: Callable[[], SignSource] = _shared_signs(rng)
    n_false = n_found = n_runs = 0
    for number in range(n_studies):
        if number % BATCH == 0:
            signs = _shared_signs(rng)
        test = AdaStop(names, design, rng, signs())
        while needs := test.state.needs_seeds:
            scores = draw(means, design.n_seeds)
            n_runs += len(needs) * design.n_seeds
            test.feed({name: scores[names.index(name)] for name in needs})
        is_false = False
        for pair, (a, b) in zip(test.state.pairs, combinations(range(means.size), 2), strict=True):
            truth = (
                SequentialVerdict.EQUAL
                if means[a] == means[b]
                else SequentialVerdict.LARGER
                if means[a] > means[b]
                else SequentialVerdict.SMALLER
            )
            n_found += truth is not SequentialVerdict.EQUAL and pair.verdict is truth
            is_false |= pair.verdict is not SequentialVerdict.EQUAL and pair.verdict is not truth
        n_false += is_false
    n_different = sum(a != b for a, b in combinations(means.tolist(), 2))
    power = n_found / (n_different * n_studies) if n_different else math.nan
    return _Studies(n_false / n_studies, power, 1 - n_runs / (n_studies * means.size * 25))


def _shared_signs(rng: np.random.Generator) -> Callable[[], SignSource]:
    """Sources that replay the same relabellings, interim by interim."""
    sources: list[list[NDArray[np.float64]]] = []
    base = sampled_signs(rng)

    def new_source() -> SignSource:
        place = 0

        def source(n_permutations: int, n_seeds: int) -> Iterator[NDArray[np.float64]]:
            nonlocal place
            if place == len(sources):
                sources.append(list(base(n_permutations, n_seeds)))
            place += 1
            return iter(sources[place - 1])

        return source

    return new_source


def _power_row(
    n: int,
    difference: float,
    discordance: float,
    planned: float,
    repetitions: int,
    rng: np.random.Generator,
) -> Row:
    up, down = (discordance + difference) / 2, (discordance - difference) / 2
    samples = rng.multinomial(n, [up, down, 1 - up - down], repetitions)[:, :2]
    counts, weights = np.unique(np.sort(samples, axis=1), axis=0, return_counts=True)
    significant = np.array([mcnemar_p(a, b) <= 0.05 for a, b in counts.tolist()])
    share = float(weights[significant].sum() / repetitions)
    error = 4 * math.sqrt(max(planned * (1 - planned), 1 / repetitions) / repetitions)
    setting = f"n={n} difference={difference} discordance={discordance}"
    note = f"computed {planned:.4f}"
    return Row("power", setting, share, repetitions, planned - error, planned + error, promised=True, note=note)


if __name__ == "__main__":
    sys.exit(main())
