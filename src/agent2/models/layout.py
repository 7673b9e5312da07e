"""The files of a checkpoint's folder in Hugging Face layout: which may be there, which count, which are refused.

Reads JSON and safetensors headers, executes nothing that the folder brings. Follows links: whoever takes in
a stranger's folder copies it first.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent2.errors import CheckpointError, shown
from agent2.models.tensors import read_tensors

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
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
    }
)
"""What a whole model may consist of besides its weights."""
ALLOWED_FILES = MODEL_FILES | {WEIGHTS, ADAPTER_CONFIG, ADAPTER_WEIGHTS}
"""What a checkpoint may consist of, besides the shards that `SHARD_NAME` matches."""
CONFIG_FILES = (CONFIG, TOKENIZER_CONFIG, "generation_config.json", ADAPTER_CONFIG)
"""Where a request for custom code could stand."""
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


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint. Raises CheckpointError if it is none."""
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
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); save the model again") from error
    if len(raw) > limit:
        raise CheckpointError(f"{path}: has more than {limit} bytes, no real model needs that; save the model again")
    return raw


def list_names(path: Path) -> set[str]:
    """Names in the folder. A name that counts must be a regular file."""
    if not path.is_dir():
        what = "is a file, not a folder" if path.exists() else "does not exist"
        raise CheckpointError(f"{path}: the checkpoint {what}; give the folder that save_pretrained wrote")
    names = {entry.name for entry in path.iterdir()}
    if not names:
        raise CheckpointError(f"{path}: the checkpoint's folder is empty; save the model and its tokenizer there")
    for name in sorted(names):
        counts = name in ALLOWED_FILES or SHARD_NAME.fullmatch(name)
        if counts and not (path / name).is_file():
            raise CheckpointError(f"{path / name}: not a regular file; save the model again with save_pretrained")
    return names


def refuse_code(path: Path, names: set[str]) -> None:
    """Raise CheckpointError if the folder brings Python files or a config that asks for custom code."""
    for name in sorted(names):
        if name.endswith(".py"):
            raise CheckpointError(
                f"{path}: {name!r} is custom code, which is never run; hand in a model of a class that "
                "transformers has itself"
            )
        if name in CONFIG_FILES:
            at = _place_of("auto_map", read_json(path / name))
            if at is not None:
                raise CheckpointError(
                    f"{path / name}: {shown(at)} asks for custom code, which is never run; remove it and use a "
                    "model class that transformers has itself"
                )


_Way = tuple["_Way | None", str]
"""The way to a place in a JSON value: the way to what holds it, and the last step. Kept as links, because paths
written out for every place take memory that grows with depth times width."""


def _place_of(key: str, value: object) -> str | None:
    """Dotted path of a key with a true value anywhere inside a JSON value; None if there is none."""
    pending: list[tuple[_Way | None, object]] = [(None, value)]
    while pending:
        way, inner = pending.pop()
        if isinstance(inner, dict):
            if inner.get(key):
                return _written_out((way, key))
            pending.extend(((way, str(name)), part) for name, part in inner.items() if isinstance(part, dict | list))
        elif isinstance(inner, list):
            pending.extend(((way, f"[{i}]"), part) for i, part in enumerate(inner) if isinstance(part, dict | list))
    return None


def _written_out(way: _Way | None) -> str:
    steps: list[str] = []
    while way is not None:
        way, step = way
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


def _require_literal_names(place: Path, config: Mapping[str, Any]) -> None:
    """Refuse names of modules that are regular expressions: one of them can keep peft busy for ever."""
    for key in (*MODULE_LISTS, *MODULE_PATTERNS):
        value = config.get(key)
        if value is None:
            continue
        if key == "layers_pattern" and isinstance(value, str):
            value = [value]
        if not isinstance(value, dict if key in MODULE_PATTERNS else list):
            wanted = "an object with literal module names as keys" if key in MODULE_PATTERNS else "a list of names"
            raise CheckpointError(f"{place}: {key!r} is {shown(value)}; write {wanted}, without regular expressions")
        if len(value) > MAX_MODULE_NAMES:
            raise CheckpointError(
                f"{place}: {key!r} has {len(value)} names, at most {MAX_MODULE_NAMES} are read; name only the last "
                "part of each module, as in ['q_proj', 'v_proj']"
            )
        for name in value:
            is_short = isinstance(name, str) and len(name) <= MAX_MODULE_NAME_CHARS
            if not is_short or not MODULE_NAME.fullmatch(name):
                raise CheckpointError(
                    f"{place}: {key!r} contains {shown(name)}, which is not a literal module name; write names such "
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
    shards = set(weight_map.values()) if all(isinstance(v, str) for v in weight_map.values()) else {"?"}
    for shard in sorted(shards):
        if not SHARD_NAME.fullmatch(shard):
            raise CheckpointError(f"{path / INDEX}: {shown(shard)} is not a name of a shard; save the model again")
        if shard not in names:
            raise CheckpointError(f"{path / INDEX}: shard {shown(shard)} is missing from the folder; copy all shards")
    held = {name: shard for shard in shards for name in read_tensors(path / shard)}
    for name in sorted(set(weight_map) | set(held)):
        if weight_map.get(name) != held.get(name):
            raise CheckpointError(
                f"{path / INDEX}: tensor {shown(name)} is said to be in {weight_map.get(name)}, but is in "
                f"{held.get(name)}; save the model again"
            )
    return sorted(shards)
