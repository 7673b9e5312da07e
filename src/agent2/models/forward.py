"""Forward passes over the slot cache, and a traced decoding step for few rows on a CPU.

The forward passes over a slot cache: whole prompts, the rest of prompts that begin as a slot does, one more token.

All go through the ordinary model class of transformers with explicit position ids and an explicit mask.
Where all rows are equally long no mask is built, which lets attention take its fast path.
Axes: n rows, V vocabulary, width and S columns.

A faster decoding step for very few rows on a CPU, where the Python of the model class costs more than its numbers.

The step is recorded once for a number of rows and columns (torch.jit.trace, about 0.1 s for a small model)
and replayed: at one row of a d128 model 0.35 ms instead of 1.0 ms. A recording keeps whatever branch Python
took, so only architectures that are known to take the same one at every step are recorded (`ARCHITECTURES`,
each of them tested against `model.generate`), only with weights that this process alone owns, and only once
the recording has given the logits of the ordinary pass. Everything else takes the ordinary pass, and so does
everything after a recording that failed, which is logged.
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agent2.models.slots import SlotCache


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
    model: Any, cache: SlotCache, suffixes: Sequence[Sequence[int]], kept: Sequence[int], rows: Sequence[int]
) -> Tensor:
    """Put more tokens behind the first `kept` of each of some slots; returns the logits after the last, n x V.

    kept: at least 1 for each slot; what a slot held behind them is gone.
    """
    lengths = np.array([len(suffix) for suffix in suffixes], dtype=np.int64)
    starts = np.array(kept, dtype=np.int64)
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


ARCHITECTURES = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "GPT2LMHeadModel"})
"""Dense models without branches that depend on the data."""
ROPE_TYPES = frozenset({"default", "linear", "llama3"})
"""Rotary embeddings whose frequencies do not depend on the position reached."""
MAX_ROWS = 16
"""With more rows the numbers cost more than the Python."""
MAX_WASTE = 4096
"""A recording looks at every reserved column of each row; with more unused ones in all it does not pay."""
PATIENCE = 24
"""Steps of one shape before it is recorded; recording costs about as much as a hundred ordinary steps."""
RUNS_BEFORE_USE = 3
"""The runtime rewrites a recording during its first runs; judge it after that."""

_log = logging.getLogger(__name__)


class TracedDecoder:
    """Decoding steps over one model and cache, recorded where that pays."""

    def __init__(self, model: Any, cache: SlotCache) -> None:
        self._model, self._cache = model, cache
        self._is_usable = model.device.type == "cpu" and is_traceable(model)
        self._recordings: dict[tuple[int, ...], Callable[..., Tensor]] = {}
        self._seen: dict[tuple[int, ...], int] = {}

    def decode(self, tokens: NDArray[np.int64], positions: NDArray[np.int64]) -> Tensor:
        """Logits after one more token of each row, n x V; what `forward.decode` gives, up to float noise."""
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
        self._seen[shape] = self._seen.get(shape, 0) + 1
        if self._seen[shape] >= PATIENCE:
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
        """Record the step that was just taken; taking it again stores the same keys in the same places."""
        model, cache, own = self._model, self._cache, self._cache.buffers()

        def step(tokens: Tensor, positions: Tensor, *buffers: Tensor) -> Tensor:
            cache.attach(buffers)
            return decode_all_columns(model, cache, tokens, positions)

        inputs = (torch.from_numpy(tokens.copy()), torch.from_numpy(positions.copy()), *own)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # one for each branch in Python; ARCHITECTURES vouches for them
                recording = torch.jit.trace(step, inputs, check_trace=False)  # type: ignore[no-untyped-call]
            for _ in range(RUNS_BEFORE_USE):
                found = recording(*inputs)
        except Exception as error:  # boundary: recording only saves time, so whatever it raises costs no more than that
            _log.warning("a decoding step could not be recorded (%s); decoding goes on without recording", error)
            self._is_usable = False
            return
        finally:
            cache.attach(own)
        if torch.allclose(found, expected, rtol=1e-3, atol=1e-3, equal_nan=True):
            self._recordings = {key: kept for key, kept in self._recordings.items() if key[1:] == shape[1:]}
            self._recordings[shape] = recording
        else:
            worst = (found - expected).abs().max().item()
            _log.warning("a recorded decoding step was off by %g; decoding goes on without recording", worst)
            self._is_usable = False


def is_traceable(model: Any) -> bool:
    """Whether every decoding step of a model takes the same branches in Python."""
    config = model.config.get_text_config(decoder=True)
    rope = getattr(config, "rope_parameters", None) or {}
    return type(model).__name__ in ARCHITECTURES and rope.get("rope_type", "default") in ROPE_TYPES
