"""The mark of a finished trial: what its installation vouches for, keyed with the installation secret.

`mark.json` holds a digest of each part that a reader of the trial relies on (configuration, lock, audit, logs, LLM
traffic, code revisions, submissions, and every card, whose `card.json` holds the digests of its rollouts), and an HMAC
over all of them. Only a holder of the secret can make one, and check it: a trial whose times, rollouts, headers or
audit were edited afterwards, a folder from elsewhere, and a mark that was moved to another trial do not have it. A
lock has a mark of its own, made when the trial starts, so that nobody else can claim a lock of this installation.

Left out, because they come later: reports, `replay.json` and the logs of reproductions and retention, whose lines have
marks of their own. Does NOT cover what is in the workspace, and says nothing about a folder of somebody else's that was
resumed here.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from agent2 import installation
from agent2.arena.evidence import MarkState, TrialMark
from agent2.arena.submissions import read_submissions_of
from agent2.arena.trial_folder import TrialPaths
from agent2.cards.folder import CARD_JSON, card_exists
from agent2.errors import Agent2Error
from agent2.files import write_json
from agent2.foreign_files import MAX_LOG_BYTES, open_regular, read_limited
from agent2.records import JsonValue, canonical_json, digest_of

FORMAT = "agent2-trial-mark-1"
LOCK_MARK = "installation_mark"
"""Field of a lock."""
MARKED_FILES = ("trial.json", "lock.json", "integrity.json")
MARKED_FOLDERS = ("events", "llm", "revisions.git")
SUBMISSIONS = "submissions"
"""Part with the grader's records, wherever they are kept."""
_LATER = frozenset({"events/reproductions.jsonl", "events/retention.jsonl"})
_CHUNK_BYTES = 1 << 20


class _StoredMark(msgspec.Struct):
    """The content of `mark.json`."""

    format: str
    installation: str
    """Digest of the secret that it was made with."""
    parts: dict[str, str]
    """Part of the trial -> digest."""
    mark: str


def write_mark(paths: TrialPaths) -> None:
    """Mark a trial as it is now. Raises OSError if a part cannot be read, ConfigError as `installation.secret`."""
    parts = _parts(paths)
    stored = _StoredMark(FORMAT, installation.own_secret_digest(), parts, installation.mark(_marked(parts)))
    write_json(paths.mark_json, msgspec.to_builtins(stored))


def read_mark(paths: TrialPaths) -> TrialMark:
    """What the mark says here. Raises ConfigError as `installation.secret`."""
    try:
        stored = msgspec.json.decode(read_limited(paths.mark_json), type=_StoredMark)
    except FileNotFoundError:
        return TrialMark(MarkState.NONE, "it has no mark of an installation")
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return TrialMark(MarkState.CHANGED, f"mark.json cannot be read ({type(error).__name__})")
    if not installation.has_own_mark(_marked(stored.parts), stored.mark):
        if stored.installation != installation.own_secret_digest():
            return TrialMark(MarkState.FOREIGN, "it was marked by another installation, which alone can check that")
        return TrialMark(MarkState.CHANGED, "its mark was not made by this installation, which it names")
    # only now: a mark of somebody else's is no reason to read all files of a folder
    try:
        present = _parts(paths)
    except (OSError, Agent2Error) as error:
        return TrialMark(MarkState.CHANGED, f"a part that was marked cannot be read ({type(error).__name__})")
    differing = sorted(
        part for part in stored.parts.keys() | present.keys() if stored.parts.get(part) != present.get(part)
    )
    if differing:
        more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        return TrialMark(MarkState.CHANGED, f"{differing[0]}{more}: not as it was marked")
    return TrialMark(MarkState.OWN, "it was marked by this installation, and is as it was then")


def marked_lock(lock: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The lock with its mark. Raises ConfigError as `installation.secret`."""
    return {**lock, LOCK_MARK: installation.mark(_lock_content(lock))}


def is_own_lock(lock: Mapping[str, JsonValue]) -> bool:
    """Whether a lock was made with this installation's secret, by its mark; False for one of an earlier version."""
    return installation.has_own_mark(_lock_content(lock), str(lock.get(LOCK_MARK, "")))


def _lock_content(lock: Mapping[str, JsonValue]) -> bytes:
    content = {name: value for name, value in lock.items() if name != LOCK_MARK}
    return canonical_json(["agent2 lock", msgspec.to_builtins(content)])


def _marked(parts: Mapping[str, str]) -> bytes:
    return canonical_json([FORMAT, parts])


def _parts(paths: TrialPaths) -> dict[str, str]:
    """Digest of each part that is there. Raises OSError, and ConfigError if the submissions cannot be read."""
    parts = {SUBMISSIONS: digest_of(read_submissions_of(paths))}
    for path in _marked_files(paths):
        name = path.relative_to(paths.root).as_posix()
        # the line that closes the log follows the mark
        parts[name] = _log_digest(path) if path == paths.trial_log else _file_digest(path)
    return parts


def _marked_files(paths: TrialPaths) -> Iterator[Path]:
    """Regular files only: a link in the place of one is a part that is missing."""
    candidates = [paths.root / name for name in MARKED_FILES] + sorted(paths.root.glob("agent*.log"))
    for name in MARKED_FOLDERS:
        for subfolder, folders, files in os.walk(paths.root / name):
            folders.sort()
            candidates += [Path(subfolder) / file for file in sorted(files)]
    cards = [*sorted((paths.root / "cards").glob("*")), *sorted((paths.root / "submissions").glob("*/card"))]
    candidates += [card / CARD_JSON for card in cards if card_exists(card)]
    for path in candidates:
        if path.is_file() and not path.is_symlink() and path.relative_to(paths.root).as_posix() not in _LATER:
            yield path


def _log_digest(path: Path) -> str:
    lines = read_limited(path, MAX_LOG_BYTES).split(b"\n")
    return hashlib.sha256(b"\n".join(line for line in lines if not _closes_the_log(line))).hexdigest()


def _closes_the_log(line: bytes) -> bool:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    # exactly this: a line with more in it could say something that no digest covers
    return isinstance(row, dict) and row.keys() == {"t", "event"} and row["event"] == "finished"


def _file_digest(path: Path) -> str:
    """Of the size and the first `MAX_LOG_BYTES`: a sparse file of terabytes takes no longer."""
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        digest.update(f"{os.fstat(stream.fileno()).st_size}\n".encode())
        n_left = MAX_LOG_BYTES
        while n_left > 0 and (chunk := stream.read(min(_CHUNK_BYTES, n_left))):
            digest.update(chunk)
            n_left -= len(chunk)
    return digest.hexdigest()
