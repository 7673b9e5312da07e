"""What one installation owns on disk: its home folder, its secret and its caches.

    $AGENT2_HOME (default ~/.local/share/agent2)
    ├── secret        32 random bytes, mode 0600; hidden items derive from it; never bound into a sandbox
    ├── models/       base models made by a recipe, one folder each, with a manifest
    ├── baselines/    cards of base models, keyed by content digests
    └── facts/        tables derived from small cards, keyed by the digest of the card; may be deleted at any time

Organisers of a shared leaderboard copy `secret` among their graders, so that all of them ask the same
hidden items. Does not protect against a reader with the rights of the user who runs the harness.
"""

import hashlib
import os
import secrets
from pathlib import Path

from agent2.errors import ConfigError

SECRET_BYTES = 32


def home() -> Path:
    """The installation's folder; made if missing. Raises ConfigError if it cannot be made."""
    chosen = os.environ.get("AGENT2_HOME")
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    folder = Path(chosen) if chosen else Path(base) / "agent2"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder}: cannot be made ({error.strerror}); set AGENT2_HOME to a folder that you may write"
        ) from error
    return folder.resolve()


def models_dir() -> Path:
    """Where base models made by a recipe are cached."""
    return _subfolder("models")


def baselines_dir() -> Path:
    """Where cards of base models are cached."""
    return _subfolder("baselines")


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
        value = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read or made ({error.strerror}); it must be a file of the user who runs agent2"
        ) from error
    if len(value) != SECRET_BYTES:
        raise ConfigError(
            f"{path}: holds {len(value)} bytes, {SECRET_BYTES} are needed; restore it, or delete it to get "
            "new hidden items (old scores are then no longer comparable)"
        )
    return value


def secret_digest(value: bytes) -> str:
    """Names a secret in lock files without telling it."""
    return hashlib.sha256(b"agent2 installation secret\0" + value).hexdigest()[:16]


def extra_words(extra: str) -> str:
    """How to install an optional part of this package, for messages: in a checkout, or from a wheel that was built."""
    return (
        f"install the extra {extra}: pip install -c constraints.txt -e '.[{extra}]' in the checkout, "
        f"or pip install 'WHEEL[{extra}]'"
    )


def _subfolder(name: str) -> Path:
    folder = home() / name
    folder.mkdir(exist_ok=True)
    return folder


def _write_once(path: Path, value: bytes) -> None:
    """Write a private file whole or not at all; the first of several writers wins."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, value)
        os.fsync(handle)
    finally:
        os.close(handle)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first: its secret is the one
    finally:
        draft.unlink()
