"""How much a benchmark tells: signal against noise, decision accuracy, signal early in training.

Promises: models, checkpoints and subtasks keep their axes; too few of them raises NotEnoughData. Scores must
be finite and on one scale; ratios to a mean need that mean to be positive.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from agent2.errors import NotEnoughData
from agent2.stats.estimates import CHUNK_ELEMENTS, Estimate, finite_vector, interval


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


@dataclass(frozen=True, slots=True)
class SubtaskChoice:
    """The subtasks worth keeping."""

    keep: tuple[int, ...]
    """Indices of subtasks, highest SNR first."""
    ratio: float
    """SNR of the mean over the kept subtasks."""
    ratio_all: float
    """SNR of the mean over all of them."""
    ratios_S: NDArray[np.float64]
    """SNR of each subtask alone."""

    def __str__(self) -> str:
        return f"keep {len(self.keep)} of n={self.ratios_S.size} subtasks: SNR {self.ratio_all:.3g} -> {self.ratio:.3g}"


@dataclass(frozen=True, slots=True)
class EarlySignal:
    """What early checkpoints say, each part between -1 and 1."""

    monotonicity: float
    """Spearman correlation of step and score, averaged over models."""
    smoothness: float
    """1 - standard deviation of steps between checkpoints / range, averaged over models, not below -1."""
    rank_consistency: float
    """Kendall tau-b of the models at the early and at the last checkpoint."""
    n_models: int
    n_checkpoints: int

    def __str__(self) -> str:
        return (
            f"monotonicity {self.monotonicity:+.3f}, smoothness {self.smoothness:+.3f}, rank consistency "
            f"{self.rank_consistency:+.3f} (n={self.n_models} models x {self.n_checkpoints} checkpoints)"
        )


def signal_to_noise(final_scores_M: ArrayLike, last_scores_RC: ArrayLike) -> SignalToNoise:
    """Signal-to-noise ratio of a benchmark.

    final_scores_M: final score of each comparable model (at least 2). last_scores_RC: runs x last checkpoints
    (at least 2) of each run; a vector is one run. Noise is (unbiased) standard deviation / mean of each run,
    averaged over runs. Range 0 to infinity. Nothing moves and nothing differs: 0. Raises NotEnoughData for
    too few or missing values, ValueError if a mean is not positive.
    Source: Signal and Noise (PAPERS #46); noise over the last checkpoints as in the authors' public code; the
    dispersion (max - min) / mean as generally known, not checked against the paper.
    """
    final = finite_vector(final_scores_M, "final_scores_M")
    last = _matrix(last_scores_RC, "last_scores_RC")
    if final.size < 2 or last.shape[1] < 2:
        raise NotEnoughData(f"SNR needs at least 2 models and 2 last checkpoints, got {final.size} and {last.shape[1]}")
    signal, noise = _parts(final[:, None], last[:, :, None])
    ratio = _ratio(signal, noise)
    return SignalToNoise(float(ratio[0]), float(signal[0]), float(noise[0]), final.size, *last.shape)


def choose_subtasks(final_scores_MS: ArrayLike, last_scores_CS: ArrayLike) -> SubtaskChoice:
    """Leave out subtasks that add more noise than signal.

    final_scores_MS: models x subtasks. last_scores_CS: last checkpoints of one run x subtasks. Subtasks are
    added from the highest SNR down; of these suites (mean over subtasks), the one of highest SNR is kept, the
    larger one of equals. The choice is made on the data it is judged by: check it on other models. Raises as
    `signal_to_noise` does, ValueError if the numbers of subtasks differ.
    Source: the cumulative-SNR filter of Signal and Noise (PAPERS #46).
    """
    final, last = _matrix(final_scores_MS, "final_scores_MS"), _matrix(last_scores_CS, "last_scores_CS")
    if final.shape[1] != last.shape[1]:
        raise ValueError(f"final_scores_MS has {final.shape[1]} subtasks, last_scores_CS {last.shape[1]}")
    if final.shape[0] < 2 or last.shape[0] < 2:
        raise NotEnoughData(
            f"SNR needs at least 2 models and 2 last checkpoints, got {final.shape[0]} and {last.shape[0]}"
        )
    ratios = _ratio(*_parts(final, last[None]))
    order = np.argsort(-ratios, kind="stable")
    sizes = np.arange(1, order.size + 1)
    suites = _ratio(*_parts(np.cumsum(final[:, order], 1) / sizes, np.cumsum(last[:, order], 1)[None] / sizes))
    best = int(order.size - 1 - np.argmax(suites[::-1]))
    return SubtaskChoice(tuple(int(s) for s in order[: best + 1]), float(suites[best]), float(suites[-1]), ratios)


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
    Source: Signal and Noise (PAPERS #46); ties are our convention.
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
        drawn = slice(start, start + len(counts))
        np.divide(agreeing, different, out=replicates[drawn], where=different > 0)
    low, high = interval(replicates[np.isfinite(replicates)], confidence)
    return Estimate(float(agrees_MM.sum() / (n * (n - 1))), low, high, n, "decision accuracy, bootstrap over models")


def early_signal(scores_MC: ArrayLike, steps_C: ArrayLike, n_early: int) -> EarlySignal:
    """Whether a benchmark already tells models apart early in training.

    scores_MC: models x checkpoints. steps_C: their training steps, increasing. The early checkpoint is the
    n_early-th. A model whose score never moves has monotonicity and smoothness 0; a constant ranking has
    rank consistency 0. Raises NotEnoughData for fewer than 2 models or 3 checkpoints, ValueError for steps
    that do not increase or an n_early that is not before the last checkpoint.
    Source: E2LM competition (PAPERS #35) for the three ideas; the formulas are ours.
    """
    scores, steps = _matrix(scores_MC, "scores_MC"), finite_vector(steps_C, "steps_C")
    n_models, n_checkpoints = scores.shape
    if n_models < 2 or n_checkpoints < 3:
        raise NotEnoughData(f"early signal needs 2 models and 3 checkpoints, got {n_models} and {n_checkpoints}")
    if steps.size != n_checkpoints or np.any(np.diff(steps) <= 0):
        raise ValueError(f"steps_C must be {n_checkpoints} increasing numbers, one for each checkpoint")
    if not 1 <= n_early < n_checkpoints:
        raise ValueError(f"n_early={n_early} must be between 1 and {n_checkpoints - 1}")
    span = np.ptp(scores, axis=1)
    moves = span > 0
    monotonicity, smoothness = np.zeros(n_models), np.zeros(n_models)
    for model in np.flatnonzero(moves):
        monotonicity[model] = stats.spearmanr(steps, scores[model]).statistic
    smoothness[moves] = np.maximum(1.0 - np.diff(scores[moves], axis=1).std(axis=1) / span[moves], -1.0)
    early, last = scores[:, n_early - 1], scores[:, -1]
    tau = float(stats.kendalltau(early, last).statistic) if np.ptp(early) > 0 and np.ptp(last) > 0 else 0.0
    return EarlySignal(float(monotonicity.mean()), float(smoothness.mean()), tau, n_models, n_checkpoints)


def _matrix(values: ArrayLike, what: str) -> NDArray[np.float64]:
    matrix = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if matrix.ndim != 2:
        raise ValueError(f"{what} must have two axes, got an array of shape {matrix.shape}")
    finite_vector(matrix.ravel(), what)
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
