"""What a gate does when it fires: the vocabulary of the three outputs of a decision, kept apart.

Training may go on while a release is blocked, and the other way round; where the next data should come from is
a third question. Severities are ordered here and nowhere else.
"""

from enum import StrEnum

from pydantic import Field

from agent2.config import StrictModel


class TrainingAction(StrEnum):
    """May training go on? Later members are more severe; the most severe one that fired counts."""

    CONTINUE = "continue"
    PAUSE = "pause"
    PAUSE_HUMAN_REVIEW = "pause_human_review"
    ROLLBACK = "rollback"


TRAINING_SEVERITY: dict[TrainingAction, int] = {action: place for place, action in enumerate(TrainingAction)}

RELEASE = "release"
CANDIDATE = "candidate"
RESEARCH_ONLY = "research_only"
BLOCK_FOR = "block_for_"
"""Followed by the scope: `block_for_chart_tasks`."""
BLOCK = "block"
INSUFFICIENT = "insufficient"
NO_EFFECT = "none"
PASSES = frozenset({RELEASE, CANDIDATE})
"""The two release decisions that let a checkpoint through; every other one is a no."""

RELEASE_EFFECT = rf"^({NO_EFFECT}|{RESEARCH_ONLY}|{BLOCK}|{BLOCK_FOR}[a-z][a-z0-9_]*)$"


class Effects(StrictModel):
    """What follows when a gate fires."""

    training: TrainingAction = TrainingAction.CONTINUE
    release: str = Field(default=NO_EFFECT, pattern=RELEASE_EFFECT)
    """`none`, `research_only`, `block` or `block_for_<scope>`. `block` fired by a metric that has a scope becomes
    `block_for_<scope>`: only those tasks are concerned."""
    next_data: list[str] = Field(default_factory=list)
    """Where the next round's data or reward should be supplemented, one sentence each."""


def release_severity(decision: str) -> int:
    """Order of release decisions, 0 for `release`; higher is more severe. `insufficient` comes last: no verdict."""
    if decision.startswith(BLOCK_FOR):
        return 3
    order = {RELEASE: 0, CANDIDATE: 1, NO_EFFECT: 1, RESEARCH_ONLY: 2, BLOCK: 4, INSUFFICIENT: 5}
    return order[decision]
