"""The ALFWorld text engine, with parsed games and played turns kept in memory.

The world is fast-downward's: which actions are possible, what they change and whether the goal holds. The sentences
are textworld's grammar (`phrases`), the names alfworld's. What the stock engine repeats each time is done once: a
grammar is parsed once for all games, a problem translated once, and the same command in the same state of the same
game is played once. All attempts at a game share one graph: its places (`GamePlace`) are states, an edge is a command
with the engine's reply, and the solver is asked only for new edges. The facts of a game are numbered, so that a
state's facts are the bits of one integer, and thousands of states cost little.

Promises: observations, admissible commands and wins are those of the stock engine, turn by turn (tested against it);
memory is bounded: the least recently begun games are forgotten. Does NOT plan, and is not thread-safe: one engine a
process (`shared_engine`).
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

from agent2.environments.household.game import GOAL_SLOT, Game, GameBroken, stock
from agent2.environments.household.grounding import (
    Operator,
    Solver,
    Translation,
    already_won,
    read_atom,
    translate,
    unsolvable,
)
from agent2.environments.household.phrases import (
    Binding,
    Entity,
    Fact,
    Phrasebook,
    Piece,
    Repetition,
    Scope,
    read_grammar,
)

NOT = "not_"
"""Before a predicate: an action has made the fact false. What was never true has no fact at all."""

Signature = tuple[str, tuple[str, ...]]


class FactTable:
    """Numbers facts and finds them again."""

    def __init__(self, translation: Translation) -> None:
        self._types = translation.types
        self._hierarchy = _hierarchy(translation.supertypes)
        self._number: dict[Fact, int] = {}
        self._facts: list[Fact] = []
        self._of_signature: dict[Signature, int] = {}
        self._effects: dict[str, tuple[int, int]] = {}
        self._sorted: dict[Signature, tuple[int, list[Fact]]] = {}

    def bits_of(self, facts: Iterable[Fact]) -> int:
        """These facts as one integer."""
        bits = 0
        for fact in facts:
            bits |= 1 << self._numbered(fact)
        return bits

    def bits_of_atoms(self, atoms: Iterable[str]) -> int:
        """The facts that a solver's atoms affirm. Raises KeyError for an entity that the game has not declared."""
        read = (read_atom(atom, self._types) for atom in atoms)
        return self.bits_of(fact for fact, is_affirmed in read if is_affirmed)

    def after(self, bits: int, effects: Iterable[str]) -> int:
        """The facts once an action's effects have come about."""
        for atom in effects:
            change = self._effects.get(atom)
            if change is None:
                change = self._effects[atom] = self._change(atom)
            added, removed = change
            bits = bits & ~removed | added
        return bits

    def listed(self, bits: int) -> Iterator[Fact]:
        """The facts of an integer, in the order in which they were first met."""
        while bits:
            lowest = bits & -bits
            yield self._facts[lowest.bit_length() - 1]
            bits ^= lowest

    def matching(self, bits: int, name: str, types: tuple[str, ...]) -> Sequence[Fact]:
        """The facts among bits with this predicate and argument types, as `phrases.EngineFacts` wants them."""
        found: list[Fact] = []
        for combination in self._hierarchy.combinations(types):
            signature = (name, combination)
            here = bits & self._of_signature.get(signature, 0)
            if here:
                known = self._sorted.get(signature)
                if known is None or known[0] != here:
                    known = self._sorted[signature] = (here, sorted(self.listed(here)))
                found += known[1]
        return found

    def entities(self, bits: int) -> Mapping[str, Entity]:
        """Everything that some fact speaks of, with the name that the game shows: "mug 1"."""
        ids = sorted({entity for _, arguments in self.listed(bits) for entity, _ in arguments})
        names = stock().demangler(game_infos={each: SimpleNamespace(id=each) for each in ids}, shuffle=False)
        return {each: Entity(each, names.demangle_alfred_name(each)) for each in ids}

    def _numbered(self, fact: Fact) -> int:
        number = self._number.get(fact)
        if number is None:
            number = self._number[fact] = len(self._facts)
            self._facts.append(fact)
            signature = (fact[0], tuple(kind for _, kind in fact[1]))
            self._of_signature[signature] = self._of_signature.get(signature, 0) | 1 << number
        return number

    def _change(self, atom: str) -> tuple[int, int]:
        (name, arguments), is_affirmed = read_atom(atom, self._types)
        affirmed, denied = self.bits_of([(name, arguments)]), self.bits_of([(NOT + name, arguments)])
        return (affirmed, denied) if is_affirmed else (denied, affirmed)


@dataclass(frozen=True, slots=True)
class FactView:
    """The facts of one state."""

    table: FactTable
    bits: int

    def matching(self, name: str, types: tuple[str, ...]) -> Sequence[Fact]:
        """See `phrases.EngineFacts`."""
        return self.table.matching(self.bits, name, types)


class _Hierarchy:
    """Textworld's type hierarchy, each question asked once."""

    def __init__(self, supertypes: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        logic = stock().types
        self._types: Any = logic.TypeHierarchy()
        seen: set[str] = set()
        for name, above in supertypes:
            if name not in seen:  # a domain may declare `object` itself; the translator's own comes first
                seen.add(name)
                self._types.add(logic.Type(name, above))
        self._known: dict[tuple[str, ...], list[tuple[str, ...]]] = {}

    def combinations(self, types: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Every tuple of subtypes of these types, in textworld's order."""
        known = self._known.get(types)
        if known is None:
            found = self._types.multi_subtypes([self._types.get(name) for name in types])
            known = self._known[types] = [tuple(each.name for each in kinds) for kinds in found]
        return known


@lru_cache(maxsize=16)
def _hierarchy(supertypes: tuple[tuple[str, tuple[str, ...]], ...]) -> _Hierarchy:
    return _Hierarchy(supertypes)


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
class GamePlace:
    """One state of a game."""

    bits: int
    """Its facts, by `FactTable`."""
    switched: tuple[int, ...]
    """Operators on the way here whose effects depend on the state: what facts may not say."""
    way: tuple[Operator, ...]
    """From the beginning to here."""
    is_won: bool
    menu: Menu
    edges: dict[str, tuple[str, "GamePlace"]] = field(default_factory=dict)
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
        self._places: dict[tuple[int, tuple[int, ...]], GamePlace] = {}
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

    def walk(self, place: GamePlace, command: str, solver: Solver) -> tuple[str, GamePlace]:
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

    def lead(self, solver: Solver, place: GamePlace) -> None:
        """Bring a solver to a place."""
        solver.begin(self.translation.sas)
        solver.repeat(place.way)

    def listed_facts(self, place: GamePlace) -> Iterator[Fact]:
        """What holds, by the inner names."""
        return self._table.listed(place.bits)

    def facts_of(self, place: GamePlace) -> frozenset[str]:
        """What holds, in the names that the game shows: "inreceptacle(mug 1, shelf 2)"."""
        return frozenset(
            f"{name}({', '.join(self._shown(entity) for entity, _ in arguments)})"
            for name, arguments in self.listed_facts(place)
        )

    def _shown(self, entity: str) -> str:
        known = self._entities.get(entity)
        return entity if known is None else known.name.strip()

    def _place(self, bits: int, switched: tuple[int, ...], way: tuple[Operator, ...], solver: Solver) -> GamePlace:
        place = GamePlace(bits, switched, way, solver.is_won(), self._menu(bits, solver))
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
    queries = [piece.condition for piece in template if isinstance(piece, Repetition) and piece.condition is not None]
    return all(name not in translation.fluents for query in queries for name, _ in query.predicates)


NOTHING_HAPPENS = "Nothing happens."
"""What the engine says to a command that is not possible."""
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Position:
    """The state of one attempt at a game. Immutable: any number of attempts may continue from it."""

    observation: str
    """What the engine said last; at the start the room and the task."""
    place: GamePlace
    game: LoadedGame

    @property
    def won(self) -> bool:
        """True where the goal holds."""
        return self.place.is_won

    @property
    def admissible(self) -> tuple[str, ...]:
        """The commands that do something here, sorted."""
        return self.place.menu.admissible

    def allows(self, command: str) -> bool:
        """True if the command does something here."""
        return command in self.place.menu.operators

    @property
    def facts(self) -> frozenset[str]:
        """What holds, in the names that the game shows: "inreceptacle(mug 1, shelf 2)".

        A predicate that an action has made false is there as "not_..."; what was never true is not there at all.
        """
        return self.game.facts_of(self.place)


@dataclass(slots=True)
class _Slot:
    """A solver and its position."""

    solver: Solver
    game: LoadedGame | None = None
    place: GamePlace | None = None


class Engine:
    """Plays games."""

    def __init__(self, *, memory_mib: int = 1024, n_solvers: int = 2) -> None:
        """An engine without games.

        memory_mib: about how much the games and turns that are remembered may take. n_solvers: states held at once;
        each costs some 33 MB of disk, and saves under a millisecond where attempts at few games take turns.
        """
        self._limit = memory_mib * _MIB
        self._games: OrderedDict[Game, LoadedGame] = OrderedDict()
        self._n_bytes: dict[Game, int] = {}
        self._total = 0
        self._slots: list[_Slot] = []
        self._n_solvers = n_solvers
        self.n_played = 0
        """Turns that the solver really played."""

    def start(self, game: Game) -> Position:
        """The beginning of a game. Raises GameBroken for one that cannot be played."""
        loaded = self._games.get(game)
        if loaded is None:
            slot = self._taken()
            slot.game = slot.place = None
            loaded = LoadedGame(game, slot.solver)
            slot.game, slot.place = loaded, loaded.first
            self._games[game] = loaded
        self._games.move_to_end(game)
        self._count(game, loaded)
        return Position(loaded.opening, loaded.first, loaded)

    def move(self, position: Position, command: str) -> Position:
        """Carry out a command; one that is not possible leaves everything as it is."""
        game, place, command = position.game, position.place, command.strip()
        walked = place.edges.get(command)
        if walked is None:
            if not position.allows(command):
                return Position(NOTHING_HAPPENS, place, game)
            slot = self._slot_at(game, place)
            slot.place = None
            walked = game.walk(place, command, slot.solver)
            slot.place = walked[1]
            self.n_played += 1
        said, there = walked
        return Position(said, there, game)

    def _slot_at(self, game: LoadedGame, place: GamePlace) -> _Slot:
        slot = next((each for each in self._slots if each.game is game and each.place is place), None)
        if slot is not None:
            self._slots.remove(slot)
            self._slots.append(slot)
            return slot
        slot = self._taken()
        slot.game = slot.place = None
        game.lead(slot.solver, place)
        slot.game = game
        return slot

    def _taken(self) -> _Slot:
        """The solver that was used least recently, or a new one while there may be more."""
        slot = _Slot(Solver()) if len(self._slots) < self._n_solvers else self._slots.pop(0)
        self._slots.append(slot)
        return slot

    def _count(self, game: Game, loaded: LoadedGame) -> None:
        """Note what a game takes by now, and forget others while all together take too much."""
        self._total += loaded.n_bytes - self._n_bytes.get(game, 0)
        self._n_bytes[game] = loaded.n_bytes
        while self._total > self._limit and len(self._games) > 1:
            oldest, _ = self._games.popitem(last=False)
            self._total -= self._n_bytes.pop(oldest)


@cache
def shared_engine() -> Engine:
    """The engine of this process."""
    return Engine()
