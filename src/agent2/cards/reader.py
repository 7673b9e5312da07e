"""Reads rollout cards.

Promises: reading never changes a card; a page of a closed card opens without reading the rest, and one rollout by
its id without reading the other frames; a frame whose bytes do not match its digest is never returned as data.

A rollout told turn by turn: what the model saw, wrote and got back, and the verdict at the end.

The replay shows what is on the card and nothing else; it needs no model and no environment. Does NOT play the
actions again: `agent2 tasks check` does that for a task's environment.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent2.cards import folder
from agent2.cards.aggregate import counted_value
from agent2.cards.card import CardFile, CardHeader, CardSummary, ReportingRule
from agent2.cards.frames import (
    LINE_INDEX,
    closed_file,
    closed_lines,
    decode_lines,
    first_lines,
    lines_with_id,
    open_lines,
    sums_in,
)
from agent2.cards.frames import frame_lines as _frame_lines
from agent2.cards.validate import validate_card as validate_card
from agent2.errors import CardError
from agent2.records import JsonValue, ScoredRollout, StopReason, canonical_json

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
