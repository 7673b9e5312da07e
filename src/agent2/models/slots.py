"""The key-value cache with one slot for each running request, its forward passes, and the sampling of tokens.

Every slot is filled from the left, and each request writes at its own position, so a request that joins or leaves
moves no other request's keys. The model sees the ordinary cache interface of transformers; what one forward pass
writes and reads is set before it:

    cache.begin_prefill(rows, lengths)            whole prompts, padded on the left to the longest
    cache.begin_extend(rows, n_cached, lengths)   more tokens behind the first `n_cached` of each slot, padded likewise
    cache.begin_decode(positions)                 one token for each of the first n slots

What a slot holds stays until it is overwritten, so a prompt that continues it is not computed again. Memory grows
with need, in slots and in columns, and is always zero or a finite past value: a masked column with NaN in it would
still poison its row. Does NOT cover sliding windows, recurrent states or layers that share their keys (see
`loading`).

Forward passes use the ordinary model class with explicit position ids and an explicit mask; where all rows are
equally long no mask is built, which lets attention take its fast path. For very few rows on a CPU, where the Python
of the model class costs more than its numbers, the decoding step is recorded once for a number of rows and columns
(torch.jit.trace, about 0.1 s for a small model) and replayed: at one row of a d128 model 0.35 ms instead of 1.0 ms. A
recording keeps whatever branch Python took, so only architectures that are known to take the same one at every step
are recorded (`ARCHITECTURES`, each tested against `model.generate`), only with weights that this process alone owns,
and only once the recording has reproduced the logits of the ordinary pass.

The t-th sample of a request with seed s is a pure function of (s, t), whatever else is in the batch: a counter goes
through the SplitMix64 mixer (Steele, Lea and Flood 2014, doi:10.1145/2714064.2660195), and the uniform number it
gives picks a token by inverting the cumulative distribution in vocabulary order. Equal logits, seed and counter give
equal tokens, except where float noise of another batch size moves a boundary of the distribution across the uniform
number (about one sample in 10^5).

Axes: R slots, C columns (positions), n running rows, S = span of columns in use, H heads, D head size, V vocabulary.
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

_log = logging.getLogger(__name__)

MIN_COLUMNS = 128
ARCHITECTURES = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "GPT2LMHeadModel"})
"""Dense models without branches that depend on the data."""
ROPE_TYPES = frozenset({"default", "linear", "llama3"})
"""Rotary embeddings whose frequencies do not depend on the position reached."""
MAX_ROWS = 16
"""With more rows the numbers cost more than the Python."""
MAX_WASTE = 4096
"""A recording computes over every reserved column of each row; with more unused ones in all it does not pay."""
PATIENCE = 24
"""Steps of one shape before it is recorded; recording costs about as much as a hundred ordinary steps."""
RUNS_BEFORE_USE = 3
"""The runtime rewrites a recording during its first runs; judge it after that."""
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class BatchSampling:
    """How each of n rows is sampled. None for a field: no row needs it, which saves the work."""

    temperatures: Tensor | None = None
    """n; 1.0 for greedy rows. None: all are 1."""
    top_ps: Tensor | None = None
    """n, above 0. None: all are 1."""
    is_greedy: Tensor | None = None
    """n booleans. None: no row is greedy."""
    all_greedy: bool = False


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One token for each of n rows."""

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    """Under the distribution the token was sampled from; for a greedy row under the model's own, at temperature 1.
    NaN where the logits of the row are not all usable numbers."""


@dataclass(frozen=True, slots=True)
class SlotSwap:
    """Two slots whose contents have to be exchanged in the cache."""

    first: int
    second: int
    n_columns: int
    """How many positions matter."""


def seed_key(seed: int) -> np.uint64:
    """Spread a seed over 64 bits, so that neighbouring seeds have unrelated streams."""
    return np.uint64(_mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64))[0])


def uniforms(keys: NDArray[np.uint64], counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Numbers in [0, 1) with 53 random bits, one for each pair of a key from `seed_key` and a counter >= 0."""
    bits = _mix(keys + (counters.astype(np.uint64) + np.uint64(1)) * _GAMMA)
    return (bits >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)


def sample_tokens(logits: Tensor, numbers: NDArray[np.float64], settings: BatchSampling) -> SampledTokens:
    """Draw one token for each row of logits.

    logits: n x V, any float type. numbers: n uniform numbers from [0, 1). One wait for the device.
    """
    logits = logits.float()
    if settings.temperatures is not None:
        logits = logits / settings.temperatures[:, None]
    probs = torch.softmax(logits, dim=-1)
    if settings.all_greedy:
        chosen = logits.argmax(dim=-1, keepdim=True)
        return _to_host(chosen, probs.gather(1, chosen).log())
    nucleus = probs if settings.top_ps is None else _nucleus(probs, settings.top_ps)
    cumulative = nucleus.cumsum(dim=-1, dtype=torch.float64)  # in float32 the tail of a large vocabulary would be lost
    total = cumulative[:, -1:]
    points = torch.from_numpy(numbers).to(logits.device, non_blocking=True)[:, None] * total
    # Inverting the cumulative distribution; rounding can put a point at its very end, hence the clamp.
    chosen = torch.searchsorted(cumulative, points, right=True).clamp_(max=logits.shape[1] - 1)
    logprobs = (nucleus.gather(1, chosen) / total).log()
    if settings.is_greedy is not None:
        best = logits.argmax(dim=-1, keepdim=True)
        is_greedy = settings.is_greedy[:, None]
        chosen = torch.where(is_greedy, best, chosen)
        logprobs = torch.where(is_greedy, probs.gather(1, best).log().double(), logprobs)
    return _to_host(chosen, logprobs)


def _nucleus(probs: Tensor, top_ps: Tensor) -> Tensor:
    """Zero all but the smallest set of most likely tokens whose mass reaches top_p; ties at its edge stay in.

    Source: Holtzman et al. 2020, arXiv:1904.09751, section 3.1.
    """
    ordered = probs.sort(dim=-1, descending=True).values
    mass_before = ordered.cumsum(dim=-1) - ordered
    limits = top_ps.masked_fill(top_ps >= 1, torch.inf)  # float noise lifts the mass above 1 before the last token
    is_inside = mass_before < limits[:, None]
    smallest = ordered.masked_fill(~is_inside, torch.inf).amin(dim=-1, keepdim=True)
    return torch.where(probs < smallest, 0.0, probs)


def _to_host(tokens: Tensor, logprobs: Tensor) -> SampledTokens:
    """Both in one transfer; token ids are exact in float64."""
    if tokens.device.type == "cpu":
        return SampledTokens(tokens[:, 0].numpy(), logprobs[:, 0].double().numpy())
    columns = torch.cat((tokens.double(), logprobs.double()), dim=1).cpu().numpy()
    return SampledTokens(columns[:, 0].astype(np.int64), columns[:, 1])


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values of all layers; see the module's docstring for what has to be set before a pass."""

    def __init__(self, n_layers: int, device: torch.device) -> None:
        super().__init__(layers=[_SlotLayer(self) for _ in range(n_layers)])
        self.device = device
        self.n_rows = 0
        """R, slots that memory is reserved for."""
        self.n_columns = 0
        """C, positions that memory is reserved for in each slot."""
        self.is_decoding = False
        self.readers: Tensor | slice | None = None
        """The slots that the pass reads from the cache; None: it attends to its own new tokens only."""
        self.span = 0
        self.targets: Tensor = torch.empty(0, dtype=torch.long, device=device)
        """Where each new token is written, as row * C + column."""
        self.sources: Tensor | None = None
        """Which tokens of a padded pass are real; None if all are."""

    def reserve(self, n_rows: int, n_columns: int) -> None:
        """Allocate memory; what is stored stays. Grows by at least half, so that a long run copies little."""
        if n_rows <= self.n_rows and n_columns <= self.n_columns:
            return
        if n_rows > self.n_rows:
            self.n_rows = max(n_rows, self.n_rows * 3 // 2)
        if n_columns > self.n_columns:
            self.n_columns = max(n_columns, self.n_columns * 3 // 2, MIN_COLUMNS)
        for layer in self.layers:
            layer.grow(self.n_rows, self.n_columns)

    def begin_prefill(self, rows: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """The next pass brings whole prompts for some slots, padded on the left to the longest."""
        self.readers = None
        self.span = int(lengths.max())
        self._write_from(rows, np.zeros_like(lengths), lengths)

    def begin_extend(self, rows: NDArray[np.int64], n_cached: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """The next pass brings `lengths` more tokens for some slots, behind the first `n_cached` that they hold."""
        in_a_row = int(rows[-1] - rows[0]) == len(rows) - 1 and bool((np.diff(rows) == 1).all())
        self.readers = slice(int(rows[0]), int(rows[-1]) + 1) if in_a_row else self._put(rows)
        self.span = int((n_cached + lengths).max())
        self._write_from(rows, n_cached, lengths)

    def _write_from(self, rows: NDArray[np.int64], n_cached: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        width = int(lengths.max())
        self.is_decoding = False
        columns = np.arange(width)[None, :] - (width - lengths)[:, None]
        is_real = columns >= 0
        # The padding of shorter rows is not stored: it would overwrite tokens that the slot holds.
        self.targets = self._put((rows[:, None] * self.n_columns + n_cached[:, None] + columns)[is_real])
        self.sources = None if is_real.all() else self._put(np.flatnonzero(is_real))

    def begin_recorded_decode(self, positions: Tensor) -> None:
        """Like `begin_decode`, in tensor operations only and over all reserved columns."""
        n = positions.shape[0]
        self.is_decoding = True
        self.readers = slice(0, n)
        self.span = self.n_columns
        self.sources = None
        self.targets = torch.arange(n, device=self.device) * self.n_columns + positions

    def buffers(self) -> list[Tensor]:
        """Keys and values of each layer in turn."""
        return [stored for layer in self.layers for stored in (layer.keys, layer.values)]

    def attach(self, buffers: Sequence[Tensor]) -> None:
        """Store in these tensors from now on; the same order and shapes as `buffers` gives."""
        for layer, keys, values in zip(self.layers, buffers[::2], buffers[1::2], strict=True):
            layer.attach(keys, values)

    def begin_decode(self, positions: NDArray[np.int64]) -> None:
        """The next pass brings one token for each of the first n slots, written at its own position."""
        n = len(positions)
        self.is_decoding = True
        self.readers = slice(0, n)
        self.span = int(positions.max()) + 1
        self.sources = None
        self.targets = self._put(np.arange(n) * self.n_columns + positions)

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of one slot over those of another."""
        for layer in self.layers:
            for stored in (layer.keys, layer.values):
                stored[target, :length] = stored[source, :length]

    def swap(self, swaps: Sequence[SlotSwap]) -> None:
        """Exchange pairs of slots, no slot in two of them, as far as the swap with the most positions says."""
        if not swaps:
            return
        firsts, seconds = [swap.first for swap in swaps], [swap.second for swap in swaps]
        targets, sources = (self._put(np.array(rows)) for rows in (firsts + seconds, seconds + firsts))
        length = max(swap.n_columns for swap in swaps)
        for stored in self.buffers():
            stored[targets, :length] = stored[sources, :length]

    def clear(self, row: int) -> None:
        """Zero a slot that may hold numbers that are not finite."""
        for layer in self.layers:
            for stored in (layer.keys, layer.values):
                stored[row] = 0

    def _put(self, indices: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(indices).to(self.device, non_blocking=True)


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer: keys and values of shape R x C x H x D."""

    is_sliding = False

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()
        self.cache = cache
        self.flat: tuple[Tensor, Tensor] | None = None
        """The same memory as keys and values, as R*C rows."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate for the head counts and sizes of the first tokens, n x H x T x D."""
        rows, columns = self.cache.n_rows, self.cache.n_columns
        self.attach(*(new.new_zeros(rows, columns, new.shape[1], new.shape[3]) for new in (key_states, value_states)))
        self.is_initialized = True

    def attach(self, keys: Tensor, values: Tensor) -> None:
        """Store in these tensors from now on."""
        self.keys, self.values = keys, values
        self.flat = (keys.view(-1, keys.shape[2] * keys.shape[3]), values.view(-1, values.shape[2] * values.shape[3]))

    def grow(self, n_rows: int, n_columns: int) -> None:
        """Move what is stored into more memory."""
        if not self.is_initialized:
            return
        old = (self.keys, self.values)
        self.lazy_initialization(self.keys[:0].transpose(1, 2), self.values[:0].transpose(1, 2))
        for stored, before in zip((self.keys, self.values), old, strict=True):
            stored[: before.shape[0], : before.shape[1]] = before

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Store new tokens, n x H x T x D; return what attention may read, n x H x S x D."""
        if self.flat is None:
            self.lazy_initialization(key_states, value_states)
        cache = self.cache
        for stored, new in zip(self.flat or (), (key_states, value_states), strict=True):
            tokens = new.transpose(1, 2).reshape(-1, stored.shape[1])
            stored.index_copy_(0, cache.targets, tokens if cache.sources is None else tokens[cache.sources])
        readers, span = cache.readers, cache.span
        if readers is None:
            return key_states, value_states
        if isinstance(readers, slice):
            return self.keys[readers, :span].transpose(1, 2), self.values[readers, :span].transpose(1, 2)
        keys, values = (stored[:, :span].index_select(0, readers) for stored in (self.keys, self.values))
        return keys.transpose(1, 2), values.transpose(1, 2)

    def get_seq_length(self) -> int:
        """Positions before the first new token of the longest row."""
        return self.cache.span - 1 if self.cache.is_decoding else 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns that attention sees, and the offset of the first."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """No bound: memory grows."""
        return -1


def prefill(model: Any, cache: SlotCache, prompts: Sequence[Sequence[int]], rows: Sequence[int]) -> Tensor:
    """Fill each of some slots with one prompt; returns the logits after the last tokens, n x V."""
    lengths = np.array([len(prompt) for prompt in prompts], dtype=np.int64)
    width = int(lengths.max())
    cache.reserve(max(rows) + 1, width)
    cache.begin_prefill(np.asarray(rows, dtype=np.int64), lengths)
    device = cache.device
    columns = torch.arange(width, device=device)
    tokens = _padded(prompts, width).to(device)
    if (lengths == width).all():
        return _last_logits(model, tokens, position_ids=columns[None], past_key_values=cache)
    padding = torch.from_numpy(width - lengths).to(device)[:, None]
    is_real = columns[None] >= padding
    is_causal = columns[None, :] <= columns[:, None]
    itself = columns[None, :] == columns[:, None]  # a padded query that sees nothing at all would give NaN
    is_seen = (is_causal[None] & is_real[:, None, :]) | itself[None]
    return _last_logits(
        model,
        tokens,
        attention_mask=_additive(is_seen, model.dtype),
        position_ids=(columns[None] - padding).clamp(min=0),
        past_key_values=cache,
    )


def extend(
    model: Any, cache: SlotCache, suffixes: Sequence[Sequence[int]], n_cached: Sequence[int], rows: Sequence[int]
) -> Tensor:
    """Append tokens after the first `n_cached` of each of some slots; returns the logits after the last, n x V.

    n_cached: at least 1 for each slot; what a slot held after them is lost.
    """
    lengths = np.array([len(suffix) for suffix in suffixes], dtype=np.int64)
    starts = np.array(n_cached, dtype=np.int64)
    width = int(lengths.max())
    cache.reserve(max(rows) + 1, int((starts + lengths).max()))
    cache.begin_extend(np.asarray(rows, dtype=np.int64), starts, lengths)
    device = cache.device
    first = torch.from_numpy(starts - (width - lengths)).to(device)[:, None]
    places = (first + torch.arange(width, device=device)[None]).clamp(min=0)
    is_seen = torch.arange(cache.span, device=device)[None, None] <= places[:, :, None]
    return _last_logits(
        model,
        _padded(suffixes, width).to(device),
        attention_mask=_additive(is_seen, model.dtype),
        position_ids=places,
        past_key_values=cache,
    )


def _padded(prompts: Sequence[Sequence[int]], width: int) -> Tensor:
    """Token ids, n x width, padded on the left with a token of each prompt's own: another one's NaN would spread."""
    padded = np.empty((len(prompts), width), dtype=np.int64)
    for row, prompt in enumerate(prompts):
        padded[row, : width - len(prompt)] = prompt[0]
        padded[row, width - len(prompt) :] = prompt
    return torch.from_numpy(padded)


def decode(model: Any, cache: SlotCache, tokens: NDArray[np.int64], positions: NDArray[np.int64]) -> Tensor:
    """Feed one token to each of the first n slots at its position; returns the logits after it, n x V."""
    span = int(positions.max()) + 1
    cache.reserve(len(tokens), span)
    cache.begin_decode(positions)
    places = torch.from_numpy(positions).to(cache.device)[:, None]
    mask = None
    if positions.min() + 1 < span:
        is_seen = torch.arange(span, device=cache.device)[None] <= places
        mask = _additive(is_seen[:, None], model.dtype)
    return _last_logits(
        model,
        torch.from_numpy(tokens).to(cache.device)[:, None],
        attention_mask=mask,
        position_ids=places,
        past_key_values=cache,
    )


def decode_all_columns(model: Any, cache: SlotCache, tokens: Tensor, positions: Tensor) -> Tensor:
    """What `decode` gives, in tensor operations whose shapes depend on n and the reserved columns only."""
    cache.begin_recorded_decode(positions)
    places = positions[:, None]
    is_seen = torch.arange(cache.n_columns, device=cache.device)[None] <= places
    mask = _additive(is_seen[:, None], model.dtype)
    return _last_logits(model, tokens[:, None], attention_mask=mask, position_ids=places, past_key_values=cache)


def plain_logits(model: Any, tokens: Tensor) -> Tensor:
    """Logits after the last of the tokens, n x V, without any cache."""
    return _last_logits(model, tokens, use_cache=False)


def _additive(is_seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Mask to be added to scores, n x 1 x queries x columns: the form that every attention implementation takes."""
    mask = torch.zeros(is_seen.shape, dtype=dtype, device=is_seen.device)
    return mask.masked_fill_(~is_seen, torch.finfo(dtype).min)[:, None]


def _last_logits(model: Any, tokens: Tensor, **inputs: Any) -> Tensor:
    logits: Tensor = model(input_ids=tokens, logits_to_keep=1, **{"use_cache": True, **inputs}).logits
    return logits[:, -1]


class TracedDecoder:
    """Decoding steps over one model and cache, recorded where that pays."""

    def __init__(self, model: Any, cache: SlotCache) -> None:
        self._model, self._cache = model, cache
        self._is_usable = model.device.type == "cpu" and is_traceable(model)
        self._recordings: dict[tuple[int, ...], Callable[..., Tensor]] = {}
        self._step_counts: dict[tuple[int, ...], int] = {}

    def decode(self, tokens: NDArray[np.int64], positions: NDArray[np.int64]) -> Tensor:
        """Logits after one more token of each row, n x V; what the function `decode` gives, up to float noise."""
        cache, n = self._cache, len(tokens)
        span = int(positions.max()) + 1
        cache.reserve(n, span)
        if not self._is_usable or n > MAX_ROWS or n * (cache.n_columns - span) > MAX_WASTE:
            return decode(self._model, cache, tokens, positions)
        shape = (n, cache.n_rows, cache.n_columns)
        recording = self._recordings.get(shape)
        if recording is not None:
            return recording(torch.from_numpy(tokens), torch.from_numpy(positions), *cache.buffers())
        logits = decode(self._model, cache, tokens, positions)
        self._step_counts[shape] = self._step_counts.get(shape, 0) + 1
        if self._step_counts[shape] >= PATIENCE:
            self._record(shape, tokens, positions, logits)
        return logits

    def close(self) -> None:
        """Empty the weights: the runtime keeps what was recorded, and its tensors, until the process ends."""
        for tensor in (*self._model.parameters(), *self._model.buffers()) if self._recordings else ():
            tensor.data = tensor.new_empty(0)
        self._recordings.clear()

    def _record(
        self, shape: tuple[int, ...], tokens: NDArray[np.int64], positions: NDArray[np.int64], expected: Tensor
    ) -> None:
        """Record the step that was just taken; repeating it stores the same keys at the same positions."""
        model, cache, cache_buffers = self._model, self._cache, self._cache.buffers()

        def step(tokens: Tensor, positions: Tensor, *buffers: Tensor) -> Tensor:
            cache.attach(buffers)
            return decode_all_columns(model, cache, tokens, positions)

        inputs = (torch.from_numpy(tokens.copy()), torch.from_numpy(positions.copy()), *cache_buffers)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # one for each branch in Python; ARCHITECTURES vouches for them
                recording = torch.jit.trace(step, inputs, check_trace=False)  # type: ignore[no-untyped-call]
            for _ in range(RUNS_BEFORE_USE):
                logits = recording(*inputs)
        except Exception as error:  # boundary: recording only saves time, so whatever it raises costs no more than that
            _log.warning("a decoding step could not be recorded (%s); decoding continues without recording", error)
            self._is_usable = False
            return
        finally:
            cache.attach(cache_buffers)
        if torch.allclose(logits, expected, rtol=1e-3, atol=1e-3, equal_nan=True):
            # The cache only grows: recordings for other sizes of it are never used again.
            self._recordings = {key: traced for key, traced in self._recordings.items() if key[1:] == shape[1:]}
            self._recordings[shape] = recording
        else:
            worst = (logits - expected).abs().max().item()
            _log.warning("a recorded decoding step was off by %g; decoding continues without recording", worst)
            self._is_usable = False


def is_traceable(model: Any) -> bool:
    """Whether every decoding step of a model takes the same branches in Python."""
    config = model.config.get_text_config(decoder=True)
    rope = getattr(config, "rope_parameters", None) or {}
    return type(model).__name__ in ARCHITECTURES and rope.get("rope_type", "default") in ROPE_TYPES
