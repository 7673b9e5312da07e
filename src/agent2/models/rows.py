"""Which request runs in which slot of the key-value cache, and which tokens each slot holds (the prefix cache).

Row r of every array belongs to slot r. A row is running, parked (its request is done, its keys are kept for a
prompt that continues from there) or free. A decoding step takes rows 0 to n - 1, so `compact` has to bring the
running ones there first; a row whose request continues at once never moves. Pure numpy; no step over a running
batch does Python work for each row.

A conversation sends its whole history with every turn. The slot of the previous turn is parked, not cleared; a
prompt that begins with the parked tokens continues in that slot (`assign_slots`), and only its other tokens are
computed. Prefixes are compared by token ids, whether a prompt came as messages or as ids, and regardless of its sender.

Promises: a slot is continued at the longest common prefix and never past it, so the tokens before that point are
exactly the prompt's own. Parked slots take no memory of their own: they are slots of requests that once ran at the
same time, and the one parked longest ago is reused first. Does NOT look at slots that are still running.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from agent2.models.slots import BatchSampling, SampledTokens, SlotSwap, seed_key, uniforms
from agent2.records import SamplingSettings

MIN_HISTORY = 64
MIN_REUSED = 8
"""A shorter common prefix is computed again: every conversation begins with the same few tokens."""
MIN_COPIED = 24
"""The same for a prefix that would have to be copied from another slot."""
MIN_SHARE = 0.5
"""A slot is continued in place if at least this share of its tokens is reused; else its first tokens are copied to
another slot."""

NumberT = TypeVar("NumberT", bound=np.generic)

RowIndex = slice | NDArray[np.int64]
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
    """The tokens sampled for one row so far."""

    tokens: list[int]
    logprobs: list[float]


class Rows:
    """Running, parked and free rows; `n` of them run."""

    def __init__(self, capacity: int) -> None:
        self.n = 0
        self.peak = 0
        """Most rows that ever ran at once: parked ones take no memory beyond that."""
        self._requests: list[Request | None] = [None] * capacity
        self.is_running = np.zeros(capacity, dtype=np.bool_)
        self.parked_at = np.zeros(capacity, dtype=np.int64)
        """When a row was parked, counted in rows parked so far; 0: it is not."""
        self.lengths = np.zeros(capacity, dtype=np.int64)
        """Tokens in the key-value cache; also the position of the token that is fed next."""
        self.tokens = np.zeros((capacity, MIN_HISTORY), dtype=np.int64)
        """Prompt and sampled tokens by position; those before `lengths` are in the cache."""
        self.last = np.zeros(capacity, dtype=np.int64)
        """The token sampled last, fed next."""
        self.counts = np.zeros(capacity, dtype=np.int64)
        """Tokens sampled."""
        self._limits = np.zeros(capacity, dtype=np.int64)
        self._keys = np.zeros(capacity, dtype=np.uint64)
        self._temperatures = np.zeros(capacity, dtype=np.float32)
        self._top_ps = np.zeros(capacity, dtype=np.float32)
        self._logprobs = np.zeros((capacity, MIN_HISTORY), dtype=np.float64)
        self._index = np.arange(capacity)
        self._n_parked_ever = 0

    def request(self, row: int) -> Request:
        """The request that a running row serves."""
        request = self._requests[row]
        assert request is not None, f"row {row} is not running"
        return request

    def parked(self) -> NDArray[np.int64]:
        """The parked rows, the one parked first in front."""
        rows = np.flatnonzero(self.parked_at)
        return rows[np.argsort(self.parked_at[rows])]

    def free(self) -> NDArray[np.int64]:
        """The rows that neither run nor are parked, among as many as ever ran at once."""
        return np.flatnonzero(~self.is_running[: self.peak] & (self.parked_at[: self.peak] == 0))

    def start(self, row: int, request: Request) -> None:
        """Run a request in a free or parked row; its whole prompt has to be in the cache before the first sample."""
        n_tokens = len(request.tokens)
        if n_tokens >= self.tokens.shape[1]:
            self.tokens = _widened(self.tokens, max(n_tokens + 1, 3 * self.tokens.shape[1] // 2))
        self.n += 1
        self.peak = max(self.peak, self.n, row + 1)
        self._requests[row] = request
        self.is_running[row] = True
        self.parked_at[row] = 0
        self.lengths[row] = n_tokens
        self.tokens[row, :n_tokens] = request.tokens
        self.counts[row] = 0
        self._limits[row] = request.limit
        self._keys[row] = seed_key(request.settings.seed)
        self._temperatures[row] = request.settings.model_temperature
        self._top_ps[row] = request.settings.model_top_p

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

    def compact(self) -> list[SlotSwap]:
        """Bring the running rows to 0 .. n - 1; returns the slots that have to be swapped in the cache as well."""
        if self.is_running[: self.n].all():
            return []
        holes = np.flatnonzero(~self.is_running[: self.n])
        strays = np.flatnonzero(self.is_running[self.n :]) + self.n
        swaps = []
        for hole, stray in zip(holes.tolist(), strays.tolist(), strict=True):
            # A free hole holds nothing; a parked one goes to the stray's slot, and its keys have to go with it.
            n_columns = self.lengths[stray] if self.parked_at[hole] == 0 else max(self.lengths[[hole, stray]])
            swaps.append(SlotSwap(hole, stray, int(n_columns)))
            self._swap(hole, stray)
        return swaps

    def numbers(self, rows: RowIndex) -> NDArray[np.float64]:
        """The next uniform number of each row."""
        return uniforms(self._keys[rows], self.counts[rows])

    def batch_sampling(self, rows: RowIndex, device: torch.device) -> BatchSampling:
        """How the next token of each row is sampled."""
        temperatures, top_ps = self._temperatures[rows], self._top_ps[rows]
        is_greedy = temperatures == 0
        any_greedy = bool(is_greedy.any())
        if any_greedy and is_greedy.all():
            return BatchSampling(all_greedy=True)
        scales = np.where(is_greedy, np.float32(1), temperatures)
        return BatchSampling(
            temperatures=None if (scales == 1).all() else torch.from_numpy(scales).to(device),
            top_ps=None if (top_ps == 1).all() else torch.from_numpy(top_ps.copy()).to(device),
            is_greedy=torch.from_numpy(is_greedy).to(device) if any_greedy else None,
        )

    def record(self, rows: RowIndex, sampled: SampledTokens, is_end: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Append one token to each of the rows; returns the rows that are done.

        is_end: for each token id, whether it ends a completion.
        """
        index, counts, positions = self._index[rows], self.counts[rows], self.lengths[rows]
        if (newest := int(counts.max())) >= self._logprobs.shape[1]:
            self._logprobs = _widened(self._logprobs, 2 * newest)
        if (furthest := int(positions.max())) >= self.tokens.shape[1]:
            self.tokens = _widened(self.tokens, 3 * furthest // 2)
        self.tokens[index, positions] = sampled.tokens
        self._logprobs[index, counts] = sampled.logprobs
        self.last[rows] = sampled.tokens
        self.counts[rows] += 1
        done = is_end[sampled.tokens] | (self.counts[rows] >= self._limits[rows]) | np.isnan(sampled.logprobs)
        return index[done]

    def generated(self, row: int) -> Generated:
        """The tokens sampled for one row and their log-probabilities."""
        n_sampled = int(self.counts[row])
        end = int(self.lengths[row]) + 1
        return Generated(self.tokens[row, end - n_sampled : end].tolist(), self._logprobs[row, :n_sampled].tolist())

    def _swap(self, first: int, second: int) -> None:
        pair, swapped = [first, second], [second, first]
        for values in (self.is_running, self.parked_at, self.lengths, self.last, self.counts, self._limits, self._keys):
            values[pair] = values[swapped]
        for reals in (self._temperatures, self._top_ps):
            reals[pair] = reals[swapped]
        self.tokens[pair] = self.tokens[swapped]
        self._logprobs[pair] = self._logprobs[swapped]
        self._requests[first], self._requests[second] = self._requests[second], self._requests[first]


def _widened(values: NDArray[NumberT], columns: int) -> NDArray[NumberT]:
    return np.pad(values, ((0, 0), (0, columns - values.shape[1])))


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """The slot that a request runs in."""

    request: Request
    row: int
    n_cached: int
    """How many of the prompt's first tokens are not computed: fewer than it has, 0 or at least `MIN_REUSED`."""
    copied_from: int | None = None
    """The slot whose first `n_cached` tokens have to be copied; None: they are in `row`. Copy in the order of the
    assignments."""


def assign_slots(rows: Rows, requests: Sequence[Request]) -> list[SlotAssignment]:
    """Choose a row for each request and start it there; there must be enough rows for all of them.

    Returns assignments in the order in which their copies have to be made, all of them before anything is computed.
    """
    parked = rows.parked()
    prompts = [np.array(request.tokens, dtype=np.int64) for request in requests]
    prefixes = _ParkedPrefixes(rows, parked)
    assignments: dict[int, SlotAssignment] = {}
    # Requests that continue a whole parked row choose first: no other request may truncate that row.
    for i, prompt in enumerate(prompts):
        if (row := prefixes.claim_whole(prompt)) is not None:
            assignments[i] = SlotAssignment(requests[i], row, min(int(rows.lengths[row]), len(prompt) - 1))
    copy_sources: dict[int, tuple[int, int]] = {}
    for i, prompt in enumerate(prompts):
        if i not in assignments:
            row, n_common = prefixes.longest(prompt)
            if n_common >= MIN_REUSED and n_common >= MIN_SHARE * rows.lengths[row] and prefixes.claim(row):
                assignments[i] = SlotAssignment(requests[i], row, n_common)
            elif n_common >= MIN_COPIED:
                copy_sources[i] = (row, n_common)
    open_rows = _open_rows(rows, [row for row in parked.tolist() if not prefixes.is_claimed(row)], len(requests))
    overwritten: set[int] = set()
    for i, request in enumerate(requests):
        if i not in assignments:
            row = next(open_rows)
            source, n_common = copy_sources.get(i, (row, 0))
            # Copies are made in the order of the assignments, so a source that an earlier one overwrote is lost.
            n_cached = 0 if source in overwritten else n_common
            assignments[i] = SlotAssignment(request, row, n_cached, source if n_cached and source != row else None)
            if assignments[i].copied_from is not None:
                overwritten.add(row)
    for assignment in assignments.values():
        rows.start(assignment.row, assignment.request)
    return list(assignments.values())


def _open_rows(rows: Rows, unclaimed: Sequence[int], n_requests: int) -> Iterator[int]:
    """Free rows among those ever in use, then new rows, then parked rows, the one parked longest ago first."""
    yield from rows.free().tolist()
    end = max(rows.peak, rows.n + n_requests)
    yield from range(rows.peak, end)
    yield from unclaimed


class _ParkedPrefixes:
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
        # Comparing the last and the middle token first leaves few rows whose tokens have to be compared in full.
        at_most = np.minimum(self._lengths, len(prompt))
        is_likely = (self._lengths <= len(prompt)) & (self._lengths >= MIN_REUSED) & (prompt[at_most - 1] == self._last)
        is_likely &= prompt[np.minimum(self._lengths // 2, len(prompt) - 1)] == self._middle
        candidates = np.flatnonzero(is_likely)
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
        candidates = [int(self._parked[i]) for i in np.flatnonzero(common == best).tolist()]
        return next((row for row in candidates if row not in self._claimed), candidates[0]), int(best)
