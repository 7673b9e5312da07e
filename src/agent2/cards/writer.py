"""Writes a rollout card durably, one rollout at a time.

Promises: when `append` returns, the kernel has the record, so that a process killed with -9 loses none;
fsync at most a second after the first unsynced record (at the next append) and on close, so that a power
cut can lose the records of at most one second. A record that does not fit on the disk is cut off again,
is not counted, and raises CardError. One writer at a time (a lock on the open file).

    with CardWriter(path, header) as writer:     # leaving the block without close() keeps the card open
        writer.append(record)
        summary = writer.close()

Does NOT cover: network file systems that lie about O_APPEND, locks or fsync.
"""

import contextlib
import os
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent2.cards import folder
from agent2.cards.aggregate import Tally
from agent2.cards.card import CardFile, CardHeader, CardSummary, Frame
from agent2.cards.folder import LINE_SUMS, MOST_BYTES, checksum_bytes, line_checksum, read_checksums
from agent2.errors import CardError, ConfigError
from agent2.files import lock_file
from agent2.pictures import FOLDER as PICTURES_FOLDER
from agent2.pictures import keep_beside
from agent2.records import JsonValue, ScoredRollout, digest_of
from agent2.texts import storable

FSYNC_EVERY_S = 1.0
FRAME_ROLLOUTS = 4096
FRAME_BYTES = 1 << 22
"""Most bytes of lines in a frame, unless one line alone has more: finding a rollout reads one frame."""

WHOLE_BYTES = 1 << 25
"""Most bytes of an open file that is read at once for closing; of a larger one only the frame that is written is in
memory."""

_encoder = msgspec.json.Encoder()


class CardWriter:
    """An open card. A new one: `CardWriter(path, header)`; an unfinished one: `CardWriter.resume(path, header)`."""

    def __init__(self, path: Path, header: CardHeader) -> None:
        """Begin a new card in `path`. Raises CardError if there is one already or the folder cannot be made."""
        if folder.card_exists(path):
            raise CardError(f"{path}: contains a card already; resume it or choose another folder")
        rollouts = path / folder.OPEN_ROLLOUTS
        try:
            path.mkdir(parents=True, exist_ok=True)
            rollouts.touch()
            is_empty = rollouts.stat().st_size == 0
        except OSError as error:
            raise folder.disk_error(rollouts, 0, error) from error
        if not is_empty:
            raise CardError(f"{rollouts}: holds rollouts but there is no {folder.CARD_JSON}; choose another folder")
        self._begin(path, folder.new_card(header))
        try:
            folder.store_card(path, self._card)
        except CardError:
            self._close_descriptor()  # its lock would keep out the next attempt
            raise

    def _begin(self, path: Path, card: CardFile) -> None:
        self._path = path
        self._card = card
        self._tally = Tally(card.header.reporting)
        self._sums, self._ends = array("I"), array("Q")
        self._rollouts = path / folder.OPEN_ROLLOUTS
        self._descriptor = _open_locked(self._rollouts)
        self._n_bytes = os.fstat(self._descriptor).st_size
        self._opened_at = time.monotonic()
        self._unsynced_since: float | None = None

    @classmethod
    def resume(cls, path: Path, header: CardHeader) -> tuple[Self, set[tuple[str, int]]]:
        """Resume an unfinished card; also returns the (item id, attempt) pairs that it holds.

        A torn last line is cut and noted on the card. Raises CardError if the card is closed, damaged, in
        use, or of another protocol, checkpoint, rule, seed or size.
        """
        card = folder.load_card(path)
        if card.state == "closed":
            raise CardError(f"{path}: this card is closed; read it, or choose another folder for a new one")
        require_same_evaluation(path, card.header, header)
        notes = [*card.notes, *_lock_differences(card.header.lock, header.lock)]
        writer = cls.__new__(cls)
        writer._begin(path, card)
        try:
            torn = writer._count_lines()
            if torn:
                notes.append(f"cut a torn last line of {torn} bytes after {writer.n_rollouts} rollouts")
            if notes != list(card.notes):
                writer._card = replace(card, notes=notes)
                folder.store_card(path, writer._card)
        except CardError:
            writer.release()
            raise
        return writer, writer._tally.done()

    @property
    def n_rollouts(self) -> int:
        """Records on the card."""
        return self._tally.n_rollouts

    def append(self, record: ScoredRollout) -> None:
        """Put one record on the card; it is safe from kill -9 when this returns.

        Raises CardError for a second record of an attempt, a value JSON cannot hold, or a full disk; the
        card is then as before the call.
        """
        rollout = record.rollout
        if self._tally.has(rollout.item_id, rollout.attempt):
            raise CardError(f"{self._rollouts}: item {rollout.item_id!r} attempt {rollout.attempt} already exists")
        try:
            line = _line_of(record)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise CardError(
                f"{self._rollouts}: item {rollout.item_id!r} attempt {rollout.attempt} cannot be written as JSON "
                f"({error}); its environment or scorer must give plain JSON values"
            ) from error
        if len(line) > MOST_BYTES:
            raise CardError(
                f"{self._rollouts}: item {rollout.item_id!r} attempt {rollout.attempt} has {len(line)} bytes, "
                f"a rollout may have {MOST_BYTES}; its environment or scorer must keep less"
            )
        self._keep_pictures(record)
        self._write(line)
        self._tally.add(record)
        self._sums.append(line_checksum(line))
        self._ends.append(self._n_bytes)

    def _keep_pictures(self, record: ScoredRollout) -> None:
        """Copy the pictures of a rollout beside the card, before the line that names them."""
        pictured = [message for message in record.rollout.prompt if message.pictures]
        pictured += [turn.reply for turn in record.rollout.turns if turn.pictures and turn.reply is not None]
        if not pictured:
            return
        try:
            keep_beside(pictured, self._path / PICTURES_FOLDER)
        except ConfigError as error:
            raise CardError(f"{self._rollouts}: item {record.rollout.item_id!r}: {error}") from error
        except OSError as error:
            raise folder.disk_error(self._path / PICTURES_FOLDER, 0, error) from error

    def close(self) -> CardSummary:
        """Finish the card: summary, compressed rollouts, digests. Returns the summary.

        Raises CardError if rollouts are missing from the plan or the disk is full; the card then stays open
        and nothing is lost.
        """
        planned = self._card.header.planned_rollouts
        if planned is not None and planned != self.n_rollouts:
            raise CardError(
                f"{self._path}: contains {self.n_rollouts} of {planned} planned rollouts; play the missing ones first"
            )
        self._sync()
        frames, parts = self._store_table()
        summary = self._tally.summary()
        wall_clock_s = self._card.wall_clock_s + time.monotonic() - self._opened_at
        closed = replace(
            self._card,
            state="closed",
            summary=folder.totals_of(summary),
            frames=frames,
            wall_clock_s=wall_clock_s,
            parts=parts,
        )
        folder.store_card(self._path, closed)  # from here on the table counts; before it, the open file does
        self._rollouts.unlink()
        (self._path / LINE_SUMS).unlink(missing_ok=True)
        self._close_descriptor()
        return summary

    def release(self) -> None:
        """Close the file of an unfinished card so that it can be resumed; does nothing on a closed one."""
        if self._descriptor < 0:
            return
        wall_clock_s = self._card.wall_clock_s + time.monotonic() - self._opened_at
        try:
            self._sync()
            folder.replace_file(self._path / LINE_SUMS, checksum_bytes(self._sums))
            folder.store_card(self._path, replace(self._card, wall_clock_s=wall_clock_s))
        finally:
            self._close_descriptor()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.release()
            return
        with contextlib.suppress(CardError):  # the first error says more; every acknowledged record is safe already
            self.release()

    def _write(self, line: bytes) -> None:
        """Hand a line to the kernel, and to the disk when it is time; on failure cut it off again."""
        now = time.monotonic()
        first_unsynced = now if self._unsynced_since is None else self._unsynced_since
        try:
            n_written = os.write(self._descriptor, line)
            while n_written < len(line):
                n_written += os.write(self._descriptor, line[n_written:])
            if now - first_unsynced >= FSYNC_EVERY_S:
                os.fsync(self._descriptor)
                self._unsynced_since = None
            else:
                self._unsynced_since = first_unsynced
        except OSError as error:
            os.ftruncate(self._descriptor, self._n_bytes)  # a torn line would swallow the next record
            raise folder.disk_error(self._rollouts, len(line), error) from error
        self._n_bytes += n_written

    def _sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise folder.disk_error(self._rollouts, self._n_bytes, error) from error
        self._unsynced_since = None

    def _count_lines(self) -> int:
        """Count the whole lines and cut what follows them; returns how many bytes were cut.

        Raises CardError for a line that is not a rollout, or that was changed since the card was last released.
        """
        end = 0
        sums = read_checksums(self._path)
        with self._rollouts.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    break
                where = f"{self._rollouts}:{number}"
                record = folder.decode_line(line, where)
                if number <= len(sums) and line_checksum(line) != sums[number - 1]:
                    raise CardError(f"{where}: was changed since it was written; restore the file from a copy")
                self._tally.add(record)
                end += len(line)
                self._sums.append(line_checksum(line))
                self._ends.append(end)
        torn = self._n_bytes - end
        if torn:
            os.ftruncate(self._descriptor, end)
            self._n_bytes = end
        return torn

    def _store_table(self) -> tuple[list[Frame], dict[str, str]]:
        """Write the table beside the open file; returns its frames, and its digest by file name."""
        from agent2.cards.tables import TableWriter  # loads pyarrow, a fifth of a second that only closing needs

        target = self._path / folder.TABLE
        aside = target.with_name(target.name + ".tmp")
        try:
            with TableWriter(aside, self._card.header.reporting) as table:
                marks = self._tally.marks()
                for lines, positions in self._frames():
                    table.add(lines, positions.tolist(), marks[positions])
                frames = table.close()
            digest = folder.file_digest(aside)
            aside.replace(target)
        except OSError as error:
            raise folder.disk_error(target, self._n_bytes, error) from error
        return frames, {folder.TABLE: digest}

    def _frames(self) -> Iterator[tuple[list[bytes], NDArray[np.intp]]]:
        """The lines of the open file, by item and attempt, with their positions there; newlines are left out."""
        whole = os.pread(self._descriptor, self._n_bytes, 0) if self._n_bytes <= WHOLE_BYTES else None
        order = self._tally.in_order()
        ends = np.array(self._ends, dtype=np.int64)
        starts = np.concatenate(([0], ends))[order]
        ends = ends[order]
        for first, last in _frame_bounds((ends - starts).tolist()):
            frame = slice(first, last)
            yield self._lines_at(starts[frame], ends[frame], whole), order[frame]

    def _lines_at(self, starts: NDArray[np.int64], ends: NDArray[np.int64], whole: bytes | None) -> list[bytes]:
        """Lines without their newlines. whole: the open file, if it is in memory."""
        origin, span = (0, self._n_bytes) if whole else (int(starts.min()), int(ends.max() - starts.min()))
        ranges = zip((starts - origin).tolist(), (ends - origin - 1).tolist(), strict=True)
        if whole is None and span > 2 * int((ends - starts).sum()):
            return [os.pread(self._descriptor, end - start, origin + start) for start, end in ranges]
        content = whole or os.pread(self._descriptor, span, origin)
        return [content[start:end] for start, end in ranges]

    def _close_descriptor(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1


def _line_of(record: ScoredRollout) -> bytes:
    try:
        return _encoder.encode(record) + b"\n"
    except UnicodeEncodeError:  # a world or a scorer passed on half a character
        return _encoder.encode(storable(msgspec.to_builtins(record))) + b"\n"


def _frame_bounds(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First line of each frame and the one after its last. sizes: bytes of the lines, in order."""
    first = n_bytes = 0
    for position, size in enumerate(sizes):
        if position > first and (position - first == FRAME_ROLLOUTS or n_bytes + size > FRAME_BYTES):
            yield first, position
            first, n_bytes = position, 0
        n_bytes += size
    if sizes:
        yield first, len(sizes)


def require_same_evaluation(path: Path, stored: CardHeader, requested: CardHeader) -> None:
    """Refuse to mix two evaluations in one card. Raises CardError that names what differs."""
    if stored.identity() == requested.identity():
        return
    names = ("checkpoint_name", "checkpoint_digest", "protocol", "reporting", "seed", "planned_rollouts")
    differing = [name for name in names if getattr(stored, name) != getattr(requested, name)]
    raise CardError(
        f"{path}: this card is of another evaluation ({', '.join(differing)} differ); "
        "choose another folder or delete it"
    )


def _lock_differences(stored: JsonValue, requested: JsonValue) -> list[str]:
    if digest_of(stored) == digest_of(requested):
        return []
    return [f"resumed under another lock: {_encoder.encode(requested).decode()}"]


def _open_locked(file: Path) -> int:
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND)
    except OSError as error:
        raise CardError(f"{file}: cannot be opened ({error.strerror}); the card lost its rollouts") from error
    try:
        # the kernel drops the lock with the process, so that a kill leaves none behind
        lock_file(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise CardError(f"{file}: another process writes this card; wait for it or end it") from error
    return descriptor
