"""Append-only event logs: one JSON object a line, one writer each, on disk when `append` returns.

A harness killed in the middle of a line leaves a torn tail; `read_events` leaves it out and counts it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent2.records import JsonValue


class EventLog:
    """The writer of one log; safe to call from several threads."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._lock = threading.Lock()
        self._file = path.open("ab", buffering=0)
        self._is_torn = _ends_torn(path)

    def append(self, event: str, *, t: float | None = None, **fields: JsonValue) -> None:
        """Write one event and force it to disk. t: Unix seconds, now by default."""
        line = _line({"t": self._clock() if t is None else t, "event": event, **fields})
        with self._lock:
            rest = memoryview(b"\n" + line if self._is_torn else line)  # a torn line must not swallow this one
            self._is_torn = True
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
            self._is_torn = False

    def close(self) -> None:
        """May be called twice."""
        self._file.close()


def _ends_torn(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return size > 0 and file.read() != b"\n"


def write_events(path: Path, event: str, rows: Iterable[dict[str, JsonValue]]) -> None:
    """Write a whole log at once, or nothing; replaces an earlier one. Each row has its own "t"."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.writelines(_line({"t": row["t"], "event": event, **row}) for row in rows)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _line(row: dict[str, JsonValue]) -> bytes:
    try:
        return msgspec.json.encode(row) + b"\n"
    except (UnicodeEncodeError, OverflowError):  # it holds text or a number of an agent's making
        return msgspec.json.encode(_storable(row)) + b"\n"


def _storable(value: JsonValue) -> JsonValue:
    """The value with text that is not Unicode escaped, and integers beyond 64 bits as text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    if isinstance(value, dict):
        return {str(_storable(key)): _storable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(inner) for inner in value]
    return value


@dataclass(frozen=True, slots=True)
class Events:
    """What a log holds."""

    rows: list[dict[str, JsonValue]]
    n_torn: int
    """Lines that are no JSON object: torn by a kill, or not ours."""

    def last(self, event: str) -> dict[str, JsonValue] | None:
        """The latest row of that name."""
        return next((row for row in reversed(self.rows) if row.get("event") == event), None)


def read_events(path: Path) -> Events:
    """All whole lines; a missing log is an empty one."""
    if not path.exists():
        return Events([], 0)
    rows: list[dict[str, JsonValue]] = []
    n_torn = 0
    for line in path.read_bytes().splitlines():
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            n_torn += 1
    return Events(rows, n_torn)
