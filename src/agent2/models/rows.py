"""Which request runs in which slot of the key-value cache.

The bookkeeping of the slots of the key-value cache: which request runs in each, which tokens each one holds.

Row r of every array belongs to slot r. A row is running, parked (its request is done, its keys are kept for a
prompt that continues from there) or free. A decoding step takes rows 0 to n - 1, so `compact` has to bring the
running ones there first; a row whose request continues at once never moves. Pure numpy; no step over a running
batch does Python work for each row.

Prefix cache: a new request reuses the cache slot whose tokens its prompt begins with.

A conversation sends its whole history with every turn. The slot of the previous turn is parked, not cleared; a
prompt that begins with the parked tokens continues in that slot, and only its other tokens are computed. Prefixes
are compared by token ids, whether a prompt came as messages or as ids, and whoever sent it.

Promises: a slot is continued at the longest common prefix and never past it, so the tokens before that point are
exactly the prompt's own. Parked slots take no memory of their own: they are slots of requests that once ran at the
same time, and the one parked longest ago gives way. Does NOT look at slots that are still running.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from agent2.models.slots import Drawn, DrawSettings, seed_key, uniforms
from agent2.records import SamplingSettings

MIN_HISTORY = 64

NumberT = TypeVar("NumberT", bound=np.generic)

Which = slice | NDArray[np.int64]
"""Some rows: a range of them, or their numbers in any order."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt that can be run unchanged."""

    id: int
    tokens: tuple[int, ...]
    limit: int
    """Most new tokens: the settings' maximum or what the context leaves."""
    settings: SamplingSettings


@dataclass(frozen=True, slots=True)
class Generated:
    """What one row has drawn so far."""

    tokens: list[int]
    logprobs: list[float]


@dataclass(frozen=True, slots=True)
class ChatExchange:
    """Two slots that have to change places in the cache."""

    first: int
    second: int
    n_columns: int
    """How many positions matter."""


class Rows:
    """Running, parked and free rows; `n` of them run."""

    def __init__(self, capacity: int) -> None:
        self.n = 0
        self.most = 0
        """Most rows that ever ran at once: parked ones take no room beyond that."""
        self._requests: list[Request | None] = [None] * capacity
        self.is_running = np.zeros(capacity, dtype=np.bool_)
        self.parked_at = np.zeros(capacity, dtype=np.int64)
        """When a row was parked, counted in rows parked so far; 0: it is not."""
        self.lengths = np.zeros(capacity, dtype=np.int64)
        """Tokens in the key-value cache; also the position of the token that is fed next."""
        self.tokens = np.zeros((capacity, MIN_HISTORY), dtype=np.int64)
        """Prompt and drawn tokens by position; those before `lengths` are in the cache."""
        self.last = np.zeros(capacity, dtype=np.int64)
        """The token drawn last, fed next."""
        self.counts = np.zeros(capacity, dtype=np.int64)
        """Tokens drawn."""
        self._limits = np.zeros(capacity, dtype=np.int64)
        self._keys = np.zeros(capacity, dtype=np.uint64)
        self._temperatures = np.zeros(capacity, dtype=np.float32)
        self._top_ps = np.zeros(capacity, dtype=np.float32)
        self._logprobs = np.zeros((capacity, MIN_HISTORY), dtype=np.float64)
        self._index = np.arange(capacity)
        self._n_parked_ever = 0

    def request(self, row: int) -> Request:
        """What a running row was asked."""
        request = self._requests[row]
        assert request is not None, f"row {row} is not running"
        return request

    def parked(self) -> NDArray[np.int64]:
        """The parked rows, the one parked first in front."""
        rows = np.flatnonzero(self.parked_at)
        return rows[np.argsort(self.parked_at[rows])]

    def free(self) -> NDArray[np.int64]:
        """The rows that neither run nor are parked, among as many as ever ran at once."""
        return np.flatnonzero(~self.is_running[: self.most] & (self.parked_at[: self.most] == 0))

    def start(self, row: int, request: Request) -> None:
        """A free or parked row begins to run a request, whose whole prompt will be in the cache by the first draw."""
        n_tokens = len(request.tokens)
        if n_tokens >= self.tokens.shape[1]:
            self.tokens = _widened(self.tokens, max(n_tokens + 1, 3 * self.tokens.shape[1] // 2))
        self.n += 1
        self.most = max(self.most, self.n, row + 1)
        self._requests[row] = request
        self.is_running[row] = True
        self.parked_at[row] = 0
        self.lengths[row] = n_tokens
        self.tokens[row, :n_tokens] = request.tokens
        self.counts[row] = 0
        self._limits[row] = request.limit
        self._keys[row] = seed_key(request.settings.seed)
        self._temperatures[row] = request.settings.temperature
        self._top_ps[row] = request.settings.top_p

    def park(self, row: int) -> None:
        """End a running row and keep what the cache holds of it."""
        self.drop(row)
        self._n_parked_ever += 1
        self.parked_at[row] = self._n_parked_ever

    def drop(self, row: int) -> None:
        """A running or parked row becomes free."""
        self.n -= int(self.is_running[row])
        self.is_running[row] = False
        self.parked_at[row] = 0
        self._requests[row] = None

    def compact(self) -> list[ChatExchange]:
        """Bring the running rows to 0 .. n - 1; returns what has to change places in the cache as well."""
        if self.is_running[: self.n].all():
            return []
        holes = np.flatnonzero(~self.is_running[: self.n])
        strays = np.flatnonzero(self.is_running[self.n :]) + self.n
        exchanges = []
        for hole, stray in zip(holes.tolist(), strays.tolist(), strict=True):
            used = self.lengths[stray] if self.parked_at[hole] == 0 else max(self.lengths[hole], self.lengths[stray])
            exchanges.append(ChatExchange(hole, stray, int(used)))
            self._exchange(hole, stray)
        return exchanges

    def numbers(self, rows: Which) -> NDArray[np.float64]:
        """The next uniform number of each row."""
        return uniforms(self._keys[rows], self.counts[rows])

    def draw_settings(self, rows: Which, device: torch.device) -> DrawSettings:
        """How the rows are drawn."""
        temperatures, top_ps = self._temperatures[rows], self._top_ps[rows]
        is_greedy = temperatures == 0
        any_greedy = bool(is_greedy.any())
        if any_greedy and is_greedy.all():
            return DrawSettings(all_greedy=True)
        scales = np.where(is_greedy, np.float32(1), temperatures)
        return DrawSettings(
            temperatures=None if (scales == 1).all() else torch.from_numpy(scales).to(device),
            top_ps=None if (top_ps == 1).all() else torch.from_numpy(top_ps.copy()).to(device),
            is_greedy=torch.from_numpy(is_greedy).to(device) if any_greedy else None,
        )

    def record(self, rows: Which, drawn: Drawn, is_end: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Note one token for each of the rows; returns the rows that are done.

        is_end: for each token id, whether it ends a completion.
        """
        index, counts, positions = self._index[rows], self.counts[rows], self.lengths[rows]
        if (newest := int(counts.max())) >= self._logprobs.shape[1]:
            self._logprobs = _widened(self._logprobs, 2 * newest)
        if (furthest := int(positions.max())) >= self.tokens.shape[1]:
            self.tokens = _widened(self.tokens, 3 * furthest // 2)
        self.tokens[index, positions] = drawn.tokens
        self._logprobs[index, counts] = drawn.logprobs
        self.last[rows] = drawn.tokens
        self.counts[rows] += 1
        done = is_end[drawn.tokens] | (self.counts[rows] >= self._limits[rows]) | np.isnan(drawn.logprobs)
        return index[done]

    def generated(self, row: int) -> Generated:
        """The tokens drawn for one row and their log-probabilities."""
        used = int(self.counts[row])
        end = int(self.lengths[row]) + 1
        return Generated(self.tokens[row, end - used : end].tolist(), self._logprobs[row, :used].tolist())

    def _exchange(self, first: int, second: int) -> None:
        pair, other = [first, second], [second, first]
        for values in (self.is_running, self.parked_at, self.lengths, self.last, self.counts, self._limits, self._keys):
            values[pair] = values[other]
        for reals in (self._temperatures, self._top_ps):
            reals[pair] = reals[other]
        self.tokens[pair] = self.tokens[other]
        self._logprobs[pair] = self._logprobs[other]
        self._requests[first], self._requests[second] = self._requests[second], self._requests[first]


def _widened(values: NDArray[NumberT], columns: int) -> NDArray[NumberT]:
    return np.pad(values, ((0, 0), (0, columns - values.shape[1])))


MIN_KEPT = 8
"""A shorter common prefix is computed again: every conversation begins with the same few tokens."""
MIN_COPIED = 24
"""The same for a prefix that would have to be copied from another slot."""
LEAST_SHARE = 0.5
"""A slot is continued in its place if so much of it is kept; else its first tokens are copied to another one."""


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """The slot that a request gets."""

    request: Request
    row: int
    kept: int
    """So many of the prompt's first tokens are not computed: fewer than it has, 0 or at least `MIN_KEPT`."""
    copied_from: int | None = None
    """The slot whose first `kept` tokens have to be copied; None: they are in `row`. Copy in the order of places."""


def place_requests(rows: Rows, requests: Sequence[Request]) -> list[SlotPlace]:
    """Give each request a row and start it there; there must be room for them all.

    Returns places in the order in which their copies have to be made, all of them before anything is computed.
    """
    parked = rows.parked()
    prompts = [np.array(request.tokens, dtype=np.int64) for request in requests]
    lookup = _Lookup(rows, parked)
    places: dict[int, SlotPlace] = {}
    for i, prompt in enumerate(prompts):
        if (row := lookup.claim_whole(prompt)) is not None:
            places[i] = SlotPlace(requests[i], row, min(int(rows.lengths[row]), len(prompt) - 1))
    begun: dict[int, tuple[int, int]] = {}
    for i, prompt in enumerate(prompts):
        if i not in places:
            row, n_common = lookup.longest(prompt)
            if n_common >= MIN_KEPT and n_common >= LEAST_SHARE * rows.lengths[row] and lookup.claim(row):
                places[i] = SlotPlace(requests[i], row, n_common)
            elif n_common >= MIN_COPIED:
                begun[i] = (row, n_common)
    open_rows = _open_rows(rows, [row for row in parked.tolist() if not lookup.is_claimed(row)], len(requests))
    copied_over: set[int] = set()
    for i, request in enumerate(requests):
        if i not in places:
            row = next(open_rows)
            source, n_common = begun.get(i, (row, 0))
            kept = 0 if source in copied_over else n_common
            places[i] = SlotPlace(request, row, kept, source if kept and source != row else None)
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
    """Parked rows that are not claimed yet, by the tokens they hold."""

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
        """Take a row; False if it is taken."""
        if row in self._claimed:
            return False
        self._claimed.add(row)
        return True

    def is_claimed(self, row: int) -> bool:
        """Whether a row is taken."""
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
