"""A trial's folder: its layout, its machine-written JSON files, its event logs. The agent sees only `workspace/`.

trials/<trial_id>/
├── trial.json            resolved configuration (machine-written)
├── lock.json             digests and versions that the result depends on
├── grader.db             submissions and scores; only the grader writes it
├── events/               append-only logs, one writer each
│   ├── trial.jsonl           phases of the trial
│   ├── revisions.jsonl       code revisions
│   ├── processes.jsonl       what ran, CPU and memory
│   ├── gpu.jsonl             use of GPUs, where there are any
│   ├── commands.jsonl        command lines that the agent says it ran
│   ├── network.jsonl         what was fetched from registries or hosts, where the policy allows any
│   ├── metrics.jsonl         training metrics found in the workspace
│   ├── interventions.jsonl   what people did while the agent worked (agent2 intervene)
│   ├── reproductions.jsonl   what came out when the recorded program was run again (agent2 reproduce)
│   └── retention.jsonl       what the final checkpoint still does beside its task (agent2 retention)
├── workspace/            bound read-write at /workspace in the sandbox
│   ├── ASSIGNMENT.md, assignment.json
│   ├── data/                 train.jsonl, dev.jsonl
│   ├── code/                 the agent's programs
│   └── output/               the agent's checkpoints and design.json
├── revisions.git/        bare repository, one commit for each code revision
├── submissions/<n>/      snapshot/ (taken at submit time), card/ (evaluation on test_public)
├── cards/                base-test_public, base-test_private, base-noise, final-test_private; held-out tasks
├── llm/                  recorded LLM traffic; no keys
├── launch/               the agent's configuration and prompt, read-only at /launch
├── run/                  unix sockets while the trial runs, each alone in its folder
├── harness.lock          held by the harness that runs the trial
├── harness.alive         touched by it while the agent works
├── agent.log             what the agent printed (agent.1.log: before it was started again)
├── mark.json             what the installation vouches for, keyed with its secret (`agent2.arena.trial_mark`)
├── assignment/           what the grader's runs of an assignment's programs left (`agent2.arena.assignments`)
├── retention/            cards of base and final on benchmarks beside the task
├── replay.json           of a replay: what was the same as in its source, and what was not
├── pruned.json           what `agent2 prune` has dropped of a finished trial (`agent2.arena.pruning`)
└── report/               report.json, report.md, report.html, figures

A recording made to be shared (`agent2 share`) has submissions.json in place of grader.db, cards/ and submissions/.

Event logs are append-only: one JSON object a line, one writer each, on disk when `append` returns. A harness killed in
the middle of a line leaves a torn tail; `read_events` leaves it out and counts it.

The agent dies with its harness. `trial.jsonl` then has `agent_interrupted` (Ctrl-C, a full disk) or nothing (a killed
harness; the time of its last touch of `harness.alive` counts), and `agent_restarted` once the trial was resumed.
`ActiveTime` maps moments to a clock that excludes these pauses.

Interventions are what people did to a trial while its agent worked, written by `agent2 intervene`. They cannot be
detected from outside: an unreported one is unknown, and the report says "none was reported".
"""

import fcntl
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pydantic import ValidationError

from agent2.arena.evidence import Interruption
from agent2.arena.spec import TrialConfig
from agent2.errors import ConfigError
from agent2.files import atomic_write
from agent2.foreign_files import MAX_LOG_BYTES, open_regular, read_limited
from agent2.records import JsonValue, Split

LEAST_RESTART_S = 5.0
"""An agent with less time left is not started again: it could do nothing."""
MAX_CLOCK_WAIT_S = 300.0
"""Clocks of the nodes of a cluster may be as far apart when a trial moves from one to another."""
HELD_OUT_SCORED = "held_out_scored"
"""Event of `trial.jsonl`, one for each held-out task."""
MAX_NOTE = 2_000
"""Characters of the note on an intervention."""


@dataclass(frozen=True, slots=True)
class TrialPaths:
    """The paths of one trial."""

    root: Path

    @property
    def trial_json(self) -> Path:
        """Resolved configuration."""
        return self.root / "trial.json"

    @property
    def lock_json(self) -> Path:
        """Digests and versions."""
        return self.root / "lock.json"

    @property
    def agent(self) -> Path:
        """The agent's files as they ran."""
        return self.root / "agent"

    @property
    def grader_db(self) -> Path:
        """SQLite file of the grader."""
        return self.root / "grader.db"

    @property
    def events(self) -> Path:
        """Folder of the append-only logs."""
        return self.root / "events"

    @property
    def trial_log(self) -> Path:
        """Phases of the trial."""
        return self.events / "trial.jsonl"

    @property
    def revisions_log(self) -> Path:
        """Code revisions."""
        return self.events / "revisions.jsonl"

    @property
    def processes_log(self) -> Path:
        """Process samples."""
        return self.events / "processes.jsonl"

    @property
    def metrics_log(self) -> Path:
        """Training metrics found in the workspace."""
        return self.events / "metrics.jsonl"

    @property
    def commands_log(self) -> Path:
        """Command lines that the agent says it ran."""
        return self.events / "commands.jsonl"

    @property
    def gpu_log(self) -> Path:
        """Use of GPUs, where there are any."""
        return self.events / "gpu.jsonl"

    @property
    def network_log(self) -> Path:
        """What the agent's proxy fetched or connected to, where its network policy has one."""
        return self.events / "network.jsonl"

    @property
    def interventions_log(self) -> Path:
        """What people did while the agent worked."""
        return self.events / "interventions.jsonl"

    @property
    def reproductions_log(self) -> Path:
        """What came out when the recorded program was run again."""
        return self.events / "reproductions.jsonl"

    @property
    def retention_log(self) -> Path:
        """What the final checkpoint still does beside its task."""
        return self.events / "retention.jsonl"

    @property
    def retention(self) -> Path:
        """Cards of base and final on benchmarks beside the task."""
        return self.root / "retention"

    @property
    def llm(self) -> Path:
        """Recorded LLM traffic."""
        return self.root / "llm"

    @property
    def llm_socket(self) -> Path:
        """Unix socket of the LLM gateway, alone in its folder."""
        return self.root / "run" / "llm" / "gateway.sock"

    @property
    def launch(self) -> Path:
        """The agent's configuration files and prompt."""
        return self.root / "launch"

    @property
    def mark_json(self) -> Path:
        """The installation's mark."""
        return self.root / "mark.json"

    @property
    def shared_submissions(self) -> Path:
        """The submissions of a recording that was made to be shared."""
        return self.root / "submissions.json"

    @property
    def replay_json(self) -> Path:
        """How a replay differs from its source."""
        return self.root / "replay.json"

    @property
    def workspace(self) -> Path:
        """The only folder that the agent may write to."""
        return self.root / "workspace"

    @property
    def revisions_git(self) -> Path:
        """Bare repository of code revisions."""
        return self.root / "revisions.git"

    @property
    def grader_socket(self) -> Path:
        """Unix socket of the grading API, alone in its folder so that the folder can be bound."""
        return self.root / "run" / "grader.sock"

    @property
    def agent_log(self) -> Path:
        """Standard output and error of the agent."""
        return self.root / "agent.log"

    @property
    def alive(self) -> Path:
        """Touched by the harness while the agent works: its time says when a killed harness was last alive."""
        return self.root / "harness.alive"

    @property
    def resume_command(self) -> str:
        """The shell command that resumes the trial."""
        return f"agent2 resume {shlex.quote(str(self.root))}"

    @property
    def report(self) -> Path:
        """Folder of the report."""
        return self.root / "report"

    def submission(self, number: int) -> Path:
        """Folder of one submission."""
        return self.root / "submissions" / str(number)

    def snapshot(self, number: int) -> Path:
        """The checkpoint as it was when submitted."""
        return self.submission(number) / "snapshot"

    def submission_card(self, number: int) -> Path:
        """Its evaluation on test_public."""
        return self.submission(number) / "card"

    def card(self, model: str, split: Split) -> Path:
        """Card of `base` or `final` on a split."""
        return self.root / "cards" / f"{model}-{split.value}"

    def held_out_card(self, task: str, model: str) -> Path:
        """Card of `base` or `final` on the private items of a held-out task."""
        return self.root / "cards" / f"held-out-{task}-{model}"

    @property
    def noise_card(self) -> Path:
        """Card of the base model with several sampling seeds, on the private items."""
        return self.root / "cards" / "base-noise"

    @property
    def integrity(self) -> Path:
        """What the integrity audit found."""
        return self.root / "integrity.json"

    @property
    def harness_lock(self) -> Path:
        """Locked while a harness runs the trial."""
        return self.root / "harness.lock"


def read_config(path: Path) -> TrialConfig:
    """The configuration of a trial. Raises ConfigError if the file is missing or damaged."""
    try:
        return TrialConfig.model_validate_json(read_limited(path))
    except FileNotFoundError as error:
        raise ConfigError(f"{path.parent}: no {path.name} there; pass the folder of a trial") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); pass the folder of a trial") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {field}: {first['msg']}; it is machine-written, restore it") from error


class EventLog:
    """Writer of one event log; safe to call from several threads."""

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
            unwritten = memoryview(b"\n" + line if self._is_torn else line)  # not glued to a torn line
            self._is_torn = True  # until all of it is written: a full disk ends the loop with an error
            while unwritten:  # an unbuffered file may write less than it is given
                unwritten = unwritten[self._file.write(unwritten) :]
            os.fsync(self._file.fileno())
            self._is_torn = False

    def close(self) -> None:
        """May be called twice."""
        self._file.close()


def _ends_torn(path: Path) -> bool:
    with open_regular(path) as file:
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
    except (UnicodeEncodeError, OverflowError):  # an agent wrote lone surrogates, or an integer beyond 64 bits
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
    """The content of an event log."""

    rows: list[dict[str, JsonValue]]
    n_torn: int
    """Lines that are not a JSON object, or whose `t` is not a number: torn by a kill, or not written by us."""

    def last(self, event: str) -> dict[str, JsonValue] | None:
        """The latest row of that name."""
        return next((row for row in reversed(self.rows) if row.get("event") == event), None)


def read_events(path: Path) -> Events:
    """All whole lines; a missing log is an empty one."""
    if not path.exists():
        return Events([], 0)
    rows: list[dict[str, JsonValue]] = []
    n_torn = 0
    for line in _log_bytes(path).splitlines():
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            row = None
        if isinstance(row, dict) and isinstance(row.get("t", 0), int | float):
            rows.append(row)
        else:
            n_torn += 1
    return Events(rows, n_torn)


def _log_bytes(path: Path) -> bytes:
    try:
        return read_limited(path, MAX_LOG_BYTES)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); restore it from a copy") from error


def interruptions(events: Events) -> tuple[Interruption, ...]:
    """Every interruption that was followed by a restart, in order."""
    closed: list[Interruption] = []
    began = used_s = 0.0
    interrupted: dict[str, JsonValue] | None = None
    for row in events.rows:
        name = row.get("event")
        if name == "agent_started":
            began = float(row["t"])
        elif name == "agent_interrupted":
            interrupted = row
        elif name == "agent_restarted":
            restarted_at = float(row["t"])
            # clamped: clocks are set, and those of two machines differ; time worked is never negative or given back
            stopped = max(float(row["stopped_at"]), began)
            used_s += stopped - began
            reason = str(interrupted.get("reason", "")) if interrupted is not None else "the harness was killed"
            closed.append(Interruption(min(stopped, restarted_at), restarted_at, used_s, reason))
            began, interrupted = restarted_at, None
    return tuple(closed)


def stopped_at(events: Events, paths: TrialPaths) -> float | None:
    """When an open agent phase stopped, Unix seconds; None if no agent was started or its phase is closed."""
    starts = [row for row in events.rows if row.get("event") in ("agent_started", "agent_restarted")]
    if not starts or events.last("agent_ended") is not None:
        return None
    began, deadline = float(starts[-1]["t"]), float(starts[-1]["deadline"])
    interrupted = events.last("agent_interrupted")
    if interrupted is not None and float(interrupted["t"]) >= began:  # else it is of an earlier start
        last = float(interrupted["t"])
    else:  # the harness was killed
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


def clock_wait(events: Events, paths: TrialPaths, now: float) -> float:
    """Seconds until a clock that shows `now` reaches the last record of a trial, so that its times stay in order.

    0 where it is not behind, and where it is so far behind that nobody waits: then it was set, and is no other node's.
    """
    times = [float(row["t"]) for row in events.rows if "t" in row]
    times += [paths.alive.stat().st_mtime] if paths.alive.exists() else []
    behind_s = max(times, default=now) - now
    return behind_s if 0.0 < behind_s <= MAX_CLOCK_WAIT_S else 0.0


@dataclass(frozen=True, slots=True)
class ActiveTime:
    """A clock that excludes the agent's interruptions."""

    pauses: Sequence[Interruption]

    def __call__(self, t: float) -> float:
        """A moment (Unix seconds) without the pauses before it; one within a pause is the pause's beginning."""
        lost = sum(max(0.0, min(t, pause.restarted_at) - pause.stopped_at) for pause in self.pauses)
        return t - lost


def record_intervention(paths: TrialPaths, note: str, by: str = "") -> None:
    """Append one intervention. Raises ConfigError if the note is empty or too long, or no agent is working there."""
    if not note.strip() or len(note) > MAX_NOTE:
        raise ConfigError(f"--note has {len(note)} characters; say what was done in 1 to {MAX_NOTE}")
    if not paths.trial_json.is_file():
        raise ConfigError(f"{paths.root}: no trial.json there; pass the folder of a trial")
    events = read_events(paths.trial_log)
    is_open = events.last("agent_started") is not None and events.last("agent_ended") is None
    if not is_open or not _is_running(paths):
        raise ConfigError(f"{paths.root}: no agent is at work there now; interventions are recorded as they happen")
    log = EventLog(paths.interventions_log)
    try:
        log.append("intervention", note=note, by=by)
    finally:
        log.close()


def _is_running(paths: TrialPaths) -> bool:
    """Whether a harness runs the trial."""
    with paths.harness_lock.open("a") as handle:
        try:
            # shared: two of these checks at the same time must not take each other for a harness
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
