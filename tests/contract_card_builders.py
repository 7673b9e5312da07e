"""Cards of two checkpoints for tests of evidence and comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from agent2.cards.writer import CardWriter
from agent2.errors import Fault
from agent2.records import RolloutStatus, Score, ScoredRollout, Usage
from card_builders import make_header, make_record


def make_scored(
    item: str,
    value: float | None = 1.0,
    views: Mapping[str, float | None] | None = None,
    labels: Sequence[str] = (),
    tokens: int | None = 5,
    **fields: Any,
) -> ScoredRollout:
    """A scored rollout with views, labels and a number of completion tokens."""
    record = make_record(item, value, **fields)
    score = Score(record.score.value, record.score.reason, record.score.fault, dict(views or {}), tuple(labels))
    return ScoredRollout(structs.replace(record.rollout, usage=Usage(10, tokens, 0.5)), score)


def make_lost(item: str, fault: Fault = Fault.INFRASTRUCTURE) -> ScoredRollout:
    """A rollout that somebody other than the model broke."""
    return make_record(item, None, status=RolloutStatus.FAILED, fault=fault)


def write_card(
    path: Path, records: Sequence[ScoredRollout], checkpoint: str = "base", benchmark: str = "fake-v1", **protocol: Any
) -> Path:
    """A finished card."""
    header = make_header(checkpoint_name=checkpoint)
    changed = replace(header.protocol, benchmark=benchmark, **protocol)
    with CardWriter(path, replace(header, protocol=changed)) as writer:
        for record in records:
            writer.append(record)
        writer.close()
    return path


def verdicts(pattern: str) -> list[ScoredRollout]:
    """One item a letter: 1 solved, 0 not, - no score (judge)."""
    values = {"1": 1.0, "0": 0.0, "-": None}
    return [
        make_scored(f"item-{place:03d}", values[letter], text=f"answer {letter}")
        for place, letter in enumerate(pattern)
    ]
