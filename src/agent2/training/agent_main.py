"""The main program of an agent that keeps one recipe per kind of environment, each a module beside its `main.py`."""

import importlib
from collections.abc import Sequence

import datasets
from transformers.utils import logging as transformers_logging

from agent2.errors import ConfigError
from agent2.training.checkpoints import use_threads
from agent2.training.participant import read_participant


def run_recipe(agent: str, recipes: Sequence[str]) -> None:
    """Read the assignment and call `run(participant)` of the module named as its environment.

    agent: its name, for errors. recipes: the environments that it has a module for.
    Raises ConfigError if there is none for this assignment.
    """
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    use_threads()
    me = read_participant()
    if me.environment not in recipes:
        raise ConfigError(f"{agent} has no recipe for {me.environment!r}, only for {' and '.join(recipes)}")
    importlib.import_module(me.environment).run(me)
