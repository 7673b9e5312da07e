"""Paths of files that a stranger names: below the workspace they are written into, and none in the place of another."""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import TypeVar

TextT = TypeVar("TextT")

MAX_PATH = 400
"""Characters."""
MAX_NAME = 255
"""Bytes of one part, as file systems have it."""


def plain_path(path: str) -> str:
    """A path without `./` and doubled slashes. Raises ValueError unless it is one below the workspace."""
    parsed = PurePosixPath(path)
    is_inside = bool(parsed.parts) and not parsed.is_absolute() and ".." not in parsed.parts and "\0" not in path
    names = [part.encode(errors="replace") for part in parsed.parts]
    is_usable = len(path) <= MAX_PATH and all(len(name) <= MAX_NAME for name in names) and _is_unicode(path)
    if not (is_inside and is_usable):
        raise ValueError(f"{path[:80]!r} is not a path below the task's own folder")
    return parsed.as_posix()


def _is_unicode(path: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in path)


def require_inside(files: Mapping[str, TextT]) -> dict[str, TextT]:
    """Files by plain paths. Raises ValueError for a path that is none, is there twice, or is below another file."""
    plain: dict[str, TextT] = {}
    for path, text in files.items():
        name = plain_path(path)
        if name in plain:
            raise ValueError(f"{path!r} names the same file as another path")
        plain[name] = text
    if (clash := first_below(plain)) is not None:
        raise ValueError(f"{clash!r} is below a file")
    return plain


def first_below(paths: Iterable[str]) -> str | None:
    """The first path that is below another one, which so would have to be a file and a folder; None: there is none."""
    files = frozenset(paths)
    return next(
        (path for path in sorted(files) if any(str(above) in files for above in PurePosixPath(path).parents)), None
    )


def laid_over(below: Mapping[str, TextT], above: Mapping[str, TextT]) -> dict[str, TextT]:
    """Files with others written over them: what is in the place of one, or of a folder that it needs, is left out."""
    folders = {str(parent) for path in above for parent in PurePosixPath(path).parents}
    standing = {
        path: text
        for path, text in below.items()
        if path not in folders and not any(str(parent) in above for parent in PurePosixPath(path).parents)
    }
    return {**standing, **above}
