"""The ALFWorld text engine, with parsed games and played turns kept in memory.

The rules are fast-downward's: which actions are possible, what they change and whether the goal holds. The sentences
are textworld's grammar (`phrases`), the names alfworld's. What the stock engine repeats each time is done once: a
grammar is parsed once for all games, a problem translated once, and the same command in the same state of the same
game is played once. All attempts at a game share one graph: its nodes are states (`GameState`), an edge is a command
with the engine's reply, and the solver is used only for new edges. The facts of a game are numbered, so that a state's
facts are the bits of one integer, and thousands of states cost little.

Promises: observations, admissible commands and wins are those of the stock engine, turn by turn (tested against it);
memory is bounded: the least recently started games are dropped. Does NOT plan, and is not thread-safe: one engine a
process (`shared_engine`).
"""

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

from agent2.environments.household.game import GOAL_SLOT, Game, GameBroken, engine_parts
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
"""Prefix of a predicate that an action has made false. What was never true has no fact at all."""

NOTHING_HAPPENS = "Nothing happens."
"""The engine's reply to a command that is not possible."""
_MIB = 2**20
_PLAIN_GOAL = re.compile(r"[A-Za-z0-9 ,.'()-]*")
"""A goal sentence in which no character means anything to the grammar's parser."""
_ID_BYTES = 4
_GAME_BYTES, _BYTES_PER_SAS_BYTE, _STATE_BYTES = 50_000, 5, 1_800
"""Approximate memory of a game, of each byte of its translation and of each state with its edges, measured."""
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
            bits |= 1 << self._number_of(fact)
        return bits

    def bits_of_atoms(self, atoms: Iterable[str]) -> int:
        """The facts that a solver's atoms affirm. Raises KeyError for an entity that the game has not declared."""
        facts = (read_atom(atom, self._types) for atom in atoms)
        return self.bits_of(fact for fact, is_affirmed in facts if is_affirmed)

    def after(self, bits: int, effects: Iterable[str]) -> int:
        """The facts after an action's effects."""
        for atom in effects:
            change = self._effects.get(atom)
            if change is None:
                change = self._effects[atom] = self._change(atom)
            added, removed = change
            bits = bits & ~removed | added
        return bits

    def listed(self, bits: int) -> Iterator[Fact]:
        """The facts of an integer, in the order in which they were first numbered."""
        while bits:
            lowest = bits & -bits
            yield self._facts[lowest.bit_length() - 1]
            bits ^= lowest

    def matching(self, bits: int, name: str, types: tuple[str, ...]) -> Sequence[Fact]:
        """The facts among bits with this predicate and argument types; see `phrases.EngineFacts`."""
        facts: list[Fact] = []
        for combination in self._hierarchy.combinations(types):
            signature = (name, combination)
            matches = bits & self._of_signature.get(signature, 0)
            if matches:
                cached = self._sorted.get(signature)
                if cached is None or cached[0] != matches:
                    cached = self._sorted[signature] = (matches, sorted(self.listed(matches)))
                facts += cached[1]
        return facts

    def entities(self, bits: int) -> Mapping[str, Entity]:
        """All entities of the facts, with the names that the game shows: "mug 1"."""
        ids = sorted({entity for _, arguments in self.listed(bits) for entity, _ in arguments})
        names = engine_parts().demangler(
            game_infos={entity_id: SimpleNamespace(id=entity_id) for entity_id in ids}, shuffle=False
        )
        return {entity_id: Entity(entity_id, names.demangle_alfred_name(entity_id)) for entity_id in ids}

    def _number_of(self, fact: Fact) -> int:
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
    """Textworld's type hierarchy, with cached answers."""

    def __init__(self, supertypes: Sequence[tuple[str, tuple[str, ...]]]) -> None:
        logic = engine_parts().types
        self._types: Any = logic.TypeHierarchy()
        declared: set[str] = set()
        for name, above in supertypes:
            if name not in declared:  # a domain may declare `object` itself; the translator's own comes first
                declared.add(name)
                self._types.add(logic.Type(name, above))
        self._combinations: dict[tuple[str, ...], list[tuple[str, ...]]] = {}

    def combinations(self, types: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Every tuple of subtypes of these types, in textworld's order."""
        cached = self._combinations.get(types)
        if cached is None:
            combinations = self._types.multi_subtypes([self._types.get(name) for name in types])
            cached = self._combinations[types] = [
                tuple(subtype.name for subtype in subtypes) for subtypes in combinations
            ]
        return cached


@lru_cache(maxsize=16)
def _hierarchy(supertypes: tuple[tuple[str, tuple[str, ...]], ...]) -> _Hierarchy:
    return _Hierarchy(supertypes)


@dataclass(frozen=True, slots=True)
class Menu:
    """The commands that a state allows."""

    admissible: tuple[str, ...]
    """Sorted, without duplicates."""
    operators: Mapping[str, Operator]
    """By command; of several with the same command the first, as in the stock engine."""


@dataclass(slots=True, eq=False)
class GameState:
    """One state of a game."""

    bits: int
    """Its facts, by `FactTable`."""
    switched: tuple[int, ...]
    """Operators on the path whose effects depend on the state, which the facts may not show."""
    path: tuple[Operator, ...]
    """The operators from the initial state."""
    is_won: bool
    menu: Menu
    edges: dict[str, tuple[str, "GameState"]] = field(default_factory=dict)
    """Command -> the reply and the next state."""


class LoadedGame:
    """A game with all that is cached about it."""

    def __init__(self, game: Game, solver: Solver) -> None:
        """Translate the game and read its initial state, in which the solver is left. Raises GameBroken."""
        self.translation: Translation = translate(game)
        self._phrases, self._goal = _read_phrases(game)
        self._table = FactTable(self.translation)
        self._commands: dict[str, str] = {}
        self._bindings: dict[str, Binding] = {}
        self._menus: dict[bytes, Menu] = {}
        self._is_fixed = all(_is_fixed(action.template, self.translation) for action in self._phrases.actions.values())
        self._states: dict[tuple[int, tuple[int, ...]], GameState] = {}
        solver.begin(self.translation.sas)
        try:
            bits = self._table.bits_of(self.translation.facts) | self._table.bits_of_atoms(solver.atoms())
        except KeyError as error:
            raise unsolvable() from error
        if solver.is_won():
            raise already_won()
        self._entities = self._table.entities(bits)
        self.first = self._new_state(bits, (), (), solver)
        scope = Scope(FactView(self._table, bits), self._entities, {})
        self.opening = self._phrases.say(self._phrases.opening, scope).replace(GOAL_SLOT, self._goal)

    @property
    def n_bytes(self) -> int:
        """Approximate memory of the game now."""
        translated = _BYTES_PER_SAS_BYTE * len(self.translation.sas)
        return _GAME_BYTES + translated + _STATE_BYTES * len(self._states)

    def carry_out(self, state: GameState, command: str, solver: Solver) -> tuple[str, GameState]:
        """Carry out a command of the state's menu. The solver must be in that state and is left in the next one."""
        operator = state.menu.operators[command]
        bits = self._table.after(state.bits, solver.apply(operator.id, operator.n_effects))
        action = operator.name.split(" ", 1)[0]
        # two paths to the same facts are one state unless such an operator makes the solver's states differ
        switched = (*state.switched, operator.id) if action in self.translation.conditional else state.switched
        scope = Scope(FactView(self._table, bits), self._entities, self._binding(operator))
        feedback = self._phrases.say(self._phrases.actions[action].feedback, scope)
        successor = self._states.get((bits, switched)) or self._new_state(
            bits, switched, (*state.path, operator), solver
        )
        state.edges[command] = (feedback, successor)
        return feedback, successor

    def restore(self, solver: Solver, state: GameState) -> None:
        """Bring a solver into a state."""
        solver.begin(self.translation.sas)
        solver.repeat(state.path)

    def listed_facts(self, state: GameState) -> Iterator[Fact]:
        """The facts, with internal names."""
        return self._table.listed(state.bits)

    def facts_of(self, state: GameState) -> frozenset[str]:
        """The facts, with the names that the game shows: "inreceptacle(mug 1, shelf 2)"."""
        return frozenset(
            f"{name}({', '.join(self._shown_name(entity) for entity, _ in arguments)})"
            for name, arguments in self.listed_facts(state)
        )

    def _shown_name(self, entity: str) -> str:
        named = self._entities.get(entity)
        return entity if named is None else named.name.strip()

    def _new_state(self, bits: int, switched: tuple[int, ...], path: tuple[Operator, ...], solver: Solver) -> GameState:
        state = GameState(bits, switched, path, solver.is_won(), self._menu(bits, solver))
        self._states[bits, switched] = state
        return state

    def _menu(self, bits: int, solver: Solver) -> Menu:
        key = solver.applicable()
        # where commands are worded alike in every state, the same operators make the same menu
        cached = self._menus.get(key) if self._is_fixed else None
        if cached is not None:
            return cached
        operators: dict[str, Operator] = {}
        names: set[str] = set()
        for operator in solver.operators(len(key) // _ID_BYTES):
            if operator.name not in names:
                names.add(operator.name)
                operators.setdefault(self._command(operator, bits), operator)
        menu = Menu(tuple(sorted(operators)), operators)
        if self._is_fixed:
            self._menus[key] = menu
        return menu

    def _command(self, operator: Operator, bits: int) -> str:
        cached = self._commands.get(operator.name) if self._is_fixed else None
        if cached is not None:
            return cached
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
        binding = self._bindings.get(operator.name)
        if binding is None:
            action, *arguments = operator.name.split()
            parameters = self.translation.parameters[action]
            binding = self._bindings[operator.name] = {
                (parameter.name, parameter.type): (argument, parameter.type)
                for parameter, argument in zip(parameters, arguments, strict=False)
            }
        return binding


def _read_phrases(game: Game) -> tuple[Phrasebook, str]:
    """The parsed grammar and the text that is put in for its goal."""
    grammar = engine_parts().grammar if game.grammar is None else game.grammar
    # a plain goal is put into the finished opening, so that all games share one parsed grammar
    if _PLAIN_GOAL.fullmatch(game.goal):
        return read_grammar(grammar), game.goal
    return read_grammar(grammar.replace(GOAL_SLOT, game.goal)), GOAL_SLOT


def _is_fixed(template: tuple[Piece, ...], translation: Translation) -> bool:
    """True if the wording of an action's command cannot change while a game is played."""
    queries = [piece.condition for piece in template if isinstance(piece, Repetition) and piece.condition is not None]
    return all(name not in translation.fluents for query in queries for name, _ in query.predicates)


@dataclass(frozen=True, slots=True)
class Position:
    """The state of one attempt at a game. Immutable: any number of attempts may continue from it."""

    observation: str
    """The engine's last reply; at the start the room and the task."""
    state: GameState
    game: LoadedGame

    @property
    def won(self) -> bool:
        """True where the goal holds."""
        return self.state.is_won

    @property
    def admissible(self) -> tuple[str, ...]:
        """The commands that do something here, sorted."""
        return self.state.menu.admissible

    def allows(self, command: str) -> bool:
        """True if the command does something here."""
        return command in self.state.menu.operators

    @property
    def facts(self) -> frozenset[str]:
        """What holds, in the names that the game shows: "inreceptacle(mug 1, shelf 2)".

        A predicate that an action has made false is there as "not_..."; what was never true is not there at all.
        """
        return self.game.facts_of(self.state)


@dataclass(slots=True)
class _SolverSlot:
    """A solver and its position."""

    solver: Solver
    game: LoadedGame | None = None
    state: GameState | None = None


class Engine:
    """Plays games."""

    def __init__(self, *, memory_mib: int = 1024, n_solvers: int = 2) -> None:
        """An engine without games.

        memory_mib: approximate limit of all cached games and turns. n_solvers: states held at once; each costs some
        33 MB of disk, and saves under a millisecond where attempts at few games alternate.
        """
        self._limit = memory_mib * _MIB
        self._games: OrderedDict[Game, LoadedGame] = OrderedDict()
        self._n_bytes: dict[Game, int] = {}
        self._total = 0
        self._slots: list[_SolverSlot] = []
        self._n_solvers = n_solvers
        self.n_played = 0
        """Turns that were not in the cache."""

    def start(self, game: Game) -> Position:
        """The initial position of a game. Raises GameBroken for one that cannot be played."""
        loaded = self._games.get(game)
        if loaded is None:
            slot = self._least_recent_slot()
            slot.game = slot.state = None  # the solver is in no known state, also if loading raises
            loaded = LoadedGame(game, slot.solver)
            slot.game, slot.state = loaded, loaded.first
            self._games[game] = loaded
        self._games.move_to_end(game)
        self._account_for(game, loaded)
        return Position(loaded.opening, loaded.first, loaded)

    def move(self, position: Position, command: str) -> Position:
        """Carry out a command; one that is not possible leaves everything as it is."""
        game, state, command = position.game, position.state, command.strip()
        edge = state.edges.get(command)
        if edge is None:
            if not position.allows(command):
                return Position(NOTHING_HAPPENS, state, game)
            slot = self._slot_at(game, state)
            slot.state = None  # as long as the solver is between two states, also if it raises
            edge = game.carry_out(state, command, slot.solver)
            slot.state = edge[1]
            self.n_played += 1
        observation, successor = edge
        return Position(observation, successor, game)

    def _slot_at(self, game: LoadedGame, state: GameState) -> _SolverSlot:
        slot = next(
            (candidate for candidate in self._slots if candidate.game is game and candidate.state is state), None
        )
        if slot is not None:
            self._slots.remove(slot)
            self._slots.append(slot)
            return slot
        slot = self._least_recent_slot()
        slot.game = slot.state = None
        game.restore(slot.solver, state)
        slot.game = game
        return slot

    def _least_recent_slot(self) -> _SolverSlot:
        """The solver that was used least recently, or a new one while there may be more."""
        slot = _SolverSlot(Solver()) if len(self._slots) < self._n_solvers else self._slots.pop(0)
        self._slots.append(slot)
        return slot

    def _account_for(self, game: Game, loaded: LoadedGame) -> None:
        """Update the memory of a game, and drop the least recently started ones while the total exceeds the limit."""
        # counted when a game starts, so what its attempts have added since then is in it, too
        self._total += loaded.n_bytes - self._n_bytes.get(game, 0)
        self._n_bytes[game] = loaded.n_bytes
        while self._total > self._limit and len(self._games) > 1:
            oldest, _ = self._games.popitem(last=False)
            self._total -= self._n_bytes.pop(oldest)


@cache
def shared_engine() -> Engine:
    """The engine of this process."""
    return Engine()
