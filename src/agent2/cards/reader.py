"""Reads rollout cards.

Promises: reading never changes a card; a page of a closed card opens without reading the rest, and one rollout by
its id without reading the other frames; a frame whose bytes do not match its digest is never returned as data.

A rollout told turn by turn: what the model saw, wrote and got back, and the verdict at the end.

The replay shows what is on the card and nothing else; it needs no model and no environment. Does NOT play the
actions again: `agent2 tasks check` does that for a task's environment.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent2.cards import folder
from agent2.cards.aggregate import Tally, counted_value
from agent2.cards.card import CardFile, CardHeader, CardSummary, ReportingRule
from agent2.cards.frames import closed_file, closed_lines, decode_lines, first_lines, frame_lines, open_lines
from agent2.cards.validate import validate_card as validate_card
from agent2.errors import CardError
from agent2.records import JsonValue, ScoredRollout, StopReason, canonical_json

CARD_FILE = folder.CARD_JSON
"""The file that makes a folder a card."""


def read_header(path: Path) -> CardHeader:
    """What was evaluated and how. Raises CardError if there is no readable card."""
    return folder.load_card(path).header


def read_summary(path: Path) -> CardSummary:
    """The numbers of a closed card, with the lists, for which every rollout is read.

    Raises CardError for an open card (summarize its rollouts instead) and for a damaged one.
    """
    card = folder.load_card(path)
    totals = _finished(path, card.summary)
    if not card.parts:  # the first format: the lists are there already
        return totals
    tally = Tally(card.header.reporting)
    for record in iter_rollouts(path):
        tally.add(record)
    return tally.with_lists(totals)


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

    attempt: only that one. A closed card is read where the id belongs; an open one and one of an older format, which
    are not sorted, are read through. Raises CardError for a damaged frame or line.
    """
    card = folder.load_card(path)
    name = msgspec.json.encode(item_id)  # as our writer spells it
    found = []
    for line, text in _lines_near(path, card, item_id):
        if name in text:
            record = folder.decode_line(text, f"{path}: rollout {line + 1}")
            if record.rollout.item_id == item_id and attempt in (None, record.rollout.attempt):
                found.append((line, record))
    return sorted(found, key=lambda pair: pair[1].rollout.attempt)


def _lines_near(path: Path, card: CardFile, item_id: str) -> Iterator[tuple[int, bytes]]:
    """Every line that may be of the item, with its number from 0."""
    if card.state == "open":
        yield from open_lines(path)
        return
    firsts = [frame.first for frame in card.frames]
    low, high = 0, len(firsts)
    if folder.TABLE in card.parts:
        low, high = max(bisect_left(firsts, item_id) - 1, 0), bisect_right(firsts, item_id)
    begins = first_lines(card)
    file, stream = closed_file(path, card)
    with stream:
        for number in range(low, high):
            yield from enumerate(frame_lines(file, stream, number, card.frames[number]), start=begins[number])


def _page(path: Path, card: CardFile, start: int, n: int) -> list[ScoredRollout]:
    page: list[ScoredRollout] = []
    file, stream = closed_file(path, card)
    with stream:
        for number, (first, frame) in enumerate(zip(first_lines(card), card.frames, strict=True)):
            low, high = max(start - first, 0), min(start + n - first, frame.n_rollouts)
            if low < high:
                lines = frame_lines(file, stream, number, frame)[low:high]
                page.extend(decode_lines(file, lines, first + low))
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


WHO_SEES = "prompt"


@dataclass(frozen=True, slots=True)
class ReplayScene:
    """One thing that happened."""

    title: str
    """`turn 3 of 7: model`, `turn 3 of 7: environment`, `verdict`."""
    text: str


def scenes(record: ScoredRollout, rule: ReportingRule) -> Iterator[ReplayScene]:
    """The rollout in order: prompt, each message and its reply, final state, verdict and what counts under the rule."""
    rollout = record.rollout
    for message in rollout.prompt:
        yield ReplayScene(f"{WHO_SEES}: {message.role}", message.content)
    n_turns = len(rollout.turns)
    for number, turn in enumerate(rollout.turns, start=1):
        tokens = f"{turn.prompt_tokens} + {turn.completion_tokens} tokens"
        cut = ", cut off at the token limit" if turn.stop_reason is StopReason.LENGTH else ""
        yield ReplayScene(f"turn {number} of {n_turns}: model ({tokens}{cut})", turn.action)
        if turn.observation is not None:
            yield ReplayScene(f"turn {number} of {n_turns}: environment", turn.observation)
    if rollout.state:
        yield ReplayScene("final state", _told(rollout.state))
    yield ReplayScene("verdict", "\n".join(_verdict(record, rule)))


def _verdict(record: ScoredRollout, rule: ReportingRule) -> Iterator[str]:
    rollout, score = record.rollout, record.score
    yield f"status: {rollout.status.value}" + (f" ({rollout.reason})" if rollout.reason else "")
    fault = rollout.fault or score.fault
    if fault is not None:
        yield f"fault: {fault.value}"
    if rollout.retries:
        yield f"restarted {rollout.retries} times"
    value = "missing" if score.value is None else f"{score.value:g}"
    yield f"score: {value}: {score.reason}"
    counted = counted_value(record, rule)
    yield "counts as: " + ("missing" if counted is None else f"{counted:g}") + " under the card's rule"
    if score.views:
        yield "views: " + ", ".join(f"{name} {_number(view)}" for name, view in sorted(score.views.items()))
    if score.labels:
        yield "badcase classes: " + ", ".join(score.labels)
    usage = rollout.usage
    yield f"cost: {usage.prompt_tokens} + {usage.completion_tokens} tokens, {usage.seconds:.2f} s"


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:g}"


def _told(state: Mapping[str, JsonValue]) -> str:
    return "\n".join(f"{key}: {canonical_json(value).decode()}" for key, value in state.items())
