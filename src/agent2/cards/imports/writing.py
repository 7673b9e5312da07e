"""What every import shares: the card that foreign rollouts are written to.

Promises: nothing is made up. What the foreign log does not state and our header needs is listed in the card's lock
under `assumed`; a sample without a verdict is a missing score with the reason that the log gives.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent2.cards.card import CardHeader, CardSummary, ReportingRule
from agent2.cards.writer import CardWriter
from agent2.errors import ConfigError
from agent2.records import (
    EvaluationProtocol,
    JsonValue,
    SamplingSettings,
    ScoredRollout,
    Split,
    digest_of,
)

UNKNOWN = "unknown"


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
    """What else the log says of its circumstances."""
    assumed: Sequence[str] = field(default_factory=tuple)
    """What the log does not state."""


def write_foreign(log: ForeignLog, out: Path, split: Split) -> CardSummary:
    """Write the card of a foreign log. Raises CardError if `out` holds a card, ConfigError for an empty log."""
    if not log.rollouts:
        raise ConfigError(f"{log.harness} log of {log.task}: contains no samples; log them (lm-eval: --log_samples)")
    with CardWriter(out, _header(log, split)) as writer:
        for record in log.rollouts:
            writer.append(record)
        return writer.close()


def finite_or_none(value: float) -> float | None:
    """The value as it was logged; None (missing) for NaN and infinities, which say that nothing could be computed."""
    return float(value) if math.isfinite(value) else None


def unit_score(value: float, metric: str, where: str) -> float:
    """The value, if it is a score. Raises ConfigError for one outside 0 to 1."""
    if not 0.0 <= value <= 1.0:
        raise ConfigError(
            f"{where}: metric {metric!r} is {value:g}, scores are between 0 and 1; choose another --metric"
        )
    return value


def _header(log: ForeignLog, split: Split) -> CardHeader:
    temperature, top_p, max_tokens = (log.settings.get(name) for name in ("temperature", "top_p", "max_tokens"))
    sampling = SamplingSettings(
        temperature=float(temperature) if temperature is not None else 1.0,
        top_p=float(top_p) if top_p is not None else 1.0,
        max_tokens=int(max_tokens) if max_tokens is not None else 0,
    )
    assumed = [*log.assumed]
    assumed += ["temperature and top_p: 1.0, the providers' default"] if temperature is None and top_p is None else []
    assumed += ["max_tokens: 0 stands for not stated"] if max_tokens is None else []
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
    )
    return CardHeader(
        checkpoint_name=log.model,
        checkpoint_digest=f"{UNKNOWN}: the log names the model only",
        protocol=protocol,
        reporting=ReportingRule(),
        lock={"imported_from": log.harness, "assumed": assumed, **log.lock},
        created_at=time.time(),
        planned_rollouts=len(log.rollouts),
    )
