"""The table of a closed card, `rollouts.parquet`.

One row a rollout, sorted by item and attempt. The columns are those that queries use; `record` is the rollout itself as
JSON text, the line that the open card held. Each row group is a frame: the page of its `record` column is one zstd
frame whose offset `card.json` names, so that records are read without a Parquet library, which takes longer to load
than most cards take to read.

Promises: memory does not grow with the rollouts; what was written is read back before the file counts; a missing score
is NULL, never 0. All columns except `finished` are derived from `record`, and `ColumnCheck` derives them again.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from agent2.cards import folder
from agent2.cards.aggregate import KINDS, Tally, counted_values, kinds_of, marks_of
from agent2.cards.card import CardFile, Frame, ReportingRule
from agent2.cards.folder import ZSTD_MAGIC, closed_lines, content_digest, decode_lines, frame_lines
from agent2.errors import CardError, Fault
from agent2.records import RolloutStatus, StopReason, digest_of

RECORD = "record"
COLUMNS = pa.schema(
    [
        ("item_id", pa.string()),
        ("attempt", pa.int64()),
        ("status", pa.string()),
        ("value", pa.float64()),  # as the scorer gave it
        ("counted", pa.float64()),  # as the card's reporting rule counts it
        ("kinds", pa.list_(pa.string())),  # what a reporting rule looks at: turn_cap, time_cap, empty, truncated, ...
        ("fault", pa.string()),  # of the rollout, else of the score
        ("reason", pa.string()),  # of the score
        ("n_turns", pa.int64()),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("seconds", pa.float64()),
        ("retries", pa.int64()),
        ("stop_reason", pa.string()),  # of the last turn
        ("labels", pa.list_(pa.string())),
        ("views", pa.map_(pa.string(), pa.float64())),
        ("answer", pa.string()),
        ("extracted", pa.string()),  # the final answer as the scorer read it
        ("finished", pa.int64()),  # position in the order in which the rollouts finished, from 0
        pa.field(RECORD, pa.string(), nullable=False),
    ]
)
_WITH_STATISTICS = ["item_id", "attempt", "value", "counted", "fault", "completion_tokens"]
"""Columns with minima and maxima in the footer; those of long texts would fill it."""
ONE_PAGE = 1 << 30
"""Larger than any row group, so that a column of one has a single page."""
_KINDS_OF_MARKS = [tuple(kinds_of(marks)) for marks in range(1 << len(KINDS))]


class TableWriter:
    """Writes the rollouts of a card, frame by frame. Leaving the `with` block without `close` leaves no file."""

    def __init__(self, file: Path, rule: ReportingRule) -> None:
        """Begin a new file. Raises OSError if it cannot be made."""
        self._file, self._rule, self._is_whole = file, rule, False
        self._out = pq.ParquetWriter(
            file,
            COLUMNS,
            compression="zstd",
            use_dictionary=["status", "fault", "stop_reason", "kinds.list.element", "labels.list.element"],
            column_encoding={RECORD: "PLAIN"},  # what `folder.frame_lines` reads without a Parquet library
            write_statistics=_WITH_STATISTICS,
            data_page_size=ONE_PAGE,
            write_page_checksum=True,
        )
        self._written: list[tuple[str, str]] = []

    def add(self, lines: Sequence[bytes], finished: Sequence[int], marks: NDArray[np.uint8]) -> None:
        """Add the lines of one frame.

        finished: the position of each in the order in which rollouts finished; marks: as `marks_of` gives them. Raises
        OSError if the disk is full, CardError for a line that is not a rollout.
        """
        batch = _batch(lines, finished, marks, self._rule)
        self._out.write_batch(batch)
        self._written.append((content_digest(lines), batch["item_id"][0].as_py()))

    def close(self) -> list[Frame]:
        """Finish the file, put it on the disk and read every record back. Returns where the frames are.

        Raises OSError if the disk is full, CardError if a record cannot be read back.
        """
        self._out.close()
        metadata = pq.read_metadata(self._file)
        frames = []
        with self._file.open("rb") as stream:
            os.fsync(stream.fileno())
            for number, (content, first) in enumerate(self._written):
                group = metadata.row_group(number)
                chunk = group.column(group.num_columns - 1)
                stream.seek(chunk.data_page_offset)
                page = stream.read(chunk.total_compressed_size)
                offset = page.find(ZSTD_MAGIC)
                digest = hashlib.sha256(page[offset:]).hexdigest()
                # a page begins with its Parquet header; the frame is the compressed data behind it
                frame_offset = chunk.data_page_offset + offset
                frames.append(Frame(frame_offset, len(page) - offset, group.num_rows, digest, content, first))
                if content_digest(frame_lines(self._file, stream, number, frames[-1])) != content:
                    raise CardError(f"{self._file}: frame {number} is not what was written; close the card again")
        self._is_whole = True
        return frames

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_whole:
            with contextlib.suppress(OSError):  # the error that ended the block says more
                self._out.close()
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)


class _TurnCells(msgspec.Struct, gc=False):
    """What a row needs of a turn."""

    stop_reason: StopReason


class _UsageCells(msgspec.Struct, gc=False):
    """What a row needs of a rollout's usage."""

    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    seconds: float = 0.0


class _RolloutCells(msgspec.Struct, gc=False):
    """What a row needs of a rollout."""

    item_id: str
    attempt: int
    status: RolloutStatus
    turns: list[_TurnCells]
    answer: str | None
    usage: _UsageCells
    fault: Fault | None = None
    retries: int = 0


class _ScoreCells(msgspec.Struct, gc=False):
    """What a row needs of a score."""

    value: float | None
    reason: str
    fault: Fault | None = None
    views: dict[str, float | None] = {}
    labels: tuple[str, ...] = ()
    extracted: str | None = None


class _Cells(msgspec.Struct, gc=False):
    """What a row needs of a `ScoredRollout`, with its names and defaults; decoded in a fourth of its time."""

    rollout: _RolloutCells
    score: _ScoreCells


_decode_cells = msgspec.json.Decoder(_Cells).decode


def _cells_of(lines: Sequence[bytes]) -> list[_Cells]:
    """One for each line. Raises CardError for a line that is not a rollout."""
    try:
        return list(map(_decode_cells, lines))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        for number, line in enumerate(lines, start=1):
            folder.decode_line(line, f"line {number} of a frame")
        raise


def _batch(
    lines: Sequence[bytes], finished: Sequence[int], marks: NDArray[np.uint8], rule: ReportingRule
) -> pa.RecordBatch:
    """The rows of some lines. Raises CardError for a line that is not a rollout.

    Arrays are built from buffers: `pa.array` of a list would load pandas, which takes longer than closing a small card.
    """
    cells = _cells_of(lines)
    rollouts, scores = [record.rollout for record in cells], [record.score for record in cells]
    usages, views = [rollout.usage for rollout in rollouts], [score.views for score in scores]
    values = np.array([score.value for score in scores], dtype=np.float64)  # None becomes NaN
    columns = [
        _texts([rollout.item_id for rollout in rollouts]),
        _integers([rollout.attempt for rollout in rollouts]),
        _texts([rollout.status for rollout in rollouts]),
        _floats(values),
        _floats(counted_values(values, marks, rule)),
        _text_lists([_KINDS_OF_MARKS[mark] for mark in marks.tolist()]),
        _texts([rollout.fault or score.fault for rollout, score in zip(rollouts, scores, strict=True)]),
        _texts([score.reason for score in scores]),
        _integers([len(rollout.turns) for rollout in rollouts]),
        _counts([usage.prompt_tokens for usage in usages]),
        _counts([usage.completion_tokens for usage in usages]),
        _floats(np.array([usage.seconds for usage in usages], dtype=np.float64)),
        _integers([rollout.retries for rollout in rollouts]),
        _texts([rollout.turns[-1].stop_reason if rollout.turns else None for rollout in rollouts]),
        _text_lists([score.labels for score in scores]),
        _views(views),
        _texts([rollout.answer for rollout in rollouts]),
        _texts([score.extracted for score in scores]),
        _integers(finished),
        _records(lines),
    ]
    return pa.record_batch(columns, schema=COLUMNS)


def _integers(values: Sequence[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.array(values, dtype=np.int64))])


def _counts(values: Sequence[int | None]) -> pa.Array:
    """None is one that is not known."""
    validity = _validity(np.array([value is not None for value in values], dtype=np.bool_))
    numbers = np.array([value or 0 for value in values], dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [validity, pa.py_buffer(numbers)])


def _floats(values: NDArray[np.float64]) -> pa.Array:
    """NaN is a missing one."""
    return pa.Array.from_buffers(pa.float64(), len(values), [_validity(~np.isnan(values)), pa.py_buffer(values)])


def _texts(values: Sequence[str | None]) -> pa.Array:
    """None is a missing one."""
    joined = "".join(filter(None, values))
    texts: Sequence[str | bytes | None] = values
    if not joined.isascii():  # characters and bytes are not the same number
        texts = [value and value.encode() for value in values]
    validity = _validity(np.array([value is not None for value in values], dtype=bool)) if None in values else None
    lengths = [len(text) if text else 0 for text in texts]
    buffers = [validity, _offsets(lengths), pa.py_buffer(joined.encode())]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _records(lines: Sequence[bytes]) -> pa.Array:
    buffers = [None, _offsets(list(map(len, lines))), pa.py_buffer(b"".join(lines))]
    return pa.Array.from_buffers(pa.string(), len(lines), buffers)


def _text_lists(values: Sequence[Sequence[str]]) -> pa.Array:
    buffers = [None, _offsets(list(map(len, values)))]
    child = _texts(list(chain.from_iterable(values)))
    return pa.Array.from_buffers(pa.list_(pa.string()), len(values), buffers, children=[child])


def _views(values: Sequence[Mapping[str, float | None]]) -> pa.Array:
    kind = pa.map_(pa.string(), pa.float64())
    numbers = np.array(list(chain.from_iterable(views.values() for views in values)), dtype=np.float64)
    parts = [_texts(list(chain.from_iterable(values))), _floats(numbers)]
    child = pa.StructArray.from_arrays(parts, fields=[kind.key_field, kind.item_field])
    buffers = [None, _offsets(list(map(len, values)))]
    return pa.Array.from_buffers(kind, len(values), buffers, children=[child])


def _validity(is_valid: NDArray[np.bool_]) -> pa.Buffer | None:
    """A bit for each value; None: all are valid."""
    return None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))


def _offsets(lengths: Sequence[int]) -> pa.Buffer:
    """Where each value begins, and the end."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(np.array(lengths, dtype=np.int32), out=offsets[1:])
    return pa.py_buffer(offsets)


def make_table(path: Path, card: CardFile, file: Path) -> None:
    """Write the table of a closed card of an older format to `file`, whole or not at all.

    Its rows are in the order of the card. Raises CardError for a damaged line.
    """
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".making-") as draft:
        aside = Path(draft) / file.name
        with TableWriter(aside, card.header.reporting) as table:
            _copy_lines(path, card, table)
            table.close()
        aside.replace(file)


def write_anew(path: Path, target: Path) -> None:
    """Write a closed card again at `target`, a new folder, from its records and `card.json`; the old one stays.

    Nothing else of the old table is parsed. Raises CardError for a damaged card or one of an older format, and if the
    disk is full.
    """
    card = folder.load_card(path)
    if folder.TABLE not in card.parts:
        raise CardError(f"{path}: is a card of an older format; evaluate again")
    target.mkdir()
    table_file = target / folder.TABLE
    try:
        with TableWriter(table_file, card.header.reporting) as table:
            _copy_lines(path, card, table)
            frames = table.close()
        parts = {folder.TABLE: folder.file_digest(table_file)}
    except OSError as error:
        raise folder.disk_error(table_file, 0, error) from error
    card = replace(card, frames=frames, parts=parts)
    if folder.header_digests(path) == (card.header_digest, card.protocol_digest):
        # It is written with the fields of this version, which a card of an earlier one lacks. A header that was changed
        # keeps its old digests, and so stays told.
        card = replace(card, header_digest=digest_of(card.header), protocol_digest=card.header.protocol.digest)
    folder.store_card(target, card)


def _copy_lines(path: Path, card: CardFile, table: TableWriter) -> None:
    """Add the lines of a closed card, in its order. Raises CardError for a damaged line."""
    for first, lines in closed_lines(path, card):
        marks = [marks_of(record.rollout) for record in decode_lines(path, lines, first)]
        table.add(lines, range(first, first + len(lines)), np.array(marks, dtype=np.uint8))


class ColumnCheck:
    """Compares the columns of a closed card with what its records give, frame by frame."""

    def __init__(self, path: Path, card: CardFile) -> None:
        self.problems: list[str] = []
        """One at most: what follows the first would say the same."""
        self._file = path / folder.TABLE
        self._rule = card.header.reporting
        try:
            self._table = pq.ParquetFile(self._file, page_checksum_verification=True)
            groups = map(self._table.metadata.row_group, range(self._table.num_row_groups))
            sizes = [group.num_rows for group in groups]
            if self._table.schema_arrow != COLUMNS:
                self.problems.append(
                    f"{self._file}: has other columns than this version writes; restore the file from a copy"
                )
            elif sizes != [frame.n_rollouts for frame in card.frames]:
                self.problems.append(
                    f"{self._file}: has other row groups than {folder.CARD_JSON} names; restore the file from a copy"
                )
        except (OSError, pa.ArrowException) as error:
            self._report_unreadable(error)

    def add(self, number: int, first: int, lines: Sequence[bytes], marks: NDArray[np.uint8]) -> None:
        """Check a frame, whose lines are sound. first: rollouts before it; marks: as `marks_of` gives them."""
        if self.problems:
            return
        try:
            stored = self._table.read_row_group(number)
        except (OSError, pa.ArrowException) as error:
            self._report_unreadable(error)
            return
        expected = _batch(lines, stored["finished"].to_pylist(), marks, self._rule)
        if not stored.equals(pa.Table.from_batches([expected])):
            row = first + _first_difference(stored, expected) + 1
            self.problems.append(
                f"{self._file}: the row of rollout {row} is not what its record gives; restore the file"
            )

    def _report_unreadable(self, error: Exception) -> None:
        self.problems.append(f"{self._file}: cannot be read ({error}); restore it from a copy")


def tally_of_columns(path: Path, card: CardFile) -> Tally:
    """The tally of a closed card, from the columns that a reporting rule looks at: a million rollouts in seconds.

    Raises CardError for a file that is not the one that the card names.
    """
    file = folder.require_part(path, card, folder.TABLE)
    names = ["item_id", "attempt", "value", "kinds", "fault", "reason", "seconds"]
    sums = ["n_turns", "retries", "prompt_tokens", "completion_tokens"]
    tally = Tally(card.header.reporting)
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as table:
            if table.schema_arrow != COLUMNS:
                raise CardError(f"{file}: has other columns than this version writes; restore the file from a copy")
            for batch in table.iter_batches(1 << 16, columns=names + sums, use_threads=False):
                faults = np.flatnonzero(batch["fault"].is_valid())
                tally.add_columns(
                    batch["item_id"].to_pylist(),
                    batch["attempt"].to_numpy(),
                    batch["value"].to_numpy(zero_copy_only=False),
                    _marks(batch["kinds"]),
                    batch["seconds"].to_numpy(),
                    {int(row): (Fault(batch["fault"][row].as_py()), batch["reason"][row].as_py()) for row in faults},
                    {name: None if batch[name].null_count else int(batch[name].to_numpy().sum()) for name in sums},
                )
    except (OSError, ValueError, pa.ArrowException) as error:
        raise CardError(f"{file}: cannot be read ({error}); restore it from a copy") from error
    if tally.n_rollouts != sum(frame.n_rollouts for frame in card.frames):
        raise CardError(f"{file}: has other rows than {folder.CARD_JSON} names; restore the file from a copy")
    return tally


def _marks(kinds: pa.ListArray) -> NDArray[np.uint8]:
    """The kinds of each row as bits, as `marks_of` gives them."""
    marks = np.zeros(len(kinds), dtype=np.uint8)
    rows = np.repeat(np.arange(len(kinds)), np.diff(kinds.offsets.to_numpy()))
    for row, kind in zip(rows.tolist(), kinds.flatten().to_pylist(), strict=True):
        marks[row] |= 1 << KINDS.index(kind)
    return marks


def _first_difference(stored: pa.Table, expected: pa.RecordBatch) -> int:
    pairs = zip(stored.to_pylist(), expected.to_pylist(), strict=True)
    return next(row for row, (stored_row, expected_row) in enumerate(pairs) if stored_row != expected_row)
