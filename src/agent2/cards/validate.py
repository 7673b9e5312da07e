"""Checks a card: every byte against its digests, every number against the rollouts.

Promises: reports everything it finds instead of stopping at the first problem, each with the file and the line,
where a line can be told. Changes nothing.

Does NOT cover: lines of an open card that were written since it was last released carry no checksum yet, so that a
changed byte that still makes a rollout is found only if the writer itself closes the card; whoever can rewrite data,
index and digests together is not caught.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agent2.cards import folder
from agent2.cards.aggregate import Tally
from agent2.cards.card import CardFile, CardSummary, Frame
from agent2.cards.folder import FACTS
from agent2.cards.frames import (
    LINE_INDEX,
    closed_file,
    first_lines,
    frame_lines,
    read_sums,
    salvaged_lines,
    sum_of,
    sums_in,
)
from agent2.errors import CardError

TOLERANCE = 1e-9
MOST_LINES = 5
"""Changed lines named for one frame."""

Sums = NDArray[np.uint32] | None


def validate_card(path: Path) -> list[str]:
    """Problems of a card, one sentence each, with the frame or line; empty if there are none.

    Checks the digests of header and protocol, every frame and line, that each attempt comes once, that the
    plan is complete, the files beside `card.json`, and, unless the header with its reporting rule was changed, that
    the summary is what the rollouts give.
    """
    try:
        card = folder.load_card(path)
        header_digest, protocol_digest = folder.header_digests(path)
    except CardError as error:
        return [str(error)]
    problems = []
    if header_digest != card.header_digest:
        problems.append(f"{path / folder.CARD_JSON}: the header was changed: it does not match header_digest")
    if protocol_digest != card.protocol_digest:
        problems.append(f"{path / folder.CARD_JSON}: the protocol was changed: it does not match protocol_digest")
    sums, index_problems = _sums(path, card)
    tally = Tally(card.header.reporting)
    damage = _open_damage(path, tally, sums) if card.state == "open" else _closed_damage(path, card, tally, sums)
    problems += index_problems + damage
    planned = card.header.planned_rollouts
    if not damage and card.state == "closed":
        if planned is not None and planned != tally.n_rollouts:
            problems.append(f"{path}: contains {tally.n_rollouts} of {planned} planned rollouts")
        problems += _facts_problems(path, card)
        if header_digest == card.header_digest:
            problems += _summary_problems(path, card, tally.summary())
    return problems


def summary_differences(stored: CardSummary, recomputed: CardSummary) -> list[str]:
    """Fields in which two summaries differ; numbers may differ by float noise."""
    return [
        spec.name
        for spec in fields(CardSummary)
        if not _is_same(getattr(stored, spec.name), getattr(recomputed, spec.name))
    ]


def _sums(path: Path, card: CardFile) -> tuple[Sums, list[str]]:
    """The checksums of the lines, where they can be trusted."""
    try:
        if card.state == "closed" and LINE_INDEX not in card.parts:
            return None, []  # written before there was an index
        if card.state == "closed":
            return sums_in(folder.read_part(path, card, LINE_INDEX), path / LINE_INDEX), []
        return read_sums(path), []
    except CardError as error:
        return None, [str(error)]


def _open_damage(path: Path, tally: Tally, sums: Sums) -> list[str]:
    problems: list[str] = []
    file = str(path / folder.OPEN_ROLLOUTS)
    if not Path(file).exists():
        return [f"{file}: is missing"]
    number = 0
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file}:{number}"
            if line.endswith(b"\n"):
                problems += _add(tally, line, where, _sum(sums, number))
            else:
                problems.append(f"{where}: the last line is torn ({len(line)} bytes); resuming the card cuts it")
    if sums is not None and number < len(sums):
        problems.append(f"{file}: {len(sums) - number} lines at the end are gone; resuming the card plays them again")
    return problems


def _closed_damage(path: Path, card: CardFile, tally: Tally, sums: Sums) -> list[str]:
    problems: list[str] = []
    end = 0
    file = str(path / folder.CLOSED_ROLLOUTS)
    try:
        stream = closed_file(path)
    except CardError as error:
        return [str(error)]
    with stream:
        for number, (first, frame) in enumerate(zip(first_lines(card), card.frames, strict=True)):
            if frame.offset != end:
                problems.append(f"{path / folder.CARD_JSON}: frame {number} begins at {frame.offset}, expected {end}")
            end = frame.offset + frame.n_bytes
            try:
                lines = frame_lines(path, stream, number, frame)
            except CardError as error:
                problems.append(f"{error} ({_changed(salvaged_lines(stream, frame), first, frame, sums)})")
                continue
            for place, line in enumerate(lines, start=first + 1):
                problems += _add(tally, line, f"{file}: line {place}", _sum(sums, place))
        excess = stream.seek(0, 2) - end
    if excess > 0:
        problems.append(f"{file}: {excess} bytes after the last frame of the index")
    return problems


def _changed(lines: Sequence[bytes], first: int, frame: Frame, sums: Sums) -> str:
    """Which lines of a damaged frame are not those that were written, as words."""
    last = first + frame.n_rollouts
    if sums is None or len(sums) < last:
        return f"it holds lines {first + 1} to {last}"
    kept = lines[: frame.n_rollouts]
    changed = [first + place for place, line in enumerate(kept, start=1) if sum_of(line) != sums[first + place - 1, 0]]
    if len(kept) == frame.n_rollouts and not changed:
        return f"its lines {first + 1} to {last} are as they were written; only its packing differs"
    words = [str(line) for line in changed[:MOST_LINES]]
    if len(changed) > MOST_LINES:
        words.append(f"{len(changed) - MOST_LINES} more")
    if len(kept) < frame.n_rollouts:
        words.append(f"all from {first + len(kept) + 1} to {last}, which cannot be unpacked")
    return f"changed: line {', '.join(words)}"


def _sum(sums: Sums, number: int) -> int | None:
    """The checksum that line `number`, from 1, was written with; None: it has none."""
    return int(sums[number - 1, 0]) if sums is not None and number <= len(sums) else None


def _add(tally: Tally, line: bytes, where: str, checksum: int | None) -> list[str]:
    problems = []
    if checksum is not None and sum_of(line) != checksum:
        problems.append(f"{where}: was changed since it was written; restore the file from a copy")
    try:
        tally.add(folder.decode_line(line, where))
    except CardError as error:
        message = str(error)
        problems.append(message if message.startswith(where) else f"{where}: {message}")
    return problems


def _facts_problems(path: Path, card: CardFile) -> list[str]:
    """The table of facts is derived: its bytes must match, and so must every row."""
    if FACTS not in card.parts:
        return []
    from agent2.cards.facts import facts_problems  # loads a library that most cards do not need

    return facts_problems(path, card)


def _summary_problems(path: Path, card: CardFile, recomputed: CardSummary) -> list[str]:
    file = path / folder.CARD_JSON
    try:
        stored = folder.whole_summary(path, card)
    except CardError as error:
        return [str(error)]
    if stored is None:
        return [f"{file}: the card is closed but has no summary"]
    return [f"{file}: summary.{name} is not what the rollouts give" for name in summary_differences(stored, recomputed)]


def _is_same(left: object, right: object) -> bool:
    """Equal, numbers up to float noise (sums differ in the last bits between processors)."""
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_is_same(left[key], right[key]) for key in left)
    if is_dataclass(left) or isinstance(left, str) or not isinstance(left, Sequence):
        return left == right
    return isinstance(right, Sequence) and list(left) == list(right)
