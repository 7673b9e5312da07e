"""Tools that fail on purpose, by seed, so that recovery can be measured.

At most one call of an episode is broken. Which one, and how, comes from the episode's seed alone, so that two
checkpoints that are compared meet the same faults and a replay meets them again.

    timeout            the call was not carried out; the same call works when repeated
    permission_denied  every call of this tool is denied until `login` has been called
    empty_result       the tool answers with nothing, once
    schema_error       the tool's answer is not what its schema says, once
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from agent2.records import derive_seed


class FaultKind(StrEnum):
    """The ways in which a tool is made to fail; also kinds of tool errors."""

    TIMEOUT = "timeout"
    PERMISSION_DENIED = "permission_denied"
    EMPTY_RESULT = "empty_result"
    SCHEMA_ERROR = "schema_error"


LOGIN = "login"
"""The tool that ends a denial; it is never broken itself."""


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """How often and how tools are broken."""

    rate: float = 0.0
    """Share of episodes with a broken call, 0 to 1."""
    kinds: tuple[FaultKind, ...] = tuple(FaultKind)
    """Drawn from evenly."""
    n_positions: int = 2
    """The broken call is one of the first so many, drawn evenly; an episode may end before it."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """The call that will be broken."""

    kind: FaultKind
    position: int
    """Number of the call, from 0; `login` is not counted."""


def plan_fault(seed: int, settings: FaultSettings) -> PlannedFault | None:
    """The broken call of the episode with this seed, None if all tools work."""
    rng = np.random.default_rng(derive_seed("tool faults", seed))
    if rng.random() >= settings.rate:
        return None
    kinds: Sequence[FaultKind] = settings.kinds
    return PlannedFault(kinds[int(rng.integers(len(kinds)))], int(rng.integers(settings.n_positions)))
