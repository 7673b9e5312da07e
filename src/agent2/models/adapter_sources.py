"""A LoRA adapter that a user evaluates: finds its base model, and merges it when it is opened.

The base is the folder that the user names, else what the adapter's config names in `base_model_name_or_path`: a folder
on this machine, or a model in the local Hugging Face cache. Nothing is downloaded. Adapter and base pass the checks of
every checkpoint (safetensors only, no custom code), and the arena's own function merges them (`adapters.as_played`).

Does NOT know whether the adapter was trained on that base where shapes agree: the base's digest is part of the
checkpoint's, and a caveat names it.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent2.errors import CheckpointError, quoted
from agent2.models.adapters import as_played, lora_settings
from agent2.models.checkpoint import ADAPTER_CONFIG, CheckpointInfo, inspect_checkpoint
from agent2.records import digest_of

BASE_FIELD = "base_model_name_or_path"
_ADVICE = "name its base model with --set run.base=FOLDER, or merge the adapter into it and give that folder"


@dataclass(frozen=True, slots=True)
class AdapterOnBase:
    """An adapter and the base model that it is merged into."""

    adapter: CheckpointInfo
    base: CheckpointInfo

    @property
    def digest(self) -> str:
        """Of the content of both."""
        return digest_of(["adapter", self.base.content_digest, self.adapter.content_digest])

    @property
    def caveat(self) -> str:
        """What was merged into what, in one sentence."""
        named = self.adapter.config.get(BASE_FIELD)
        is_named = isinstance(named, str) and Path(named).name == self.base.path.name
        origin = "" if is_named else f"; its {ADAPTER_CONFIG} names {quoted(named)}"
        return (
            f"{self.adapter.path.name}: an adapter, merged into {self.base.path.name} "
            f"(content {self.base.content_digest[:12]}){origin}"
        )

    @contextmanager
    def merged(self) -> Iterator[Path]:
        """The folder of the whole model, until the context ends. Raises CheckpointError if they do not fit."""
        with tempfile.TemporaryDirectory(prefix="agent2-merged-") as scratch:
            yield as_played(self.adapter, self.base, Path(scratch) / self.adapter.path.resolve().name).path


def find_base(adapter: CheckpointInfo, named: str | None) -> AdapterOnBase:
    """An adapter with its base model, checked as far as that is possible without loading them.

    named: the folder that the user says; None: what the adapter's config says. Raises CheckpointError, naming the
    entry of the config, if there is no base model or the adapter cannot be merged exactly.
    """
    folder = Path(named).expanduser() if named is not None else _base_in_config(adapter)
    base = inspect_checkpoint(folder)
    if base.is_adapter:
        raise CheckpointError(
            f"{adapter.path}: its base model {folder} is an adapter itself; merge that one first, then {_ADVICE}"
        )
    lora_settings(adapter, base)
    return AdapterOnBase(adapter, base)


def _base_in_config(adapter: CheckpointInfo) -> Path:
    path, named = adapter.path / ADAPTER_CONFIG, adapter.config.get(BASE_FIELD)
    if not isinstance(named, str) or not named.strip() or "\0" in named:
        raise CheckpointError(f"{path}: {BASE_FIELD!r} is {quoted(named)}, not a model; {_ADVICE}")
    folder = Path(named).expanduser()
    if folder.is_dir():
        return folder
    cached = _in_hub_cache(named, adapter.config.get("revision"))
    if cached is None:
        raise CheckpointError(
            f"{path}: {BASE_FIELD!r} is {quoted(named)}, neither a folder here nor a model in the local Hugging Face "
            f"cache; {_ADVICE}"
        )
    return cached


def _in_hub_cache(name: str, revision: object) -> Path | None:
    """The folder of a hub model that was downloaded before; None where there is none."""
    from huggingface_hub import snapshot_download  # not at the top: it takes half a second
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(name, revision=revision if isinstance(revision, str) else None, local_files_only=True)
        )
    except (HFValidationError, LocalEntryNotFoundError):
        return None
