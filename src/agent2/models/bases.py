"""Base models by name: found, built once, and kept below the installation.

A base model is built by a recipe (`agent2.models.tiny_recipe.BaseModel`), found like every plug-in: in the packaged
table that the caller passes (`agent2.benchmarks.BASES`), as an entry point `agent2.bases` of an installed package, or
as code (`./base.py:BASE`). It is stored in `<models_dir>/<name>-<recipe digest>/` with a `manifest.json` that says how
it was built and how well it does. Everything that its weights depend on is in the digest, so a changed recipe is
another folder.

Promises: a base model's folder appears complete or not at all; of two builders at once the first to finish wins and
both get the same folder. Does NOT check weights again on later use (`agent2 models check` does).
"""

import contextlib
import dataclasses
import fcntl
import json
import logging
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent2 import installation
from agent2.errors import ConfigError, unknown_name
from agent2.models.published import chat_models, published_models
from agent2.models.tiny_recipe import BaseModel, Builder, OnProgress, named_function
from agent2.plugins import find, is_code, known_names, load, source_digest

logger = logging.getLogger(__name__)
MANIFEST = "manifest.json"
UNPACK = "agent2.models.packaged:unpack_shipped"
"""What builds a base whose weights are shipped; named, so that torch is loaded when there is something to build."""
_HUB_NAME = re.compile(r"(?!models/)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""OWNER/NAME of a model hub; `models/NAME` is a folder in which our pages keep a model."""


class RecipeTable(Mapping[str, BaseModel]):
    """The recipes by name, each imported when it is looked up.

    Iterating gives those of the packaged table and of installed packages and the published models, not code.
    """

    def __init__(self, packaged: Mapping[str, str]):
        """packaged: name -> "module:attribute" of a recipe."""
        self._packaged = packaged

    def __getitem__(self, name: str) -> BaseModel:
        if not is_code(name) and name not in known_names("base", self._packaged):
            if name in chat_models():
                return published_models()[name].recipe
            raise KeyError(name)
        location = find("base", name, self._packaged)
        recipe = load(location)
        if not isinstance(recipe, BaseModel):
            raise ConfigError(
                f"{location}: is a {type(recipe).__name__}; it has to be an agent2.models.tiny_recipe.BaseModel"
            )
        if location.is_packaged:
            return recipe
        # code that is not ours may change without a new version: its digest makes another folder
        return dataclasses.replace(recipe, origin=(*recipe.origin, source_digest(location)))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*known_names("base", self._packaged), *chat_models()]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def cached_path(name: str, recipes: Mapping[str, BaseModel]) -> Path | None:
    """The folder of a base model if it has been built; None also if its recipe reads data that are missing.

    Raises ConfigError for a name that is not in the table.
    """
    require_base_model(name, recipes, may_fetch=True)
    try:
        folder = _folder(name, _entry(name, recipes, None))
    except ConfigError:
        return None
    return folder if (folder / MANIFEST).is_file() else None


def ensure_base_model(
    name_or_path: str,
    recipes: Mapping[str, BaseModel],
    on_progress: OnProgress | None = None,
    data: Path | None = None,
    *,
    may_fetch: bool = False,
) -> Path:
    """The folder of a base model, unpacked or trained first if need be (minutes of one core where it is trained).

    name_or_path: a name in `recipes`, code with a recipe (`./base.py:BASE`), or anything else with a slash: a
    folder in Hugging Face layout, returned as it is. recipes: the table to look in (`agent2.benchmarks.BASE_MODELS`).
    data: the folder of official data, for a recipe that reads it; None: where its benchmark looks. may_fetch: bring a
    published model here. Raises ConfigError as `require_base_model` does, and for data that cannot be read.
    """
    require_base_model(name_or_path, recipes, may_fetch=may_fetch)
    if is_path(name_or_path):
        return Path(name_or_path).expanduser().resolve()
    entry = _entry(name_or_path, recipes, data)
    folder = _folder(name_or_path, entry)
    if not (folder / MANIFEST).is_file():
        report = on_progress or logger.info
        with _build_lock(folder, report):
            if not (folder / MANIFEST).is_file():  # else another process has built it while this one waited
                _build(name_or_path, entry, folder, report)
    return folder


def is_path(name_or_path: str) -> bool:
    """True where a base model is named by its folder."""
    return ("/" in name_or_path or name_or_path == ".") and not is_code(name_or_path)


def require_base_model(name_or_path: str, recipes: Mapping[str, BaseModel], *, may_fetch: bool = False) -> None:
    """Require that `ensure_base_model` can return a model, without building it.

    Raises ConfigError: with the nearest name for an unknown one, with the command that gets a model where there is no
    such folder or published model (nothing is downloaded here), or for a folder that is not a model in Hugging Face
    layout.
    """
    if not is_path(name_or_path):
        if name_or_path not in recipes:
            raise unknown_name("base model", name_or_path, recipes)
        entry = recipes[name_or_path]
        if entry.is_fetched and not may_fetch and not (_folder(name_or_path, entry) / MANIFEST).is_file():
            raise ConfigError(
                f"base model {name_or_path}: is not on this machine yet; get it once with: agent2 models get "
                f"{name_or_path}"
            )
        return
    folder = Path(name_or_path).expanduser().resolve()
    names = ", ".join(sorted(recipes))
    if not folder.exists():
        is_hub_name = _HUB_NAME.fullmatch(name_or_path) and not folder.parent.exists()
        hub_name, target = (name_or_path, f"models/{folder.name}") if is_hub_name else ("OWNER/NAME", "FOLDER")
        raise ConfigError(
            f"base model {name_or_path}: there is no such folder, and nothing is downloaded; get it with: hf download "
            f"{hub_name} --local-dir {target}, then pass that folder, or another model that you have, with --model "
            f"(base_model in a file); or use one of the names: {names}"
        )
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"base model {name_or_path}: no config.json in {folder}; give the folder of a model in Hugging Face "
            f"layout, or one of the names: {names}"
        )


def _entry(name: str, recipes: Mapping[str, BaseModel], data: Path | None) -> BaseModel:
    """The recipe, completed from official data where it reads them."""
    entry = recipes[name]
    return named_function(entry.from_data)(entry, data) if entry.from_data else entry


def _folder(name: str, entry: BaseModel) -> Path:
    return installation.models_dir() / f"{_short(name)}-{entry.digest[:12]}"


def _short(name: str) -> str:
    """The name as part of a folder name; of code, the file or module and the attribute: `base-BASE`."""
    return name.rpartition("/")[2].replace(".py:", "-").replace(":", "-")


@contextlib.contextmanager
def _build_lock(folder: Path, on_progress: OnProgress) -> Iterator[None]:
    """Wait until no other process builds this model; trials of a sweep that start together need it at once.

    Where the file system has no locks every process builds it, and the first to finish wins.
    """
    path = installation.home() / "locks" / f"{folder.name}.lock"  # never removed: another process may wait for it
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_progress("waiting for another process that builds this model")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            logger.info("%s: cannot be locked (%s)", path, error.strerror)
        yield


def _build(name: str, entry: BaseModel, folder: Path, on_progress: OnProgress) -> None:
    """Build in a temporary folder beside the final one and rename it; the first to rename it wins."""
    builder: Builder = named_function(UNPACK if entry.shipped else entry.builder)
    draft = Path(tempfile.mkdtemp(prefix=f".{_short(name)}-", dir=folder.parent))
    try:
        measured = builder(entry, draft, on_progress)
        manifest = {
            "name": name,
            "recipe_version": entry.version,
            "recipe_digest": entry.digest,
            "recipe": dataclasses.asdict(dataclasses.replace(entry, sample=None))
            | {"builder": entry.builder if isinstance(entry.builder, str) else entry.builder.__qualname__},
            **({} if entry.is_fetched else {"seed": entry.recipe.seed, "threads": entry.recipe.threads}),
            **measured,
        }
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        for file in draft.iterdir():
            file.chmod(0o644)  # the sandboxed agent reads it as another user
        draft.chmod(0o755)
        try:
            draft.rename(folder)
        except OSError:
            if not (folder / MANIFEST).is_file():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
