"""What the catalog of a folder has: results, each one's summary in a line, and what is read of their files."""

import hashlib
import os
import re
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from agent2.errors import Agent2Error, ConfigError
from agent2.foreign_files import open_regular, read_limited
from agent2.reports.text import clean, dollars, duration
from agent2.stats.estimates import Estimate

TAIL_BYTES = 16_384


class EntryKind(StrEnum):
    """Type of a result."""

    SWEEP = "sweep"
    TRIAL = "trial"
    EVALUATION = "evaluation"
    TRAINING = "training"
    CARD = "card"


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


def entry_id(relative_path: bytes, name: str) -> str:
    """An id for addresses: letters, digits and dashes of the folder's name, and a digest of its path."""
    stem = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:40].strip("-")
    digest = hashlib.sha256(relative_path).hexdigest()[:10]
    return f"{stem}-{digest}" if stem else digest


def reason_of(error: BaseException) -> str:
    """Why something cannot be read, in one line that is safe to show."""
    message = str(error) if isinstance(error, Agent2Error | OSError) else f"{type(error).__name__}: {error}"
    return clean(message, 300)


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


def ago(then: float) -> str:
    """Time since `then` (Unix seconds), as text; empty for 0."""
    seconds = max(0.0, time.time() - then)
    age = duration(seconds) if seconds < 48 * 3600 else f"{seconds / 86_400:,.0f} days"
    return f"{age} ago" if then else ""


def changed_at(path: str | Path) -> float:
    """Unix seconds of a file's last change; 0 where there is none."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
