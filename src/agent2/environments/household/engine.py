"""The ALFWorld text engine, with its parsing and every turn it has played kept in memory.

The world is fast-downward's: which actions are possible, what they change and whether the goal holds. The sentences
are textworld's grammar (`phrases`), the names alfworld's. What the stock engine repeats each time is done once:
a grammar is parsed once for all games, a problem translated once, and the same command in the same state of the same
game is played once, so that all attempts at a game share one graph of positions.

Promises: observations, admissible commands and wins are those of the stock engine, turn by turn (tested against it);
memory is bounded: the least recently begun games are forgotten. Does NOT plan, and is not thread-safe: one engine a
process (`shared_engine`); see `workers` for more than one process.
"""

from collections import OrderedDict
from dataclasses import dataclass
from functools import cache

from agent2.environments.household.game import Game
from agent2.environments.household.loaded import LoadedGame, Place
from agent2.environments.household.solver import Solver

NOTHING_HAPPENS = "Nothing happens."
"""What the engine says to a command that is not possible."""
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Position:
    """Where one attempt at a game stands. Immutable: any number of attempts may go on from it."""

    observation: str
    """What the engine said last; at the start the room and the task."""
    place: Place
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
    """A solver and what it stands at."""

    solver: Solver
    game: LoadedGame | None = None
    place: Place | None = None


class Engine:
    """Plays games."""

    def __init__(self, *, memory_mib: int = 256, n_solvers: int = 2) -> None:
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
        self.n_remembered = 0
        """Turns that were answered from memory."""

    @property
    def n_games(self) -> int:
        """Games that are remembered now."""
        return len(self._games)

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
        else:
            self.n_remembered += 1
        said, there = walked
        return Position(said, there, game)

    def _slot_at(self, game: LoadedGame, place: Place) -> _Slot:
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
