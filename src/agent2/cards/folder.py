"""The folder of a card: file names, and reading and replacing `card.json`.

Promises: `card.json` is replaced as a whole (written aside, fsynced, renamed), so a reader sees the old or
the new one and a kill leaves no half of it.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from agent2.cards.card import FORMAT, CardFile, CardHeader
from agent2.errors import CardError
from agent2.records import ScoredRollout, digest_of

CARD_JSON = "card.json"
OPEN_ROLLOUTS = "rollouts.jsonl"
CLOSED_ROLLOUTS = "rollouts.jsonl.zst"

_decoder = msgspec.json.Decoder(ScoredRollout)


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
        raise CardError(f"{file}: is no card ({error}); restore it from a copy or evaluate again") from error
    if card.format != FORMAT:
        raise CardError(f"{file}: format {card.format}, this version reads {FORMAT}; use the version that wrote it")
    return card


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
        raise CardError(f"{where}: is no rollout ({error}); restore the file from a copy or evaluate again") from error
