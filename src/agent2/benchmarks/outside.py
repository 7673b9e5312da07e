"""Data outside the folder of a `benchmark.yaml`, which the user has to allow.

Somebody else may have written the file: `documents: ../../.ssh` would put a user's files into prompts, and so to the
provider of a model. Therefore files, documents and local data sets are inside the folder of the file, links resolved,
unless this user allowed them for this folder on this machine: by `agent2 benchmarks allow`, by naming them to `agent2
benchmarks new`, or by an override (`--set`). What is allowed is kept in the installation (`data.jsonl`), never in the
folder, which can be given away.

Does NOT confine code: a scorer or environment of the user's own runs with the user's rights and can read anything. Does
NOT find hard links.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from agent2 import installation
from agent2.benchmarks.declaration import DOCUMENTS, DataSpec
from agent2.config import YamlText
from agent2.environments.search.corpus import text_files
from agent2.errors import ConfigError, quoted
from agent2.foreign_files import read_limited

ALLOWED = "data.jsonl"
"""File of the installation: `{"benchmark": FOLDER, "data": PATH}` a line."""
LOADERS = frozenset(
    {
        *("arrow", "audiofolder", "conll", "csv", "eval", "fasta", "fastq", "genbank", "harbor", "hdf5", "iceberg"),
        *("imagefolder", "json", "lance", "meshfolder", "mmcif", "niftifolder", "pandas", "parquet", "pdb"),
        *("pdffolder", "spark", "sql", "text", "tsfile", "videofolder", "vortex", "webdataset", "xml"),
    }
)
"""Names that are no data sets for the library `datasets`: it reads the files of the current folder with them."""


@dataclass(frozen=True, slots=True)
class OutsideData:
    """Data that a benchmark reads outside its folder."""

    spot: str
    """File and line, or override, that leads there."""
    name: str
    """As it is written, or the link in the documents."""
    path: Path
    """Where it is, links resolved."""


def outside_data(spec: DataSpec, text: YamlText, folder: Path) -> list[OutsideData]:
    """Data outside a folder that neither an override names nor the user allowed for it.

    folder: that of the file, resolved. Links in documents that are themselves outside are looked at once those are
    allowed: what is there may be all files of a machine. Raises ConfigError for a name that no file can have, and if
    what is allowed cannot be read.
    """
    allowed = cache(partial(_allowed, folder))  # read once, and only if something is outside

    def is_within(path: Path) -> bool:
        return path.is_relative_to(folder) or not allowed().isdisjoint({path, *path.parents})

    outside = list[OutsideData]()
    for location, name, path in _read_paths(spec, folder):
        spot = text.spot(location)
        is_override = spot.startswith(f"{text.flag} ")
        resolved = _resolved(path, spot)
        if not is_override and not is_within(resolved):
            outside.append(OutsideData(spot, name, resolved))
        elif location == (DOCUMENTS,) and path.is_dir():
            links = ((file, _resolved(file, spot)) for file in text_files(path) if file.is_symlink())
            outside += (
                OutsideData(spot, f"{name}/{file.relative_to(path).as_posix()}", target)
                for file, target in links
                if not target.is_relative_to(resolved) and not is_within(target)
            )
    return outside


def _read_paths(spec: DataSpec, folder: Path) -> Iterator[tuple[tuple[str, ...], str, Path]]:
    """(key, name as it is written, path) of everything that is read."""
    for portion, names in (spec.files or {}).items():
        for name in [names] if isinstance(names, str) else names:
            yield ("files", portion.value), name, folder / name
    if spec.documents is not None:
        yield (DOCUMENTS,), spec.documents, folder / spec.documents
    if spec.dataset is not None:
        name = spec.dataset.name
        if name in LOADERS:
            yield ("dataset", "name"), name, Path.cwd()
        elif Path(name).is_absolute() or Path(name).exists():  # as the library decides
            yield ("dataset", "name"), name, Path.cwd() / name


def _resolved(path: Path, spot: str) -> Path:
    try:
        return Path(os.path.realpath(path))  # not Path.resolve, which raises for a link that leads to itself
    except ValueError as error:  # a NUL, or half a character
        raise ConfigError(f"{spot}: {quoted(str(path))} cannot be the name of a file ({error}); rename it") from error


def require_allowed(spec: DataSpec, text: YamlText, folder: Path) -> None:
    """Raise ConfigError if there is `outside_data`."""
    if outside := outside_data(spec, text, folder):
        data = outside[0]
        raise ConfigError(
            f"{data.spot}: {data.name!r} is {data.path}, outside the folder of the benchmark; move it there, or allow "
            f"it on this machine: agent2 benchmarks allow {text.where}"
        )


def allow(folder: Path, paths: Iterable[Path]) -> None:
    """Let the benchmark in a folder read these paths, and what is below them. Raises ConfigError if that is not kept.

    folder, paths: resolved.
    """
    earlier = _allowed(folder)
    fresh = [path for path in dict.fromkeys(paths) if path not in earlier]
    lines = [json.dumps({"benchmark": str(folder), "data": str(path)}) + "\n" for path in fresh]
    file = installation.home() / ALLOWED
    try:
        with file.open("a", encoding="utf-8") as stream:  # one write, so that two commands do not mix lines
            stream.write("".join(lines))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror}); check its permissions") from error


def _allowed(folder: Path) -> frozenset[Path]:
    file = installation.home() / ALLOWED
    try:
        lines = read_limited(file).decode("utf-8", "replace").splitlines()
        rows = [json.loads(line) for line in lines]
        return frozenset(Path(row["data"]) for row in rows if row["benchmark"] == str(folder))
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{file}: cannot be read ({reason}); delete it, and allow data again") from error
