"""SQL over the rollouts of many cards.

    rollouts    a row for each rollout: the columns of `cards.tables`, and card, checkpoint, benchmark, split, line
                (its position in the card, from 0, as `reader.read_page` counts)
    cards       a row for each finished card: its numbers and the fields of its header

Promises: read-only, and safe for untrusted SQL: one SELECT statement over those two tables, which reaches no file,
extension, environment variable or setting; where the statement allows it, the first page does not compute later ones;
memory is bounded. Only closed cards are included; unfinished ones are listed in `skipped`.
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

from agent2 import installation
from agent2.cards import folder
from agent2.cards.card import FORMAT, CardFile
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

        Raises ConfigError for a path that is not a folder or holds no finished card, CardError for a damaged card.
        """
        self.skipped: list[Path] = []
        """Cards that are not finished."""
        cards = self._find(folders)
        files = [str(table_of(path).resolve()) for path, _ in cards]
        self._connection = duckdb.connect(":memory:", config=SETTINGS)
        # else a footer is read for the view, for each statement and for its result; cannot be set while connecting
        self._connection.execute("set parquet_metadata_cache = true")
        self._register(cards, files)
        self._lock(files)

    def _find(self, folders: Sequence[Path]) -> list[tuple[Path, CardFile]]:
        cards: dict[Path, tuple[Path, CardFile]] = {}
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
                    cards.setdefault(path.resolve(), (path, card))
        if not cards:
            where = ", ".join(map(str, folders))
            raise ConfigError(f"{where}: no finished card there ({len(self.skipped)} unfinished); evaluate first")
        return list(cards.values())

    def _register(self, cards: Sequence[tuple[Path, CardFile]], files: Sequence[str]) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in CARD_COLUMNS.items())
        self._connection.execute(f"create table all_cards ({columns}, table_file varchar)")
        rows = [[*_card_row(path, card), file] for (path, card), file in zip(cards, files, strict=True)]
        marks = f"({', '.join('?' * (len(CARD_COLUMNS) + 1))})"
        for start in range(0, len(rows), ROWS_AT_ONCE):  # one statement for each row takes ten times as long
            batch = rows[start : start + ROWS_AT_ONCE]
            values = [value for row in batch for value in row]
            self._connection.execute(f"insert into all_cards values {', '.join([marks] * len(batch))}", values)
        names = ", ".join(_literal(_escaped(file)) for file in sorted(set(files)))
        self._connection.execute(
            "create view rollouts as select c.card, c.checkpoint, c.benchmark, c.split, "
            "f.file_row_number as line, f.* exclude (filename, file_row_number) "
            f"from read_parquet([{names}], filename = true, file_row_number = true) f "
            "join all_cards c on f.filename = c.table_file"
        )
        self._connection.execute("create view cards as select * exclude (table_file) from all_cards")

    def _lock(self, files: Sequence[str]) -> None:
        """Leave nothing but the tables of the cards within reach of a statement, and no way to undo that."""
        names = ", ".join(map(_literal, sorted({*files, *map(_escaped, files)})))
        # the order matters: allowed_paths cannot be set once external access is off, and the lock must come last
        self._connection.execute(f"set allowed_paths = [{names}]")
        self._connection.execute("set enable_external_access = false")
        self._connection.execute("set lock_configuration = true")

    def page(self, sql: str, start: int = 0, n: int = 20, parameters: Sequence[str | int | float] = ()) -> Page:
        """Rows start to start + n of one SELECT statement; safe to call from several threads.

        parameters: values for the `?` of the statement. Pages follow the order of the statement: give it an ORDER BY
        where that matters. Raises ConfigError for anything but one SELECT, and with the database's message for a
        statement that it rejects.
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
        """The result of one SELECT statement; it is computed when it is fetched."""
        try:
            cursor = self._connection.cursor()
            statements = cursor.extract_statements(sql)  # `duckdb.extract_statements` would start a second database
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise ConfigError(f"{sql!r}: one SELECT statement is needed, over the tables rollouts and cards")
            yield cursor.sql(sql, params=list(parameters) or None)
        except duckdb.Error as error:
            raise ConfigError(f"{sql!r}: {' '.join(str(error).split())}") from error

    def close(self) -> None:
        """Close the database and its files."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def table_of(path: Path) -> Path:
    """The table of a closed card: its own, or for a card of an older format the cached one, written on first use.

    Raises CardError for an open or damaged card and for a table that is not the one that the card names.
    """
    card = folder.load_card(path)
    if card.state == "open":
        raise CardError(f"{path}: the card is not finished; resume its evaluation, then query it")
    if folder.TABLE in card.parts:
        return folder.require_part(path, card, folder.TABLE)
    key = folder.file_digest(path / folder.CARD_JSON)
    file = installation.facts_dir() / f"{key[:32]}-v{FORMAT}.parquet"
    if not file.is_file():
        from agent2.cards.tables import make_table  # loads pyarrow, which queries of current cards do without

        make_table(path, card, file)
    return file


def _card_row(path: Path, card: CardFile) -> list[Any]:
    """The values of a card in the order of CARD_COLUMNS."""
    header, protocol = card.header, card.header.protocol
    if card.summary is None:
        raise CardError(f"{path}: is closed and has no summary; restore card.json from a copy or evaluate again")
    score = card.summary.score
    values = {
        "card": str(path),
        "checkpoint": header.checkpoint_name,
        "checkpoint_digest": header.checkpoint_digest,
        "benchmark": protocol.benchmark,
        "split": protocol.split.value,
        "protocol_digest": card.protocol_digest,
        "seed": header.seed,
        "value": None if score is None else score.value,
        "low": None if score is None else score.low,
        "high": None if score is None else score.high,
        "wall_clock_s": card.wall_clock_s,
        "created_at": header.created_at,
    }
    return [values[name] if name in values else getattr(card.summary, name) for name in CARD_COLUMNS]


def _escaped(file: str) -> str:
    """A path in which the database sees no glob pattern."""
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
