"""Data files of users: rows of JSONL, JSON, CSV, TSV and Parquet, and official files that users download.

Promises: a file is never trusted to be small or sound. A line of JSONL is read up to `MAX_LINE_BYTES`, text must be
UTF-8, and every refusal names file and line. The digest is that of the bytes that were read. Does NOT download.
"""

import csv
import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from agent2.benchmarks.printed_values import with_arrays_read
from agent2.errors import ConfigError, quoted
from agent2.foreign_files import open_regular, require_no_bomb
from agent2.texts import parse_json

MAX_LINE_BYTES = 16 << 20
MAX_ARRAY_BYTES = 512 << 20
MAX_FILE_BYTES = 16 << 30
"""Of a data file: rows are kept in memory, and a file that is mostly holes would be hashed for hours."""
PARQUET_ROWS = 4096
"""That are unpacked at once."""
"""Of a .json file, which is read as a whole."""
FORMATS = (".jsonl", ".jsonl.gz", ".json", ".csv", ".tsv", ".parquet")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file."""

    values: dict[str, Any]
    file: Path
    number: int
    """Line from 1 in JSONL and CSV, row from 1 in Parquet and JSON."""

    def get(self, name: str) -> Any:
        """A field, or one inside a record ("question.stem"); None where there is none."""
        value: Any = self.values.get(name)
        if value is None and "." in name and name not in self.values:
            value = self.values
            for key in name.split("."):
                value = value.get(key) if isinstance(value, Mapping) else None
        return value

    @property
    def where(self) -> str:
        """File and number, for messages."""
        return f"{self.file}:{self.number}"


def file_digest(path: Path) -> str:
    """SHA-256 of a file. Raises ConfigError if it cannot be read, or is larger than `MAX_FILE_BYTES`."""
    try:
        with open_regular(path, follow=True) as file:
            if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
                raise ConfigError(f"{path}: is larger than {MAX_FILE_BYTES >> 30} GiB; divide it, or take a part of it")
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def read_rows(path: Path) -> list[Row]:
    """All rows of a file, its format recognised by its suffix.

    Raises ConfigError for a format that is not read, a file without rows, and with file and line for text that is not
    UTF-8, a line that is too long or no JSON object, and a CSV row with more or fewer fields than the header.
    """
    readers = {
        ".jsonl": _jsonl,
        ".jsonl.gz": _jsonl,
        ".json": _json,
        ".csv": _csv,
        ".tsv": _csv,
        ".parquet": _parquet,
    }
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
    with open_regular(path, follow=True) as stored:
        is_packed = path.suffix.lower() == ".gz"
        packed_bytes, unpacked_bytes = os.fstat(stored.fileno()).st_size, 0
        for number, line in _lines(gzip.GzipFile(fileobj=stored) if is_packed else stored, path):
            unpacked_bytes += len(line)
            if is_packed:
                require_no_bomb(path, packed_bytes, unpacked_bytes)
            if not line.strip():
                continue
            text = _decoded(line, path, number)
            try:
                values = parse_json(text)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{path}:{number}: not valid JSON ({error}); fix or remove the line") from error
            if not isinstance(values, dict):
                raise ConfigError(
                    f"{path}:{number}: {quoted(values)} is not a JSON object; each line of .jsonl has to be one"
                )
            yield Row(values, path, number)


def _json(path: Path) -> Iterator[Row]:
    """Rows of an array of objects, of an object with one such array, or of JSON lines under that suffix."""
    with open_regular(path, follow=True) as file:
        data = file.read(MAX_ARRAY_BYTES + 1)
    if len(data) > MAX_ARRAY_BYTES:
        raise ConfigError(f"{path}: is larger than {MAX_ARRAY_BYTES >> 20} MiB; convert it to .jsonl")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        yield from _jsonl(path)  # which names the line
        return
    if isinstance(value, dict):
        arrays = [part for part in value.values() if isinstance(part, list) and part and isinstance(part[0], dict)]
        value = arrays[0] if len(arrays) == 1 else [value]
    if not isinstance(value, list):
        raise ConfigError(f"{path}: {quoted(value)} is not an array of objects; write one object for each row")
    for number, values in enumerate(value, 1):
        if not isinstance(values, dict):
            raise ConfigError(f"{path}:{number}: {quoted(values)} is not a JSON object; each row has to be one")
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
    with open_regular(path, follow=True) as file:
        lines = (_decoded(line, path, number) for number, line in _lines(file, path))
        # a setting of the whole process, so it is put back below
        before = csv.field_size_limit(min(MAX_LINE_BYTES, sys.maxsize))
        try:
            reader = csv.reader(lines, strict=True, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            header = next(reader, [])
            if len(set(header)) < len(header):
                raise ConfigError(
                    f"{path}:1: two columns have the same name; give each a different name, or put "
                    "a line with the names above the data if this is one of them"
                )
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(header):
                    raise ConfigError(
                        f"{path}:{reader.line_num}: has {len(fields)} fields, the header {len(header)}; quote fields "
                        "that hold commas"
                    )
                yield Row(dict(zip(header, map(with_arrays_read, fields), strict=True)), path, reader.line_num)
        except csv.Error as error:
            raise ConfigError(f"{path}:{reader.line_num}: not valid CSV ({error}); fix the line") from error
        finally:
            csv.field_size_limit(before)


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow  # here: it takes a quarter of a second that no other format needs
    import pyarrow.parquet

    try:
        with open_regular(path, follow=True) as stored, pyarrow.parquet.ParquetFile(stored) as file:
            number = unpacked_bytes = 0
            packed_bytes = os.fstat(stored.fileno()).st_size
            for batch in file.iter_batches(PARQUET_ROWS):
                unpacked_bytes += batch.nbytes
                require_no_bomb(path, packed_bytes, unpacked_bytes)
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
            f"and set {self.variable} to its folder (agent2 run, agent2 score and agent2 tasks also take --data)"
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
