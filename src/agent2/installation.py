"""The files of one installation: its home folder, its secret, its caches, and the access log of private items.

    $AGENT2_HOME (default ~/.local/share/agent2)
    ├── secret        32 random bytes, mode 0600; hidden items derive from it; never mounted into a sandbox
    ├── models/       base models, made by a recipe or fetched, one folder each, with a manifest
    ├── downloads/    what `agent2 models get` has fetched in part; may be deleted at any time
    ├── baselines/    cards of base models, keyed by content digests
    ├── benchmarks/   files that `agent2 benchmarks get` brought, one folder for each benchmark
    ├── worlds/       catalogues that worlds read, made from users' files; may be deleted at any time
    ├── facts/        tables derived from small cards, keyed by the digest of the card; may be deleted at any time
    └── access.jsonl  each request for private items: by which user, when, and whether it was granted

Organisers of a shared leaderboard copy `secret` among their graders, so that all of them use the same
hidden items. Does not protect against a reader with the rights of the user who runs the harness.

The access log has one JSON line for each request for private items, also for one that was refused. Lines are only ever
appended, fsynced before the items are made, and each holds the digest of the line before it, so that a changed, removed
or inserted line is detected (`check_access_log`). A benchmark makes an entry itself when a program asks it for private
items with this installation's secret (`agent2.benchmarks.guarded`). It is a file of the user who runs agent2, who can
rewrite the whole chain or cut its end off; organisers who need more send copies elsewhere.
"""

import errno
import fcntl
import getpass
import hashlib
import hmac
import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent2.errors import ConfigError
from agent2.foreign_files import MAX_LOG_BYTES, read_limited

SECRET_BYTES = 32
MAX_SECRET_BYTES = 4096
"""Read of a file that stands in for it, so that the message can say how long it is."""
ACCESS_LOG = "access.jsonl"
ARENA_ROLE = "arena"
"""Role of a trial that scores its final checkpoint; the items stay in its grader."""
CHAIN_START = "0" * 64
"""The digest before the first line."""
MAX_LINE_BYTES = 65_536
_HAS_ENTRY: ContextVar[bool] = ContextVar("access has its entry", default=False)


def home() -> Path:
    """The installation's folder; made if missing. Raises ConfigError if it cannot be made."""
    folder = _home_path()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder}: cannot be made ({error.strerror}); set AGENT2_HOME to a folder that you may write"
        ) from error
    return folder.resolve()


def _home_path() -> Path:
    chosen = os.environ.get("AGENT2_HOME")
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(chosen) if chosen else Path(base) / "agent2"


def benchmark_folder(name: str) -> Path:
    """Where `agent2 benchmarks get` puts the files of a benchmark; it may not exist, and is not made."""
    return _home_path().expanduser().absolute() / "benchmarks" / name


def models_dir() -> Path:
    """Where base models are cached."""
    return _subfolder("models")


def downloads_dir() -> Path:
    """Where files are kept until all of them is here."""
    return _subfolder("downloads")


def baselines_dir() -> Path:
    """Where cards of base models are cached."""
    return _subfolder("baselines")


def worlds_dir() -> Path:
    """Where files that worlds read are kept; in a sandbox, where a trial mounts those of its task."""
    override = os.environ.get("AGENT2_WORLDS")
    return Path(override) if override else _subfolder("worlds")


def pictures_dir() -> Path:
    """Where pictures of items are kept, each under the digest of its bytes."""
    return _subfolder("pictures")


def facts_dir() -> Path:
    """Where tables derived from cards are cached, for queries."""
    return _subfolder("facts")


def secret() -> bytes:
    """The installation secret; made on first use.

    Raises ConfigError if the file cannot be read or made, is not exactly 32 bytes or if others may read it.
    """
    path = home() / "secret"
    try:
        if not path.exists():
            _write_once(path, secrets.token_bytes(SECRET_BYTES))
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path}: other users may read the installation secret; run: chmod 600 {path}")
        value = read_limited(path, MAX_SECRET_BYTES, follow=True)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read or made ({error.strerror}); it must be a file of the user who runs agent2"
        ) from error
    if len(value) != SECRET_BYTES:
        raise ConfigError(
            f"{path}: contains {len(value)} bytes, {SECRET_BYTES} are needed; restore it, or delete it to get "
            "new hidden items (old scores are then no longer comparable)"
        )
    return value


def secret_digest(value: bytes) -> str:
    """Identifies a secret in lock files without revealing it."""
    return hashlib.sha256(b"agent2 installation secret\0" + value).hexdigest()[:16]


def judge_key(value: bytes, draw: str) -> bytes:
    """What a judge is made with: the secret itself, or a key for a draw, from which neither follows."""
    if not draw:
        return value
    return hmac.new(value, b"agent2 judge\0" + draw.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()


def mark(value: bytes) -> str:
    """A mark that only holders of the installation secret can make, and check. Raises ConfigError as `secret`."""
    return hmac.new(secret(), b"agent2 mark\0" + value, hashlib.sha256).hexdigest()


def has_own_mark(value: bytes, claimed: str) -> bool:
    """Whether a mark was made with this installation's secret. Raises ConfigError as `secret`."""
    if not (home() / "secret").exists():  # nothing was marked yet, and looking at a file makes no secret
        return False
    return hmac.compare_digest(mark(value).encode(), claimed.encode("utf-8", "replace"))


def own_secret_digest() -> str:
    """Digest of this installation's secret; empty where none was made yet. Raises ConfigError as `secret`."""
    return secret_digest(secret()) if (home() / "secret").exists() else ""


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
    """The path of the log."""
    return home() / ACCESS_LOG


def log_access(access: Access) -> Path:
    """Append one entry; returns the log's path. Raises ConfigError if that fails: then no item may be handed out."""
    path = access_log()
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "is not a regular file")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be opened ({error.strerror}); private items need their access log"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # each entry holds the digest of the one before: writers take turns
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


def _read_log(path: Path) -> bytes:
    try:
        return read_limited(path, MAX_LOG_BYTES, follow=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); it must be the access log") from error


def check_access_log(path: Path) -> list[str]:
    """Lines that were changed, removed or inserted, one sentence each; empty for an intact chain or no log."""
    if not path.exists():
        return []
    problems, before = [], b""
    for number, line in enumerate(_read_log(path).splitlines(), start=1):
        try:
            stated = json.loads(line)["before"]
        except (ValueError, LookupError, TypeError):
            problems.append(f"{path}:{number}: is not an entry")
        else:
            if stated != _digest(before):
                problems.append(f"{path}:{number}: does not follow the line before it")
        before = line
    return problems


def _last_line(handle: int) -> tuple[bytes, bool]:
    """The last line without its end, and whether that end is missing."""
    size = os.fstat(handle).st_size
    tail = os.pread(handle, MAX_LINE_BYTES, max(0, size - MAX_LINE_BYTES))
    lines = tail.splitlines()
    return (lines[-1] if lines else b""), bool(tail) and not tail.endswith(b"\n")


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest() if line else CHAIN_START


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@contextmanager
def access_already_logged() -> Iterator[None]:
    """Inside the context private items need no further entry: the caller has logged one for them."""
    token = _HAS_ENTRY.set(True)
    try:
        yield
    finally:
        _HAS_ENTRY.reset(token)


def log_private_items(benchmark: str, n: int, key: bytes | None) -> None:
    """Log that a benchmark is about to hand out n private items to a program (`agent2.benchmarks.guarded`).

    key: the secret that the items derive from; items of any other secret than this installation's are not private here.
    Raises ConfigError if the log cannot be written: then no item may be handed out.
    """
    if _HAS_ENTRY.get() or key is None or not (home() / "secret").exists() or key != secret():
        return
    program = Path(sys.argv[0]).name or "python"
    log_access(
        Access(
            is_granted=True,
            split="test_private",
            role="library",
            suite=benchmark,
            suite_digest="",
            checkpoint=f"{n} items read by {program}",
            baseline="",
            out=str(Path.cwd()),
        )
    )


def read_access_log(path: Path) -> list[dict[str, str]]:
    """The entries, oldest first, without lines that cannot be read (`check_access_log` names those)."""
    entries = []
    for line in _read_log(path).decode(errors="replace").split("\n") if path.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            entries.append({str(key): str(value) for key, value in entry.items()})
    return entries


def install_hint(extra: str) -> str:
    """How to install an optional part of this package, for messages: in a checkout, or from a wheel."""
    return (
        f"install the extra {extra}: pip install -c constraints.txt -e '.[{extra}]' in the checkout, "
        f"or pip install 'WHEEL[{extra}]'"
    )


def _subfolder(name: str) -> Path:
    folder = home() / name
    folder.mkdir(exist_ok=True)
    return folder


def _write_once(path: Path, value: bytes) -> None:
    """Write a private file completely or not at all; the first of several writers wins."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, value)
        os.fsync(handle)
    finally:
        os.close(handle)
    try:
        os.link(draft, path)  # unlike rename, fails if the file exists
    except FileExistsError:
        pass  # another process was first: its secret counts
    finally:
        draft.unlink()
