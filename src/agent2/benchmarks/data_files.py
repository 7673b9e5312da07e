"""Data files of users: rows of JSONL, CSV and Parquet, and benchmarks of published data that users download.

Promises: a file is never trusted to be small or sound. A line of JSONL is read up to `MAX_LINE_BYTES`, text must be
UTF-8, and every refusal names file and line. The digest is that of the bytes that were read.

Of published data (`PublishedBenchmark`) the visible part is divided by position (every nth item is dev), the scored
part by the installation secret, into test_public and test_private. So an agent that knows the data set still does not
know which items decide. The hidden items are hidden from its workspace and nothing more: anybody can download them, and
a base model may have been trained on them. Therefore a trial on such a task compares the agent's data with fixed shares
and not with control items (which are public, too), and its report warns if the network policy let the agent reach them.
Does NOT download.
"""

import csv
import gzip
import hashlib
import hmac
import json
import math
import os
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.errors import ConfigError, quoted
from agent2.records import HIDDEN_SPLITS, Environment, Item, JsonValue, SamplingSettings, Split

MAX_LINE_BYTES = 16 << 20
FORMATS = (".jsonl", ".jsonl.gz", ".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file."""

    values: dict[str, Any]
    file: Path
    number: int
    """Line from 1 in JSONL and CSV, row from 1 in Parquet."""

    @property
    def where(self) -> str:
        """File and number, for messages."""
        return f"{self.file}:{self.number}"


def file_digest(path: Path) -> str:
    """SHA-256 of a file. Raises ConfigError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def read_rows(path: Path) -> list[Row]:
    """All rows of a file, its format recognised by its suffix.

    Raises ConfigError for a format that is not read, a file without rows, and with file and line for text that is not
    UTF-8, a line that is too long or no JSON object, and a CSV row with more or fewer fields than the header.
    """
    readers = {".jsonl": _jsonl, ".jsonl.gz": _jsonl, ".csv": _csv, ".parquet": _parquet}
    reader = next(
        (reader_of_suffix for ending, reader_of_suffix in readers.items() if path.name.lower().endswith(ending)), None
    )
    if reader is None:
        raise ConfigError(f"{path}: is not one of {', '.join(FORMATS)}; convert it, or name another file")
    try:
        rows = list(reader(path))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read ({reason}); check the file") from error
    if not rows:
        raise ConfigError(f"{path}: holds no rows; name a file with data")
    return rows


def _jsonl(path: Path) -> Iterator[Row]:
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        for number, line in _lines(file, path):
            if not line.strip():
                continue
            text = _decoded(line, path, number)
            try:
                values = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{path}:{number}: not valid JSON ({error}); fix or remove the line") from error
            if not isinstance(values, dict):
                raise ConfigError(
                    f"{path}:{number}: {quoted(values)} is not a JSON object; each line of .jsonl has to be one"
                )
            yield Row(values, path, number)


def _lines(file: BinaryIO | gzip.GzipFile, path: Path) -> Iterator[tuple[int, bytes]]:
    """(number, line); at most `MAX_LINE_BYTES` of a line are read."""
    number = 0
    # one byte beyond the limit shows that a line is too long, however long it is
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise ConfigError(
                f"{path}:{number}: the line is longer than {MAX_LINE_BYTES >> 20} MiB; a row is one line of .jsonl, so "
                "check that the file is not one large JSON array"
            )
        yield number, line


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        # the first line may begin with a byte-order mark
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}:{number}: not UTF-8 text ({error.reason} at byte {error.start} of the line); save it as UTF-8"
        ) from error


def _csv(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        lines = (_decoded(line, path, number) for number, line in _lines(file, path))
        # a setting of the whole process, so it is put back below
        before = csv.field_size_limit(min(MAX_LINE_BYTES, sys.maxsize))
        try:
            reader = csv.reader(lines, strict=True)
            header = next(reader, [])
            if len(set(header)) < len(header):
                raise ConfigError(f"{path}:1: two columns have the same name; give each a different name")
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise ConfigError(
                        f"{path}:{reader.line_num}: has {len(fields)} fields, the header {len(header)}; quote fields "
                        "that hold commas"
                    )
                yield Row(dict(zip(header, fields, strict=True)), path, reader.line_num)
        except csv.Error as error:
            raise ConfigError(f"{path}:{reader.line_num}: not valid CSV ({error}); fix the line") from error
        finally:
            csv.field_size_limit(before)


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow  # here: it takes a quarter of a second that no other format needs
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches():
                for values in batch.to_pylist():
                    number += 1
                    yield Row(values, path, number)
    except pyarrow.ArrowException as error:
        raise ConfigError(f"{path}: not a readable Parquet file ({' '.join(str(error).split())[:200]})") from error


@dataclass(frozen=True, slots=True)
class OfficialFile:
    """One published file that users download themselves."""

    benchmark: str
    names: Sequence[str]
    """File names that it may have; the first one that exists is read."""
    source: str
    """Where it is published."""
    fields: Mapping[str, type]
    """What each row holds."""

    @property
    def variable(self) -> str:
        """Environment variable that may name its folder."""
        return f"{self.benchmark.upper()}_DATA"

    def folder(self, folder: Path | None) -> Path:
        """The folder that is given, else that of the variable, else that in the cache; it may not exist."""
        named = os.environ.get(self.variable)
        return (folder or (Path(named) if named else Path.home() / ".cache" / self.benchmark)).expanduser()

    def path(self, folder: Path | None) -> Path:
        """Path of the file. folder: as for `folder`. Raises ConfigError if it does not exist."""
        data_folder = self.folder(folder)
        for name in self.names:
            if (data_folder / name).is_file():
                return data_folder / name
        raise ConfigError(
            f"{self.benchmark}: {data_folder} contains no {' or '.join(self.names)}; download it from {self.source} "
            f"and set {self.variable} to its folder (agent2 run and agent2 tasks also take --data)"
        )

    def rows(self, folder: Path | None) -> list[Row]:
        """Its rows. Raises ConfigError naming the line that is not in the published layout."""
        rows = read_rows(self.path(folder))
        for row in rows:
            for name, kind in self.fields.items():
                if not isinstance(row.values.get(name), kind):
                    raise ConfigError(
                        f"{row.where}: field {name!r} is missing or not {kind.__name__}; restore the file as it is "
                        f"published at {self.source}"
                    )
        return rows


@dataclass(frozen=True, slots=True)
class PublishedItem:
    """One published problem."""

    id: str
    where: str
    """File and line."""
    prompt: str
    reference: str | None
    payload: Mapping[str, JsonValue]


class PublishedBenchmark(ABC):
    """A benchmark of questions from official files."""

    name: str
    version = "1.0"
    primary_metric: str
    max_turns = 1
    sampling: SamplingSettings
    attempts = 1
    public_share = 0.5
    """Of the scored items, the part that is test_public."""

    def __init__(self, data: Path | None = None) -> None:
        """data: folder with the official files."""
        self.data = data

    @abstractmethod
    def visible(self, split: Split) -> list[PublishedItem]:
        """The items of train or dev. Raises ConfigError for files that are not there or not as published."""

    @abstractmethod
    def scored(self) -> list[PublishedItem]:
        """The items of both hidden splits. Raises ConfigError as `visible`."""

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split.

        Raises ConfigError without the secret for a hidden one, if there are fewer, if an id appears twice, and if a
        file is not there or not as published.
        """
        members = self._members(split, secret)
        if n > len(members):
            raise ConfigError(
                f"{self.name}: {n} items of split {split.value!r} were asked for, there are {len(members)}; ask for "
                "fewer, and check that the file is complete"
            )
        return [Item(member.id, split, member.prompt, member.reference, member.payload) for member in members[:n]]

    def count(self, split: Split, secret: bytes | None) -> int:
        """How many items a split has. Raises ConfigError as `items`."""
        return len(self._members(split, secret))

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def environment_version(self) -> str:
        """Name and version of the world."""
        return QUESTION_WORLD

    def _members(self, split: Split, secret: bytes | None) -> list[PublishedItem]:
        if split not in HIDDEN_SPLITS:
            return require_distinct_ids(self.visible(split))
        if not secret:
            raise ConfigError(f"split {split.value!r} of {self.name} is hidden; only the grader may ask for it")

        def order_key(member: PublishedItem) -> bytes:
            return hmac.new(secret, f"{self.name} order\0{member.id}".encode(), hashlib.sha256).digest()

        ordered = sorted(require_distinct_ids(self.scored()), key=order_key)
        n_public = math.ceil(self.public_share * len(ordered) - 0.5)  # the odd item is private
        return ordered[:n_public] if split is Split.TEST_PUBLIC else ordered[n_public:]


def train_or_dev(visible: Sequence[PublishedItem], split: Split, dev_every: int) -> list[PublishedItem]:
    """Train or dev, of visible items of which every nth one is dev."""
    return [
        item for position, item in enumerate(visible) if (position % dev_every == dev_every - 1) == (split is Split.DEV)
    ]


def require_distinct_ids(items: list[PublishedItem]) -> list[PublishedItem]:
    """The same items. Raises ConfigError if two have the same id."""
    places: dict[str, str] = {}
    for item in items:
        if item.id in places:
            raise ConfigError(
                f"{item.where}: id {item.id} also appears at {places[item.id]}; restore the published file"
            )
        places[item.id] = item.where
    return items
