"""Tasks of the arena, one YAML file each in the benchmark's home, and the base models that they start from.

A task can also be a path to a user's own file. A base model is built by a recipe
(`agent2.models.tiny_recipe.BaseModel`), found like every plug-in: packaged (`agent2.benchmarks.BASES`), an entry
point `agent2.bases` of an installed package, or code (`./base.py:BASE`). It is stored in `<models_dir>/<name>-<recipe
digest>/` with a `manifest.json` that says how it was built and how well it does. Everything that its weights depend on
is in the digest, so a changed recipe is another folder.

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
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum, StrEnum
from pathlib import Path

from pydantic import Field

from agent2 import installation
from agent2.benchmarks import BASES, task_files
from agent2.config import StrictModel, load_yaml
from agent2.errors import ConfigError, unknown_name
from agent2.models.tiny_recipe import BaseModel, Builder, OnProgress, named_function
from agent2.plugins import find, is_code, known_names, load, relative_to, source_digest
from agent2.records import Split

logger = logging.getLogger(__name__)

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Names of tasks and agents become parts of folder names."""
MANIFEST = "manifest.json"
UNPACK = "agent2.models.tiny:unpack_shipped"
"""What builds a base whose weights are shipped; named, so that torch is loaded when there is something to build."""
_HUB_NAME = re.compile(r"(?!models/)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""OWNER/NAME of a model hub; `models/NAME` is a folder in which our pages keep a model."""


class Level(IntEnum):
    """What a task demands structurally; each level adds a demand to the one before."""

    RULE_BASED = 1
    """A verifier exists."""
    JUDGE_BASED = 2
    """The reward is a judge, not a program."""
    INTERACTIVE = 3
    """Trajectories must be collected online."""


class Stage(StrEnum):
    """The four stages of an agent's work; every report contains a verdict on each."""

    DESIGN = "design"
    IMPLEMENTATION = "implementation"
    EXECUTION = "execution"
    EVALUATION = "evaluation"


class Difficulty(StrEnum):
    """How far the work is from standard practice."""

    EASY = "easy"
    """Standard methods on ready data."""
    MEDIUM = "medium"
    """Advanced methods (GRPO, DPO variants)."""
    HARD = "hard"
    """Novel problems (multi-task RL, constrained optimisation)."""
    EXPERT = "expert"
    """Research level: a new algorithm."""


class Category(StrEnum):
    """The ability that is trained."""

    REASONING = "reasoning"
    ALIGNMENT = "alignment"
    SPECIALIZATION = "specialization"


SUBCATEGORIES: Mapping[Category, tuple[str, ...]] = {
    Category.REASONING: ("mathematical reasoning", "code generation", "logical deduction", "chain-of-thought"),
    Category.ALIGNMENT: ("harmlessness", "helpfulness", "honesty", "instruction following"),
    Category.SPECIALIZATION: ("domain adaptation", "few-shot learning", "tool use", "multi-turn conversation"),
}
"""The published subcategories; a task of one's own may name another one."""


class BudgetSpec(StrictModel):
    """What an agent may spend; None is unlimited. The assignment may lower or raise it."""

    wall_clock_s: float = Field(gt=0, le=1e9)
    submissions: int | None = Field(default=None, ge=1)
    gpu_hours: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """In the assignment, measured and reported; not enforced: nothing stops an agent that uses more."""
    judgements: int | None = Field(default=None, ge=0)
    """Replies on which the judge of a task of level 2 gives a verdict (`POST /judge`); enforced by the grading API."""
    llm_tokens: int | None = Field(default=None, ge=0)
    llm_dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class SplitSizes(StrictModel):
    """How many items of each split a task uses; at most a million, because a task file may be untrusted."""

    train: int = Field(ge=1, le=1_000_000)
    dev: int = Field(ge=1, le=1_000_000)
    test_public: int = Field(ge=1, le=1_000_000)
    test_private: int = Field(ge=1, le=1_000_000)

    def __getitem__(self, split: Split) -> int:
        """The number of one split."""
        size: int = getattr(self, split.value)
        return size


class KindGate(StrictModel):
    """A bound on the items of one kind (`task_type` in a rollout's final state), such as requests to be refused."""

    task_type: str
    at_least: float = Field(gt=0, le=1)
    """Mean score on the private items of that kind."""


class TaskSpec(StrictModel):
    """What an arena agent is asked to improve the model on."""

    name: str = Field(pattern=NAME_PATTERN)
    title: str
    description: str
    """Shown to the agent in ASSIGNMENT.md."""
    level: Level
    structural_requirement: str
    """What this level demands that the one below does not."""
    category: Category
    subcategory: str
    difficulty: Difficulty
    published: bool
    """True: official data, comparable with published scores. False: embedded, never compared with them."""
    benchmark: str
    """What `agent2.benchmarks.load_benchmark` takes; a path is taken from the task file's own folder."""
    base_model: str
    """A recipe (`agent2.arena.tasks`) by name or code, a file taken from the task file's own folder; or a folder
    in Hugging Face layout, taken from the current one."""
    n_items: SplitSizes
    budget: BudgetSpec
    gates: list[KindGate] = Field(default_factory=list)
    """Hard constraints beside the score; where one fails, the gain does not count."""


def task_names() -> list[str]:
    """The packaged tasks."""
    return sorted(task_files())


def load_task(name_or_path: str, overrides: Sequence[str] = ()) -> TaskSpec:
    """A packaged task by name, or a user's own by path (anything with a slash or ending in .yaml).

    overrides: "n_items.train=170" and the like, on the fields of `TaskSpec`.
    """
    if "/" in name_or_path or name_or_path.endswith(".yaml"):
        spec = load_yaml(Path(name_or_path), TaskSpec, overrides)
        folder = Path(name_or_path).parent
        base = relative_to(spec.base_model, folder) if is_code(spec.base_model) else spec.base_model
        return spec.model_copy(update={"benchmark": relative_to(spec.benchmark, folder), "base_model": base})
    files = task_files()
    if name_or_path not in files:
        raise unknown_name("task", name_or_path, sorted(files))
    return load_yaml(files[name_or_path], TaskSpec, overrides)


class _Recipes(Mapping[str, BaseModel]):
    """The recipes by name; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> BaseModel:
        if not is_code(name) and name not in known_names("base", BASES):
            raise KeyError(name)
        location = find("base", name, BASES)
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
        return iter(known_names("base", BASES))

    def __len__(self) -> int:
        return len(known_names("base", BASES))


BASE_MODELS: Mapping[str, BaseModel] = _Recipes()
"""Every base model that there is a recipe for; iterating gives the packaged and the installed ones, not code.

After the class that it is an instance of.
"""


def cached_path(name: str) -> Path | None:
    """The folder of a base model if it has been built; None also if its recipe reads data that are missing.

    Raises ConfigError for a name that is not in the table.
    """
    require_base_model(name, BASE_MODELS)
    try:
        folder = _folder(name, _entry(name, BASE_MODELS, None))
    except ConfigError:
        return None
    return folder if (folder / MANIFEST).is_file() else None


def ensure_base_model(
    name_or_path: str,
    on_progress: OnProgress | None = None,
    models: Mapping[str, BaseModel] = BASE_MODELS,
    data: Path | None = None,
) -> Path:
    """The folder of a base model, unpacked or trained first if need be (minutes of one core where it is trained).

    name_or_path: a name of `BASE_MODELS`, code with a recipe (`./base.py:BASE`), or anything else with a slash: a
    folder in Hugging Face layout, returned as it is. models: the table to look in. data: the folder of official data,
    for a recipe that reads it; None: where its benchmark looks. Raises ConfigError as `require_base_model` does, and
    for data that cannot be read.
    """
    require_base_model(name_or_path, models)
    if is_path(name_or_path):
        return Path(name_or_path).expanduser().resolve()
    entry = _entry(name_or_path, models, data)
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


def require_base_model(name_or_path: str, models: Mapping[str, BaseModel] = BASE_MODELS) -> None:
    """Require that `ensure_base_model` can return a model, without building it.

    Raises ConfigError: with the nearest name for an unknown one, with the command that gets a model where there is no
    such folder (nothing is downloaded here), or for a folder that is not a model in Hugging Face layout.
    """
    if not is_path(name_or_path):
        if name_or_path not in models:
            raise unknown_name("base model", name_or_path, models)
        return
    folder = Path(name_or_path).expanduser().resolve()
    names = ", ".join(sorted(models))
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


def _entry(name: str, models: Mapping[str, BaseModel], data: Path | None) -> BaseModel:
    """The recipe, completed from official data where it reads them."""
    require_base_model(name, models)
    entry = models[name]
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
            "seed": entry.recipe.seed,
            "threads": entry.recipe.threads,
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
