"""A checkpoint: one folder of weights in Hugging Face layout, inspected without loading it.

`inspect_checkpoint` needs no tensor library and executes nothing that the folder brings; it reads JSON and safetensors
headers. What it accepts is complete (config, tokenizer, every tensor of every shard), holds safetensors only and needs
no custom code. It lists the files that count; everything else in the folder is named in `notes` and must not be used.
`architecture` compares two checkpoints.

Does NOT look at the numbers (`loading.require_finite`), does not prove that the model loads, follows links
(copy an untrusted folder first) and does not notice files that change meanwhile.

Safetensors files are read without a library (eight bytes, little endian: the length of the header; the header, a JSON
object `name -> {dtype, shape, data_offsets}`; the bytes of the tensors without gaps): every byte of an accepted file
belongs to the header or to exactly one tensor, and every tensor has exactly the bytes that its shape and dtype need.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from agent2.errors import CheckpointError, quoted
from agent2.foreign_files import open_regular

MAX_HEADER_BYTES = 16 << 20
"""More than a hundred thousand tensors need. The reference implementation allows 100 MB, but JSON can grow to
thirty times its size in memory."""
MAX_DIMENSIONS = 64
"""As many as torch allows."""
MAX_SIZE = 1 << 63
"""No length, offset or dimension reaches this."""
CHUNK_BYTES = 1 << 20
DTYPE_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PROCESSOR_FILES = frozenset({"preprocessor_config.json", "processor_config.json"})
"""How a model that sees pictures is shown them."""
AUDIO_KEY, AUDIO_SETTINGS = "audio_tokenizer", "audio_tokenizer_config.json"
"""Where a processor names a further model by its place, which transformers would load with whatever it brings."""
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

MODEL_FILES = frozenset(
    {
        CONFIG,
        TOKENIZER,
        TOKENIZER_CONFIG,
        CHAT_TEMPLATE,
        INDEX,
        "generation_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        *PROCESSOR_FILES,
    }
)
"""What a whole model may consist of besides its weights."""
ALLOWED_FILES = MODEL_FILES | {WEIGHTS, ADAPTER_CONFIG, ADAPTER_WEIGHTS}
"""What a checkpoint may consist of, besides the shards that `SHARD_NAME` matches."""
CONFIG_FILES = (CONFIG, TOKENIZER_CONFIG, "generation_config.json", ADAPTER_CONFIG, *sorted(PROCESSOR_FILES))
"""Files that could request custom code."""
SHARD_NAME = re.compile(r"model[A-Za-z0-9._-]*\.safetensors")
PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"})
CLASS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
MODULE_NAME = re.compile(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*")
"""A literal name of a module or parameter: nothing that a regular expression reads as more than itself."""
MODULE_LISTS = ("target_modules", "exclude_modules", "modules_to_save", "target_parameters", "layers_pattern")
MODULE_PATTERNS = ("rank_pattern", "alpha_pattern")
"""Keys of an adapter's config that peft would use as regular expressions, or as parts of them."""
MAX_MODULE_NAMES = 1000
MAX_MODULE_NAME_CHARS = 200
MAX_CONFIG_BYTES = 16 << 20
"""Of one file of settings or one chat template."""
MAX_JSON_BYTES = 64 << 20
"""Of a tokenizer or an index; real ones reach half of it. JSON can grow to thirty times its size in memory."""

MAX_NOTES = 20
NO_CHAT_TEMPLATE = "none"
"""The chat-template digest of a checkpoint that has no template."""


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
    with open_regular(path, follow=True) as file:
        size, prefix = os.fstat(file.fileno()).st_size, file.read(8)
        length = int.from_bytes(prefix, "little")  # untrusted: compared with the file's size before it is read
        if len(prefix) < 8 or length > size - 8:
            raise _weight_file_error(path, f"is truncated: {size} bytes, the header alone needs {8 + length}")
        if length > MAX_HEADER_BYTES:
            raise _weight_file_error(path, f"has a header of {length} bytes, at most {MAX_HEADER_BYTES} are allowed")
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
    file_hash = hashlib.sha256()
    digests: dict[str, str] = {}
    with open_regular(path, follow=True, max_bytes=None if tensors else MAX_JSON_BYTES) as file:
        start = min((tensor.start for tensor in tensors.values()), default=os.fstat(file.fileno()).st_size)
        for chunk in _chunks(path, file, start):
            file_hash.update(chunk)
        for name, tensor in tensors.items():
            tensor_hash = hashlib.sha256()
            for chunk in _chunks(path, file, tensor.end - tensor.start):
                tensor_hash.update(chunk)
                file_hash.update(chunk)
            digests[name] = tensor_hash.hexdigest()
    return FileDigests(file_hash.hexdigest(), digests)


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
    n_left = n_bytes
    while n_left:
        chunk = file.read(min(n_left, CHUNK_BYTES))
        if not chunk:
            raise _weight_file_error(path, f"ended {n_left} bytes too early while it was read")
        yield chunk
        n_left -= len(chunk)


def _parse_header(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise _weight_file_error(path, f"has a header that cannot be read ({error})") from error
    if not isinstance(header, dict):
        raise _weight_file_error(path, "has a header that is not a JSON object")
    return header


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):  # json would silently keep the last, other readers may keep the first
        raise ValueError("a name occurs twice")
    return result


def _tensor_of(path: Path, name: str, entry: object, first: int) -> TensorInfo:
    """Check one header entry. first: where the tensor bytes begin in the file."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _weight_file_error(path, f"describes tensor {quoted(name)} without exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise _weight_file_error(path, f"gives tensor {quoted(name)} the unknown dtype {quoted(dtype)}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _weight_file_error(path, f"gives tensor {quoted(name)} an impossible shape or place")
    needed = math.prod(shape) * DTYPE_BYTES[dtype]
    if offsets[1] - offsets[0] != needed:
        n_described = offsets[1] - offsets[0]
        raise _weight_file_error(
            path, f"gives tensor {quoted(name)} {n_described} bytes, {dtype} of shape {quoted(shape)} needs {needed}"
        )
    return TensorInfo(dtype, tuple(shape), path.name, first + offsets[0], first + offsets[1])


def _are_sizes(values: object) -> bool:
    """Whether a JSON value is a short list of whole numbers that a file could have."""
    if not isinstance(values, list) or len(values) > MAX_DIMENSIONS:
        return False
    return all(type(value) is int and 0 <= value < MAX_SIZE for value in values)  # isinstance would accept true


def _require_seamless(path: Path, tensors: Sequence[tuple[str, TensorInfo]], first: int, size: int) -> None:
    end = first
    for name, tensor in tensors:
        if tensor.start != end:
            defect = "shares bytes with the tensor before it" if tensor.start < end else "leaves a gap before it"
            raise _weight_file_error(path, f"places tensor {quoted(name)} at byte {tensor.start}, which {defect}")
        end = tensor.end
    if end > size:
        raise _weight_file_error(path, f"is truncated: {size} bytes, its header describes {end}")
    if end < size:
        raise _weight_file_error(path, f"has {size - end} bytes after its last tensor")


def _weight_file_error(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(f"{path}: weight file {problem}; save the model again with save_pretrained")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint. Raises CheckpointError if the file holds anything else."""
    raw = read_small(path, MAX_JSON_BYTES if path.name in (TOKENIZER, INDEX) else MAX_CONFIG_BYTES)
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON ({error}); save the model again") from error
    if not isinstance(value, dict):
        raise CheckpointError(
            f"{path}: contains a {type(value).__name__}, a JSON object is needed; save the model again"
        )
    return value


def read_small(path: Path, limit: int) -> bytes:
    """The bytes of a file of a checkpoint. Raises CheckpointError if there are more than the limit, unread."""
    try:
        with open_regular(path, follow=True) as file:
            raw = file.read(limit + 1)  # not stat first: the file may grow in between
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); save the model again") from error
    if len(raw) > limit:
        raise CheckpointError(f"{path}: has more than {limit} bytes, no real model needs that; save the model again")
    return raw


def list_names(path: Path) -> set[str]:
    """Names in the folder. Raises CheckpointError unless each name that counts is a regular file."""
    if not path.is_dir():
        problem = "is a file, not a folder" if path.exists() else "does not exist"
        raise CheckpointError(f"{path}: the checkpoint {problem}; give the folder that save_pretrained wrote")
    names = {entry.name for entry in path.iterdir()}
    if not names:
        raise CheckpointError(f"{path}: the checkpoint's folder is empty; save the model and its tokenizer there")
    for name in sorted(names):
        is_allowed = name in ALLOWED_FILES or SHARD_NAME.fullmatch(name)
        if is_allowed and not (path / name).is_file():
            raise CheckpointError(f"{path / name}: not a regular file; save the model again with save_pretrained")
    return names


def refuse_code(path: Path, names: set[str]) -> None:
    """Raise CheckpointError for Python files, and for a config that asks for custom code or another model."""
    for name in sorted(names):
        if name.endswith(".py"):
            raise CheckpointError(
                f"{path}: {name!r} is custom code, which is never run; save a model of a class that "
                "transformers has itself"
            )
        if name == AUDIO_SETTINGS:
            raise _names_another_model(path / name)
        if name in CONFIG_FILES:
            settings = read_json(path / name)
            if name in PROCESSOR_FILES and _path_of_key(AUDIO_KEY, settings) is not None:
                raise _names_another_model(path / name)
            key_path = _path_of_key("auto_map", settings)
            if key_path is not None:
                raise CheckpointError(
                    f"{path / name}: {quoted(key_path)} asks for custom code, which is never run; remove it and use a "
                    "model class that transformers has itself"
                )


def _names_another_model(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: {AUDIO_KEY} names a model in another place, which is not part of this checkpoint and is not loaded; "
        "remove it"
    )


_JsonPath = tuple["_JsonPath | None", str]
"""The path of a value inside a JSON value: the path of its parent, and the last step. A linked list, because paths
written out for every value take memory that grows with depth times width."""


def _path_of_key(key: str, value: object) -> str | None:
    """Dotted path of a key with a true value anywhere inside a JSON value; None if there is none."""
    # A stack instead of recursion: a hostile file may be nested deeper than Python's stack.
    pending: list[tuple[_JsonPath | None, object]] = [(None, value)]
    while pending:
        path, inner = pending.pop()
        if isinstance(inner, dict):
            if inner.get(key):
                return _dotted((path, key))
            pending.extend(((path, str(name)), part) for name, part in inner.items() if isinstance(part, dict | list))
        elif isinstance(inner, list):
            pending.extend(((path, f"[{i}]"), part) for i, part in enumerate(inner) if isinstance(part, dict | list))
    return None


def _dotted(path: _JsonPath | None) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(step)
    return ".".join(reversed(steps)).replace(".[", "[")


def read_model_config(path: Path, names: set[str]) -> dict[str, Any]:
    """The config of a whole model, with `model_type` and at least one of `architectures`."""
    if CONFIG not in names:
        raise CheckpointError(f"{path}: there is no {CONFIG}; save the whole model with model.save_pretrained")
    config = read_json(path / CONFIG)
    if not isinstance(config.get("model_type"), str):
        raise CheckpointError(f"{path / CONFIG}: 'model_type' is missing; save the model again with save_pretrained")
    classes = config.get("architectures")
    if not isinstance(classes, list) or not classes or not is_class_name(classes[0]):
        raise CheckpointError(f"{path / CONFIG}: 'architectures' is missing; save the model again with save_pretrained")
    if config.get("quantization_config"):
        raise CheckpointError(f"{path / CONFIG}: the weights are quantised; save the model in float32 or bfloat16")
    return config


def read_adapter_config(path: Path, names: set[str]) -> dict[str, Any]:
    """The config of an adapter, with `peft_type`. A folder with an adapter and a whole model is refused."""
    whole = sorted(name for name in names if SHARD_NAME.fullmatch(name) or name == INDEX)
    if whole:
        raise CheckpointError(
            f"{path}: contains an adapter ({ADAPTER_CONFIG}) and a whole model ({whole[0]}); keep one of the two"
        )
    if ADAPTER_WEIGHTS not in names:
        raise CheckpointError(
            f"{path}: there is {ADAPTER_CONFIG} but no {ADAPTER_WEIGHTS}; save the adapter with save_pretrained"
        )
    config = read_json(path / ADAPTER_CONFIG)
    if not is_class_name(config.get("peft_type")):
        raise CheckpointError(f"{path / ADAPTER_CONFIG}: 'peft_type' is missing; save the adapter with save_pretrained")
    _require_literal_names(path / ADAPTER_CONFIG, config)
    return config


def _require_literal_names(path: Path, config: Mapping[str, Any]) -> None:
    """Refuse names of modules that are regular expressions: one of them can keep peft busy for ever."""
    for key in (*MODULE_LISTS, *MODULE_PATTERNS):
        value = config.get(key)
        if value is None:
            continue
        if key == "layers_pattern" and isinstance(value, str):
            value = [value]
        if not isinstance(value, dict if key in MODULE_PATTERNS else list):
            form = "an object with literal module names as keys" if key in MODULE_PATTERNS else "a list of names"
            raise CheckpointError(f"{path}: {key!r} is {quoted(value)}; write {form}, without regular expressions")
        if len(value) > MAX_MODULE_NAMES:
            raise CheckpointError(
                f"{path}: {key!r} has {len(value)} names, at most {MAX_MODULE_NAMES} are read; name only the last "
                "part of each module, as in ['q_proj', 'v_proj']"
            )
        for name in value:
            is_short = isinstance(name, str) and len(name) <= MAX_MODULE_NAME_CHARS
            if not is_short or not MODULE_NAME.fullmatch(name):
                raise CheckpointError(
                    f"{path}: {key!r} contains {quoted(name)}, which is not a literal module name; write names such "
                    "as 'q_proj', without regular expressions"
                )


def is_class_name(value: object) -> bool:
    """Whether a JSON value can be the name of a Python class."""
    return isinstance(value, str) and CLASS_NAME.fullmatch(value) is not None


def weight_files(path: Path, names: set[str]) -> list[str]:
    """Names of the weight files that transformers would load: a single file wins over shards."""
    if WEIGHTS in names:
        return [WEIGHTS]
    if INDEX in names:
        return _shards(path, names)
    pickles = sorted(name for name in names if Path(name).suffix in PICKLE_SUFFIXES)
    if pickles:
        raise CheckpointError(
            f"{path}: {pickles[0]!r}: pickle weights are never loaded; save safetensors with model.save_pretrained"
        )
    raise CheckpointError(f"{path}: there are no weights; {WEIGHTS} or {INDEX} with its shards is needed")


def _shards(path: Path, names: set[str]) -> list[str]:
    weight_map = read_json(path / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path / INDEX}: 'weight_map' is missing or empty; save the model again")
    # "?" is no name of a shard, so an index with other values is refused below.
    shards = set(weight_map.values()) if all(isinstance(v, str) for v in weight_map.values()) else {"?"}
    for shard in sorted(shards):
        if not SHARD_NAME.fullmatch(shard):
            raise CheckpointError(f"{path / INDEX}: {quoted(shard)} is not a name of a shard; save the model again")
        if shard not in names:
            raise CheckpointError(f"{path / INDEX}: shard {quoted(shard)} is missing from the folder; copy all shards")
    shard_of = {name: shard for shard in shards for name in read_tensors(path / shard)}
    for name in sorted(set(weight_map) | set(shard_of)):
        if weight_map.get(name) != shard_of.get(name):
            raise CheckpointError(
                f"{path / INDEX}: tensor {quoted(name)} is said to be in {weight_map.get(name)}, but is in "
                f"{shard_of.get(name)}; save the model again"
            )
    return sorted(shards)


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What one folder of weights holds."""

    path: Path
    architecture: str
    """First of `architectures` in the config; "LoraAdapter" and the like for an adapter."""
    tensors: Mapping[str, TensorInfo]
    weights_digest: str
    """Equal for equal tensors, however they are spread over files."""
    content_digest: str
    """Over the name and the bytes of every file in `files`."""
    chat_template_digest: str
    """Of the template's text, wherever it is stored; `NO_CHAT_TEMPLATE` without one and for an adapter,
    which is merged under the base model's tokenizer."""
    is_adapter: bool
    """Holds a PEFT adapter, not a whole model."""
    files: tuple[str, ...]
    """Names of the files that count; copy these and no others."""
    size_bytes: int
    """Of these files together."""
    tensor_digests: Mapping[str, str] = field(repr=False, default_factory=dict)
    """SHA-256 (hex) of the bytes of each tensor."""
    config: Mapping[str, Any] = field(repr=False, default_factory=dict)
    """The model's config, or the adapter's."""
    notes: tuple[str, ...] = ()
    """What is not used of the folder, one sentence each; at most `MAX_NOTES` and a count of the others."""

    @property
    def sees_pictures(self) -> bool:
        """Whether its config has an encoder of pictures beside the language model."""
        return isinstance(self.config.get("vision_config"), dict)


def inspect_checkpoint(path: Path) -> CheckpointInfo:
    """Check that a folder is a complete model or adapter and compute its digests.

    Reads every byte of the files that count, a few at a time. Raises CheckpointError, and nothing else, with one
    short sentence that says what to change.
    """
    try:
        return _inspect(path)
    except OSError as error:
        where = quoted(str(error.filename or path))
        raise CheckpointError(f"{path}: {where} cannot be read ({error.strerror}); save the model again") from error


def _inspect(path: Path) -> CheckpointInfo:
    names = list_names(path)
    refuse_code(path, names)
    is_adapter = ADAPTER_CONFIG in names
    config = read_adapter_config(path, names) if is_adapter else read_model_config(path, names)
    weights = [ADAPTER_WEIGHTS] if is_adapter else weight_files(path, names)
    tensors = _read_weights(path, weights)
    if not is_adapter and TOKENIZER not in names:
        raise CheckpointError(f"{path}: there is no {TOKENIZER}; save the tokenizer too: tokenizer.save_pretrained")
    used = {ADAPTER_CONFIG, ADAPTER_WEIGHTS} if is_adapter else (names & MODEL_FILES) | set(weights)
    if weights == [WEIGHTS]:  # transformers prefers the single file and does not read the index then
        used.discard(INDEX)
    files = tuple(sorted(used))
    template = NO_CHAT_TEMPLATE if is_adapter else chat_template_digest(path)
    file_digests, tensor_digests = _digest(path, files, tensors)
    return CheckpointInfo(
        path=path,
        architecture=config["architectures"][0] if not is_adapter else f"{config['peft_type'].title()}Adapter",
        tensors=tensors,
        weights_digest=weights_digest(tensors, tensor_digests),
        content_digest=hashlib.sha256(json.dumps(file_digests, sort_keys=True).encode()).hexdigest(),
        chat_template_digest=template,
        is_adapter=is_adapter,
        files=files,
        size_bytes=sum((path / name).stat().st_size for name in files),
        tensor_digests=tensor_digests,
        config=config,
        notes=_notes(names - used),
    )


def chat_template_digest(path: Path) -> str:
    """SHA-256 (hex) of the chat template that transformers would use, or `NO_CHAT_TEMPLATE`.

    A separate template file wins over the one in the tokenizer's config.
    """
    separate = path / CHAT_TEMPLATE
    template: object = None
    if separate.is_file():
        try:
            text = read_small(separate, MAX_CONFIG_BYTES).decode()
            template = text.replace("\r\n", "\n").replace("\r", "\n")  # as transformers reads it
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{separate}: the chat template is not UTF-8 text; save it again") from error
    elif (path / TOKENIZER_CONFIG).is_file():
        template = read_json(path / TOKENIZER_CONFIG).get("chat_template")
    try:
        if _is_template(template):
            return template_digest(template)
    except UnicodeEncodeError:  # a lone surrogate, which JSON can hold and UTF-8 cannot
        pass
    raise CheckpointError(f"{path / TOKENIZER_CONFIG}: the chat template is not a text; save it again")


def _is_template(value: object) -> bool:
    """One text, or several by name as transformers saves them; how deep a parser can go depends on Python's version."""
    if isinstance(value, list):
        return all(
            isinstance(template, dict) and {type(part) for part in template.values()} <= {str} for template in value
        )
    return value is None or isinstance(value, str)


def template_digest(template: object) -> str:
    """SHA-256 (hex) of a chat template: a text, or several by name; `NO_CHAT_TEMPLATE` for None."""
    if template is None:
        return NO_CHAT_TEMPLATE
    text = template if isinstance(template, str) else json.dumps(template, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def require_template(info: CheckpointInfo) -> None:
    """Raise CheckpointError for a base model whose prompts cannot be rendered."""
    if info.chat_template_digest == NO_CHAT_TEMPLATE:
        raise CheckpointError(
            f"{info.path}: the base model has no chat template, so no prompt can be made for it; set "
            "tokenizer.chat_template and save the tokenizer again, or take an instruction-tuned base model"
        )


def _notes(unused: set[str]) -> tuple[str, ...]:
    sentences = [f"{name!r} is not used" for name in sorted(unused)[:MAX_NOTES]]
    n_more = len(unused) - len(sentences)
    return (*sentences, f"{n_more} more files are not used") if n_more else tuple(sentences)


def _read_weights(path: Path, files: list[str]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        for name, tensor in read_tensors(path / file).items():
            if name in tensors:
                raise CheckpointError(
                    f"{path}: tensor {quoted(name)} is in {tensors[name].file} and in {file}; save again"
                )
            tensors[name] = tensor
    if not tensors:
        raise CheckpointError(f"{path}: the weight files hold no tensors; save the model again")
    return tensors


def _digest(
    path: Path, files: tuple[str, ...], tensors: Mapping[str, TensorInfo]
) -> tuple[dict[str, str], dict[str, str]]:
    """Digest of each file, and of each tensor."""
    file_digests: dict[str, str] = {}
    tensor_digests: dict[str, str] = {}
    for file in files:
        file_tensors = {name: tensor for name, tensor in tensors.items() if tensor.file == file}
        digests = digest_file(path / file, file_tensors)
        file_digests[file] = digests.file
        tensor_digests.update(digests.tensors)
    return file_digests, tensor_digests
