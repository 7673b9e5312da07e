"""Randomness that belongs to a request, and the one vectorised step that turns logits into tokens.

The t-th draw of a request with seed s is a pure function of (s, t), whatever else is in the batch: a counter
goes through the SplitMix64 mixer (Steele, Lea and Flood 2014, doi:10.1145/2714064.2660195), and the uniform
number it gives picks a token by inverting the cumulative distribution in vocabulary order.

Promises: equal logits, seed and counter give equal tokens. Does NOT promise equality where float noise of
another batch size moves a boundary of the distribution across the uniform number (about one draw in 10^5).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """How each of n rows is drawn. None for a field: no row needs it, which saves the work."""

    temperatures: Tensor | None = None
    """n; 1.0 for greedy rows. None: all are 1."""
    top_ps: Tensor | None = None
    """n, above 0. None: all are 1."""
    is_greedy: Tensor | None = None
    """n booleans. None: none is."""
    all_greedy: bool = False


@dataclass(frozen=True, slots=True)
class Drawn:
    """One token for each of n rows."""

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    """Under the distribution the token was drawn from; for a greedy row under the model's own, at temperature 1.
    NaN where the logits of the row are not all usable numbers."""


def seed_key(seed: int) -> np.uint64:
    """Spread a seed over 64 bits, so that neighbouring seeds have unrelated streams."""
    return np.uint64(_mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64))[0])


def uniforms(keys: NDArray[np.uint64], counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Numbers in [0, 1) with 53 random bits, one for each pair of a key from `seed_key` and a counter >= 0."""
    bits = _mix(keys + (counters.astype(np.uint64) + np.uint64(1)) * _GAMMA)
    return (bits >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)


def draw_tokens(logits: Tensor, numbers: NDArray[np.float64], settings: DrawSettings) -> Drawn:
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
    kept = probs if settings.top_ps is None else _nucleus(probs, settings.top_ps)
    cumulative = kept.cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    points = torch.from_numpy(numbers).to(logits.device, non_blocking=True)[:, None] * total
    chosen = torch.searchsorted(cumulative, points, right=True).clamp_(max=logits.shape[1] - 1)
    logprobs = (kept.gather(1, chosen) / total).log()
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


def _to_host(tokens: Tensor, logprobs: Tensor) -> Drawn:
    """Both in one transfer; token ids are exact in float64."""
    if tokens.device.type == "cpu":
        return Drawn(tokens[:, 0].numpy(), logprobs[:, 0].double().numpy())
    both = torch.cat((tokens.double(), logprobs.double()), dim=1).cpu().numpy()
    return Drawn(both[:, 0].astype(np.int64), both[:, 1])


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))
