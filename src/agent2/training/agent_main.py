"""The main program of an agent that keeps one recipe per kind of environment, each a program beside its `main.py`."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent2.errors import ConfigError

if TYPE_CHECKING:
    from agent2.training.participant import Participant


def start_recipe(agent: str, recipes: Sequence[str]) -> None:
    """Become the program that is named as the assignment's environment; does not return.

    The recipe replaces this process, so that whoever watches processes sees which program trained.
    agent: its name, for errors. recipes: the environments that it has a program for.
    Raises ConfigError if there is none for this assignment.
    """
    if "WORKSPACE" not in os.environ:
        raise ConfigError("$WORKSPACE is not set; run this program as an agent of the arena (agent2 run)")
    assignment = json.loads(Path(os.environ["WORKSPACE"], "assignment.json").read_text(encoding="utf-8"))
    environment = assignment.get("environment", "question")
    if environment not in recipes:
        raise ConfigError(f"{agent} has no recipe for {environment!r}, only for {' and '.join(recipes)}")
    program = Path(sys.argv[0]).resolve().with_name(f"{environment}.py")
    os.execv(sys.executable, [sys.executable, str(program)])


def run_recipe(run: "Callable[[Participant], None]") -> None:
    """Read the assignment and run a recipe, without the progress bars of the libraries."""
    # here, because `start_recipe` is a moment of a program that is about to be replaced
    import datasets
    from transformers.utils import logging as transformers_logging

    from agent2.training.checkpoints import use_threads
    from agent2.training.participant import read_participant

    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    use_threads()
    run(read_participant())
