"""The results in a folder: trials, sweeps, evaluations, training reports and cards, found by their files.

Promises: a scan reads directory listings and file times only; the summary of a result is cached until its files change;
a folder that vanishes, a file that is broken and one of a newer version are reported and hide no other result. Symbolic
links are not followed, so nothing outside the folder is shown.

Ids are derived from the path below the folder, so that a link stays valid until its result is moved.
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
from agent2.contract.gates import BLOCK, PASSES
from agent2.errors import Agent2Error, ConfigError
from agent2.evaluation.suite_folder import IDENTITY_FILE, read_identity
from agent2.foreign_files import open_regular, read_limited
from agent2.llm.gateway.recording import read_exchanges, totals
from agent2.reports.text import clean, dollars, duration
from agent2.stats.estimates import PERCENT, POINTS, Estimate
from agent2.stats.stored import read_difference
from agent2.texts import counted

NOT_ENTERED = frozenset({"workspace", "revisions.git", "agent", "launch", "llm", "run", "__pycache__", "node_modules"})
"""Folders of a trial, and of programs, that contain no results."""
NO_RESULTS_IN_TRIAL = frozenset({"events", "report"})
"""Folders of a trial itself that are not entered either: with thousands of trials each costs a listing."""
HOME_FILES, HOME_CARDS = frozenset({"secret", "baselines"}), frozenset({"baselines"})
"""What AGENT2_HOME has, and its folder with the cards that the grader keeps: no results of anybody."""
MAX_DEPTH = 12
MAX_FOLDERS = 300_000
MIN_AGE_S = 2.0
"""Shortest time between two scans; a scan that took long is repeated less often."""
TAIL_BYTES = 16_384


class EntryKind(StrEnum):
    """Type of a result."""

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
_locks_read: tuple[float, frozenset[int]] = (0.0, frozenset())
"""(monotonic time, inodes) of the last look at `/proc/locks`; of the machine, so one for all catalogs."""
_LOCK_LINE = re.compile(r"^\d+: FLOCK\s+ADVISORY\s+WRITE\s+\d+\s+\w+:\w+:(\d+)\s", re.MULTILINE)


class EntryState(StrEnum):
    """Progress of a result."""

    RUNNING = "running"
    STOPPED = "stopped"
    """Not finished, and no process works on it: interrupted, or killed."""
    FAILED = "failed"
    """Finished without a result, or cannot be read."""
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One result in the folder."""

    id: str
    kind: EntryKind
    path: Path
    display_path: str
    """Path below the folder, as text that is safe to show."""
    parent: str | None
    """Id of the result that it is part of."""
    changed: float
    """Unix seconds; of its marker, or of what grows while it runs."""


@dataclass(frozen=True, slots=True)
class EntrySummary:
    """A result in one line."""

    entry: CatalogEntry
    state: EntryState
    title: str
    message: str
    """The result, or the reason why there is none, in one sentence."""
    detail: str = ""
    """Seed, suite, split: what distinguishes it from others of the same title."""
    command: str = ""
    """The command that continues it."""
    deadline: float | None = None
    """Unix seconds until which an agent may work, while it does."""
    subject: str = ""
    """Task, suite, benchmark or training log."""
    player: str = ""
    """Agent or checkpoint."""
    result: str = ""
    """Gain, decision or score of a finished one, in a few words."""
    interval: str = ""
    verdict: str = ""
    """Colour of the result: pass (better), fail (worse, blocked) or unknown; empty: it is neither good nor bad."""
    value: float | None = None
    """The number that results are sorted by."""
    seconds: float | None = None
    """How long it took, as far as its log says."""
    estimate: Estimate | None = None
    """The number that results are sorted by, with its interval, where it has one."""
    dollars: float | None = None
    """What the LLM of a trial's agent cost; None where that is unknown, and of results without one."""
    has_llm: bool = False

    @property
    def cost_text(self) -> str:
        """Cost of the agent's LLM; "unknown" where it is not known, empty for a run without one."""
        return dollars(self.dollars) if self.has_llm else ""


@dataclass(frozen=True, slots=True)
class CatalogScan:
    """The results of one scan of the folder."""

    entries: dict[str, CatalogEntry]
    children: dict[str, list[CatalogEntry]]
    """Id -> results that are part of it."""
    problems: tuple[str, ...]
    """What could not be scanned, one sentence each."""
    at: float
    seconds: float
    published: tuple[Path, ...] = ()
    """Folders that may contain published figures."""


def entry_id(relative_path: bytes, name: str) -> str:
    """An id for addresses: letters, digits and dashes of the folder's name, and a digest of its path."""
    stem = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:40].strip("-")
    digest = hashlib.sha256(relative_path).hexdigest()[:10]
    return f"{stem}-{digest}" if stem else digest


def scan_folder(root: Path) -> CatalogScan:
    """Every result at or below the folder."""
    started = time.monotonic()
    entries: dict[str, CatalogEntry] = {}
    children: dict[str, list[CatalogEntry]] = {}
    problems: list[str] = []
    published: list[Path] = []
    stack: list[tuple[str, str | None, int]] = [(os.fspath(root), None, 0)]
    n_folders = 0
    while stack:
        path, parent, depth = stack.pop()
        n_folders += 1
        if n_folders > MAX_FOLDERS:
            problems.append(f"more than {MAX_FOLDERS} folders: the rest was not scanned; view a subfolder")
            break
        try:
            with os.scandir(path) as listing:
                items = sorted(listing, key=lambda item: item.name)
        except OSError as error:
            relative = os.path.relpath(path, root)
            reason = f"cannot be read ({error.strerror}); check that it exists and who owns it"
            problems.append(clean(f"{relative}: {reason}"))
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
            # in reverse, since the stack is popped from its end
            skipped = NO_RESULTS_IN_TRIAL if entry is not None and entry.kind is EntryKind.TRIAL else frozenset()
            skipped = HOME_CARDS if names >= HOME_FILES else skipped
            stack += [
                (item.path, inner, depth + 1)
                for item in reversed(items)
                if item.name not in skipped and _is_entered(item)
            ]
    now = time.monotonic()
    return CatalogScan(entries, children, tuple(problems), now, now - started, tuple(sorted(published)))


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
    # strings instead of paths: this runs for every card of thousands of trials, and pathlib takes most of the scan
    relative = path[len(os.fspath(root).rstrip("/")) + 1 :] or "."
    marker = next(marker for marker, marked_kind in MARKERS if marked_kind is kind)
    grows = ""
    if kind is EntryKind.TRIAL:
        grows = "events/trial.jsonl"
    elif kind is EntryKind.CARD and card_folder.OPEN_ROLLOUTS in names:
        grows = card_folder.OPEN_ROLLOUTS
    elif kind is EntryKind.SWEEP:
        grows = "trials"
    changed = max(_changed(f"{path}/{name}") for name in (marker, grows) if name)
    name = root.resolve().name if relative == "." else os.path.basename(path)
    display_path = clean(os.fsencode(name if relative == "." else relative).decode(errors="replace"))
    return CatalogEntry(entry_id(os.fsencode(relative), name), kind, Path(path), display_path, parent, changed)


def _changed(path: str | Path) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


class Catalog:
    """The results in a folder, scanned again on use; safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        """Scan for the first time. Raises ConfigError if there is no such folder."""
        if not root.is_dir():
            raise ConfigError(f"{root}: no such folder; pass one with trials, sweeps, evaluations or cards")
        self.root = root
        self._lock = threading.Lock()
        self._scan = scan_folder(root)
        self._summaries: dict[str, tuple[tuple[object, ...], EntrySummary]] = {}

    def scan(self) -> CatalogScan:
        """The contents of the folder, a few seconds old at most where scanning it is fast."""
        scan = self._scan
        # a reader that finds another one scanning takes the last scan instead of waiting
        if time.monotonic() - scan.at > max(MIN_AGE_S, 20 * scan.seconds) and self._lock.acquire(blocking=False):
            try:
                self._scan = scan = scan_folder(self.root)
            finally:
                self._lock.release()
        return scan

    def get(self, entry: str, kind: EntryKind) -> CatalogEntry | None:
        """The result of that id; None if there is none of that kind."""
        result = self.scan().entries.get(entry)
        if result is None and self._lock.acquire(timeout=5):  # it may have appeared since
            try:
                self._scan = scan_folder(self.root)
            finally:
                self._lock.release()
            result = self._scan.entries.get(entry)
        return result if result is not None and result.kind is kind else None

    def at(self, path: Path) -> CatalogEntry | None:
        """The result in exactly this folder."""
        relative = os.path.relpath(path, self.root)
        name = self.root.resolve().name if relative == "." else path.name
        return self.scan().entries.get(entry_id(os.fsencode(relative), name))

    def children(self, entry: CatalogEntry, kind: EntryKind) -> list[CatalogEntry]:
        """The results of a kind that are part of another one, at any depth, sorted by path."""
        scan = self.scan()
        stack, below = [entry.id], []
        while stack:
            for child in scan.children.get(stack.pop(), ()):
                stack.append(child.id)
                below.append(child)
        return sorted((child for child in below if child.kind is kind), key=lambda child: child.display_path)

    def stamp(self, entry: CatalogEntry) -> tuple[object, ...]:
        """Differs when the summary of a result may have changed."""
        names = {
            EntryKind.TRIAL: ("trial.json", "events/trial.jsonl", "integrity.json", "grader.db", "grader.db-wal"),
            EntryKind.EVALUATION: (IDENTITY_FILE, "report.json"),
            EntryKind.CARD: (card_folder.CARD_JSON, card_folder.OPEN_ROLLOUTS),
            EntryKind.SWEEP: ("sweep.json", "report/sweep.json", "trials"),
            EntryKind.TRAINING: ("monitor.json",),
        }[entry.kind]
        parts: list[object] = []
        for name in names:
            try:
                status = (entry.path / name).stat()
                parts.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                parts.append(None)
        if entry.kind in (EntryKind.TRIAL, EntryKind.EVALUATION):
            parts.append(is_held(entry.path, entry.kind))
        if entry.kind is EntryKind.SWEEP:
            parts.append(_is_swept(entry.path))
        return tuple(parts)

    def summary(self, entry: CatalogEntry) -> EntrySummary:
        """A result in one line. Raises nothing: what cannot be read is FAILED, with the reason."""
        stamp = self.stamp(entry)
        cached = self._summaries.get(entry.id)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        try:
            summary = SUMMARIES[entry.kind](entry)
        except Exception as error:  # boundary: a result that is broken in whatever way hides no other
            name = clean(entry.path.name or entry.display_path, 120)
            summary = EntrySummary(entry, EntryState.FAILED, name, f"cannot be read: {reason_of(error)}")
        self._summaries[entry.id] = (stamp, summary)
        return summary


def reason_of(error: BaseException) -> str:
    """Why something cannot be read, in one line that is safe to show."""
    message = str(error) if isinstance(error, Agent2Error | OSError) else f"{type(error).__name__}: {error}"
    return clean(message, 300)


def is_held(path: Path, kind: EntryKind) -> bool:
    """Whether a process works on a trial or an evaluation, found out without taking its lock.

    The kernel lists locks with their inodes (`/proc/locks`). Processes of another system are not listed there; for them
    a heartbeat of the last ten seconds counts.
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
    """Whether one of a sweep's trials is running."""
    return any(is_held(trial, EntryKind.TRIAL) for trial in _folders(path / "trials"))


def _locked_inodes() -> frozenset[int]:
    """Inodes of the files with an exclusive `flock`, as a harness takes it; read once a second at most."""
    global _locks_read
    if time.monotonic() - _locks_read[0] > 1:
        try:
            text = Path("/proc/locks").read_text()
        except OSError:
            text = ""
        _locks_read = (time.monotonic(), frozenset(map(int, _LOCK_LINE.findall(text))))
    return _locks_read[1]


def read_object(path: Path, *, follow: bool = False) -> dict[str, Any]:
    """A JSON object. follow: through a symbolic link.

    Raises ConfigError if the file is missing or contains anything else.
    """
    try:
        value = msgspec.json.decode(read_limited(path, follow=follow))
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
        with open_regular(path) as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - TAIL_BYTES))
            # from the middle of a file the first line is incomplete
            lines = log.read(TAIL_BYTES).split(b"\n")[0 if size <= TAIL_BYTES else 1 :]
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
    summary = EntrySummary(
        entry, EntryState.FINISHED, clean(f"{agent}{driver} on {task}", 160), "", clean(f"seed {config['seed']}"),
        subject=clean(task, 80), player=clean(f"{agent}{driver}", 80),
    )  # fmt: skip
    if driver:
        summary = replace(summary, has_llm=True, dollars=_llm_dollars(TrialPaths(entry.path)))
    events = last_events(TrialPaths(entry.path).trial_log)
    names = [row.get("event") for row in events]
    if "finished" in names:
        return _finished_trial(summary, {str(row.get("event")): row for row in events})
    if is_held(entry.path, EntryKind.TRIAL):
        phase = _phase(names)
        started = next((row for row in events if row.get("event") == "agent_started"), {})
        deadline = started.get("deadline") if phase == "agent phase" else None
        message = f"in its {phase}{_submitted(TrialPaths(entry.path))}"
        until = float(deadline) if isinstance(deadline, int | float) else None
        return replace(summary, state=EntryState.RUNNING, message=clean(message), deadline=until)
    command = TrialPaths(entry.path).resume_command
    interruption = next((row for row in reversed(events) if row.get("event") == "agent_interrupted"), None)
    if interruption is not None and names[-1] == "agent_interrupted":
        return replace(
            summary, state=EntryState.STOPPED, message=clean(str(interruption.get("reason", ""))), command=command
        )
    if names[-1:] == ["agent_ended"] and events[-1].get("end") == "crashed" and _n_submitted(entry.path) == 0:
        message = "its agent crashed before it submitted anything; not scored"
        return replace(summary, state=EntryState.STOPPED, message=message, command=command)
    message = f"killed in its {_phase(names)}" if names else "killed before its first event, or never started"
    return replace(summary, state=EntryState.STOPPED, message=message, command=command)


def _n_submitted(trial: Path) -> int | None:
    """Number of a trial's submissions; None if that cannot be read."""
    try:
        return len(read_submissions_of(TrialPaths(trial)))
    except Exception:  # boundary: a grader's file may be damaged
        return None


def _llm_dollars(paths: TrialPaths) -> float | None:
    """What the calls of a trial's LLM cost so far; None if that is not known."""
    try:
        return totals(read_exchanges(paths.llm)).dollars
    except (Agent2Error, OSError):
        return None


def _submitted(paths: TrialPaths) -> str:
    """Number of an agent's submissions and the best public score."""
    try:
        records = read_submissions_of(paths)
    except Exception:  # boundary: the grader may be making its file
        return ""
    scores = [record.score for record in records if record.score is not None]
    best = f", the best {PERCENT.estimate(max(scores, key=lambda score: score.value))}" if scores else ""
    return f"; {counted(len(records), 'submission')}{best}" if records else "; no submission yet"


def _finished_trial(summary: EntrySummary, events: dict[str, dict[str, Any]]) -> EntrySummary:
    ended, final = events.get("agent_ended", {}), events.get("final_scored", {})
    gain = read_difference(final.get("gain"))
    assignment = _assignment(events.get("assignment_judged"))
    if gain is None and assignment is not None:
        message = f"assignment {assignment.sentence}"
    elif gain is None:
        n = len(read_submissions_of(TrialPaths(summary.entry.path)))
        message = f"no result: {f'no submission of {n} could be scored' if n else 'the agent submitted nothing'}"
    else:
        message = f"gain {POINTS.estimate(gain.change)} points on private items"
    end = str(ended.get("end", ""))
    is_broken = end in ("crashed", "infrastructure", "limit")
    state = EntryState.FAILED if gain is None and assignment is None else EntryState.FINISHED
    note = f"; the agent's phase ended as: {end}" if is_broken else ""
    times = [row["t"] for row in events.values() if isinstance(row.get("t"), int | float)]
    summary = replace(summary, seconds=max(times) - min(times) if times else None)
    if gain is not None:
        n_findings = events.get("audited", {}).get("findings")
        remark = "" if n_findings == 0 else ", not audited" if n_findings is None else ", integrity findings"
        summary = replace(
            summary,
            result=clean(f"{POINTS.number(gain.change.value)} points{remark}{note}"),
            interval=POINTS.interval(gain.change),
            value=gain.change.value,
            estimate=gain.change,
            # what the audit found may void the gain, which the trial's page decides
            verdict="unknown" if remark or note else _verdict_of(gain.change),
        )
    elif assignment is not None:
        colour = "pass" if assignment.is_passed else "fail"
        result = clean(f"{assignment.sentence}{note}")
        summary = replace(summary, result=result, value=assignment.credit, verdict=colour)
    return replace(summary, state=state, message=clean(f"{message}{note}"))


@dataclass(frozen=True, slots=True)
class _AssignmentResult:
    """Of a trial whose task asks for more than a checkpoint."""

    sentence: str
    is_passed: bool
    credit: float | None


def _assignment(row: dict[str, Any] | None) -> _AssignmentResult | None:
    if row is None:
        return None
    # listing thousands of other trials must not wait for these imports
    from agent2.arena.evidence import read_assignment_verdict

    verdict = read_assignment_verdict(row)
    assert verdict is not None
    return _AssignmentResult(verdict.summary, verdict.passed, verdict.credit)


def _verdict_of(change: Estimate) -> str:
    """The colour of a difference by its interval."""
    if change.low is None or change.high is None or change.low <= 0.0 <= change.high:
        return "unknown"
    return "pass" if change.low > 0.0 else "fail"


def _phase(names: list[Any]) -> str:
    """The phase of a trial that is not finished, by its last events."""
    phases = (
        ("final_scored", "integrity audit"),
        ("graded", "final evaluation"),
        ("agent_ended", "evaluation of its submissions"),
        ("agent_restarted", "agent phase"),
        ("agent_started", "agent phase"),
    )
    return next((phase for event, phase in phases if event in names), "evaluation of the base model")


def _evaluation_summary(entry: CatalogEntry) -> EntrySummary:
    identity = read_identity(entry.path)
    sides = identity.sides
    summary = EntrySummary(
        entry,
        EntryState.FINISHED,
        clean(f"{sides['checkpoint'].name} against {sides['baseline'].name}", 200),
        "",
        clean(f"{identity.suite}, role {identity.role}, split {identity.split}"),
        subject=clean(identity.suite, 80),
        player=clean(sides["checkpoint"].name, 80),
    )
    if (entry.path / "report.json").is_file():
        report = read_object(entry.path / "report.json")
        summary = replace(summary, message=clean(f"release decision: {stated_outcome(report)}"))
        return _with_decision(summary, report)
    if is_held(entry.path, EntryKind.EVALUATION):
        return replace(summary, state=EntryState.RUNNING, message="rollouts are being played")
    return replace(summary, state=EntryState.STOPPED, message="not finished; the same `agent2 eval` command resumes it")


def _with_decision(summary: EntrySummary, report: dict[str, Any]) -> EntrySummary:
    """The summary with the decision that a report states, and the change of the primary metric with its interval."""
    release = str(report.get("release_decision", ""))
    decided = (report.get("decision") or {}).get("numbers") or {}
    is_better = release in PASSES and decided.get("improvement") == "shown"
    verdict = "fail" if release.startswith(BLOCK) else "pass" if is_better else "unknown"
    summary = replace(summary, result=stated_outcome(report), verdict=verdict)
    suite = read_object(summary.entry.path / "suite.json")
    primary = next((metric["name"] for metric in suite.get("metrics") or () if metric.get("role") == "primary"), "")
    numbers = (report.get("evidence") or {}).get(primary) or {}
    pair = read_difference(numbers.get("paired"))
    if pair is None or numbers.get("unit") != "rate":
        return summary
    return replace(summary, interval=POINTS.estimate(pair.change), value=pair.change.value, estimate=pair.change)


def stated_outcome(report: dict[str, Any]) -> str:
    """The outcome that an evaluation's report states; reports of earlier versions state the release decision alone."""
    return clean(report.get("outcome") or report.get("release_decision", "not stated"))


def _card_summary(entry: CatalogEntry) -> EntrySummary:
    card = card_folder.load_card(entry.path)
    score = card.summary.score if card.summary is not None else None
    return EntrySummary(
        entry,
        EntryState.FINISHED if card.state == "closed" else EntryState.STOPPED,
        clean(f"{card.header.checkpoint_name} on {card.header.protocol.benchmark}", 200),
        card_words(card, _open_lines.count(entry.path / card_folder.OPEN_ROLLOUTS) if card.state == "open" else 0),
        clean(card.header.protocol.split.value),
        subject=clean(card.header.protocol.benchmark, 80),
        player=clean(card.header.checkpoint_name, 80),
        result="no score" if score is None else PERCENT.number(score.value),
        interval="" if score is None or score.low is None else PERCENT.interval(score),
        value=None if score is None else score.value,
        estimate=score,
        seconds=card.wall_clock_s,
    )


class LineCounter:
    """Counts lines of files that only grow, reading only what is new; safe to use from several threads."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, int, int]] = {}
        """File -> its inode, the bytes read and the lines in them."""
        self._lock = threading.Lock()

    def count(self, path: Path) -> int:
        """Whole lines of the file; 0 where there is none."""
        with self._lock:
            try:
                with open_regular(path) as stream:
                    inode = os.fstat(stream.fileno()).st_ino
                    known_inode, offset, n = self._known.get(path, (inode, 0, 0))
                    if known_inode != inode or os.fstat(stream.fileno()).st_size < offset:
                        offset = n = 0  # another file by this name, or one that was cut
                    stream.seek(offset)
                    while block := stream.read(1 << 20):
                        offset, n = offset + len(block), n + block.count(b"\n")
            except OSError:
                return 0
            self._known[path] = (inode, offset, n)
            return n


_open_lines = LineCounter()


def card_words(card: CardFile, n_open: int) -> str:
    """A card's score in one sentence. n_open: rollouts so far, of one that is open."""
    if card.summary is None:
        planned = card.header.planned_rollouts
        return f"open: {n_open:,}{f' of {planned:,}' if planned else ''} rollouts so far"
    summary = card.summary
    missing = f", {summary.n_missing} without a score" if summary.n_missing else ""
    return (
        f"{PERCENT.estimate(summary.score, 'no score')} over {counted(summary.n_items, 'item')}, "
        f"{counted(summary.n_rollouts, 'rollout')}{missing}"
    )


def _sweep_summary(entry: CatalogEntry) -> EntrySummary:
    plan = read_object(entry.path / "sweep.json")
    n_trials = sum(1 for _ in _folders(entry.path / "trials"))
    has_report = (entry.path / "report" / "sweep.json").is_file()
    planned = _planned_trials(plan)
    progress = f"{n_trials} of {planned} trials started" if planned else counted(n_trials, "trial")
    message = counted(n_trials, "trial") if has_report else f"{progress}; no report yet"
    is_running = _is_swept(entry.path)
    state = EntryState.RUNNING if is_running else EntryState.FINISHED if has_report else EntryState.STOPPED
    title = clean(f"sweep {plan.get('name', entry.path.name)}")
    subject = clean(plan.get("name", entry.path.name), 80)
    return EntrySummary(entry, state, title, message, subject=subject, result=message)


def _planned_trials(plan: dict[str, Any]) -> int:
    """Number of trials of a sweep's plan; 0 where it stops early or has drivers, so that the number is not known."""
    if plan.get("until_decided") or plan.get("drivers"):
        return 0
    sizes = [len(plan[name]) for name in ("tasks", "agents", "modes", "seeds") if isinstance(plan.get(name), list)]
    return math.prod(sizes) if len(sizes) == 4 else 0


def _folders(path: Path) -> Iterator[Path]:
    try:
        yield from (folder for folder in path.iterdir() if folder.is_dir())
    except OSError:
        return


def _training_summary(entry: CatalogEntry) -> EntrySummary:
    report = read_object(entry.path / "monitor.json")
    signals = report.get("signals") or []
    action, n_signals = report.get("training_action", "no verdict"), counted(len(signals), "danger signal")
    message = f"{action}, {n_signals}, step {report.get('last_step')}"
    verdict = {"continue": "", "no verdict": ""}.get(str(action), "fail")
    title, log = clean(f"training log {report.get('log', '')}"), clean(report.get("log", ""), 80)
    return EntrySummary(
        entry, EntryState.FINISHED, title, clean(message), subject=log, result=clean(message), verdict=verdict
    )


SUMMARIES: dict[EntryKind, Callable[[CatalogEntry], EntrySummary]] = {
    EntryKind.TRIAL: _trial_summary,
    EntryKind.EVALUATION: _evaluation_summary,
    EntryKind.CARD: _card_summary,
    EntryKind.SWEEP: _sweep_summary,
    EntryKind.TRAINING: _training_summary,
}


def ago(then: float) -> str:
    """Time since `then` (Unix seconds), as text; empty for 0."""
    seconds = max(0.0, time.time() - then)
    age = duration(seconds) if seconds < 48 * 3600 else f"{seconds / 86_400:,.0f} days"
    return f"{age} ago" if then else ""
