"""A package index that really serves, and a GGUF file of a tiny model, for models that others published."""

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np

from agent2.models.published import PackageFile

PIECES = ["<unk>", "<s>", "</s>", *(chr(code) for code in range(33, 127)), "Ġ", "Ċ", "ab"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def write_gguf(
    path: Path, architecture: str = "llama", *, has_tokenizer: bool = True, template: str | None = TEMPLATE
) -> dict[str, np.ndarray]:
    """A Llama of one layer; returns its weights by their names in GGUF."""
    from gguf import GGUFWriter

    width, inner, heads, generator = 16, 32, 2, np.random.default_rng(0)
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(len(PIECES))
    if has_tokenizer:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(PIECES)
        writer.add_token_types([3, 3, 3, *[1] * (len(PIECES) - 3)])
        writer.add_token_merges(["a b"])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        if template is not None:
            writer.add_chat_template(template)
    shapes = {
        "token_embd.weight": (len(PIECES), width),
        "output_norm.weight": (width,),
        "output.weight": (len(PIECES), width),
        "blk.0.attn_norm.weight": (width,),
        "blk.0.ffn_norm.weight": (width,),
        **{f"blk.0.attn_{kind}.weight": (width, width) for kind in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{kind}.weight": (inner, width) for kind in ("gate", "up")},
        "blk.0.ffn_down.weight": (width, inner),
    }
    weights = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for name, tensor in weights.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def write_four_bits(path: Path, template: str | None = TEMPLATE, parts: int = 1) -> None:
    """A GGUF file with most weights in 4 bits, whose header claims 16."""
    from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, quants

    writer = GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    if template is not None:
        writer.add_chat_template(template)
    if parts > 1:
        writer.add_uint16("split.count", parts)
    weights = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    writer.add_tensor("norm", weights[0])
    four_bits = GGMLQuantizationType.Q4_0
    writer.add_tensor("projection", quants.quantize(weights, four_bits), raw_dtype=four_bits)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def wheel_with(member: str, content: bytes) -> bytes:
    """A package's file with one member, and a program that nobody may run."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        wheel.writestr("setup.py", "raise SystemExit('was run')")
        wheel.writestr(member, content)
    return buffer.getvalue()


def package_of(content: bytes, member: str, file: str = "tiny_model-1.0-py3-none-any.whl") -> PackageFile:
    """What the table would say of a package's file."""
    return PackageFile("tiny-model", "1.0", file, hashlib.sha256(content).hexdigest(), len(content), member)


class Index(BaseHTTPRequestHandler):
    """Lists one file and serves it; `break_after` bytes of the first request end the connection."""

    content = b""
    file = ""
    as_html = False
    knows_ranges = True
    break_after: int | None = None
    ranges: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if self.path.endswith("/"):
            address = f"/files/{self.file}"
            html = f'<a href="{address}#sha256=0">{self.file}</a>'
            page = html if self.as_html else json.dumps({"files": [{"filename": self.file, "url": address}]})
            self.answer(200, page.encode())
            return
        self.ranges.append(self.headers.get("Range", ""))
        start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-")) if self.headers.get("Range") else 0
        if not self.knows_ranges:
            start = 0
        self.answer(206 if start else 200, self.content[start:], is_file=True)

    def answer(self, status: int, body: bytes, *, is_file: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if is_file and type(self).break_after is not None:
            body = body[: type(self).break_after]
            type(self).break_after = None
            self.close_connection = True
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def package_index(content: bytes, file: str, **settings: object) -> Iterator[tuple[str, type[Index]]]:
    """The address of an index with that file, and the class that notes the ranges asked for."""
    handler = type("OneIndex", (Index,), {"content": content, "file": file, "ranges": [], **settings})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple", handler
    finally:
        server.shutdown()
        server.server_close()
