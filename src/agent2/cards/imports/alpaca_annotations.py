"""Annotations of AlpacaEval (`annotations.json`): which of two outputs an annotator prefers.

The score is the preference for the model's output (`output_2`) over the baseline's: `preference` minus 1, a draw (1.5,
in old files 0) is 0.5; the mean is AlpacaEval's win rate as a share, not controlled for length. A row without a
preference is missing, as AlpacaEval leaves it out. A file of several models or annotators is refused.
"""

import math
from collections import Counter
from typing import Any

import msgspec

from agent2.cards.imports.foreign_log import UNKNOWN, UNMETERED, ForeignLog, logged_score
from agent2.cards.imports.messages import turn_of
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource, require_metric, shaped
from agent2.errors import ConfigError, Fault
from agent2.records import Message, Rollout, RolloutStatus, Score, ScoredRollout

PREFERENCE = "preference"
OLD_DRAW = 0.0


class _Annotation(msgspec.Struct):
    instruction: str
    output_1: str
    output_2: str
    preference: float | None
    generator_1: str = UNKNOWN
    generator_2: str = UNKNOWN
    annotator: str = UNKNOWN
    dataset: str | None = None


def recognises(source: LogSource) -> bool:
    """Whether a source is a list of pairs of outputs with a preference."""
    rows = source.head
    first: Any = rows[0] if isinstance(rows, list) and rows else None
    return isinstance(first, dict) and {"instruction", "output_1", "output_2", PREFERENCE} <= first.keys()


def read(source: LogSource, choice: LogChoice = NO_CHOICE) -> ForeignLog:
    """The annotations in a file. Raises ConfigError for another layout, and for several models or annotators."""
    path = source.path
    require_metric(choice, [PREFERENCE], path)
    rows = shaped(source.document, list[_Annotation], str(path))
    if not rows:
        raise ConfigError(f"{path}: holds no annotations")
    for side in ("generator_1", "generator_2", "annotator"):
        names = list(dict.fromkeys(getattr(row, side) for row in rows))
        if len(names) > 1:
            raise ConfigError(f"{path}: has rows of {len(names)} {side}s ({', '.join(names[:5])}); keep those of one")
    counts = Counter((row.dataset, row.instruction) for row in rows)
    if doubled := [instruction for (_, instruction), n in counts.items() if n > 1]:
        raise ConfigError(f"{path}: instruction {doubled[0][:60]!r} is annotated more than once; remove the copies")
    first = rows[0]
    return ForeignLog(
        harness=f"alpaca_eval, annotator {first.annotator}",
        task=f"alpaca_eval-v{UNKNOWN}",
        model=first.generator_2,
        scorer=PREFERENCE,
        questions=[(f"{position:05}", row.instruction) for position, row in enumerate(rows)],
        rollouts=[_record(row, f"{position:05}") for position, row in enumerate(rows)],
        settings={},
        attempts=1,
        lock={"baseline": first.generator_1, "annotator": first.annotator},
        assumed=("seconds: 0, the file does not state them", "items: by their position in the file"),
    )


def _record(row: _Annotation, item_id: str) -> ScoredRollout:
    turn = turn_of(row.output_2)
    rollout = Rollout(
        item_id=item_id,
        attempt=0,
        seed=0,
        status=RolloutStatus.COMPLETED,
        prompt=[Message("user", row.instruction)],
        turns=[turn],
        answer=turn.action,
        state={"baseline_answer": row.output_1, "dataset": row.dataset},
        usage=UNMETERED,
    )
    return ScoredRollout(rollout, _score(row))


def _score(row: _Annotation) -> Score:
    if row.preference is None or not math.isfinite(row.preference):
        return Score(None, f"{row.annotator} gave no preference", Fault.JUDGE)
    preference = 1.5 if row.preference == OLD_DRAW else row.preference
    return logged_score(preference - 1, PREFERENCE, f"preference {row.preference:g} of {row.annotator}", {})
