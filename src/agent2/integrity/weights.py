"""The numbers of a checkpoint, one tensor at a time, without a tensor library and without running anything.

Reads where `inspect_checkpoint` said that the bytes are; a hostile file can at worst hold other numbers. Reads the
types in which weights may be played (`checkpoint.PLAYED_DTYPES`), and refuses others by name. An adapter is merged
before (`adapters.as_played`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent2.errors import CheckpointError
from agent2.models.checkpoint import OUTPUT_HEAD, PLAYED_DTYPES, CheckpointInfo
from agent2.models.tensors import TensorInfo

Floats = NDArray[np.float32]

_NUMPY: dict[str, np.dtype[Any]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


def read_floats(info: CheckpointInfo, name: str) -> Floats:
    """One tensor as float32 in its own shape. Raises CheckpointError for a type that is never played."""
    tensor = info.tensors[name]
    raw = _read(info, tensor)
    if tensor.dtype == "BF16":
        wide = np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16
        return wide.view(np.float32).reshape(tensor.shape)
    if tensor.dtype in _NUMPY:
        return np.frombuffer(raw, dtype=_NUMPY[tensor.dtype]).astype(np.float32).reshape(tensor.shape)
    raise CheckpointError(f"{info.path}: tensor {name!r} is {tensor.dtype}; save the model in float32 or bfloat16")


def float_names(info: CheckpointInfo) -> list[str]:
    """Names of the tensors that hold floating-point numbers, a tied output head left out."""
    is_tied = bool(info.config.get("tie_word_embeddings", False))
    names = [name for name, tensor in info.tensors.items() if tensor.dtype in PLAYED_DTYPES]
    return sorted(name for name in names if not (is_tied and name == OUTPUT_HEAD))


def _read(info: CheckpointInfo, tensor: TensorInfo) -> bytes:
    with (info.path / tensor.file).open("rb") as file:
        file.seek(tensor.start)
        raw = file.read(tensor.end - tensor.start)
    if len(raw) != tensor.end - tensor.start:
        raise CheckpointError(f"{info.path}: {tensor.file} ended too early; save the model again")
    return raw
