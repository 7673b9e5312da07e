"""Statistics of single items: difficulty, discrimination, and whether a share of right guesses is more than chance.

Promises: a player or item without scores is missing, never zero; what cannot be computed is None.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData

MIN_PLAYERS = 3
"""Of a correlation over players."""


def item_difficulty(scores_PI: ArrayLike) -> NDArray[np.float64]:
    """1 - mean score of each item over the players that have one; NaN where none has. 0 to 1.

    scores_PI: players (or attempts of players) x items, NaN where missing.
    """
    scores = _matrix(scores_PI)
    has_score = np.isfinite(scores)
    n_scores = has_score.sum(axis=0)
    totals = np.where(has_score, scores, 0.0).sum(axis=0)
    difficulty: NDArray[np.float64] = np.full(scores.shape[1], math.nan)
    np.divide(totals, n_scores, out=difficulty, where=n_scores > 0)
    return 1.0 - difficulty


def item_discrimination(scores_PI: ArrayLike) -> NDArray[np.float64]:
    """Correlation of each item's score with the player's mean over all other items; NaN where either is constant.

    scores_PI: as above. -1 to 1: below 0, players that are worse elsewhere do better here. Raises NotEnoughData for
    fewer than three players.
    Source: corrected item-total correlation, as in classical test theory (Henrysson 1963, Psychometrika 28:211-218).
    """
    scores = _matrix(scores_PI)
    if len(scores) < MIN_PLAYERS:
        raise NotEnoughData(f"discrimination needs at least {MIN_PLAYERS} players or attempts, got {len(scores)}")
    has_score = np.isfinite(scores)
    filled = np.where(has_score, scores, 0.0)
    totals, counts = filled.sum(axis=1, keepdims=True), has_score.sum(axis=1, keepdims=True)
    others = counts - has_score
    elsewhere = np.divide(totals - filled, others, out=np.full(scores.shape, math.nan), where=others > 0)
    usable = has_score & np.isfinite(elsewhere)
    n_usable = usable.sum(axis=0)
    x, y = np.where(usable, scores, 0.0), np.where(usable, elsewhere, 0.0)
    n = np.maximum(n_usable, 1)
    x_centered = np.where(usable, scores - x.sum(axis=0) / n, 0.0)
    y_centered = np.where(usable, elsewhere - y.sum(axis=0) / n, 0.0)
    spread = np.sqrt((x_centered**2).sum(axis=0) * (y_centered**2).sum(axis=0))
    varies = (spread > 1e-12) & (n_usable >= MIN_PLAYERS)
    products = (x_centered * y_centered).sum(axis=0)
    discrimination: NDArray[np.float64] = np.full(scores.shape[1], math.nan)
    np.divide(products, spread, out=discrimination, where=varies)
    return discrimination


def chance_of_as_many(n_right: int, chances: Sequence[float]) -> float:
    """Probability of at least n_right successes among independent guesses of these chances (exact; 0 to 1).

    Source: the Poisson-binomial distribution, by its recursion.
    """
    distribution = np.zeros(len(chances) + 1)
    distribution[0] = 1.0
    for chance in chances:
        distribution[1:] = distribution[1:] * (1.0 - chance) + distribution[:-1] * chance
        distribution[0] *= 1.0 - chance
    return float(min(1.0, distribution[n_right:].sum())) if n_right <= len(chances) else 0.0


def _matrix(scores_PI: ArrayLike) -> NDArray[np.float64]:
    scores = np.asarray(scores_PI, dtype=np.float64)
    if scores.ndim != 2 or not scores.size:
        raise NotEnoughData(f"item statistics need players x items, got an array of shape {scores.shape}")
    return scores
