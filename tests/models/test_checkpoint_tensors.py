import hashlib
import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from agent2.errors import CheckpointError
from agent2.models.checkpoint import digest_file, read_tensors, weights_digest

ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def write(path: Path, header: object, blob: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)
    return path


def test_what_the_reference_library_writes_is_read_with_its_shapes_and_bytes(tmp_path):
    path = tmp_path / "model.safetensors"
    values = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    save_file({"a": values, "b": torch.ones(4, dtype=torch.bfloat16), "empty": torch.zeros(0, 5)}, path)
    tensors = read_tensors(path)
    assert {name: (t.dtype, t.shape) for name, t in tensors.items()} == {
        "a": ("F32", (2, 3)),
        "b": ("BF16", (4,)),
        "empty": ("F32", (0, 5)),
    }
    raw = path.read_bytes()[tensors["a"].start : tensors["a"].end]
    assert struct.unpack("<6f", raw) == (0, 1, 2, 3, 4, 5)


def test_digests_are_those_of_the_whole_file_and_of_each_tensor(tmp_path):
    path = write(tmp_path / "x.safetensors", {"a": ONE}, b"12345678")
    digests = digest_file(path, read_tensors(path))
    assert digests.file == hashlib.sha256(path.read_bytes()).hexdigest()
    assert digests.tensors == {"a": hashlib.sha256(b"12345678").hexdigest()}


def test_weights_digest_depends_on_name_dtype_shape_and_bytes_but_not_on_the_file(tmp_path):
    def digest(name="a", shape=(2,), blob=b"12345678", file="x.safetensors", dtype="F32"):
        entry = {"dtype": dtype, "shape": list(shape), "data_offsets": [0, 8]}
        path = write(tmp_path / file, {name: entry}, blob)
        tensors = read_tensors(path)
        return weights_digest(tensors, digest_file(path, tensors).tensors)

    base = digest()
    assert digest(file="y.safetensors") == base
    others = [digest(name="b"), digest(shape=(2, 1)), digest(blob=b"12345679"), digest(dtype="I32")]
    assert len({base, *others}) == 5


@pytest.mark.parametrize(
    ("header", "blob", "complaint"),
    [
        ({"a": ONE}, b"1234567", "is truncated"),
        ({"a": ONE}, b"123456789", "1 bytes after its last tensor"),
        ({"a": {**ONE, "shape": [3]}}, b"12345678", r"gives tensor 'a' 8 bytes, F32 of shape \[3\] needs 12"),
        ({"a": {**ONE, "data_offsets": [4, 12]}}, b"123456789012", "leaves a gap"),
        ({"a": ONE, "b": {**ONE, "data_offsets": [4, 12]}}, b"123456789012", "shares bytes"),
        ({"a": {**ONE, "dtype": "F31"}}, b"12345678", "unknown dtype 'F31'"),
        ({"a": {**ONE, "dtype": ["F32"]}}, b"12345678", "unknown dtype"),
        ({"a": {**ONE, "shape": [-2]}}, b"12345678", "impossible shape"),
        ({"a": {**ONE, "shape": [True, 2]}}, b"12345678", "impossible shape"),
        ({"a": {**ONE, "data_offsets": [8, 0]}}, b"12345678", "impossible shape or place"),
        ({"a": {"dtype": "F32"}}, b"", "without exactly dtype"),
        ([1], b"", "not a JSON object"),
        (b"{nonsense", b"", "cannot be read"),
        (b"\xff\xfe", b"", "cannot be read"),
        (b'{"a": 1, "a": 2}', b"", "occurs twice"),
        (b"[" * 200_000, b"", "cannot be read"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, header, blob, complaint):
    path = write(tmp_path / "model.safetensors", header, blob)
    with pytest.raises(CheckpointError, match=complaint) as caught:
        read_tensors(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"1234", struct.pack("<Q", 1 << 62) + b"{}"])
def test_a_file_too_short_for_its_header_is_refused(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="truncated"):
        read_tensors(path)


def test_a_giant_header_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 200_000_000))
        file.truncate(300_000_000)
    with pytest.raises(CheckpointError, match="at most 16777216"):
        read_tensors(path)
