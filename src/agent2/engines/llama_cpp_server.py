"""Serves one model by llama.cpp, for the Python of its own environment (no import from agent2).

    python -P llama_cpp_server.py serve MODEL --port N --served-model-name NAME --dtype TYPE --parallel N
        [--max-model-len N] [--chat-template FILE]
    python -P llama_cpp_server.py describe FILE.gguf

MODEL is a folder in Hugging Face layout: its weights (safetensors) become a GGUF file in a temporary folder, in the
precision that was asked for; nothing else of the folder is converted. Chat template and tokenizer are those of the
folder, run here, so that llama.cpp sees and gives token ids only. Or MODEL is a GGUF file, whose precision, tokenizer
and template llama.cpp takes as they are; `describe` prints them as JSON without loading a weight.

Answers to `GET /v1/models` and `POST /v1/chat/completions`, for those who know the key.
"""

import argparse
import hmac
import json
import os
import re
import secrets
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KEY_VARIABLE = "LLAMA_CPP_SERVE_KEY"
MAX_BODY = 64 << 20
MAX_DROPPED = 64 << 10
INDEX = "model.safetensors.index.json"
LLAMA = "llama"
READ_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
MAX_ENDS = 3
NORMAL = 1
"""Kind of a token in a GGUF file."""
WRITTEN = re.compile(r"t(\d+)")
"""Each token's name in that file, since llama.cpp answers with names."""
SAMPLING = {
    **{"top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0, "dry_multiplier": 0.0},
    "samplers": ["temperature", "top_p"],
    "cache_prompt": False,
}
"""Nothing that a protocol does not ask for."""


def read_tensors(folder: Path) -> Any:
    """(name, array) of each tensor of the safetensors files, BF16 widened to 32 bits."""
    import numpy as np

    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        raw = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + length)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] not in READ_TYPES:
                sys.exit(f"error: tensor {name} is {entry['dtype']}; llama-cpp reads {', '.join(READ_TYPES)}")
            first, last = entry["data_offsets"]
            values = raw[first:last].view(READ_TYPES[entry["dtype"]]).reshape(entry["shape"])
            if entry["dtype"] == "BF16":  # numpy has none; its bits are the upper half of a float32
                values = (values.astype(np.uint32) << 16).view(np.float32)
            yield name, values.astype(np.float32)


def permute(weights: Any, n_heads: int) -> Any:
    """Rows of a query or key projection in the order in which llama.cpp rotates them: pairs side by side."""
    rows, columns = weights.shape
    halves = weights.reshape(n_heads, 2, rows // n_heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def write_vocabulary(writer: Any, size: int, end_tokens: list[int]) -> None:
    """Names of tokens, and which of them end an answer."""
    # Texts are made here. No name may look like an end token, which llama.cpp finds by name.
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{number}".encode() for number in range(size)])
    writer.add_token_scores([0.0] * size)
    writer.add_token_types([NORMAL] * size)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    adders = (writer.add_eos_token_id, writer.add_eot_token_id, writer.add_eom_token_id)
    for add, number in zip(adders, end_tokens, strict=False):
        add(number)


def convert(folder: Path, target: Path, dtype: str, end_tokens: list[int]) -> dict[str, Any]:
    """Write the GGUF file of a Llama model; its configuration. Ends the program for another architecture."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    has_bias = config.get("attention_bias") or config.get("mlp_bias")
    if config.get("model_type") != LLAMA or config.get("hidden_act", "silu") != "silu" or has_bias or kind != "default":
        sys.exit(
            f"error: {folder}: llama-cpp converts models of type llama without biases and with plain rotary positions, "
            f"and this is {config.get('model_type')} (positions {kind}); play it with vllm or transformers-serve"
        )
    if not 0 < len(end_tokens) <= MAX_ENDS:
        sys.exit(f"error: {folder}: has {len(end_tokens)} end tokens; llama-cpp takes 1 to {MAX_ENDS}")
    import gguf

    n_heads = config["num_attention_heads"]
    n_key_heads = config.get("num_key_value_heads") or n_heads
    width = config.get("head_dim") or config["hidden_size"] // n_heads
    writer = gguf.GGUFWriter(target, LLAMA)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(n_key_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    write_vocabulary(writer, config["vocab_size"], end_tokens)
    kinds = {
        "float32": gguf.GGMLQuantizationType.F32,
        "float16": gguf.GGMLQuantizationType.F16,
        "bfloat16": gguf.GGMLQuantizationType.BF16,
    }
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, values in read_tensors(folder):
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        new_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if new_name is None:
            sys.exit(f"error: {folder}: llama-cpp knows no tensor {name}; play it with vllm or transformers-serve")
        if name.endswith("q_proj.weight"):
            values = permute(values, n_heads)
        if name.endswith("k_proj.weight"):
            values = permute(values, n_key_heads)
        # vectors stay in 32 bits, as llama.cpp computes norms
        stored = kinds[dtype] if values.ndim > 1 else kinds["float32"]
        writer.add_tensor(new_name, gguf.quants.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return dict(config)


class Renderer:
    """Chats to token ids and back, as transformers makes them from the same folder."""

    def __init__(self, folder: Path, template: str | None) -> None:
        from jinja2.ext import Extension
        from jinja2.nodes import CallBlock
        from jinja2.sandbox import ImmutableSandboxedEnvironment
        from tokenizers import Tokenizer

        class Generation(Extension):
            """`{% generation %}`, which marks an answer for training, says nothing in a prompt."""

            tags = {"generation"}  # noqa: RUF012 - as in its base class

            def parse(self, parser: Any) -> Any:
                line = next(parser.stream).lineno
                body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
                # a block of its own, as in transformers: what is set inside is not known behind it
                return CallBlock(self.call_method("_say"), [], [], body).set_lineno(line)

            def _say(self, caller: Callable[[], str]) -> str:
                return caller()

        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        template_file = folder / "chat_template.jinja"
        if template is None:
            template = (
                template_file.read_text(encoding="utf-8") if template_file.exists() else settings.get("chat_template")
            )
        if not isinstance(template, str):
            sys.exit(f"error: {folder}: has no chat template")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
        )
        environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
        self._template = environment.from_string(template)
        tokens = {name: value for name, value in settings.items() if name.endswith("_token")}
        self._tokens = {
            name: value["content"] if isinstance(value, dict) else value for name, value in tokens.items() if value
        }

    def encode(self, messages: list[dict[str, str]]) -> list[int]:
        """The prompt."""
        text = self._template.render(messages=messages, add_generation_prompt=True, **self._tokens)
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: list[int]) -> str:
        """The answer, without special tokens."""
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


def describe(file: Path) -> dict[str, Any]:
    """What a GGUF file says of itself, and of which types its weights are. Ends the program for one that is torn."""
    import gguf

    try:
        reader = gguf.GGUFReader(file)
        header = {
            name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.ggml")
        }
        weights: Counter[str] = Counter()
        for tensor in reader.tensors:
            weights[tensor.tensor_type.name] += int(tensor.n_elements)
    except Exception as error:  # boundary: a torn or made-up file can make the reader raise anything
        sys.exit(f"error: {file.name} is no complete GGUF file ({type(error).__name__}: {str(error)[:200]})")
    architecture = header.get("general.architecture")
    if int(header.get("split.count") or 1) > 1:
        sys.exit(
            f"error: {file.name} is one of {header['split.count']} parts; put them together (llama-gguf-split --merge)"
        )
    return {
        "architecture": architecture,
        "chat_template": header.get("tokenizer.chat_template"),
        "context_length": header.get(f"{architecture}.context_length"),
        "weights": dict(weights.most_common()),
    }


def start(path: Path, options: argparse.Namespace, limit: int, *, is_converted: bool) -> Any:
    """llama.cpp on the file, with a port that nobody is told of. is_converted: it was written here."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.hostnames = ["127.0.0.1"]
    parameters.api_keys = [secrets.token_urlsafe(24)]
    parameters.ui = False
    parameters.offline = True
    parameters.n_parallel = options.parallel
    parameters.n_ctx = limit * options.parallel
    parameters.cache_ram_mib = 0
    threads = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    if not is_converted:
        # the file's own template, and an answer that nothing is taken out of
        parameters.use_jinja = parameters.force_pure_content_parser = True
        if options.chat_template is not None:
            parameters.chat_template = options.chat_template.read_text(encoding="utf-8")
    elif options.dtype == "float32":
        parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    return xllamacpp.Server(parameters)


def too_long(n_prompt: int, n_new: int, limit: int) -> tuple[int, Any]:
    """Status and body for a prompt that leaves no room for the answer, in the words that vLLM has for it."""
    refusal = (
        f"This model's maximum context length is {limit} tokens. However, you requested {n_prompt + n_new} "
        f"tokens ({n_prompt} in the messages, {n_new} in the completion)."
    )
    return 400, {"error": {"message": refusal}}


def answer_by_file(model: Any, body: dict[str, Any], limit: int) -> tuple[int, Any]:
    """Status and body of one chat completion of a GGUF file, in its own tokens and template."""
    n_new = int(body["max_tokens"])
    names = ("messages", "temperature", "top_p", "seed", "logprobs", "top_logprobs")
    options = {name: body[name] for name in names if body.get(name) is not None}
    result = model.handle_chat_completions({**SAMPLING, "max_tokens": n_new, **options})
    error = result.get("error", {})
    if error.get("type") == "exceed_context_size_error":
        return too_long(int(error.get("n_prompt_tokens") or limit), n_new, limit)
    if "choices" not in result:
        return 500, {"error": {"message": f"llama.cpp answered {json.dumps(result)[:300]}"}}
    if result["usage"]["prompt_tokens"] + n_new > limit:  # known only now: the file's tokenizer is llama.cpp's
        return too_long(result["usage"]["prompt_tokens"], n_new, limit)
    return 200, {name: result[name] for name in ("object", "choices", "usage")}


def answer(model: Any, renderer: Renderer, body: dict[str, Any], limit: int, end_tokens: list[int]) -> tuple[int, Any]:
    """Status and body of one chat completion."""
    prompt = renderer.encode(body["messages"])
    n_new = int(body["max_tokens"])
    if len(prompt) + n_new > limit:
        return too_long(len(prompt), n_new, limit)
    wants = bool(body.get("logprobs"))
    result = model.handle_completions(
        {
            "prompt": prompt,
            "n_predict": n_new,
            "temperature": body.get("temperature", 1.0),
            "top_p": body.get("top_p", 1.0),
            "seed": body.get("seed", 0),
            **SAMPLING,
            "n_probs": max(1, int(body.get("top_logprobs") or 0)) if wants else 0,
        }
    )
    if "choices" not in result:
        return 500, {"error": {"message": f"llama.cpp answered {json.dumps(result)[:300]}"}}
    written = result["choices"][0]
    tokens = [int(number) for number in WRITTEN.findall(written["text"])]
    if len(tokens) != result["usage"]["completion_tokens"]:
        return 500, {"error": {"message": f"{len(tokens)} tokens came of {result['usage']['completion_tokens']}"}}
    has_ended = bool(tokens) and tokens[-1] in end_tokens
    choice: dict[str, Any] = {
        "index": 0,
        "finish_reason": "stop" if has_ended else "length",
        "message": {"role": "assistant", "content": renderer.decode(tokens[:-1] if has_ended else tokens)},
    }
    if wants:
        choice["logprobs"] = {"content": [_logprob(entry, renderer) for entry in written["logprobs"]["content"]]}
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
    return 200, {"object": "chat.completion", "choices": [choice], "usage": usage}


def _logprob(entry: dict[str, Any], renderer: Renderer) -> dict[str, Any]:
    likeliest = [{"token": _text(top, renderer), "logprob": top["logprob"]} for top in entry.get("top_logprobs", [])]
    return {"token": _text(entry, renderer), "logprob": entry["logprob"], "top_logprobs": likeliest}


def _text(entry: dict[str, Any], renderer: Renderer) -> str:
    return str(renderer.tokenizer.decode([entry["id"]], skip_special_tokens=False))


def make_handler(name: str, key: str, respond: Any) -> type[BaseHTTPRequestHandler]:
    """The HTTP side, which lists one model."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: Any) -> None:
            """No line for each request."""

        def _send(self, status: int, body: Any) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            if self.close_connection:
                self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(content)

        def _is_known(self) -> bool:
            authorization = self.headers.get("authorization", "")
            if hmac.compare_digest(authorization.encode(), f"Bearer {key}".encode()):
                return True
            self._drop_body()
            self._send(401, {"error": {"message": "wrong key"}})
            return False

        def _drop_body(self) -> None:
            """Read a small body that is not looked at: a connection that ends with unread bytes loses the answer."""
            length = int(self.headers.get("content-length") or 0)
            self.rfile.read(min(max(0, length), MAX_DROPPED))
            self.close_connection = True

        def do_GET(self) -> None:
            if self._is_known():
                is_list = self.path == "/v1/models"
                self._send(
                    200 if is_list else 404, {"data": [{"id": name}]} if is_list else {"error": {"message": "?"}}
                )

        def do_POST(self) -> None:
            if not self._is_known():
                return
            length = int(self.headers.get("content-length") or 0)
            if self.path != "/v1/chat/completions" or not 0 < length <= MAX_BODY:
                self._drop_body()
                return self._send(404, {"error": {"message": "POST /v1/chat/completions with a body"}})
            try:
                body = json.loads(self.rfile.read(length))
                status, content = respond(body)
            except Exception as error:  # boundary: one request must not end the others
                status, content = 500, {"error": {"message": f"{type(error).__name__}: {error}"}}
            if status == 200:
                content |= {"id": f"chatcmpl-{self.headers.get('x-request-id', '')}", "model": name}
            self._send(status, content)

    return Handler


def main() -> None:
    """Read the flags; describe a file, or convert and serve until the process ends."""
    if sys.argv[1:2] == ["describe"]:
        sys.stdout.write(json.dumps(describe(Path(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--dtype", required=True, help="float32, float16 or bfloat16; of a GGUF file: what it has")
    parser.add_argument("--parallel", type=int, required=True)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--chat-template", type=Path)
    options = parser.parse_args()
    key = os.environ.pop(KEY_VARIABLE)
    respond = file_responder(options) if options.model.is_file() else folder_responder(options)
    handler = make_handler(options.served_model_name, key, respond)
    ThreadingHTTPServer(("127.0.0.1", options.port), handler).serve_forever()


def folder_responder(options: argparse.Namespace) -> Any:
    """What answers a request by a folder in Hugging Face layout, which is converted."""
    template = options.chat_template.read_text(encoding="utf-8") if options.chat_template else None
    renderer = Renderer(options.model, template)
    ends = end_tokens_of(options.model)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.gguf"
        config = convert(options.model, path, options.dtype, ends)
        longest = config["max_position_embeddings"]
        limit = min(options.max_model_len or longest, longest)
        model = start(path, options, limit, is_converted=True)
    return lambda body: answer(model, renderer, body, limit, ends)


def file_responder(options: argparse.Namespace) -> Any:
    """What answers a request by a GGUF file as it is."""
    longest = describe(options.model)["context_length"]
    limits = [limit for limit in (options.max_model_len, longest) if limit]
    if not limits:
        sys.exit(f"error: {options.model.name} does not say its longest context; a suite's context_length does")
    model = start(options.model, options, min(limits), is_converted=False)
    return lambda body: answer_by_file(model, body, min(limits))


def end_tokens_of(folder: Path) -> list[int]:
    """What ends an answer in transformers: of generation_config.json, else of config.json."""
    for name in ("generation_config.json", "config.json"):
        file = folder / name
        ids = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id") if file.exists() else None
        if ids is not None:
            return list(ids) if isinstance(ids, list) else [ids]
    return []


if __name__ == "__main__":
    main()
