"""Prefix cache: a new request reuses the cache slot whose tokens its prompt begins with.

A conversation sends its whole history with every turn. The slot of the previous turn is parked, not cleared; a
prompt that begins with the parked tokens continues in that slot, and only its other tokens are computed. Prefixes
are compared by token ids, whether a prompt came as messages or as ids, and whoever sent it.

Promises: a slot is continued at the longest common prefix and never past it, so the tokens before that point are
exactly the prompt's own. Parked slots take no memory of their own: they are slots of requests that once ran at the
same time, and the one parked longest ago gives way. Does NOT look at slots that are still running.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agent2.models.rows import Request, Rows

MIN_KEPT = 8
"""A shorter common prefix is computed again: every conversation begins with the same few tokens."""
MIN_COPIED = 24
"""The same for a prefix that would have to be copied from another slot."""
LEAST_SHARE = 0.5
"""A slot is continued in its place if so much of it is kept; else its first tokens are copied to another one."""


@dataclass(frozen=True, slots=True)
class Place:
    """The slot that a request gets."""

    request: Request
    row: int
    kept: int
    """So many of the prompt's first tokens are not computed: fewer than it has, 0 or at least `MIN_KEPT`."""
    copied_from: int | None = None
    """The slot whose first `kept` tokens have to be copied; None: they are in `row`. Copy in the order of places."""


def place_requests(rows: Rows, requests: Sequence[Request]) -> list[Place]:
    """Give each request a row and start it there; there must be room for them all.

    Returns places in the order in which their copies have to be made, all of them before anything is computed.
    """
    parked = rows.parked()
    prompts = [np.array(request.tokens, dtype=np.int64) for request in requests]
    lookup = _Lookup(rows, parked)
    places: dict[int, Place] = {}
    for i, prompt in enumerate(prompts):
        if (row := lookup.claim_whole(prompt)) is not None:
            places[i] = Place(requests[i], row, min(int(rows.lengths[row]), len(prompt) - 1))
    begun: dict[int, tuple[int, int]] = {}
    for i, prompt in enumerate(prompts):
        if i not in places:
            row, n_common = lookup.longest(prompt)
            if n_common >= MIN_KEPT and n_common >= LEAST_SHARE * rows.lengths[row] and lookup.claim(row):
                places[i] = Place(requests[i], row, n_common)
            elif n_common >= MIN_COPIED:
                begun[i] = (row, n_common)
    open_rows = _open_rows(rows, [row for row in parked.tolist() if not lookup.is_claimed(row)], len(requests))
    copied_over: set[int] = set()
    for i, request in enumerate(requests):
        if i not in places:
            row = next(open_rows)
            source, n_common = begun.get(i, (row, 0))
            kept = 0 if source in copied_over else n_common
            places[i] = Place(request, row, kept, source if kept and source != row else None)
            if places[i].copied_from is not None:
                copied_over.add(row)
    for place in places.values():
        rows.start(place.row, place.request)
    return list(places.values())


def _open_rows(rows: Rows, unclaimed: Sequence[int], n_requests: int) -> Iterator[int]:
    """Free rows within the room that ever was in use, then more room, then parked rows, the oldest first."""
    yield from rows.free().tolist()
    room = max(rows.most, rows.n + n_requests)
    yield from range(rows.most, room)
    yield from unclaimed


class _Lookup:
    """Parked rows that nobody has claimed yet, by the tokens they hold."""

    def __init__(self, rows: Rows, parked: NDArray[np.int64]) -> None:
        self._parked = parked
        self._lengths = rows.lengths[parked]
        self._longest = int(self._lengths.max(initial=0))
        self._tokens = rows.tokens[parked, : self._longest]
        index = np.arange(len(parked))
        self._last = self._tokens[index, self._lengths - 1] if len(parked) else self._lengths
        self._middle = self._tokens[index, self._lengths // 2] if len(parked) else self._lengths
        self._claimed: set[int] = set()

    def claim(self, row: int) -> bool:
        """Take a row; False if somebody has it."""
        if row in self._claimed:
            return False
        self._claimed.add(row)
        return True

    def is_claimed(self, row: int) -> bool:
        """Whether somebody has taken a row."""
        return row in self._claimed

    def claim_whole(self, prompt: NDArray[np.int64]) -> int | None:
        """Claim the longest unclaimed row of which all tokens begin the prompt; None if there is none."""
        if not len(self._parked):
            return None
        at_most = np.minimum(self._lengths, len(prompt))
        likely = (self._lengths <= len(prompt)) & (self._lengths >= MIN_KEPT) & (prompt[at_most - 1] == self._last)
        likely &= prompt[np.minimum(self._lengths // 2, len(prompt) - 1)] == self._middle
        candidates = np.flatnonzero(likely)
        for i in candidates[np.argsort(-self._lengths[candidates], kind="stable")].tolist():
            row, length = int(self._parked[i]), self._lengths[i]
            if row not in self._claimed and np.array_equal(self._tokens[i, :length], prompt[:length]):
                self._claimed.add(row)
                return row
        return None

    def longest(self, prompt: NDArray[np.int64]) -> tuple[int, int]:
        """The row with the most first tokens in common with the prompt, and how many; the last one is never counted.

        Of equals one that is unclaimed; (-1, 0) if no row is parked.
        """
        width = min(self._longest, len(prompt) - 1)
        if not len(self._parked) or not width:
            return -1, 0
        differs = self._tokens[:, :width] != prompt[:width]
        differs |= np.arange(width)[None] >= self._lengths[:, None]
        common = np.where(differs.any(axis=1), differs.argmax(axis=1), width)
        best = common.max()
        among = [int(self._parked[i]) for i in np.flatnonzero(common == best).tolist()]
        return next((row for row in among if row not in self._claimed), among[0]), int(best)
