"""Data files of users: rows of JSONL, JSON, CSV, TSV and Parquet, and official files that users download.

Promises: a file is never trusted to be small or sound. Bytes, rows and values are counted while it is read, and it is
refused at the first beyond a limit; text must be UTF-8, and every refusal names file and line. The digest is that of
the bytes that were read. Does NOT download.
"""

import csv
import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from agent2.benchmarks.printed_values import with_arrays_read
from agent2.errors import ConfigError, quoted
from agent2.foreign_files import digest_limited, open_regular, require_no_bomb
from agent2.installation import benchmark_folder
from agent2.texts import parse_json

MAX_LINE_BYTES = 16 << 20
MAX_ARRAY_BYTES = 512 << 20
"""Of a .json file, which is read as a whole."""
MAX_DATA_BYTES = 4 << 30
"""Of a file, and of what it unpacks to: rows are kept in memory."""
MAX_ROWS = 5_000_000
MAX_VALUES = 100_000_000
"""Of a file, counted roughly: its commas, lists and objects, and lines; a list of nothing takes 60 bytes of memory."""
PARQUET_BYTES = 1 << 30
"""Unpacked at once, at most, if each row were as large as a whole column of its row group."""
PARQUET_ROWS = 64
"""Unpacked at once."""
_VALUE_SIGNS = (b",", b"\t", b"[", b"{")
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


class _Allowance:
    """What may still be read of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes, self._values = MAX_DATA_BYTES, MAX_VALUES

    def take(self, n_bytes: int, n_values: int, number: int) -> None:
        """Raise ConfigError at the line or row `number` that is beyond a limit."""
        self._bytes -= n_bytes
        self._values -= n_values
        if self._bytes < 0:
            raise self._refusal(number, f"{MAX_DATA_BYTES >> 30} GiB of data")
        if self._values < 0:
            raise self._refusal(number, f"{MAX_VALUES // 1_000_000} million values")

    def take_text(self, text: bytes, number: int) -> None:
        """The same for a line, or a whole text."""
        self.take(len(text), sum(text.count(sign) for sign in _VALUE_SIGNS) + 1, number)

    def _refusal(self, number: int, limit: str) -> ConfigError:
        return ConfigError(f"{self._path}:{number}: the file holds more than {limit}, the limit; take a part of it")


def file_digest(path: Path, max_bytes: int = MAX_DATA_BYTES) -> str:
    """SHA-256 of a file. Raises ConfigError if it cannot be read, or is larger than `max_bytes`."""
    try:
        return digest_limited(path, max_bytes, follow=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def read_rows(path: Path, columns: Sequence[str] = ()) -> list[Row]:
    """All rows of a file, its format recognised by its suffix.

    columns: of a CSV file whose first line is data already; its cells stay texts.
    Raises ConfigError for a format that is not read, a file without rows, and with file and line for text that is not
    UTF-8, a line that is too long or no JSON object, a CSV row with more or fewer fields than the header, and what is
    beyond a limit.
    """
    readers: Mapping[str, Callable[[Path, _Allowance], Iterator[Row]]] = {
        ".jsonl": _jsonl,
        ".jsonl.gz": _jsonl,
        ".json": _json,
        ".csv": partial(_csv, columns=columns),
        ".tsv": partial(_csv, columns=columns),
        ".parquet": _parquet,
    }
    reader = next(
        (reader_of_suffix for ending, reader_of_suffix in readers.items() if path.name.lower().endswith(ending)), None
    )
    if reader is None:
        raise ConfigError(f"{path}: is not one of {', '.join(FORMATS)}; convert it, or name another file")
    try:
        rows = list(islice(reader(path, _Allowance(path)), MAX_ROWS + 1))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read ({reason}); check the file") from error
    if not rows:
        raise ConfigError(f"{path}: holds no rows; name a file with data")
    if len(rows) > MAX_ROWS:
        raise ConfigError(f"{path}: holds more than {MAX_ROWS:,} rows, the limit; take a part of it")
    return rows


def _jsonl(path: Path, allowance: _Allowance) -> Iterator[Row]:
    with open_regular(path, follow=True) as stored:
        is_packed = path.suffix.lower() == ".gz"
        packed_bytes, unpacked_bytes = os.fstat(stored.fileno()).st_size, 0
        for number, line in _lines(gzip.GzipFile(fileobj=stored) if is_packed else stored, path, allowance):
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


def _json(path: Path, allowance: _Allowance) -> Iterator[Row]:
    """Rows of an array of objects, of an object with one such array, or of JSON lines under that suffix."""
    with open_regular(path, follow=True) as file:
        data = file.read(MAX_ARRAY_BYTES + 1)
    if len(data) > MAX_ARRAY_BYTES:
        raise ConfigError(f"{path}: is larger than {MAX_ARRAY_BYTES >> 20} MiB; convert it to .jsonl")
    try:
        allowance.take_text(data, 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        yield from _jsonl(path, _Allowance(path))  # which names the line
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


def _lines(file: BinaryIO | gzip.GzipFile, path: Path, allowance: _Allowance) -> Iterator[tuple[int, bytes]]:
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
        allowance.take_text(line, number)
        yield number, line


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        # the first line may begin with a byte-order mark
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}:{number}: not UTF-8 text ({error.reason} at byte {error.start} of the line); save it as UTF-8"
        ) from error


def _csv(path: Path, allowance: _Allowance, columns: Sequence[str] = ()) -> Iterator[Row]:
    with open_regular(path, follow=True) as file:
        lines = (_decoded(line, path, number) for number, line in _lines(file, path, allowance))
        # a setting of the whole process, so it is put back below
        before = csv.field_size_limit(min(MAX_LINE_BYTES, sys.maxsize))
        try:
            reader = csv.reader(lines, strict=True, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            header = list(columns) or next(reader, [])
            read_cell = str if columns else with_arrays_read
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
                yield Row(dict(zip(header, map(read_cell, fields), strict=True)), path, reader.line_num)
        except csv.Error as error:
            raise ConfigError(f"{path}:{reader.line_num}: not valid CSV ({error}); fix the line") from error
        finally:
            csv.field_size_limit(before)


def _parquet(path: Path, allowance: _Allowance) -> Iterator[Row]:
    import pyarrow  # here: it takes a quarter of a second that no other format needs
    import pyarrow.parquet

    try:
        with open_regular(path, follow=True) as stored, pyarrow.parquet.ParquetFile(stored) as file:
            number = unpacked_bytes = 0
            packed_bytes = os.fstat(stored.fileno()).st_size
            for batch in file.iter_batches(_rows_at_once(file.metadata)):
                for n_bytes, n_values in map(_size, batch.columns):
                    unpacked_bytes += n_bytes
                    require_no_bomb(path, packed_bytes, unpacked_bytes)
                    allowance.take(n_bytes, n_values, number + 1)
                for values in batch.to_pylist():
                    number += 1
                    yield Row(values, path, number)
    except pyarrow.ArrowException as error:
        raise ConfigError(f"{path}: not a readable Parquet file ({' '.join(str(error).split())[:200]})") from error


def _rows_at_once(metadata: Any) -> int:
    """Rows of a batch: one text that is stored once may be the value of every row.

    Sizes are those that the file states of itself.
    """
    groups = (metadata.row_group(k) for k in range(metadata.num_row_groups))
    sizes = (group.column(k).total_uncompressed_size for group in groups for k in range(group.num_columns))
    return max(2, min(PARQUET_ROWS, PARQUET_BYTES // max(sizes, default=1)))


def _size(column: Any) -> tuple[int, int]:
    """(bytes, values) of an Arrow array as Python objects, those inside lists and records included."""
    from pyarrow import compute, types

    members = []
    if types.is_dictionary(column.type):  # each row becomes a text of its own
        lengths = compute.binary_length(column.dictionary.cast("binary"))
        return compute.sum(lengths.take(column.indices)).as_py() or 0, len(column)
    if types.is_struct(column.type):
        members = column.flatten()  # unlike field(), only of the rows of this batch
    elif types.is_map(column.type):
        start, end = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
        members = [column.keys.slice(start, end - start), column.items.slice(start, end - start)]
    elif types.is_nested(column.type) and hasattr(column, "flatten"):
        members = [column.flatten()]
    if not members:
        return column.nbytes, len(column)
    sizes = [_size(member) for member in members]
    return sum(n_bytes for n_bytes, _ in sizes), len(column) + sum(n_values for _, n_values in sizes)


@dataclass(frozen=True, slots=True)
class OfficialFile:
    """One published file that users download themselves."""

    benchmark: str
    names: Sequence[str]
    """File names that it may have; the first one that exists is read. One with `*` stands for several files."""
    source: str
    """Where it is published."""
    fields: Mapping[str, type]
    """What each row holds."""
    columns: Sequence[str] = ()
    """Of CSV files that have no header."""

    @property
    def variable(self) -> str:
        """Environment variable that may name its folder."""
        return f"{self.benchmark.upper()}_DATA"

    def folder(self, folder: Path | None) -> Path:
        """The folder that is given, else that of the variable, of `agent2 benchmarks get`, or in the cache.

        It may not exist.
        """
        named = os.environ.get(self.variable)
        if folder is None and not named and (fetched := benchmark_folder(self.benchmark)).is_dir():
            return fetched
        return (folder or (Path(named) if named else Path.home() / ".cache" / self.benchmark)).expanduser()

    def path(self, folder: Path | None) -> Path:
        """Path of the file, of several the first. folder: as for `folder`. Raises ConfigError if it does not exist."""
        return self.paths(folder)[0]

    def paths(self, folder: Path | None) -> list[Path]:
        """Paths of the file, or of all files that a name with `*` stands for. Raises ConfigError if there is none."""
        data_folder = self.folder(folder)
        for name in self.names:
            files = sorted(data_folder.glob(name)) if "*" in name else [data_folder / name]
            if files := [path for path in files if path.is_file()]:
                return files
        raise ConfigError(
            f"{self.benchmark}: {data_folder} contains no {' or '.join(self.names)}; download it from {self.source} "
            f"and set {self.variable} to its folder (agent2 run, agent2 score and agent2 tasks also take --data)"
        )

    def rows(self, folder: Path | None, prepare: Callable[[list[Row]], list[Row]] = list) -> list[Row]:
        """Its rows. Raises ConfigError naming the line that is not in the published layout.

        prepare: puts the rows of one of several published layouts into the one that `fields` describes.
        """
        rows = prepare([row for path in self.paths(folder) for row in read_rows(path, self.columns)])
        for row in rows:
            for name, kind in self.fields.items():
                if not isinstance(row.values.get(name), kind):
                    raise ConfigError(
                        f"{row.where}: field {name!r} is missing or not {kind.__name__}; restore the file as it is "
                        f"published at {self.source}"
                    )
        return rows
