"""Places in a ranking: rank intervals that hold for everybody at once, and tiers.

Two competitors are compared on the items that both were scored on. Items are crossed with runs, and the runs (training
seeds) of one competitor have nothing to do with those of another, so they need not be the same in number or name. Of
several tasks the differences are averaged; tasks are fixed, items and runs are drawn.

A rank interval is what the pairwise tests leave open: nobody who was shown to be better stands below, nobody who was
shown to be worse stands above. The tests are corrected together (Holm), so that all intervals cover all true ranks at
once with the confidence asked for; a true tie counts as covered only by an interval that contains all its ranks. A tier
is how many levels were shown to be above: tier 1 is everybody whom nobody was shown to beat.

Does NOT correct for several leaderboards of the same trials. With one run a side, the luck of a run is not known: the
test is over items alone and says so. `benchmarks/leaderboard.py` simulates the coverage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent2.errors import NotEnoughData
from agent2.stats.comparisons import MOST_DF_PER_SEED, TIE, holm
from agent2.stats.estimates import ITEMS, ITEMS_AND_SEEDS, Estimate, PairedDifference, check_confidence, finite_vector


@dataclass(frozen=True, slots=True)
class RunDifference:
    """Two competitors on one task: mean of a minus mean of b, and how sure it is."""

    delta: float
    variance: float
    """Of `delta`, over new items and new runs; over new items alone where `over` says so."""
    freedom: float
    """Degrees of freedom of the variance."""
    n_items: int
    n_runs: tuple[int, int]
    over: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a competitor stands."""

    best_rank: int
    """1 + how many were shown to be better."""
    worst_rank: int
    """As many as there are, less those shown to be worse."""
    tier: int
    """1 + the longest chain of competitors above, each shown to beat the next."""

    @property
    def words(self) -> str:
        """`1`, or `2-4` where the data leave it open."""
        return str(self.best_rank) if self.best_rank == self.worst_rank else f"{self.best_rank}-{self.worst_rank}"


def difference_of_samples(a_RI: ArrayLike, b_RI: ArrayLike) -> RunDifference:
    """Mean of a minus mean of b on the same items, each side with runs of its own.

    a_RI, b_RI: runs x items, items in the same order; scores. The variance is that of items (of the differences of
    run means), plus that of runs on each side, less the residual that both contain, and no smaller than either; degrees
    of freedom are Satterthwaite's, no more than `MOST_DF_PER_SEED` for each run beyond the first of each side. With one
    run on a side, or one item, the respective part is not known: items alone, or NotEnoughData for both. Raises
    NotEnoughData for no items or values that are not finite, ValueError for different items.
    Source: variance components of a crossed design with nested runs, as in Brennan 2001, Generalizability Theory,
    chapter 3; Satterthwaite 1946 (Biometrics Bulletin 2:110).
    """
    a, b = (np.asarray(side, dtype=np.float64) for side in (a_RI, b_RI))
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"sides must be runs x the same items, got arrays of shapes {a.shape} and {b.shape}")
    n_items = a.shape[1]
    if n_items < 2 or not a.shape[0] or not b.shape[0]:
        raise NotEnoughData(f"a difference needs a run a side and 2 items, got {a.shape} and {b.shape}")
    finite_vector(np.concatenate([a.ravel(), b.ravel()]), "scores of the runs")
    by_item = a.mean(axis=0) - b.mean(axis=0)
    delta = float(by_item.mean())
    of_items = float(by_item.var(ddof=1)) / n_items
    counts = (a.shape[0], b.shape[0])
    if min(counts) < 2:
        return RunDifference(delta, of_items, n_items - 1, n_items, counts, ITEMS)
    sides = [_run_part(side) for side in (a, b)]
    of_runs = sum(run for run, _ in sides)
    of_rest = sum(rest for _, rest in sides)
    variance = max(of_items + of_runs - of_rest, of_items, of_runs)
    spread = of_items**2 / (n_items - 1)
    for (run, rest), n_runs in zip(sides, counts, strict=True):
        spread += run**2 / (n_runs - 1) + rest**2 / ((n_runs - 1) * (n_items - 1))
    freedom = variance**2 / spread if spread > 0.0 else 1.0
    n_lucky = sum(n - 1 for (run, _), n in zip(sides, counts, strict=True) if run > 0.0) or sum(counts) - 2
    most = MOST_DF_PER_SEED * n_lucky
    return RunDifference(delta, variance, min(max(1.0, freedom), most), n_items, counts, ITEMS_AND_SEEDS)


def _run_part(side_RI: NDArray[np.float64]) -> tuple[float, float]:
    """What the runs of one side add to the variance of the mean: by run means, and the residual in it."""
    n_runs, n_items = side_RI.shape
    run_R = side_RI.mean(axis=1)
    rest = side_RI - run_R[:, None] - side_RI.mean(axis=0)[None, :] + side_RI.mean()
    residual = float((rest * rest).sum()) / ((n_runs - 1) * (n_items - 1))
    return float(run_R.var(ddof=1)) / n_runs, residual / (n_runs * n_items)


def mean_difference(parts: Sequence[RunDifference], confidence: float = 0.95) -> PairedDifference:
    """The mean of the differences on several tasks, each weighing the same, with a t interval and a p-value.

    Raises NotEnoughData without a part.
    """
    from scipy import stats

    check_confidence(confidence)
    if not parts:
        raise NotEnoughData("two competitors without a common task cannot be compared")
    n_tasks, n_items = len(parts), sum(part.n_items for part in parts)
    delta = sum(part.delta for part in parts) / n_tasks
    variance = sum(part.variance for part in parts) / n_tasks**2
    is_over_runs = all(part.over == ITEMS_AND_SEEDS for part in parts)
    over = ITEMS_AND_SEEDS if is_over_runs else ITEMS
    method = f"variance components over {over}, Satterthwaite t" + (f", {n_tasks} tasks" if n_tasks > 1 else "")
    error = float(np.sqrt(variance))
    if error <= TIE:
        p_value = 1.0 if abs(delta) <= TIE else min(1.0, 2.0 * 0.5**n_items)
        return PairedDifference(Estimate(delta, delta, delta, n_items, method=method), p_value, over)
    freedom = variance**2 / sum((part.variance / n_tasks**2) ** 2 / part.freedom for part in parts)
    half = float(stats.t.ppf((1.0 + confidence) / 2.0, freedom)) * error
    p_value = 2.0 * float(stats.t.sf(abs(delta) / error, freedom))
    return PairedDifference(Estimate(delta, delta - half, delta + half, n_items, method=method), p_value, over)


def places(n: int, pairs: Mapping[tuple[int, int], PairedDifference], alpha: float = 0.05) -> list[Place]:
    """The place of each of n competitors, all rank intervals together right with probability 1 - alpha.

    pairs: (a, b) -> a minus b, higher is better; each pair once, in either order. A pair that could not be compared is
    left out, and leaves both ranks open. Raises ValueError for a competitor out of range.
    Source: ranks from pairwise tests with family-wise error: Mogstad, Romano, Shaikh and Wilhelm 2024, Review of
    Economic Studies 91:476 (idea; the tests here are Holm's over all pairs); tiers are ours.
    """
    if any(not 0 <= one < n for pair in pairs for one in pair):
        raise ValueError(f"pairs name competitors outside 0 to {n - 1}")
    beats: list[set[int]] = [set() for _ in range(n)]
    if pairs:
        adjusted = holm([pair.p_value for pair in pairs.values()])
        for ((a, b), pair), p_value in zip(pairs.items(), adjusted, strict=True):
            if p_value <= alpha:
                winner, loser = (a, b) if pair.change.value > 0 else (b, a)
                beats[winner].add(loser)
    tiers = [1] * n
    # longest chain above: a tested "beats" may run in a circle over different items, so no more rounds than competitors
    for _ in range(n):
        before = list(tiers)
        for winner in range(n):
            for loser in beats[winner]:
                tiers[loser] = min(n, max(tiers[loser], tiers[winner] + 1))
        if tiers == before:
            break
    worse_than = [sum(one in beaten for beaten in beats) for one in range(n)]
    return [Place(1 + worse_than[one], n - len(beats[one]), tiers[one]) for one in range(n)]
