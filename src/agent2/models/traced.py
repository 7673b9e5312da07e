"""A faster decoding step for very few rows on a CPU, where the Python of the model class costs more than its numbers.

The step is recorded once for a number of rows and columns (torch.jit.trace, about 0.1 s for a small model)
and replayed: at one row of a d128 model 0.35 ms instead of 1.0 ms. A recording keeps whatever branch Python
took, so only architectures that are known to take the same one at every step are recorded (`ARCHITECTURES`,
each of them tested against `model.generate`), only with weights that this process alone owns, and only once
the recording has given the logits of the ordinary pass. Everything else takes the ordinary pass, and so does
everything after a recording that failed, which is logged.
"""

import logging
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agent2.models.forward import decode, decode_all_columns
from agent2.models.slots import SlotCache

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
