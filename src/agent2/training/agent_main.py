"""What the main programs of the reference agents share: choose a recipe by the kind of items, and run one."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agent2.errors import ConfigError

if TYPE_CHECKING:
    from agent2.training.participant import Participant


def start_recipe(question: str, episodes: str) -> None:
    """Become one of two programs beside this one, by whether an item is a question or an episode; does not return.

    The program replaces this process, so that whoever watches processes sees which one trained.
    Raises ConfigError outside an arena workspace.
    """
    if "WORKSPACE" not in os.environ:
        raise ConfigError("$WORKSPACE is not set; run this program as an agent of the arena (agent2 run)")
    assignment = json.loads(Path(os.environ["WORKSPACE"], "assignment.json").read_text(encoding="utf-8"))
    name = episodes if assignment["scoring"].get("max_turns", 1) > 1 else question
    os.execv(sys.executable, [sys.executable, str(Path(sys.argv[0]).resolve().with_name(name))])


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
