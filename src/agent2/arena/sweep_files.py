"""The user's files that the trials of a sweep depend on: tasks with their data, agents, and drivers.

They are read whole each time a sweep begins or is resumed: size and time of a file can stay when its text changes.
Caches, and what version control and file browsers keep, decide no result; what a program reads beside its source is
unknown here.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agent2.arena.agents import SPEC_FILE, load_agent
from agent2.arena.tasks import is_task_file, read_task
from agent2.benchmarks import own_files
from agent2.errors import Agent2Error
from agent2.foreign_files import digest_limited
from agent2.plugins import is_code, is_located

logger = logging.getLogger(__name__)

CACHES = {"__pycache__", ".git", ".DS_Store"}


def absolute_driver_names(names: Sequence[str], folder: Path) -> list[str]:
    """Names of drivers, those of files as full paths; `provider/model` is none. folder: where relative paths begin."""
    files = {name: folder / Path(name).expanduser() for name in names}
    return [
        str(file.resolve()) if file.suffix in {".yaml", ".yml"} or file.is_file() else name
        for name, file in files.items()
    ]


def file_digests(tasks: Sequence[str], agents: Sequence[str], drivers: Sequence[str]) -> dict[str, str]:
    """Path -> SHA-256 of each file behind these names. What cannot be read is left out: it fails its own trials.

    A file that is broken hides no other one but those that it names, which a warning says.
    """
    digests = {}
    files = (*_files_of_tasks(tasks), *_files_of_agents(agents), *(Path(name) for name in drivers))
    for file in dict.fromkeys(files):
        with suppress(OSError, RuntimeError):  # RuntimeError: links that lead in a circle
            path = file.resolve()
            if str(path) not in digests:
                digests[str(path)] = digest_limited(path, sys.maxsize, follow=True)
    return digests


def changed_file(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What happened to the first file that is not as it was; empty: nothing did, or nothing is known of before.

    A sweep of an earlier version names tasks and agents instead of files: of it nothing is known.
    """
    if not before or any(not Path(file).is_absolute() or Path(file).is_dir() for file in before):
        return ""
    changed = [file for file in sorted(before.keys() & now.keys()) if before[file] != now[file]]
    # first: a file that is broken now no longer names those that look removed
    for event, files in (
        ("changed", changed),
        ("removed", sorted(before.keys() - now.keys())),
        ("added", sorted(now.keys() - before.keys())),
    ):
        if files:
            return f"{files[0]} was {event}"
    return ""


def _files_of_tasks(names: Sequence[str]) -> Iterator[Path]:
    pending, visited = list(names), set[str]()
    while pending:
        name = pending.pop()
        if name in visited or not is_task_file(name):
            continue
        visited.add(name)
        yield Path(name)
        try:
            task = read_task(name)
            pending += task.held_out
            needed = own_files(task.benchmark)
        except (Agent2Error, OSError) as error:
            _warn(str(error))
            continue
        for problem in needed.problems:
            _warn(problem)
        yield from needed.files


def _warn(problem: str) -> None:
    logger.warning("%s (until then, changes of files that it names are not noticed)", problem)


def _files_of_agents(names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        if not (is_located(name) or is_code(name)):
            continue
        try:
            folder = load_agent(name).folder
        except Agent2Error as error:
            folder = Path(name)
            if not (folder / SPEC_FILE).is_file():  # no agent's folder: it may be anything, of any size
                _warn(str(error))
                continue
        for place, subfolders, files in os.walk(folder):
            subfolders[:] = [part for part in subfolders if part not in CACHES]
            yield from (Path(place) / file for file in files if file not in CACHES)
