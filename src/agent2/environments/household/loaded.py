"""One game made ready for play: its names, commands and sentences, and the graph of what was played of it.

Places of the graph (`Place`) are states; an edge is a command with what the engine said. The solver is asked only
for edges that nobody has walked before.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agent2.environments.household.facts import FactTable, FactView
from agent2.environments.household.game import GOAL_SLOT, Game, GameBroken
from agent2.environments.household.phrases import Binding, Each, Fact, Phrasebook, Piece, Scope, read_grammar
from agent2.environments.household.solver import Operator, Solver
from agent2.environments.household.stock import stock
from agent2.environments.household.translation import Translation, already_won, translate, unsolvable

_PLAIN_GOAL = re.compile(r"[A-Za-z0-9 ,.'()-]*")
"""A goal sentence in which no character means anything to the grammar's parser."""
_ID_BYTES = 4
_GAME_BYTES, _BYTES_PER_SAS_BYTE, _PLACE_BYTES = 50_000, 5, 1_800
"""About what a game, each byte of its translation and each place with its edges cost, measured."""


@dataclass(frozen=True, slots=True)
class Menu:
    """What can be done in a state."""

    admissible: tuple[str, ...]
    """Sorted, each once."""
    operators: Mapping[str, Operator]
    """By command; of several with the same command the first, as in the stock engine."""


@dataclass(slots=True, eq=False)
class Place:
    """One state of a game."""

    bits: int
    """Its facts, by `FactTable`."""
    switched: tuple[int, ...]
    """Operators on the way here whose effects depend on the state: what facts may not tell."""
    way: tuple[Operator, ...]
    """From the beginning to here."""
    is_won: bool
    menu: Menu
    edges: dict[str, tuple[str, "Place"]] = field(default_factory=dict)
    """What was said, and where it led, by command."""


class LoadedGame:
    """A game with everything that was found out about it."""

    def __init__(self, game: Game, solver: Solver) -> None:
        """Translate the game and look at its first state; the solver is left there. Raises GameBroken."""
        self.translation: Translation = translate(game)
        self._phrases, self._goal = _phrases_of(game)
        self._table = FactTable(self.translation)
        self._commands: dict[str, str] = {}
        self._bound: dict[str, Binding] = {}
        self._menus: dict[bytes, Menu] = {}
        self._is_fixed = all(_is_fixed(each.template, self.translation) for each in self._phrases.actions.values())
        self._places: dict[tuple[int, tuple[int, ...]], Place] = {}
        solver.begin(self.translation.sas)
        try:
            bits = self._table.bits_of(self.translation.facts) | self._table.bits_of_atoms(solver.atoms())
        except KeyError as error:
            raise unsolvable() from error
        if solver.is_won():
            raise already_won()
        self._entities = self._table.entities(bits)
        self.first = self._place(bits, (), (), solver)
        scope = Scope(FactView(self._table, bits), self._entities, {})
        self.opening = self._phrases.say(self._phrases.opening, scope).replace(GOAL_SLOT, self._goal)

    @property
    def n_bytes(self) -> int:
        """About how much memory the game takes now."""
        translated = _BYTES_PER_SAS_BYTE * len(self.translation.sas)
        return _GAME_BYTES + translated + _PLACE_BYTES * len(self._places)

    def walk(self, place: Place, command: str, solver: Solver) -> tuple[str, Place]:
        """Carry out a command of the place's menu; the solver must be at the place and is led on."""
        operator = place.menu.operators[command]
        bits = self._table.after(place.bits, solver.apply(operator.id, operator.n_effects))
        action = operator.name.split(" ", 1)[0]
        switched = (*place.switched, operator.id) if action in self.translation.conditional else place.switched
        scope = Scope(FactView(self._table, bits), self._entities, self._binding(operator))
        said = self._phrases.say(self._phrases.actions[action].feedback, scope)
        there = self._places.get((bits, switched)) or self._place(bits, switched, (*place.way, operator), solver)
        place.edges[command] = (said, there)
        return said, there

    def lead(self, solver: Solver, place: Place) -> None:
        """Bring a solver to a place."""
        solver.begin(self.translation.sas)
        solver.repeat(place.way)

    def listed_facts(self, place: Place) -> Iterator[Fact]:
        """What holds, by the inner names."""
        return self._table.listed(place.bits)

    def facts_of(self, place: Place) -> frozenset[str]:
        """What holds, in the names that the game shows: "inreceptacle(mug 1, shelf 2)"."""
        return frozenset(
            f"{name}({', '.join(self._shown(entity) for entity, _ in arguments)})"
            for name, arguments in self.listed_facts(place)
        )

    def _shown(self, entity: str) -> str:
        known = self._entities.get(entity)
        return entity if known is None else known.name.strip()

    def _place(self, bits: int, switched: tuple[int, ...], way: tuple[Operator, ...], solver: Solver) -> Place:
        place = Place(bits, switched, way, solver.is_won(), self._menu(bits, solver))
        self._places[bits, switched] = place
        return place

    def _menu(self, bits: int, solver: Solver) -> Menu:
        key = solver.applicable()
        known = self._menus.get(key) if self._is_fixed else None
        if known is not None:
            return known
        operators: dict[str, Operator] = {}
        seen: set[str] = set()
        for operator in solver.operators(len(key) // _ID_BYTES):
            if operator.name not in seen:
                seen.add(operator.name)
                operators.setdefault(self._command(operator, bits), operator)
        menu = Menu(tuple(sorted(operators)), operators)
        if self._is_fixed:
            self._menus[key] = menu
        return menu

    def _command(self, operator: Operator, bits: int) -> str:
        known = self._commands.get(operator.name) if self._is_fixed else None
        if known is not None:
            return known
        name = operator.name.split(" ", 1)[0]
        action = self._phrases.actions.get(name)
        if action is None:
            raise GameBroken(
                f"the game's grammar has no words for the action {name!r}: grammar and domain are "
                "of different versions; download the game again with alfworld-download -f"
            )
        scope = Scope(FactView(self._table, bits), self._entities, self._binding(operator))
        command = self._commands[operator.name] = self._phrases.say(action.template, scope)
        return command

    def _binding(self, operator: Operator) -> Binding:
        known = self._bound.get(operator.name)
        if known is None:
            action, *arguments = operator.name.split()
            parameters = self.translation.parameters[action]
            known = self._bound[operator.name] = {
                (parameter.name, parameter.type): (argument, parameter.type)
                for parameter, argument in zip(parameters, arguments, strict=False)
            }
        return known


def _phrases_of(game: Game) -> tuple[Phrasebook, str]:
    """The parsed grammar and the text that is put in for its goal."""
    grammar = stock().grammar if game.grammar is None else game.grammar
    if _PLAIN_GOAL.fullmatch(game.goal):
        return read_grammar(grammar), game.goal
    return read_grammar(grammar.replace(GOAL_SLOT, game.goal)), GOAL_SLOT


def _is_fixed(template: tuple[Piece, ...], translation: Translation) -> bool:
    """True if what an action is called cannot change while a game is played."""
    queries = [piece.given for piece in template if isinstance(piece, Each) and piece.given is not None]
    return all(name not in translation.fluents for query in queries for name, _ in query.predicates)
