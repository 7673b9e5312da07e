"""Records of `agent2 scale`: what a recorded pipeline does on one base model."""

from dataclasses import dataclass
from enum import StrEnum

from agent2.stats.estimates import Estimate, PairedDifference


class ScaleVerdict(StrEnum):
    """What a pipeline does on one base model."""

    WORKS = "works"
    """Its gain over this base is shown."""
    NOT_SHOWN = "no gain shown"
    """It made a checkpoint of its own, and the gain is within noise."""
    WORSE = "makes it worse"
    FAILS = "fails"
    """It made nothing that could be scored, or nothing better than the base on public items."""
    REFUSED = "refused"
    """The model cannot be played here; nothing was run."""
    LOST = "not measured"
    """The harness or the machine failed, or the result does not count."""


@dataclass(frozen=True, slots=True)
class ScaleRow:
    """One base model."""

    model: str
    """As it was named."""
    verdict: ScaleVerdict
    reason: str
    """One sentence."""
    is_recorded: bool = False
    """The recorded trial itself."""
    trial: str | None = None
    """Id; None: none was run."""
    n_weights: int | None = None
    architecture: str = ""
    differences: tuple[str, ...] = ()
    """What is not as in the recorded base besides the size."""
    base: Estimate | None = None
    final: Estimate | None = None
    gain: PairedDifference | None = None
    """Final minus base on private items."""
    noise: float | None = None
    """Half-width of the noise band of this base."""
    minutes: float | None = None
    """Wall clock of the agent's phase."""
    cpu_minutes: float | None = None
    """Of all programs of the agent."""
    peak_bytes: int | None = None
    """Largest resident memory of one process of the agent; None: not recorded."""
