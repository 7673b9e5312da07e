"""The table of compared recipes."""

from collections.abc import Sequence

from agent2.arena.recipe_rows import OptionResult
from agent2.reports.text import DASH, Column, Table, clean
from agent2.stats.estimates import POINTS


def recipe_table(results: Sequence[OptionResult]) -> Table[OptionResult]:
    """One row for each option."""
    return Table(
        (
            Column("option", lambda result: clean(result.option, 60)),
            Column("what it does", lambda result: clean(result.about, 120)),
            Column("seeds", lambda result: str(sum(run.gain is not None for run in result.runs))),
            Column("gain, points [95% over seeds]", _gain),
            Column("dangers (seeds)", lambda result: _dangers(result) or DASH),
            Column("minutes a seed", lambda result: f"{result.minutes:.1f}"),
            Column("CPU minutes", lambda result: f"{result.cpu_minutes:.1f}"),
        ),
        results,
    )


def _gain(result: OptionResult) -> str:
    return POINTS.estimate(result.gain) if result.gain is not None else DASH


def _dangers(result: OptionResult) -> str:
    return ", ".join(f"{name} ({n})" for name, n in result.dangers.items())
