"""Reading an agent's workspace without trusting it.

Every file is opened relative to a directory descriptor and without following links, so a path that is
swapped meanwhile cannot lead out of the workspace. FIFOs and devices are skipped, not opened for reading.
Does not promise one consistent view: files may change between two reads. Does not look deeper than `MAX_DEPTH`
folders, because a program can nest more of them than a process has descriptors.
"""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FILES = 5_000
MAX_DEPTH = 64
MAX_TOTAL_BYTES = 256 * 1024 * 1024
"""Read in one walk."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One regular file of the workspace."""

    path: str
    """Relative, with forward slashes; bytes that are not UTF-8 are escaped."""
    raw_path: bytes
    """The same as it is on disk."""
    size: int
    mtime: float
    data: bytes


def walk_files(
    root: Path,
    max_bytes: int,
    skip: frozenset[str] = frozenset(),
    max_total_bytes: int = MAX_TOTAL_BYTES,
    on_large: Callable[[str, int], None] = lambda path, size: None,
) -> Iterator[FoundFile]:
    """Regular files of at most `max_bytes`, in a stable order, `MAX_FILES` and `max_total_bytes` together at most.

    skip: top-level names that are left out. on_large: told path and size of each regular file that is larger.
    """
    count = total = 0
    for folder, folders, names, descriptor in os.fwalk(root, follow_symlinks=False):
        inside = Path(folder).relative_to(root)
        folders[:] = sorted(name for name in folders if not (inside == Path(".") and name in skip))
        if len(inside.parts) >= MAX_DEPTH:
            folders.clear()
        for name in sorted(names):
            if inside == Path(".") and name in skip:
                continue
            found = _read(descriptor, name, inside, max_bytes, on_large)
            if found is None:
                continue
            count += 1
            total += found.size
            if total > max_total_bytes:
                return
            yield found
            if count >= MAX_FILES:
                return


def _read(
    descriptor: int,
    name: str,
    inside: Path,
    max_bytes: int,
    on_large: Callable[[str, int], None] = lambda path, size: None,
) -> FoundFile | None:
    """None for anything but a regular file of acceptable size that is still there."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
    except OSError:
        return None  # gone, a link, or a socket: not a file that the agent keeps
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > max_bytes:
            on_large(os.fsencode(inside / name).decode(errors="backslashreplace"), status.st_size)
            return None
        with open(handle, "rb", closefd=False) as stream:
            data = stream.read(max_bytes + 1)
    finally:
        os.close(handle)
    if len(data) > max_bytes:
        return None
    raw_path = os.fsencode(inside / name)
    path = raw_path.decode(errors="backslashreplace")
    return FoundFile(path=path, raw_path=raw_path, size=len(data), mtime=status.st_mtime, data=data)


def read_beneath(root: Path, path: str, max_bytes: int) -> bytes | None:
    """One regular file below `root`, no step of the way a link; None if there is none, or it is too large."""
    *folders, name = Path(path).parts
    if not name or ".." in folders or name == ".." or Path(path).is_absolute():
        return None
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        found = _read(descriptor, name, Path(*folders), max_bytes)
    except OSError:
        return None  # a folder on the way is not there, or is a link
    finally:
        os.close(descriptor)
    return found.data if found is not None else None
