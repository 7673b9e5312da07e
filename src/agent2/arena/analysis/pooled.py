"""The records of a leaderboard's pool: trials with what is needed to compare them, and folders that are left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent2.arena.evidence import MarkState
from agent2.arena.sweep_records import SweepRow


@dataclass(frozen=True, slots=True)
class TrialConditions:
    """What must be equal for two trials to be comparable; digests, so that nothing hidden is shown."""

    task: str
    benchmark: str
    """Name and version."""
    items: str
    """Digests of all splits."""
    secret: str
    """Digest of the installation secret."""
    base_model: str
    """Digest of its weights."""
    protocol: str
    """Digest of how the private items are played; empty where the trial has no cards."""
    budget: str
    n_public: int = field(default=0, compare=False)
    """Items on which submissions are scored; follows from `items`."""
    n_private: int = field(default=0, compare=False)
    base_name: str = field(default="", compare=False)
    """Name of the base model, without its folder."""


@dataclass(frozen=True, slots=True)
class LeaderboardTrial:
    """One trial of the pool."""

    folder: str
    row: SweepRow
    marks: Sequence[str]
    """Reservations: not verified, audit not cleared, no sandbox, ...; empty for a plain trial."""
    is_verified: bool
    """Its cards are complete and give the scores that it reports."""
    is_counted: bool
    """It has a result that enters ranks and averages."""


@dataclass(frozen=True, slots=True)
class PooledTrial:
    """A trial with what is needed to compare it."""

    trial: LeaderboardTrial
    conditions: TrialConditions
    is_interactive: bool
    agent_digest: str
    identity: str
    """The same for two copies of one trial."""
    base: Mapping[str, float | None]
    """Item -> score of the base model on the private items; empty where that is not known."""
    final: Mapping[str, float | None]
    """Item -> score of the result: the base model's where that is the result by identity or rule; empty without one."""
    mark: MarkState = MarkState.NONE
    """What its mark says to this installation."""
    has_own_lock: bool = False
    """Its lock was made by this installation, by the lock's mark."""
    started_at: float = 0.0
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class ExcludedFolder:
    """A folder that is not on the board."""

    folder: str
    why: str
