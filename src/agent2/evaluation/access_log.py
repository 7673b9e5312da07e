"""Who asked for private items, when, and whether they got them: `access.jsonl` in the installation's home.

One JSON line for each request, also for one that was refused. Lines are only ever appended, fsynced before the
items are made, and each holds the digest of the line before it, so that a line that was changed, taken out or put
in shows (`check_access_log`).

Does NOT stop anybody: it is a file of the user who runs agent2, who can write the whole chain anew or cut its end
off. Organisers who need more send copies elsewhere.
"""

import fcntl
import getpass
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent2 import installation
from agent2.errors import ConfigError

ACCESS_LOG = "access.jsonl"
ARENA_ROLE = "arena"
"""Role of a trial that scores its final checkpoint; the items stay in its grader."""
FIRST = "0" * 64
"""Stands for the line before the first one."""
LONGEST_LINE = 65_536


@dataclass(frozen=True, slots=True)
class Access:
    """One request for the items of a split."""

    is_granted: bool
    split: str
    role: str
    suite: str
    suite_digest: str
    checkpoint: str
    baseline: str
    out: str
    reason: str = ""
    """Why it was refused."""


def access_log() -> Path:
    """Where the log is."""
    return installation.home() / ACCESS_LOG


def log_access(access: Access) -> Path:
    """Append one entry; returns the log. Raises ConfigError if it cannot be written: then nothing may be shown."""
    path = access_log()
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be opened ({error.strerror}); private items need their access log"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        before, is_torn = _last_line(handle)
        entry = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "user": _user(),
            "pid": os.getpid(),
            **asdict(access),
            "before": _digest(before),
        }
        os.write(handle, b"\n" * is_torn + json.dumps(entry, sort_keys=True).encode() + b"\n")
        os.fsync(handle)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror}); private items need their access log"
        ) from error
    finally:
        os.close(handle)
    return path


def check_access_log(path: Path) -> list[str]:
    """Lines that were changed, taken out or put in, one sentence each; empty for a whole chain or no log."""
    if not path.exists():
        return []
    problems, before = [], b""
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            stated = json.loads(line)["before"]
        except (ValueError, LookupError, TypeError):
            problems.append(f"{path}:{number}: is no entry")
        else:
            if stated != _digest(before):
                problems.append(f"{path}:{number}: does not follow the line before it")
        before = line
    return problems


def _last_line(handle: int) -> tuple[bytes, bool]:
    """The last line without its end, and whether that end is missing."""
    size = os.fstat(handle).st_size
    tail = os.pread(handle, LONGEST_LINE, max(0, size - LONGEST_LINE))
    lines = tail.splitlines()
    return (lines[-1] if lines else b""), bool(tail) and not tail.endswith(b"\n")


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest() if line else FIRST


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
