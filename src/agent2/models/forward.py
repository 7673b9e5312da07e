"""The forward passes over a slot cache: whole prompts, the rest of prompts that begin as a slot does, one more token.

All go through the ordinary model class of transformers with explicit position ids and an explicit mask.
Where all rows are equally long no mask is built, which lets attention take its fast path.
Axes: n rows, V vocabulary, width and S columns.
"""

from collections.abc import Sequence
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
