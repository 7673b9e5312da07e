"""Addresses of sockets that the kernel has room for, however long the path is under which tests keep their files."""

import functools
import os
from pathlib import Path


@functools.cache
def _opened(folder: Path) -> int:
    return os.open(folder, os.O_PATH | os.O_DIRECTORY)


def short_path(path: Path) -> str:
    """The same place as `path`, for this process; a socket's address may be 107 bytes long."""
    return f"/proc/self/fd/{_opened(path.parent)}/{path.name}"
