"""Tasks of the arena: one YAML file each in the benchmark's home, or a path to a user's own file."""

from collections.abc import Sequence
from pathlib import Path

from agent2.arena.spec import TaskSpec
from agent2.benchmarks import split_variant, task_files
from agent2.config import load_yaml
from agent2.errors import ConfigError, unknown_name
from agent2.plugins import is_code, relative_to


def task_names() -> list[str]:
    """The packaged tasks."""
    return sorted(task_files())


def load_task(name_or_path: str, overrides: Sequence[str] = ()) -> TaskSpec:
    """A packaged task by name, or a user's own by path (anything with a slash or ending in .yaml).

    overrides: "n_items.train=170" and the like, on the fields of `TaskSpec`. Raises ConfigError for an unknown name, a
    wrong value, and as `require_held_out`.
    """
    spec = read_task(name_or_path, overrides)
    _follow(spec, (_file_of(name_or_path),), name_or_path)
    return spec


def require_held_out(spec: TaskSpec) -> None:
    """Require that each held-out task can be read and is another task than this one.

    Raises ConfigError for an unknown task, one that is named twice, one with the items of this task, and for a chain of
    held-out tasks that comes back to where it has been.
    """
    _follow(spec, (), f"task {spec.name}")


def absolute_names(names: Sequence[str], folder: Path = Path()) -> list[str]:
    """Names of tasks, those that are files as full paths. folder: where relative paths begin."""
    return [str((folder / name).resolve()) if is_task_file(name) else name for name in names]


def read_task(name_or_path: str, overrides: Sequence[str] = ()) -> TaskSpec:
    """As `load_task`, whatever the tasks are that it holds out."""
    if not is_task_file(name_or_path):
        return load_yaml(_packaged(name_or_path), TaskSpec, overrides)
    spec = load_yaml(Path(name_or_path), TaskSpec, overrides)
    folder = Path(name_or_path).parent
    base = relative_to(spec.base_model, folder) if is_code(spec.base_model) else spec.base_model
    held_out = absolute_names(spec.held_out, folder)
    update = {"benchmark": relative_to(spec.benchmark, folder), "base_model": base, "held_out": held_out}
    return spec.model_copy(update=update)


def _follow(spec: TaskSpec, chain: tuple[Path, ...], where: str) -> None:
    """chain: the files that led here, that of `spec` last. Raises ConfigError."""
    names: set[str] = set()
    for name in spec.held_out:
        try:
            file, held_out = _file_of(name), read_task(name)
        except ConfigError as error:
            raise ConfigError(f"{where}: held_out: {error}") from error
        if file in chain:
            reason = "is the task itself" if file == chain[-1] else "holds out a task that leads back here"
        elif held_out.name == spec.name:
            reason = "has the name of the task itself"
        elif _items_of(held_out) == _items_of(spec):
            reason = f"has the items of the task itself ({_items_of(spec)})"
        elif held_out.name in names:
            reason = "is named twice"
        else:
            names.add(held_out.name)
            _follow(held_out, (*chain, file), name)
            continue
        raise ConfigError(f"{where}: held_out: {name!r} {reason}; name tasks that are not trained here")


def _items_of(spec: TaskSpec) -> str:
    """The benchmark without its variant: `NAME-faulty` has the items of `NAME`."""
    variant = split_variant(spec.benchmark)
    return variant[0] if variant is not None else spec.benchmark


def is_task_file(name_or_path: str) -> bool:
    """Whether a task is named by its file."""
    return "/" in name_or_path or name_or_path.endswith(".yaml")


def _file_of(name_or_path: str) -> Path:
    return Path(name_or_path).resolve() if is_task_file(name_or_path) else _packaged(name_or_path)


def _packaged(name: str) -> Path:
    files = task_files()
    if name not in files:
        raise unknown_name("task", name, sorted(files))
    return files[name]
