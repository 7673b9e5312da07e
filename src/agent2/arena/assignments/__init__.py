"""Assignments whose verdict is more than the private score of a checkpoint, by kind.

A task file names one (`assignment: {kind: debug}`). It adds files to the workspace before the agent starts and
gives a verdict of its own once the submissions are scored; `prompts/<kind>.md` is its section of ASSIGNMENT.md. The
rest of a trial stays: budget, sandbox, grading API, audit, report. For programs in the agent's sandbox this folder is
empty.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from agent2.arena.assignments.records import Bench, Scores
from agent2.arena.evidence import AssignmentVerdict
from agent2.sandbox.spec import Mount

KINDS: Mapping[str, str] = {"debug": "agent2.arena.assignments.broken_pipeline:DebugTraining"}
"""Name in a task file -> class."""
ORACLE = "debug-oracle"
"""A packaged agent that knows the answers."""
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


def answers_hidden(root: Path) -> tuple[Mount, ...]:
    """Mounts that show an empty folder in place of this one and of the oracle's, which contain the answers.

    root: of the trial. Where no sandbox contains a program, it can read them, as the report of such a trial says.
    """
    empty = root / "assignment" / "empty"
    empty.mkdir(parents=True, exist_ok=True)
    homes = {HERE, Path(__file__).parent.absolute()}  # an environment may be reached through a link as well
    folders = [folder for home in homes for folder in (home, home.parent / "agents" / ORACLE)]
    return tuple(Mount(empty, str(folder)) for folder in sorted(folders) if folder.is_dir())
