"""The environment: one household game, played by text commands until it is won.

    chat   the opening is one user message, an action is a bare command, an observation what the game says
    react  as published for ALFWorld: an action is a line, with or without "> "; "think: ..." is answered "OK."

An action is its first line without outer blanks, in lower case. Foolish actions (empty, too long, impossible here) are
answered "Nothing happens." and counted; they never raise.

The world can misbehave on purpose, so that recovery can be measured (`HouseholdFaults`). At most one command of an
episode is broken; which one, and how, comes from the episode's seed alone, so that two checkpoints that are compared
meet the same faults and a replay meets them again. Only commands that are possible where they are given count.

    timeout            the command was not carried out; the same command works when it is repeated
    permission_denied  the command is denied until the player has said `look`; others work
    empty_result       the command is carried out, and the reply is empty

Recovered means: the broken command was carried out after all; after an empty reply, any further command was.

Promises: single use; same item, seed and actions give the same observations and state; what is scored comes from the
engine's facts. Does NOT judge, and does NOT end an episode at the turn cap: whoever plays it does.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum

import numpy as np

from agent2.environments.faults import STATE_KEY
from agent2.environments.household.engine import NOTHING_HAPPENS, Engine, Position, shared_engine
from agent2.environments.household.expert import SearchExpert
from agent2.environments.household.game import Game
from agent2.errors import ConfigError, EnvironmentFailed
from agent2.records import Item, JsonValue, Message, Step, derive_seed, digest_of

LOOK = "look"
"""The command that ends a denial; it is never broken itself."""


class HouseholdFaultKind(StrEnum):
    """The ways in which a command is made to fail."""

    TIMEOUT = "timeout"
    PERMISSION_DENIED = "permission_denied"
    EMPTY_RESULT = "empty_result"


REPLIES = {
    HouseholdFaultKind.TIMEOUT: "Timeout: the command was not carried out.",
    HouseholdFaultKind.PERMISSION_DENIED: "Permission denied: look around first.",
    HouseholdFaultKind.EMPTY_RESULT: "",
}
"""What a player reads instead of the game's reply."""


@dataclass(frozen=True, slots=True)
class HouseholdFaults:
    """How often and how commands are broken."""

    rate: float = 0.0
    """Share of episodes with a broken command, 0 to 1."""
    kinds: tuple[HouseholdFaultKind, ...] = tuple(HouseholdFaultKind)
    """Drawn from evenly."""
    n_positions: int = 4
    """The broken command is one of the first so many possible ones; an episode may end before it."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a rate that is not a share or nothing to draw from."""
        if not 0 <= self.rate <= 1:
            raise ConfigError(f"household faults: rate is {self.rate}, a share of episodes is between 0 and 1")
        if not self.kinds or self.n_positions < 1:
            raise ConfigError(
                f"household faults: {len(self.kinds)} kinds and {self.n_positions} positions leave nothing to draw "
                "from; name at least one of each"
            )


@dataclass(slots=True)
class Breaker:
    """Breaks the planned command of one episode."""

    kind: HouseholdFaultKind | None
    """None: everything works."""
    position: int
    n_seen: int = 0
    """Possible commands so far."""
    broken: str | None = None
    """The command that was broken and not yet carried out."""
    is_denied: bool = False
    n_faults: int = 0
    """Replies that were broken."""
    event: dict[str, JsonValue] | None = None
    """The fault as `environments.faults` reads it back."""

    @property
    def n_recovered(self) -> int:
        """1 once the broken command was made good."""
        return int(self.event is not None and self.event["recovered"] is not None)

    def meet(self, command: str, turn: int = 0) -> HouseholdFaultKind | None:
        """What happens to a possible command; None: it goes through, and what it makes good is recorded."""
        if command == LOOK:
            self.is_denied = False
        elif self.kind is not None and self.n_seen == self.position and self.broken is None and not self.n_faults:
            self.broken = command
            self.is_denied = self.kind is HouseholdFaultKind.PERMISSION_DENIED
            self.n_faults += 1
            self.event = {"turn": turn, "kind": str(self.kind), "command": command, "recovered": None}
            return self.kind
        elif self.is_denied and command == self.broken:
            self.n_faults += 1
            return self.kind
        else:
            self.n_seen += 1
        is_good = self.kind is HouseholdFaultKind.EMPTY_RESULT or command == self.broken
        if self.broken is not None and self.event is not None and is_good:
            self.broken, self.event["recovered"] = None, turn
        return None


def plan_faults(seed: int, settings: HouseholdFaults) -> Breaker:
    """What goes wrong in the episode with this seed."""
    rng = np.random.default_rng(derive_seed("household faults", seed))
    if rng.random() >= settings.rate:
        return Breaker(None, 0)
    return Breaker(settings.kinds[int(rng.integers(len(settings.kinds)))], int(rng.integers(settings.n_positions)))


NAME = "household"
VERSION = "1.0"

MAX_ACTION_CHARS = 200
"""Longer actions are not commands."""
ADMISSIBLE_MARK = "\nYou can: "
"""Between an observation and the list of admissible commands, where they are shown."""
OBSERVATION_SLOT = "{observation}"
"""Where an item's own opening messages take the game's opening."""
THOUGHT_REPLY = "OK."
MAX_FACTS = 40
"""Most facts that a state lists."""
_BANNER = re.compile(r"\A-= Welcome to TextWorld, ALFRED! =-\s*")
_GOAL_TYPE = re.compile(r"\b(\w+type)\b")
_SILENT = ("checked(", "not_", "new-axiom@")
"""Beginnings of facts that say nothing about a goal."""


class ActionProtocol(StrEnum):
    """How actions and observations are written."""

    CHAT = "chat"
    REACT = "react"


@dataclass(frozen=True, slots=True)
class HouseholdSettings:
    """How games are played."""

    show_admissible: bool = False
    """True: every observation ends with the commands that are possible."""
    faults: HouseholdFaults = field(default_factory=HouseholdFaults)
    protocol: ActionProtocol = ActionProtocol.CHAT
    max_turns: int = 50
    """Most actions that are taken; whoever plays stops there or before."""

    def __post_init__(self) -> None:
        """Raises ConfigError without room for a single turn."""
        if self.max_turns < 1:
            raise ConfigError(f"household settings: max_turns is {self.max_turns}; a game needs at least 1 turn")

    def as_protocol(self) -> dict[str, JsonValue]:
        """The settings as plain data for `EvaluationProtocol.tools`; `max_turns` is a field of its own there."""
        return {
            "show_admissible": self.show_admissible,
            "fault_rate": self.faults.rate,
            "fault_kinds": [str(kind) for kind in self.faults.kinds],
            "protocol": str(self.protocol),
        }

    @property
    def digest(self) -> str:
        """Eight characters; equal exactly when all settings are."""
        return digest_of(asdict(self))[:8]


@dataclass(slots=True)
class _Counts:
    """What happened so far."""

    n_turns: int = 0
    n_invalid: int = 0
    n_thoughts: int = 0
    n_asked: int = 0


class HouseholdWorld:
    """Plays one item."""

    def __init__(self, settings: HouseholdSettings, engine: Engine | None = None) -> None:
        """A world for one episode. engine: None: the one that this process shares."""
        self._settings = settings
        self._engine = engine
        self._position: Position | None = None
        self._game: Game | None = None
        self._seed = 0
        self._breaker = Breaker(None, 0)
        self._counts = _Counts()
        self._expert: SearchExpert | None = None
        self._unread: list[str] = []
        """Observations that the expert has not read yet."""

    @property
    def max_turns(self) -> int:
        """Most actions that are taken; one more raises."""
        return self._settings.max_turns

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The opening of the item's game; the seed decides on faults.

        Raises EnvironmentFailed when reused, GameBroken for a game that cannot be played.
        """
        if self._position is not None:
            raise EnvironmentFailed(f"household world was already used and cannot play {item.id!r}; make a fresh one")
        self._game = Game.from_payload(item.payload.get("game"))
        self._position = self._its_engine().start(self._game)
        self._seed = seed
        self._breaker = plan_faults(seed, self._settings.faults)
        opening = _BANNER.sub("", self._position.observation)
        if self._settings.protocol is ActionProtocol.REACT:
            opening = opening.replace("\n\n", "\n")
        text = self._told(opening)
        given = item.payload.get("opening")
        if given is None:
            return [Message("user", text)]
        return [Message(str(each["role"]), str(each["content"]).replace(OBSERVATION_SLOT, text)) for each in given]

    def act(self, action: str) -> Step:
        """Carry out one action. Raises EnvironmentFailed before reset, after the end and beyond the turn cap."""
        position = self._playing()
        if self._counts.n_turns >= self._settings.max_turns:
            raise EnvironmentFailed(
                f"household world: turn {self._counts.n_turns + 1} is beyond the cap of {self._settings.max_turns}; "
                "stop there, or raise max_turns in its settings"
            )
        self._counts.n_turns += 1
        command = command_of(action, self._settings.protocol)
        if self._settings.protocol is ActionProtocol.REACT and command.startswith("think:"):
            self._counts.n_thoughts += 1
            return Step(self._told(THOUGHT_REPLY), done=False)
        if not command or len(command) > MAX_ACTION_CHARS or not position.allows(command):
            self._counts.n_invalid += 1
            return Step(self._told(NOTHING_HAPPENS), done=False)
        fault = self._breaker.meet(command, self._counts.n_turns - 1)
        if fault in (None, HouseholdFaultKind.EMPTY_RESULT):
            self._position = position = self._its_engine().move(position, command)
        reply = position.observation if fault is None else REPLIES[fault]
        return Step(self._told(reply), done=position.won)

    def state(self) -> Mapping[str, JsonValue]:
        """What scorers read: `won`, `task_type`, counts, `goal_facts` of what the goal names; `answer` is None.

        `injected_faults` is there where a command was broken.
        """
        position, event = self._position, self._breaker.event
        recorded = {} if event is None else {STATE_KEY: [dict(event)]}
        return {
            **recorded,
            "answer": None,
            "won": position is not None and position.won,
            "task_type": None if self._game is None else self._game.task_type,
            "n_turns": self._counts.n_turns,
            "n_invalid": self._counts.n_invalid,
            "n_thoughts": self._counts.n_thoughts,
            "n_asked": self._counts.n_asked,
            "n_faults": self._breaker.n_faults,
            "n_recovered": self._breaker.n_recovered,
            "goal_facts": [] if position is None or self._game is None else goal_facts(self._game, position),
        }

    def ask_expert(self) -> str:
        """What an expert would do now who has read no more than the player. Raises EnvironmentFailed unless in play."""
        self._playing()
        if self._expert is None:
            self._expert = SearchExpert(derive_seed("household expert", self._seed))
        for text in self._unread:
            self._expert.read(text)
        self._unread.clear()
        self._counts.n_asked += 1
        return self._expert.next_command()

    def admissible(self) -> tuple[str, ...]:
        """The commands that are possible now, for random players and diagnostics. Raises EnvironmentFailed."""
        return self._playing().admissible

    def _playing(self) -> Position:
        if self._position is None or self._position.won:
            raise EnvironmentFailed(
                f"household world is {'not begun' if self._position is None else 'over'}; call reset on a fresh one"
            )
        return self._position

    def _its_engine(self) -> Engine:
        return shared_engine() if self._engine is None else self._engine

    def _told(self, text: str) -> str:
        """An observation as the player reads it."""
        self._unread.append(text)
        if not self._settings.show_admissible or self._position is None:
            return text
        return f"{text}{ADMISSIBLE_MARK}{', '.join(self._position.admissible)}"


def command_of(action: str, protocol: ActionProtocol) -> str:
    """The command of an action: its first line, trimmed, in lower case; for `react` without the "> " before it."""
    line = action.strip().split("\n", 1)[0]
    if protocol is ActionProtocol.REACT:
        line = line.lstrip("> \t")
    return line.strip().lower()


def goal_facts(game: Game, position: Position) -> list[str]:
    """What holds of the things that the goal names, at most `MAX_FACTS`, sorted: "inreceptacle(mug 1, shelf 2)"."""
    goal = game.problem.lower().rpartition("(:goal")[2]
    kinds = {found for found in _GOAL_TYPE.findall(goal) if found not in ("objecttype", "receptacletype")}
    facts = position.facts
    things = {
        fact.removeprefix("objecttype(").rsplit(", ", 1)[0]
        for fact in facts
        if fact.startswith("objecttype(") and fact[:-1].rsplit(", ", 1)[1] in kinds
    }
    about = [
        fact
        for fact in facts
        if not fact.startswith(_SILENT)
        and fact.split("(", 1)[0] in ("inreceptacle", "holds", "isclean", "ishot", "iscool", "ison", "istoggled")
        and things & set(fact[:-1].split("(", 1)[1].split(", "))
    ]
    return sorted(about)[:MAX_FACTS]
