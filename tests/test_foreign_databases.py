"""Databases of others: tables are read, endless views and statements are not."""

import sqlite3
import time
from contextlib import closing

import pytest

from agent2.errors import ConfigError
from agent2.foreign_databases import foreign_database, require_table

ENDLESS = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT n AS id FROM numbers"


def made(path, *statements):
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def test_a_table_is_read_and_nothing_can_be_written(tmp_path):
    path = made(tmp_path / "a?b#c.db", "CREATE TABLE metrics (id)", "INSERT INTO metrics VALUES (3)")
    with closing(foreign_database(path)) as connection:
        require_table(connection, "metrics", path)
        assert connection.execute("SELECT id FROM metrics").fetchall() == [(3,)]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM metrics")


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (f"CREATE VIEW metrics AS {ENDLESS}", "'metrics' is a view, a table is needed"),
        ("CREATE VIRTUAL TABLE metrics USING fts5(text)", "'metrics' is a virtual table, a table is needed"),
        ("CREATE TABLE others (id)", "has no table 'metrics'"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, statement, problem):
    path = made(tmp_path / "a.db", statement)
    with closing(foreign_database(path)) as connection, pytest.raises(ConfigError, match=problem):
        require_table(connection, "metrics", path)


def test_an_endless_statement_ends_with_an_error(tmp_path):
    path = made(tmp_path / "a.db", f"CREATE VIEW metrics AS {ENDLESS}")
    began = time.monotonic()
    with closing(foreign_database(path, max_s=0.1)) as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("SELECT max(id) FROM metrics").fetchall()
    assert time.monotonic() - began < 300
