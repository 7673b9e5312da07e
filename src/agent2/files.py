"""Files that are written completely or not at all, and read line by line.

Lines are split where JSONL and CSV end one. `str.splitlines` and `bytes.splitlines` end lines elsewhere too (U+2028,
U+0085, form feed, a lone carriage return), and all but the last of these may be unescaped inside a JSON string: a
model's answer would break its own row.
"""

import contextlib
import fcntl
import itertools
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import AnyStr

import msgspec

LOCK_WAIT_S = 5.0
_LOCK_RETRY_S = 0.05
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def atomic_write(path: Path, data: bytes | Iterable[bytes], *, durable: bool = False) -> None:
    """Replace a file by these bytes: a reader, or a kill, sees the old file or the new one, never half of it.

    durable: also on disk when this returns, the folder's entry included (fsync). Two writers do not collide: each has a
    draft of its own beside the file. Raises OSError, and leaves the old file and no draft, if writing fails.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.draft")
    try:
        with draft.open("xb") as stream:
            stream.writelines([data] if isinstance(data, bytes) else data)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        draft.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first error says more
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = os.fspath(path), None  # the draft's name means nothing to a user
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a folder's entries survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def why_no_folder(path: Path) -> str:
    """What is wrong with a path that is not a folder, for a message."""
    return "is a file, not a folder" if path.exists() else "no such folder"


@contextlib.contextmanager
def scratch_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder for a program that is not trusted; removed with the block, as far as it can be."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder that a foreign program could write; of a symbolic link, only the link.

    Its folders may be nested deeper than Python recurses, where `shutil.rmtree` raises RecursionError, or than a path
    has characters, and may be closed to their owner: each is moved to the top and emptied there. Raises OSError for
    what cannot be removed, FileNotFoundError if there is no such folder.
    """
    if not stat.S_ISDIR(folder.lstat().st_mode):
        folder.unlink()
        return
    mark = secrets.token_hex(8)
    names = (f"{mark}-{number}" for number in itertools.count())
    with contextlib.suppress(PermissionError):
        folder.chmod(0o700)
    top = os.open(folder, _OPEN_FOLDER)
    try:
        pending = _empty(top, top, names)
        while pending:
            name = pending.pop()
            inner = os.open(name, _OPEN_FOLDER, dir_fd=top)
            try:
                pending += _empty(inner, top, names)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    folder.rmdir()


def _empty(folder: int, top: int, names: Iterator[str]) -> list[str]:
    """Remove the files of a folder and move its folders to the top; returns their new names."""
    with os.scandir(folder) as listing:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
    moved = []
    for name, is_folder in entries:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        with contextlib.suppress(PermissionError):  # somebody else's; moving it may still be allowed
            os.chmod(name, 0o700, dir_fd=folder)
        moved.append(next(names))
        os.rename(name, moved[-1], src_dir_fd=folder, dst_dir_fd=top)
    return moved


def write_text(path: Path, text: str) -> None:
    """Write a text file with `atomic_write`; what UTF-8 cannot encode becomes a question mark."""
    atomic_write(path, text.encode("utf-8", errors="replace"))


def write_json(path: Path, value: object) -> None:
    """Write indented JSON of a record, or of lists and mappings of them; numbers that are not finite become null."""
    atomic_write(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def lock_file(descriptor: int, wait_s: float = LOCK_WAIT_S) -> None:
    """Take the exclusive flock of an open file, for as long as it stays open in this process.

    Raises BlockingIOError if others hold it all of this time, OSError where the file system has no locks. A lock that
    can be had is not always free at once: a process that was killed while it started another leaves its lock to that
    one until it has loaded its program, and a reader that looks whether somebody holds the lock holds it meanwhile.
    """
    ends_at = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends_at:
                raise
            time.sleep(_LOCK_RETRY_S)


def numbered_lines(data: AnyStr) -> Iterator[tuple[int, AnyStr]]:
    """(number from 1, line without its end) of every line that is not blank; a line ends at a line feed only."""
    line_feed = "\n" if isinstance(data, str) else b"\n"
    for number, line in enumerate(data.split(line_feed), start=1):
        if line.strip():
            yield number, line
