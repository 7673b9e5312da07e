"""One evaluation that another harness logged, in our records, and its card."""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent2.cards.card import IMPORTED, CardHeader, CardSummary, ReportingRule
from agent2.cards.writer import CardWriter
from agent2.errors import ConfigError, Fault
from agent2.llm.thoughts import AUTO
from agent2.records import (
    EvaluationProtocol,
    JsonValue,
    Message,
    Rollout,
    RolloutStatus,
    SamplingSettings,
    Score,
    ScoredRollout,
    Split,
    Usage,
    digest_of,
)

UNKNOWN = "unknown"
OUTSIDE = "outside 0 to 1"
MAX_OUTSIDE = 0.1
"""Up to this share of scores outside 0 to 1, they are missing; above it, the metric is refused as one of another scale.
"""
UNMETERED = Usage(None, None)
"""Of a log that states no tokens."""
OPTIONS = "options"
"""Key of a rollout's state, and of an item's payload: the options of a question."""
UNSCORED = "unscored"
"""Scorer of a log that names none."""


@dataclass(frozen=True, slots=True)
class ForeignLog:
    """One evaluation that another harness logged, in our records."""

    harness: str
    """Name and version, "inspect-ai 0.3.285"."""
    task: str
    model: str
    scorer: str
    """Name of the metric that became the score."""
    questions: Sequence[tuple[str, str]]
    """(item id, prompt and target) of every item, for the digest of the items."""
    rollouts: Sequence[ScoredRollout]
    settings: Mapping[str, JsonValue]
    """Generation settings as logged; part of the protocol, so that other settings are incomparable."""
    attempts: int
    lock: Mapping[str, JsonValue]
    """Further facts that the log states about its run."""
    assumed: Sequence[str] = field(default_factory=tuple)
    """What the log does not state."""


def write_foreign(log: ForeignLog, out: Path, split: Split) -> CardSummary:
    """Write the card of a foreign log.

    Raises CardError if `out` holds a card, ConfigError for an empty log or a metric that is not on a scale of 0 to 1.
    """
    if not log.rollouts:
        raise ConfigError(f"{log.harness} log of {log.task}: contains no samples; log them (lm-eval: --log_samples)")
    _require_single_rows(log)
    _require_unit_scale(log)
    with CardWriter(out, _header(log, split)) as writer:
        for record in log.rollouts:
            writer.append(record)
        return writer.close()


def finite_or_none(value: float) -> float | None:
    """The value as it was logged; None (missing) for NaN and infinities, which say that nothing could be computed."""
    return float(value) if math.isfinite(value) else None


def logged_score(
    value: float, metric: str, reason: str, views: Mapping[str, float | None], extracted: str | None = None
) -> Score:
    """A score as it was logged; a missing one, with its reason, for a value outside 0 to 1."""
    if not 0.0 <= value <= 1.0:
        return Score(None, f"{metric} is {value:g}, {OUTSIDE}", Fault.JUDGE, views, extracted=extracted)
    return Score(value, reason, None, views, extracted=extracted)


def stated_score(values: Mapping[str, float | None], metric: str, reason: str, extracted: str | None = None) -> Score:
    """The score of a rollout by the metric that counts, its other metrics as views; missing if the log states none."""
    views = {name: None if value is None else finite_or_none(value) for name, value in values.items() if name != metric}
    value = values.get(metric)
    if value is None:
        return Score(None, f"the log states no {metric}", Fault.JUDGE, views, extracted=extracted)
    if not math.isfinite(value):
        return Score(None, f"{metric} is {value}, not a number from 0 to 1", Fault.JUDGE, views, extracted=extracted)
    return logged_score(value, metric, reason, views, extracted)


def lost_rollout(
    item_id: str, attempt: int, reason: str, prompt: Sequence[Message] = (), fault: Fault = Fault.INFRASTRUCTURE
) -> ScoredRollout:
    """A rollout of which nothing is left but why; its score is missing."""
    rollout = Rollout(
        item_id=item_id,
        attempt=attempt,
        seed=0,
        status=RolloutStatus.FAILED,
        prompt=prompt,
        turns=(),
        answer=None,
        state={},
        usage=UNMETERED,
        fault=fault,
        reason=reason,
    )
    return ScoredRollout(rollout, Score(None, reason, fault))


def _require_single_rows(log: ForeignLog) -> None:
    """Refuse a log that has an attempt at an item twice."""
    counts = Counter((record.rollout.item_id, record.rollout.attempt) for record in log.rollouts)
    doubled = [f"{item_id} attempt {attempt}" for (item_id, attempt), n in counts.items() if n > 1]
    if doubled:
        listed = ", ".join(doubled[:5]) + (", ..." if len(doubled) > 5 else "")
        raise ConfigError(
            f"{log.harness} log of {log.task}: {len(doubled)} attempts are in it more than once ({listed}); remove the "
            "rows that are double"
        )


def _require_unit_scale(log: ForeignLog) -> None:
    """Refuse a metric of another scale, of which some values are between 0 and 1 by chance."""
    outside = [
        record for record in log.rollouts if record.score.value is None and record.score.reason.endswith(OUTSIDE)
    ]
    n_scored = len(outside) + sum(record.score.value is not None for record in log.rollouts)
    if len(outside) > MAX_OUTSIDE * n_scored:
        first = "; ".join(f"{record.rollout.item_id}: {record.score.reason}" for record in outside[:5])
        others = sorted({name for record in log.rollouts for name in record.score.views})
        raise ConfigError(
            f"{log.harness} log of {log.task}: {len(outside)} of {n_scored} scores are {OUTSIDE} ({first}); choose "
            f"another --metric{': ' + ', '.join(others) if others else ''}"
        )


def _header(log: ForeignLog, split: Split) -> CardHeader:
    temperature, top_p, max_tokens = (_setting(log, name) for name in ("temperature", "top_p", "max_tokens"))
    sampling = SamplingSettings(
        temperature=temperature if temperature is not None else 1.0,
        top_p=top_p if top_p is not None else 1.0,
        max_tokens=int(max_tokens) if max_tokens is not None else 0,
    )
    assumed = [*log.assumed]
    assumed += ["temperature and top_p: 1.0, the providers' default"] if temperature is None and top_p is None else []
    assumed += ["max_tokens: 0 means not stated"] if max_tokens is None else []
    protocol = EvaluationProtocol(
        benchmark=log.task,
        split=split,
        items_digest=digest_of(sorted(log.questions)),
        sampling=sampling,
        attempts=log.attempts,
        max_turns=max((len(record.rollout.turns) for record in log.rollouts), default=0),
        environment=log.harness,
        scorer=log.scorer,
        dtype=UNKNOWN,
        chat_template_digest=UNKNOWN,
        tools={"logged_settings": dict(log.settings)},
        thinking=AUTO,
    )
    return CardHeader(
        checkpoint_name=log.model,
        checkpoint_digest=f"{UNKNOWN}: the log names the model only",
        protocol=protocol,
        reporting=ReportingRule(),
        lock={IMPORTED: log.harness, "assumed": assumed, **log.lock},
        created_at=time.time(),
        planned_rollouts=len(log.rollouts),
    )


def _setting(log: ForeignLog, name: str) -> float | None:
    """A generation setting; None if it is not stated, or not as a number."""
    value = log.settings.get(name)
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def options_in_state(choices: object) -> dict[str, list[str]]:
    """Options of a question as part of a rollout's state, for a scorer that judges again; empty: it has none."""
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) for choice in choices):
        return {}
    return {OPTIONS: choices}
