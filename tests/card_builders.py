"""Small scored rollouts and card headers for tests."""

from typing import Any

from agent2.cards.card import CardHeader, ReportingRule
from agent2.errors import Fault
from agent2.records import (
    EvaluationProtocol,
    Message,
    Rollout,
    RolloutStatus,
    SamplingSettings,
    Score,
    ScoredRollout,
    Split,
    StopReason,
    Turn,
    Usage,
)


def make_record(
    item: str = "item",
    value: float | None = 1.0,
    attempt: int = 0,
    status: RolloutStatus = RolloutStatus.COMPLETED,
    fault: Fault | None = None,
    text: str = "an answer",
) -> ScoredRollout:
    """A scored rollout of one turn; value None is a missing score with a judge fault unless `fault` says another."""
    rollout = Rollout(
        item_id=item,
        attempt=attempt,
        seed=attempt,
        status=status,
        prompt=[Message("user", f"question {item}")],
        turns=[Turn(text, None, StopReason.END, 10, 5)],
        answer=text,
        state={"answer": text},
        usage=Usage(10, 5, 0.5),
        fault=fault if status is RolloutStatus.FAILED else None,
    )
    missing_fault = (fault or Fault.JUDGE) if value is None else None
    return ScoredRollout(rollout, Score(value, "as the test says", missing_fault))


def make_header(**changes: Any) -> CardHeader:
    """The header of an evaluation that never was."""
    protocol = EvaluationProtocol(
        benchmark="fake-v1",
        split=Split.DEV,
        items_digest="i" * 64,
        sampling=SamplingSettings(),
        attempts=1,
        max_turns=1,
        environment="question-v1",
        scorer="fake-v1",
        dtype="float32",
        chat_template_digest="t" * 64,
    )
    values: dict[str, Any] = {
        "checkpoint_name": "base",
        "checkpoint_digest": "c" * 64,
        "protocol": protocol,
        "reporting": ReportingRule(n_replicates=200),
        "lock": {"numpy": "2"},
        "created_at": 1.0,
    }
    return CardHeader(**(values | changes))
