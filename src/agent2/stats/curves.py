"""Compute-performance curves: a sigmoid fit of one run, and whether its extrapolation can be believed.

Promises: the fit obeys its bounds (asymptote between the start and the ceiling, efficiency and midpoint
positive); a parameter that the data do not pin down has an interval as wide as its bounds. Does NOT cover the
spread over seeds, and assumes independent residuals: consecutive checkpoints of one run are not, so the
intervals are too narrow by an unknown amount. Trust the extrapolation check more than the intervals.
"""

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

from agent2.errors import NotEnoughData
from agent2.stats.estimates import finite_vector

N_PARAMETERS = 3
EFFICIENCY_BOUNDS = (0.01, 20.0)
MIDPOINT_SPAN = 1e3
"""The midpoint is looked for up to this factor outside the observed compute."""


@dataclass(frozen=True, slots=True)
class CurveParameter:
    """One fitted number with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True, slots=True)
class SigmoidFit:
    """R(C) = start + (asymptote - start) / (1 + (midpoint / C) ** efficiency)."""

    start: float
    """Score without compute; given, not fitted."""
    asymptote: CurveParameter
    efficiency: CurveParameter
    midpoint: CurveParameter
    rmse: float
    """Root mean square residual of the points fitted."""
    n: int
    """Points fitted."""

    def predict(self, compute_P: ArrayLike) -> NDArray[np.float64]:
        """Score at each amount of compute; the amounts must be positive."""
        values = (self.asymptote.value, self.efficiency.value, math.log(self.midpoint.value))
        return _sigmoid(np.log(_positive(compute_P)), self.start, *values)

    def __str__(self) -> str:
        return (
            f"asymptote {self.asymptote}, efficiency {self.efficiency}, midpoint {self.midpoint} "
            f"(n={self.n}, rmse {self.rmse:.4f}, sigmoid from {self.start:.4g})"
        )


@dataclass(frozen=True, slots=True)
class ExtrapolationCheck:
    """A fit to the first part of a run against what came later."""

    fit: SigmoidFit
    n_held: int
    """Points predicted."""
    bias: float
    """Mean of predicted - observed."""
    rmse: float
    largest: float
    """Largest absolute error."""
    tolerance: float

    @property
    def is_good(self) -> bool:
        """The rmse of the predicted part is within the tolerance."""
        return self.rmse <= self.tolerance

    def __str__(self) -> str:
        verdict = "holds" if self.is_good else "fails"
        return (
            f"extrapolation {verdict}: rmse {self.rmse:.4f} (allowed {self.tolerance:.4f}), bias {self.bias:+.4f}, "
            f"largest {self.largest:.4f} (fitted n={self.fit.n}, predicted n={self.n_held})"
        )


def fit_sigmoid(
    compute_P: ArrayLike,
    scores_P: ArrayLike,
    start: float | None = None,
    skip_fraction: float = 0.1,
    ceiling: float = 1.0,
    confidence: float = 0.95,
) -> SigmoidFit:
    """Least-squares sigmoid of score against log compute.

    compute_P: positive, increasing amounts (steps, GPU hours). scores_P: score at each. start: score without
    compute, default the first score. skip_fraction: share of points at the front left out of the fit. The
    asymptote is between start and ceiling. Intervals are t intervals from the covariance at the optimum,
    cut at the bounds. Raises NotEnoughData if fewer than 5 points remain or values are missing, ValueError
    for compute that does not increase, scores all equal, or a start at or above the ceiling or the best score.
    Source: ScaleRL (PAPERS #8): sigmoid [A], three parameters and the skipped part [P]; this exact form as
    generally known, not checked against the paper.
    """
    compute, scores = _positive(compute_P), finite_vector(scores_P, "scores_P")
    if compute.size != scores.size:
        raise ValueError(f"compute_P has {compute.size} points, scores_P {scores.size}; they must match")
    if np.any(np.diff(compute) <= 0):
        raise ValueError("compute_P must increase from point to point")
    if not 0.0 <= skip_fraction < 1.0 or not 0.0 < confidence < 1.0:
        raise ValueError(f"skip_fraction={skip_fraction} and confidence={confidence} must be between 0 and 1")
    begin = float(scores[0]) if start is None else start
    skipped = math.floor(skip_fraction * compute.size)
    logs, used = np.log(compute[skipped:]), scores[skipped:]
    if used.size < N_PARAMETERS + 2:
        raise NotEnoughData(f"a sigmoid needs at least {N_PARAMETERS + 2} points after skipping, got {used.size}")
    if not begin < ceiling or not begin < used.max():
        raise ValueError(f"no score rises above the start {begin:.4g}, or it is not below the ceiling {ceiling:.4g}")
    span = math.log(MIDPOINT_SPAN)
    lower = np.array([begin, EFFICIENCY_BOUNDS[0], math.log(compute[0]) - span])
    upper = np.array([ceiling, EFFICIENCY_BOUNDS[1], math.log(compute[-1]) + span])
    best, covariance = _best_fit(logs, used, begin, lower, upper)
    residuals = used - _sigmoid(logs, begin, *best)
    t = float(stats.t.ppf((1.0 + confidence) / 2.0, used.size - N_PARAMETERS))
    error = t * np.sqrt(np.diag(covariance))
    low, high = np.maximum(best - error, lower), np.minimum(best + error, upper)
    return SigmoidFit(
        begin,
        CurveParameter(float(best[0]), float(low[0]), float(high[0])),
        CurveParameter(float(best[1]), float(low[1]), float(high[1])),
        CurveParameter(math.exp(best[2]), math.exp(low[2]), math.exp(high[2])),
        float(np.sqrt(np.mean(residuals**2))),
        used.size,
    )


def check_extrapolation(
    compute_P: ArrayLike,
    scores_P: ArrayLike,
    fit_fraction: float = 0.5,
    tolerance: float = 0.02,
    start: float | None = None,
    skip_fraction: float = 0.1,
    ceiling: float = 1.0,
) -> ExtrapolationCheck:
    """Fit the first part of a run, predict the rest, and say how far off that is.

    fit_fraction: share of the points (not of the compute) that may be seen; skip_fraction is of those. At
    least one point must remain to be predicted. Raises as `fit_sigmoid` does.
    Source: the validation of ScaleRL (PAPERS #8); the tolerance is ours.
    """
    compute, scores = _positive(compute_P), finite_vector(scores_P, "scores_P")
    if not 0.0 < fit_fraction < 1.0:
        raise ValueError(f"fit_fraction={fit_fraction} must be between 0 and 1")
    if compute.size != scores.size:
        raise ValueError(f"compute_P has {compute.size} points, scores_P {scores.size}; they must match")
    seen = math.floor(fit_fraction * compute.size)
    if seen == compute.size or seen == 0:
        raise NotEnoughData(f"{compute.size} points cannot be split into a fitted and a predicted part")
    fit = fit_sigmoid(compute[:seen], scores[:seen], start, skip_fraction, ceiling)
    errors = fit.predict(compute[seen:]) - scores[seen:]
    rmse = float(np.sqrt(np.mean(errors**2)))
    return ExtrapolationCheck(fit, errors.size, float(errors.mean()), rmse, float(np.abs(errors).max()), tolerance)


def _best_fit(
    logs: NDArray[np.float64],
    scores: NDArray[np.float64],
    start: float,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The best of several starts: a slow and a fast curve, with the midpoint early, in the middle and beyond."""
    top = min(max(float(scores.max()), start + 1e-6), float(upper[0]))

    def model(x: NDArray[np.float64], asymptote: float, efficiency: float, midpoint: float) -> NDArray[np.float64]:
        return _sigmoid(x, start, asymptote, efficiency, midpoint)

    best: tuple[float, NDArray[np.float64], NDArray[np.float64]] | None = None
    for efficiency in (0.7, 2.0):
        for midpoint in (*np.quantile(logs, [0.2, 0.6]), logs[-1] + 1.0):
            guess = np.clip([top, efficiency, midpoint], lower, upper)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optimize.OptimizeWarning)  # no covariance: stated as infinite below
                try:
                    found, covariance = optimize.curve_fit(model, logs, scores, guess, bounds=(lower, upper))
                except RuntimeError:
                    continue  # this start did not converge; another may
            loss = float(np.sum((scores - model(logs, *found)) ** 2))
            if best is None or loss < best[0] - 1e-15:
                best = loss, found, covariance
    if best is None:
        raise NotEnoughData("no sigmoid could be fitted to these points; more of the run, or a longer one, is needed")
    return best[1], np.where(np.isfinite(best[2]), best[2], np.inf)


def _sigmoid(
    logs: NDArray[np.float64], start: float, asymptote: float, efficiency: float, midpoint: float
) -> NDArray[np.float64]:
    """The curve at log compute; midpoint is a logarithm too."""
    exponent = np.clip(efficiency * (midpoint - logs), -700.0, 700.0)
    return np.asarray(start + (asymptote - start) / (1.0 + np.exp(exponent)), dtype=np.float64)


def _positive(compute: ArrayLike) -> NDArray[np.float64]:
    vector = finite_vector(compute, "compute_P")
    if np.any(vector <= 0):
        raise ValueError("compute_P must be positive; leave out the point at zero and give its score as start")
    return vector
