"""Linear layers with their weights laid out for oneDNN, for models in this process on a CPU.

A decoding step multiplies a few rows with every weight of the model, and there the matrix library that torch calls by
default reaches a fraction of what the core can do. oneDNN with weights that were laid out for it once needs about half
the time: for the linear layers of a Llama of 135 million weights in 32 bits on one AVX-512 core, 62 -> 28 ms at 8 rows,
124 -> 57 at 32, 209 -> 96 at 64 (`benchmarks/sampler.py --model` measures whole models).

Promises: the same numbers up to float noise, checked on the model's own logits, or the model stays as it was. Only for
a model that this process alone owns: its linear layers are replaced, their weights are gone, and no step of it can be
recorded (`slots.TracedDecoder`). Small models are left alone: there a recorded step saves more.
"""

import logging
from typing import Any

import torch
from torch import Tensor, nn

logger = logging.getLogger(__name__)
MIN_WEIGHTS = 20_000_000
"""Of the linear layers together; below it Python costs more than the numbers."""
TOLERANCE = 2e-4
"""Largest difference of a logit, in the largest logit; float noise of 135 million weights is 5e-5."""
_N_TRIED_TOKENS = 8


class PackedLinear(nn.Module):
    """`nn.Linear` over a weight in oneDNN's layout, inputs ... x in_features."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, inputs: Tensor) -> Tensor:
        """Shape ... x out_features."""
        outputs: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._packed, self._bias, "none", [], "")
        return outputs


@torch.inference_mode()
def pack_linears(model: Any) -> bool:
    """Replace the linear layers of a model; returns whether that was done."""
    linears = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if type(layer) is nn.Linear
    ]
    is_worth_it = sum(layer.weight.numel() for _, _, layer in linears) >= MIN_WEIGHTS
    if not (is_worth_it and model.device.type == "cpu" and model.dtype == torch.float32 and _has_onednn()):
        return False
    vocabulary = model.get_input_embeddings().weight.shape[0]
    tokens = torch.arange(_N_TRIED_TOKENS)[None] % vocabulary
    expected = model(input_ids=tokens, use_cache=False).logits
    try:
        for parent, name, layer in linears:
            setattr(parent, name, PackedLinear(layer))
        difference = (model(input_ids=tokens, use_cache=False).logits - expected).abs().max()
        is_same = bool(difference <= TOLERANCE * expected.abs().max())
        reason = "its logits were others"
    except Exception as error:  # boundary: packing only saves time, so whatever it raises costs no more than that
        is_same, reason = False, f"{type(error).__name__}: {error}"
    if not is_same:
        for parent, name, layer in linears:
            setattr(parent, name, layer)
        logger.warning("linear layers could not be packed (%s); they stay as they were", reason)
    return is_same


def _has_onednn() -> bool:
    is_built_in: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return is_built_in and hasattr(torch.ops.mkldnn, "_linear_pointwise")
