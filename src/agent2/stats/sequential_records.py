"""The design of an AdaStop comparison and what it says: `agent2.stats.sequential` fills these records.

Promises: a design that cannot be is refused when it is made, before anything runs.
"""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What is known of a pair, seen from its first agent."""

    LARGER = "larger"
    SMALLER = "smaller"
    EQUAL = "equal"
    """Accepted early, or not told apart when the last interim was over."""
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class AdaStopSettings:
    """The design; must be fixed before the first score is seen."""

    n_seeds: int = 5
    """New seeds an agent at each interim."""
    n_interims: int = 5
    alpha: float = 0.05
    """Family-wise error, spent in equal parts over the interims."""
    beta: float = 0.0
    """Spent likewise on accepting pairs early; 0 never does. It costs power, never error."""
    max_permutations: int = 10_000

    def __post_init__(self) -> None:
        """Refuse a design that cannot be. Raises ValueError."""
        if self.n_seeds < 1 or self.n_interims < 1:
            raise ValueError(f"n_seeds={self.n_seeds} and n_interims={self.n_interims} must be at least 1")
        if not 0.0 < self.alpha < 1.0 or not 0.0 <= self.beta < 1.0:
            raise ValueError(f"alpha={self.alpha} and beta={self.beta} must be between 0 and 1")


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """One pair of agents."""

    agent_a: str
    agent_b: str
    verdict: Verdict
    delta: float
    """Mean of a - mean of b over the seeds seen when it was decided (or so far)."""
    n: int
    """Seeds of each agent behind it."""

    def __str__(self) -> str:
        return f"{self.agent_a} is {self.verdict} vs {self.agent_b} ({self.delta:+.4f}, n={self.n} seeds each)"


@dataclass(frozen=True, slots=True)
class AdaStopState:
    """What is known after an interim."""

    pairs: tuple[PairVerdict, ...]
    needs_seeds: tuple[str, ...]
    """Agents with an undecided pair; give each n_seeds more. Empty: stop."""
    interim: int
    settings: AdaStopSettings

    @property
    def is_decided(self) -> bool:
        """No more seeds are needed: every pair is decided, or one of its agents was withdrawn."""
        return not self.needs_seeds

    def __str__(self) -> str:
        differ = sum(pair.verdict in (Verdict.LARGER, Verdict.SMALLER) for pair in self.pairs)
        undecided = sum(pair.verdict is Verdict.UNDECIDED for pair in self.pairs)
        n_seeds = self.interim * self.settings.n_seeds
        need = f"; more seeds for {', '.join(self.needs_seeds)}" if self.needs_seeds else "; done"
        return (
            f"{differ} of {len(self.pairs)} pairs differ, {undecided} undecided (n={n_seeds} seeds each at most, "
            f"AdaStop, interim {self.interim} of {self.settings.n_interims}, family-wise error "
            f"{self.settings.alpha:g}){need}"
        )
