"""SQL over the rollouts of many cards.

    rollouts    a row for each rollout: the columns of `cards.tables`, and card, checkpoint, benchmark, split, line
                (its place in the card, from 0, as `reader.read_page` counts)
    cards       a row for each finished card: its numbers, and what its header says

Promises: read-only, and nothing but those two tables can be read: one SELECT statement, no file, extension,
environment variable or setting within reach of it, whoever wrote it; the first page does not compute the others where
the statement allows it; memory is bounded. Only closed cards are there; the others are named in `skipped`.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import numpy as np
from numpy.typing import NDArray

from agent2.cards import folder
from agent2.cards.card import CardFile
from agent2.cards.tables import table_of
from agent2.errors import CardError, ConfigError

MEMORY = "600MB"
ROWS_AT_ONCE = 500
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
    "temp_directory": "",
    "memory_limit": MEMORY,
}

CARD_COLUMNS = {
    "card": "varchar",  # its folder
    "checkpoint": "varchar",
    "checkpoint_digest": "varchar",
    "benchmark": "varchar",
    "split": "varchar",
    "protocol_digest": "varchar",
    "seed": "hugeint",
    "value": "double",
    "low": "double",
    "high": "double",
    "n_items": "bigint",
    "n_rollouts": "bigint",
    "n_missing": "bigint",
    "n_turns": "bigint",
    "n_retries": "bigint",
    "prompt_tokens": "bigint",
    "completion_tokens": "bigint",
    "seconds": "double",  # added up over rollouts
    "wall_clock_s": "double",
    "created_at": "double",  # Unix seconds
}


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a result."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    has_more: bool
    """Whether rows follow."""


class CardQueries:
    """Closed cards below some folders, ready for SQL; use it in a `with` block."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Look for cards at and below the folders; tables of cards of older formats are made on first use.

        Raises ConfigError for a folder that is none or holds no finished card, CardError for a damaged card.
        """
        self.skipped: list[Path] = []
        """Cards that are not finished."""
        found = self._find(folders)
        files = [str(table_of(path).resolve()) for path, _ in found]
        self._connection = duckdb.connect(":memory:", config=SETTINGS)
        self._register(found, files)
        self._lock(files)

    def _find(self, folders: Sequence[Path]) -> list[tuple[Path, CardFile]]:
        found: dict[Path, tuple[Path, CardFile]] = {}
        for top in folders:
            if not top.is_dir():
                raise ConfigError(f"{top}: no such folder; pass a card, an evaluation, a trial, or a folder above them")
            for path in folder.cards_below(top):
                card = folder.load_card(path)
                if card.state == "open":
                    self.skipped.append(path)
                elif not _is_utf8(path.resolve()):
                    raise CardError(f"{path}: its path is not UTF-8, which the database needs; rename the folder")
                else:
                    found.setdefault(path.resolve(), (path, card))
        if not found:
            where = ", ".join(map(str, folders))
            raise ConfigError(f"{where}: no finished card there ({len(self.skipped)} unfinished); evaluate first")
        return list(found.values())

    def _register(self, found: Sequence[tuple[Path, CardFile]], files: Sequence[str]) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in CARD_COLUMNS.items())
        self._connection.execute(f"create table all_cards ({columns}, table_file varchar)")
        rows = [[*_card_row(path, card), file] for (path, card), file in zip(found, files, strict=True)]
        marks = f"({', '.join('?' * (len(CARD_COLUMNS) + 1))})"
        for start in range(0, len(rows), ROWS_AT_ONCE):  # one statement for each row takes ten times as long
            part = rows[start : start + ROWS_AT_ONCE]
            values = [value for row in part for value in row]
            self._connection.execute(f"insert into all_cards values {', '.join([marks] * len(part))}", values)
        names = ", ".join(_literal(_escaped(file)) for file in sorted(set(files)))
        self._connection.execute(
            "create view rollouts as select c.card, c.checkpoint, c.benchmark, c.split, "
            "f.file_row_number as line, f.* exclude (filename, file_row_number) "
            f"from read_parquet([{names}], filename = true, file_row_number = true) f "
            "join all_cards c on f.filename = c.table_file"
        )
        self._connection.execute("create view cards as select * exclude (table_file) from all_cards")

    def _lock(self, files: Sequence[str]) -> None:
        """From here on an untrusted statement can do no harm."""
        names = ", ".join(map(_literal, sorted({*files, *map(_escaped, files)})))
        self._connection.execute(f"set allowed_paths = [{names}]")
        self._connection.execute("set enable_external_access = false")
        self._connection.execute("set lock_configuration = true")

    def page(self, sql: str, start: int = 0, n: int = 20, parameters: Sequence[str | int | float] = ()) -> Page:
        """Rows start to start + n of one SELECT statement; from several threads at once too.

        parameters: values for the `?` of the statement. The order between pages is that of the statement: give it an
        ORDER BY where that matters. Raises ConfigError for anything but one SELECT, and for what the database says
        against it.
        """
        if start < 0 or n < 0:
            raise ConfigError(f"start {start}, n {n}: neither may be negative")
        with self._relation(sql, parameters) as relation:
            rows = relation.limit(n + 1, offset=start).fetchall()
            return Page(tuple(relation.columns), tuple(rows[:n]), len(rows) > n)

    def lines(self, condition: str, parameters: Sequence[str | int | float] = ()) -> NDArray[np.int64]:
        """The lines, ascending, of all rollouts that meet a condition of SQL. Raises as `page`."""
        with self._relation(f"select line from rollouts where {condition}", parameters) as relation:
            return np.sort(np.asarray(relation.fetchnumpy()["line"], dtype=np.int64))

    @contextmanager
    def _relation(self, sql: str, parameters: Sequence[str | int | float]) -> Iterator[duckdb.DuckDBPyRelation]:
        """What one SELECT statement gives; it is computed when it is fetched."""
        try:
            statements = duckdb.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise ConfigError(f"{sql!r}: one SELECT statement is needed, over the tables rollouts and cards")
            yield self._connection.cursor().sql(sql, params=list(parameters) or None)
        except duckdb.Error as error:
            raise ConfigError(f"{sql!r}: {' '.join(str(error).split())}") from error

    def close(self) -> None:
        """Let go of the files."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _card_row(path: Path, card: CardFile) -> list[Any]:
    """In the order of CARD_COLUMNS."""
    header, protocol = card.header, card.header.protocol
    if card.summary is None:
        raise CardError(f"{path}: is closed and has no summary; restore card.json from a copy or evaluate again")
    told = {
        "card": str(path),
        "checkpoint": header.checkpoint_name,
        "checkpoint_digest": header.checkpoint_digest,
        "benchmark": protocol.benchmark,
        "split": protocol.split.value,
        "protocol_digest": card.protocol_digest,
        "seed": header.seed,
        "wall_clock_s": card.wall_clock_s,
        "created_at": header.created_at,
    }
    return [told[name] if name in told else getattr(card.summary, name) for name in CARD_COLUMNS]


def _escaped(file: str) -> str:
    """A path that the database takes for no pattern."""
    return re.sub(r"[\[*?]", r"[\g<0>]", file)


def _is_utf8(path: Path) -> bool:
    """Whether a path can be written as UTF-8; on Linux any bytes can be a name."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
