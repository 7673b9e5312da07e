"""One household game as data, and the installed parts of alfworld, textworld and fast-downward that play it.

A game is the JSON of a `game.tw-pddl` file without its walkthrough: what the engine needs to play it, and nothing that
helps to solve it. Domain and grammar are left out when they are the ones that the alfworld wheel ships, so a game is a
few kilobytes and is stored in an item.

The libraries are imported when first needed (`engine_parts`). Promises: importing them leaves `sys.argv` and the
environment as they were and creates no folder (alfworld creates the folder that `$ALFWORLD_DATA` names, textworld's
solver rewrites `sys.argv`); without the extra a ConfigError names it.
"""

import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from agent2.errors import ConfigError, EnvironmentFailed, quoted
from agent2.installation import install_hint
from agent2.records import JsonValue, digest_of

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six kinds of tasks, by their published names."""

GOAL_SLOT = "UNKNOWN GOAL"
"""Placeholder of a game's goal in the wheel's grammar."""
_GOAL_LINE = re.compile(r'(?<="Your task is to: )(.*?)(?=\.?")')
_TEMPLATE = re.compile(r'^action (\w+) \{\s*template :: "([^"]*)"', re.MULTILINE)
_DECLARED = re.compile(r"^\s*\(:action (\w+)", re.MULTILINE)
_SLOT = re.compile(r"\{[^}]*\}|\[[^\]]*\]")
"""Placeholder of an object's name in a template."""


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The parts of the installed engine."""

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
    """The sentences that the wheel ships, with `GOAL_SLOT` as placeholder of the goal."""


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


def import_part(name: str) -> ModuleType:
    """One module of the extra, imported quietly. Raises ConfigError without the extra."""
    with quiet_import():
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"household games need the package {name.split('.')[0]!r}, which cannot be imported ({error}); "
                f"{install_hint('household')}"
            ) from error


@cache
def engine_parts() -> EngineParts:
    """All parts, imported once. Raises ConfigError without the extra."""
    info = import_part("alfworld.info")
    return EngineParts(
        solver=import_part("fast_downward"),
        logic=import_part("textworld.envs.pddl.logic"),
        textgen=import_part("textworld.envs.pddl.textgen"),
        queries=import_part("textworld.logic").Rule,
        types=import_part("textworld.logic"),
        demangler=import_part("alfworld.agents.utils.misc").Demangler,
        domain=Path(info.ALFRED_PDDL_PATH).read_text(encoding="utf-8"),
        grammar=Path(info.ALFRED_TWL2_PATH).read_text(encoding="utf-8"),
    )


class GameBroken(EnvironmentFailed):
    """A game cannot be played; trying again does not help."""


@dataclass(frozen=True, slots=True)
class Game:
    """One game."""

    task_type: str
    """One of `TASK_TYPES`."""
    goal: str
    """The sentence after "Your task is to: ", without the full stop."""
    problem: str
    """PDDL: objects, initial facts and goal."""
    domain: str | None = None
    """PDDL; None: the wheel's."""
    grammar: str | None = None
    """Textworld grammar in which `GOAL_SLOT` is the place of the goal; None: the wheel's."""

    @classmethod
    def from_payload(cls, payload: JsonValue) -> "Game":
        """The game inside an item. Raises GameBroken for anything but a record of `as_payload`."""
        if not isinstance(payload, Mapping):
            raise GameBroken(f"the item's game is {quoted(payload)}, not a record; generate the item again")
        fields = cls.__dataclass_fields__
        if unknown := sorted(set(payload) - set(fields)):
            raise GameBroken(f"the item's game has unknown fields {quoted(unknown)}; generate the item again")
        for name in fields:
            value, may_lack = payload.get(name), name in ("domain", "grammar")
            if not isinstance(value, str) and not (value is None and may_lack):
                raise GameBroken(
                    f"the item's game has {quoted(value)} as {name}, which must be text; generate the item again"
                )
        return cls(**payload)

    @classmethod
    def from_file(cls, data: Mapping[str, JsonValue], task_type: str) -> "Game":
        """The game of a `game.tw-pddl` file, already read; walkthrough and planner hints are dropped.

        Raises GameBroken if the file lacks a part or is marked as not solvable.
        """
        missing = [name for name in ("pddl_domain", "pddl_problem", "grammar") if not isinstance(data.get(name), str)]
        if missing:
            raise GameBroken(
                f"the game file lacks {', '.join(missing)}: it was made for another engine, or the download broke off; "
                "download it again with alfworld-download -f"
            )
        if not data.get("solvable", True):
            raise GameBroken("the game file says that the game cannot be solved; remove it")
        grammar = str(data["grammar"])
        goal_line = _GOAL_LINE.search(grammar)
        if goal_line is None:
            raise GameBroken(
                'the game\'s grammar has no line "Your task is to: ..."; download it again with alfworld-download -f'
            )
        goal = goal_line.group(1)
        open_grammar = grammar[: goal_line.start()] + GOAL_SLOT + grammar[goal_line.end() :]
        wheel = engine_parts()
        if open_grammar != wheel.grammar:
            _check_commands(open_grammar, wheel.grammar)
        return cls(
            task_type=task_type,
            goal=goal,
            problem=str(data["pddl_problem"]),
            domain=None if data["pddl_domain"] == wheel.domain else str(data["pddl_domain"]),
            grammar=None if open_grammar == wheel.grammar else open_grammar,
        )

    def as_payload(self) -> dict[str, JsonValue]:
        """Plain data for an item; the wheel's own parts are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def as_file(self) -> dict[str, JsonValue]:
        """The content of a `game.tw-pddl` file for the stock engine, without a walkthrough."""
        wheel = engine_parts()
        grammar = wheel.grammar if self.grammar is None else self.grammar
        return {
            "pddl_domain": wheel.domain if self.domain is None else self.domain,
            "grammar": grammar.replace(GOAL_SLOT, self.goal),
            "pddl_problem": self.problem,
            "solvable": True,
            "walkthrough": [],
        }

    @property
    def digest(self) -> str:
        """SHA-256 (hex); equal exactly when the games are."""
        return digest_of(self)


@cache
def command_shape() -> re.Pattern[str]:
    """A pattern of all commands of the installed engine: its templates, with any "name 1" for an object.

    Templates of actions that the installed domain does not have are left out. Raises ConfigError without the extra.
    """
    wheel = engine_parts()
    declared = set(_DECLARED.findall(wheel.domain))
    templates = {template for action, template in _TEMPLATE.findall(wheel.grammar) if action in declared}
    object_name = r"[a-z]+ \d+"
    return re.compile(
        "|".join(object_name.join(map(re.escape, _SLOT.split(template))) for template in sorted(templates))
    )


def _check_commands(grammar: str, newest: str) -> None:
    """Raises GameBroken if a grammar words a command differently from the installed one, or lacks it."""
    templates = dict(_TEMPLATE.findall(grammar))
    for action, template in _TEMPLATE.findall(newest):
        if templates.get(action) != template:
            difference = "does not know it" if action not in templates else f"says {quoted(templates[action])}"
            raise GameBroken(
                f"the game has the grammar of another alfworld version: for {action} the installed one says "
                f"{quoted(template)}, the game {difference}; download the games again with alfworld-download -f"
            )
