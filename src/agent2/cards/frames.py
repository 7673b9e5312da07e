"""The lines of a card's rollouts: of the open file, and of a closed card, frame by frame.

A frame is one zstd frame. Of a closed card it is the page of the column `record` of one row group of `rollouts.parquet`
(PLAIN: each text after its length in four bytes), at the place that `card.json` names; of a card of an older format a
piece of `rollouts.jsonl.zst`.

Promises: no frame is returned as data unless its digest says that it holds what was written, and none that would unpack
to more than `MOST_BYTES` is unpacked; a line that is not a rollout is named.

While a card is open, `lines.crc32` holds the checksum of each line that it had when it was last released (CRC-32 with
its newline, little-endian 32-bit numbers), to name the line that an accident changed. Not a protection against forgery.
"""

import hashlib
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import zstandard

from agent2.cards import folder
from agent2.cards.card import CardFile, Frame
from agent2.errors import CardError
from agent2.records import ScoredRollout

MOST_BYTES = 1 << 28
"""Of one frame, unpacked. A line is in one frame, so also of a line."""
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def first_lines(card: CardFile) -> list[int]:
    """How many rollouts come before each frame."""
    return [0, *accumulate(frame.n_rollouts for frame in card.frames)][: len(card.frames)]


def closed_file(path: Path, card: CardFile) -> tuple[Path, BinaryIO]:
    """The file with the frames of a closed card, opened. Raises CardError if it is gone."""
    file = path / (folder.TABLE if folder.TABLE in card.parts else folder.OLD_ROLLOUTS)
    try:
        return file, file.open("rb")
    except OSError as error:
        raise CardError(f"{file}: cannot be read ({error.strerror}); the card lost its rollouts") from error


def frame_lines(file: Path, stream: BinaryIO, number: int, frame: Frame) -> list[bytes]:
    """The lines of one frame, newlines included. Raises CardError if they are not those that were written."""
    data = stream.read(frame.n_bytes) if _is_inside(stream, frame) else b""
    is_page = file.name != folder.OLD_ROLLOUTS
    try:
        n_bytes = zstandard.frame_content_size(data)
        if n_bytes > MOST_BYTES:
            raise damaged(file, number, frame, f"would unpack to {n_bytes} bytes, more than {MOST_BYTES}")
        text = zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise damaged(file, number, frame, f"does not match its digest ({error})") from error
    lines = _texts(text) if is_page else text.splitlines(keepends=True)
    if hashlib.sha256(b"".join(lines) if is_page else data).hexdigest() != frame.sha256:
        raise damaged(file, number, frame, "does not match its digest")
    if len(lines) != frame.n_rollouts:
        raise damaged(file, number, frame, f"contains {len(lines)} rollouts")
    return lines


def damaged(file: Path, number: int, frame: Frame, problem: str) -> CardError:
    """The error for a frame, with its place."""
    return CardError(
        f"{file}: frame {number} ({frame.n_rollouts} rollouts, {frame.n_bytes} bytes at {frame.offset}) {problem}; "
        "restore the file from a copy or evaluate again"
    )


def _is_inside(stream: BinaryIO, frame: Frame) -> bool:
    """Whether the frame is inside the file; moves to its begin if so."""
    if not 0 <= frame.offset <= frame.offset + frame.n_bytes <= stream.seek(0, 2):
        return False
    stream.seek(frame.offset)
    return True


def _texts(page: bytes) -> list[bytes]:
    """The texts of a PLAIN page, each with a newline; what goes beyond the end of a damaged page is cut."""
    texts, place = [], 0
    while place < len(page):
        begin = place + 4
        place = begin + int.from_bytes(page[place:begin], "little")
        texts.append(page[begin:place] + b"\n")
    return texts


def decode_lines(path: Path, lines: Sequence[bytes], first: int) -> Iterator[ScoredRollout]:
    """Rollouts of a closed card; `first` lines come before them. Raises CardError naming a line that is none."""
    for number, line in enumerate(lines, start=first + 1):
        yield folder.decode_line(line, f"{path}: rollout {number}")


def open_lines(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Whole lines of an open card from line `start` on, with their numbers from 0. Raises CardError without a file."""
    file = path / folder.OPEN_ROLLOUTS
    try:
        stream = file.open("rb")
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


LINE_SUMS = "lines.crc32"


def sums_data(sums: "array[int]") -> bytes:
    """The bytes of `lines.crc32`."""
    if sys.byteorder == "big":
        sums = array("I", sums)
        sums.byteswap()
    return sums.tobytes()


def read_sums(path: Path) -> "array[int]":
    """The checksums of the lines that an open card had when it was released; empty if it never was.

    Raises CardError if the file cannot be read or is cut off.
    """
    file = path / LINE_SUMS
    sums = array("I")
    try:
        sums.frombytes(file.read_bytes())
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise CardError(f"{file}: cannot be read ({error}); restore it from a copy") from error
    if sys.byteorder == "big":
        sums.byteswap()
    return sums


def sum_of(line: bytes) -> int:
    """The checksum of a line with its newline."""
    return zlib.crc32(line)
