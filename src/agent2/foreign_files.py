"""Files that somebody else may have written, opened without waiting and read up to a limit.

The rule, door by door:

    trials, recordings, published figures    A regular file that is no symbolic link: these folders come from agents
        and strangers, who could link any file of the machine, or leave a pipe that nobody writes to.
    cards, checkpoints, data, documents      A regular file, links followed (`follow`): people keep them in caches and
        stores that link. They are read more than once, so a pipe cannot stand in for one.
    logs and settings that the user names    As those, or a pipe (`read_named`): `<(zcat log.json.gz)` is read, up to
        the same limit, and a writer is not waited for for ever.

Devices and sockets are refused everywhere.

Promises: what is refused is an OSError whose `strerror` says why, so that a caller's own message about a file that
cannot be read says it too. Does NOT guard the folders on the way: a folder that is a link is followed.
"""

import errno
import hashlib
import io
import os
import select
import stat
from pathlib import Path

MIB = 1 << 20
MAX_RECORD_BYTES = 256 * MIB
"""Of a record that a machine wrote: `trial.json`, `card.json`, an audit."""
MAX_TEXT_BYTES = 4 * MIB
"""Of a file that a person wrote: YAML settings, published figures. YAML takes seconds for each MiB."""
MAX_LOG_BYTES = 1024 * MIB
"""Of another tool's log, which is parsed in memory."""
MAX_SMALL_UNPACKED = 256 * MIB
"""What any compressed file may unpack to."""
MAX_RATIO = 200
"""Unpacked bytes for each packed one beyond that; JSON lines of real data reach 10 to 50, a bomb of zeros 1,000."""
PIPE_WAIT_S = 30.0
"""Without a byte from a pipe."""
_CHUNK_BYTES = 1 << 16
_KINDS = (
    (stat.S_ISDIR, "is a folder"),
    (stat.S_ISFIFO, "is a named pipe"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
    (stat.S_ISSOCK, "is a socket"),
)


def open_regular(
    path: Path, *, follow: bool = False, dir_fd: int | None = None, max_bytes: int | None = None
) -> io.BufferedReader:
    """A regular file, opened for reading. Raises OSError for anything else, at once, and for more than `max_bytes`.

    follow: through a symbolic link. dir_fd: descriptor of the folder that a relative path starts from.
    """
    descriptor = _open(path, follow=follow, dir_fd=dir_fd)
    try:
        status = os.fstat(descriptor)
        _require_regular(path, status.st_mode)
        if max_bytes is not None and status.st_size > max_bytes:
            raise _too_large(path, max_bytes)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_limited(path: Path, max_bytes: int = MAX_RECORD_BYTES, *, follow: bool = False) -> bytes:
    """All of a regular file. Raises OSError as `open_regular`, and for a file of more than `max_bytes`."""
    with open_regular(path, follow=follow, max_bytes=max_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(min(size, max_bytes) + 1)  # a buffer of this size is made at once, however short the file
        if len(data) > size:
            data += file.read(max_bytes + 1 - len(data))
    if len(data) > max_bytes:  # it grew, or is one of /proc, whose sizes are 0
        raise _too_large(path, max_bytes)
    return data


def read_tail(path: Path, n_bytes: int) -> bytes:
    """The last bytes of a regular file, all of a shorter one. Raises OSError as `open_regular`."""
    with open_regular(path) as file:
        file.seek(max(0, file.seek(0, 2) - n_bytes))
        return file.read(n_bytes)


def last_lines(path: Path, n_bytes: int) -> list[str]:
    """The lines with text in the last bytes of a log, trimmed; none where it cannot be read."""
    try:
        text = read_tail(path, n_bytes).decode("utf-8", "replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def digest_limited(path: Path, max_bytes: int, *, follow: bool = False) -> str:
    """SHA-256 of a regular file. Raises OSError as `read_limited`."""
    digest, size = hashlib.sha256(), 0
    with open_regular(path, follow=follow, max_bytes=max_bytes) as file:
        while part := file.read(MIB):
            size += len(part)
            if size > max_bytes:
                raise _too_large(path, max_bytes)
            digest.update(part)
    return digest.hexdigest()


def state_of(path: Path) -> tuple[int, int, int, int, int]:
    """Device, number, size and times of a file: another file in its place, or one that was written to, has others.

    Its mode and its links change the last one, too. Raises OSError.
    """
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_named(path: Path, max_bytes: int, *, wait_s: float | None = None) -> bytes:
    """All of a file or pipe that the user named.

    wait_s: `PIPE_WAIT_S` by default. Raises OSError for anything else, for more than `max_bytes`, and for a pipe from
    which nothing comes for that long.
    """
    if not stat.S_ISFIFO(path.stat().st_mode):
        return read_limited(path, max_bytes, follow=True)
    descriptor = _open(path, follow=True)
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "was replaced while it was opened", os.fspath(path))
        return _read_pipe(path, descriptor, max_bytes, PIPE_WAIT_S if wait_s is None else wait_s)
    finally:
        os.close(descriptor)


def require_plain_files(folder: Path) -> None:
    """Raise OSError for a pipe, device or socket in a folder that is about to be copied; links are not followed."""
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        if not (stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            _require_regular(path, mode)


def require_no_bomb(path: Path, packed_bytes: int, unpacked_bytes: int) -> None:
    """Raise OSError if a file has unpacked to far more than honest data do; called while it is unpacked."""
    if unpacked_bytes > MAX_SMALL_UNPACKED and unpacked_bytes > MAX_RATIO * packed_bytes:
        problem = f"unpacks to more than {MAX_RATIO} times its size; unpack it yourself if you trust it"
        raise OSError(errno.EINVAL, problem, os.fspath(path))


def _open(path: Path, *, follow: bool, dir_fd: int | None = None) -> int:
    # O_NONBLOCK: opening a named pipe without a writer would block
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        return os.open(path, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, "is a symbolic link, which is not followed here", os.fspath(path)) from error
        if error.errno == errno.ENXIO:
            raise OSError(error.errno, "is a socket, not a regular file", os.fspath(path)) from error
        raise


def _require_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "is something else")
        raise OSError(errno.EINVAL, f"{kind}, not a regular file", os.fspath(path))


def _read_pipe(path: Path, descriptor: int, max_bytes: int, wait_s: float) -> bytes:
    parts, size = list[bytes](), 0
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        # a pipe that had no writer yet is not ready, one whose writer is gone is
        if not poll.poll(wait_s * 1000):
            problem = f"is a pipe into which nothing was written for {wait_s:g} s"
            raise OSError(errno.ETIMEDOUT, problem, os.fspath(path))
        part = os.read(descriptor, _CHUNK_BYTES)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise _too_large(path, max_bytes)


def _too_large(path: Path, max_bytes: int) -> OSError:
    unit, name = next(
        (unit, name) for unit, name in ((1 << 30, "GiB"), (MIB, "MiB"), (1, "bytes")) if max_bytes >= unit
    )
    limit = f"{max_bytes // unit} {name}" if max_bytes % unit == 0 else f"{max_bytes} bytes"
    # not EFBIG: that would be blamed on the machine (`is_machine_failure`)
    return OSError(errno.EINVAL, f"is larger than {limit}, the limit for such a file", os.fspath(path))
