"""Quality of a benchmark, its verifier and its raters: separability, calibration, boundaries, audit, agreement.

`agent2 tasks check` audits verifiers, `agent2 judge` reports agreement, `agent2 bench pilot` calibrates a draft; the
rest is for use from Python (docs/statistics.md).

Promises: models, checkpoints and subtasks keep their axes; too few of them raises NotEnoughData; scores must be finite
and on one scale. A pilot needs at least three baselines (a supervised model, the previous production model, a strong
model), and its verdict says how many scores were missing. pass@1 and pass@k are shown together, so that sharpening
(only pass@1 rises) is not mistaken for new ability. The problem is the unit of a verifier audit; a solution that was
not run is not counted as refused. Agreement of raters comes with bootstraps over items; a missing rating is None, never
a category of its own.

Does NOT distinguish a benchmark that is too hard from a scorer that is broken (look at an oracle's score). A verifier
audit covers no more than the variety of the known-wrong solutions.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.attempts import pass_at_k_by_item
from agent2.stats.comparisons import paired_difference
from agent2.stats.estimates import (
    CHUNK_ELEMENTS,
    UNIT,
    Estimate,
    PairedDifference,
    finite_vector,
    interval,
    measure,
    ratio_of_sums,
    wilson,
)

MIN_BASELINES = 3
NEAR = 0.05
"""All rates within this of 0 or 1 count as "near 0" or "near 100%"."""
HEALTHY = (0.40, 0.80)
"""Where the main model's rate should lie."""
LEVEL = 0.05
"""p-values from here on show no change."""
REPLICATES = 2000
Ratings = Sequence[Hashable | None]
"""One category for each item, None where the rater gave none."""


@dataclass(frozen=True, slots=True)
class SignalToNoise:
    """How far models lie apart, in units of how much one model moves at the end of its training."""

    ratio: float
    """Infinite if nothing moves but models differ; 0 if they do not differ."""
    signal: float
    """(largest - smallest) / mean of the final scores."""
    noise: float
    """Standard deviation / mean of the last checkpoints, averaged over runs."""
    n_models: int
    n_runs: int
    n_checkpoints: int

    def __str__(self) -> str:
        return (
            f"SNR {self.ratio:.3g} (signal {self.signal:.4f}, noise {self.noise:.4f}; n={self.n_models} models, "
            f"{self.n_runs} runs x {self.n_checkpoints} last checkpoints)"
        )


def signal_to_noise(final_scores_M: ArrayLike, last_scores_RC: ArrayLike) -> SignalToNoise:
    """Signal-to-noise ratio of a benchmark.

    final_scores_M: final score of each comparable model (at least 2). last_scores_RC: runs x last checkpoints
    (at least 2) of each run; a vector is one run. Noise is (unbiased) standard deviation / mean of each run,
    averaged over runs. Range 0 to infinity. Nothing moves and nothing differs: 0. Raises NotEnoughData for
    too few or missing values, ValueError if a mean is not positive.
    Source: "Signal and Noise: A Framework for Reducing Uncertainty in Language Model Evaluation"; noise over the last
    checkpoints as in the authors' public code; the dispersion (max - min) / mean as generally known, not checked
    against the paper.
    """
    final = finite_vector(final_scores_M, "final_scores_M")
    last = _matrix(last_scores_RC, "last_scores_RC")
    if final.size < 2 or last.shape[1] < 2:
        raise NotEnoughData(f"SNR needs at least 2 models and 2 last checkpoints, got {final.size} and {last.shape[1]}")
    signal, noise = _parts(final[:, None], last[:, :, None])
    ratio = _ratio(signal, noise)
    return SignalToNoise(float(ratio[0]), float(signal[0]), float(noise[0]), final.size, *last.shape)


def decision_accuracy(
    small_scores_M: ArrayLike,
    target_scores_M: ArrayLike,
    rng: np.random.Generator,
    n_replicates: int = 2000,
    confidence: float = 0.95,
) -> Estimate:
    """Share of model pairs that small scale ranks as the target scale does; range 0 to 1, 0.5 is chance.

    One score a model at each scale, in one order; at least 2 models. A pair tied at both scales agrees; tied
    at one of them it counts half. The interval is a percentile bootstrap over models (pairs of a model with
    itself left out): too narrow for few models, and of width 0 when all pairs agree. Raises NotEnoughData for
    fewer than 2 models or missing scores, ValueError for unequal lengths or n_replicates < 1.
    Source: "Signal and Noise: A Framework for Reducing Uncertainty in Language Model Evaluation"; ties are our
    convention.
    """
    small, target = finite_vector(small_scores_M, "small_scores_M"), finite_vector(target_scores_M, "target_scores_M")
    if small.size != target.size:
        raise ValueError(f"small_scores_M has {small.size} models, target_scores_M {target.size}; pair them first")
    if small.size < 2:
        raise NotEnoughData("decision accuracy needs at least 2 models, got 1")
    if n_replicates < 1:
        raise ValueError(f"n_replicates={n_replicates} must be at least 1")
    order_small = np.sign(small[:, None] - small)
    order_target = np.sign(target[:, None] - target)
    agrees_MM = 1.0 - 0.5 * np.abs(order_small - order_target)
    np.fill_diagonal(agrees_MM, 0.0)
    n = small.size
    replicates = np.full(n_replicates, math.nan)
    rows = max(1, CHUNK_ELEMENTS // n)
    for start in range(0, n_replicates, rows):
        counts = rng.multinomial(n, np.full(n, 1.0 / n), size=min(rows, n_replicates - start)).astype(np.float64)
        different = n * n - (counts**2).sum(axis=1)
        agreeing = ((counts @ agrees_MM) * counts).sum(axis=1)
        block = slice(start, start + len(counts))
        np.divide(agreeing, different, out=replicates[block], where=different > 0)
    low, high = interval(replicates[np.isfinite(replicates)], confidence)
    value = float(agrees_MM.sum() / (n * (n - 1)))
    return Estimate(value, low, high, n, method="decision accuracy, bootstrap over models")


def _matrix(values: ArrayLike, name: str) -> NDArray[np.float64]:
    matrix = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have two axes, got an array of shape {matrix.shape}")
    finite_vector(matrix.ravel(), name)
    return matrix


def _parts(
    final_MS: NDArray[np.float64], last_RCS: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Signal and noise of each subtask."""
    mean_S, mean_RS = final_MS.mean(axis=0), last_RCS.mean(axis=1)
    if np.any(mean_S <= 0) or np.any(mean_RS <= 0):
        raise ValueError("signal and noise are relative to mean scores, and one is not positive; shift the scale first")
    return np.ptp(final_MS, axis=0) / mean_S, (last_RCS.std(axis=1, ddof=1) / mean_RS).mean(axis=0)


def _ratio(signal: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    ratio = np.where(signal > 0, np.inf, 0.0)
    np.divide(signal, noise, out=ratio, where=noise > 0)
    return ratio


@dataclass(frozen=True, slots=True)
class PairShare:
    """A number averaged over pairs of models."""

    value: float
    n_models: int
    n_pairs: int
    method: str
    n_separated: int
    """Pairs that the intervals separate."""

    def __str__(self) -> str:
        return (
            f"{self.value:.4f} (n={self.n_pairs} pairs of {self.n_models} models, "
            f"{self.n_separated} separated, {self.method})"
        )


def separability(low_N: ArrayLike, high_N: ArrayLike) -> PairShare:
    """Share of the pairs of models whose intervals do not overlap; touching intervals overlap. 0-1.

    low_N, high_N: ends of one interval a model. Raises NotEnoughData for fewer than two models or ends that are
    not finite, ValueError for unequal lengths or a low end above the high one.
    Source: Li et al. 2024 (Arena-Hard), arXiv:2406.11939.
    """
    order = _separated(low_N, high_N)
    n_separated = int(np.count_nonzero(order))
    return PairShare(n_separated / order.size, _models(order), order.size, "separability", n_separated)


def _separated(low_N: ArrayLike, high_N: ArrayLike) -> NDArray[np.int64]:
    """For each pair: 1 if the first lies above the second, -1 if below, 0 if their intervals overlap."""
    low, high = finite_vector(low_N, "low_N"), finite_vector(high_N, "high_N")
    if low.size != high.size:
        raise ValueError(f"low_N has {low.size} models, high_N {high.size}; give both ends of each")
    if np.any(low > high):
        model = int(np.flatnonzero(low > high)[0])
        raise ValueError(f"model {model} has the interval {low[model]:g} to {high[model]:g}; low must not exceed high")
    first, second = _pairs(low.size)
    order: NDArray[np.int64] = (low[first] > high[second]).astype(np.int64) - (low[second] > high[first])
    return order


def _pairs(n_models: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    if n_models < 2:
        raise NotEnoughData(f"{n_models} models make no pair; at least 2 are needed")
    first, second = np.triu_indices(n_models, k=1)
    return first, second


def _models(pairs: NDArray[np.int64]) -> int:
    """The number of models that make so many pairs."""
    return (1 + int(np.sqrt(1 + 8 * pairs.size) + 0.5)) // 2


class Health(StrEnum):
    """Verdict on a benchmark's difficulty."""

    TOO_HARD = "too hard or scorer broken"
    OUTDATED = "outdated"
    HEALTHY = "healthy"
    MAIN_TOO_LOW = "main model below 40%"
    MAIN_TOO_HIGH = "main model above 80%"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of a pilot."""

    health: Health
    rates: Mapping[str, Estimate]
    """Baseline -> rate with interval over items, and how many of them had no score."""
    main: str
    spread: float
    """Highest - lowest rate: the range in which the benchmark separates baselines."""

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
    "Near" is our reading of the sources.
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


class BoundaryChange(StrEnum):
    """What training changed; a change is shown where its interval excludes 0 and its p-value is below 0.05."""

    EXPANSION = "expansion"
    """pass@k rose."""
    SHARPENING = "sharpening"
    """pass@1 rose, and pass@k is not shown to have risen."""
    NARROWING = "narrowing"
    """pass@k fell, whatever pass@1 did."""
    NONE_SHOWN = "no change shown"


@dataclass(frozen=True, slots=True)
class BoundaryReport:
    """A trained model beside its base, on the same items."""

    k: int
    pass_at_1: PairedDifference
    """Trained - base."""
    pass_at_k: PairedDifference
    expansion: Estimate | None
    """Chance that the trained model solves, within k, an item the base never solved; None if there is none."""
    shrinkage: Estimate | None
    """Chance that the trained model, within k, does not solve an item the base solved; None if there is none."""
    change: BoundaryChange

    def __str__(self) -> str:
        return (
            f"{self.change}: pass@1 {self.pass_at_1}; pass@{self.k} {self.pass_at_k}; "
            f"expansion {self.expansion or 'none to gain'}; shrinkage {self.shrinkage or 'none to lose'}"
        )


def compare_boundaries(
    base: tuple[ArrayLike, ArrayLike],
    trained: tuple[ArrayLike, ArrayLike],
    k: int,
    rng: np.random.Generator,
    n_replicates: int = 10_000,
) -> BoundaryReport:
    """pass@1, pass@k, expansion and shrinkage of a trained model against its base.

    base, trained: (correct, attempts) of each item, in one order of items; at least k attempts each. The base
    never solved an item if none of its attempts did, so expansion is only as strict as the base's attempts
    are many: with few, part of it is luck, and likewise for shrinkage. Intervals are over items. k > 1.
    Raises NotEnoughData for fewer than k attempts or no items, ValueError for counts that cannot be.
    Source: pass@k of Chen et al. 2021, arXiv:2107.03374, eq. 1; expansion as in "MATH-Beyond: A Benchmark for RL to
    Expand Beyond the Base Model"; shrinkage as generally known, not checked against the paper.
    """
    if k < 2:
        raise ValueError(f"k={k} must be at least 2; pass@1 is always reported beside it")
    base_1, base_k = (pass_at_k_by_item(*base, j) for j in (1, k))
    trained_1, trained_k = (pass_at_k_by_item(*trained, j) for j in (1, k))
    if base_1.size != trained_1.size:
        raise ValueError(f"base has {base_1.size} items, trained {trained_1.size}; pair them item by item first")
    gain_1 = paired_difference(trained_1, base_1, rng, n_replicates)
    gain_k = paired_difference(trained_k, base_k, rng, n_replicates)
    never = base_1 == 0  # items that no attempt of the base solved
    expansion = measure(trained_k[never], "expansion", UNIT) if never.any() else None
    shrinkage = measure(1.0 - trained_k[~never], "shrinkage", UNIT) if not never.all() else None
    return BoundaryReport(k, gain_1, gain_k, expansion, shrinkage, _change(gain_1, gain_k))


def _change(gain_1: PairedDifference, gain_k: PairedDifference) -> BoundaryChange:
    moves_k = gain_k.p_value < LEVEL  # the interval of few equal differences has no width
    low, high = gain_k.change.interval
    if low > 0 and moves_k:
        return BoundaryChange.EXPANSION
    if high < 0 and moves_k:
        return BoundaryChange.NARROWING
    has_risen = gain_1.change.interval[0] > 0 and gain_1.p_value < LEVEL
    return BoundaryChange.SHARPENING if has_risen else BoundaryChange.NONE_SHOWN


@dataclass(frozen=True, slots=True)
class AuditedProblem:
    """Verdicts of one problem's tests on solutions that are known to be wrong or correct."""

    wrong_fails_WT: ArrayLike
    """Wrong solutions x tests: true where the test fails the solution."""
    correct_fails_CT: ArrayLike | None = None
    """Correct solutions x the same tests; None if there is none."""


@dataclass(frozen=True, slots=True)
class VerifierAudit:
    """How well the tests of a set of problems verify."""

    detection_rate: Estimate
    """Share of wrong solutions that some test fails; interval over problems."""
    accuracy: Estimate
    """Share of problems whose tests refuse every wrong solution and accept every correct one."""
    false_alarms: int
    """Correct solutions refused."""
    n_correct: int
    n_wrong: int
    accuracy_by_tests_T: NDArray[np.float64]
    """Expected accuracy with 1, 2, ... tests drawn at random from each problem's (all of them where fewer)."""
    area: float
    """Mean of that curve."""

    def __str__(self) -> str:
        return (
            f"verifier accuracy {self.accuracy}; detection rate {self.detection_rate} of {self.n_wrong} wrong; "
            f"{self.false_alarms} of {self.n_correct} correct refused; area over tests {self.area:.4f}"
        )


def audit_verifier(problems: Sequence[AuditedProblem], rng: np.random.Generator, n_orders: int = 200) -> VerifierAudit:
    """Detection rate and verifier accuracy, and how accuracy grows with the number of tests.

    problems: at least one, each with at least one wrong solution and one test. rng draws n_orders random
    orders of each problem's tests for the curve. Raises NotEnoughData for no problem, no wrong solution or no
    test, ValueError for verdicts that are not 0/1 (drop solutions that were not run) or unequal numbers of
    tests.
    Source: "Rethinking Verification for LLM Code Generation: From Generation to Testing" (SAGA) for the names
    detection rate and verifier accuracy; definitions as generally known, not checked against the paper.
    """
    if not problems:
        raise NotEnoughData("a verifier audit needs at least one problem with known-wrong solutions")
    if n_orders < 1:
        raise ValueError(f"n_orders={n_orders} must be at least 1")
    checked = [_checked(problem, number) for number, problem in enumerate(problems)]
    detected = np.array([int(wrong.any(axis=1).sum()) for wrong, _ in checked], dtype=np.float64)
    n_wrong = np.array([len(wrong) for wrong, _ in checked], dtype=np.float64)
    alarms = np.array([int(correct.any(axis=1).sum()) for _, correct in checked])
    n_right = int(np.count_nonzero((detected == n_wrong) & (alarms == 0)))
    n_tests = max(wrong.shape[1] for wrong, _ in checked)
    curve = np.zeros(n_tests)
    for wrong, correct in checked:
        curve += _accuracy_by_tests(wrong, correct, n_tests, n_orders, rng)
    curve /= len(checked)
    n_correct = sum(len(correct) for _, correct in checked)
    return VerifierAudit(
        ratio_of_sums(detected, n_wrong, "detection rate"),
        wilson(n_right, len(checked)),
        int(alarms.sum()),
        n_correct,
        int(n_wrong.sum()),
        curve,
        float(curve.mean()),
    )


def _accuracy_by_tests(
    wrong_WT: NDArray[np.bool_], correct_CT: NDArray[np.bool_], length: int, n_orders: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Chance that t tests drawn without replacement judge every solution right, for t = 1 to length."""
    n_tests = wrong_WT.shape[1]
    right = np.zeros(n_tests)
    for _ in range(n_orders):
        order = rng.permutation(n_tests)
        first_W = np.where(wrong_WT.any(axis=1), wrong_WT[:, order].argmax(axis=1), n_tests)
        all_caught_at = int(first_W.max())
        fails_T = correct_CT[:, order].any(axis=0)
        first_alarm = int(fails_T.argmax()) if fails_T.any() else n_tests
        right[all_caught_at:first_alarm] += 1.0
    return np.pad(right / n_orders, (0, length - n_tests), mode="edge")


def _checked(problem: AuditedProblem, number: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    wrong = _verdicts(problem.wrong_fails_WT, f"problem {number}: wrong_fails_WT")
    if problem.correct_fails_CT is None:
        return wrong, np.zeros((0, wrong.shape[1]), dtype=np.bool_)
    correct = _verdicts(problem.correct_fails_CT, f"problem {number}: correct_fails_CT")
    if wrong.shape[1] != correct.shape[1]:
        raise ValueError(
            f"problem {number}: wrong solutions saw {wrong.shape[1]} tests, correct ones {correct.shape[1]}; "
            "run both on the same tests"
        )
    return wrong, correct


def _verdicts(values: ArrayLike, name: str) -> NDArray[np.bool_]:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise NotEnoughData(f"{name} must be solutions x tests with one of each at least, got shape {matrix.shape}")
    if not np.isin(matrix, (0.0, 1.0)).all():
        raise ValueError(f"{name} holds values other than 0 and 1; leave out solutions that were not run")
    return matrix.astype(np.bool_)


@dataclass(frozen=True, slots=True)
class SharedErrors:
    """How often two raters are wrong on the same items."""

    both_wrong: Estimate
    expected: float
    """Share of items on which both would be wrong if their errors were independent."""
    correlation: float | None
    """Phi coefficient of the two errors; None: one rater made none, or only errors."""


def cohens_kappa(ratings_a: Ratings, ratings_b: Ratings, seed: int = 0) -> Estimate:
    """Agreement of two raters beyond chance: 1 is perfect, 0 is chance. Items that either left out are missing.

    Raises ValueError for different lengths, NotEnoughData without an item rated by both, or where both gave one and the
    same category to all. Source: Cohen 1960, Educational and Psychological Measurement 20:37-46.
    """
    if len(ratings_a) != len(ratings_b):
        raise ValueError(
            f"kappa needs one rating of each rater for each item, got {len(ratings_a)} and {len(ratings_b)}"
        )
    pairs = [(a, b) for a, b in zip(ratings_a, ratings_b, strict=True) if a is not None and b is not None]
    if not pairs:
        raise NotEnoughData("kappa: no item was rated by both")
    categories = {value: code for code, value in enumerate(dict.fromkeys(value for pair in pairs for value in pair))}
    if len(categories) == 1:
        raise NotEnoughData("kappa: both raters gave the same category to all items; nothing can be said beyond chance")
    codes = np.array([[categories[a], categories[b]] for a, b in pairs])

    def kappa(chosen: NDArray[np.int64]) -> float:
        table = np.zeros((len(categories), len(categories)))
        np.add.at(table, (chosen[:, 0], chosen[:, 1]), 1.0)
        table /= table.sum()
        expected = float(table.sum(axis=1) @ table.sum(axis=0))
        return float("nan") if expected == 1.0 else (float(np.trace(table)) - expected) / (1.0 - expected)

    return _bootstrapped(kappa, codes, len(ratings_a) - len(pairs), seed)


def krippendorff_alpha(ratings_RI: Sequence[Ratings], seed: int = 0) -> Estimate:
    """Agreement of any number of raters on nominal categories; ratings may be missing.

    ratings_RI: one sequence for each rater, of equal lengths. Items with fewer than two ratings are missing. Raises
    ValueError for other lengths, NotEnoughData without an item rated twice, or with one category only.
    Source: Krippendorff 2011, Computing Krippendorff's Alpha-Reliability.
    """
    if len({len(ratings) for ratings in ratings_RI}) != 1:
        raise ValueError("alpha needs as many ratings of each rater; put None where one is missing")
    values = dict.fromkeys(value for ratings in ratings_RI for value in ratings if value is not None)
    categories = {value: column for column, value in enumerate(values)}
    counts = np.zeros((len(ratings_RI[0]), len(categories)))
    for ratings in ratings_RI:
        for item, value in enumerate(ratings):
            if value is not None:
                counts[item, categories[value]] += 1.0
    pairable = counts[counts.sum(axis=1) >= 2]
    if not pairable.size or (pairable.sum(axis=0) > 0).sum() < 2:
        raise NotEnoughData("alpha: needs items rated at least twice, with at least two categories")

    def alpha(chosen: NDArray[np.float64]) -> float:
        n_ratings = chosen.sum(axis=1)
        observed = ((chosen * (chosen - 1.0)).sum(axis=1) / (n_ratings - 1.0)).sum()
        totals, n = chosen.sum(axis=0), chosen.sum()
        expected = (totals * (totals - 1.0)).sum() / (n - 1.0)
        return float("nan") if n == expected else 1.0 - (n - observed) / (n - expected)

    return _bootstrapped(alpha, pairable, len(counts) - len(pairable), seed)


def preference_tau(points_a: Sequence[float | None], points_b: Sequence[float | None], seed: int = 0) -> Estimate:
    """Kendall's tau-b of two raters' points for the first of two answers: 1 the same order, 0 none, -1 reversed.

    points_a, points_b: 0 to 1 for each pair of answers, None where there is no verdict. Each pair counts from both
    sides, so it does not matter which answer is the first; for verdicts without ties this is twice the accuracy less 1.
    Raises ValueError for different lengths, NotEnoughData without a pair rated by both, or if either rater gave only
    ties.
    Source: Kendall 1945, Biometrika 33:239-251.
    """
    if len(points_a) != len(points_b):
        raise ValueError(f"tau needs one number of each rater for each pair, got {len(points_a)} and {len(points_b)}")
    rated = np.array(
        [(a, b) for a, b in zip(points_a, points_b, strict=True) if a is not None and b is not None], dtype=float
    )
    if not rated.size or (rated == 0.5).all(axis=0).any():
        raise NotEnoughData("tau: no pair was rated by both, or one rater gave nothing but ties")
    sides_PSR = np.stack([rated, 1.0 - rated], axis=1).round(12)  # 1 - 0.7 is not 0.3 in floats: ties must stay ties
    values, codes = zip(*(np.unique(sides_PSR[:, :, rater], return_inverse=True) for rater in (0, 1)), strict=True)
    n_values = [len(distinct) for distinct in values]
    cells_PS = codes[0].reshape(-1, 2) * n_values[1] + codes[1].reshape(-1, 2)

    def tau(chosen: NDArray[np.int64]) -> float:
        table = np.bincount(chosen.ravel(), minlength=n_values[0] * n_values[1]).reshape(n_values).astype(float)
        above = table.cumsum(axis=0) - table
        same_order = above.cumsum(axis=1) - above
        other_order = above.sum(axis=1, keepdims=True) - above.cumsum(axis=1)
        pairs = [float((n * (n - 1.0)).sum()) / 2 for n in (table.sum(), table.sum(axis=1), table.sum(axis=0))]
        untied = (pairs[0] - pairs[1]) * (pairs[0] - pairs[2])
        return float((table * (same_order - other_order)).sum()) / math.sqrt(untied) if untied > 0 else math.nan

    return _bootstrapped(tau, cells_PS, len(points_a) - len(rated), seed)


def shared_errors(wrong_a: Sequence[bool | None], wrong_b: Sequence[bool | None], seed: int = 0) -> SharedErrors:
    """Whether two raters are wrong on the same items.

    wrong_a, wrong_b: whether each is wrong on an item, None where that is not known.
    Raises ValueError for different lengths, NotEnoughData without an item that both rated.
    """
    if len(wrong_a) != len(wrong_b):
        raise ValueError(
            f"shared errors need one value of each rater for each item, got {len(wrong_a)} and {len(wrong_b)}"
        )
    pairs = np.array(
        [(a, b) for a, b in zip(wrong_a, wrong_b, strict=True) if a is not None and b is not None], dtype=float
    )
    if not pairs.size:
        raise NotEnoughData("shared errors: no item was rated by both")
    rates, spread = pairs.mean(axis=0), pairs.std(axis=0)
    together = pairs.prod(axis=1)
    both_wrong = _bootstrapped(lambda chosen: float(chosen.mean()), together, len(wrong_a) - len(pairs), seed)
    covariance = float(together.mean() - rates.prod())
    return SharedErrors(both_wrong, float(rates.prod()), covariance / float(spread.prod()) if spread.all() else None)


def _bootstrapped(
    statistic: Callable[[NDArray[Any]], float], rows: NDArray[Any], n_missing: int, seed: int
) -> Estimate:
    rng = np.random.default_rng(seed)
    draws = [statistic(rows[rng.integers(len(rows), size=len(rows))]) for _ in range(REPLICATES)]
    low, high = np.nanquantile(draws, [0.025, 0.975])
    return Estimate(statistic(rows), float(low), float(high), len(rows), n_missing, "bootstrap over items")
