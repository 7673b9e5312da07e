"""Does training train at all? A single-turn task first, for a minute, before a multi-turn run is paid for.

A few answers are imitated until the loss has had time to fall. A pipeline that cannot do that (labels off by one, a
template that hides the answer, frozen weights, a learning rate of nothing) will not do better on episodes, only take
longer to show it. What sampler and trainer have to agree on is another check: `consistency`.

Promises: the checkpoint stays as it is. A fallen loss does NOT say that a model will generalise.
"""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent2.training.running import LogLine
from agent2.training.sft import SftSettings, train_sft

ENDS = 3
"""Steps at either end whose median loss is compared."""
LEAST_FALL = 0.2
"""Share of the loss that has to go."""
SETTINGS = SftSettings(epochs=10, batch_size=8, warmup_steps=2, log_every_steps=1)


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a short training showed."""

    steps: int
    loss_first: float
    """Nats a learned token, median of the first steps."""
    loss_last: float

    @property
    def problem(self) -> str:
        """One sentence if the loss did not fall enough; empty: go ahead."""
        if self.loss_last <= (1 - LEAST_FALL) * self.loss_first:
            return ""
        return (
            f"the loss went from {self.loss_first:.3g} to {self.loss_last:.3g} in {self.steps} steps on a task of one "
            f"turn, at least {LEAST_FALL:.0%} have to go: look at labels, template, learning rate and frozen weights"
        )


def preflight(model_path: Path, rows: Sequence[Mapping[str, str]], settings: SftSettings = SETTINGS) -> Preflight:
    """Imitate a few answers and watch the loss.

    rows: {"prompt", "answer"}, some tens of them. settings: needs a log for each of at least six steps. Raises
    ConfigError if there are no rows or one lacks a field.
    """
    losses: list[float] = []

    def noted(line: LogLine) -> None:
        losses.append(float(line["loss"]))

    with tempfile.TemporaryDirectory() as folder:
        report = train_sft(model_path, rows, Path(folder) / "model", settings, noted)
    return Preflight(report.steps, statistics.median(losses[:ENDS]), statistics.median(losses[-ENDS:]))
