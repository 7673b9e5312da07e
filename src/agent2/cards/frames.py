"""Lines of the two rollouts files of a card, and their checksums.

Lines out of the two rollouts files of a card.

Promises: a frame whose bytes do not match its digest is never returned as data, but as much of it as can still be
unpacked is at hand for saying which line was changed; a line that is not a rollout is named.

Two checksums for each line of a card's rollouts: of the line, and of its item id.

The first names the line that an accident changed, where the digest of a frame names only the frame; the second finds
one rollout among a million without reading the others. The file `lines.idx` holds two little-endian 32-bit numbers a
line (CRC-32 of the line with its newline, CRC-32 of the id in UTF-8), in the order of the lines; of an open card it
may lack the last lines (those written since the card was last released).

Does NOT protect against an adversary: a line can be forged to a CRC-32. The digests in `card.json` are for that.
"""

import hashlib
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import numpy as np
import zstandard
from numpy.typing import NDArray

from agent2.cards import folder
from agent2.cards.card import CardFile, Frame
from agent2.errors import CardError
from agent2.records import ScoredRollout

SALVAGE_LIMIT = 1 << 28
"""Most bytes unpacked from a damaged frame."""
PIECE = 1 << 12


def first_lines(card: CardFile) -> list[int]:
    """How many rollouts come before each frame."""
    return [0, *accumulate(frame.n_rollouts for frame in card.frames)][: len(card.frames)]


def closed_file(path: Path) -> BinaryIO:
    """The rollouts file of a closed card. Raises CardError if it is gone."""
    file = path / folder.CLOSED_ROLLOUTS
    try:
        return file.open("rb")
    except OSError as error:
        raise CardError(f"{file}: cannot be read ({error.strerror}); the card lost its rollouts") from error


def frame_lines(path: Path, stream: BinaryIO, number: int, frame: Frame) -> list[bytes]:
    """The lines of one frame. Raises CardError if its bytes are not those that were written."""
    data = frame_bytes(stream, frame)
    if hashlib.sha256(data).hexdigest() != frame.sha256:
        raise CardError(
            f"{named(path, number, frame)} does not match its digest; restore the file from a copy or evaluate again"
        )
    lines = zstandard.ZstdDecompressor().decompress(data).splitlines(keepends=True)
    if len(lines) != frame.n_rollouts:
        raise CardError(
            f"{path / folder.CARD_JSON}: frame {number} is said to hold {frame.n_rollouts} rollouts, "
            f"it holds {len(lines)}; restore the file from a copy"
        )
    return lines


def named(path: Path, number: int, frame: Frame) -> str:
    """File and place of a frame, for a message."""
    return (
        f"{path / folder.CLOSED_ROLLOUTS}: frame {number} ({frame.n_rollouts} rollouts, {frame.n_bytes} bytes at "
        f"{frame.offset})"
    )


def frame_bytes(stream: BinaryIO, frame: Frame) -> bytes:
    """The compressed bytes; none if the index points outside the file."""
    if not 0 <= frame.offset <= frame.offset + frame.n_bytes <= stream.seek(0, 2):
        return b""
    stream.seek(frame.offset)
    return stream.read(frame.n_bytes)


def salvaged_lines(stream: BinaryIO, frame: Frame) -> list[bytes]:
    """The lines of a damaged frame that can still be unpacked, whether they are those that were written or not."""
    data = frame_bytes(stream, frame)
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    text = bytearray()
    for start in range(0, len(data), PIECE):
        try:
            text += unpacker.decompress(data[start : start + PIECE])
        except zstandard.ZstdError:
            break  # what came before is still worth a look
        if unpacker.eof or len(text) > SALVAGE_LIMIT:
            break
    return [line for line in bytes(text).splitlines(keepends=True) if line.endswith(b"\n")]


def decode_lines(path: Path, lines: Sequence[bytes], first: int) -> Iterator[ScoredRollout]:
    """Rollouts of a closed card; `first` lines come before them. Raises CardError naming a line that is none."""
    file = str(path / folder.CLOSED_ROLLOUTS)
    for number, line in enumerate(lines, start=first + 1):
        yield folder.decode_line(line, f"{file}: line {number}")


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
    with closed_file(path) as stream:
        for number, (first, frame) in enumerate(zip(first_lines(card), card.frames, strict=True)):
            yield first, frame_lines(path, stream, number, frame)


LINE_INDEX = "lines.idx"
BYTES_A_LINE = 8


def sum_of(data: bytes) -> int:
    """The checksum of a line or an id."""
    return zlib.crc32(data)


class LineIndex:
    """Grows with a card's lines."""

    def __init__(self) -> None:
        self._sums = array("I")

    def __len__(self) -> int:
        return len(self._sums) // 2

    def add(self, line: bytes, item_id: str) -> None:
        """Take the next line."""
        self._sums.append(zlib.crc32(line))
        self._sums.append(zlib.crc32(item_id.encode("utf-8", "surrogatepass")))

    def data(self) -> bytes:
        """The bytes of the file."""
        if sys.byteorder == "little" and self._sums.itemsize == 4:
            return self._sums.tobytes()
        return np.asarray(self._sums, dtype="<u4").tobytes()


def read_sums(path: Path) -> NDArray[np.uint32] | None:
    """Lines x 2 (line, id) of the card in folder `path`; None if it has no index.

    Raises CardError if the file cannot be read or is not a whole number of lines long.
    """
    file = path / LINE_INDEX
    try:
        return sums_in(file.read_bytes(), file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CardError(f"{file}: cannot be read ({error.strerror}); restore it from a copy") from error


def sums_in(data: bytes, file: Path) -> NDArray[np.uint32]:
    """Lines x 2 in the bytes of an index. Raises CardError that names the file if they are no whole number of lines."""
    if len(data) % BYTES_A_LINE:
        raise CardError(f"{file}: {len(data)} bytes are no whole number of lines; restore it from a copy")
    return np.frombuffer(data, dtype="<u4").reshape(-1, 2).astype(np.uint32, copy=False)


def lines_with_id(sums: NDArray[np.uint32], item_id: str) -> list[int]:
    """Lines, from 0, that may be of this item: all of its own, rarely one more."""
    wanted = zlib.crc32(item_id.encode("utf-8", "surrogatepass"))
    return [int(line) for line in np.flatnonzero(sums[:, 1] == wanted)]
