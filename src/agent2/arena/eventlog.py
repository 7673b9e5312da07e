"""Append-only event logs: one JSON object a line, one writer each, on disk when `append` returns.

A harness killed in the middle of a line leaves a torn tail; `read_events` leaves it out and counts it.
"""

import os
import threading
import time
from collections.abc import Callable
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
        if self._file.tell() and path.read_bytes()[-1:] != b"\n":
            self._file.write(b"\n")  # close a torn line, so that it cannot swallow the next one

    def append(self, event: str, *, t: float | None = None, **fields: JsonValue) -> None:
        """Write one event and force it to disk. t: Unix seconds, now by default."""
        line = msgspec.json.encode({"t": self._clock() if t is None else t, "event": event, **fields}) + b"\n"
        with self._lock:
            self._file.write(line)
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """May be called twice."""
        self._file.close()


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
        except msgspec.DecodeError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            n_torn += 1
    return Events(rows, n_torn)
