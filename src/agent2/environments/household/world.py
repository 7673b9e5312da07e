"""The household environment: one game, played by text commands until it is won.

    chat   the opening is one user message, an action is a bare command, an observation the game's reply
    react  as published for ALFWorld: an action is a line, with or without "> "; "think: ..." is answered "OK."

An action is its first line, stripped, in lower case. Foolish actions (empty, too long, impossible here) are answered
"Nothing happens." and counted; they never raise.

The world can fail on purpose, so that recovery can be measured (`HouseholdFaults`). At most one command of an episode
is broken; which one, and how, comes from the episode's seed alone, so that two checkpoints that are compared get the
same faults and a replay gets them again. Only commands that are possible at the time count.

    timeout            the command was not carried out; the same command works when it is repeated
    permission_denied  the command is denied until the player has said `look`; others work
    empty_result       the command is carried out, and the reply is empty

A fault is recovered when the broken command is carried out after all; after an empty reply, by any further command.

Promises: single use; same item, seed and actions give the same observations and state; what is scored comes from the
engine's facts. Does NOT score, and does NOT end an episode at the turn cap: the caller stops there.
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

NAME = "household"
VERSION = "1.0"
MAX_ACTION_CHARS = 200
"""Longer actions are not commands."""
ADMISSIBLE_MARK = "\nYou can: "
"""Between an observation and the list of admissible commands, where they are shown."""
OBSERVATION_SLOT = "{observation}"
"""Placeholder of the game's opening in an item's own opening messages."""
THOUGHT_REPLY = "OK."
MAX_FACTS = 40
"""In a state."""
_BANNER = re.compile(r"\A-= Welcome to TextWorld, ALFRED! =-\s*")
_GOAL_TYPE = re.compile(r"\b(\w+type)\b")
_IRRELEVANT_FACTS = ("checked(", "not_", "new-axiom@")
"""Prefixes of facts that do not concern a goal."""
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
"""The reply to a broken command."""


@dataclass(frozen=True, slots=True)
class HouseholdFaults:
    """How often and how commands are broken."""

    # field names are in the digest that the environment version carries
    rate: float = 0.0
    """Share of episodes with a broken command, 0 to 1."""
    kinds: tuple[HouseholdFaultKind, ...] = tuple(HouseholdFaultKind)
    """Drawn uniformly."""
    n_positions: int = 4
    """The broken command is one of the first `n_positions` possible ones; an episode may end before it."""

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
class FaultInjector:
    """Breaks the planned command of one episode, and records its repair."""

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
        """1 once the fault was recovered, else 0."""
        return int(self.event is not None and self.event["recovered"] is not None)

    def fault_for(self, command: str, turn: int = 0) -> HouseholdFaultKind | None:
        """The fault of a possible command; None: it is carried out, and recorded if it recovers an earlier fault."""
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


def plan_injector(seed: int, settings: HouseholdFaults) -> FaultInjector:
    """The fault of the episode with this seed."""
    rng = np.random.default_rng(derive_seed("household faults", seed))
    if rng.random() >= settings.rate:
        return FaultInjector(None, 0)
    return FaultInjector(
        settings.kinds[int(rng.integers(len(settings.kinds)))], int(rng.integers(settings.n_positions))
    )


class ActionProtocol(StrEnum):
    """How actions and observations are written."""

    CHAT = "chat"
    REACT = "react"


@dataclass(frozen=True, slots=True)
class HouseholdSettings:
    """How games are played."""

    # field names are in the digest that the environment version carries
    show_admissible: bool = False
    """True: every observation ends with the commands that are possible."""
    faults: HouseholdFaults = field(default_factory=HouseholdFaults)
    protocol: ActionProtocol = ActionProtocol.CHAT
    max_turns: int = 50
    """Actions per game; the caller stops there or before."""

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
    """Counts of an episode so far."""

    n_turns: int = 0
    n_invalid: int = 0
    n_thoughts: int = 0
    n_asked: int = 0


class HouseholdWorld:
    """Plays one item."""

    def __init__(self, settings: HouseholdSettings, engine: Engine | None = None) -> None:
        """A world for one episode. engine: None: the shared one of this process."""
        self._settings = settings
        self._engine = engine
        self._position: Position | None = None
        self._game: Game | None = None
        self._seed = 0
        self._faults = FaultInjector(None, 0)
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
        self._position = self._engine_in_use().start(self._game)
        self._seed = seed
        self._faults = plan_injector(seed, self._settings.faults)
        opening = _BANNER.sub("", self._position.observation)
        if self._settings.protocol is ActionProtocol.REACT:
            # as in the published ReAct prompt
            opening = opening.replace("\n\n", "\n")
        text = self._observe(opening)
        opening_messages = item.payload.get("opening")
        if opening_messages is None:
            return [Message("user", text)]
        return [
            Message(str(message["role"]), str(message["content"]).replace(OBSERVATION_SLOT, text))
            for message in opening_messages
        ]

    def act(self, action: str) -> Step:
        """Carry out one action. Raises EnvironmentFailed before reset, after the end and beyond the turn cap."""
        position = self._position_in_play()
        if self._counts.n_turns >= self._settings.max_turns:
            raise EnvironmentFailed(
                f"household world: turn {self._counts.n_turns + 1} is beyond the cap of {self._settings.max_turns}; "
                "stop there, or raise max_turns in its settings"
            )
        self._counts.n_turns += 1
        command = command_of(action, self._settings.protocol)
        if self._settings.protocol is ActionProtocol.REACT and command.startswith("think:"):
            self._counts.n_thoughts += 1
            return Step(self._observe(THOUGHT_REPLY), done=False)
        if not command or len(command) > MAX_ACTION_CHARS or not position.allows(command):
            self._counts.n_invalid += 1
            return Step(self._observe(NOTHING_HAPPENS), done=False)
        fault = self._faults.fault_for(command, self._counts.n_turns - 1)
        # an empty reply hides a command that was carried out; the other faults keep it from being so
        if fault in (None, HouseholdFaultKind.EMPTY_RESULT):
            self._position = position = self._engine_in_use().move(position, command)
        reply = position.observation if fault is None else REPLIES[fault]
        return Step(self._observe(reply), done=position.won)

    def state(self) -> Mapping[str, JsonValue]:
        """What scorers read: `won`, `task_type`, counts, `goal_facts` of what the goal names; `answer` is None.

        `injected_faults` is there where a command was broken.
        """
        position, event = self._position, self._faults.event
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
            "n_faults": self._faults.n_faults,
            "n_recovered": self._faults.n_recovered,
            "goal_facts": [] if position is None or self._game is None else goal_facts(self._game, position),
        }

    def ask_expert(self) -> str:
        """The next command of an expert that has read what the player has. Raises EnvironmentFailed unless in play."""
        self._position_in_play()
        if self._expert is None:
            self._expert = SearchExpert(derive_seed("household expert", self._seed))
        for text in self._unread:
            self._expert.read(text)
        self._unread.clear()
        self._counts.n_asked += 1
        return self._expert.next_command()

    def admissible(self) -> tuple[str, ...]:
        """The commands that are possible now, for random players and diagnostics. Raises EnvironmentFailed."""
        return self._position_in_play().admissible

    def _position_in_play(self) -> Position:
        if self._position is None or self._position.won:
            raise EnvironmentFailed(
                f"household world is {'not started' if self._position is None else 'over'}; call reset on a fresh one"
            )
        return self._position

    def _engine_in_use(self) -> Engine:
        return shared_engine() if self._engine is None else self._engine

    def _observe(self, text: str) -> str:
        """The observation for the player, which the expert will read, too."""
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
    """The facts about objects that the goal names, at most `MAX_FACTS`, sorted: "inreceptacle(mug 1, shelf 2)"."""
    goal = game.problem.lower().rpartition("(:goal")[2]
    goal_types = {
        goal_type for goal_type in _GOAL_TYPE.findall(goal) if goal_type not in ("objecttype", "receptacletype")
    }
    facts = position.facts
    objects = {
        fact.removeprefix("objecttype(").rsplit(", ", 1)[0]
        for fact in facts
        if fact.startswith("objecttype(") and fact[:-1].rsplit(", ", 1)[1] in goal_types
    }
    relevant = [
        fact
        for fact in facts
        if not fact.startswith(_IRRELEVANT_FACTS)
        and fact.split("(", 1)[0] in ("inreceptacle", "holds", "isclean", "ishot", "iscool", "ison", "istoggled")
        and objects & set(fact[:-1].split("(", 1)[1].split(", "))
    ]
    return sorted(relevant)[:MAX_FACTS]
