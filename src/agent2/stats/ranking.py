"""Bradley-Terry: strengths of models from matches, by maximum likelihood, with intervals.

P(i beats j) = 1 / (1 + exp(strength_j - strength_i)); strengths are log-odds with mean 0, a draw is half a win
for each side.

Promises: a fit exists or is refused. The likelihood has a maximum only if no set of models won every match
against the others (in the graph of "beat at least once", every model reaches every other); otherwise
NotEnoughData names who is cut off, unless a prior is asked for, and the record says that it was.
Does NOT model draws as an outcome of their own, the order on the screen, or strengths that depend on the prompt.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats
from scipy.sparse import csgraph

from agent2.errors import NotEnoughData
from agent2.stats.estimates import CHUNK_ELEMENTS, check_confidence
from agent2.stats.matches import Matches, resampled_win_tables, win_table

MAX_STEPS = 200
"""Newton steps before a fit is given up (a handful is usual)."""
LONGEST_STEP = 1.0
"""Most that a strength moves in one step: full Newton steps may run away from lopsided tables."""
PRECISION = 1e-8
"""A fit is done when no strength moves by more; the step after it would move by the square."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Strengths of models with intervals."""

    strength: tuple[float, ...]
    """One a model, in the order of their numbers."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    n: int
    """Judged matches."""
    n_missing: int
    """Matches that could not be judged."""
    method: str
    warning: str = ""

    @property
    def order(self) -> tuple[int, ...]:
        """Model numbers, strongest first; equal strengths in the order of their numbers."""
        return tuple(sorted(range(len(self.strength)), key=lambda model: -self.strength[model]))

    def __str__(self) -> str:
        best = self.order[0]
        missing = f", {self.n_missing} missing" if self.n_missing else ""
        return (
            f"model {best} leads {len(self.strength)} models with {self.strength[best]:.3f} "
            f"[{self.low[best]:.3f}, {self.high[best]:.3f}] "
            f"(n={self.n} matches{missing}, {self.method}{'; ' + self.warning if self.warning else ''})"
        )


def bradley_terry(matches: Matches, confidence: float = 0.95, prior: float = 0.0) -> Ranking:
    """Maximum-likelihood strengths with Fisher intervals (strength +- z * standard error).

    prior: that many drawn matches are added between every two models (0: none); 0.1 is enough to make any table
    fit, and pulls strengths together. Fisher intervals take matches as independent and many; they are a little
    wide where there are draws. Raises NotEnoughData if the matches do not determine the strengths, ValueError for a
    negative prior.
    Source: Bradley and Terry 1952, Biometrika 39:324-345; existence: Ford 1957, Amer. Math. Monthly 64:28-33
    (as generally known; not checked against the papers).
    """
    check_confidence(confidence)
    wins = _with_prior(win_table(matches), prior)
    _check_determined(wins)
    strength = fit_strengths(wins[None])[0]
    chance = special.expit(strength[:, None] - strength)
    weight = (wins + wins.T) * chance * (1.0 - chance)
    information = np.diag(weight.sum(axis=1)) - weight
    error = np.sqrt(np.diag(np.linalg.pinv(information, hermitian=True)))
    half_width = float(stats.norm.ppf((1.0 + confidence) / 2.0)) * error
    method = "Bradley-Terry, Fisher" + (f", prior of {prior:g} draws a pair" if prior else "")
    low, high = tuple((strength - half_width).tolist()), tuple((strength + half_width).tolist())
    return Ranking(tuple(strength.tolist()), low, high, matches.n, matches.n_missing, method)


def bradley_terry_bootstrap(
    matches: Matches,
    rng: np.random.Generator,
    n_replicates: int = 1000,
    confidence: float = 0.95,
    prior: float = 0.0,
) -> Ranking:
    """Maximum-likelihood strengths with percentile intervals from resampled groups of matches.

    Right where the matches of a prompt hang together. Replicates that do not determine the strengths are left
    out and counted in the warning; the intervals are then too narrow. Raises as `bradley_terry`, and
    NotEnoughData for a single group or if no replicate can be fitted.
    """
    point = bradley_terry(matches, confidence, prior)
    strengths = strength_replicates(matches, rng, n_replicates, prior)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(strengths, [tail, 1.0 - tail], axis=0)
    left_out = n_replicates - strengths.shape[0]
    warning = f"{left_out} of {n_replicates} replicates did not determine the strengths" if left_out else ""
    method = f"Bradley-Terry, bootstrap over groups, {strengths.shape[0]} replicates"
    method += f", prior of {prior:g} draws a pair" if prior else ""
    return replace(point, low=tuple(low.tolist()), high=tuple(high.tolist()), method=method, warning=warning)


def strength_replicates(
    matches: Matches, rng: np.random.Generator, n_replicates: int = 1000, prior: float = 0.0
) -> NDArray[np.float64]:
    """strengths_RN of resampled groups of matches, without the replicates that do not determine them.

    Raises NotEnoughData if no replicate does.
    """
    if n_replicates < 1:
        raise ValueError(f"n_replicates={n_replicates} must be at least 1")
    rows = max(1, CHUNK_ELEMENTS // matches.n_models**2)
    parts = []
    for start in range(0, n_replicates, rows):
        tables = _with_prior(resampled_win_tables(matches, rng, min(rows, n_replicates - start)), prior)
        parts.append(fit_strengths(tables[_is_determined(tables)]))
    strengths = np.concatenate(parts)
    if strengths.size == 0:
        raise NotEnoughData(f"none of {n_replicates} resampled match lists determines the strengths; add matches")
    return strengths


def fit_strengths(wins_RNN: NDArray[np.float64]) -> NDArray[np.float64]:
    """Maximum-likelihood strengths of win tables that determine them: replicates x models, each with mean 0.

    Newton's method on the concave log-likelihood. Raises NotEnoughData if it does not settle (strengths beyond
    what floats can tell apart).
    """
    n_models = wins_RNN.shape[1]
    played = wins_RNN + wins_RNN.transpose(0, 2, 1)
    won = wins_RNN.sum(axis=2)
    strength: NDArray[np.float64] = np.zeros(wins_RNN.shape[:2])
    diagonal = np.arange(n_models)
    for _ in range(MAX_STEPS):
        chance = special.expit(strength[:, :, None] - strength[:, None, :])
        gradient = won - (played * chance).sum(axis=2)
        weight = played * chance * (1.0 - chance)
        curvature = -weight
        curvature[:, diagonal, diagonal] += weight.sum(axis=2)
        curvature += np.maximum(weight.sum(axis=(1, 2)), 1e-300)[:, None, None] / n_models**2  # fixes the mean
        step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        longest = np.abs(step).max(axis=1, keepdims=True)
        step *= np.minimum(1.0, LONGEST_STEP / np.maximum(longest, LONGEST_STEP))
        strength += step
        if longest.max(initial=0.0) < PRECISION:
            strength -= strength.mean(axis=1, keepdims=True)
            return strength
    raise NotEnoughData(f"strengths did not settle in {MAX_STEPS} steps; add matches or ask for a prior")


def win_rates_against(ranking: Ranking, baseline: int) -> tuple[float, ...]:
    """Each model's expected win rate against one fixed model (0.5 for itself), from Bradley-Terry strengths.

    Raises ValueError for a model number that is not in the ranking.
    Source: Li et al. 2024 (Arena-Hard), arXiv:2406.11939 (as generally known; not checked against the paper).
    """
    if not 0 <= baseline < len(ranking.strength):
        raise ValueError(f"baseline={baseline} is not one of the models 0 to {len(ranking.strength) - 1}")
    against = ranking.strength[baseline]
    return tuple(float(special.expit(strength - against)) for strength in ranking.strength)


def _with_prior(wins: NDArray[np.float64], prior: float) -> NDArray[np.float64]:
    if not 0.0 <= prior < math.inf:
        raise ValueError(f"prior={prior} drawn matches a pair cannot be; give 0 or more")
    return wins + prior / 2.0 * (1.0 - np.eye(wins.shape[-1]))


def _check_determined(wins: NDArray[np.float64]) -> None:
    n_models = wins.shape[0]
    played = wins + wins.T
    n_parts, part = csgraph.connected_components(played > 0, directed=False)
    if n_parts > 1:
        smallest = np.flatnonzero(part == np.bincount(part).argmin())
        raise NotEnoughData(
            f"{n_models} models fall into {n_parts} parts that never met (one part: models "
            f"{smallest[:8].tolist()}); play matches between them or ask for a prior"
        )
    n_parts, part = csgraph.connected_components(wins > 0, directed=True, connection="strong")
    if n_parts == 1:
        return
    for index in np.argsort(np.bincount(part), kind="stable"):  # the smallest set says most
        inside = part == index
        for extreme, cell in (("lost", wins[inside][:, ~inside]), ("won", wins[~inside][:, inside])):
            if not cell.any():
                raise NotEnoughData(
                    f"models {np.flatnonzero(inside)[:8].tolist()} {extreme} every match against the others, so their "
                    "strength has no finite maximum-likelihood value; play more matches or ask for a prior"
                )


def _is_determined(wins_RNN: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether every model reaches every other over "beat at least once", table by table."""
    reach = ((wins_RNN > 0) | np.eye(wins_RNN.shape[1], dtype=bool)).astype(np.float32)
    for _ in range(max(1, math.ceil(math.log2(wins_RNN.shape[1])))):
        reach = (reach @ reach > 0).astype(np.float32)
    return np.asarray((reach > 0).all(axis=(1, 2)), dtype=np.bool_)
