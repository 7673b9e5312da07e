"""Lines out of the two rollouts files of a card.

Promises: a frame whose bytes do not match its digest is never returned as data, but as much of it as can still be
unpacked is at hand for saying which line was changed; a line that is not a rollout is named.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import zstandard

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
