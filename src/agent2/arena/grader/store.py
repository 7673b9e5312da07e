"""What was submitted and what it scored: one SQLite file, written by the grader only.

Every method is one transaction that is on disk when it returns (WAL, synchronous=FULL), so a harness killed
at any moment neither loses an accepted submission nor gives it two scores: a submission is scored by one
statement that demands that it has no verdict yet, and a unique key enforces it.

Safe to call from several threads. Does NOT check who calls: the workspace has no way to this file.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent2.arena.evidence import SubmissionRecord, SubmissionState
from agent2.errors import Agent2Error, ConfigError, Fault
from agent2.foreign_databases import foreign_database, require_tables_alone
from agent2.foreign_files import open_regular
from agent2.records import Split
from agent2.stats.estimates import Estimate
from agent2.stats.stored import read_estimate

SCHEMA_VERSION = 1
SCHEMA = f"""
CREATE TABLE submissions (
    number         INTEGER PRIMARY KEY CHECK (number >= 1),
    received_at    REAL NOT NULL,
    model_path     TEXT NOT NULL,
    note           TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ({", ".join(f"'{state}'" for state in SubmissionState)})),
    weights_digest TEXT,
    content_digest TEXT,
    is_base_copy   INTEGER NOT NULL DEFAULT 0 CHECK (is_base_copy IN (0, 1)),
    revision       TEXT,
    remarks        TEXT NOT NULL DEFAULT '[]',
    fault          TEXT,
    reason         TEXT NOT NULL DEFAULT '',
    finished_at    REAL
);
CREATE TABLE scores (
    submission INTEGER NOT NULL REFERENCES submissions (number),
    split      TEXT NOT NULL,
    value      REAL NOT NULL CHECK (value BETWEEN 0 AND 1),
    low        REAL NOT NULL,
    high       REAL NOT NULL,
    n_items    INTEGER NOT NULL,
    n_missing  INTEGER NOT NULL,
    card       TEXT NOT NULL,
    method     TEXT,
    UNIQUE (submission, split)
);
PRAGMA user_version = {SCHEMA_VERSION};
"""
TIME_SPENT = "CREATE TABLE IF NOT EXISTS grading_time (submission INTEGER NOT NULL, seconds REAL NOT NULL)"
KEYS = (
    "CREATE TABLE IF NOT EXISTS submit_keys "
    "(key TEXT PRIMARY KEY, submission INTEGER NOT NULL REFERENCES submissions (number), is_closed INTEGER NOT NULL)"
)
JUDGEMENTS = (
    "CREATE TABLE IF NOT EXISTS judgements (number INTEGER PRIMARY KEY, at REAL NOT NULL, item TEXT NOT NULL, "
    "reply TEXT NOT NULL, value REAL NOT NULL CHECK (value BETWEEN 0 AND 1), reason TEXT NOT NULL, "
    "UNIQUE (item, reply))"
)
"""Added, as `TIME_SPENT`, to files of earlier versions, which can be read without them."""
METHOD = "ALTER TABLE scores ADD COLUMN method TEXT"
"""Makes the scores of a file of an earlier version, which have no method, those of this one."""
SCORE = ("value", "low", "high", "n_items", "n_missing", "method")
"""Columns of an estimate."""
_SELECT = "SELECT s.*, c.* FROM submissions s LEFT JOIN scores c ON c.submission = s.number AND c.split = ? "


class StoreError(Agent2Error):
    """The grader's file cannot be used, or was asked to record something twice."""

    fault = Fault.INFRASTRUCTURE


@dataclass(frozen=True, slots=True)
class Arrival:
    """What is recorded of one attempt to submit, in one statement: accepted or rejected."""

    number: int
    received_at: float
    model_path: str
    note: str
    revision: str | None
    remarks: Sequence[str] = ()
    """What the agent should know, one sentence each."""
    weights_digest: str | None = None
    content_digest: str | None = None
    is_base_copy: bool = False
    fault: Fault | None = None
    """Set exactly when it is rejected."""
    reason: str = ""
    """Why it is rejected."""
    is_closed: bool = False
    """Rejected because the deadline or the budget is over."""
    key: str = ""
    """The idempotency key that it was sent with; empty: none."""


@dataclass(frozen=True, slots=True)
class ChargedVerdict:
    """One verdict of the judge that was charged to the agent."""

    item: str
    reply: str
    value: float
    """0 to 1."""
    reason: str
    """For the record; the agent gets the value alone."""


class GraderStore:
    """Submissions, numbered from 1 in the order of their arrival, and their scores."""

    def __init__(self, path: Path, *, is_read_only: bool = False):
        self._path = path
        self._lock = threading.Lock()
        if is_read_only:  # it may be a stranger's
            open_regular(path).close()
            # without a write-ahead log no process has it open
            self._db = foreign_database(path, is_closed=not path.with_name(f"{path.name}-wal").exists())
            require_tables_alone(self._db, path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            # any thread may use the connection, under `_lock`; isolation_level None leaves transactions to
            # `_transaction`
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        with self._lock:
            if not is_read_only:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
                self._db.execute("PRAGMA foreign_keys=ON")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0 and not is_read_only:
                self._db.executescript(f"BEGIN IMMEDIATE;{SCHEMA}{TIME_SPENT};{KEYS};{JUDGEMENTS};COMMIT;")
            elif version != SCHEMA_VERSION:
                raise StoreError(
                    f"{self._path}: has format {version}, this version of agent2 reads {SCHEMA_VERSION}; "
                    "open the trial with the version that wrote it"
                )

    def next_number(self) -> int:
        """The number that the next arrival gets."""
        with self._lock:
            return int(self._db.execute("SELECT COALESCE(MAX(number), 0) + 1 FROM submissions").fetchone()[0])

    def add(self, arrival: Arrival) -> None:
        """Record an attempt. Raises StoreError if its number is taken."""
        is_rejected = arrival.fault is not None
        row = {
            "number": arrival.number,
            "received_at": arrival.received_at,
            "model_path": arrival.model_path,
            "note": arrival.note,
            "state": SubmissionState.REJECTED if is_rejected else SubmissionState.ACCEPTED,
            "weights_digest": arrival.weights_digest,
            "content_digest": arrival.content_digest,
            "is_base_copy": int(arrival.is_base_copy),
            "revision": arrival.revision,
            "remarks": json.dumps(list(arrival.remarks)),
            "fault": arrival.fault,
            "reason": arrival.reason,
            "finished_at": arrival.received_at if is_rejected else None,
        }
        names = ", ".join(row)
        marks = ", ".join(f":{name}" for name in row)
        with self._transaction() as db:
            db.execute(f"INSERT INTO submissions ({names}) VALUES ({marks})", row)
            if arrival.key:
                db.execute(KEYS)
                key_row = (arrival.key, arrival.number, int(arrival.is_closed))
                db.execute("INSERT INTO submit_keys VALUES (?, ?, ?)", key_row)

    def sent_with(self, key: str) -> tuple[int, bool] | None:
        """Number of the attempt that was sent with this key, and whether submitting was over; None: there is none."""
        with self._lock:
            if not self._has_table("submit_keys"):
                return None
            row = self._db.execute("SELECT submission, is_closed FROM submit_keys WHERE key = ?", (key,)).fetchone()
        return None if row is None else (int(row[0]), bool(row[1]))

    def set_scored(
        self, number: int, score: Estimate, finished_at: float, *, card: str, weights_digest: str, is_base_copy: bool
    ) -> None:
        """Give an accepted submission its one score on test_public.

        card: path below the trial's folder. weights_digest, is_base_copy: of what was played, which for an adapter is
        the merged model.
        Raises StoreError if it has a verdict already; then nothing is changed.
        """
        with self._transaction() as db:
            self._close(db, number, SubmissionState.SCORED, finished_at)
            db.execute(
                "UPDATE submissions SET weights_digest = ?, is_base_copy = ? WHERE number = ?",
                (weights_digest, int(is_base_copy), number),
            )
            if not any(column["name"] == "method" for column in db.execute("PRAGMA table_info(scores)")):
                db.execute(METHOD)
            values = (score.value, score.low, score.high, score.n, score.n_missing, card, score.method)
            db.execute("INSERT INTO scores VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (number, Split.TEST_PUBLIC, *values))

    def set_failed(self, number: int, fault: Fault, reason: str, finished_at: float) -> None:
        """Close an accepted submission without a score. Raises StoreError if it has a verdict already."""
        with self._transaction() as db:
            self._close(db, number, SubmissionState.FAILED, finished_at)
            db.execute("UPDATE submissions SET fault = ?, reason = ? WHERE number = ?", (fault, reason, number))

    def add_remark(self, number: int, remark: str) -> None:
        """Add one sentence to what the agent sees of a submission."""
        with self._transaction() as db:
            row = db.execute("SELECT remarks FROM submissions WHERE number = ?", (number,)).fetchone()
            remarks = [*json.loads(row["remarks"]), remark]
            db.execute("UPDATE submissions SET remarks = ? WHERE number = ?", (json.dumps(remarks), number))

    def get(self, number: int) -> SubmissionRecord | None:
        """One submission; None if there is none of that number."""
        with self._lock:
            row = self._db.execute(_SELECT + "WHERE s.number = ?", (Split.TEST_PUBLIC, number)).fetchone()
        return _record(row) if row is not None else None

    def all(self) -> list[SubmissionRecord]:
        """Every attempt, in the order of arrival."""
        with self._lock:
            rows = self._db.execute(_SELECT + "ORDER BY s.number", (Split.TEST_PUBLIC,)).fetchall()
        return [_record(row) for row in rows]

    def page(self, before: int, limit: int) -> list[SubmissionRecord]:
        """The last `limit` attempts with a number below `before`, in the order of arrival."""
        query = _SELECT + "WHERE s.number < ? ORDER BY s.number DESC LIMIT ?"
        with self._lock:
            rows = self._db.execute(query, (Split.TEST_PUBLIC, before, limit)).fetchall()
        return [_record(row) for row in reversed(rows)]

    def best(self) -> SubmissionRecord | None:
        """The highest score on test_public; of equal ones the earliest. None if nothing is scored."""
        with self._lock:
            query = _SELECT + "WHERE c.value IS NOT NULL ORDER BY c.value DESC, s.number LIMIT 1"
            row = self._db.execute(query, (Split.TEST_PUBLIC,)).fetchone()
        return _record(row) if row is not None else None

    def next_accepted(self) -> int | None:
        """The earliest accepted submission without a verdict; None: there is none."""
        with self._lock:
            query = "SELECT MIN(number) FROM submissions WHERE state = ?"
            number = self._db.execute(query, (SubmissionState.ACCEPTED,)).fetchone()[0]
        return None if number is None else int(number)

    def remarks(self, number: int) -> list[str]:
        """What the agent should know about a submission."""
        with self._lock:
            row = self._db.execute("SELECT remarks FROM submissions WHERE number = ?", (number,)).fetchone()
        return [] if row is None else [str(remark) for remark in json.loads(row["remarks"])]

    def count(self) -> int:
        """How many attempts are recorded."""
        return self.next_number() - 1

    def n_charged(self) -> int:
        """Submissions that count against the budget: every accepted one, whatever came of it.

        A fault of the infrastructure counts as well: a submission can cause one, and this cannot be ruled out.
        """
        with self._lock:
            query = "SELECT COUNT(*) FROM submissions WHERE state != ?"
            return int(self._db.execute(query, (SubmissionState.REJECTED,)).fetchone()[0])

    def add_grading_time(self, number: int, seconds: float) -> None:
        """Note what an evaluation of a submission took, whatever came of it."""
        with self._transaction() as db:
            db.execute(TIME_SPENT)
            db.execute("INSERT INTO grading_time VALUES (?, ?)", (number, seconds))

    def grading_time(self) -> float:
        """Seconds that evaluations of submissions have taken so far."""
        with self._lock:
            if not self._has_table("grading_time"):
                return 0.0
            return float(self._db.execute("SELECT COALESCE(SUM(seconds), 0) FROM grading_time").fetchone()[0])

    def judgements(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """Earlier verdicts on replies; a reply without one is left out. pairs: item and reply."""
        with self._lock:
            if not self._has_table("judgements"):
                return {}
            query = "SELECT value FROM judgements WHERE item = ? AND reply = ?"
            rows = {pair: self._db.execute(query, pair).fetchone() for pair in dict.fromkeys(pairs)}
        return {pair: float(row[0]) for pair, row in rows.items() if row is not None}

    def n_judgements(self) -> int:
        """Verdicts that were charged."""
        with self._lock:
            if not self._has_table("judgements"):
                return 0
            return int(self._db.execute("SELECT COUNT(*) FROM judgements").fetchone()[0])

    def add_judgements(self, verdicts: Sequence[ChargedVerdict], at: float) -> None:
        """Charge and record verdicts, all or none. Raises StoreError if there is one about the same reply already."""
        with self._transaction() as db:
            db.execute(JUDGEMENTS)
            rows = [(at, verdict.item, verdict.reply, verdict.value, verdict.reason) for verdict in verdicts]
            db.executemany("INSERT INTO judgements (at, item, reply, value, reason) VALUES (?, ?, ?, ?, ?)", rows)

    def _has_table(self, name: str) -> bool:
        return self._db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is not None

    def close(self) -> None:
        """May be called twice."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")  # the write lock now: a transaction that takes it later may fail for it
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException as error:
                if self._db.in_transaction:  # SQLite itself rolls back when the disk is full
                    self._db.execute("ROLLBACK")
                if isinstance(error, sqlite3.IntegrityError):
                    raise StoreError(f"{self._path}: {error}; a submission gets one number and one score") from error
                raise

    def _close(self, db: sqlite3.Connection, number: int, state: SubmissionState, finished_at: float) -> None:
        cursor = db.execute(
            "UPDATE submissions SET state = ?, finished_at = ? WHERE number = ? AND state = ?",
            (state, finished_at, number, SubmissionState.ACCEPTED),
        )
        if cursor.rowcount != 1:
            raise StoreError(f"{self._path}: submission {number} does not wait for a verdict; it must not get two")


def read_submissions(path: Path) -> list[SubmissionRecord]:
    """Every attempt recorded in a trial's grader.db, which may be on a read-only disk and is not changed.

    Raises StoreError if the file is missing or of another format, ConfigError if it is damaged or no regular file.
    """
    if not path.exists():
        raise StoreError(f"{path}: there is no such file; the trial has no grader's record")
    try:
        store = GraderStore(path, is_read_only=True)
        try:
            return store.all()
        finally:
            store.close()
    except (OSError, sqlite3.Error, ValueError) as error:  # ValueError: the name of no state or fault
        raise ConfigError(f"{path}: cannot be read ({error}); restore it from a copy") from error


def count_judgements(path: Path) -> int:
    """Verdicts that the judge of a trial was charged for; 0 without a grader's record."""
    if not path.exists():
        return 0
    store = GraderStore(path)
    try:
        return store.n_judgements()
    finally:
        store.close()


def _record(row: sqlite3.Row) -> SubmissionRecord:
    columns = row.keys()
    stored_score = {name: row[name] for name in SCORE if name in columns}
    return SubmissionRecord(
        number=row["number"],
        received_at=row["received_at"],
        model_path=row["model_path"],
        note=row["note"],
        state=SubmissionState(row["state"]),
        weights_digest=row["weights_digest"],
        is_base_copy=bool(row["is_base_copy"]),
        revision=row["revision"],
        score=read_estimate(stored_score) if row["value"] is not None else None,
        fault=None if row["fault"] is None else Fault(row["fault"]),
        reason=row["reason"],
        finished_at=row["finished_at"],
    )
