"""A household that misbehaves on purpose, by seed, so that recovery can be measured.

At most one command of an episode is broken; which one, and how, comes from the episode's seed alone, so that two
checkpoints that are compared meet the same faults and a replay meets them again. Only commands that are possible
where they are given count; a foolish command is not broken.

    timeout            the command was not carried out; the same command works when it is repeated
    permission_denied  the command is denied until the player has said `look`; others work
    empty_result       the command is carried out, and the reply is empty

Recovered means: the broken command was carried out after all; after an empty reply, any further command was.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from agent2.errors import ConfigError
from agent2.records import derive_seed

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
    n_recovered: int = 0

    def meet(self, command: str) -> HouseholdFaultKind | None:
        """What happens to a possible command; None: it goes through, and what it makes good is counted."""
        if command == LOOK:
            self.is_denied = False
        elif self.kind is not None and self.n_seen == self.position and self.broken is None and not self.n_faults:
            self.broken = command
            self.is_denied = self.kind is HouseholdFaultKind.PERMISSION_DENIED
            self.n_faults += 1
            return self.kind
        elif self.is_denied and command == self.broken:
            self.n_faults += 1
            return self.kind
        else:
            self.n_seen += 1
        if self.broken is not None and (self.kind is HouseholdFaultKind.EMPTY_RESULT or command == self.broken):
            self.broken = None
            self.n_recovered = 1
        return None


def plan_faults(seed: int, settings: HouseholdFaults) -> Breaker:
    """What goes wrong in the episode with this seed."""
    rng = np.random.default_rng(derive_seed("household faults", seed))
    if rng.random() >= settings.rate:
        return Breaker(None, 0)
    return Breaker(settings.kinds[int(rng.integers(len(settings.kinds)))], int(rng.integers(settings.n_positions)))
