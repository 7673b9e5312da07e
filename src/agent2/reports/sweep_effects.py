"""The tables of driver and scaffold effects on a sweep's page and in the terminal."""

from collections.abc import Sequence

from agent2.arena.sweep_effects import Axis, AxisEffect, PairEffect
from agent2.reports.text import clean
from agent2.reports.words import DASH, p_words, points

AXIS_NAMES = (
    "effect of the", "on", "levels", "furthest apart", "points", "95% interval", "over", "over runs alone",
    "p, adjusted", "verdict",
)  # fmt: skip
PAIR_NAMES = (
    "effect of the", "on", "pair", "difference, points", "interval", "over", "interval over runs alone", "p, adjusted",
    "verdict", "items", "seeds", "missing", "method",
)  # fmt: skip
WORDS = {Axis.DRIVER: "driver", Axis.SCAFFOLD: "agent system"}

Row = tuple[str, ...]


def axis_rows(effects: Sequence[AxisEffect]) -> list[Row]:
    """How much each part matters: the pair that is furthest apart in each family."""
    return [
        (
            WORDS[effect.axis],
            _where(effect.fixed, effect.mode, effect.task),
            str(effect.n_levels),
            clean(f"{effect.widest.level_a} minus {effect.widest.level_b}"),
            points(effect.widest.delta_points),
            _interval(effect.widest.low_points, effect.widest.high_points),
            effect.widest.over,
            _interval(effect.widest.seed_low_points, effect.widest.seed_high_points),
            p_words(effect.widest.p_adjusted),
            effect.widest.claim,
        )
        for effect in effects
    ]


def pair_rows(pairs: Sequence[PairEffect]) -> list[Row]:
    """Every pair."""
    return [
        (
            WORDS[pair.axis],
            _where(pair.fixed, pair.mode, pair.task),
            clean(f"{pair.level_a} minus {pair.level_b}"),
            points(pair.delta_points),
            _interval(pair.low_points, pair.high_points),
            pair.over,
            _interval(pair.seed_low_points, pair.seed_high_points),
            p_words(pair.p_adjusted),
            pair.claim,
            str(pair.n_items),
            str(pair.n_seeds),
            str(pair.n_missing),
            clean(pair.method),
        )
        for pair in pairs
    ]


def _where(fixed: str, mode: str, task: str) -> str:
    return clean(f"{fixed} · {task}" + (f" · {mode}" if mode != "free" else ""))


def _interval(low: float | None, high: float | None) -> str:
    return DASH if low is None or high is None else f"[{low:+.1f}, {high:+.1f}]"
