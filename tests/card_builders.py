"""Small scored rollouts and card headers for tests."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from agent2.cards.aggregate import summarize
from agent2.cards.card import CardHeader, CardSummary, ReportingRule
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


def flat_summary(summary: CardSummary) -> dict[str, Any]:
    """A summary as formats 1 to 3 wrote it: the fields of its score among the totals."""
    stored = msgspec.to_builtins(summary)
    score = stored.pop("score") or {"value": None, "low": None, "high": None, "method": "no item has a score"}
    ends = {name: score[name] for name in ("value", "low", "high", "method")}
    return {**ends, "n_items": summary.n_items, **stored}


def write_old_card(
    path: Path, records: Sequence[ScoredRollout], form: int = 2, header: CardHeader | None = None
) -> Path:
    """A closed card of format 1 or 2: zstd frames of lines in the order given, 512 rollouts each."""
    header = header or make_header()
    content = msgspec.to_builtins(header)
    summary = flat_summary(summarize(records, header.reporting))
    parts = {"items.json": msgspec.json.encode(summary["item_scores"]) + b"\n", "drops.jsonl": b""}
    for drop in summary["drops"]:
        parts["drops.jsonl"] += msgspec.json.encode(drop) + b"\n"
    if form == 2:
        summary |= {"items_missing": [], "item_scores": {}, "drops": []}
    else:
        parts = {}
        for name in ("time_cap", "empty", "truncated", "environment_fault"):
            del content["reporting"][name]
    path.mkdir(parents=True)
    data, frames = b"", []
    for start in range(0, len(records), 512):
        lines = [msgspec.json.encode(record) + b"\n" for record in records[start : start + 512]]
        packed = zstandard.ZstdCompressor().compress(b"".join(lines))
        place = {"offset": len(data), "n_bytes": len(packed), "n_rollouts": len(lines)}
        frames.append(place | {"sha256": hashlib.sha256(packed).hexdigest()})
        data += packed
    (path / "rollouts.jsonl.zst").write_bytes(data)
    for name, part in parts.items():
        (path / name).write_bytes(part)
    card = {
        "format": form,
        "state": "closed",
        "header": content,
        "header_digest": hashlib.sha256(msgspec.json.encode(content)).hexdigest(),
        "protocol_digest": header.protocol.digest,
        "summary": summary,
        "frames": frames,
        "wall_clock_s": 1.0,
        "notes": [],
    }
    digests = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}
    (path / "card.json").write_text(json.dumps(card | ({"parts": digests} if form == 2 else {})))
    return path
