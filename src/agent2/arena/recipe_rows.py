"""Records of `agent2 recipes compare`."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent2.stats.estimates import Estimate


@dataclass(frozen=True, slots=True)
class RecipeRun:
    """One finished run."""

    option: str
    seed: int
    recipe_digest: str
    base_digest: str
    """Of the base model's weights and the dev items."""
    base: float | None
    final: float | None
    """Mean scores on the dev items; None: the run failed."""
    dangers: tuple[str, ...]
    """Detectors of `agent2 monitor` that fired on the log of RL, in order."""
    seconds: float
    cpu_seconds: float
    updates: int
    """Optimiser steps of RL."""
    problem: str = ""

    @property
    def gain(self) -> float | None:
        """Final minus base."""
        return None if self.base is None or self.final is None else self.final - self.base


@dataclass(frozen=True, slots=True)
class OptionResult:
    """One option over its seeds."""

    option: str
    about: str
    claim: str
    gain: Estimate | None
    """Mean over seeds; None: no seed has one."""
    dangers: Mapping[str, int]
    """Detector -> seeds in which it fired."""
    minutes: float
    """Mean wall clock of a seed."""
    cpu_minutes: float
    runs: tuple[RecipeRun, ...]
