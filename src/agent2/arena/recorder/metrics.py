"""Training metrics that an agent's programs left in the workspace.

Two shapes are understood, both common: `trainer_state.json` with a `log_history` (transformers, TRL), and
`*.jsonl` files whose lines are flat objects of numbers with a `step`. Values are what the program says of
itself; nothing is checked against the weights.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec

from agent2.arena.evidence import MetricPoint
from agent2.arena.recorder.files import FoundFile, walk_files
from agent2.records import JsonValue

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_POINTS = 20_000
STEP_KEYS = ("step", "global_step")
TIME_KEYS = ("t", "time", "timestamp")


def find_metrics(workspace: Path) -> list[MetricPoint]:
    """All points of all training logs in the workspace, file by file; `MAX_POINTS` at most."""
    points: list[MetricPoint] = []
    for found in walk_files(workspace, MAX_FILE_BYTES, skip=frozenset({"data"})):
        points.extend(_points(found))
        if len(points) >= MAX_POINTS:
            break
    return points[:MAX_POINTS]


def _points(found: FoundFile) -> Iterator[MetricPoint]:
    name = found.path.rsplit("/", 1)[-1]
    if name == "trainer_state.json":
        rows = _history(found.data)
    elif name.endswith(".jsonl"):
        rows = [row for line in found.data.splitlines() if isinstance(row := _decode(line), dict)]
    else:
        return
    for row in rows:
        values = {str(key): float(value) for key, value in row.items() if _is_number(value)}
        step = next((int(values[key]) for key in STEP_KEYS if key in values), None)
        measured = {key: value for key, value in values.items() if key not in STEP_KEYS + TIME_KEYS}
        if step is None or not measured:
            continue
        moment = next((values[key] for key in TIME_KEYS if key in values), found.mtime)
        yield MetricPoint(t=moment, file=found.path, step=step, values=measured)


def _history(data: bytes) -> list[dict[str, JsonValue]]:
    state = _decode(data)
    history = state.get("log_history") if isinstance(state, dict) else None
    return [row for row in history if isinstance(row, dict)] if isinstance(history, list) else []


def _decode(data: bytes) -> JsonValue:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
