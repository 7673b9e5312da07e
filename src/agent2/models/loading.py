"""Loads checkpoints for sampling, refuses models that the slot cache cannot serve, and tells whether weights changed.

Loads safetensors only, never runs code from the folder, never uses the network, and refuses a checkpoint that leaves
any weight of the model random. `require_slots_work` runs a few tokens both ways, with slots and without any cache: an
architecture that ignores position ids or masks is detected by its logits, not by a list of names. Windows and recurrent
states only show after many tokens, so they are refused by the config.

`fingerprint` is a cheap check for a sampler that must not reuse what it computed with other weights. Promises: an
optimiser step, `load_state_dict`, an adapter merged into its base model and a replaced tensor change the fingerprint;
nothing that leaves the weights alone does. Does NOT notice: a change through `.data` of values that are not among those
sampled, an adapter that is switched on or off, another attention implementation, the mode of the model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.utils import logging as transformers_logging

from agent2.errors import CheckpointError, quoted
from agent2.models.checkpoint import CheckpointInfo
from agent2.models.slots import SlotCache, decode, extend, plain_logits, prefill

SAMPLED = 8
"""Values of each weight that are compared, spread over it."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION = ("sdpa", "eager")
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3, torch.bfloat16: 0.3, torch.float16: 0.1}
"""Largest difference of two ways to compute the same logits, in standard deviations of the logits."""
PROBE_LENGTHS = (3, 5)
PROBE_SUFFIXES = (2, 1)


@torch.no_grad()
def fingerprint(model: Any) -> tuple[object, ...]:
    """Equal as long as no parameter was changed; about 10 µs for each of them.

    Of each parameter: its address in memory, how often torch changed it in place, a few of its values.
    """
    parameters = list(model.parameters())
    addresses = tuple(parameter.data_ptr() for parameter in parameters)
    # Inference tensors have no version counter; reading theirs raises.
    versions = tuple(0 if parameter.is_inference() else parameter._version for parameter in parameters)
    values = torch.cat([_sample(parameter) for parameter in parameters]).cpu() if parameters else torch.empty(0)
    return addresses, versions, values.numpy().tobytes()


def _sample(parameter: Tensor) -> Tensor:
    flat = parameter.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLED)][: 2 * SAMPLED].double()


def load_model(path: Path, dtype: str, device: str, kind: Any = AutoModelForCausalLM) -> Any:
    """The model of a checkpoint in evaluation mode.

    dtype: a key of `DTYPES`. kind: the auto class of transformers. Raises CheckpointError if the folder does not make
    a complete model of that kind, by default a causal LM.
    """
    if dtype not in DTYPES:
        raise CheckpointError(f"{path}: unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    if not path.is_dir():  # transformers would take the name for one of the hub and look there for adapters
        raise CheckpointError(f"{path}: there is no such folder")
    try:
        with no_progress_bars():
            model, report = kind.from_pretrained(
                path,
                dtype=DTYPES[dtype],
                # A cache of slots is made for this attention; a classifier needs none, and not every one has it.
                **({"attn_implementation": "sdpa"} if kind is AutoModelForCausalLM else {}),
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
    except Exception as error:  # boundary: an untrusted config can make the library raise anything
        raise CheckpointError(f"{path}: transformers cannot load the model: {first_line(error)}") from error
    missing = sorted(report["missing_keys"])
    if missing:  # transformers only warns, and initialises these weights at random
        raise CheckpointError(
            f"{path}: {len(missing)} weights are missing, the first is {missing[0]!r}; save the whole model"
        )
    return model.to(device).eval().requires_grad_(False)


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a checkpoint. Raises CheckpointError if it cannot be loaded."""
    try:
        return AutoTokenizer.from_pretrained(path, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # boundary: an untrusted config can make the library raise anything
        raise CheckpointError(f"{path}: transformers cannot load the tokenizer: {first_line(error)}") from error


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Every token that ends a completion, of the generation config and of the tokenizer.

    Raises CheckpointError for an end that is no token's number.
    """
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ends = [*(configured if isinstance(configured, list) else [configured]), tokenizer.eos_token_id]
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, int | None):
            raise CheckpointError(f"generation_config.json: eos_token_id is {quoted(end)}, not a token's number")
    return sorted({end for end in ends if end is not None})


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing into the caller's own progress display; its setting is put back afterwards."""
    was_enabled = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            transformers_logging.enable_progress_bar()


def context_length(config: Any) -> int:
    """Most positions the model was made for, prompt and completion together."""
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    raise CheckpointError(f"{type(config).__name__} does not say how long its context is; set max_position_embeddings")


def make_cache(model: Any) -> SlotCache:
    """An empty slot cache for a model. Raises CheckpointError if its layers need more than keys and values."""
    name, config = type(model).__name__, model.config.get_text_config(decoder=True)
    if getattr(model, "_is_stateful", False):
        raise CheckpointError(f"{name}: keeps a recurrent state, which the hf sampler cannot serve; use a server")
    if getattr(config, "_attn_implementation", None) not in ATTENTION:
        raise CheckpointError(
            f"{name}: attention {config._attn_implementation!r} cannot be given a mask for each row; "
            f"load the model with attn_implementation in {ATTENTION}"
        )
    context = context_length(config)
    layers = DynamicCache(config=config).layers
    for index, layer in enumerate(layers):
        window = getattr(layer, "sliding_window", None)
        if type(layer) is not DynamicLayer and (window is None or window < context):
            problem = f"sees only {window} of {context} positions" if window else f"is a {type(layer).__name__}"
            raise CheckpointError(f"{name}: layer {index} {problem}, which the hf sampler cannot serve; use a server")
    return SlotCache(len(layers), model.device)


@torch.inference_mode()
def require_slots_work(model: Any) -> None:
    """Raise CheckpointError unless slots give the logits that a pass without any cache gives.

    Two prompts of unequal length are prefilled together, then each is extended by a few tokens, and then by one.
    Numbers that are not finite prove nothing and pass: they become faults when they are sampled.
    """
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ends = [n_prefix + n_suffix for n_prefix, n_suffix in zip(PROBE_LENGTHS, PROBE_SUFFIXES, strict=True)]
    tokens = [[(i * 7919 + j * 104729 + 11) % vocabulary for j in range(end + 1)] for i, end in enumerate(ends)]
    try:
        expected = torch.cat([plain_logits(model, torch.tensor([row], device=model.device)) for row in tokens])
        cache = make_cache(model)
        prefixes = [row[:n] for row, n in zip(tokens, PROBE_LENGTHS, strict=True)]
        prefill(model, cache, prefixes, range(len(tokens)))
        suffixes = [row[n:-1] for row, n in zip(tokens, PROBE_LENGTHS, strict=True)]
        extend(model, cache, suffixes, PROBE_LENGTHS, range(len(tokens)))
        logits = decode(model, cache, np.array([row[-1] for row in tokens]), np.array(ends))
    except (TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise CheckpointError(
            f"{type(model).__name__}: does not take position ids, a mask and a cache ({first_line(error)}); "
            "use a server"
        ) from error
    spread = expected.float().std().clamp(min=1e-6)
    error_size = ((logits.float() - expected.float()).abs().max() / spread).item()
    if error_size > TOLERANCE.get(expected.dtype, 0.3):
        raise CheckpointError(
            f"{type(model).__name__}: with the slot cache its logits are {error_size:.2g} standard deviations off, "
            "so it does not follow position ids, masks and cache in the usual way; use a server"
        )


def first_line(error: Exception) -> str:
    """The first line of what an error says, or its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def require_finite(info: CheckpointInfo) -> None:
    """Raise CheckpointError, naming the first such tensor, if a weight is NaN or infinite."""
    by_file: dict[str, list[str]] = {}
    for name, tensor in info.tensors.items():
        by_file.setdefault(tensor.file, []).append(name)
    for file, names in by_file.items():
        try:
            with safe_open(info.path / file, framework="pt") as weights:
                for name in names:
                    _require_finite_tensor(info.path / file, name, weights.get_tensor(name))
        except SafetensorError as error:
            raise CheckpointError(f"{info.path / file}: cannot be read ({error}); save the model again") from error


def _require_finite_tensor(path: Path, name: str, tensor: torch.Tensor) -> None:
    if not tensor.is_floating_point():
        return
    if tensor.element_size() == 1:  # 8-bit floats have no isfinite of their own
        tensor = tensor.float()
    n_bad = tensor.numel() - int(torch.isfinite(tensor).sum())
    if n_bad:
        raise CheckpointError(
            f"{path}: tensor {name!r} has {n_bad} of {tensor.numel()} values that are NaN or infinite; the training "
            "diverged, save an earlier checkpoint or lower the learning rate"
        )
