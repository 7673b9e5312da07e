"""Labels and comments of people on a rollout or one of its turns: besides spot checks all that the app writes.

One file in the folder that is viewed, a JSON record a line, only ever appended to: `NOTES_FILE`. Each record names its
rollout by item and attempt and its card by the digest of `card.json`, so a note is never shown on another card, and
moving folders loses none. What cannot be read is left alone and counted.
"""

import os
import re
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from agent2.cards import folder as card_folder
from agent2.cards.card import CardFile
from agent2.errors import ConfigError
from agent2.foreign_files import open_regular
from agent2.records import ScoredRollout
from agent2.reports.text import UNCUT, clean, clean_lines

NOTES_FILE = "agent2-notes.jsonl"
FORMAT: Literal["agent2-note-1"] = "agent2-note-1"
MAX_LABEL, MAX_COMMENT, MAX_AUTHOR = 80, 4_000, 80
MAX_FILE = 50_000_000
"""Bytes of the file that are read, and beyond which nothing is added."""
_LIMITS = {"label": MAX_LABEL, "comment": MAX_COMMENT, "author": MAX_AUTHOR}
_ANCHOR = re.compile(r"(?:p([1-9]\d{0,6})|t([1-9]\d{0,6})(-reply)?)?")


class RolloutNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's label and comment on a rollout."""

    format: Literal["agent2-note-1"]
    card: str
    """SHA-256 of its `card.json`."""
    item_id: str
    attempt: int
    turn: str
    """`t3`: the model's third message, `t3-reply`: the answer to it, `p1`: a message of the prompt; empty: all."""
    label: str
    comment: str
    author: str
    at: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class NoteListing:
    """The notes on one rollout."""

    notes: tuple[RolloutNote, ...]
    n_unread: int
    """Lines of the file that are not notes of this version."""


class NoteBook:
    """The notes of one folder; safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        self.path = root / NOTES_FILE
        self._lock = threading.Lock()
        self._known: tuple[tuple[int, int], dict[tuple[str, str, int], tuple[RolloutNote, ...]], int] | None = None

    def of(self, card: Path, record: ScoredRollout) -> NoteListing:
        """The notes on a rollout, oldest first."""
        with self._lock:
            by_rollout, n_unread = self._read()
            key = (card_digest(card), record.rollout.item_id, record.rollout.attempt)
            return NoteListing(by_rollout.get(key, ()), n_unread)

    def on_card(self, card: Path) -> dict[tuple[str, int], tuple[RolloutNote, ...]]:
        """(item, attempt) -> the notes on it, of one card."""
        with self._lock:
            by_rollout, _ = self._read()
            digest = card_digest(card) if by_rollout else ""
            return {
                (item, attempt): notes for (card_of, item, attempt), notes in by_rollout.items() if card_of == digest
            }

    def _read(self) -> tuple[Mapping[tuple[str, str, int], tuple[RolloutNote, ...]], int]:
        try:
            status = self.path.stat()
            stamp = (status.st_size, status.st_mtime_ns)
            if self._known is not None and self._known[0] == stamp:
                return self._known[1:]
            with open_regular(self.path) as file:
                data = file.read(MAX_FILE)
        except OSError:
            return {}, 0
        by_rollout: dict[tuple[str, str, int], tuple[RolloutNote, ...]] = {}
        n_unread = 0
        for line in data.splitlines():
            try:
                note = msgspec.json.decode(line, type=RolloutNote)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                n_unread += 1  # left in the file: it may be of a newer version
                continue
            key = (note.card, note.item_id, note.attempt)
            by_rollout[key] = (*by_rollout.get(key, ()), note)
        self._known = (stamp, by_rollout, n_unread)
        return by_rollout, n_unread

    def add(self, path: Path, card: CardFile, record: ScoredRollout, form: Mapping[str, str]) -> RolloutNote:
        """Append a note. form: `turn`, `label`, `comment` and `author`, as the page sends them.

        Raises ConfigError for an unfinished card, a turn that the rollout does not have, an empty note, one that is too
        long, and a folder that cannot be written to.
        """
        if card.state == "open":
            raise ConfigError("the card is not finished, so it has no digest that a note could name; wait for its end")
        turn = form.get("turn", "")
        _require_turn(turn, record)
        texts = {name: clean_lines(form.get(name, ""), UNCUT * len(form.get(name, ""))).strip() for name in _LIMITS}
        for name, limit in _LIMITS.items():
            if (n := len(texts[name])) > limit:
                raise ConfigError(f"the {name} has {n:,} characters, at most {limit:,} are kept; shorten it")
        if not texts["label"] and not texts["comment"]:
            raise ConfigError("the note is empty; give a label or a comment")
        rollout = record.rollout
        label, author = clean(texts["label"], MAX_LABEL), clean(texts["author"], MAX_AUTHOR)
        note = RolloutNote(
            FORMAT,
            card_digest(path),
            rollout.item_id,
            rollout.attempt,
            turn,
            label,
            texts["comment"],
            author,
            time.time(),
        )
        line = msgspec.json.encode(note) + b"\n"
        with self._lock:
            try:
                # opened without following a link: a folder of results may contain the files of an agent
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(self.path, flags, 0o644)
                try:
                    size = os.fstat(descriptor).st_size
                    if size > MAX_FILE:
                        raise ConfigError(f"{NOTES_FILE} has more than {MAX_FILE:,} bytes; move it elsewhere")
                    # a write that was cut off leaves a line without its end: it must not swallow the new note
                    is_whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
                    os.write(descriptor, line if is_whole else b"\n" + line)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise ConfigError(f"{NOTES_FILE} cannot be written ({error.strerror}); who owns the folder?") from error
        return note


def noted_verdicts(
    notes: Path, cards: Mapping[str, Path], labels: Collection[str]
) -> dict[str, dict[tuple[str, str, int], str]]:
    """Author -> (card, item, attempt) -> the author's last label on the whole rollout that is one of `labels`.

    notes: the file. cards: by name.
    """
    book = NoteBook(notes.parent)
    verdicts: dict[str, dict[tuple[str, str, int], str]] = {}
    for name, card in cards.items():
        for (item, attempt), rollout_notes in book.on_card(card).items():
            for note in rollout_notes:
                label = note.label.strip().casefold()
                if not note.turn and label in labels:
                    verdicts.setdefault(clean(note.author, MAX_AUTHOR) or "somebody", {})[name, item, attempt] = label
    return verdicts


def find_notes(folder: Path) -> Path:
    """The notes' file in a folder or the nearest one above it. Raises ConfigError if there is none."""
    top = folder.resolve()
    for directory in (top, *top.parents):
        if (directory / NOTES_FILE).is_file():
            return directory / NOTES_FILE
    raise ConfigError(f"{folder}: no {NOTES_FILE} there or above; notes are written in `agent2 view`")


def card_digest(path: Path) -> str:
    """What a note names its card by. Raises OSError if the card is gone."""
    return card_folder.file_digest(path / card_folder.CARD_JSON)


def _require_turn(turn: str, record: ScoredRollout) -> None:
    anchor = _ANCHOR.fullmatch(turn)
    turns = record.rollout.turns
    if anchor is not None:
        prompt, number, reply = anchor.groups()
        is_there = not turn or (int(prompt) <= len(record.rollout.prompt) if prompt else int(number) <= len(turns))
        if is_there and not (reply and turns[int(number) - 1].observation is None):
            return
    raise ConfigError(f"the rollout has no turn {clean(turn, 40)!r}; choose one of its list")
