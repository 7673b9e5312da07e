"""Assignments whose verdict is more than the private score of a checkpoint, by kind.

A task file names one (`assignment: {kind: debug}`). It adds files to the workspace before the agent starts and
gives a verdict of its own once the submissions are scored; `prompts/<kind>.md` is its section of ASSIGNMENT.md. The
rest of a trial stays: budget, sandbox, grading API, audit, report. For programs in the agent's sandbox this folder is
empty.
"""

import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from agent2.arena.assignments.records import Bench, Scores
from agent2.arena.evidence import AssignmentVerdict
from agent2.benchmarks import load_benchmark
from agent2.sandbox.spec import Mount

KINDS: Mapping[str, str] = {
    "debug": "agent2.arena.assignments.broken_pipeline:DebugTraining",
    "implement": "agent2.arena.assignments.own_implementation:ImplementGrpo",
    "page": "agent2.arena.assignments.web_page:BuildPage",
    "tune": "agent2.arena.assignments.hyperparameter_search:TuneHyperparameters",
}
"""Name in a task file -> class."""
ORACLES = ("debug-oracle", "implement-oracle", "page-oracle", "tune-oracle")
"""Packaged agents that know the answers."""
FOREIGN_TRAINERS = ("trl", "verl", "openrlhf", "unsloth", "torchrl", "agent2.training")
"""Packages that train by themselves; where the grader runs an agent's program, they are empty."""
HERE = Path(__file__).resolve().parent


class EngineeringAssignment(Protocol):
    """What a kind of assignment adds to a trial."""

    def prepare(self, bench: Bench) -> None:
        """Write the files that the agent is given into the workspace, before the agent starts."""

    def judge(self, bench: Bench, scores: Scores) -> AssignmentVerdict:
        """The verdict on what the agent left behind."""


def load_kind(kind: str) -> EngineeringAssignment:
    """The assignment of that kind, a key of `KINDS`."""
    module, _, attribute = KINDS[kind].partition(":")
    assignment: EngineeringAssignment = getattr(importlib.import_module(module), attribute)()
    return assignment


def answers_hidden(root: Path, pages: str = "") -> tuple[Mount, ...]:
    """Mounts that show an empty folder in place of this one and of the oracle's, which contain the answers.

    root: of the trial. pages: a benchmark of this package whose home, which makes reference pages, is hidden, too.
    Where no sandbox contains a program, it can read them, as the report of such a trial says.
    """
    homes = {HERE, Path(__file__).parent.absolute()}  # an environment may be reached through a link as well
    oracles = [home.parent / "agents" / name for home in homes for name in ORACLES]
    makers = [home.parents[1] / "benchmarks" / _home_of(pages) for home in homes if pages]
    return _emptied(root, [*homes, *oracles, *makers])


def package_hidden(root: Path) -> tuple[Mount, ...]:
    """Mounts that show an empty folder in place of this whole package, which makes items and unpacks base models.

    root: of the trial.
    """
    return _emptied(root, [home.parents[1] for home in (HERE, Path(__file__).parent.absolute())])


def trainers_hidden(root: Path) -> tuple[Mount, ...]:
    """Mounts that show an empty folder in place of each of `FOREIGN_TRAINERS` that is installed. root: of the trial."""
    folders: list[Path] = []
    for name in FOREIGN_TRAINERS:
        top = name.partition(".")[0]
        if (spec := importlib.util.find_spec(top)) is not None:  # of a whole name it would import the package
            folders += [Path(place, *name.split(".")[1:]) for place in spec.submodule_search_locations or ()]
    return _emptied(root, folders)


def _home_of(benchmark: str) -> str:
    """Folder of a benchmark among those of this package; one of somebody else has none, and no folder of that name."""
    module = type(load_benchmark(benchmark)).__module__
    return module.removeprefix("agent2.benchmarks.").partition(".")[0]


def _emptied(root: Path, folders: Iterable[Path]) -> tuple[Mount, ...]:
    empty = root / "assignment" / "empty"
    empty.mkdir(parents=True, exist_ok=True)
    names = {name for folder in folders if folder.is_dir() for name in (str(folder.absolute()), str(folder.resolve()))}
    return tuple(Mount(empty, name, covers=True) for name in sorted(names))
