"""Reads rollout cards, and checks them.

Promises: reading never changes a card; a page of a closed card opens without reading the rest; a frame
whose bytes do not match its digest is never returned as data. `validate_card` reports everything it finds
instead of stopping at the first problem.

Does NOT cover: lines of an open card carry no digests, so a changed byte that is still a valid rollout is
found only once the card is closed; whoever can rewrite data, index and digests together is not caught.
"""

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import BinaryIO

import zstandard

from agent2.cards import folder
from agent2.cards.aggregate import Tally
from agent2.cards.card import CardFile, CardHeader, CardSummary, Frame
from agent2.errors import CardError
from agent2.records import ScoredRollout, digest_of

CARD_FILE = folder.CARD_JSON
"""The file that makes a folder a card."""
TOLERANCE = 1e-9


def read_header(path: Path) -> CardHeader:
    """What was evaluated and how. Raises CardError if there is no readable card."""
    return folder.load_card(path).header


def read_summary(path: Path) -> CardSummary:
    """The numbers of a closed card. Raises CardError for an open one (summarize its rollouts instead)."""
    card = folder.load_card(path)
    if card.summary is None:
        raise CardError(f"{path}: the card is not finished and has no summary yet; resume its evaluation")
    return card.summary


def iter_rollouts(path: Path) -> Iterator[ScoredRollout]:
    """Every rollout, in the order in which they finished; a torn last line of an open card is left out.

    Raises CardError naming the frame or line that is damaged.
    """
    card = folder.load_card(path)
    if card.state == "open":
        yield from _open_rollouts(path, 0)
        return
    with _closed_file(path) as stream:
        for number, frame in enumerate(card.frames):
            yield from _decode(path, _frame_lines(path, stream, number, frame), _first(card, number))


def read_page(path: Path, start: int, n: int) -> list[ScoredRollout]:
    """Rollouts start to start + n; fewer at the end. Reads only the frames that hold them.

    Raises ValueError for negative numbers and CardError for a damaged frame or line.
    """
    if start < 0 or n < 0:
        raise ValueError(f"start={start} and n={n} must not be negative")
    card = folder.load_card(path)
    if card.state == "open":
        return list(itertools.islice(_open_rollouts(path, start), n))
    page: list[ScoredRollout] = []
    first = 0
    with _closed_file(path) as stream:
        for number, frame in enumerate(card.frames):
            low, high = max(start - first, 0), min(start + n - first, frame.n_rollouts)
            if low < high:
                lines = _frame_lines(path, stream, number, frame)[low:high]
                page.extend(_decode(path, lines, first + low))
            first += frame.n_rollouts
            if first >= start + n:
                break
    return page


def validate_card(path: Path) -> list[str]:
    """Problems of a card, one sentence each, with the frame or line; empty if there are none.

    Checks the digests of header and protocol, every frame and line, that each attempt comes once, that the
    plan is complete, and, unless the header with its reporting rule was changed, that the summary is what the
    rollouts give.
    """
    try:
        card = folder.load_card(path)
    except CardError as error:
        return [str(error)]
    problems = _header_problems(path, card)
    tally = Tally(card.header.reporting)
    damage = _open_damage(path, tally) if card.state == "open" else _closed_damage(path, card, tally)
    problems += damage
    planned = card.header.planned_rollouts
    if not damage and card.state == "closed":
        if planned is not None and planned != tally.n_rollouts:
            problems.append(f"{path}: holds {tally.n_rollouts} of {planned} planned rollouts")
        if digest_of(card.header) == card.header_digest:
            problems += _summary_problems(path, card.summary, tally.summary())
    return problems


def _header_problems(path: Path, card: CardFile) -> list[str]:
    file = path / folder.CARD_JSON
    problems = []
    if digest_of(card.header) != card.header_digest:
        problems.append(f"{file}: the header was changed: it does not match header_digest")
    if card.header.protocol.digest != card.protocol_digest:
        problems.append(f"{file}: the protocol was changed: it does not match protocol_digest")
    return problems


def _open_damage(path: Path, tally: Tally) -> list[str]:
    problems: list[str] = []
    file = path / folder.OPEN_ROLLOUTS
    if not file.exists():
        return [f"{file}: is missing"]
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file}:{number}"
            if line.endswith(b"\n"):
                problems += _add(tally, line, where)
            else:
                problems.append(f"{where}: the last line is torn ({len(line)} bytes); resuming the card cuts it")
    return problems


def _closed_damage(path: Path, card: CardFile, tally: Tally) -> list[str]:
    problems: list[str] = []
    end = 0
    try:
        stream = _closed_file(path)
    except CardError as error:
        return [str(error)]
    with stream:
        for number, frame in enumerate(card.frames):
            if frame.offset != end:
                problems.append(f"{path / folder.CARD_JSON}: frame {number} begins at {frame.offset}, expected {end}")
            end = frame.offset + frame.n_bytes
            try:
                lines = _frame_lines(path, stream, number, frame)
            except CardError as error:
                problems.append(str(error))
                continue
            first = _first(card, number)
            for index, line in enumerate(lines):
                problems += _add(tally, line, f"{path / folder.CLOSED_ROLLOUTS}: line {first + index + 1}")
        excess = stream.seek(0, 2) - end
    if excess > 0:
        problems.append(f"{path / folder.CLOSED_ROLLOUTS}: {excess} bytes after the last frame of the index")
    return problems


def _add(tally: Tally, line: bytes, where: str) -> list[str]:
    try:
        tally.add(folder.decode_line(line, where))
    except CardError as error:
        message = str(error)
        return [message if message.startswith(where) else f"{where}: {message}"]
    return []


def _summary_problems(path: Path, stored: CardSummary | None, recomputed: CardSummary) -> list[str]:
    file = path / folder.CARD_JSON
    if stored is None:
        return [f"{file}: the card is closed but has no summary"]
    return [
        f"{file}: summary.{spec.name} is not what the rollouts give"
        for spec in fields(CardSummary)
        if not _is_same(getattr(stored, spec.name), getattr(recomputed, spec.name))
    ]


def _is_same(left: object, right: object) -> bool:
    """Equal, numbers up to float noise (sums differ in the last bits between processors)."""
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_is_same(left[key], right[key]) for key in left)
    if is_dataclass(left) or isinstance(left, str) or not isinstance(left, Sequence):
        return left == right
    return isinstance(right, Sequence) and list(left) == list(right)


def _first(card: CardFile, number: int) -> int:
    """How many rollouts come before a frame."""
    return sum(frame.n_rollouts for frame in card.frames[:number])


def _closed_file(path: Path) -> BinaryIO:
    file = path / folder.CLOSED_ROLLOUTS
    try:
        return file.open("rb")
    except OSError as error:
        raise CardError(f"{file}: cannot be read ({error.strerror}); the card lost its rollouts") from error


def _frame_lines(path: Path, stream: BinaryIO, number: int, frame: Frame) -> list[bytes]:
    """The lines of one frame. Raises CardError if its bytes are not those that were written."""
    is_inside = 0 <= frame.offset <= frame.offset + frame.n_bytes <= stream.seek(0, 2)
    if is_inside:
        stream.seek(frame.offset)
    data = stream.read(frame.n_bytes) if is_inside else b""
    if hashlib.sha256(data).hexdigest() != frame.sha256:
        raise CardError(
            f"{path / folder.CLOSED_ROLLOUTS}: frame {number} ({frame.n_rollouts} rollouts, {frame.n_bytes} bytes at "
            f"{frame.offset}) does not match its digest; restore the file from a copy or evaluate again"
        )
    lines = zstandard.ZstdDecompressor().decompress(data).splitlines(keepends=True)
    if len(lines) != frame.n_rollouts:
        raise CardError(
            f"{path / folder.CARD_JSON}: frame {number} is said to hold {frame.n_rollouts} rollouts, "
            f"it holds {len(lines)}; restore the file from a copy"
        )
    return lines


def _decode(path: Path, lines: Sequence[bytes], first: int) -> Iterator[ScoredRollout]:
    for index, line in enumerate(lines):
        yield folder.decode_line(line, f"{path / folder.CLOSED_ROLLOUTS}: line {first + index + 1}")


def _open_rollouts(path: Path, start: int) -> Iterator[ScoredRollout]:
    file = path / folder.OPEN_ROLLOUTS
    try:
        stream = file.open("rb")
    except OSError as error:
        raise CardError(f"{file}: cannot be read ({error.strerror}); the card lost its rollouts") from error
    with stream:
        for number, line in enumerate(stream, start=1):
            if number > start and line.endswith(b"\n"):
                yield folder.decode_line(line, f"{file}:{number}")
