"""SQLite files that somebody else wrote, opened read-only and with limits.

A view runs whatever query its author wrote, and a recursive one never ends; triggers, functions and the schema itself
can be hostile too. So: tables only (`require_table`), no statement that takes longer than `MAX_STATEMENT_S`, no value
longer than `MAX_VALUE_BYTES`, and SQLite's own defences for untrusted schemas.
"""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from agent2.errors import ConfigError
from agent2.foreign_files import open_regular

MAX_STATEMENT_S = 60.0
MAX_VALUE_BYTES = 16 << 20
_STEPS = 100_000
"""Instructions of SQLite's machine between two looks at the clock."""


def foreign_database(
    path: Path, max_s: float = MAX_STATEMENT_S, clock: Callable[[], float] = time.monotonic, *, is_closed: bool = False
) -> sqlite3.Connection:
    """A connection that reads; all its statements together may take `max_s`, then they end with sqlite3.Error.

    is_closed: nobody has it open, so it is read without files beside it, also on a read-only disk.
    Raises OSError for anything but a regular file, sqlite3.Error for a file that is no database.
    """
    open_regular(path, follow=True).close()  # SQLite would wait at a named pipe
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' * is_closed}", uri=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    ends_at = clock() + max_s
    connection.set_progress_handler(lambda: clock() > ends_at, _STEPS)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def require_tables_alone(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ConfigError if a database has anything but ordinary tables and indexes."""
    others = "type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'"
    if (row := connection.execute(f"SELECT type, name FROM sqlite_master WHERE {others}").fetchone()) is not None:
        raise ConfigError(f"{path}: {row[1]!r} is a {row[0]}, tables are needed; restore it from a copy")


def require_table(connection: sqlite3.Connection, name: str, path: Path) -> None:
    """Raise ConfigError unless `name` is an ordinary table, neither a view nor a virtual one."""
    row = connection.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise ConfigError(f"{path}: has no table {name!r}; pass the database as the tool wrote it")
    kind = "virtual table" if str(row[1]).upper().startswith("CREATE VIRTUAL") else str(row[0])
    if kind != "table":
        raise ConfigError(f"{path}: {name!r} is a {kind}, a table is needed; pass the database as the tool wrote it")
