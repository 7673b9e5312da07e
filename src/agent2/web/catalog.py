"""What a folder of results contains: trials, sweeps, evaluations, training reports and cards, found by their files.

Promises: looking for them reads the names in folders and nothing else; what is read of one result is kept until its
files change; a folder that vanishes, a file that is broken and one of a newer version are told as such and hide nothing
else. Symbolic links are not followed, so nothing outside the folder is shown.

Ids are made of the path below the folder, so that a link holds as long as nothing is moved.
"""

import hashlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from agent2.arena.analysis.published import PUBLISHED_FILES
from agent2.arena.recording import read_submissions_of
from agent2.arena.trial_folder import TrialPaths
from agent2.cards import folder as card_folder
from agent2.cards.card import CardFile
from agent2.errors import Agent2Error, ConfigError
from agent2.evaluation.suite_folder import IDENTITY_FILE, read_identity
from agent2.reports.text import clean, counted, duration
from agent2.stats.estimates import PERCENT, POINTS, Estimate

NOT_ENTERED = frozenset({"workspace", "revisions.git", "agent", "launch", "llm", "run", "__pycache__", "node_modules"})
"""Folders of a trial, and of programs, that contain no results."""
MAX_DEPTH = 12
MAX_FOLDERS = 300_000
MIN_AGE_S = 2.0
"""Shortest time between two looks; a look that took long is repeated less often."""
TAIL_BYTES = 16_384


class EntryKind(StrEnum):
    """What a result is."""

    SWEEP = "sweep"
    TRIAL = "trial"
    EVALUATION = "evaluation"
    TRAINING = "training"
    CARD = "card"


MARKERS = (
    ("trial.json", EntryKind.TRIAL),
    (IDENTITY_FILE, EntryKind.EVALUATION),
    (card_folder.CARD_JSON, EntryKind.CARD),
    ("sweep.json", EntryKind.SWEEP),
    ("monitor.json", EntryKind.TRAINING),
)
"""The file that makes a folder a result; of several the first one decides."""


class EntryState(StrEnum):
    """How far a result is."""

    RUNNING = "running"
    STOPPED = "stopped"
    """Not finished, and no process is at it: interrupted, or killed."""
    FAILED = "failed"
    """Finished without a result, or cannot be read."""
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One result in the folder."""

    id: str
    kind: EntryKind
    path: Path
    place: str
    """Path below the folder, as text that is safe to show."""
    parent: str | None
    """Id of the result that it is part of."""
    changed: float
    """Unix seconds; of the file that grows while it runs."""


@dataclass(frozen=True, slots=True)
class EntrySummary:
    """What a line of a list says about a result."""

    entry: CatalogEntry
    state: EntryState
    title: str
    words: str
    """The result, or why there is none, in one sentence."""
    detail: str = ""
    """Seed, suite, split: what distinguishes it from others of the same title."""
    command: str = ""
    """The command that continues it."""
    deadline: float | None = None
    """Unix seconds until which an agent may work, while it does."""


@dataclass(frozen=True, slots=True)
class Findings:
    """One look at the folder."""

    entries: dict[str, CatalogEntry]
    children: dict[str, list[CatalogEntry]]
    """Id -> results that are part of it."""
    problems: tuple[str, ...]
    """What could not be looked at, one sentence each."""
    at: float
    seconds: float
    published: tuple[Path, ...] = ()
    """Folders that may contain published figures."""


def entry_id(place: bytes, name: str) -> str:
    """A name that can be part of an address: letters, digits and dashes of the folder's name, and a digest."""
    words = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:40].strip("-")
    digest = hashlib.sha256(place).hexdigest()[:10]
    return f"{words}-{digest}" if words else digest


def look(root: Path) -> Findings:
    """Every result at or below the folder."""
    begun = time.monotonic()
    entries: dict[str, CatalogEntry] = {}
    children: dict[str, list[CatalogEntry]] = {}
    problems: list[str] = []
    published: list[Path] = []
    waiting: list[tuple[str, str | None, int]] = [(os.fspath(root), None, 0)]
    n_folders = 0
    while waiting:
        path, parent, depth = waiting.pop()
        n_folders += 1
        if n_folders > MAX_FOLDERS:
            problems.append(f"more than {MAX_FOLDERS} folders: the rest was not looked at; view a folder further down")
            break
        try:
            with os.scandir(path) as found:
                items = sorted(found, key=lambda item: item.name)
        except OSError as error:
            place = os.path.relpath(path, root)
            problems.append(clean(f"{place}: cannot be read ({error.strerror}); check that it exists and who owns it"))
            continue
        names = {item.name for item in items}
        is_inside = parent is not None and entries[parent].kind is not EntryKind.SWEEP
        if not is_inside and not names.isdisjoint(PUBLISHED_FILES):  # inside a trial an agent may have written it
            published.append(Path(path))
        entry = _entry(root, path, names, parent)
        if entry is not None:
            entries[entry.id] = entry
            if parent is not None:
                children.setdefault(parent, []).append(entry)
            if entry.kind is EntryKind.CARD:
                continue
        inner = entry.id if entry is not None else parent
        if depth < MAX_DEPTH:
            # in reverse, as the last one is looked at first
            waiting += [(item.path, inner, depth + 1) for item in reversed(items) if _is_entered(item)]
    now = time.monotonic()
    return Findings(entries, children, tuple(problems), now, now - begun, tuple(sorted(published)))


def _is_entered(item: "os.DirEntry[str]") -> bool:
    if item.name.startswith(".") or item.name in NOT_ENTERED:
        return False
    try:
        return item.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _entry(root: Path, path: str, names: set[str], parent: str | None) -> CatalogEntry | None:
    kind = next((kind for marker, kind in MARKERS if marker in names), None)
    if kind is None or (kind is EntryKind.SWEEP and "trials" not in names):
        return None
    place = os.path.relpath(path, root)
    folder = Path(path)
    marker = next(marker for marker, of in MARKERS if of is kind)
    grows = {
        EntryKind.TRIAL: folder / "events" / "trial.jsonl",
        EntryKind.CARD: folder / card_folder.OPEN_ROLLOUTS,
        EntryKind.SWEEP: folder / "trials",
    }
    times = [_changed(folder / marker), _changed(grows[kind]) if kind in grows else 0.0]
    name = root.resolve().name if place == "." else folder.name
    shown = clean(os.fsencode(name if place == "." else place).decode(errors="replace"))
    return CatalogEntry(entry_id(os.fsencode(place), name), kind, folder, shown, parent, max(times))


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


class Catalog:
    """The results in a folder, looked up again when they are asked for; safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        """Look for the first time. Raises ConfigError if there is no such folder."""
        if not root.is_dir():
            raise ConfigError(f"{root}: no such folder; pass one with trials, sweeps, evaluations or cards")
        self.root = root
        self._lock = threading.Lock()
        self._found = look(root)
        self._summaries: dict[str, tuple[tuple[object, ...], EntrySummary]] = {}

    def findings(self) -> Findings:
        """What is there now, as of a few seconds ago at most."""
        found = self._found
        if time.monotonic() - found.at > max(MIN_AGE_S, 20 * found.seconds) and self._lock.acquire(blocking=False):
            try:
                self._found = found = look(self.root)
            finally:
                self._lock.release()
        return found

    def get(self, entry: str, kind: EntryKind) -> CatalogEntry | None:
        """The result of that id; None if there is none of that kind."""
        found = self.findings().entries.get(entry)
        if found is None and self._lock.acquire(timeout=5):  # it may have appeared since
            try:
                self._found = look(self.root)
            finally:
                self._lock.release()
            found = self._found.entries.get(entry)
        return found if found is not None and found.kind is kind else None

    def at(self, path: Path) -> CatalogEntry | None:
        """The result in exactly this folder."""
        place = os.path.relpath(path, self.root)
        name = self.root.resolve().name if place == "." else path.name
        return self.findings().entries.get(entry_id(os.fsencode(place), name))

    def children(self, entry: CatalogEntry, kind: EntryKind) -> list[CatalogEntry]:
        """The results that are part of another one, sorted by place."""
        found = self.findings()
        waiting, below = [entry.id], []
        while waiting:
            for child in found.children.get(waiting.pop(), ()):
                waiting.append(child.id)
                below.append(child)
        return sorted((one for one in below if one.kind is kind), key=lambda one: one.place)

    def stamp(self, entry: CatalogEntry) -> tuple[object, ...]:
        """Changes when what is known of a result may."""
        return _stamp(entry)

    def summary(self, entry: CatalogEntry) -> EntrySummary:
        """A result in one line. Raises nothing: what cannot be read is FAILED, with the reason."""
        stamp = self.stamp(entry)
        known = self._summaries.get(entry.id)
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            found = SUMMARIES[entry.kind](entry)
        except Exception as error:  # boundary: one result that is broken in whatever way hides no other
            found = EntrySummary(entry, EntryState.FAILED, _name(entry), f"cannot be read: {reason_of(error)}")
        self._summaries[entry.id] = (stamp, found)
        return found


def reason_of(error: BaseException) -> str:
    """Why something cannot be read, in one line that is safe to show."""
    told = str(error) if isinstance(error, Agent2Error | OSError) else f"{type(error).__name__}: {error}"
    return clean(told, 300)


def _name(entry: CatalogEntry) -> str:
    return clean(entry.path.name or entry.place, 120)


def _stamp(entry: CatalogEntry) -> tuple[object, ...]:
    """Changes when the summary may."""
    names = {
        EntryKind.TRIAL: ("trial.json", "events/trial.jsonl", "integrity.json", "grader.db", "grader.db-wal"),
        EntryKind.EVALUATION: (IDENTITY_FILE, "report.json"),
        EntryKind.CARD: (card_folder.CARD_JSON, card_folder.OPEN_ROLLOUTS),
        EntryKind.SWEEP: ("sweep.json", "report/sweep.json", "trials"),
        EntryKind.TRAINING: ("monitor.json",),
    }[entry.kind]
    told: list[object] = []
    for name in names:
        try:
            found = (entry.path / name).stat()
            told.append((found.st_mtime_ns, found.st_size, found.st_ino))
        except OSError:
            told.append(None)
    if entry.kind in (EntryKind.TRIAL, EntryKind.EVALUATION):
        told.append(is_held(entry.path, entry.kind))
    if entry.kind is EntryKind.SWEEP:
        told.append(_is_swept(entry.path))
    return tuple(told)


def is_held(path: Path, kind: EntryKind) -> bool:
    """Whether a process is at a trial or an evaluation, told without taking its lock.

    The kernel lists who holds a lock (`/proc/locks`). Where another system's processes are not listed, a heartbeat of
    the last ten seconds counts.
    """
    lock = path / ("harness.lock" if kind is EntryKind.TRIAL else IDENTITY_FILE)
    try:
        inode = lock.stat().st_ino
    except OSError:
        return False
    if inode in _locked_inodes():
        return True
    return time.time() - _changed(path / "harness.alive") < 10


def _is_swept(path: Path) -> bool:
    """Whether one of a sweep's trials is being played."""
    return any(is_held(trial, EntryKind.TRIAL) for trial in _folders(path / "trials"))


_LOCK_LINE = re.compile(r"^\d+: FLOCK\s+ADVISORY\s+WRITE\s+\d+\s+\w+:\w+:(\d+)\s", re.MULTILINE)
_locks_read: tuple[float, frozenset[int]] = (0.0, frozenset())


def _locked_inodes() -> frozenset[int]:
    """Files with a lock of the kind that a harness takes; read once a second at most."""
    global _locks_read
    if time.monotonic() - _locks_read[0] > 1:
        try:
            text = Path("/proc/locks").read_text()
        except OSError:
            text = ""
        _locks_read = (time.monotonic(), frozenset(map(int, _LOCK_LINE.findall(text))))
    return _locks_read[1]


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object. Raises ConfigError if the file is missing or contains anything else."""
    try:
        value = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: is not JSON ({error}); restore it from a copy") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: contains a {type(value).__name__}, an object is needed; restore it from a copy")
    return value


def last_events(path: Path) -> list[dict[str, Any]]:
    """The last events of a log, read from its end: at most `TAIL_BYTES` of it."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - TAIL_BYTES))
            lines = log.read().split(b"\n")[0 if size <= TAIL_BYTES else 1 :]
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _trial_summary(entry: CatalogEntry) -> EntrySummary:
    config = read_object(entry.path / "trial.json")
    task = config["task"]["name"] if isinstance(config["task"], dict) else config["task"]
    agent = str(config["agent"]).rstrip("/").rpartition("/")[2]
    driver = f" driven by {config['driver']}" if config.get("driver") else ""
    known = EntrySummary(
        entry, EntryState.FINISHED, clean(f"{agent}{driver} on {task}", 160), "", clean(f"seed {config['seed']}")
    )
    events = last_events(TrialPaths(entry.path).trial_log)
    names = [row.get("event") for row in events]
    if "finished" in names:
        return _finished_trial(known, {str(row.get("event")): row for row in events})
    if is_held(entry.path, EntryKind.TRIAL):
        phase = _phase(names)
        started = next((row for row in events if row.get("event") == "agent_started"), {})
        deadline = started.get("deadline") if phase == "agent phase" else None
        words = f"in its {phase}{_submitted(TrialPaths(entry.path))}"
        until = float(deadline) if isinstance(deadline, int | float) else None
        return replace(known, state=EntryState.RUNNING, words=clean(words), deadline=until)
    command = TrialPaths(entry.path).resume_command
    told = next((row for row in reversed(events) if row.get("event") == "agent_interrupted"), None)
    if told is not None and names[-1] == "agent_interrupted":
        return replace(known, state=EntryState.STOPPED, words=clean(str(told.get("reason", ""))), command=command)
    words = f"killed in its {_phase(names)}" if names else "killed before its first event, or never started"
    return replace(known, state=EntryState.STOPPED, words=words, command=command)


def _submitted(paths: TrialPaths) -> str:
    """How many checkpoints an agent has handed in, and the best public score."""
    try:
        records = read_submissions_of(paths)
    except Exception:  # boundary: the grader may be making its file
        return ""
    scores = [one.score for one in records if one.score is not None]
    best = f", the best {PERCENT.estimate(max(scores, key=lambda one: one.value))}" if scores else ""
    return f"; {counted(len(records), 'submission')}{best}" if records else "; no submission yet"


def _finished_trial(known: EntrySummary, events: dict[str, dict[str, Any]]) -> EntrySummary:
    ended, final = events.get("agent_ended", {}), events.get("final_scored", {})
    gain = final.get("gain") or None
    if gain is None:
        n = len(read_submissions_of(TrialPaths(known.entry.path)))
        words = f"no result: {f'none of {n} submissions could be scored' if n else 'the agent submitted nothing'}"
    else:
        change = Estimate(gain["delta"], gain["low"], gain["high"], gain["n_items"], gain["n_missing"])
        words = f"gain {POINTS.estimate(change)} points on private items"
    end = str(ended.get("end", ""))
    is_broken = end in ("crashed", "infrastructure", "limit")
    state = EntryState.FAILED if gain is None else EntryState.FINISHED
    note = f"; the agent's phase ended as: {end}" if is_broken else ""
    return replace(known, state=state, words=clean(f"{words}{note}"))


def _phase(names: list[Any]) -> str:
    """What a trial is at, from its last events."""
    phases = (
        ("final_scored", "integrity audit"),
        ("graded", "final evaluation"),
        ("agent_ended", "evaluation of its submissions"),
        ("agent_restarted", "agent phase"),
        ("agent_started", "agent phase"),
    )
    return next((words for event, words in phases if event in names), "evaluation of the base model")


def _evaluation_summary(entry: CatalogEntry) -> EntrySummary:
    identity = read_identity(entry.path)
    sides = identity.sides
    known = EntrySummary(
        entry,
        EntryState.FINISHED,
        clean(f"{sides['checkpoint'].name} against {sides['baseline'].name}", 200),
        "",
        clean(f"{identity.suite}, role {identity.role}, split {identity.split}"),
    )
    if (entry.path / "report.json").is_file():
        report = read_object(entry.path / "report.json")
        return replace(known, words=clean(f"release decision: {report.get('release_decision', 'not stated')}"))
    if is_held(entry.path, EntryKind.EVALUATION):
        return replace(known, state=EntryState.RUNNING, words="rollouts are being played")
    return replace(known, state=EntryState.STOPPED, words="not finished; the same `agent2 eval` command resumes it")


def _card_summary(entry: CatalogEntry) -> EntrySummary:
    card = card_folder.load_card(entry.path)
    return EntrySummary(
        entry,
        EntryState.FINISHED if card.state == "closed" else EntryState.STOPPED,
        clean(f"{card.header.checkpoint_name} on {card.header.protocol.benchmark}", 200),
        card_words(card, _open_lines.count(entry.path / card_folder.OPEN_ROLLOUTS) if card.state == "open" else 0),
        clean(card.header.protocol.split.value),
    )


class LineCounter:
    """Lines of files that only grow; of each, only what is new is read. Safe to use from several threads."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, int, int]] = {}
        """File -> its inode, the bytes read and the lines in them."""
        self._lock = threading.Lock()

    def count(self, path: Path) -> int:
        """Whole lines of the file; 0 where there is none."""
        with self._lock:
            try:
                with path.open("rb") as stream:
                    inode = os.fstat(stream.fileno()).st_ino
                    known_inode, place, n = self._known.get(path, (inode, 0, 0))
                    if known_inode != inode or os.fstat(stream.fileno()).st_size < place:
                        place = n = 0
                    stream.seek(place)
                    while block := stream.read(1 << 20):
                        place, n = place + len(block), n + block.count(b"\n")
            except OSError:
                return 0
            self._known[path] = (inode, place, n)
            return n


_open_lines = LineCounter()


def card_words(card: CardFile, n_open: int) -> str:
    """A card's score in one sentence. n_open: rollouts so far, of one that is open."""
    if card.summary is None:
        planned = card.header.planned_rollouts
        return f"open: {n_open:,}{f' of {planned:,}' if planned else ''} rollouts so far"
    told = card.summary
    missing = f", {told.n_missing} without a score" if told.n_missing else ""
    return (
        f"{PERCENT.estimate(told.score, 'no score')} over {counted(told.n_items, 'item')}, "
        f"{counted(told.n_rollouts, 'rollout')}{missing}"
    )


def _sweep_summary(entry: CatalogEntry) -> EntrySummary:
    plan = read_object(entry.path / "sweep.json")
    n_trials = sum(1 for _ in _folders(entry.path / "trials"))
    has_report = (entry.path / "report" / "sweep.json").is_file()
    planned = _planned_trials(plan)
    begun = f"{n_trials} of {planned} trials begun" if planned else counted(n_trials, "trial")
    words = counted(n_trials, "trial") if has_report else f"{begun}; no report yet"
    is_running = _is_swept(entry.path)
    state = EntryState.RUNNING if is_running else EntryState.FINISHED if has_report else EntryState.STOPPED
    return EntrySummary(entry, state, clean(f"sweep {plan.get('name', entry.path.name)}"), words)


def _planned_trials(plan: dict[str, Any]) -> int:
    """Trials that a sweep's file asks for; 0 where only its end tells, or its agents need drivers."""
    if plan.get("until_decided") or plan.get("drivers"):
        return 0
    sizes = [len(plan[name]) for name in ("tasks", "agents", "modes", "seeds") if isinstance(plan.get(name), list)]
    return math.prod(sizes) if len(sizes) == 4 else 0


def _folders(path: Path) -> Iterator[Path]:
    try:
        yield from (one for one in path.iterdir() if one.is_dir())
    except OSError:
        return


def _training_summary(entry: CatalogEntry) -> EntrySummary:
    report = read_object(entry.path / "monitor.json")
    signals = report.get("signals") or []
    words = (
        f"{report.get('training_action', 'no verdict')}, {len(signals)} danger signals, step {report.get('last_step')}"
    )
    return EntrySummary(entry, EntryState.FINISHED, clean(f"training log {report.get('log', '')}"), clean(words))


SUMMARIES: dict[EntryKind, Callable[[CatalogEntry], EntrySummary]] = {
    EntryKind.TRIAL: _trial_summary,
    EntryKind.EVALUATION: _evaluation_summary,
    EntryKind.CARD: _card_summary,
    EntryKind.SWEEP: _sweep_summary,
    EntryKind.TRAINING: _training_summary,
}


def ago(then: float) -> str:
    """How long ago a moment (Unix seconds) is, in words."""
    seconds = max(0.0, time.time() - then)
    told = duration(seconds) if seconds < 48 * 3600 else f"{seconds / 86_400:,.0f} days"
    return f"{told} ago" if then else ""
