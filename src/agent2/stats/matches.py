"""Matches between models, judged two at a time: the input of every ranking.

Promises: a draw is half a win for each; a match that could not be judged (score NaN or None) is counted in
`n_missing` and left out, never a draw. Matches of one group (the same prompt) are resampled together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from agent2.errors import NotEnoughData
from agent2.stats.estimates import CHUNK_ELEMENTS


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Judged matches, one an index of the arrays."""

    first_M: NDArray[np.int64]
    """Model number of one side, from 0."""
    second_M: NDArray[np.int64]
    score_M: NDArray[np.float64]
    """Share of the win that goes to the first: 1, 0, 0.5 for a draw, or a judge's probability between."""
    group_M: NDArray[np.int64]
    """Which matches hang together (prompt number, from 0)."""
    n_models: int
    n_missing: int
    """Matches without a score, left out."""

    @property
    def n(self) -> int:
        """Judged matches."""
        return self.score_M.size


def collect_matches(
    first: ArrayLike, second: ArrayLike, score: ArrayLike, n_models: int, group: ArrayLike | None = None
) -> Matches:
    """Check judged matches and leave out those without a score.

    first, second: model numbers 0 to n_models - 1. score: share of the win for the first, 0-1. group: any label
    a match (default: each match by itself). Raises NotEnoughData for fewer than two models or no judged match,
    ValueError for unequal lengths, unknown models, a model against itself or a score outside 0-1.
    """
    if n_models < 2:
        raise NotEnoughData(f"{n_models} models cannot be ranked; at least 2 are needed")
    side_a, side_b = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    scores = np.asarray(score, dtype=np.float64)
    labels = np.arange(scores.size) if group is None else np.asarray(group)
    if not side_a.shape == side_b.shape == scores.shape == labels.shape or scores.ndim != 1:
        shapes = f"{side_a.shape}, {side_b.shape}, {scores.shape}, {labels.shape}"
        raise ValueError(f"first, second, score and group have the shapes {shapes}; give vectors of one length")
    models = np.concatenate([side_a, side_b])
    if models.size and (models.min() < 0 or models.max() >= n_models):
        raise ValueError(f"models are numbered {models.min()} to {models.max()}, expected 0 to {n_models - 1}")
    if np.any(side_a == side_b):
        raise ValueError(f"match {int(np.flatnonzero(side_a == side_b)[0])} has one model on both sides")
    judged = ~np.isnan(scores)
    if not judged.any():
        raise NotEnoughData(f"none of {scores.size} matches has a score; at least one is needed")
    if np.any((scores[judged] < 0.0) | (scores[judged] > 1.0)):
        raise ValueError(f"scores are between {scores[judged].min():g} and {scores[judged].max():g}, expected 0-1")
    groups = np.unique(labels[judged], return_inverse=True)[1].astype(np.int64)
    missing = int(scores.size - judged.sum())
    return Matches(side_a[judged], side_b[judged], scores[judged], groups, n_models, missing)


def win_table(matches: Matches) -> NDArray[np.float64]:
    """wins_NN[i, j]: how often model i beat model j, draws as half."""
    n = matches.n_models
    first_won = np.bincount(matches.first_M * n + matches.second_M, matches.score_M, minlength=n * n)
    second_won = np.bincount(matches.second_M * n + matches.first_M, 1.0 - matches.score_M, minlength=n * n)
    return np.asarray(first_won + second_won, dtype=np.float64).reshape(n, n)


def resampled_win_tables(matches: Matches, rng: np.random.Generator, n_replicates: int) -> NDArray[np.float64]:
    """wins_RNN: win tables of resampled groups, replicates x models x models.

    As many groups are drawn with replacement as there are. Raises NotEnoughData for a single group, ValueError
    for n_replicates < 1.
    """
    if n_replicates < 1:
        raise ValueError(f"n_replicates={n_replicates} must be at least 1")
    kinds, share_K, n_groups = _kinds(matches)
    if n_groups < 2:
        raise NotEnoughData("all matches are in one group; resampling needs at least 2")
    wins = np.empty((n_replicates, kinds.shape[1]))
    rows = max(1, CHUNK_ELEMENTS // kinds.shape[0])
    for start in range(0, n_replicates, rows):
        stop = min(start + rows, n_replicates)
        wins[start:stop] = rng.multinomial(n_groups, share_K, size=stop - start) @ kinds
    return wins.reshape(n_replicates, matches.n_models, matches.n_models)


def _kinds(matches: Matches) -> tuple[sparse.csr_array, NDArray[np.float64], int]:
    """Win tables of the groups (kinds x models * models), how likely each is drawn, and how many groups there are.

    Where every group is one match, equal matches are one kind: few rows, however many matches.
    """
    n, n_groups = matches.n_models, int(matches.group_M.max()) + 1
    first, second, score = matches.first_M, matches.second_M, matches.score_M
    kind_M, share_K = matches.group_M, np.full(n_groups, 1.0 / n_groups)
    if n_groups == matches.n:
        kinds, counts = np.unique(np.column_stack([first, second, score]), axis=0, return_counts=True)
        first, second, score = kinds[:, 0].astype(np.int64), kinds[:, 1].astype(np.int64), kinds[:, 2]
        kind_M, share_K = np.arange(score.size), counts / matches.n
    cells = np.concatenate([first * n + second, second * n + first])
    values = np.concatenate([score, 1.0 - score])
    table = sparse.coo_array((values, (np.concatenate([kind_M, kind_M]), cells)), shape=(share_K.size, n * n))
    return table.tocsr(), share_K, n_groups
