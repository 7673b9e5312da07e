"""Export of any card, open ones included, to a file that other programs read.

Parquet with prompt and turns as nested columns, JSON lines or CSV. Nothing of a record is left out (final states are
JSON text, since every benchmark has its own shape; in CSV so is every list, and a text that a spreadsheet would take
for a formula has an apostrophe before it); an existing file is not overwritten, and a file is there whole or not at
all.
"""

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from agent2.cards.aggregate import counted_value
from agent2.cards.reader import iter_rollouts, read_header
from agent2.errors import ConfigError
from agent2.records import ScoredRollout, canonical_json
from agent2.texts import as_csv_cell

BATCH_ROWS = 2048
_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_TURN = pa.struct(
    [
        ("thought", pa.string()),
        ("action", pa.string()),
        ("observation", pa.string()),
        ("stop_reason", pa.string()),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
    ]
)
EXPORTED = pa.schema(
    [
        ("item_id", pa.string()),
        ("attempt", pa.int64()),
        ("seed", pa.uint64()),
        ("status", pa.string()),
        ("prompt", pa.list_(_MESSAGE)),
        ("turns", pa.list_(_TURN)),
        ("answer", pa.string()),
        ("state", pa.string()),  # JSON
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("seconds", pa.float64()),
        ("fault", pa.string()),
        ("fault_reason", pa.string()),
        ("retries", pa.int64()),
        ("score", pa.float64()),  # NULL: missing
        ("counted", pa.float64()),  # under the card's reporting rule
        ("score_reason", pa.string()),
        ("score_fault", pa.string()),
        ("views", pa.map_(pa.string(), pa.float64())),
        ("labels", pa.list_(pa.string())),
        ("extracted", pa.string()),  # the final answer as the scorer read it
    ]
)


def export_rollouts(card: Path, out: Path) -> int:
    """Write every rollout of a card, open ones included, to `out`; returns how many.

    The suffix of `out` says how: .parquet, .jsonl or .csv. Raises ConfigError for another one and if `out` exists,
    CardError for a damaged card, OSError if the disk is full.
    """
    kind = out.suffix.lower()
    if kind not in (".parquet", ".jsonl", ".csv"):
        raise ConfigError(f"{out}: the suffix {kind!r} names no format; write to a .parquet, .jsonl or .csv file")
    if out.exists():
        raise ConfigError(f"{out}: already exists; choose another name or delete it")
    header = read_header(card)
    schema = EXPORTED.with_metadata({b"agent2.header": canonical_json(header)})
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.draft")
    n_rows = 0
    try:
        with _writer_of(draft, kind, schema) as write:
            for rows in _batches(iter_rollouts(card)):
                write([_exported(record) | {"counted": counted_value(record, header.reporting)} for record in rows])
                n_rows += len(rows)
        draft.rename(out)
    finally:
        draft.unlink(missing_ok=True)
    return n_rows


@contextmanager
def _writer_of(path: Path, kind: str, schema: pa.Schema) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    """A function that appends rows to a new file."""
    if kind == ".parquet":
        with pq.ParquetWriter(path, schema, compression="zstd") as parquet:
            yield lambda rows: parquet.write_table(pa.Table.from_pylist(rows, schema=schema))
        return
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        if kind == ".jsonl":
            yield lambda rows: file.writelines(json.dumps(_json_row(row), ensure_ascii=False) + "\n" for row in rows)
            return
        table = csv.DictWriter(file, fieldnames=schema.names)
        table.writeheader()
        yield lambda rows: table.writerows(
            {name: _csv_cell(cell) for name, cell in row.items()} for row in map(_json_row, rows)
        )


def _json_row(row: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it: the map of views as an object."""
    return row | {"views": dict(row["views"])}


def _csv_cell(cell: Any) -> Any:
    return json.dumps(cell, ensure_ascii=False) if isinstance(cell, list | dict) else as_csv_cell(cell)


def _batches(records: Iterator[ScoredRollout]) -> Iterator[list[ScoredRollout]]:
    rows: list[ScoredRollout] = []
    for record in records:
        rows.append(record)
        if len(rows) >= BATCH_ROWS:
            yield rows
            rows = []
    if rows:
        yield rows


def _exported(record: ScoredRollout) -> dict[str, Any]:
    rollout, score = record.rollout, record.score
    plain: dict[str, Any] = msgspec.to_builtins(rollout)
    plain["turns"] = [{**turn, "thought": turn.get("thought", {}).get("text")} for turn in plain["turns"]]
    return {
        **{name: plain[name] for name in ("item_id", "attempt", "seed", "status", "prompt", "turns", "answer")},
        "state": canonical_json(rollout.state).decode(),
        **plain["usage"],
        "fault": plain["fault"],
        "fault_reason": rollout.reason,
        "retries": rollout.retries,
        "score": score.value,
        "score_reason": score.reason,
        "score_fault": None if score.fault is None else score.fault.value,
        "views": list(score.views.items()),
        "labels": list(score.labels),
        "extracted": score.extracted,
    }
