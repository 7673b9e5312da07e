"""What a recipe hands back."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TrainReport:
    """What a recipe did."""

    checkpoint: Path
    steps: int
    seconds: float
    """Loading and saving included, imports not."""
    log: Path
