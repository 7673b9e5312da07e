"""The files of a card's folder: `card.json`, the lines of the open file, the frames of a closed one.

Every file is replaced as a whole (written aside, fsynced, renamed), so a reader sees the old or the new one and a kill
leaves no half of it. `card.json` comes last: the files beside it count only if it names them.

A frame is one zstd frame. Of a closed card it is the page of the column `record` of one row group of `rollouts.parquet`
(PLAIN: each text after its length in four bytes), at the offset that `card.json` names; of a card of an older format a
piece of `rollouts.jsonl.zst`. A frame is returned as data only if it matches its digest, and unpacked only if it has at
most `MOST_BYTES` then; a line that is not a rollout is named.

While a card is open, `lines.crc32` holds the checksum of each line that it had when it was last released (CRC-32 with
its newline, little-endian 32-bit numbers), so that a line that was damaged by accident can be named. It is no
protection against forgery.
"""

import hashlib
import shutil
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import accumulate
from pathlib import Path
from struct import Struct
from typing import BinaryIO

import msgspec
import zstandard

from agent2.cards.card import FLAT_SCORE, FORMAT, READABLE, CardFile, CardHeader, CardSummary, Frame
from agent2.errors import CardError
from agent2.files import atomic_write
from agent2.foreign_files import open_regular, read_limited
from agent2.records import JsonValue, ScoredRollout, canonical_json, digest_of
from agent2.stats.stored import read_estimate

CARD_JSON = "card.json"
OPEN_ROLLOUTS = "rollouts.jsonl"
TABLE = "rollouts.parquet"
OLD_ROLLOUTS = "rollouts.jsonl.zst"
"""Of a card that was closed before format 3."""

_decoder = msgspec.json.Decoder(ScoredRollout)
_encoder = msgspec.json.Encoder()
MOST_BYTES = 1 << 28
"""Most bytes of an unpacked frame, and of a line, since a line is in one frame."""
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
LINE_SUMS = "lines.crc32"
_LENGTH = Struct("<I")


class CardFormat(msgspec.Struct):
    """Which version's form a `card.json` has."""

    format: int


def card_exists(path: Path) -> bool:
    """Whether the folder holds a card, finished or not."""
    return (path / CARD_JSON).exists()


def is_finished(path: Path) -> bool:
    """Whether the folder holds a card that was closed. Raises CardError if `card.json` is damaged."""
    return card_exists(path) and load_card(path).state == "closed"


def replace_card(path: Path, new: Path) -> None:
    """Put a finished card in the place of another one; killed at any step, `restore_replaced` gives one of the two."""
    old = _replaced(path)
    path.rename(old)
    new.rename(path)
    shutil.rmtree(old)


def restore_replaced(path: Path) -> None:
    """Undo a replacement that was killed between its two renames, or clear away what it left."""
    old = _replaced(path)
    if not old.exists():
        return
    if path.exists():
        shutil.rmtree(old)
    else:
        old.rename(path)


def _replaced(path: Path) -> Path:
    return path.with_name(f".{path.name}.replaced")


def new_card(header: CardHeader) -> CardFile:
    """An open card without rollouts."""
    return CardFile(FORMAT, "open", header, digest_of(header), header.protocol.digest)


def load_card(path: Path) -> CardFile:
    """All of `card.json`. Raises CardError if it is missing, damaged or of another format."""
    file = path / CARD_JSON
    try:
        data = read_limited(file, follow=True)
    except OSError as error:
        raise CardError(f"{file}: cannot be read ({error.strerror}); is {path} the folder of a card?") from error
    try:
        number = msgspec.json.decode(data, type=CardFormat).format
        if number in READABLE:
            return _decoded(data, number)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CardError(f"{file}: is not a card ({error}); restore it from a copy or evaluate again") from error
    readable = ", ".join(map(str, READABLE))
    raise CardError(f"{file}: format {number}, this version reads {readable}; use the version that wrote it")


def _decoded(data: bytes, number: int) -> CardFile:
    """The content of `card.json`. Raises msgspec.ValidationError for one that is not as its format says."""
    if number > FLAT_SCORE:
        return msgspec.json.decode(data, type=CardFile)
    card = msgspec.json.decode(data)
    summary = card.get("summary")
    if isinstance(summary, dict):
        if "value" not in summary:
            raise msgspec.ValidationError("Object missing required field `value` - at `$.summary`")
        has_score = summary["value"] is not None
        card["summary"] = {**summary, "score": read_estimate(summary) if has_score else None}
    return msgspec.convert(card, CardFile)


def header_digests(path: Path) -> tuple[str, str]:
    """Digests of header and protocol as written in `card.json`, fields that were added later left out.

    Raises CardError as `load_card` does.
    """
    header = load_card(path).header
    stored = msgspec.json.decode(read_limited(path / CARD_JSON, follow=True))["header"]
    return _digest_as_stored(header, stored), _digest_as_stored(header.protocol, stored["protocol"])


def _digest_as_stored(record: object, stored: JsonValue) -> str:
    return hashlib.sha256(_encoder.encode(_ordered(record, stored))).hexdigest()


def _ordered(record: object, stored: JsonValue) -> JsonValue:
    """The stored value with its keys as `digest_of` orders them: a record's fields as declared, other keys sorted."""
    if not is_dataclass(record):
        return msgspec.json.decode(canonical_json(stored))
    values = {spec.name: getattr(record, spec.name) for spec in fields(record)}
    ordered = {name: _ordered(value, stored[name]) for name, value in values.items() if name in stored}
    return ordered | {name: value for name, value in stored.items() if name not in values}


def store_card(path: Path, card: CardFile) -> None:
    """Replace `card.json`. Raises CardError, and leaves the old one, if it cannot be written."""
    file = path / CARD_JSON
    card = replace(card, format=FORMAT)  # one that was read from an earlier format is written in this version's
    replace_file(file, msgspec.json.format(msgspec.json.encode(card), indent=1))


def replace_file(file: Path, data: bytes) -> None:
    """Write a file durably, whole or not at all. Raises CardError if it cannot be written."""
    try:
        atomic_write(file, data, durable=True)
    except OSError as error:
        raise disk_error(file, len(data), error) from error


def totals_of(summary: CardSummary) -> CardSummary:
    """The summary without its lists, which grow with the items."""
    return replace(summary, items_missing=[], item_scores={}, drops=[])


def require_part(path: Path, card: CardFile, name: str) -> Path:
    """A file beside `card.json`. Raises CardError if it is missing or does not match its digest."""
    file = path / name
    if file.name != name:  # a name with a slash would reach a file outside the card
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
    with open_regular(file, follow=True) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cards_below(folder: Path) -> Iterator[Path]:
    """Folders of cards at or below a folder, sorted."""
    yield from sorted(file.parent for file in folder.rglob(CARD_JSON))


def disk_error(file: Path, n_bytes: int, error: OSError) -> CardError:
    """The error for bytes that could not be written."""
    return CardError(
        f"{file}: {n_bytes} bytes could not be written ({error.strerror}); nothing before them is lost: "
        "make room, then resume the card"
    )


def decode_line(line: bytes, where: str) -> ScoredRollout:
    """One line of a rollouts file. Raises CardError that names `where`."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CardError(
            f"{where}: is not a rollout ({error}); restore the file from a copy or evaluate again"
        ) from error


def first_lines(card: CardFile) -> list[int]:
    """How many rollouts come before each frame."""
    return [0, *accumulate(frame.n_rollouts for frame in card.frames)][: len(card.frames)]


def closed_file(path: Path, card: CardFile) -> tuple[Path, BinaryIO]:
    """The file with the frames of a closed card, opened. Raises CardError if it is missing."""
    file = path / (TABLE if TABLE in card.parts else OLD_ROLLOUTS)
    try:
        return file, open_regular(file, follow=True)
    except OSError as error:
        raise CardError(f"{file}: cannot be read ({error.strerror}); the card lost its rollouts") from error


def frame_lines(file: Path, stream: BinaryIO, number: int, frame: Frame) -> list[bytes]:
    """The lines of one frame, without newlines. Raises CardError if they are not those that were written."""
    # the digest comes first: nothing unverified reaches the decompressor
    data = stream.read(frame.n_bytes) if _is_inside(stream, frame) else b""
    if hashlib.sha256(data).hexdigest() != frame.sha256:
        raise damaged(file, number, frame, "does not match its digest")
    try:
        n_bytes = zstandard.frame_content_size(data)
        if n_bytes > MOST_BYTES:
            raise damaged(file, number, frame, f"would unpack to {n_bytes} bytes, more than {MOST_BYTES}")
        text = zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise damaged(file, number, frame, f"cannot be unpacked ({error})") from error
    lines = text.splitlines() if file.name == OLD_ROLLOUTS else _texts(text)
    if len(lines) != frame.n_rollouts:
        raise damaged(file, number, frame, f"contains {len(lines)} rollouts")
    return lines


def content_digest(lines: Sequence[bytes]) -> str:
    """SHA-256 (hex) of lines, each with a newline."""
    return hashlib.sha256(b"\n".join([*lines, b""])).hexdigest()


def damaged(file: Path, number: int, frame: Frame, problem: str) -> CardError:
    """The error for a damaged frame, with its offset."""
    return CardError(
        f"{file}: frame {number} ({frame.n_rollouts} rollouts, {frame.n_bytes} bytes at {frame.offset}) {problem}; "
        "restore the file from a copy or evaluate again"
    )


def _is_inside(stream: BinaryIO, frame: Frame) -> bool:
    """Whether the frame is inside the file; moves to its start if so."""
    if not 0 <= frame.offset <= frame.offset + frame.n_bytes <= stream.seek(0, 2):
        return False
    stream.seek(frame.offset)
    return True


def _texts(page: bytes) -> list[bytes]:
    """The texts of a PLAIN page; what goes beyond the end of a damaged page is cut."""
    texts, position, last = [], 0, len(page) - _LENGTH.size
    length_at = _LENGTH.unpack_from
    while position <= last:
        (n_bytes,) = length_at(page, position)
        start = position + 4
        position = start + n_bytes
        texts.append(page[start:position])
    return [*texts, b""] if position < len(page) else texts


def decode_lines(path: Path, lines: Sequence[bytes], first: int) -> Iterator[ScoredRollout]:
    """Rollouts of a closed card; `first` lines come before them. Raises CardError naming a line that is not one."""
    for number, line in enumerate(lines, start=first + 1):
        yield decode_line(line, f"{path}: rollout {number}")


def open_lines(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Whole lines of an open card from line `start` on, with their numbers from 0. Raises CardError without a file."""
    file = path / OPEN_ROLLOUTS
    try:
        stream = open_regular(file, follow=True)
    except OSError as error:
        raise CardError(f"{file}: cannot be read ({error.strerror}); the card lost its rollouts") from error
    with stream:
        for number, line in enumerate(stream):
            if number >= start and line.endswith(b"\n"):
                yield number, line


def closed_lines(path: Path, card: CardFile) -> Iterator[tuple[int, list[bytes]]]:
    """Lines of a closed card, frame by frame, each list with the number of its first line from 0."""
    file, stream = closed_file(path, card)
    with stream:
        for number, (first, frame) in enumerate(zip(first_lines(card), card.frames, strict=True)):
            yield first, frame_lines(file, stream, number, frame)


def checksum_bytes(sums: "array[int]") -> bytes:
    """The bytes of `lines.crc32`."""
    if sys.byteorder == "big":
        sums = array("I", sums)
        sums.byteswap()
    return sums.tobytes()


def read_checksums(path: Path) -> "array[int]":
    """The checksums of the lines that an open card had when it was released; empty if it never was.

    Raises CardError if the file cannot be read or is cut off.
    """
    file = path / LINE_SUMS
    sums = array("I")
    try:
        sums.frombytes(read_limited(file, follow=True))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise CardError(f"{file}: cannot be read ({error}); restore it from a copy") from error
    if sys.byteorder == "big":
        sums.byteswap()
    return sums


def line_checksum(line: bytes) -> int:
    """The checksum of a line with its newline."""
    return zlib.crc32(line)
