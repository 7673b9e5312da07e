"""Checks a card: every byte against its digests, every number against the rollouts.

Promises: reports everything it finds instead of stopping at the first problem, each with the file and the rollout,
where one can be told. Changes nothing.

Does NOT cover: lines of an open card that were written since it was last released carry no checksum yet, so that a
changed byte that still makes a rollout is found only if the writer itself closes the card; whoever can rewrite data
and digests together is not caught.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path

from agent2.cards import folder
from agent2.cards.aggregate import Tally
from agent2.cards.card import CardFile, CardSummary
from agent2.cards.frames import closed_file, first_lines, frame_lines, read_sums, sum_of
from agent2.errors import CardError
from agent2.records import ScoredRollout

TOLERANCE = 1e-9


def validate_card(path: Path, *, columns: bool = True) -> list[str]:
    """Problems of a card, one sentence each, with the frame or line; empty if there are none.

    Checks the digests of header and protocol, every frame and rollout, that each attempt comes once and in order, that
    the plan is complete, the files beside `card.json`, that the columns of the table are what its records give, and,
    unless the header with its reporting rule was changed, that the totals are what the rollouts give. columns: False
    parses nothing of the table but its records.
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
    tally = Tally(card.header.reporting)
    damage = _open_damage(path, tally) if card.state == "open" else _closed_damage(path, card, tally)
    problems += damage
    planned = card.header.planned_rollouts
    if not damage and card.state == "closed":
        if planned is not None and planned != tally.n_rollouts:
            problems.append(f"{path}: contains {tally.n_rollouts} of {planned} planned rollouts")
        if columns and folder.TABLE in card.parts:
            from agent2.cards.tables import table_problems  # loads pyarrow

            problems += table_problems(path, card)
        if header_digest == card.header_digest:
            problems += _summary_problems(path, card, tally.summary())
    return problems


def summary_differences(stored: CardSummary, recomputed: CardSummary) -> list[str]:
    """Fields in which two summaries differ; numbers may differ by float noise, and lists may not be stored."""
    if not stored.item_scores:
        recomputed = folder.totals_of(recomputed)
    return [
        spec.name
        for spec in fields(CardSummary)
        if not _is_same(getattr(stored, spec.name), getattr(recomputed, spec.name))
    ]


def _open_damage(path: Path, tally: Tally) -> list[str]:
    problems: list[str] = []
    file = path / folder.OPEN_ROLLOUTS
    if not file.exists():
        return [f"{file}: is missing"]
    try:
        sums = read_sums(path)
    except CardError as error:
        return [str(error)]
    number = 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file}:{number}"
            if not line.endswith(b"\n"):
                problems.append(f"{where}: the last line is torn ({len(line)} bytes); resuming the card cuts it")
                continue
            if number <= len(sums) and sum_of(line) != sums[number - 1]:
                problems.append(f"{where}: was changed since it was written; restore the file from a copy")
            problems += _add(tally, line, where)[1]
    if number < len(sums):
        problems.append(f"{file}: {len(sums) - number} lines at the end are gone; resuming the card plays them again")
    return problems


def _closed_damage(path: Path, card: CardFile, tally: Tally) -> list[str]:
    problems: list[str] = []
    try:
        file, stream = closed_file(path, card)
    except CardError as error:
        return [str(error)]
    is_sorted = folder.TABLE in card.parts
    last: tuple[str, int] = ("", -1)
    with stream:
        for number, (first, frame) in enumerate(zip(first_lines(card), card.frames, strict=True)):
            try:
                lines = frame_lines(file, stream, number, frame)
            except CardError as error:
                problems.append(f"{error} (rollouts {first + 1} to {first + frame.n_rollouts})")
                continue
            for place, line in enumerate(lines):
                where = f"{file}: rollout {first + place + 1}"
                record, found = _add(tally, line, where)
                problems += found
                if record is not None and is_sorted:
                    here = (record.rollout.item_id, record.rollout.attempt)
                    if here < last or (place == 0 and frame.first != here[0]):
                        problems.append(
                            f"{where}: is not in the order of items and attempts that {folder.CARD_JSON} names"
                        )
                    last = here
    for name in () if problems else card.parts:  # a damaged frame says more than the digest of the file
        try:
            folder.require_part(path, card, name)
        except CardError as error:
            problems.append(str(error))
    return problems


def _add(tally: Tally, line: bytes, where: str) -> tuple[ScoredRollout | None, list[str]]:
    """The rollout, counted, and what is wrong with its line."""
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
