"""The table of a pipeline on several base models."""

from collections.abc import Sequence

from agent2.arena.scale_rows import ScaleRow
from agent2.reports.text import DASH, Column, Table, clean
from agent2.stats.estimates import PERCENT, POINTS

MIB = 1 << 20


def scale_table(rows: Sequence[ScaleRow]) -> Table[ScaleRow]:
    """One row for each base model, the recorded one first."""
    return Table(
        (
            Column("base model", lambda row: clean(row.model, 60) + (" (recorded)" if row.is_recorded else "")),
            Column("weights", lambda row: f"{row.n_weights:,}" if row.n_weights is not None else DASH),
            Column("pipeline", lambda row: row.verdict.value),
            Column("base, private", lambda row: PERCENT.estimate(row.base) if row.base is not None else DASH),
            Column("gain, points", lambda row: POINTS.estimate(row.gain.change) if row.gain is not None else DASH),
            Column("minutes", lambda row: _number(row.minutes)),
            Column("CPU minutes", lambda row: _number(row.cpu_minutes)),
            Column(
                "peak memory, MiB", lambda row: f"{row.peak_bytes / MIB:.0f}" if row.peak_bytes is not None else DASH
            ),
            Column("differs besides size", lambda row: clean("; ".join(row.differences), 200) or DASH),
        ),
        rows,
    )


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.1f}"
