"""What a reporting rule looks at in a rollout, and how it then counts.

Promises: one rollout at a time and a million at once give the same answer; what nobody but the rule decides is
decided here and nowhere else. `marks_of` gives one byte a rollout; a fault of the model or of the environment is
marked alone, because a rollout that did not come to its end has no other properties worth a rule.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from agent2.cards.card import Counting, ReportingRule
from agent2.errors import Fault
from agent2.records import Rollout, RolloutStatus, ScoredRollout, StopReason

KINDS = ("turn_cap", "time_cap", "empty", "truncated", "environment_fault", "model_fault")
"""Fields of a reporting rule, one bit of a mark each, the first one lowest."""
TURN_CAP, TIME_CAP, EMPTY, TRUNCATED, ENVIRONMENT_FAULT, MODEL_FAULT = (1 << place for place in range(len(KINDS)))
FAULTED = ENVIRONMENT_FAULT | MODEL_FAULT

_OF_FAULT = {Fault.ENVIRONMENT: ENVIRONMENT_FAULT, Fault.MODEL: MODEL_FAULT}
_OF_STATUS = {RolloutStatus.TURN_CAP: TURN_CAP, RolloutStatus.TIME_CAP: TIME_CAP}


def marks_of(rollout: Rollout) -> int:
    """The kinds that apply to a rollout, as bits."""
    if rollout.fault is not None:
        return _OF_FAULT.get(rollout.fault, 0)
    marks = _OF_STATUS.get(rollout.status, 0)
    turns = rollout.turns
    if all(not turn.action or turn.action.isspace() for turn in turns):
        marks |= EMPTY
    if turns and turns[-1].stop_reason is StopReason.LENGTH:
        marks |= TRUNCATED
    return marks


def kinds_of(marks: int) -> list[str]:
    """The names behind the bits."""
    return [kind for place, kind in enumerate(KINDS) if marks >> place & 1]


def counted_value(record: ScoredRollout, rule: ReportingRule) -> float | None:
    """What a rollout contributes to its item under the rule; None: its score is missing.

    A score that could not be produced stays missing under any rule, unless the model is to blame or the rule holds
    a world's crash against it.
    """
    value = record.score.value
    marks = marks_of(record.rollout)
    if not marks:
        return value
    zero, missing = _masks(rule)
    if marks & missing:
        return None
    if marks & zero and (value is not None or marks & FAULTED):
        return 0.0
    return value


def counted_values(values: NDArray[np.float64], marks: NDArray[np.uint8], rule: ReportingRule) -> NDArray[np.float64]:
    """The same for many rollouts; NaN stands for a missing score."""
    zero, missing = _masks(rule)
    counted = values.copy()
    has_value = ~np.isnan(values) | ((marks & FAULTED) != 0)
    counted[((marks & zero) != 0) & has_value] = 0.0
    counted[(marks & missing) != 0] = np.nan
    return counted


def counting_of(marks: int, rule: ReportingRule) -> Counting:
    """What the rule says about a rollout with these marks."""
    zero, missing = _masks(rule)
    return Counting.MISSING if marks & missing else Counting.ZERO if marks & zero else Counting.AS_SCORED


@lru_cache(maxsize=32)
def _masks(rule: ReportingRule) -> tuple[int, int]:
    """Marks that count as 0, and marks that are left out."""
    said = [getattr(rule, kind) for kind in KINDS]
    zero, missing = (
        sum(1 << place for place, counting in enumerate(said) if counting is wanted)
        for wanted in (Counting.ZERO, Counting.MISSING)
    )
    return zero, missing
