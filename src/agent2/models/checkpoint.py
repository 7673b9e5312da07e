"""A checkpoint: one folder of weights in Hugging Face layout, looked at without loading it.

`inspect_checkpoint` needs no tensor library and executes nothing that the folder brings. What it accepts is
complete (config, tokenizer, every tensor of every shard), holds safetensors only and needs no custom code.
It lists the files that count; everything else in the folder is named in `notes` and must not be used.
`require_same_architecture` compares two of them: classes, tensors, shapes, vocabulary.

Does NOT look at the numbers (`loading.require_finite`), does not prove that the model loads, follows links
(whoever takes in a stranger's folder copies it first) and does not notice files that change meanwhile.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent2.errors import CheckpointError, shown
from agent2.models.layout import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    CHAT_TEMPLATE,
    CONFIG,
    INDEX,
    MAX_CONFIG_BYTES,
    MODEL_FILES,
    TOKENIZER,
    TOKENIZER_CONFIG,
    WEIGHTS,
    list_names,
    read_adapter_config,
    read_json,
    read_model_config,
    read_small,
    refuse_code,
    weight_files,
)
from agent2.models.tensors import TensorInfo, digest_file, read_tensors, weights_digest

MAX_NOTES = 20
NO_CHAT_TEMPLATE = "none"
"""The chat-template digest of a checkpoint that has no template."""

STRUCTURAL_KEYS = (
    "model_type",
    "architectures",
    "hidden_size",
    "n_embd",
    "intermediate_size",
    "num_hidden_layers",
    "n_layer",
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "vocab_size",
    "max_position_embeddings",
    "n_positions",
    "sliding_window",
    "layer_types",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "tie_word_embeddings",
)
"""What shapes the computation; compared where both configs say something."""
OUTPUT_HEAD = "lm_head.weight"
"""May be stored or left out where the embedding is tied to it; stored, it must be the embedding."""
PLAYED_DTYPES = frozenset({"F16", "BF16", "F32", "F64"})
"""How a submission may store what the base model stores as floating-point numbers. Loading would turn whole numbers and
8-bit floats into weights, too."""


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
    """What was left aside, one sentence each; at most `MAX_NOTES` and a count of the others."""


def inspect_checkpoint(path: Path) -> CheckpointInfo:
    """Check that a folder is a complete model or adapter and compute its digests.

    Reads every byte of the files that count, a few at a time. Raises CheckpointError, and nothing else, with one
    short sentence that says what to change.
    """
    try:
        return _inspect(path)
    except OSError as error:
        where = shown(str(error.filename or path))
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
    if weights == [WEIGHTS]:
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
    except UnicodeEncodeError:  # half a character
        pass
    raise CheckpointError(f"{path / TOKENIZER_CONFIG}: the chat template is not a text; save it again")


def _is_template(value: object) -> bool:
    """One text, or several by name as transformers saves them; how deep a parser can go depends on Python's version."""
    if isinstance(value, list):
        return all(isinstance(one, dict) and {type(part) for part in one.values()} <= {str} for one in value)
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


def require_same_architecture(info: CheckpointInfo, base: CheckpointInfo) -> None:
    """Raise CheckpointError, naming the first difference, unless both are the same kind of model, stored alike.

    What passes is loaded tensor by tensor as it is stored: same names and shapes, floating-point numbers where the base
    model has them, a tied output head that is the embedding. An adapter has to be merged before
    (`adapters.as_played`).
    """
    if info.is_adapter:
        raise CheckpointError(f"{info.path}: contains an adapter; merge it into the base model before comparing")
    for difference in (
        _config_difference(info.config, base.config),
        _tensor_difference(info, base),
        _storage_difference(info, base),
        _head_difference(info, base),
        _vocabulary_difference(info, base),
    ):
        if difference:
            raise CheckpointError(
                f"{info.path}: not the architecture of the base model: {difference}; "
                "train the base model that was given"
            )


def _config_difference(config: Mapping[str, Any], base: Mapping[str, Any]) -> str | None:
    for key in STRUCTURAL_KEYS:
        own, expected = config.get(key), base.get(key)
        if own is not None and expected is not None and own != expected:
            return f"{CONFIG} has {key} {shown(own)}, the base model {shown(expected)}"
    return None


def _tensor_difference(info: CheckpointInfo, base: CheckpointInfo) -> str | None:
    is_tied = bool(base.config.get("tie_word_embeddings", False))
    for name in sorted(set(info.tensors) | set(base.tensors)):
        own, expected = info.tensors.get(name), base.tensors.get(name)
        if name == OUTPUT_HEAD and (own is None or expected is None) and is_tied:
            continue
        if own is None:
            return f"tensor {shown(name)} is missing"
        if expected is None:
            return f"tensor {shown(name)} of shape {list(own.shape)} is not in the base model"
        if own.shape != expected.shape:
            return f"tensor {shown(name)} has shape {list(own.shape)}, the base model {list(expected.shape)}"
    return None


def _storage_difference(info: CheckpointInfo, base: CheckpointInfo) -> str | None:
    for name in sorted(set(info.tensors) & set(base.tensors)):
        own, expected = info.tensors[name].dtype, base.tensors[name].dtype
        if own != expected and not (own in PLAYED_DTYPES and expected in PLAYED_DTYPES):
            return f"tensor {shown(name)} is stored as {own}, the base model's as {expected} (save it in that type)"
    return None


def _head_difference(info: CheckpointInfo, base: CheckpointInfo) -> str | None:
    """A head that is stored beside the embedding with other numbers is untied by transformers, against the config."""
    own = info.tensors.get(OUTPUT_HEAD)
    if own is None or not base.config.get("tie_word_embeddings", False):
        return None
    same = [name for name, digest in info.tensor_digests.items() if digest == info.tensor_digests[OUTPUT_HEAD]]
    if any(name != OUTPUT_HEAD and info.tensors[name].shape == own.shape for name in same):
        return None
    return f"tensor {shown(OUTPUT_HEAD)} is not the embedding that the base model ties it to (leave it out)"


def _vocabulary_difference(info: CheckpointInfo, base: CheckpointInfo) -> str | None:
    own, expected = _vocabulary(info), _vocabulary(base)
    if own == expected:
        return None
    for token in sorted(set(own) | set(expected)):
        if own.get(token) != expected.get(token):
            return (
                f"token {shown(token)} has id {shown(own.get(token))} in its tokenizer, "
                f"{shown(expected.get(token))} in the base model's"
            )
    return None


def _vocabulary(info: CheckpointInfo) -> dict[str, int]:
    """Token -> id, added tokens included, from a tokenizer file of the tokenizers library."""
    path = info.path / TOKENIZER
    content = read_json(path)
    model = content.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    try:
        if isinstance(vocab, dict):
            result = {str(token): int(index) for token, index in vocab.items()}
        elif isinstance(vocab, list):  # Unigram: pairs of token and log-probability, in the order of their ids
            result = {str(pair[0]): index for index, pair in enumerate(vocab)}
        else:
            raise CheckpointError(f"{path}: has no vocabulary; save the tokenizer again with save_pretrained")
        result.update({str(added["content"]): int(added["id"]) for added in content.get("added_tokens") or []})
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: the vocabulary cannot be read ({shown(error)}); save the tokenizer again"
        ) from error
    return result


def _notes(left_aside: set[str]) -> tuple[str, ...]:
    shown = [f"{name!r} is not used" for name in sorted(left_aside)[:MAX_NOTES]]
    more = len(left_aside) - len(shown)
    return (*shown, f"{more} more files are not used") if more else tuple(shown)


def _read_weights(path: Path, files: list[str]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        for name, tensor in read_tensors(path / file).items():
            if name in tensors:
                raise CheckpointError(
                    f"{path}: tensor {shown(name)} is in {tensors[name].file} and in {file}; save again"
                )
            tensors[name] = tensor
    if not tensors:
        raise CheckpointError(f"{path}: the weight files hold no tensors; save the model again")
    return tensors


def _digest(
    path: Path, files: tuple[str, ...], tensors: Mapping[str, TensorInfo]
) -> tuple[dict[str, str], dict[str, str]]:
    """Digest of each file, and of each tensor."""
    of_files: dict[str, str] = {}
    of_tensors: dict[str, str] = {}
    for file in files:
        own = {name: tensor for name, tensor in tensors.items() if tensor.file == file}
        digests = digest_file(path / file, own)
        of_files[file] = digests.file
        of_tensors.update(digests.tensors)
    return of_files, of_tensors
