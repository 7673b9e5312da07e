"""Append-only event logs, and what a trial's log says about interruptions and interventions.

One JSON object a line, one writer each, on disk when `append` returns. A harness killed in the middle of a line
leaves a torn tail; `read_events` leaves it out and counts it.

The agent dies with its harness. `trial.jsonl` then has `agent_interrupted` (Ctrl-C, a full disk) or nothing (a killed
harness, whose last touch of `harness.alive` says when), and `agent_restarted` once the trial was resumed.
`ActiveTime` maps moments to a clock that excludes these pauses.

Interventions are what people did to a trial while its agent worked, written by `agent2 intervene`. They cannot be
detected from outside: an unreported one is unknown, and the report says "none was reported".
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent2.arena.paths import TrialPaths
from agent2.errors import ConfigError
from agent2.files import atomic_write
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
    atomic_write(path, (_line({"t": row["t"], "event": event, **row}) for row in rows), durable=True)


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


LEAST_RESTART_S = 5.0
"""An agent with less time left is not started again: it could do nothing."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """The agent was stopped with its harness and started again."""

    stopped_at: float
    """Unix seconds; of a killed harness when it was alive last."""
    restarted_at: float
    used_s: float
    """Seconds that the agent had worked until then, pauses left out."""
    reason: str


def interruptions(events: Events) -> tuple[Interruption, ...]:
    """Every interruption that was followed by a restart, in order."""
    found: list[Interruption] = []
    began = used_s = 0.0
    told: dict[str, JsonValue] | None = None
    for row in events.rows:
        name = row.get("event")
        if name == "agent_started":
            began = float(row["t"])
        elif name == "agent_interrupted":
            told = row
        elif name == "agent_restarted":
            restarted_at = float(row["t"])
            stopped = min(max(float(row["stopped_at"]), began), restarted_at)
            used_s += stopped - began
            reason = str(told.get("reason", "")) if told is not None else "the harness was killed"
            found.append(Interruption(stopped, restarted_at, used_s, reason))
            began, told = restarted_at, None
    return tuple(found)


def stopped_at(events: Events, paths: TrialPaths) -> float | None:
    """When an open agent phase stopped, Unix seconds; None if no agent was started or its phase is closed."""
    starts = [row for row in events.rows if row.get("event") in ("agent_started", "agent_restarted")]
    if not starts or events.last("agent_ended") is not None:
        return None
    began, deadline = float(starts[-1]["t"]), float(starts[-1]["deadline"])
    told = events.last("agent_interrupted")
    if told is not None and float(told["t"]) >= began:
        last = float(told["t"])
    else:
        last = paths.alive.stat().st_mtime if paths.alive.exists() else began
    return min(max(last, began), deadline)


def time_used(events: Events, paths: TrialPaths) -> float:
    """Seconds that the agent has worked, pauses left out; 0 before it was started."""
    stopped = stopped_at(events, paths)
    if stopped is None:
        return 0.0
    earlier = interruptions(events)
    starts = [row for row in events.rows if row.get("event") in ("agent_started", "agent_restarted")]
    return (earlier[-1].used_s if earlier else 0.0) + stopped - float(starts[-1]["t"])


@dataclass(frozen=True, slots=True)
class ActiveTime:
    """A clock that excludes the agent's interruptions."""

    pauses: Sequence[Interruption]

    def __call__(self, t: float) -> float:
        """A moment (Unix seconds) without the pauses before it; one within a pause is the pause's beginning."""
        lost = sum(max(0.0, min(t, pause.restarted_at) - pause.stopped_at) for pause in self.pauses)
        return t - lost


MAX_NOTE = 2_000


def record_intervention(paths: TrialPaths, note: str, by: str = "") -> None:
    """Append one intervention. Raises ConfigError if the note is empty or too long, or no agent is at work there."""
    if not note.strip() or len(note) > MAX_NOTE:
        raise ConfigError(f"--note has {len(note)} characters; say what was done in 1 to {MAX_NOTE}")
    if not paths.trial_json.is_file():
        raise ConfigError(f"{paths.root}: no trial.json there; pass the folder of a trial")
    events = read_events(paths.trial_log)
    is_at_work = events.last("agent_started") is not None and events.last("agent_ended") is None
    if not is_at_work or not _is_held(paths):
        raise ConfigError(f"{paths.root}: no agent is at work there now; interventions are recorded as they happen")
    log = EventLog(paths.interventions_log)
    try:
        log.append("intervention", note=note, by=by)
    finally:
        log.close()


def _is_held(paths: TrialPaths) -> bool:
    """Whether a harness is at the trial."""
    with paths.harness_lock.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
