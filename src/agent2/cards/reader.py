"""Reads rollout cards.

Promises: reading never changes a card; a page of a closed card opens without reading the rest, and one rollout by
its id without reading the other frames; a frame whose bytes do not match its digest is never returned as data.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec

from agent2.cards import folder
from agent2.cards.card import CardFile, CardHeader, CardSummary
from agent2.cards.frames import closed_file, closed_lines, decode_lines, first_lines, open_lines
from agent2.cards.frames import frame_lines as _frame_lines
from agent2.cards.line_index import LINE_INDEX, lines_with_id, sums_in
from agent2.cards.validate import validate_card as validate_card
from agent2.errors import CardError
from agent2.records import ScoredRollout

CARD_FILE = folder.CARD_JSON
"""The file that makes a folder a card."""


def read_header(path: Path) -> CardHeader:
    """What was evaluated and how. Raises CardError if there is no readable card."""
    return folder.load_card(path).header


def read_summary(path: Path) -> CardSummary:
    """The numbers of a closed card. Raises CardError for an open one (summarize its rollouts instead)."""
    return _finished(path, folder.whole_summary(path, folder.load_card(path)))


def read_totals(path: Path) -> CardSummary:
    """The numbers of a closed card without its lists (`items_missing`, `item_scores`, `drops` may be empty).

    Costs the same for ten items and for a million. Raises CardError for an open card.
    """
    return _finished(path, folder.load_card(path).summary)


def iter_rollouts(path: Path) -> Iterator[ScoredRollout]:
    """Every rollout, in the order in which they finished; a torn last line of an open card is left out.

    Raises CardError naming the frame or line that is damaged.
    """
    card = folder.load_card(path)
    if card.state == "open":
        yield from _open_rollouts(path, 0)
        return
    for first, lines in closed_lines(path, card):
        yield from decode_lines(path, lines, first)


def read_page(path: Path, start: int, n: int) -> list[ScoredRollout]:
    """Rollouts start to start + n; fewer at the end. Reads only the frames that hold them.

    Raises ValueError for negative numbers and CardError for a damaged frame or line.
    """
    if start < 0 or n < 0:
        raise ValueError(f"start={start} and n={n} must not be negative")
    card = folder.load_card(path)
    if card.state == "open":
        return list(itertools.islice(_open_rollouts(path, start), n))
    return _page(path, card, start, n)


def find_rollouts(path: Path, item_id: str, attempt: int | None = None) -> list[tuple[int, ScoredRollout]]:
    """The rollouts of one item, each with its line from 0, in order of attempts; empty if there are none.

    attempt: only that one. A card without a line index (an old one) is read through. Raises CardError for a damaged
    frame or line.
    """
    card = folder.load_card(path)
    found = [
        (line, record)
        for line, record in _candidates(path, card, item_id)
        if record.rollout.item_id == item_id and attempt in (None, record.rollout.attempt)
    ]
    return sorted(found, key=lambda pair: pair[1].rollout.attempt)


def _candidates(path: Path, card: CardFile, item_id: str) -> Iterator[tuple[int, ScoredRollout]]:
    """Rollouts that may be of the item: those that the index names; without one, those in which the id stands."""
    if LINE_INDEX not in card.parts:
        yield from _lines_naming(path, card, item_id)
        return
    sums = sums_in(folder.read_part(path, card, LINE_INDEX), path / LINE_INDEX)
    for line in lines_with_id(sums, item_id):
        for record in _page(path, card, line, 1):
            yield line, record


def _lines_naming(path: Path, card: CardFile, item_id: str) -> Iterator[tuple[int, ScoredRollout]]:
    """Every line in which the id stands, as our writer spells it."""
    name = msgspec.json.encode(item_id)
    if card.state == "open":
        where = path / folder.OPEN_ROLLOUTS
        yield from ((n, folder.decode_line(line, f"{where}:{n + 1}")) for n, line in open_lines(path) if name in line)
        return
    for first, lines in closed_lines(path, card):
        for index, line in enumerate(lines):
            if name in line:
                yield first + index, next(decode_lines(path, [line], first + index))


def _page(path: Path, card: CardFile, start: int, n: int) -> list[ScoredRollout]:
    page: list[ScoredRollout] = []
    with closed_file(path) as stream:
        for number, (first, frame) in enumerate(zip(first_lines(card), card.frames, strict=True)):
            low, high = max(start - first, 0), min(start + n - first, frame.n_rollouts)
            if low < high:
                lines = _frame_lines(path, stream, number, frame)[low:high]
                page.extend(decode_lines(path, lines, first + low))
            if first + frame.n_rollouts >= start + n:
                break
    return page


def _finished(path: Path, summary: CardSummary | None) -> CardSummary:
    if summary is None:
        raise CardError(f"{path}: the card is not finished and has no summary yet; resume its evaluation")
    return summary


def _open_rollouts(path: Path, start: int) -> Iterator[ScoredRollout]:
    for number, line in open_lines(path, start):
        yield folder.decode_line(line, f"{path / folder.OPEN_ROLLOUTS}:{number + 1}")
