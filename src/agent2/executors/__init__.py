"""Where trials and parts of evaluations run: on this machine, on a Ray cluster, or under Slurm.

One Protocol (`jobs.Executor`), three implementations; the table below is the only place that names them. What a job
does is a command of `agent2`, whichever executor runs it; `jobs.run_jobs` decides what is tried again.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

from agent2.errors import unknown_name
from agent2.executors.jobs import Executor, ExecutorSettings

LOCAL = "local"
EXECUTORS = {
    LOCAL: "agent2.executors.local:LocalExecutor",
    "ray": "agent2.executors.ray_cluster:RayExecutor",
    "slurm": "agent2.executors.slurm:SlurmExecutor",
}


def open_executor(settings: ExecutorSettings, folder: Path) -> Executor:
    """The executor of that name, connected. folder: where it may keep its own files, which every node must see.

    Raises ConfigError for an unknown name, one whose package is not installed, or a cluster that cannot be reached.
    """
    require_executor(settings.name)
    module, _, kind = EXECUTORS[settings.name].partition(":")
    make = cast(Callable[[ExecutorSettings, Path], Executor], getattr(importlib.import_module(module), kind))
    return make(settings, folder)


def require_executor(name: str, where: str = "--executor") -> None:
    """Raise ConfigError for a name that is in no table. where: the flag it came from."""
    if name not in EXECUTORS:
        raise unknown_name("executor", name, EXECUTORS, where)
