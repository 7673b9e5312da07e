"""Faults in any world, and what became of them: the five kinds of the tool world around worlds that know none.

`FaultyWorld` breaks at most one action of an episode, by the episode's seed alone (`tools.world.plan_fault`), so that
the same items with and without faults can be paired. A tool world breaks its own calls; around any other world each
action counts as a call:

    timeout, empty_result, schema_error   the action is not carried out, once; the reply says what happened
    permission_denied                     this command (its first word) is denied until `login` is said
    truncated_result                      the action is carried out, and the first half of the reply arrives

An action that ends the episode cannot be cut, so a truncation planned for it does not happen.

`fault_events` reads the faults of a rollout back: from tool worlds, from this wrapper, and from household games. It is
*recovered* when the same call later succeeds (in an empty household reply: when any command follows); otherwise it was
*given up* (no further call), *not recovered*, or *cut off*: the episode was over before the model could answer it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from agent2.environments.household.world import LOOK, REPLIES, HouseholdFaultKind
from agent2.environments.tools.world import (
    CUT,
    LOGIN,
    FaultSettings,
    PlannedFault,
    ToolFaultKind,
    ToolWorld,
    plan_fault,
)
from agent2.errors import ConfigError
from agent2.records import Environment, Item, JsonValue, Message, Rollout, RolloutStatus, Step

ALL_FAULTS = FaultSettings(1.0, tuple(ToolFaultKind), n_positions=3)
"""In every episode one of the first three calls meets one of the five kinds."""
SPARE_CALLS = 3
"""Calls and turns more than without faults, so that a repetition does not cost the end of the episode."""
STATE_KEY = "injected_faults"
_PASSED_ON = frozenset({"ask_expert", "admissible", "max_turns", "offered_tools"})


class FaultyWorld:
    """Any world, with one broken action."""

    def __init__(self, world: Environment, settings: FaultSettings) -> None:
        """Raises ConfigError for a world that is played in another process: its actions do not pass here."""
        if hasattr(world, "begin_act"):
            raise ConfigError(f"{type(world).__name__} is played in another process; break its calls there")
        self._world, self._settings = world, settings
        self._fault: PlannedFault | None = None
        self._n_seen = self._turn = 0
        self._denied: str | None = None
        self._events: list[dict[str, JsonValue]] = []

    def __getattr__(self, name: str) -> Any:
        """What players may ask of a world; nothing else of it can be reached."""
        if name in _PASSED_ON:
            return getattr(self._world, name)
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def reset(self, item: Item, seed: int) -> Sequence[Message]:
        """The world's opening; the seed decides on the fault. Raises EnvironmentFailed as the world does."""
        self._fault = plan_fault(seed, self._settings)
        return self._world.reset(item, seed)

    def act(self, action: str) -> Step:
        """The world's reply, or what a fault makes of it. Raises EnvironmentFailed as the world does."""
        turn, self._turn = self._turn, self._turn + 1
        command = command_of(action)
        if command == LOGIN and self._settings.rate > 0:
            self._denied = None
            return Step("ok", done=False)
        position, self._n_seen = self._n_seen, self._n_seen + 1
        kind = self._fault.kind if self._fault is not None and position == self._fault.position else None
        if kind is None and self._denied == command:
            kind = ToolFaultKind.PERMISSION_DENIED
        if kind is None:
            return self._world.act(action)
        if kind is ToolFaultKind.TRUNCATED_RESULT:
            step = self._world.act(action)
            if step.done or not step.observation:
                return step
            half = step.observation[: (len(step.observation) + 1) // 2]
            step = Step(f"{half}{CUT}", done=False)
        else:
            self._denied = command if kind is ToolFaultKind.PERMISSION_DENIED else self._denied
            hint = f": say {LOGIN} first" if kind is ToolFaultKind.PERMISSION_DENIED else ""
            step = Step(f"error: {kind}{hint}", done=False)
        self._events.append({"turn": turn, "kind": str(kind), "command": command})
        return step

    def state(self) -> Mapping[str, JsonValue]:
        """The world's state, and `injected_faults`: {turn, kind, command} each."""
        return {**self._world.state(), STATE_KEY: list(self._events)}


def with_faults(world: Environment, settings: FaultSettings) -> Environment:
    """A world whose calls are broken by these settings, those of its own replaced; a rate of 0 breaks none."""
    if isinstance(world, ToolWorld):
        world.use_faults(settings, SPARE_CALLS if settings.rate > 0 else 0)
        return world
    return FaultyWorld(world, settings) if settings.rate > 0 else world


_COMMAND = re.compile(r"\s*(?:>\s*)?(\w+)")


def command_of(action: str) -> str:
    """The first word of an action's last line, in lower case: `search` of `search[lamp]`."""
    match = _COMMAND.match(action.strip().rpartition("\n")[2])
    return match[1].casefold() if match else ""


class FaultOutcome(StrEnum):
    """What became of a fault."""

    RECOVERED = "recovered"
    GAVE_UP = "gave_up"
    """No further call was made."""
    NOT_RECOVERED = "not_recovered"
    CUT_OFF = "cut_off"
    """The episode was over before the model could answer it."""


@dataclass(frozen=True, slots=True)
class FaultEvent:
    """One injected fault of a rollout."""

    kind: str
    turn: int
    """Number of the model's message that met it, from 0."""
    call: str
    """The tool, or the first word of the command."""
    outcome: FaultOutcome
    n_turns: int | None = None
    """Messages from the fault to the call that succeeded, 1 where the next one did; None: not recovered."""


@dataclass(slots=True)
class _Calls:
    """The calls of a rollout in one form: (turn, name, kind of injected fault or None, whether it succeeded)."""

    rows: list[tuple[int, str, str | None, bool]] = field(default_factory=list)
    any_will_do: frozenset[str] = frozenset()
    """Kinds after which any further call counts as recovery."""


def fault_events(rollout: Rollout) -> list[FaultEvent] | None:
    """The injected faults of a rollout, repeated denials as one; None for a world that records none."""
    calls = _calls_of(rollout)
    if calls is None:
        return None
    events: list[FaultEvent] = []
    last_turn = max([len(rollout.turns) - 1, *(row[0] for row in calls.rows)], default=0)
    denied: set[str] = set()
    for place, (turn, name, kind, _) in enumerate(calls.rows):
        if kind is None or (kind == ToolFaultKind.PERMISSION_DENIED and name in denied):
            continue
        denied |= {name} if kind == ToolFaultKind.PERMISSION_DENIED else set()
        later = [row for row in calls.rows[place + 1 :] if row[1] != LOGIN]
        good = [row for row in later if row[3] and (row[1] == name or kind in calls.any_will_do)]
        if good:
            events.append(FaultEvent(str(kind), turn, name, FaultOutcome.RECOVERED, good[0][0] - turn))
        elif turn >= last_turn:
            events.append(FaultEvent(str(kind), turn, name, FaultOutcome.CUT_OFF))
        else:
            is_capped = rollout.status is not RolloutStatus.COMPLETED
            ended = FaultOutcome.NOT_RECOVERED if later or is_capped else FaultOutcome.GAVE_UP
            events.append(FaultEvent(str(kind), turn, name, ended))
    return events


def _calls_of(rollout: Rollout) -> _Calls | None:
    state = rollout.state
    if isinstance(recorded := state.get("tool_calls"), list):
        return _Calls(
            [
                (int(one["turn"]), str(one["name"]), one["error"] if one["injected"] else None, one["error"] is None)
                for one in recorded
            ]
        )
    if isinstance(injected := state.get(STATE_KEY), list):
        kinds = {int(one["turn"]): str(one["kind"]) for one in injected}
        return _Calls(
            [
                (number, command_of(turn.action), kinds.get(number), number not in kinds)
                for number, turn in enumerate(rollout.turns)
            ]
        )
    if "n_faults" in state and "n_recovered" in state:
        return _household_calls(rollout)
    return None


def _household_calls(rollout: Rollout) -> _Calls:
    """Commands of a household game: each is a tool of its own, and an empty reply is made good by going on."""
    told = {text: kind for kind, text in REPLIES.items() if text}
    rows, left = [], int(rollout.state["n_faults"])
    for number, turn in enumerate(rollout.turns):
        seen = (turn.observation or "").partition("\nYou can: ")[0].strip()
        kind = told.get(seen)
        if kind is None and turn.observation is not None and not seen and left:
            kind = HouseholdFaultKind.EMPTY_RESULT
        name = turn.action.strip().partition("\n")[0].strip().removeprefix(">").strip().casefold()
        if kind is not None:
            left -= 1
        rows.append((number, LOGIN if name == LOOK else name, None if kind is None else str(kind), kind is None))
    return _Calls(rows, frozenset({str(HouseholdFaultKind.EMPTY_RESULT)}))


def settings_for(share: float, kinds: Sequence[ToolFaultKind] = tuple(ToolFaultKind)) -> FaultSettings:
    """Faults in this share of episodes. Raises ConfigError for one that is not between 0 and 1."""
    if not 0 <= share <= 1:
        raise ConfigError(f"faults: {share} is no share of episodes; give a number from 0 to 1")
    return replace(ALL_FAULTS, rate=share, kinds=tuple(kinds))
