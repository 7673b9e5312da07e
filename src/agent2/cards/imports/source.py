"""What is imported: a file or a folder, parsed at most once, and what was chosen of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agent2.errors import ConfigError, unknown_name
from agent2.files import numbered_lines
from agent2.foreign_files import MAX_LOG_BYTES, read_named
from agent2.texts import parse_json

T = TypeVar("T")
ARCHIVES = frozenset({".eval", ".parquet"})
"""Suffixes of files that hold no text."""


@dataclass(frozen=True, slots=True)
class LogChoice:
    """What a user chose of a log that has several."""

    metric: str | None = None
    """None: the first."""
    filter_name: str | None = None
    """Of lm-eval; None: the first."""


NO_CHOICE = LogChoice()


class LogSource:
    """A file or folder that another harness wrote; its texts are read and parsed when they are first needed."""

    def __init__(self, path: Path) -> None:
        """Take a path that need not exist yet: reading it raises ConfigError."""
        self.path = path

    @cached_property
    def text(self) -> str:
        """Text of the file. Raises ConfigError."""
        return read_text(self.path)

    @cached_property
    def document(self) -> Any:
        """The JSON document that the file holds; None for a folder. Raises ConfigError for text that is not JSON."""
        return None if self.path.is_dir() else document_of(self.path, self.text)

    @cached_property
    def rows(self) -> Sequence[tuple[int, Any]]:
        """(line, value) of every line of a JSONL file. Raises ConfigError, with the line, where one is not JSON."""
        rows = []
        for number, line in numbered_lines(self.text):
            try:
                if line.strip():
                    rows.append((number, parse_json(line)))
            except (ValueError, RecursionError) as error:
                raise ConfigError(
                    f"{self.path}:{number}: is not JSON ({error}); the file is cut off, or is not JSONL"
                ) from error
        return rows

    @cached_property
    def head(self) -> Any:
        """What a format is recognised by: the document, or the first line of JSONL; None for folders and archives.

        Raises ConfigError for a file that is empty or begins with neither.
        """
        if self.path.is_dir() or self.path.suffix in ARCHIVES:
            return None
        number, line = next(((number, line) for number, line in numbered_lines(self.text) if line.strip()), (0, ""))
        if not number:
            raise ConfigError(f"{self.path}: is empty")
        try:
            row = parse_json(line)
        except (ValueError, RecursionError) as error:
            if self.path.suffix == ".jsonl":
                raise ConfigError(f"{self.path}:{number}: is not JSON ({error}); the file is cut off") from error
            return self.document
        return row


def read_text(path: Path, errors: str = "strict") -> str:
    """Text of a file. errors: as in `bytes.decode`. Raises ConfigError."""
    try:
        return read_named(path, MAX_LOG_BYTES).decode("utf-8-sig", errors)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text ({error}); give the file as the harness wrote it") from error


def document_of(path: Path, text: str | None = None) -> Any:
    """The JSON document in a file, whose text may be given. Raises ConfigError."""
    try:
        return parse_json(read_text(path) if text is None else text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not JSON ({error}); the file is cut off, or is something else") from error


def require_metric(choice: LogChoice, metrics: Iterable[str], path: Path) -> str:
    """The metric that counts: the one chosen, else the first. Raises ConfigError for one that the log does not have."""
    names = list(metrics)
    if choice.metric is None:
        return names[0]
    if choice.metric not in names:
        raise unknown_name("metric", choice.metric, names, f"{path}: --metric")
    return choice.metric


def shaped(value: Any, layout: type[T], where: str) -> T:
    """A parsed value as the record that a harness documents; further fields are ignored.

    Raises ConfigError, with the field, for a value of another shape.
    """
    try:
        return msgspec.convert(value, layout)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}; restore the file as the harness wrote it") from error
