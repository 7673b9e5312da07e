"""Plays one side of an evaluation: a plan with a finished card, or one kept from before, loads no model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from agent2.errors import Agent2Error
from agent2.evaluation.lost_rollouts import count_lost, play_lost
from agent2.evaluation.plan import EvaluationPlan
from agent2.evaluation.runner import GIVE_UP_AFTER, evaluate, finished_summary
from agent2.evaluation.scoring import Progress
from agent2.evaluation.side_store import is_kept, keep, take_stored
from agent2.models.sources import CheckpointSource
from agent2.records import JsonValue, Sampler


class SuiteProgress(Protocol):
    """Called with the progress of an evaluation."""

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        """The present phase; done and total in rollouts."""


class PlaysElsewhere(Protocol):
    """Plays a plan without a sampler in this process (`evaluation.parts`)."""

    def play(self, plan: EvaluationPlan, source: CheckpointSource, card: Path, on_progress: Progress) -> None:
        """Leave the finished card of a plan."""

    def describe(self) -> str:
        """Where it plays."""


class LazySampler:
    """A sampler that is opened when it is first needed, so that a finished side loads no model."""

    def __init__(self, source: CheckpointSource, player: PlaysElsewhere | None = None) -> None:
        """player: plays what is not played yet, in place of the sampler."""
        self.source = source
        self.player = player
        self.sampler: Sampler | None = None

    def get(self) -> Sampler:
        """The sampler, opened once."""
        if self.sampler is None:
            self.sampler = self.source.open()
        return self.sampler


@contextmanager
def lazy_sampler(
    source: CheckpointSource, opened: dict[str, JsonValue], side: str, player: PlaysElsewhere | None = None
) -> Iterator[LazySampler]:
    """A lazy sampler that is closed at the end; its description goes to `opened`."""
    lazy = LazySampler(source, player)
    try:
        yield lazy
    finally:
        if player is not None:
            opened[side] = {"played_in": player.describe()}
        if lazy.sampler is not None:
            opened[side] = lazy.sampler.describe()
            lazy.sampler.close()


def play_side(
    plan: EvaluationPlan,
    sampler: "LazySampler",
    card: Path,
    message: str,
    progress: SuiteProgress,
    *,
    uses_kept: bool,
) -> bool:
    """Leave the finished card of a plan; returns whether a kept card of an earlier evaluation was used."""
    n_rollouts = len(plan.items) * plan.protocol().attempts
    n_lost = count_lost(card)  # first: it also undoes a replacement of the card that was killed
    if finished_summary(plan, card) is not None:
        if n_lost:
            _play_lost(plan, sampler, card, f"{message}, {n_lost} lost rollouts again", progress)
        progress(message, n_rollouts, n_rollouts)
        return False
    uses_kept = uses_kept and is_kept(sampler.source)
    if uses_kept and take_stored(plan, card):
        progress(f"{message}: played before", n_rollouts, n_rollouts)
        return True
    progress(message)
    if sampler.player is not None:
        sampler.player.play(plan, sampler.source, card, lambda done, total: progress(message, done, total))
    else:
        evaluate(
            plan, sampler.get(), card, lambda done, total: progress(message, done, total), give_up_after=GIVE_UP_AFTER
        )
    if uses_kept:
        keep(plan, card)
    return False


def _play_lost(plan: EvaluationPlan, sampler: "LazySampler", card: Path, message: str, progress: SuiteProgress) -> None:
    """Play what was lost; where that fails again, the finished card stays as it is and its outcome is read."""
    progress(message)
    try:
        play_lost(
            plan, sampler.get(), card, lambda done, total: progress(message, done, total), give_up_after=GIVE_UP_AFTER
        )
    except Agent2Error as error:  # recorded by the missing scores on the card, which say why in the report
        progress(f"{message}, not possible now: {error}")
