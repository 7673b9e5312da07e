"""A rollout kept so that it can be played again, and the first place where the two differ.

Promises: a snapshot holds all that a replay needs (item, seed, settings, actions) and all that it is compared with
(opening, observations, final state); nothing else, no path and no time. It is plain data and goes through JSON.
Does NOT keep what the model saw beyond observations (context policies), nor log-probabilities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from agent2.environments.household.engine import Engine
from agent2.environments.household.world import HouseholdSettings, HouseholdWorld
from agent2.errors import ConfigError, EnvironmentFailed, shown
from agent2.records import Item, JsonValue, Message, Rollout, RolloutStatus, canonical_json


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One rollout as it was played."""

    item: Item
    seed: int
    settings: HouseholdSettings
    opening: tuple[Message, ...]
    actions: tuple[str, ...]
    observations: tuple[str | None, ...]
    """The reply to each action."""
    state: Mapping[str, JsonValue] | None
    """The final state, the verdict in it; None for a rollout that broke off."""

    def to_json(self) -> bytes:
        """The snapshot as JSON; equal snapshots give equal bytes."""
        return canonical_json(self)

    @classmethod
    def from_json(cls, data: bytes) -> "Snapshot":
        """Read one back. Raises ConfigError for anything else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(f"this is not a snapshot of a household rollout ({error}); take it again") from error


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay leaves what was recorded."""

    turn: int | None
    """Number of the turn, from 0; None: the opening or the final state."""
    what: str
    """"opening", "observation", "end" (it broke off or went on) or the name of a part of the state."""
    recorded: JsonValue
    replayed: JsonValue

    def __str__(self) -> str:
        where = "" if self.turn is None else f"turn {self.turn}: "
        return f"{where}{self.what} was {shown(self.recorded)}, the replay gives {shown(self.replayed)}"


def take_snapshot(item: Item, rollout: Rollout, settings: HouseholdSettings) -> Snapshot:
    """The snapshot of a rollout, from a card or as it was just played. Raises ConfigError if it is of another item."""
    if rollout.item_id != item.id:
        raise ConfigError(
            f"the rollout is of item {rollout.item_id!r}, not of {item.id!r}; give the item that was played"
        )
    return Snapshot(
        item=item,
        seed=rollout.seed,
        settings=settings,
        opening=tuple(rollout.prompt),
        actions=tuple(turn.action for turn in rollout.turns),
        observations=tuple(turn.observation for turn in rollout.turns),
        state=None if rollout.status is RolloutStatus.FAILED else dict(rollout.state),
    )


def replay(snapshot: Snapshot, engine: Engine | None = None) -> Difference | None:
    """Play a snapshot again; None: everything is as recorded. engine: None: the one that this process shares.

    Raises EnvironmentFailed if the game cannot be begun at all.
    """
    world = HouseholdWorld(snapshot.settings, engine)
    opening = tuple(world.reset(snapshot.item, snapshot.seed))
    if opening != snapshot.opening:
        return Difference(None, "opening", _texts(snapshot.opening), _texts(opening))
    for turn, (action, recorded) in enumerate(zip(snapshot.actions, snapshot.observations, strict=True)):
        try:
            replayed = world.act(action).observation
        except EnvironmentFailed as error:
            return Difference(turn, "end", recorded, str(error))
        if replayed != recorded:
            return Difference(turn, "observation", recorded, replayed)
    return _state_difference(snapshot.state, world.state())


def _state_difference(recorded: Mapping[str, JsonValue] | None, replayed: Mapping[str, JsonValue]) -> Difference | None:
    if recorded is None:
        return None
    for name in sorted({*recorded, *replayed}):
        if recorded.get(name) != replayed.get(name):
            return Difference(None, name, recorded.get(name), replayed.get(name))
    return None


def _texts(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages]
