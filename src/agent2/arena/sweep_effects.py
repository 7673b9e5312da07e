"""What a driver makes of a scaffold, and a scaffold of a driver: pairs of stacks that differ in one part only.

A stack is scaffold x driver x mode. For each scaffold all pairs of its drivers are compared, for each driver all
pairs of its scaffolds, on the same task, mode, hidden items and seeds. Intervals hold for all pairs of a family at
once (Bonferroni within one scaffold or one driver), so the widest pair may be picked and read.

Two things vary: the choice of hidden items, and the luck of a run (training and the driver's own sampling). The
headline interval and p-value are over both; with one seed the luck of a run is not known, and they are over items
alone and say so. Trials without a result are missing, not zero.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

from agent2.arena.sweep_records import BySeed, Estimated, difference_of_runs, over_what
from agent2.arena.sweep_stacks import PlannedTrial
from agent2.stats.comparisons import judge
from agent2.stats.measure import Measure, measure
from agent2.stats.multiplicity import holm

ALPHA = 0.05
"""Chance that any interval of a family misses."""


class Axis(StrEnum):
    """The part in which two stacks differ."""

    DRIVER = "driver"
    SCAFFOLD = "scaffold"


@dataclass(frozen=True, slots=True)
class PairEffect:
    """Two stacks that differ in one part: final private scores, a minus b, in percentage points."""

    axis: Axis
    task: str
    mode: str
    fixed: str
    """The scaffold of a driver effect, the driver of a scaffold effect."""
    level_a: str
    level_b: str
    """The drivers, or scaffolds, compared."""
    delta_points: float
    low_points: float
    high_points: float
    """Over what `over` says; simultaneous with the family's other pairs."""
    over: str
    """"items and seeds", or "items" with one seed."""
    claim: str
    """Better (a than b), worse or unclear, by that interval and the adjusted p-value."""
    seed_low_points: float | None
    seed_high_points: float | None
    """Over runs alone; None with one seed."""
    p_value: float
    """Over what `over` says."""
    p_adjusted: float
    """After Holm, within the family."""
    n_items: int
    n_seeds: int
    """Seeds for which both have a result."""
    n_missing: int
    """Planned seeds for which one or both have none."""
    n_pairs: int
    """Pairs in the family."""
    method: str


@dataclass(frozen=True, slots=True)
class AxisEffect:
    """How much one part matters while the other stays: the pair that is furthest apart."""

    axis: Axis
    task: str
    mode: str
    fixed: str
    n_levels: int
    widest: PairEffect
    """With the better level first."""


def pair_effects(planned: Sequence[PlannedTrial], scores: Mapping[tuple[str, str], BySeed]) -> list[PairEffect]:
    """Every pair of stacks that differ in the driver only, or in the scaffold only.

    planned: every trial of the sweep. scores: (task, stack) -> seed -> item -> final private score.
    """
    effects: list[PairEffect] = []
    for axis in Axis:
        for key, levels in _families(planned, axis).items():
            effects += _family(axis, key, levels, scores)
    return effects


def axis_effects(pairs: Sequence[PairEffect]) -> list[AxisEffect]:
    """The widest pair of each family, in the order of the families."""
    families: dict[tuple[Axis, str, str, str], list[PairEffect]] = {}
    for pair in pairs:
        families.setdefault((pair.axis, pair.task, pair.mode, pair.fixed), []).append(pair)
    return [
        AxisEffect(axis, task, mode, fixed, len(_levels(found)), _best_first(max(found, key=_width)))
        for (axis, task, mode, fixed), found in families.items()
    ]


_Levels = dict[str, list[PlannedTrial]]
_Pair = tuple[str, str, BySeed, BySeed, Estimated]
"""Two levels, the scores of each, and their difference."""


def _families(planned: Sequence[PlannedTrial], axis: Axis) -> dict[tuple[str, str, str], _Levels]:
    """(task, mode, fixed part) -> level -> its trials; stacks without a driver belong to no family."""
    families: dict[tuple[str, str, str], _Levels] = {}
    for trial in planned:
        if trial.driver_name is None:
            continue
        parts = (trial.agent_name, trial.driver_name)
        fixed, level = parts if axis is Axis.DRIVER else parts[::-1]
        family = families.setdefault((trial.task_name, trial.mode.value, fixed), {})
        family.setdefault(level, []).append(trial)
    return families


def _family(
    axis: Axis, key: tuple[str, str, str], levels: _Levels, scores: Mapping[tuple[str, str], BySeed]
) -> list[PairEffect]:
    label = f"sweep effect {axis.value} {' '.join(key)}"
    n_pairs = len(list(_comparable(key[0], levels, scores, label, 1 - ALPHA)))
    if not n_pairs:
        return []
    found = list(_comparable(key[0], levels, scores, label, 1 - ALPHA / n_pairs))
    adjusted = holm([difference.p_value for *_, difference in found]).adjusted
    return [
        _record(axis, key, levels, pair, float(p_adjusted), n_pairs)
        for pair, p_adjusted in zip(found, adjusted, strict=True)
    ]


def _record(
    axis: Axis,
    key: tuple[str, str, str],
    levels: _Levels,
    pair: _Pair,
    p_adjusted: float,
    n_pairs: int,
) -> PairEffect:
    task, mode, fixed = key
    level_a, level_b, one, other, difference = pair
    seeds = sorted(set(one) & set(other))
    runs = _over_runs(one, other, seeds, 1 - ALPHA / n_pairs)
    return PairEffect(
        axis=axis,
        task=task,
        mode=mode,
        fixed=fixed,
        level_a=level_a,
        level_b=level_b,
        delta_points=100 * difference.delta,
        low_points=100 * difference.low,
        high_points=100 * difference.high,
        over=over_what(difference),
        claim=judge(difference, p_value=p_adjusted).claim.value,
        seed_low_points=100 * runs.low if runs.low is not None else None,
        seed_high_points=100 * runs.high if runs.high is not None else None,
        p_value=difference.p_value,
        p_adjusted=p_adjusted,
        n_items=difference.n_items,
        n_seeds=len(seeds),
        n_missing=len({trial.seed for trial in (*levels[level_a], *levels[level_b])}) - len(seeds),
        n_pairs=n_pairs,
        method=f"{difference.method}, Bonferroni intervals and Holm p over {n_pairs} pair(s)",
    )


def _comparable(
    task: str, levels: _Levels, scores: Mapping[tuple[str, str], BySeed], label: str, confidence: float
) -> Iterator[_Pair]:
    """Pairs of levels with a common seed and a common scored item."""
    for level_a, level_b in combinations(levels, 2):
        one = scores.get((task, levels[level_a][0].stack), {})
        other = scores.get((task, levels[level_b][0].stack), {})
        difference = difference_of_runs(one, other, f"{label} {level_a} {level_b}", confidence)
        if difference is not None:
            yield level_a, level_b, one, other, difference


def _over_runs(one: BySeed, other: BySeed, seeds: Sequence[int], confidence: float) -> Measure:
    """Differences of whole runs, paired by seed."""
    differences: list[float | None] = []
    for seed in seeds:
        run_a, run_b = one[seed], other[seed]
        apart = [a - b for item, a in run_a.items() if a is not None and (b := run_b.get(item)) is not None]
        differences.append(sum(apart) / len(apart) if apart else None)
    return measure(differences, "differences of runs", confidence=confidence)


def _levels(pairs: Sequence[PairEffect]) -> set[str]:
    return {level for pair in pairs for level in (pair.level_a, pair.level_b)}


def _width(pair: PairEffect) -> float:
    return abs(pair.delta_points)


def _best_first(pair: PairEffect) -> PairEffect:
    if pair.delta_points >= 0:
        return pair
    return replace(
        pair,
        level_a=pair.level_b,
        level_b=pair.level_a,
        delta_points=-pair.delta_points,
        low_points=-pair.high_points,
        high_points=-pair.low_points,
        claim={"better": "worse", "worse": "better"}.get(pair.claim, pair.claim),
        seed_low_points=-pair.seed_high_points if pair.seed_high_points is not None else None,
        seed_high_points=-pair.seed_low_points if pair.seed_low_points is not None else None,
    )
