"""Reads and checks rollout cards; nothing here changes a card.

Promises: a page of a closed card opens without reading the rest, and one rollout by its id without reading the other
frames; a frame that does not match its digest is never returned as data. `validate_card` checks every byte against its
digests and every number against the rollouts, and reports all problems, each with the file and, where known, the
rollout.

Does NOT cover: lines of an open card that were written since it was last released carry no checksum yet, so that a
changed byte that still decodes as a rollout is found only if the writer itself closes the card; a forger who rewrites
data and digests together is not caught.
"""

import hashlib
import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agent2.cards import folder
from agent2.cards.card import CardFile, CardHeader, CardSummary
from agent2.cards.folder import (
    closed_file,
    closed_lines,
    decode_lines,
    first_lines,
    frame_lines,
    line_checksum,
    open_lines,
    read_checksums,
)
from agent2.errors import CardError
from agent2.foreign_files import open_regular
from agent2.pictures import problems_beside
from agent2.records import ScoredRollout
from agent2.stats.estimates import Estimate

if TYPE_CHECKING:
    from agent2.cards.aggregate import Tally
    from agent2.cards.tables import ColumnCheck

TOLERANCE = 1e-9
COLUMNS_FROM = 50_000
"""Rollouts from which loading pyarrow costs less than decoding the records."""
CARD_FILE = folder.CARD_JSON
"""The file that makes a folder a card."""


def validate_card(path: Path, *, columns: bool = True) -> list[str]:
    """Problems of a card, one sentence each, with the frame or line; empty if there are none.

    Checks the digests of header and protocol, every frame and rollout, that each attempt comes once and in order, that
    the plan is complete, the files beside `card.json`, that the columns of the table are what its records give, and,
    unless the header with its reporting rule was changed, that the totals are what the rollouts give. columns: False
    parses nothing of the table but its records.
    """
    from agent2.cards.aggregate import Tally  # loads numpy

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
    tally = Tally(card.header.reporting)
    check = None
    if columns and folder.TABLE in card.parts:
        from agent2.cards.tables import ColumnCheck  # loads pyarrow

        check = ColumnCheck(path, card)
    damage = _open_damage(path, tally) if card.state == "open" else _closed_damage(path, card, tally, check)
    problems += damage
    planned = card.header.planned_rollouts
    if not damage and card.state == "closed":
        if planned is not None and planned != tally.n_rollouts:
            problems.append(f"{path}: contains {tally.n_rollouts} of {planned} planned rollouts")
        problems += check.problems if check is not None else []
        problems += problems_beside(path)
        if header_digest == card.header_digest:
            problems += _summary_problems(path, card, tally.summary())
    return problems


def summary_differences(stored: CardSummary, recomputed: CardSummary) -> list[str]:
    """Fields in which two summaries differ; numbers may differ by float noise, and lists may not be stored."""
    if not stored.item_scores:
        recomputed = folder.totals_of(recomputed)
    names = ["score"] if (stored.score is None) is not (recomputed.score is None) else []
    if stored.score is not None and recomputed.score is not None:
        names = [f"score.{name}" for name in _differing_fields(stored.score, recomputed.score)]
    return [*names, *(name for name in _differing_fields(stored, recomputed) if name != "score")]


def _differing_fields(stored: Estimate | CardSummary, recomputed: Estimate | CardSummary) -> list[str]:
    names = [spec.name for spec in fields(stored)]
    return [name for name in names if not _is_same(getattr(stored, name), getattr(recomputed, name))]


def _open_damage(path: Path, tally: "Tally") -> list[str]:
    problems: list[str] = []
    file = path / folder.OPEN_ROLLOUTS
    if not file.exists():
        return [f"{file}: is missing"]
    try:
        sums = read_checksums(path)
    except CardError as error:
        return [str(error)]
    number = 0
    with open_regular(file, follow=True) as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file}:{number}"
            if not line.endswith(b"\n"):
                problems.append(f"{where}: the last line is torn ({len(line)} bytes); resuming the card cuts it")
                continue
            if number <= len(sums) and line_checksum(line) != sums[number - 1]:
                problems.append(f"{where}: was changed since it was written; restore the file from a copy")
            problems += _add(tally, line, where)[1]
    if number < len(sums):
        problems.append(f"{file}: {len(sums) - number} lines at the end are gone; resuming the card plays them again")
    return problems


def _closed_damage(path: Path, card: CardFile, tally: "Tally", check: "ColumnCheck | None") -> list[str]:
    """Problems of the records, which are counted; the columns of sound frames are shown to `check`."""
    problems: list[str] = []
    try:
        file, stream = closed_file(path, card)
    except CardError as error:
        return [str(error)]
    name, is_sorted = str(file), folder.TABLE in card.parts
    last: tuple[str, int] = ("", -1)
    with stream:
        for number, (first, frame) in enumerate(zip(first_lines(card), card.frames, strict=True)):
            try:
                lines = frame_lines(file, stream, number, frame)
            except CardError as error:
                problems.append(f"{error} (rollouts {first + 1} to {first + frame.n_rollouts})")
                continue
            if is_sorted and folder.content_digest(lines) != frame.content:
                problems.append(str(folder.damaged(file, number, frame, "does not match the digest of its content")))
            for offset, line in enumerate(lines):
                where = f"{name}: rollout {first + offset + 1}"
                record, line_problems = _add(tally, line, where)
                problems += line_problems
                if record is not None and is_sorted:
                    here = (record.rollout.item_id, record.rollout.attempt)
                    if here < last or (offset == 0 and frame.first != here[0]):
                        problems.append(
                            f"{where}: is not in the order of items and attempts that {folder.CARD_JSON} names"
                        )
                    last = here
            if check is not None and not problems:
                check.add(number, first, lines, tally.marks(first))
    for part in () if problems else card.parts:  # a damaged frame says more than the digest of the file
        try:
            folder.require_part(path, card, part)
        except CardError as error:
            problems.append(str(error))
    return problems


def _add(tally: "Tally", line: bytes, where: str) -> tuple[ScoredRollout | None, list[str]]:
    """The rollout, counted, and the problems of its line."""
    try:
        record = folder.decode_line(line, where)
        tally.add(record)
    except CardError as error:
        message = str(error)
        return None, [message if message.startswith(where) else f"{where}: {message}"]
    return record, []


def _summary_problems(path: Path, card: CardFile, recomputed: CardSummary) -> list[str]:
    file = path / folder.CARD_JSON
    if card.summary is None:
        return [f"{file}: the card is closed but has no summary"]
    differing = summary_differences(card.summary, recomputed)
    return [f"{file}: summary.{name} is not what the rollouts give" for name in differing]


def _is_same(left: object, right: object) -> bool:
    """Equal, numbers up to float noise (sums differ in the last bits between processors)."""
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_is_same(left[key], right[key]) for key in left)
    if is_dataclass(left) or isinstance(left, str) or not isinstance(left, Sequence):
        return left == right
    return isinstance(right, Sequence) and list(left) == list(right)


def read_header(path: Path) -> CardHeader:
    """What was evaluated and how. Raises CardError if there is no readable card."""
    return folder.load_card(path).header


def finished_header(path: Path) -> CardHeader:
    """The header of a finished card. Raises CardError for one that is not, or cannot be read."""
    card = folder.load_card(path)
    if card.state != "closed":
        raise CardError(f"{path}: is not finished, so some rollouts may be missing; resume its evaluation first")
    return card.header


def read_summary(path: Path) -> CardSummary:
    """The numbers of a closed card, with the lists, for which every rollout is read.

    Raises CardError for an open card (summarize its rollouts instead) and for a damaged one.
    """
    card = folder.load_card(path)
    totals = _finished(path, card.summary)
    if not card.parts:  # the first format: the lists are there already
        return totals
    return tally_of(path, card).with_lists(totals)


def tally_of(path: Path, card: CardFile) -> "Tally":
    """Every rollout of a card, counted; for a large closed card from its columns.

    Raises CardError for a damaged card.
    """
    if folder.TABLE in card.parts and sum(frame.n_rollouts for frame in card.frames) >= COLUMNS_FROM:
        from agent2.cards.tables import tally_of_columns  # loads pyarrow

        return tally_of_columns(path, card)
    from agent2.cards.aggregate import Tally  # loads numpy

    tally = Tally(card.header.reporting)
    for record in iter_rollouts(path):
        tally.add(record)
    return tally


def read_totals(path: Path) -> CardSummary:
    """The numbers of a closed card without its lists (`items_missing`, `item_scores`, `drops` may be empty).

    Costs the same for ten items and for a million. Raises CardError for an open card.
    """
    return _finished(path, folder.load_card(path).summary)


def iter_rollouts(path: Path) -> Iterator[ScoredRollout]:
    """Every rollout: of a closed card by item id and attempt, of an open one in the order in which they finished.

    A torn last line of an open card is left out.

    Raises CardError naming the frame or line that is damaged.
    """
    card = folder.load_card(path)
    if card.state == "open":
        yield from _open_rollouts(path, 0)
        return
    for first, lines in closed_lines(path, card):
        yield from decode_lines(path, lines, first)


def rollouts_digest(path: Path) -> str:
    """Digest of what was played, without its scores, header, totals and the layout of the files.

    Raises CardError naming the frame or line that is damaged.
    """
    digest = hashlib.sha256()
    for record in iter_rollouts(path):
        digest.update(msgspec.json.encode(record.rollout) + b"\n")
    return digest.hexdigest()


def scored_digest(path: Path) -> str:
    """Digest of what was played and how it was scored, without the times that it took and the layout of the files.

    Raises CardError naming the frame or line that is damaged.
    """
    digest = hashlib.sha256()
    for record in iter_rollouts(path):
        usage = msgspec.structs.replace(record.rollout.usage, seconds=0.0)
        timeless = msgspec.structs.replace(record.rollout, usage=usage)
        digest.update(msgspec.json.encode([timeless, record.score]) + b"\n")
    return digest.hexdigest()


def read_page(path: Path, start: int, n: int) -> list[ScoredRollout]:
    """Rollouts start to start + n; fewer at the end. Reads only the frames that hold them.

    Raises ValueError for negative numbers and CardError for a damaged frame or line.
    """
    return CardPages(path).page(start, n)


def find_rollouts(path: Path, item_id: str, attempt: int | None = None) -> list[tuple[int, ScoredRollout]]:
    """The rollouts of one item, each with its line from 0, in order of attempts; empty if there are none.

    attempt: only that one. A closed card is read where the id belongs; an open one and one of an older format, which
    are not sorted, are read through. Raises CardError for a damaged frame or line.
    """
    return CardPages(path).find(item_id, attempt)


class CardPages:
    """The rollouts of one card, for repeated reading; safe to use from several threads.

    `card.json` and the last frame are cached, so make a new object when the card has changed. Of an open card only
    `card.json` is cached.
    """

    def __init__(self, path: Path) -> None:
        """Raises CardError if there is no readable card."""
        self.path = path
        self.card = folder.load_card(path)
        self._begins = first_lines(self.card)
        self._cached: tuple[int, list[bytes]] = (-1, [])

    def page(self, start: int, n: int) -> list[ScoredRollout]:
        """As `read_page`."""
        if start < 0 or n < 0:
            raise ValueError(f"start={start} and n={n} must not be negative")
        if self.card.state == "open":
            return list(itertools.islice(_open_rollouts(self.path, start), n))
        page: list[ScoredRollout] = []
        file = self.path / (folder.TABLE if folder.TABLE in self.card.parts else folder.OLD_ROLLOUTS)
        for number in range(max(bisect_right(self._begins, start) - 1, 0), len(self._begins)):
            first = self._begins[number]
            if first >= start + n:
                break
            lines = self._lines(number)[max(start - first, 0) : start + n - first]
            page.extend(decode_lines(file, lines, max(start, first)))
        return page

    def at(self, lines: Iterable[int], most_frames: int) -> dict[int, ScoredRollout]:
        """Line -> rollout, of those lines that are in the first `most_frames` frames with any of them."""
        numbers = sorted(set(lines))
        if self.card.state == "open":
            page = self.page(numbers[0], numbers[-1] - numbers[0] + 1) if numbers else []
            return {line: page[line - numbers[0]] for line in numbers if line - numbers[0] < len(page)}
        by_frame: dict[int, list[int]] = {}
        for line in numbers:
            by_frame.setdefault(max(bisect_right(self._begins, line) - 1, 0), []).append(line)
        return {
            line: record
            for _, frame_lines in itertools.islice(by_frame.items(), most_frames)
            for line in frame_lines
            for record in self.page(line, 1)
        }

    def find(self, item_id: str, attempt: int | None = None) -> list[tuple[int, ScoredRollout]]:
        """As `find_rollouts`."""
        name = msgspec.json.encode(item_id)  # as the writer spells it: most lines are ruled out without decoding them
        matches = []
        for line, text in self._lines_near(item_id):
            if name in text:
                record = folder.decode_line(text, f"{self.path}: rollout {line + 1}")
                if record.rollout.item_id == item_id and attempt in (None, record.rollout.attempt):
                    matches.append((line, record))
        return sorted(matches, key=lambda pair: pair[1].rollout.attempt)

    def _lines_near(self, item_id: str) -> Iterator[tuple[int, bytes]]:
        """Every line that may be of the item, with its number from 0."""
        if self.card.state == "open":
            yield from open_lines(self.path)
            return
        firsts = [frame.first for frame in self.card.frames]
        low, high = 0, len(firsts)
        if folder.TABLE in self.card.parts:
            low, high = max(bisect_left(firsts, item_id) - 1, 0), bisect_right(firsts, item_id)
        for number in range(low, high):
            yield from enumerate(self._lines(number), start=self._begins[number])

    def _lines(self, number: int) -> list[bytes]:
        """The lines of one frame of a closed card."""
        cached, lines = self._cached  # one tuple, replaced as a whole: threads see a frame with its own number
        if cached != number:
            file, stream = closed_file(self.path, self.card)
            with stream:
                lines = frame_lines(file, stream, number, self.card.frames[number])
            self._cached = (number, lines)
        return lines


def _finished(path: Path, summary: CardSummary | None) -> CardSummary:
    if summary is None:
        raise CardError(f"{path}: the card is not finished and has no summary yet; resume its evaluation")
    return summary


def _open_rollouts(path: Path, start: int) -> Iterator[ScoredRollout]:
    for number, line in open_lines(path, start):
        yield folder.decode_line(line, f"{path / folder.OPEN_ROLLOUTS}:{number + 1}")
