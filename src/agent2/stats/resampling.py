"""Bootstrap stratified by task: how often each run of each task is drawn, as counts instead of drawn scores.

A replicate of a runs x tasks table draws, inside each task, as many runs as the task has. All that a statistic
of the pooled scores needs are the counts of each score, so the scores are sorted once and a replicate is a
column of small counts over that order: its trimmed sum follows from the running counts, without sorting
anything again.

Promises: the distribution of drawing with replacement exactly, memory bounded by `CHUNK_BYTES` of counts
whatever the size of the table, the same numbers from the same generator on any number of threads (einsum, not
BLAS, whose threads also get in the way of blocks this small). A score that is missing is NaN in the
table; its task is resampled from the runs it has.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData

CHUNK_BYTES = 1 << 26
"""Most counts held at once."""
CHUNK_REPLICATES = 8192
"""Most replicates in a chunk: a row of counts stays in the processor's cache."""
COMPARED_RUNS = 48
"""Up to this many runs a task, comparing every draw with every run beats counting in a histogram."""
BLOCK_ROWS = 64
"""Rows of running counts turned into floats at once."""


@dataclass(frozen=True, slots=True)
class RunTable:
    """The scores of a runs x tasks table without its missing ones, task by task."""

    score_J: NDArray[np.float64]
    """Scores of the first task, then of the second, and so on."""
    start_T: NDArray[np.int64]
    """Where each task begins in `score_J`, and one number more: where the last ends."""
    n_runs: int
    n_missing: int

    @property
    def n_tasks(self) -> int:
        """Tasks, all with at least one score."""
        return self.start_T.size - 1

    @property
    def fewest_runs(self) -> int:
        """Scores of the task that has the fewest."""
        return int(np.diff(self.start_T).min())

    def task(self, index: int) -> NDArray[np.float64]:
        """The scores of one task."""
        return self.score_J[self.start_T[index] : self.start_T[index + 1]]


def run_table(scores_RT: ArrayLike, what: str = "scores_RT") -> RunTable:
    """Check a runs x tasks table; NaN (or None) marks a missing score, which is counted and left out.

    Raises NotEnoughData if there is no run or task, or a task without any score; ValueError for infinities or
    an array that is not runs x tasks.
    """
    scores = np.asarray(scores_RT, dtype=np.float64)
    if scores.ndim != 2:
        raise ValueError(f"{what} must be runs x tasks, got an array of shape {scores.shape}")
    if scores.size == 0:
        raise NotEnoughData(f"{what} has {scores.shape[0]} runs x {scores.shape[1]} tasks; at least 1 x 1 is needed")
    if np.isinf(scores).any():
        raise ValueError(f"{what} holds {int(np.isinf(scores).sum())} infinite scores; give NaN for a missing one")
    present_TR = ~np.isnan(scores).T
    runs_T = present_TR.sum(axis=1)
    if not runs_T.all():
        empty = np.flatnonzero(runs_T == 0)
        raise NotEnoughData(f"{what} has no score for {empty.size} tasks (columns {empty[:5].tolist()}); drop them")
    start = np.concatenate([[0], np.cumsum(runs_T)]).astype(np.int64)
    return RunTable(scores.T[present_TR], start, scores.shape[0], int(scores.size - runs_T.sum()))


def need_repeats(table: RunTable, what: str = "scores_RT") -> None:
    """Raise NotEnoughData unless some task has two runs: one run says nothing about the spread between runs."""
    if int(np.diff(table.start_T).max()) < 2:
        raise NotEnoughData(f"{what} has one run a task; an interval over runs needs at least 2 (10 or more is better)")


def drawn_counts(
    table: RunTable,
    rng: np.random.Generator,
    n_replicates: int,
    row_J: NDArray[np.int64] | None = None,
    chunk: int | None = None,
) -> Iterator[NDArray[np.unsignedinteger]]:
    """Yield chunks of counts_JR: how often each score is drawn, scores x replicates of the chunk.

    row_J: the row at which each score is counted (default: its place in `score_J`). chunk: replicates a chunk
    (default: `chunk_size` of the table). The chunk is one buffer, overwritten by the next: use it before going
    on. Raises ValueError for n_replicates < 1.
    """
    if n_replicates < 1:
        raise ValueError(f"n_replicates={n_replicates} must be at least 1")
    rows = np.arange(table.score_J.size) if row_J is None else row_J
    size = min(n_replicates, chunk_size(table) if chunk is None else chunk)
    buffer = np.empty((rows.size, size), dtype=_count_type(table))
    for begun in range(0, n_replicates, size):
        counts = buffer[:, : min(size, n_replicates - begun)]
        for start, stop in zip(table.start_T[:-1], table.start_T[1:], strict=True):
            _count_draws(counts, rows[start:stop], rng)
        yield counts


def chunk_size(table: RunTable) -> int:
    """Replicates whose counts are held at once."""
    return max(1, min(CHUNK_REPLICATES, CHUNK_BYTES // (table.score_J.size * _count_type(table).itemsize)))


def _count_type(table: RunTable) -> np.dtype[np.unsignedinteger]:
    return np.dtype(np.uint8 if table.n_runs < 256 else np.uint16 if table.n_runs < 65536 else np.uint32)


def _count_draws(counts: NDArray[np.unsignedinteger], rows: NDArray[np.int64], rng: np.random.Generator) -> None:
    n_runs, size = rows.size, counts.shape[1]
    if n_runs <= COMPARED_RUNS:
        draws = rng.integers(n_runs, size=(n_runs, size), dtype=np.uint8)
        for run, row in enumerate(rows):
            np.add.reduce((draws == run).view(np.uint8), axis=0, dtype=np.uint8, out=counts[row])
        return
    cells = rng.integers(n_runs, size=(n_runs, size)) * size + np.arange(size)
    counts[rows] = np.bincount(cells.ravel(), minlength=n_runs * size).reshape(n_runs, size)


def resampled_trimmed_means(
    table: RunTable, rng: np.random.Generator, n_replicates: int, trim: float
) -> NDArray[np.float64]:
    """Mean of the pooled scores of each replicate without its lowest and highest int(trim * scores) ones.

    With C the running count up to the j-th smallest score v_j, the kept sum is
    v_J * high - v_1 * low - sum over j < J of (v_{j+1} - v_j) * clip(C_j, low, high): rows of C that no replicate
    has between low and high are constants.
    """
    n = table.score_J.size
    low = int(trim * n)
    high = n - low
    order = np.argsort(table.score_J, kind="stable")
    row = np.empty(n, dtype=np.int64)
    row[order] = np.arange(n)
    value = table.score_J[order]
    gap = np.diff(value)
    sums = [
        value[-1] * high - value[0] * low - _clipped_gap_sums(counts, gap, low, high)
        for counts in drawn_counts(table, rng, n_replicates, row)
    ]
    return np.concatenate(sums) / (high - low)


def _clipped_gap_sums(
    counts: NDArray[np.unsignedinteger], gap: NDArray[np.float64], low: int, high: int
) -> NDArray[np.float64]:
    size = counts.shape[1]
    total: NDArray[np.float64] = np.zeros(size)
    running = np.zeros((BLOCK_ROWS, size), dtype=np.int16 if counts.shape[0] < 32768 else np.int32)
    floats = np.empty((BLOCK_ROWS, size))
    last = np.zeros(size, dtype=running.dtype)
    for start in range(0, gap.size, BLOCK_ROWS):
        gaps = gap[start : start + BLOCK_ROWS]
        for offset in range(gaps.size):
            np.add(last, counts[start + offset], out=running[offset])
            last = running[offset]
        last = last.copy()  # the block is overwritten by the next
        if last.max() <= low:
            total += low * gaps.sum()
            continue
        if running[0].min() >= high:
            total += high * gap[start:].sum()
            return total
        block = floats[: gaps.size]
        block[...] = np.clip(running[: gaps.size], low, high)
        total += np.einsum("j,jr->r", gaps, block)
    return total


def resampled_task_means(
    table: RunTable, score_J: NDArray[np.float64], rng: np.random.Generator, n_replicates: int
) -> Iterator[NDArray[np.float64]]:
    """Yield chunks of means_TR: the mean score of each task in each replicate, tasks x replicates of the chunk.

    score_J: the scores to average, in the order of `table.score_J` (itself, or something made of it).
    """
    bounds = list(zip(table.start_T[:-1], table.start_T[1:], strict=True))
    for counts in drawn_counts(table, rng, n_replicates):
        means = np.empty((table.n_tasks, counts.shape[1]))
        for task, (start, stop) in enumerate(bounds):
            means[task] = np.einsum("j,jr->r", score_J[start:stop], counts[start:stop]) / (stop - start)
        yield means
