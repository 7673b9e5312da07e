"""Safetensors files, read without any tensor library: what they hold, whether they are whole, their digests.

Layout (format of the safetensors project): eight bytes, little endian, the length of the header; the header,
a JSON object `name -> {dtype, shape, data_offsets}`; then the bytes of the tensors without gaps.

Promises: every byte of an accepted file belongs to the header or to exactly one tensor, and every tensor has
exactly the bytes that its shape and dtype need. Does NOT look at the numbers (see `loading.require_finite`)
and does not notice a file that changes while it is read: hand in a private copy.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from agent2.errors import CheckpointError, shown

MAX_HEADER_BYTES = 16 << 20
"""More than a hundred thousand tensors need. The reference implementation allows 100 MB, but JSON can grow to
thirty times its size in memory."""
MAX_DIMENSIONS = 64
"""As many as torch allows."""
MAX_SIZE = 1 << 63
"""No length, offset or dimension reaches this."""
CHUNK_BYTES = 1 << 20
DTYPE_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor and where its bytes are."""

    dtype: str
    """As the safetensors format spells it: "F32", "BF16"."""
    shape: tuple[int, ...]
    file: str
    """Name of the file inside the checkpoint's folder."""
    start: int
    """First byte, counted from the beginning of the file."""
    end: int
    """One past the last byte."""


@dataclass(frozen=True, slots=True)
class FileDigests:
    """SHA-256 (hex) of one weight file, of the whole and of each tensor's bytes."""

    file: str
    tensors: dict[str, str]


def read_tensors(path: Path) -> dict[str, TensorInfo]:
    """The tensors of one safetensors file, in the order of their bytes.

    Raises CheckpointError if the file is truncated, has bytes that belong to no tensor, has tensors that
    share bytes, or has a header that contradicts itself.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or length > size - 8:
            raise _broken(path, f"is truncated: {size} bytes, the header alone needs {8 + length}")
        if length > MAX_HEADER_BYTES:
            raise _broken(path, f"has a header of {length} bytes, at most {MAX_HEADER_BYTES} are allowed")
        header = _parse_header(path, file.read(length))
    first = 8 + length
    tensors = [(name, _tensor_of(path, name, entry, first)) for name, entry in header.items() if name != "__metadata__"]
    tensors.sort(key=lambda pair: (pair[1].start, pair[1].end))
    _require_seamless(path, tensors, first, size)
    return dict(tensors)


def digest_file(path: Path, tensors: dict[str, TensorInfo]) -> FileDigests:
    """Digests of a weight file and of each of its tensors, in one pass and constant memory.

    tensors: what `read_tensors` returned for this file. Raises CheckpointError if the file became shorter.
    """
    whole = hashlib.sha256()
    digests: dict[str, str] = {}
    with path.open("rb") as file:
        start = min((tensor.start for tensor in tensors.values()), default=os.fstat(file.fileno()).st_size)
        for chunk in _chunks(path, file, start):
            whole.update(chunk)
        for name, tensor in tensors.items():
            one = hashlib.sha256()
            for chunk in _chunks(path, file, tensor.end - tensor.start):
                one.update(chunk)
                whole.update(chunk)
            digests[name] = one.hexdigest()
    return FileDigests(whole.hexdigest(), digests)


def weights_digest(tensors: dict[str, TensorInfo], digests: dict[str, str]) -> str:
    """SHA-256 (hex) over name, dtype, shape and bytes of every tensor; how they are spread over files is left out."""
    whole = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        line = json.dumps([name, tensor.dtype, list(tensor.shape), digests[name]])
        whole.update(line.encode() + b"\n")
    return whole.hexdigest()


def _chunks(path: Path, file: BinaryIO, n_bytes: int) -> Iterator[bytes]:
    """The next bytes of a file, a few at a time. Raises CheckpointError if there are fewer."""
    left = n_bytes
    while left:
        chunk = file.read(min(left, CHUNK_BYTES))
        if not chunk:
            raise _broken(path, f"ended {left} bytes too early while it was read")
        yield chunk
        left -= len(chunk)


def _parse_header(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"has a header that cannot be read ({error})") from error
    if not isinstance(header, dict):
        raise _broken(path, "has a header that is not a JSON object")
    return header


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _tensor_of(path: Path, name: str, entry: object, first: int) -> TensorInfo:
    """Check one header entry. first: where the tensor bytes begin in the file."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _broken(path, f"describes tensor {shown(name)} without exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise _broken(path, f"gives tensor {shown(name)} the unknown dtype {shown(dtype)}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _broken(path, f"gives tensor {shown(name)} an impossible shape or place")
    needed = math.prod(shape) * DTYPE_BYTES[dtype]
    if offsets[1] - offsets[0] != needed:
        given = offsets[1] - offsets[0]
        raise _broken(path, f"gives tensor {shown(name)} {given} bytes, {dtype} of shape {shown(shape)} needs {needed}")
    return TensorInfo(dtype, tuple(shape), path.name, first + offsets[0], first + offsets[1])


def _are_sizes(values: object) -> bool:
    """Whether a JSON value is a short list of whole numbers that a file could have."""
    if not isinstance(values, list) or len(values) > MAX_DIMENSIONS:
        return False
    return all(type(value) is int and 0 <= value < MAX_SIZE for value in values)


def _require_seamless(path: Path, tensors: Sequence[tuple[str, TensorInfo]], first: int, size: int) -> None:
    at = first
    for name, tensor in tensors:
        if tensor.start != at:
            kind = "shares bytes with the tensor before it" if tensor.start < at else "leaves a gap before it"
            raise _broken(path, f"places tensor {shown(name)} at byte {tensor.start}, which {kind}")
        at = tensor.end
    if at > size:
        raise _broken(path, f"is truncated: {size} bytes, its header describes {at}")
    if at < size:
        raise _broken(path, f"has {size - at} bytes after its last tensor")


def _broken(path: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{path}: weight file {what}; save the model again with save_pretrained")
