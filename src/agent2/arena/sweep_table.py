"""The trials of a sweep as a table, one row each, for other programs: Parquet, JSON lines or CSV.

Columns are those of `COLUMNS`, flat and typed; what is not known is null, never a zero. Rates and gains are 0 to 1. A
trial that is not finished, or damaged, has a row with its state and nothing that was measured.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent2.arena.analysis.pool import find_trials
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.sweep_records import SweepRow, row_of, stack_name
from agent2.arena.trial_folder import TrialPaths, read_config, read_events
from agent2.errors import Agent2Error, ConfigError
from agent2.files import atomic_write
from agent2.stats.estimates import Estimate
from agent2.texts import as_csv_cell

Cell = str | float | int | bool | None
SUFFIXES = (".parquet", ".jsonl", ".csv")


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial and where it is."""

    folder: str
    """Below the folder that was read."""
    row: SweepRow


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of the table."""

    name: str
    kind: type
    """str, float, int or bool; every column may hold nulls."""
    cell: Callable[[TrialRow], Cell]


def _field(name: str, kind: type) -> TableColumn:
    return TableColumn(name, kind, lambda trial: getattr(trial.row, name))


def _estimate(name: str) -> tuple[TableColumn, ...]:
    def part(field: str) -> Callable[[TrialRow], Cell]:
        def cell(trial: TrialRow) -> Cell:
            estimate: Estimate | None = getattr(trial.row, name)
            value: float | None = getattr(estimate, field) if estimate is not None else None
            return value

        return cell

    ends = (TableColumn(f"{name}_{end}", float, part(end)) for end in ("low", "high"))
    return (TableColumn(name, float, part("value")), *ends, TableColumn(f"{name}_n", int, part("n")))


COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("folder", str, lambda trial: trial.folder),
    *(_field(name, str) for name in ("trial", "task", "agent", "scaffold", "driver", "mode")),
    _field("seed", int),
    *(_field(name, str) for name in ("state", "result", "claim", "integrity", "route", "reproduced")),
    *(column for name in ("base", "public", "private", "gain") for column in _estimate(name)),
    *(_field(name, float) for name in ("p_value", "noise", "seconds", "llm_dollars", "credit")),
    *(_field(name, int) for name in ("n_submissions", "llm_calls", "llm_tokens", "n_interventions")),
    *(_field(name, int) for name in ("n_failures", "n_recovered")),
    *(_field(name, bool) for name in ("within_noise", "is_completed", "is_autonomous", "has_passed")),
)


def read_rows(folder: Path, progress: Callable[[str, int, int], None] | None = None) -> list[TrialRow]:
    """Every trial at or below a folder. Raises ConfigError if there is none."""
    roots = list(find_trials(folder)) if folder.is_dir() else []
    if not roots:
        raise ConfigError(f"{folder}: contains no trial; pass a sweep, or a folder with trials")
    rows = []
    for done, root in enumerate(roots, start=1):
        rows.append(TrialRow(root.relative_to(folder).as_posix(), _row(root)))
        if progress is not None:
            progress("trials", done, len(roots))
    return rows


def _row(root: Path) -> SweepRow:
    try:
        config = read_config(TrialPaths(root).trial_json)
        scaffold = config.agent.rstrip("/").rpartition("/")[2]
        stack = stack_name(scaffold, config.driver, config.mode)
        if read_events(TrialPaths(root).trial_log).last("finished") is None:
            return SweepRow(
                task=config.task.name, agent=stack, seed=config.seed, trial=config.trial_id, state="not finished",
                scaffold=scaffold, driver=config.driver, mode=config.mode.value,
            )  # fmt: skip
        evidence = read_evidence(root)
        return row_of(evidence, analyse(evidence), stack, scaffold)
    except Agent2Error as error:  # one damaged trial hides no other
        return SweepRow(task="", agent="", seed=0, trial=root.name, state=f"failed: {error}")


def write_rows(rows: Iterable[TrialRow], out: Path) -> None:
    """Write the table in the format of the file's suffix. Raises ConfigError for another suffix."""
    cells = [[column.cell(trial) for column in COLUMNS] for trial in rows]
    names = [column.name for column in COLUMNS]
    if out.suffix == ".parquet":
        atomic_write(out, _parquet(names, cells))
    elif out.suffix == ".jsonl":
        lines = (msgspec.json.encode(dict(zip(names, row, strict=True))) + b"\n" for row in cells)
        atomic_write(out, lines)
    elif out.suffix == ".csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([names, *(map(as_csv_cell, row) for row in cells)])
        atomic_write(out, text.getvalue().encode("utf-8", "replace"))
    else:
        raise ConfigError(f"{out}: the suffix decides the format; use one of {', '.join(SUFFIXES)}")


def _parquet(names: Sequence[str], cells: Sequence[Sequence[Cell]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet

    kinds = {str: pa.string(), float: pa.float64(), int: pa.int64(), bool: pa.bool_()}
    schema = pa.schema([(column.name, kinds[column.kind]) for column in COLUMNS])
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in cells], schema=schema)
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()
