"""Two checksums for each line of a card's rollouts: of the line, and of its item id.

The first names the line that an accident changed, where the digest of a frame names only the frame; the second finds
one rollout among a million without reading the others. The file `lines.idx` holds two little-endian 32-bit numbers a
line (CRC-32 of the line with its newline, CRC-32 of the id in UTF-8), in the order of the lines; of an open card it
may lack the last lines (those written since the card was last released).

Does NOT protect against an adversary: a line can be forged to a CRC-32. The digests in `card.json` are for that.
"""

import sys
import zlib
from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agent2.errors import CardError

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
