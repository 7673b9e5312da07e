"""Searches over a measured grid: a program's, played call by call, and two known ones at the same budget.

A search sees the share of right answers on a sample of the dev items, drawn for each search, so it can be misled by
noise as it would be in life; what it chose counts by private items, which it never sees. Runs cost the share of the
rows that they train on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent2.arena.assignments.tuning_space import SHARES, Grid
from agent2.records import JsonValue

N_DEV = 60
"""Dev items by which a search sees a point."""
N_SIMULATED = 400
"""Searches of a known kind behind its mean regret."""

Shares = NDArray[np.float64]
AskSearch = Callable[[str, Mapping[str, JsonValue], Sequence[JsonValue]], object]
"""What a program answers to function, space and history; raises SearchFailed."""


class SearchFailed(Exception):
    """A program that did not answer."""


@dataclass(frozen=True, slots=True)
class PlayedSearch:
    """What came of one search."""

    chosen: int | None
    """Number of the point; None: none that can be trained with."""
    reason: str
    """Why there is none; empty otherwise."""
    n_runs: int
    n_errors: int
    n_repeated: int
    """Runs that an earlier one had answered."""
    dev_share: float | None
    """Share of right dev answers that it was told of the chosen point, after all rows; None: it never ran that."""


def dev_scores(grid: Grid, rng: np.random.Generator) -> dict[float, Shares]:
    """What a search is told, by share of the rows and point: right answers in a sample of the dev items."""
    n_items = grid.dev[1.0].shape[1]
    sample = rng.permutation(n_items)[: min(N_DEV, n_items)]
    return {share: right[:, sample].mean(1) for share, right in grid.dev.items()}


def play_search(ask: AskSearch, grid: Grid, dev_shares: Mapping[float, Shares], budget: float) -> PlayedSearch:
    """Ask for runs until the budget is spent or the program says that it is done, then for the point.

    budget: in whole runs. A proposal that is none costs a whole run.
    """
    space = grid.space
    history: list[JsonValue] = []
    answered: set[tuple[int, float]] = set()
    spent, n_errors = 0.0, 0

    def description() -> dict[str, JsonValue]:
        return {
            "axes": {name: list(values) for name, values in space.axes.items()},
            "default": {**space.default},
            "shares": list(SHARES),
            "budget": budget,
            "left": budget - spent,
        }

    try:
        while spent < budget:
            proposal = ask("propose", description(), history)
            if proposal is None:
                break
            try:
                index, share = read_proposal(grid, proposal)
                if share > budget - spent:
                    raise ValueError(f"a run of share {share:g} was asked for; {budget - spent:g} is left")
            except ValueError as error:
                history.append({"error": str(error), "share": 1.0})
                spent, n_errors = spent + 1.0, n_errors + 1
                continue
            point: JsonValue = {**space.points[index]}
            history.append({"point": point, "share": share, "score": round(float(dev_shares[share][index]), 4)})
            answered.add((index, share))
            spent += share
        chosen = space.index_of(ask("choose", description(), history))
    except SearchFailed as error:
        return PlayedSearch(None, str(error), len(history), n_errors, 0, None)
    except ValueError as error:
        return PlayedSearch(None, f"choose: {error}", len(history), n_errors, 0, None)
    n_repeated = len(history) - n_errors - len(answered)
    dev_share = float(dev_shares[1.0][chosen]) if (chosen, 1.0) in answered else None
    return PlayedSearch(chosen, "", len(history), n_errors, n_repeated, dev_share)


def read_proposal(grid: Grid, proposal: object) -> tuple[int, float]:
    """Number of the point, and share of the rows. Raises ValueError with what is wrong with the proposal."""
    if not isinstance(proposal, dict) or not {"point"} <= set(proposal) <= {"point", "share"}:
        raise ValueError(f'a proposal is {{"point": ..., "share": ...}}; this is {repr(proposal)[:80]}')
    share = proposal.get("share", 1.0)
    if isinstance(share, bool) or share not in SHARES:
        raise ValueError(
            f"share is one of {', '.join(f'{allowed:g}' for allowed in SHARES)}; this is {repr(share)[:80]}"
        )
    return grid.space.index_of(proposal["point"]), float(share)


def random_search(dev_shares: Mapping[float, Shares], budget: float, rng: np.random.Generator) -> int:
    """The best of as many points as the budget has whole runs, drawn without replacement (Bergstra and Bengio 2012)."""
    n_points = len(dev_shares[1.0])
    points = rng.permutation(n_points)[: max(1, int(budget))]
    return int(points[np.argmax(dev_shares[1.0][points])])


def successive_halving(dev_shares: Mapping[float, Shares], budget: float, rng: np.random.Generator) -> int:
    """Half of the budget for points on the smallest share, the other half for the best of them on all rows.

    Source: Jamieson and Talwalkar 2016, with the two rungs that the shares allow.
    """
    smallest, n_points = min(SHARES), len(dev_shares[1.0])
    points = rng.permutation(n_points)[: max(1, int(budget / 2 / smallest))]
    n_best = max(1, int(budget - smallest * len(points)))
    best = points[np.argsort(-dev_shares[smallest][points], kind="stable")][:n_best]
    return int(best[np.argmax(dev_shares[1.0][best])])


KnownSearch = Callable[[Mapping[float, Shares], float, np.random.Generator], int]


def mean_regret(search: KnownSearch, grid: Grid, budget: float) -> float:
    """Mean of the best private share minus that of the chosen point, over simulated searches; a share of 1."""
    rng = np.random.default_rng(0)
    private = grid.private.mean(1)
    chosen = [search(dev_scores(grid, rng), budget, rng) for _ in range(N_SIMULATED)]
    return float(private.max() - private[chosen].mean())
