"""The bookkeeping of running requests: one row each, kept without gaps, as arrays over rows.

Row r of every array belongs to the request in slot r of the key-value cache. When a request leaves, the last
row moves into its place. Pure numpy; no step over a running batch does Python work for each row.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from agent2.models.draws import Drawn, DrawSettings, seed_key, uniforms
from agent2.records import SamplingSettings

MIN_HISTORY = 64


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt that can be run as it stands."""

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


class Rows:
    """Running requests; `n` of them, in rows 0 to n - 1."""

    def __init__(self, capacity: int) -> None:
        self.n = 0
        self.requests: list[Request] = []
        self.lengths = np.zeros(capacity, dtype=np.int64)
        """Tokens in the key-value cache; also the position of the token that is fed next."""
        self.last = np.zeros(capacity, dtype=np.int64)
        """The token drawn last, fed next."""
        self.counts = np.zeros(capacity, dtype=np.int64)
        """Tokens drawn."""
        self._limits = np.zeros(capacity, dtype=np.int64)
        self._keys = np.zeros(capacity, dtype=np.uint64)
        self._temperatures = np.zeros(capacity, dtype=np.float32)
        self._top_ps = np.zeros(capacity, dtype=np.float32)
        self._tokens = np.zeros((capacity, MIN_HISTORY), dtype=np.int64)
        self._logprobs = np.zeros((capacity, MIN_HISTORY), dtype=np.float64)
        self._index = np.arange(capacity)

    def add(self, request: Request) -> int:
        """Start a row; returns its number."""
        row = self.n
        self.n += 1
        self.requests.append(request)
        self.lengths[row] = len(request.tokens)
        self.counts[row] = 0
        self._limits[row] = request.limit
        self._keys[row] = seed_key(request.settings.seed)
        self._temperatures[row] = request.settings.temperature
        self._top_ps[row] = request.settings.top_p
        return row

    def remove(self, row: int) -> int:
        """End a row; returns the number of the row that has to move into its place (itself if none has to)."""
        moved = self.n - 1
        self.n = moved
        self.requests[row] = self.requests[moved]
        self.requests.pop()
        if moved != row:
            for values in (self.lengths, self.last, self.counts, self._limits, self._keys):
                values[row] = values[moved]
            self._temperatures[row], self._top_ps[row] = self._temperatures[moved], self._top_ps[moved]
            used = self.counts[moved]
            self._tokens[row, :used] = self._tokens[moved, :used]
            self._logprobs[row, :used] = self._logprobs[moved, :used]
        return moved

    def numbers(self, start: int) -> NDArray[np.float64]:
        """The next uniform number of each row from `start` on."""
        return uniforms(self._keys[start : self.n], self.counts[start : self.n])

    def draw_settings(self, start: int, device: torch.device) -> DrawSettings:
        """How the rows from `start` on are drawn."""
        temperatures, top_ps = self._temperatures[start : self.n], self._top_ps[start : self.n]
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

    def record(self, start: int, drawn: Drawn, is_end: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Note one token for each row from `start` on; returns the rows that are done, the highest first.

        is_end: for each token id, whether it ends a completion.
        """
        rows, counts = slice(start, self.n), self.counts[start : self.n]
        newest = int(counts.max())
        if newest >= self._tokens.shape[1]:
            self._widen(2 * newest)
        self._tokens[self._index[rows], counts] = drawn.tokens
        self._logprobs[self._index[rows], counts] = drawn.logprobs
        self.last[rows] = drawn.tokens
        counts += 1
        done = is_end[drawn.tokens] | (counts >= self._limits[rows]) | np.isnan(drawn.logprobs)
        return np.flatnonzero(done)[::-1] + start

    def generated(self, row: int) -> Generated:
        """The tokens drawn for one row and their log-probabilities."""
        used = self.counts[row]
        return Generated(self._tokens[row, :used].tolist(), self._logprobs[row, :used].tolist())

    def _widen(self, columns: int) -> None:
        more = columns - self._tokens.shape[1]
        self._tokens = np.pad(self._tokens, ((0, 0), (0, more)))
        self._logprobs = np.pad(self._logprobs, ((0, 0), (0, more)))
