"""Tasks of the arena: one YAML file each in the benchmark's home, or a path to a user's own file."""

from collections.abc import Sequence
from pathlib import Path

from agent2.arena.spec import TaskSpec
from agent2.benchmarks import task_files
from agent2.config import load_yaml
from agent2.errors import unknown_name
from agent2.plugins import is_code, relative_to


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
