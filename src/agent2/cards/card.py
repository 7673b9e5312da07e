"""The records of a rollout card: what its `card.json` holds.

A card's folder:

    card.json            header, state, summary, drops, frame index, notes; always replaced as a whole
    rollouts.jsonl       while open: one scored rollout a line, in the order in which they finished
    rollouts.jsonl.zst   when closed: the same lines in zstd frames; `zstdcat` reads it too

The header says under which protocol and reporting rule the numbers hold, so that a reader can compute them
again, or under another rule. `card.json` says which of the two files counts: a kill while closing can leave
the other one beside it. Does NOT protect against someone who rewrites data and digests together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from agent2.errors import Fault
from agent2.records import EvaluationProtocol, JsonValue, digest_of

FORMAT = 1


class Counting(StrEnum):
    """How one kind of rollout enters the mean."""

    AS_SCORED = "as_scored"
    ZERO = "zero"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class ReportingRule:
    """How rollouts become one number; data, so that another rule can be applied to the same card."""

    turn_cap: Counting = Counting.AS_SCORED
    """Rollouts that reached the turn cap."""
    model_fault: Counting = Counting.ZERO
    """Rollouts that the model itself broke. Every other fault is a missing score under any rule."""
    over_attempts: Literal["mean"] = "mean"
    """Several attempts at an item: the mean of those that have a score."""
    over_items: Literal["mean"] = "mean"
    """Items: the mean of those that have a score; the others are listed and never count as 0."""
    tool_errors_in_cost: bool | None = None
    """Whether tokens and seconds include failed tool calls; None: the benchmark has no tools."""
    confidence: float = 0.95
    """Of the interval: Wilson if every item's mean is 0 or 1, else percentile bootstrap over items."""
    n_replicates: int = 10_000
    """Of the bootstrap."""
    bootstrap_seed: int = 0


@dataclass(frozen=True, slots=True)
class CardHeader:
    """What was evaluated and how; written before the first rollout."""

    checkpoint_name: str
    checkpoint_digest: str
    protocol: EvaluationProtocol
    reporting: ReportingRule
    lock: Mapping[str, JsonValue]
    """Library versions, hardware, sampler: what a reader needs to do it again."""
    created_at: float
    """Unix seconds."""
    seed: int = 0
    """Seeds of attempts derive from it."""
    planned_rollouts: int | None = None
    """How many a complete card holds; None: not known beforehand."""

    def identity(self) -> str:
        """Digest of all that two writers of one card must agree on; lock and time may differ."""
        parts = [
            self.checkpoint_name,
            self.checkpoint_digest,
            self.protocol,
            self.reporting,
            self.seed,
            self.planned_rollouts,
        ]
        return digest_of(parts)


@dataclass(frozen=True, slots=True)
class Drop:
    """One rollout that failed, has no score, or is left out by the rule."""

    item_id: str
    attempt: int
    fault: Fault | None
    """None: nothing failed; the reporting rule leaves it out."""
    reason: str
    counted: Counting
    """MISSING, or ZERO where the rule holds it against the model."""


@dataclass(frozen=True, slots=True)
class CardSummary:
    """The numbers of a card; every one can be computed again from its rollouts."""

    value: float | None
    """Mean over attempts, then over items, 0 to 1; None: no item has a score."""
    low: float | None
    high: float | None
    method: str
    """How the interval was made."""
    n_items: int
    """Items that the mean is over."""
    n_rollouts: int
    n_missing: int
    """Rollouts without a score."""
    items_missing: Sequence[str]
    """Items none of whose attempts has a score; left out of the mean."""
    item_scores: Mapping[str, float | None]
    """By item id, in order of the ids."""
    faults: Mapping[str, int]
    """Rollouts by kind of fault, those that count against the model included."""
    n_turns: int
    """Model messages."""
    n_retries: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    """Sum over rollouts of their wall clock; they run side by side, so more than the evaluation took."""
    drops: Sequence[Drop]

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Frame:
    """One independently readable piece of the closed rollouts file."""

    offset: int
    """Of its first byte."""
    n_bytes: int
    n_rollouts: int
    sha256: str
    """Of the compressed bytes."""


@dataclass(frozen=True, slots=True)
class CardFile:
    """All of `card.json`."""

    format: int
    state: Literal["open", "closed"]
    header: CardHeader
    header_digest: str
    protocol_digest: str
    summary: CardSummary | None = None
    """None while open."""
    frames: Sequence[Frame] = ()
    wall_clock_s: float = 0.0
    """From opening to closing, sessions that were resumed added up (those killed count for 0)."""
    notes: Sequence[str] = field(default_factory=tuple)
    """What happened to the card: torn lines cut, resumed under other libraries."""
