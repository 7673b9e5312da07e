"""Whether a process works on a result, found out without taking its lock."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

from agent2.evaluation.suite_folder import IDENTITY_FILE
from agent2.web.entries import EntryKind, changed_at

_locks_read: tuple[float, frozenset[int]] = (0.0, frozenset())
"""(monotonic time, inodes) of the last look at `/proc/locks`; of the machine, so one for all catalogs."""
_LOCK_LINE = re.compile(r"^\d+: FLOCK\s+ADVISORY\s+WRITE\s+\d+\s+\w+:\w+:(\d+)\s", re.MULTILINE)


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
    return time.time() - changed_at(path / "harness.alive") < 10


def is_swept(path: Path) -> bool:
    """Whether one of a sweep's trials is running."""
    return any(is_held(trial, EntryKind.TRIAL) for trial in folders_in(path / "trials"))


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


def folders_in(path: Path) -> Iterator[Path]:
    """Folders in a folder; none of one that cannot be read."""
    try:
        yield from (folder for folder in path.iterdir() if folder.is_dir())
    except OSError:
        return
