"""What a model may have been trained on: every text-like file below a folder, as units with a place.

    .jsonl .ndjson        one unit a line: all its strings, in order
    .json                 one unit for each element of a list, else one for the file
    .csv .tsv             one unit a row
    .parquet .arrow .feather
                          one unit a row, string columns (nested ones too)
    anything without a zero byte
                          blocks of `BLOCK_CHARS` characters, overlapping by `OVERLAP_CHARS`
    .gz .zst              what they unpack to

Links are never followed, special files never opened. Bounded in files, bytes a file and bytes in all; what was left
out is counted in `TextReading`, to be reported. Does NOT look into archives, databases, images, weights or encrypted
files: they are counted as not read, and whoever wants to hide data can do it there.
"""

import csv
import gzip
import io
import os
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import msgspec
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import zstandard

from agent2.files import numbered_lines
from agent2.records import JsonValue

BLOCK_CHARS = 1 << 20
OVERLAP_CHARS = 4_000
"""More than the longest item that may be cut in two."""
BATCH_ROWS = 1_024
ZSTD_STEP = 1_024
"""Packed bytes that are unpacked at once: at zstd's highest ratio some tens of megabytes."""
OWN_SUFFIXES = frozenset({".safetensors", ".pt", ".pth", ".bin", ".npy", ".npz", ".png", ".pyc", ".so"})
"""Counted as not read without being opened."""
NOT_TEXT = "not text"
NO_FILE = "no regular file"
TOO_MANY_FILES = "beyond the number of files that are looked at"
TOO_MANY_NAMES = "beyond the number of names that are looked at"
TOO_MUCH = "beyond the bytes that are looked at in all"
CUT = frozenset({TOO_MANY_FILES, TOO_MANY_NAMES, TOO_MUCH})
"""Reasons which mean that reading stopped before everything was looked at."""
MAX_DEPTH = 64
"""Folders in folders that are walked; each level holds a descriptor open."""
_TABLES = frozenset({".parquet", ".arrow", ".feather"})


TextOf = Callable[[JsonValue], str]


@dataclass(frozen=True, slots=True)
class TextUnit:
    """One row, or one block of a text."""

    where: str
    """File and row or first character: "data/mine.jsonl:17"."""
    text: str
    """All strings of it, joined by line ends."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much is looked at."""

    files: int = 100_000
    """Regular files that are opened. Links and special files use nothing of it."""
    names: int = 2_000_000
    """Names in folders, links and special files included; these are only listed."""
    file_bytes: int = 1 << 30
    total_bytes: int = 4 << 30
    """Unpacked."""


@dataclass(slots=True)
class TextReading:
    """What was read, filled in while units are taken."""

    n_files: int = 0
    n_bytes: int = 0
    n_units: int = 0
    not_read: Counter[str] = field(default_factory=Counter)
    """Why -> number of files."""
    examples: list[str] = field(default_factory=list)
    """Some of the files that were not read."""

    def miss(self, path: str, why: str) -> None:
        """Note a file that was not read, or not in full."""
        self.not_read[why] += 1
        if len(self.examples) < 10:
            self.examples.append(path)

    @property
    def n_unsearched(self) -> int:
        """Files and folders that may hold text and were not read, or not in full; links aside."""
        return sum(n for why, n in self.not_read.items() if why not in (NOT_TEXT, NO_FILE))

    @property
    def is_cut(self) -> bool:
        """Reading stopped at a limit, so that nothing is known about the rest."""
        return any(why in CUT for why in self.not_read)

    def summary(self) -> str:
        """One sentence."""
        done = f"{self.n_units} rows and texts in {self.n_files} files, {self.n_bytes / 1e6:.1f} MB"
        if not self.not_read:
            return done
        left = ", ".join(f"{n} {why}" for why, n in sorted(self.not_read.items()))
        return f"{done}; not read: {left} (such as {', '.join(repr(name) for name in self.examples[:3])})"


def read_units(
    folder: Path, limits: ReadLimits, reading: TextReading, text_of: TextOf | None = None
) -> Iterator[TextUnit]:
    """The units of all files below a folder, in a stable order; of one file if `folder` is one.

    text_of: what of a row with named fields counts; by default all its strings.
    """
    for path, data in _contents(folder, limits, reading):
        yield from units_of(path, data, limits, reading, text_of)


def raw_files(folder: Path, limits: ReadLimits, reading: TextReading) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of every file that `read_units` would look into, unparsed. Counts files and bytes in `reading`."""
    for path, data in _contents(folder, limits, reading):
        reading.n_files += 1
        reading.n_bytes += len(data)
        yield path, data


def _contents(folder: Path, limits: ReadLimits, reading: TextReading) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of every file that may be text and is not too large; the others are counted."""
    for path, handle, size in _files(folder, limits, reading):
        if PurePosixPath(path).suffix.lower() in OWN_SUFFIXES:
            reading.miss(path, NOT_TEXT)
        elif size > limits.file_bytes:
            reading.miss(path, "too large")
        elif reading.n_bytes + size > limits.total_bytes:
            reading.miss(path, TOO_MUCH)
        else:
            with open(handle, "rb", closefd=False) as stream:
                yield path, stream.read(size)


def units_of(
    path: str, data: bytes, limits: ReadLimits, reading: TextReading, text_of: TextOf | None = None
) -> Iterator[TextUnit]:
    """The units of one file's bytes. path: its name, which says what kind it is."""
    name = PurePosixPath(path)
    if name.suffix.lower() in (".gz", ".zst"):
        unpacked = _unpacked(name.suffix.lower(), data, min(limits.file_bytes, limits.total_bytes - reading.n_bytes))
        if unpacked is None:
            reading.miss(path, "too large or damaged when unpacked")
            return
        data, name = unpacked, name.with_suffix("")
    suffix = name.suffix.lower()
    if suffix not in _TABLES and b"\0" in data[:65_536]:
        reading.miss(path, NOT_TEXT)
        return
    reading.n_files += 1
    reading.n_bytes += len(data)
    try:
        for row, text in _rows(suffix, data, text_of or joined):
            if text:
                reading.n_units += 1
                yield TextUnit(f"{path}:{row}", text)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        reading.miss(path, f"damaged ({type(error).__name__})")


def _rows(suffix: str, data: bytes, text_of: TextOf) -> Iterator[tuple[int, str]]:
    if suffix in (".jsonl", ".ndjson"):
        yield from _json_lines(data, text_of)
    elif suffix == ".json":
        yield from _json(data, text_of)
    elif suffix in (".csv", ".tsv"):
        yield from _table_text(data, "\t" if suffix == ".tsv" else ",")
    elif suffix == ".parquet":
        yield from _batches(pyarrow.parquet.ParquetFile(pa.BufferReader(data)).iter_batches(BATCH_ROWS), text_of)
    elif suffix in _TABLES:
        yield from _batches(_arrow_batches(data), text_of)
    else:
        yield from _blocks(data)


def _json_lines(data: bytes, text_of: TextOf) -> Iterator[tuple[int, str]]:
    decode = msgspec.json.Decoder().decode
    for number, line in numbered_lines(data):
        try:
            yield number, text_of(decode(line))
        except (msgspec.DecodeError, RecursionError):
            yield number, line.decode(errors="replace")


def _json(data: bytes, text_of: TextOf) -> Iterator[tuple[int, str]]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        yield from _blocks(data)
        return
    for number, row in enumerate(value if isinstance(value, list) else [value], start=1):
        yield number, text_of(row)


def _table_text(data: bytes, delimiter: str) -> Iterator[tuple[int, str]]:
    text = io.StringIO(data.decode(errors="replace"), newline="")
    try:
        for number, row in enumerate(csv.reader(text, delimiter=delimiter), start=1):
            yield number, "\n".join(row)
    except csv.Error:
        yield from _blocks(data)


def _batches(batches: Iterable[pa.RecordBatch], text_of: TextOf) -> Iterator[tuple[int, str]]:
    number = 0
    for batch in batches:
        for row in batch.to_pylist():
            number += 1
            yield number, text_of(row)


def _arrow_batches(data: bytes) -> Iterator[pa.RecordBatch]:
    source = pa.BufferReader(data)
    try:
        file = pyarrow.ipc.open_file(source)
    except pa.ArrowInvalid:
        yield from pyarrow.ipc.open_stream(pa.BufferReader(data))
        return
    for index in range(file.num_record_batches):
        yield file.get_batch(index)


def _blocks(data: bytes) -> Iterator[tuple[int, str]]:
    text = data.decode(errors="replace")
    for start in range(0, max(len(text) - OVERLAP_CHARS, 1), BLOCK_CHARS):
        yield start, text[start : start + BLOCK_CHARS + OVERLAP_CHARS]


def joined(value: JsonValue) -> str:
    """All strings inside a JSON value, names of fields left out except where they are data, joined by line ends.

    A table from question to answer is a mapping whose names are data: names with a space are strings too.
    """
    if isinstance(value, str):
        return value
    found: list[str] = []
    pending: list[JsonValue] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, Mapping):
            for key, inner in reversed(list(one.items())):
                pending.append(inner)
                if isinstance(key, str) and not key.isidentifier():
                    pending.append(key)
        elif isinstance(one, list | tuple):
            pending.extend(reversed(one))
        elif isinstance(one, int | float):
            found.append(str(one))
    return "\n".join(found)


def _unpacked(suffix: str, data: bytes, most: int) -> bytes | None:
    """None if it is damaged or more than `most` bytes."""
    try:
        if suffix == ".gz":
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                found = stream.read(most + 1)
        else:
            found = _zstd(data, most)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError):
        return None
    return found if len(found) <= most else None


def _zstd(data: bytes, most: int) -> bytes:
    """All frames, up to a little more than `most` bytes. Raises EOFError if the last one is cut."""
    parts: list[bytes] = []
    size = at = 0
    frame = zstandard.ZstdDecompressor().decompressobj()
    while at < len(data) and size <= most:
        part = frame.decompress(data[at : at + ZSTD_STEP])
        parts.append(part)
        size += len(part)
        at += min(ZSTD_STEP, len(data) - at) - len(frame.unused_data)
        if frame.eof and at < len(data):
            frame = zstandard.ZstdDecompressor().decompressobj()
    if size <= most and not frame.eof:
        raise EOFError("the last frame is not whole")
    return b"".join(parts)


def _files(folder: Path, limits: ReadLimits, reading: TextReading) -> Iterator[tuple[str, int, int]]:
    """(relative path, open descriptor, size) of each regular file; closed when the next one is asked for."""
    if folder.is_file():
        with folder.open("rb") as file:
            yield folder.name, file.fileno(), os.fstat(file.fileno()).st_size
        return
    n_names = n_files = 0

    def tell(error: OSError) -> None:
        reading.miss(os.fsencode(error.filename or "").decode(errors="backslashreplace"), "folder cannot be opened")

    for at, folders, names, descriptor in os.fwalk(folder, follow_symlinks=False, onerror=tell):
        inside = Path(at).relative_to(folder)
        folders.sort()
        if len(inside.parts) >= MAX_DEPTH:
            for name in folders:
                reading.miss(os.fsencode(inside / name).decode(errors="backslashreplace"), "folder too deep")
            folders.clear()
        for name in sorted(names):
            path = os.fsencode(inside / name).decode(errors="backslashreplace")
            n_names += 1
            if n_names > limits.names:
                reading.miss(path, TOO_MANY_NAMES)
                return
            handle = _opened(name, descriptor)
            if isinstance(handle, str):
                reading.miss(path, handle)
                continue
            n_files += 1
            if n_files > limits.files:
                os.close(handle)
                reading.miss(path, TOO_MANY_FILES)
                return
            try:
                yield path, handle, os.fstat(handle).st_size
            finally:
                os.close(handle)


def _opened(name: str, folder: int) -> int | str:
    """A descriptor, or why there is none."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except PermissionError:
        return "cannot be opened"
    except OSError:  # a link, a socket, or gone
        return NO_FILE
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return NO_FILE
    return handle
