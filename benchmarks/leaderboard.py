"""Do rank intervals and tiers of the leaderboard cover the truth? Simulated sweeps with known true scores.

    python benchmarks/leaderboard.py [--sweeps 1000] [--stacks 8] [--runs 5] [--items 100] [--tasks 1]

In each sweep every stack has a true score on each task, some of them equal. A run draws a luck of its own (standard
deviation 0.04 of a score), items differ in difficulty and in how well each stack suits them, and every verdict is drawn
from the chance that results. A sweep is covered when all rank intervals contain all true ranks (of equal stacks: all
the ranks that they share) and no tier claims more levels above a stack than there are. Prints the shares covered; exits
1 if one of them is below 95%.
"""

import sys

sys.path.pop(0)  # this folder: its file names must not hide the standard library's

import argparse
import time
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from agent2.stats.standings import Place, difference_of_samples, mean_difference, places

RUN_SD = 0.04
FIT_SD = 0.08
"""How much more or less a stack suits an item than its score says."""
LEVELS = (0.35, 0.35, 0.40, 0.45, 0.45, 0.55, 0.60, 0.60)
"""True scores that stacks take in turn; equal ones are true ties."""


@dataclass(frozen=True, slots=True)
class SimulatedSweep:
    """Verdicts of all stacks, and what is true of them."""

    truth_K: NDArray[np.float64]
    verdicts_KTRI: NDArray[np.float64]


def simulate(rng: np.random.Generator, n_stacks: int, n_tasks: int, n_runs: int, n_items: int) -> SimulatedSweep:
    """One sweep. truth_K: the mean over new items and runs, by simulation of its parts exact."""
    truth = np.resize(np.array(LEVELS), n_stacks)
    difficulty = rng.uniform(-0.2, 0.2, size=(1, n_tasks, 1, n_items))
    fit = rng.normal(0.0, FIT_SD, size=(n_stacks, n_tasks, 1, n_items))
    luck = rng.normal(0.0, RUN_SD, size=(n_stacks, n_tasks, n_runs, 1))
    chance = truth[:, None, None, None] + difficulty + fit + luck
    # levels and spreads keep nearly all chances inside 0-1; clipping is symmetric enough not to move a mean by 0.001
    verdicts = rng.random(chance.shape) < np.clip(chance, 0.0, 1.0)
    return SimulatedSweep(truth, verdicts.astype(np.float64))


def ranked(verdicts_KTRI: NDArray[np.float64]) -> list[Place]:
    """Places as the leaderboard gives them."""
    n_stacks, n_tasks = verdicts_KTRI.shape[:2]
    pairs = {
        (a, b): mean_difference(
            [difference_of_samples(verdicts_KTRI[a, task], verdicts_KTRI[b, task]) for task in range(n_tasks)]
        )
        for a, b in combinations(range(n_stacks), 2)
    }
    return places(n_stacks, pairs)


def covers(found: list[Place], truth_K: NDArray[np.float64]) -> tuple[bool, bool]:
    """Whether all rank intervals, and all tiers, are right."""
    ranks = tiers = True
    for place, score in zip(found, truth_K, strict=True):
        n_above, n_below = int((truth_K > score).sum()), int((truth_K < score).sum())
        ranks &= place.best_rank <= 1 + n_above and place.worst_rank >= truth_K.size - n_below
        tiers &= place.tier - 1 <= np.unique(truth_K[truth_K > score]).size
    return ranks, tiers


def main() -> int:
    """Run the simulation and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("sweeps", 1000), ("stacks", 8), ("runs", 5), ("items", 100), ("tasks", 1), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    started = time.process_time()
    verdicts, widths, n_tiers = [], [], []
    for _ in range(asked.sweeps):
        sweep = simulate(rng, asked.stacks, asked.tasks, asked.runs, asked.items)
        found = ranked(sweep.verdicts_KTRI)
        verdicts.append(covers(found, sweep.truth_K))
        widths.append(np.mean([place.worst_rank - place.best_rank + 1 for place in found]))
        n_tiers.append(max(place.tier for place in found))
    ranks, tiers = np.mean(verdicts, axis=0)
    print(
        f"{asked.sweeps} sweeps of {asked.stacks} stacks, {asked.tasks} task(s), {asked.runs} runs, {asked.items} items"
    )
    print(
        f"ranks cover the truth in {ranks:.1%}, tiers in {tiers:.1%}; a rank interval holds {np.mean(widths):.1f} "
        f"ranks on average, {np.mean(n_tiers):.1f} tiers; {time.process_time() - started:.0f} s of processor time"
    )
    return 0 if min(ranks, tiers) >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
