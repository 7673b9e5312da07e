"""The parts of alfworld, textworld and fast-downward that the engine is built on, imported when first needed.

Promises: importing them leaves `sys.argv` and the environment as they were and creates no folder (alfworld makes the
folder that `$ALFWORLD_DATA` names, textworld's solver rewrites `sys.argv`); without the extra a ConfigError names it.
"""

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from agent2.errors import ConfigError
from agent2.installation import extra_words


@dataclass(frozen=True, slots=True)
class Stock:
    """What is installed."""

    solver: ModuleType
    """`fast_downward`: the planner's state as a shared library, and its PDDL translator."""
    logic: ModuleType
    """`textworld.envs.pddl.logic`: the parser of a game's actions."""
    textgen: ModuleType
    """`textworld.envs.pddl.textgen`: the parser of a game's sentences."""
    queries: Any
    """`textworld.logic.Rule`: the parser of conditions."""
    types: ModuleType
    """`textworld.logic`: its type hierarchy."""
    demangler: Any
    """`alfworld`'s naming of entities."""
    domain: str
    """The PDDL domain that the wheel ships."""
    grammar: str
    """The sentences that the wheel ships, with `UNKNOWN GOAL` where the goal belongs."""


@contextmanager
def quiet_import() -> Iterator[None]:
    """Undo what importing (or calling) these packages does to the process: `sys.argv` and `$ALFWORLD_DATA`."""
    arguments, data = sys.argv, os.environ.get("ALFWORLD_DATA")
    os.environ["ALFWORLD_DATA"] = tempfile.gettempdir()
    try:
        yield
    finally:
        sys.argv = arguments
        if data is None:
            del os.environ["ALFWORLD_DATA"]
        else:
            os.environ["ALFWORLD_DATA"] = data


def part(name: str) -> ModuleType:
    """One module of the extra, imported quietly. Raises ConfigError without the extra."""
    with quiet_import():
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"household games need the package {name.split('.')[0]!r}, which cannot be imported ({error}); "
                f"{extra_words('household')}"
            ) from error


@cache
def stock() -> Stock:
    """All parts, imported once. Raises ConfigError without the extra."""
    info = part("alfworld.info")
    return Stock(
        solver=part("fast_downward"),
        logic=part("textworld.envs.pddl.logic"),
        textgen=part("textworld.envs.pddl.textgen"),
        queries=part("textworld.logic").Rule,
        types=part("textworld.logic"),
        demangler=part("alfworld.agents.utils.misc").Demangler,
        domain=Path(info.ALFRED_PDDL_PATH).read_text(encoding="utf-8"),
        grammar=Path(info.ALFRED_TWL2_PATH).read_text(encoding="utf-8"),
    )
