"""Elo ratings of models, with intervals over the order in which the matches are played.

Elo moves after every match, so a list of matches judged at once has no rating of its own: it depends on the
order. Here the matches are shuffled many times and the rating is the mean over the orders.

Promises: every order starts from the same rating; points are only passed on, so the mean rating stays.
The interval is over orders of the same matches: it says how far the order matters and nothing about other
matches. For that, use `ranking.bradley_terry_bootstrap`.
"""

import numpy as np
from numpy.typing import NDArray

from agent2.stats.estimates import check_confidence
from agent2.stats.matches import Matches
from agent2.stats.ranking import Ranking

START = 1000.0
"""Rating before the first match."""
CHUNK_ELEMENTS = 1 << 24
"""Most matches times orders shuffled at once (4 bytes each)."""
SCALE = 400.0
"""Points of difference at which the stronger side is expected to win ten times as often."""


def elo(
    matches: Matches, rng: np.random.Generator, n_orders: int = 1000, confidence: float = 0.95, step: float = 4.0
) -> Ranking:
    """Mean Elo rating over random orders of the matches, with the central share of the orders.

    step: most points one match can move (the K factor); ratings of few matches stay near 1000 for small steps.
    Expected score = 1 / (1 + 10^((rating_j - rating_i) / 400)); draws count half. Raises ValueError for a step or
    n_orders that is not above 0.
    Source: Elo 1978; the mean over orders as generally known from public arenas, not checked against a paper.
    """
    if n_orders < 1 or not step > 0:
        raise ValueError(f"n_orders={n_orders} and step={step} must be above 0")
    check_confidence(confidence)
    rows = max(1, CHUNK_ELEMENTS // matches.n)
    parts = [_play(matches, rng, min(rows, n_orders - start), step) for start in range(0, n_orders, rows)]
    ratings = np.concatenate(parts)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(ratings, [tail, 1.0 - tail], axis=0)
    return Ranking(
        strength=tuple(ratings.mean(axis=0).tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        n=matches.n,
        n_missing=matches.n_missing,
        method=f"Elo, step {step:g}, {n_orders} orders",
        warning="the interval is over orders of the same matches",
    )


def _play(matches: Matches, rng: np.random.Generator, n_orders: int, step: float) -> NDArray[np.float64]:
    """Final ratings, orders x models."""
    order_MO = rng.permuted(
        np.broadcast_to(np.arange(matches.n, dtype=np.int32)[:, None], (matches.n, n_orders)), axis=0
    )
    ratings = np.full((n_orders, matches.n_models), START)
    rows = np.arange(n_orders)
    for played in order_MO:
        first, second = matches.first_M[played], matches.second_M[played]
        ahead = ratings[rows, first] - ratings[rows, second]
        gain = step * (matches.score_M[played] - 1.0 / (1.0 + 10.0 ** (-ahead / SCALE)))
        ratings[rows, first] += gain
        ratings[rows, second] -= gain
    return ratings
