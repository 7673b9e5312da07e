"""The results in a folder: trials, sweeps, evaluations, training reports and cards, found by their files.

Promises: a scan reads directory listings and file times only; the summary of a result is cached until its files change;
a folder that vanishes, a file that is broken and one of a newer version are reported and hide no other result. Symbolic
links are not followed, so nothing outside the folder is shown.

Ids are derived from the path below the folder, so that a link stays valid until its result is moved.
"""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from agent2.arena.analysis.published import PUBLISHED_FILES
from agent2.cards import folder as card_folder
from agent2.errors import ConfigError
from agent2.evaluation.suite_folder import IDENTITY_FILE
from agent2.reports.text import clean
from agent2.web.at_work import is_held, is_swept
from agent2.web.entries import CatalogEntry, EntryKind, EntryState, EntrySummary, changed_at, entry_id, reason_of
from agent2.web.summaries import SUMMARIES

NOT_ENTERED = frozenset({"workspace", "revisions.git", "agent", "launch", "llm", "run", "__pycache__", "node_modules"})
"""Folders of a trial, and of programs, that contain no results."""
NO_RESULTS_IN_TRIAL = frozenset({"events", "report"})
"""Folders of a trial itself that are not entered either: with thousands of trials each costs a listing."""
HOME_FILES, HOME_CARDS = frozenset({"secret", "baselines"}), frozenset({"baselines"})
"""What AGENT2_HOME has, and its folder with the cards that the grader keeps: no results of anybody."""
MAX_DEPTH = 12
MAX_FOLDERS = 300_000
MARKERS = (
    ("trial.json", EntryKind.TRIAL),
    (IDENTITY_FILE, EntryKind.EVALUATION),
    (card_folder.CARD_JSON, EntryKind.CARD),
    ("sweep.json", EntryKind.SWEEP),
    ("monitor.json", EntryKind.TRAINING),
)
"""The file that makes a folder a result; of several the first one decides."""
MIN_AGE_S = 2.0
"""Shortest time between two scans; a scan that took long is repeated less often."""


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
    changed = max(changed_at(f"{path}/{name}") for name in (marker, grows) if name)
    name = root.resolve().name if relative == "." else os.path.basename(path)
    display_path = clean(os.fsencode(name if relative == "." else relative).decode(errors="replace"))
    return CatalogEntry(entry_id(os.fsencode(relative), name), kind, Path(path), display_path, parent, changed)


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
            parts.append(is_swept(entry.path))
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
