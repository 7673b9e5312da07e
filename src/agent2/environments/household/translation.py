"""A game's PDDL made ready for the solver, by fast-downward's own translator.

Promises: the solver's input and facts are those that the stock engine works with; broken games are refused with the
reason. The translation that the stock engine makes for its planner is left out: nothing here plans.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agent2.environments.household.game import Game, GameBroken
from agent2.environments.household.grounding import translator
from agent2.environments.household.phrases import Fact, Variable
from agent2.environments.household.stock import quiet_import, stock
from agent2.errors import shown

_NO_TASK = "Atom dummy(val1)"
"""What the translator writes in place of a task that is decided before it begins."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an action."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Translation:
    """A game as the solver reads it."""

    sas: bytes
    facts: tuple[Fact, ...]
    """That hold at the start and that the solver may leave out, because they never change."""
    types: Mapping[str, str]
    """Of each object by name."""
    supertypes: tuple[tuple[str, tuple[str, ...]], ...]
    """Each type with the types above it."""
    parameters: Mapping[str, tuple[Parameter, ...]]
    """Of each action by name."""
    conditional: frozenset[str]
    """Actions of which some effects depend on the state."""
    fluents: frozenset[str]
    """Predicates that an action can change."""


def translate(game: Game) -> Translation:
    """Translate one game. Raises GameBroken if it is not PDDL, unsolvable or already won.

    Takes some 9 ms (tiny) to 120 ms (full) of CPU, by the number of entities.
    """
    wheel = stock()
    try:
        with quiet_import(), _paused_collection():
            if game.domain is None:
                task, sas = translator(wheel.domain).translate(game.problem)
            else:
                task, sas = wheel.solver.pddl2sas(game.domain, game.problem)
    except (Exception, SystemExit) as error:
        # The boundary to a foreign parser, which raises many types, or exits, for a text that is not a PDDL task.
        raise GameBroken(
            f"the game's problem cannot be translated ({type(error).__name__}: {shown(str(error))}): it is not PDDL of "
            "this domain, or was made for an older one; download or generate the game again"
        ) from error
    if _NO_TASK in sas:
        goal = sas.split("begin_goal", 1)[1].split()[:3]
        raise already_won() if goal == ["1", "0", "0"] else unsolvable()
    return _translation(task, sas.encode("utf-8"))


@contextmanager
def _paused_collection() -> Iterator[None]:
    """No search for cycles of garbage: the translator makes so many objects that a third of its time would go there."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def unsolvable() -> GameBroken:
    """The error for a game that nobody can win."""
    return GameBroken(
        "the game cannot be solved: no sequence of actions reaches its goal; remove it, or make it so that what the "
        "goal names is there and can be reached"
    )


def already_won() -> GameBroken:
    """The error for a game that begins in its goal."""
    return GameBroken("the game is already won when it begins; remove it, or place its target elsewhere")


def _translation(task: Any, sas: bytes) -> Translation:
    types = {entity.name: entity.type_name for entity in task.objects}
    return Translation(
        sas=sas,
        facts=tuple(fact for atom in task.init if (fact := _initial_fact(atom, types)) is not None),
        types=types,
        supertypes=tuple((kind.name, tuple(kind.supertype_names)) for kind in task.types),
        parameters={
            action.name: tuple(Parameter(each.name.strip("?"), each.type_name) for each in action.parameters)
            for action in task.actions
        },
        conditional=frozenset(
            action.name
            for action in task.actions
            if any(type(effect.condition).__name__ != "Truth" for effect in action.effects)
        ),
        fluents=frozenset(effect.literal.predicate for action in task.actions for effect in action.effects),
    )


def _initial_fact(atom: Any, types: Mapping[str, str]) -> Fact | None:
    """A fact of the initial state; None for equalities and for costs, which are numbers."""
    if not hasattr(atom, "predicate") or atom.predicate == "=":
        return None
    return atom.predicate, tuple((name, types[name]) for name in atom.args)


def read_atom(text: str, types: Mapping[str, str]) -> tuple[Fact, bool]:
    """A solver's "Atom holds(agent1, mug_bar_01)" as a fact, and whether it is affirmed.

    Raises KeyError for an entity that the game has not declared.
    """
    kind, rest = text.split(" ", 1)
    name, arguments = rest.split("(", 1)
    entities: tuple[Variable, ...] = tuple(
        (_spelt(entity), types[entity]) for entity in arguments[:-1].split(", ") if entity
    )
    return (name, entities), kind != "NegatedAtom"


def _spelt(entity: str) -> str:
    """Textworld writes these two in capitals."""
    return entity.upper() if entity in ("i", "p") else entity
