"""The folder of a card and its files.

File names, reading and replacing `card.json`.

Promises: every file is replaced as a whole (written aside, fsynced, renamed), so a reader sees the old or
the new one and a kill leaves no half of it. `card.json` comes last: the files beside it count only if it names them.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import msgspec

from agent2 import installation
from agent2.cards.card import FORMAT, READABLE, CardFile, CardHeader, CardSummary
from agent2.errors import CardError
from agent2.records import JsonValue, ScoredRollout, canonical_json, digest_of

CARD_JSON = "card.json"
OPEN_ROLLOUTS = "rollouts.jsonl"
TABLE = "rollouts.parquet"
OLD_ROLLOUTS = "rollouts.jsonl.zst"
"""Of a card that was closed before format 3."""

_decoder = msgspec.json.Decoder(ScoredRollout)
_encoder = msgspec.json.Encoder()


def card_exists(path: Path) -> bool:
    """Whether the folder holds a card, finished or not."""
    return (path / CARD_JSON).exists()


def is_finished(path: Path) -> bool:
    """Whether the folder holds a card that was closed. Raises CardError if `card.json` is damaged."""
    return card_exists(path) and load_card(path).state == "closed"


def new_card(header: CardHeader) -> CardFile:
    """An open card without rollouts."""
    return CardFile(FORMAT, "open", header, digest_of(header), header.protocol.digest)


def load_card(path: Path) -> CardFile:
    """All of `card.json`. Raises CardError if it is missing, damaged or of another format."""
    file = path / CARD_JSON
    try:
        data = file.read_bytes()
    except OSError as error:
        raise CardError(f"{file}: cannot be read ({error.strerror}); is {path} the folder of a card?") from error
    try:
        card = msgspec.json.decode(data, type=CardFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CardError(f"{file}: is not a card ({error}); restore it from a copy or evaluate again") from error
    if card.format not in READABLE:
        known = ", ".join(map(str, READABLE))
        raise CardError(f"{file}: format {card.format}, this version reads {known}; use the version that wrote it")
    return card


def header_digests(path: Path) -> tuple[str, str]:
    """Digests of header and protocol as they stand in `card.json`, fields that were added later left out.

    Raises CardError as `load_card` does.
    """
    header = load_card(path).header
    stored = msgspec.json.decode((path / CARD_JSON).read_bytes())["header"]
    return _digest_as_stored(header, stored), _digest_as_stored(header.protocol, stored["protocol"])


def _digest_as_stored(record: object, stored: JsonValue) -> str:
    return hashlib.sha256(_encoder.encode(_ordered(record, stored))).hexdigest()


def _ordered(record: object, stored: JsonValue) -> JsonValue:
    """The stored value with its keys as `digest_of` has them: fields of a record in their order, others sorted."""
    if not is_dataclass(record):
        return msgspec.json.decode(canonical_json(stored))
    known = {spec.name: getattr(record, spec.name) for spec in fields(record)}
    ordered = {name: _ordered(value, stored[name]) for name, value in known.items() if name in stored}
    return ordered | {name: value for name, value in stored.items() if name not in known}


def store_card(path: Path, card: CardFile) -> None:
    """Replace `card.json`. Raises CardError, and leaves the old one, if it cannot be written."""
    file = path / CARD_JSON
    replace_file(file, msgspec.json.format(msgspec.json.encode(card), indent=1))


def replace_file(file: Path, data: bytes) -> None:
    """Write a file aside, fsync it and rename it into place. Raises CardError if the disk says no."""
    aside = file.with_name(file.name + ".tmp")
    try:
        with aside.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(file)
        sync_folder(file.parent)
    except OSError as error:
        with contextlib.suppress(OSError):  # the first error says more
            aside.unlink(missing_ok=True)
        raise disk_error(file, len(data), error) from error


def totals_of(summary: CardSummary) -> CardSummary:
    """The summary without its lists, which grow with the items."""
    return replace(summary, items_missing=[], item_scores={}, drops=[])


def require_part(path: Path, card: CardFile, name: str) -> Path:
    """A file beside `card.json`. Raises CardError if it is missing or does not match its digest."""
    file = path / name
    if file.name != name:
        raise CardError(f"{path / CARD_JSON}: names {name!r} as a file of the card; restore it from a copy")
    try:
        is_sound = file_digest(file) == card.parts.get(name)
    except OSError as error:
        raise CardError(f"{file}: cannot be read ({error.strerror}); restore it from a copy") from error
    if not is_sound:
        raise CardError(f"{file}: does not match its digest in {CARD_JSON}; restore it from a copy")
    return file


def file_digest(file: Path) -> str:
    """SHA-256 (hex) of a file's bytes, read in pieces."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cards_below(folder: Path) -> Iterator[Path]:
    """Folders of cards at or below a folder, sorted."""
    yield from sorted(found.parent for found in folder.rglob(CARD_JSON))


def sync_folder(folder: Path) -> None:
    """Make renames and new files in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def disk_error(file: Path, n_bytes: int, error: OSError) -> CardError:
    """The error for bytes that the disk would not take."""
    return CardError(
        f"{file}: {n_bytes} bytes could not be written ({error.strerror}); nothing before them is lost: "
        "make room, then resume the card"
    )


def decode_line(line: bytes, where: str) -> ScoredRollout:
    """One line of a rollouts file. Raises CardError that names the place."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CardError(
            f"{where}: is not a rollout ({error}); restore the file from a copy or evaluate again"
        ) from error


def table_of(path: Path) -> Path:
    """The table of a closed card: its own, or the cached one of a card of an older format, made now if there is none.

    Raises CardError for an open or damaged card and for a table that is not the one that the card names.
    """
    card = load_card(path)
    if card.state == "open":
        raise CardError(f"{path}: the card is not finished; resume its evaluation, then query it")
    if TABLE in card.parts:
        return require_part(path, card, TABLE)
    key = hashlib.sha256((path / CARD_JSON).read_bytes()).hexdigest()
    file = installation.facts_dir() / f"{key[:32]}-v{FORMAT}.parquet"
    if not file.is_file():
        from agent2.cards.tables import make_table  # loads pyarrow

        make_table(path, card, file)
    return file
