"""Checks of the paths that a command is given, made before the work whose result they take."""

import os
from pathlib import Path

from agent2.errors import ConfigError


def check_data(data: Path | None) -> Path | None:
    """The absolute path of --data. Raises ConfigError if it does not exist or is a file."""
    if data is None:
        return None
    folder = data.expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(f"--data {data}: is not a directory; pass the one that contains the official data")
    return folder


def check_is_folder(flag: str, path: Path) -> None:
    """Raise ConfigError if files cannot be created below `path`, which need not exist yet."""
    above = next(folder for folder in [path.absolute(), *path.absolute().parents] if folder.exists())
    if not above.is_dir():
        raise ConfigError(f"{flag} {path}: {above} is a file; pass a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"{flag} {path}: {above} is not writable by this user; pass another folder")


def check_is_file(flag: str, path: Path) -> None:
    """Raise ConfigError if a file of that name cannot be created; called before the work whose result it takes."""
    if path.is_dir():
        raise ConfigError(f"{flag} {path}: is a folder; pass the path of a file")
    if not path.parent.is_dir():
        raise ConfigError(f"{flag} {path}: the folder {path.parent} does not exist; create it, or choose another path")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"{flag} {path}: {path.parent} is not writable by this user; choose another path")
