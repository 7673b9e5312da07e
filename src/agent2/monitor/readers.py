"""Reads what trainers log: our JSON lines, Trainer states, TensorBoard, Weights & Biases and trackio.

The shape is recognised from the file, not set by an option:

    *.jsonl                     one flat object a line with `step` (ours, W&B's wandb-history.jsonl with `_step`)
    trainer_state.json          transformers and TRL: `log_history`
    *.csv                       W&B's export: a step column and one column for each run and metric
    *.db                        trackio's SQLite database of a project, one or more runs
    *.wandb                     W&B's file of an offline run
    *.log, *.out, *.txt         what transformers, TRL or verl printed (`monitor.console`)
    folder with events.out.*    TensorBoard, one run a folder (needs the extra `tensorboard`)
    folder of such folders      one run each

Promises: a line that cannot be read is an error with its number, except a torn last line, which a running trainer
may leave and which is noted. Two launches in one file, folder or run are never one series: where the later one begins
at a step that the earlier one had passed, the later one counts from there on, and the notes say so.

A `.wandb` file is read without the wandb package, up to its last whole record while it is still being written; a
damaged chunk is an error with its place. It is a log of records in blocks of 32 KiB, as LevelDB writes them: a file
header, then chunks, each with checksum, length and type; a record that does not fit into its block continues in the
next one. A record is a Protocol Buffers message. The numbers of the few fields that are read here are part of W&B's
format (`wandb/proto/wandb_internal.proto`), which earlier versions share. Checked with files of wandb 0.31. System
metrics, media, tables and the console are not read.
"""

import csv
import json
import sqlite3
import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from agent2.errors import ConfigError
from agent2.foreign_databases import foreign_database, require_table
from agent2.foreign_files import MAX_LOG_BYTES, read_named
from agent2.installation import install_hint
from agent2.monitor.console import console_rows
from agent2.monitor.series import Reading, TrainingLog, assemble
from agent2.monitor.signals import is_summary, measurements
from agent2.records import JsonValue

BLOCK = 32 * 1024
MAGIC = b":W&B"
_FILE_HEADER = struct.Struct("<4sHB")
_CHUNK_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _ITEM, _KEY, _NESTED_KEY, _VALUE_JSON = 2, 1, 1, 2, 16
"""Field numbers: Record.history, HistoryRecord.item, and those of HistoryItem."""
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


TRAINER_STEPS = ("train/global_step", "trainer/global_step")
"""The optimiser's step in W&B, whose own `_step` counts the calls of `wandb.log`."""
STEP_KEYS = ("step", "global_step", *TRAINER_STEPS, "_step", "Step")
CONSOLE_SUFFIXES = (".log", ".out", ".txt")
_NOT_MEASURED = frozenset({"t", "time", "timestamp", "seconds", "epoch", "_timestamp", "_runtime", "_wandb"})
_TIMINGS = "profiling/"
"""TRL's, one row for each call of a function."""
_ENVELOPES = frozenset({"data", "metrics", "logs"})
"""Names of an object that holds all measurements of a line: verl's file logger has `data`."""
MAX_NESTED = 4
_EVENTS = "events.out.tfevents"
_SUMMARY_TAGS = frozenset(
    {"train_loss", "train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos"}
)
"""What a Trainer writes once at its end; not points of the run."""
_CSV_SUFFIXES = ("__MIN", "__MAX")

_Point = tuple[int, str, float, str]
"""(step, name, value, source line or row)."""


def history_rows(path: Path, notes: list[str]) -> Iterator[dict[str, JsonValue]]:
    """The rows that `wandb.log` was called with, one a step of W&B (`_step`); nested keys are joined with dots.

    notes: gets a line if the file's end is incomplete. Raises ConfigError if it is not a W&B file or is damaged.
    """
    for offset, record in _records(path, notes):
        try:
            histories = [value for number, value in _fields(record) if number == _HISTORY]
            for history in histories:
                yield dict(_item(value) for number, value in _fields(history) if number == _ITEM)
        except (ValueError, IndexError) as error:
            raise ConfigError(
                f"{path}: the record at byte {offset} cannot be read ({error}); copy the file again"
            ) from error


def _records(path: Path, notes: list[str]) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of each record."""
    try:
        data = read_named(path, MAX_LOG_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    if data[: len(MAGIC)] != MAGIC:
        raise ConfigError(f"{path}: does not begin as a W&B file does; pass the `run-*.wandb` of an offline run")
    offset, parts, record_offset = _FILE_HEADER.size, list[bytes](), 0
    while offset + _CHUNK_HEADER.size <= len(data):
        if BLOCK - offset % BLOCK < _CHUNK_HEADER.size:  # a header never spans two blocks: the rest is zeros
            offset += BLOCK - offset % BLOCK
            continue
        checksum, length, kind = _CHUNK_HEADER.unpack_from(data, offset)
        begin = offset + _CHUNK_HEADER.size
        if begin + length > len(data):
            break
        chunk = data[begin : begin + length]
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or zlib.crc32(chunk, zlib.crc32(bytes([kind]))) != checksum:
            raise ConfigError(f"{path}: the chunk at byte {offset} is damaged; copy the file again")
        if kind in (_FULL, _FIRST):
            parts, record_offset = [], offset
        parts.append(chunk)
        offset = begin + length
        if kind in (_FULL, _LAST):
            yield record_offset, b"".join(parts)
            parts = []
    if parts or offset < len(data):
        begin = record_offset if parts else offset
        notes.append(f"the file ends within a record (byte {begin}): the run is still being written")


def _item(message: bytes) -> tuple[str, JsonValue]:
    """Name and value of one logged quantity."""
    key, nested, text = "", list[str](), "null"
    for number, value in _fields(message):
        if number == _KEY:
            key = value.decode()
        elif number == _NESTED_KEY:
            nested.append(value.decode())
        elif number == _VALUE_JSON:
            text = value.decode()
    return ".".join(nested) or key, json.loads(text)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, bytes) of the fields of a message that have a length; numbers are skipped."""
    offset = 0
    while offset < len(message):
        tag, offset = _varint(message, offset)
        number, kind = tag >> 3, tag & 7
        if kind == _LENGTH:
            length, offset = _varint(message, offset)
            if offset + length > len(message):
                raise ValueError(f"field {number} is longer than its message")
            yield number, message[offset : offset + length]
            offset += length
        elif kind == _VARINT:
            _, offset = _varint(message, offset)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            offset += 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"field {number} is of the unknown type {kind}")


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    """A number of variable length, and the offset of the next byte. Raises IndexError at the end of the message."""
    value, shift = 0, 0
    while True:
        byte = message[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


@dataclass(frozen=True, slots=True)
class _TrackedRun:
    """One run as it was logged, before names are mapped."""

    name: str
    points: Iterator[_Point]
    notes: list[str] = field(default_factory=list)
    """Filled while the points are read."""


def read_log(path: Path, keep: Collection[str] = ()) -> TrainingLog:
    """The one run that a file or folder holds. keep: a suite's names for metrics, kept beside ours.

    Raises ConfigError if it is of no known shape, has a line that cannot be read, holds no number at a step, or holds
    several runs (`read_logs` takes those).
    """
    logs = read_logs(path, keep)
    if len(logs) > 1:
        names = ", ".join(log.name for log in logs[:8])
        raise ConfigError(f"{path}: contains {len(logs)} runs ({names}); pass the folder or file of one of them")
    return logs[0]


def read_logs(path: Path, keep: Collection[str] = ()) -> list[TrainingLog]:
    """Every run that a file or folder holds, by name. Raises ConfigError as `read_log` does."""
    logs = []
    for run in _runs(path):
        readings = [
            Reading(step, ours, number, where)
            for step, name, value, where in run.points
            for ours, number in measurements(name, value, keep)
        ]
        log = assemble(run.name, readings, run.notes)
        if log.series or log.not_finite:
            logs.append(log)
    if not logs:
        raise ConfigError(f"{path}: contains no number at any step; a line needs `step` and at least one measurement")
    return sorted(logs, key=lambda log: log.name)


def _runs(path: Path) -> list[_TrackedRun]:
    if path.is_dir():
        return _folder(path)
    notes: list[str] = []
    if path.suffix == ".jsonl":
        return [_TrackedRun(path.stem, _relaunched(_json_lines(path, notes), notes), notes)]
    if path.suffix == ".json":
        return [_TrackedRun(path.stem, _trainer_state(path))]
    if path.suffix == ".csv":
        return _csv(path)
    if path.suffix in (".db", ".sqlite"):
        return _trackio(path)
    if path.suffix == ".wandb":
        return [_wandb(path)]
    if path.suffix in CONSOLE_SUFFIXES:
        return [_TrackedRun(path.stem, _relaunched(_console(path, notes), notes), notes)]
    if not path.exists():
        raise ConfigError(f"{path}: no such file or folder; pass the trainer's output folder, or its log")
    raise ConfigError(
        f"{path}: not a training log of a known shape; pass a .jsonl, trainer_state.json, W&B .csv, "
        "trackio .db, W&B .wandb, the console's output as .log, or a folder of TensorBoard events"
    )


def _folder(path: Path) -> list[_TrackedRun]:
    """The runs of a folder; subfolders with logs of their own are runs of their own."""
    event_folders = sorted({file.parent for file in path.glob(f"**/{_EVENTS}*")})
    if event_folders:
        return [_tensorboard(folder, path) for folder in event_folders]
    offline = sorted({file.resolve() for file in path.glob("**/*.wandb")})  # wandb/latest-run is a link to one of them
    if offline:
        return [_wandb(file) for file in offline]
    notes: list[str] = []
    for name in ("train_log.jsonl", "wandb-history.jsonl"):
        if (path / name).is_file():
            return [_TrackedRun(path.name, _relaunched(_json_lines(path / name, notes), notes), notes)]
    states = sorted(path.glob("**/trainer_state.json"), key=lambda state: (len(state.parts), _checkpoint_step(state)))
    if states:
        return [_TrackedRun(path.name, _trainer_state(states[-1]))]
    logs = sorted(path.glob("*/train_log.jsonl"))
    if logs:
        return [
            _TrackedRun(log.parent.name, _relaunched(_json_lines(log, log_notes), log_notes), log_notes)
            for log, log_notes in ((log, list[str]()) for log in logs)
        ]
    raise ConfigError(
        f"{path}: no {_EVENTS}*, *.wandb, train_log.jsonl, wandb-history.jsonl or trainer_state.json in it; "
        "pass the log itself"
    )


def _checkpoint_step(state: Path) -> int:
    digits = state.parent.name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else -1


def _json_lines(path: Path, notes: list[str]) -> Iterator[_Point]:
    lines = _text(path).split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # no line feed after it: still being written
                notes.append(f"the last line ({number}) is not complete, left out")
                return
            raise ConfigError(f"{path}:{number}: not a JSON object ({error}); fix or delete the line") from error
        if not isinstance(row, dict):
            raise ConfigError(f"{path}:{number}: is a JSON {type(row).__name__}, each line must be an object")
        yield from _row(row, f"{path.name}:{number}", path)


def _trainer_state(path: Path) -> Iterator[_Point]:
    try:
        state = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: is not JSON ({error}); pass the trainer_state.json that the trainer wrote"
        ) from error
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise ConfigError(f"{path}: has no `log_history` list; pass the trainer_state.json that the trainer wrote")
    for number, row in enumerate(history):
        if not isinstance(row, dict):
            raise ConfigError(f"{path}: log_history[{number}] is not an object; restore the file")
        yield from _row(row, f"log_history[{number}]", path)


def _console(path: Path, notes: list[str]) -> Iterator[_Point]:
    n_rows = 0
    for number, row in console_rows(_text(path, errors="replace"), STEP_KEYS, notes):
        n_rows += 1
        yield from _row(row, f"{path.name}:{number}", path)
    if not n_rows:
        raise ConfigError(
            f"{path}: no line of it is a dict of measurements as transformers and TRL print it, or verl's "
            "`step:1 - name:value`; pass the run's own log"
        )


def _row(row: Mapping[str, JsonValue], where: str, path: Path) -> Iterator[_Point]:
    step = next((row[key] for key in STEP_KEYS if key in row), None)
    if isinstance(step, bool) or not isinstance(step, int | float) or not abs(step) < 2**63:
        raise ConfigError(
            f"{path}: {where} has no usable step (got {step!r}); each line of a training log needs a whole number "
            "`step` (logs of evaluations are read by agent2 cards import)"
        )
    if is_summary(row):
        return
    for key, value in _flat(row):
        if key in STEP_KEYS or key.rpartition("/")[2] in _NOT_MEASURED or key.startswith(_TIMINGS):
            continue
        if isinstance(value, bool):
            continue
        if isinstance(value, int | float):
            yield int(step), key, float(value), where
        elif isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):  # as W&B writes them
            yield int(step), key, float(value.replace("Infinity", "inf")), where


def _flat(row: Mapping[str, JsonValue], prefix: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Names and values of a row; those of an object inside have its name before theirs, unless it holds all."""
    for key, value in row.items():
        if isinstance(value, dict) and prefix.count("/") < MAX_NESTED:
            yield from _flat(value, prefix if key in _ENVELOPES else f"{prefix}{key}/")
        else:
            yield prefix + key, value


def _csv(path: Path) -> list[_TrackedRun]:
    """W&B's table export: `Step`, then `<run> - <metric>` with `__MIN` and `__MAX` beside it."""
    # not splitlines(): a name may hold U+2028, which ends no line of a CSV file
    text = _text(path)
    try:
        rows = list(csv.DictReader(text.split("\n")))
    except csv.Error as error:  # a field longer than the module takes, or a NUL
        raise ConfigError(f"{path}: is not valid CSV ({error}); export the table again") from error
    columns = list(rows[0]) if rows else []
    step_column = next((key for key in STEP_KEYS if key in columns), None)
    if step_column is None:
        raise ConfigError(f"{path}:1: has no step column; one of {', '.join(STEP_KEYS)} is needed, got {columns}")
    metrics = [c for c in columns if c != step_column and not c.endswith(_CSV_SUFFIXES) and c not in _NOT_MEASURED]
    n_columns = Counter(next(csv.reader(text.split("\n")), []))
    by_run: dict[str, list[str]] = {}
    for column in metrics:
        by_run.setdefault(column.rpartition(" - ")[0], []).append(column)
    runs = []
    for run, names in by_run.items():
        doubled = [name for name in names if n_columns[name] > 1]
        notes = [f"{n_columns[name]} columns have the name {name!r}: only the last one is read" for name in doubled]
        runs.append(
            _TrackedRun(run or path.stem, _relaunched(_csv_points(path, rows, step_column, names), notes), notes)
        )
    return runs


def _csv_points(path: Path, rows: list[dict[str, str]], step_column: str, columns: list[str]) -> Iterator[_Point]:
    for number, row in enumerate(rows, start=2):
        for column in columns:
            text = (row[column] or "").strip()
            if not text:
                continue
            try:
                yield int(float(row[step_column])), column.rpartition(" - ")[2], float(text), f"{path.name}:{number}"
            except ValueError as error:
                raise ConfigError(f"{path}:{number}: column {column!r} is {text!r}, a number is needed") from error


def _tensorboard(folder: Path, top: Path) -> _TrackedRun:
    try:
        from tensorboard.backend.event_processing.event_accumulator import (
            EventAccumulator,  # the extra is needed only for such folders
        )
    except ImportError as error:
        raise ConfigError(
            f"{folder}: reading TensorBoard events needs tensorboard; {install_hint('tensorboard')}"
        ) from error
    notes: list[str] = []
    launches: list[list[_Point]] = []
    for file in sorted(folder.glob(f"{_EVENTS}*"), key=lambda file: (file.name.split(".")[3:4], file.name)):
        accumulator = EventAccumulator(str(file), size_guidance={"scalars": 0, "tensors": 0})
        accumulator.Reload()
        points = [
            (event.step, tag, event.value, f"{file.name}: {tag}")
            for tag in accumulator.Tags()["scalars"]
            if tag.rpartition("/")[2] not in _SUMMARY_TAGS
            for event in accumulator.Scalars(tag)
        ]
        if points:
            launches.append(points)
    name = folder.name if folder == top else str(folder.relative_to(top))
    return _TrackedRun(name, iter(_last_launch(launches, notes)), notes)


def _last_launch(launches: list[list[_Point]], notes: list[str]) -> list[_Point]:
    """The points of a run in launch order; a launch replaces what earlier ones logged from its first step on."""
    points: list[_Point] = []
    for launch in launches:
        first_step, last_step = min(point[0] for point in launch), max((point[0] for point in points), default=-1)
        if points and first_step <= last_step:
            notes.append(
                f"holds another launch that begins at step {first_step}, where the one before had reached "
                f"{last_step}: from there on only the later one is read"
            )
            points = [point for point in points if point[0] < first_step]
        points += launch
    return points


def _relaunched(points: Iterable[_Point], notes: list[str]) -> Iterator[_Point]:
    """The points of a log to which several launches wrote, without what a later launch replaces.

    A launch begins where a quantity goes back to a step that it already has, or goes back and goes on from there; a
    single line that came late goes on behind the steps before it.
    """
    rows = [list(row) for _, row in groupby(points, key=lambda point: (point[3], point[0]))]
    next_step = _next_steps(rows)
    launches: list[list[_Point]] = [[]]
    last_step: dict[str, int] = {}
    steps_logged: dict[str, set[int]] = {}
    for index, row in enumerate(rows):
        for step, name, _, _ in row:
            following = next_step.get((index, name), step)
            goes_on = step in steps_logged.get(name, ()) or step < following <= last_step.get(name, step)
            if step < last_step.get(name, step) and goes_on:
                launches.append([])
                last_step, steps_logged = {}, {}
                break
        launches[-1] += row
        for step, name, _, _ in row:
            last_step[name] = max(step, last_step.get(name, step))
            steps_logged.setdefault(name, set()).add(step)
    return iter(_last_launch([launch for launch in launches if launch], notes))


def _next_steps(rows: Sequence[Sequence[_Point]]) -> dict[tuple[int, str], int]:
    """(index of a row, name) -> the step at which that quantity is logged next."""
    next_step: dict[tuple[int, str], int] = {}
    later: dict[str, int] = {}
    for index in reversed(range(len(rows))):
        for _, name, _, _ in rows[index]:
            if name in later:
                next_step[index, name] = later[name]
        later.update({name: step for step, name, _, _ in rows[index]})
    return next_step


def _wandb(path: Path) -> _TrackedRun:
    """An offline run. A row without the trainer's step, such as a program's own, belongs to the one before it."""
    notes: list[str] = []
    rows = list(history_rows(path, notes))
    is_stepped = any(key in row for row in rows for key in TRAINER_STEPS)
    launches: list[list[_Point]] = [[]]
    step: JsonValue = 0
    for number, row in enumerate(rows, start=1):
        before, step = step, next((row[key] for key in TRAINER_STEPS if key in row), step)
        if isinstance(step, int | float) and isinstance(before, int | float) and step < before:
            launches.append([])
        launches[-1] += _row({**row, "step": step} if is_stepped else row, f"row {number}", path)
    return _TrackedRun(path.stem, iter(_last_launch([points for points in launches if points], notes)), notes)


def _trackio(path: Path) -> list[_TrackedRun]:
    """Trackio keeps a project in one table: `metrics(timestamp, run_name, step, metrics)`, the metrics as JSON.

    Its later versions have a `run_id`: of several runs of one name the one that began last is read.
    """
    try:
        with closing(foreign_database(path)) as connection:
            require_table(connection, "metrics", path)
            columns = {column[1] for column in connection.execute("PRAGMA table_info(metrics)")}
            run_id = "run_id" if "run_id" in columns else "run_name"
            rows = connection.execute(f"SELECT run_name, {run_id}, step, metrics FROM metrics ORDER BY id").fetchall()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except sqlite3.Error as error:
        raise ConfigError(f"{path}: not a trackio database ({error}); pass the .db file of a project") from error
    by_name: dict[str, dict[str, list[_Point]]] = {}
    for number, (name, run, step, text) in enumerate(rows, start=1):
        try:
            measured = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigError(f"{path}: metrics of row {number} are not JSON ({error}); delete the row") from error
        if not isinstance(measured, dict):
            raise ConfigError(f"{path}: metrics of row {number} are not an object; delete the row")
        by_run = by_name.setdefault(str(name), {})
        by_run.setdefault(str(run), []).extend(_row({**measured, "step": step}, f"row {number}", path))
    tracked = []
    for name, by_run in by_name.items():
        run, points = list(by_run.items())[-1]
        notes = [f"{len(by_run)} runs have the name {name!r}: only the last one ({run}) is read"] * (len(by_run) > 1)
        tracked.append(_TrackedRun(name, _relaunched(points, notes), notes))
    return tracked


def _text(path: Path, errors: str = "strict") -> str:
    try:
        return read_named(path, MAX_LOG_BYTES).decode("utf-8", errors)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from error
