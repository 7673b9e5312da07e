"""Training metrics that an agent's programs left in the workspace.

Two shapes are understood, both common: `trainer_state.json` with a `log_history` (transformers, TRL), and
`*.jsonl` files whose lines are flat objects of numbers with a `step`. Values are what the program says of
itself; nothing is checked against the weights. Values that are not finite are left out.
"""

import json
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from agent2.arena.eventlog import write_events
from agent2.arena.evidence import MetricPoint
from agent2.arena.recorder.files import FoundFile, walk_files
from agent2.files import numbered_lines
from agent2.records import JsonValue

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_POINTS = 20_000
MAX_VALUES = 100
"""Of one point."""
MAX_NAME_CHARS = 200
MAX_STEP = 2**53
MAX_AGE_S = 30 * 24 * 3600.0
"""A point's own time counts if it is at most this long before the last change of its file, and not after it."""
STEP_KEYS = ("step", "global_step")
TIME_KEYS = ("t", "time", "timestamp")


def record_metrics(workspace: Path, log: Path) -> None:
    """Write what is found now to a log, in place of what it held."""
    write_events(
        log,
        "metric",
        ({"t": p.t, "file": p.file, "step": p.step, "values": dict(p.values)} for p in find_metrics(workspace)),
    )


def find_metrics(workspace: Path) -> list[MetricPoint]:
    """All points of all training logs in the workspace, file by file; `MAX_POINTS` at most."""
    files = walk_files(workspace, MAX_FILE_BYTES, skip=frozenset({"data", ".grader"}))
    return list(islice((point for found in files for point in _points(found)), MAX_POINTS))


def _points(found: FoundFile) -> Iterator[MetricPoint]:
    for row in _rows(found):
        values = {_name(key): number for key, value in row.items() if (number := _number(value)) is not None}
        step = next((values[key] for key in STEP_KEYS if key in values), None)
        measured = {key: value for key, value in values.items() if key not in STEP_KEYS + TIME_KEYS}
        if step is None or abs(step) > MAX_STEP or not measured:
            continue
        said = next((values[key] for key in TIME_KEYS if key in values), found.mtime)
        moment = said if found.mtime - MAX_AGE_S <= said <= found.mtime + 1 else found.mtime
        kept = dict(islice(measured.items(), MAX_VALUES))
        yield MetricPoint(t=moment, file=found.path, step=int(step), values=kept)


def _rows(found: FoundFile) -> Iterator[dict[str, JsonValue]]:
    name = found.path.rsplit("/", 1)[-1]
    if name == "trainer_state.json":
        state = _decode(found.data)
        history = state.get("log_history") if isinstance(state, dict) else None
        if isinstance(history, list):
            yield from (row for row in history if isinstance(row, dict))
    elif name.endswith(".jsonl"):
        yield from (row for _, line in numbered_lines(found.data) if isinstance(row := _decode(line), dict))


def _decode(data: bytes) -> JsonValue:
    """A JSON value, also with the NaN that Python's own writer leaves; None for anything else."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the slower reader takes NaN
    if b"NaN" not in data and b"Infinity" not in data:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _name(key: str) -> str:
    return key[:MAX_NAME_CHARS].encode("utf-8", "backslashreplace").decode()[:MAX_NAME_CHARS]


def _number(value: JsonValue) -> float | None:
    """A finite number; None for everything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
