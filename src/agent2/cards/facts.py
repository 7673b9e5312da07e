"""A table with one row a rollout, `facts.parquet`: what queries ask for, without the text of the turns.

Derived from the lines of a closed card and nothing else: a large card brings it along, named with its digest in
`card.json`; that of a smaller one is made when first asked for and kept in the installation's cache. A card without
it is complete. Promises: rows are in the order of the lines; a missing score is NULL, never 0.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agent2.cards import folder
from agent2.cards.aggregate import counted_value, kinds_of, marks_of
from agent2.cards.card import CardFile, ReportingRule
from agent2.cards.folder import FACTS
from agent2.cards.frames import closed_lines, decode_lines
from agent2.records import ScoredRollout

BATCH_ROWS = 1 << 15

COLUMNS = pa.schema(
    [
        ("line", pa.int64()),  # from 0
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
    ]
)


class FactsWriter:
    """Writes the table of one card, batch by batch; memory does not grow with the rollouts."""

    def __init__(self, path: Path, rule: ReportingRule, file: Path | None = None) -> None:
        """Begin `facts.parquet` in the card's folder `path`, or another file. Raises OSError if it cannot be made."""
        self._file = file or path / FACTS
        self._aside = self._file.with_name(self._file.name + ".tmp")
        self._batches = _Batches(path, rule)
        self._writer = pq.ParquetWriter(self._aside, COLUMNS, compression="zstd")

    def add_lines(self, lines: Sequence[bytes]) -> None:
        """Take the next lines. Raises CardError for one that is not a rollout, OSError if the disk is full."""
        for batch in self._batches.add(lines):
            self._writer.write_batch(batch)

    def close(self) -> dict[str, str]:
        """Finish the file; returns its digest by name. Raises OSError if the disk is full."""
        for batch in self._batches.rest():
            self._writer.write_batch(batch)
        self._writer.close()
        digest = folder.file_digest(self._aside)
        with self._aside.open("rb") as stream:
            os.fsync(stream.fileno())
        self._aside.replace(self._file)
        return {FACTS: digest}

    def abandon(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(OSError):  # it is being given up for an error that says more
            self._writer.close()
        self._aside.unlink(missing_ok=True)


class _Batches:
    """Collects lines into batches of rows."""

    def __init__(self, path: Path, rule: ReportingRule) -> None:
        self._path, self._rule = path, rule
        self._n_lines = 0
        self._rows: list[tuple[Any, ...]] = []

    def add(self, lines: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        for record in decode_lines(self._path, lines, self._n_lines):
            self._rows.append(_row(self._n_lines, record, self._rule))
            self._n_lines += 1
            if len(self._rows) >= BATCH_ROWS:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        if self._rows:
            columns = zip(COLUMNS, zip(*self._rows, strict=True), strict=True)
            yield pa.record_batch([pa.array(values, type=field.type) for field, values in columns], schema=COLUMNS)
            self._rows = []


def _row(line: int, record: ScoredRollout, rule: ReportingRule) -> tuple[Any, ...]:
    rollout, score, usage = record.rollout, record.score, record.rollout.usage
    fault = rollout.fault or score.fault
    return (
        line,
        rollout.item_id,
        rollout.attempt,
        rollout.status.value,
        score.value,
        counted_value(record, rule),
        kinds_of(marks_of(rollout)),
        None if fault is None else fault.value,
        score.reason,
        len(rollout.turns),
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.seconds,
        rollout.retries,
        rollout.turns[-1].stop_reason.value if rollout.turns else None,
        score.labels,
        list(score.views.items()),
        rollout.answer,
    )


def make_facts(path: Path, card: CardFile, file: Path) -> None:
    """Write the table of a closed card to `file`, whole or not at all. Raises CardError for a damaged line."""
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".making-") as draft:
        writer = FactsWriter(path, card.header.reporting, Path(draft) / file.name)
        try:
            for _, lines in closed_lines(path, card):
                writer.add_lines(lines)
            writer.close()
        finally:
            writer.abandon()
        (Path(draft) / file.name).replace(file)


def facts_problems(path: Path, card: CardFile) -> list[str]:
    """What is wrong with the table that a card brings along: digest, or a row that is not what its line gives."""
    file = path / FACTS
    try:
        if folder.file_digest(file) != card.parts[FACTS]:
            return [f"{file}: does not match its digest in {folder.CARD_JSON}; restore the file from a copy"]
        return _row_problems(path, card, file)
    except (OSError, pa.ArrowInvalid) as error:
        return [f"{file}: cannot be read ({error}); restore it from a copy"]


def _row_problems(path: Path, card: CardFile, file: Path) -> list[str]:
    batches = _Batches(path, card.header.reporting)
    with pq.ParquetFile(file) as stored:
        if stored.schema_arrow != COLUMNS:
            return [f"{file}: has other columns than this version writes; its rows were not checked"]
        place = 0
        for expected in _all_batches(batches, path, card):
            found = stored.read_row_group(place) if place < stored.num_row_groups else None
            if found is None or not found.equals(pa.Table.from_batches([expected])):
                return [f"{file}: {_first_difference(found, expected)}; restore the file from a copy"]
            place += 1
        if place < stored.num_row_groups:
            return [f"{file}: has rows that no line of the card gives; restore the file from a copy"]
    return []


def _all_batches(batches: _Batches, path: Path, card: CardFile) -> Iterator[pa.RecordBatch]:
    for _, lines in closed_lines(path, card):
        yield from batches.add(lines)
    yield from batches.rest()


def _first_difference(found: pa.Table | None, expected: pa.RecordBatch) -> str:
    stored = [] if found is None else found.to_pylist()
    for place, row in enumerate(expected.to_pylist()):
        if place >= len(stored) or stored[place] != row:
            return f"the row of line {row['line'] + 1} is not what the line gives"
    return "has more rows than the card has lines"
