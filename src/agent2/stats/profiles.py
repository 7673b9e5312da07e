"""Performance profiles of one algorithm and the probability that one improves on another, over runs and tasks.

Both resample runs inside each task, as `aggregates` does, with the same conventions: scores_RT is runs x tasks,
NaN is a missing score (counted and left out), one run a task has no interval.

Does NOT cover simultaneous bands: the band of a profile holds at each threshold by itself.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.stats.aggregates import RunEstimate, few_runs_warning
from agent2.stats.estimates import finite_vector, interval
from agent2.stats.resampling import RunTable, chunk_size, drawn_counts, need_repeats, run_table


@dataclass(frozen=True, slots=True)
class PerformanceProfile:
    """Share of the runs that score above each threshold."""

    thresholds: tuple[float, ...]
    share: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    n_runs: int
    n_tasks: int
    n_missing: int
    method: str
    warning: str = ""

    def __str__(self) -> str:
        middle = len(self.thresholds) // 2
        at = (
            f"{self.share[middle]:.4f} [{self.low[middle]:.4f}, {self.high[middle]:.4f}] "
            f"above {self.thresholds[middle]:g}"
        )
        missing = f", {self.n_missing} missing" if self.n_missing else ""
        size = f"n={self.n_runs} runs x {self.n_tasks} tasks{missing}, {len(self.thresholds)} thresholds"
        return f"{at} ({size}, {self.method}{'; ' + self.warning if self.warning else ''})"


def performance_profile(
    scores_RT: ArrayLike,
    thresholds: ArrayLike,
    rng: np.random.Generator,
    n_replicates: int = 10_000,
    confidence: float = 0.95,
) -> PerformanceProfile:
    """F(tau) = share of all runs and tasks with a score above tau (strictly), with a band over runs.

    thresholds: finite, in any order; kept in the order given. Shares lie in 0-1 and fall as tau rises. Raises
    NotEnoughData for no thresholds, no scores, a task without scores or one run a task.
    Source: Agarwal et al. 2021, arXiv:2108.13264 (formula as generally known; checked against rliable 1.2.0).
    """
    taus = finite_vector(thresholds, "thresholds")
    table = run_table(scores_RT)
    need_repeats(table)
    order = np.argsort(table.score_J, kind="stable")
    n_below = np.searchsorted(table.score_J[order], taus, side="right")  # scores at or under each threshold
    below_TR = _resampled_below(table, order, n_below, rng, n_replicates)
    bounds = np.array([interval(1.0 - below / order.size, confidence) for below in below_TR])
    return PerformanceProfile(
        thresholds=tuple(taus.tolist()),
        share=tuple((1.0 - n_below / order.size).tolist()),
        low=tuple(bounds[:, 0].tolist()),
        high=tuple(bounds[:, 1].tolist()),
        n_runs=table.n_runs,
        n_tasks=table.n_tasks,
        n_missing=table.n_missing,
        method=f"bootstrap stratified by task, {n_replicates} replicates",
        warning=few_runs_warning(table.fewest_runs),
    )


def probability_of_improvement_value(scores_x_RT: ArrayLike, scores_y_RT: ArrayLike) -> float:
    """The probability of improvement alone; one run is enough."""
    table_x, table_y = _two_tables(scores_x_RT, scores_y_RT)
    return float(np.mean([_beats(table_x.task(t), table_y.task(t)).mean() for t in range(table_x.n_tasks)]))


def probability_of_improvement(
    scores_x_RT: ArrayLike,
    scores_y_RT: ArrayLike,
    rng: np.random.Generator,
    n_replicates: int = 10_000,
    confidence: float = 0.95,
) -> RunEstimate:
    """Chance that a run of x beats a run of y on the same task, ties as half, averaged over tasks.

    The two may differ in runs but not in tasks. A probability; 0.5 means no difference, and
    P(x beats y) + P(y beats x) = 1. `n_runs` is the smaller number of runs. Raises NotEnoughData for no scores,
    a task without scores or one run a task on both sides; ValueError for different numbers of tasks.
    Source: Agarwal et al. 2021, arXiv:2108.13264: the mean over tasks of Mann-Whitney U / (runs_x * runs_y)
    (formula as generally known; checked against rliable 1.2.0).
    """
    table_x, table_y = _two_tables(scores_x_RT, scores_y_RT)
    need_repeats(table_x, "scores_x_RT")
    need_repeats(table_y, "scores_y_RT")
    beats = [_beats(table_x.task(t), table_y.task(t)) for t in range(table_x.n_tasks)]
    chunk = min(chunk_size(table_x), chunk_size(table_y))
    chunks_x = drawn_counts(table_x, rng, n_replicates, chunk=chunk)
    chunks_y = drawn_counts(table_y, rng, n_replicates, chunk=chunk)
    replicates = np.concatenate(
        [_pairs_won(table_x, table_y, beats, x, y) for x, y in zip(chunks_x, chunks_y, strict=True)]
    )
    low, high = interval(replicates, confidence)
    n_runs = min(table_x.n_runs, table_y.n_runs)
    method = f"probability of improvement, bootstrap stratified by task, {n_replicates} replicates"
    value = float(np.mean([pairs.mean() for pairs in beats]))
    n_missing = table_x.n_missing + table_y.n_missing
    warning = few_runs_warning(min(table_x.fewest_runs, table_y.fewest_runs))
    return RunEstimate(value, low, high, n_runs, table_x.n_tasks, n_missing, method, warning)


def _two_tables(scores_x_RT: ArrayLike, scores_y_RT: ArrayLike) -> tuple[RunTable, RunTable]:
    table_x, table_y = run_table(scores_x_RT, "scores_x_RT"), run_table(scores_y_RT, "scores_y_RT")
    if table_x.n_tasks != table_y.n_tasks:
        raise ValueError(
            f"scores_x_RT has {table_x.n_tasks} tasks, scores_y_RT {table_y.n_tasks}; "
            "give the same tasks in the same order"
        )
    return table_x, table_y


def _beats(score_x: NDArray[np.float64], score_y: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where a run of x (rows) beats a run of y (columns), 0.5 where they tie."""
    return np.asarray((score_x[:, None] > score_y) + 0.5 * (score_x[:, None] == score_y), dtype=np.float64)


def _pairs_won(
    table_x: RunTable,
    table_y: RunTable,
    beats: list[NDArray[np.float64]],
    counts_x: NDArray[np.unsignedinteger],
    counts_y: NDArray[np.unsignedinteger],
) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.zeros(counts_x.shape[1])
    for task, beats_xy in enumerate(beats):
        of_x = counts_x[table_x.start_T[task] : table_x.start_T[task + 1]]
        of_y = counts_y[table_y.start_T[task] : table_y.start_T[task + 1]].astype(np.float64)
        total += (of_x * (beats_xy @ of_y)).sum(axis=0) / beats_xy.size
    total /= len(beats)
    return total


def _resampled_below(
    table: RunTable,
    order: NDArray[np.int64],
    n_below: NDArray[np.int64],
    rng: np.random.Generator,
    n_replicates: int,
) -> NDArray[np.int32]:
    """How many of the drawn scores are among the n_below smallest: thresholds x replicates."""
    row = np.empty(order.size, dtype=np.int64)
    row[order] = np.arange(order.size)
    drawn_below = np.zeros((n_below.size, n_replicates), dtype=np.int32)
    by_rank = np.argsort(n_below, kind="stable")
    begun = 0
    for counts in drawn_counts(table, rng, n_replicates, row):
        running = np.zeros(counts.shape[1], dtype=np.int32)
        done = 0
        for threshold in by_rank:
            for rank in range(done, int(n_below[threshold])):
                running += counts[rank]
            done = int(n_below[threshold])
            drawn_below[threshold, begun : begun + running.size] = running
        begun += running.size
    return drawn_below
