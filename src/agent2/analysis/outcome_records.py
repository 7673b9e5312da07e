"""Records of an evaluation's outcome, which `analysis.outcome` reads from its cards."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent2.analysis.behaviour import CardBehaviour
from agent2.analysis.failures import FailureReport
from agent2.analysis.process import ProcessReport
from agent2.analysis.regress import ChangedItem
from agent2.cards.card import CardSummary
from agent2.contract.findings import Decision
from agent2.contract.metrics import Evidence
from agent2.contract.suite import Suite
from agent2.evaluation.suite_folder import Identity
from agent2.records import EvaluationProtocol
from agent2.stats.attempts import BestOfN, CostPerPoint, PassMetrics
from agent2.stats.estimates import Estimate


@dataclass(frozen=True, slots=True)
class AttemptMetrics:
    """Several attempts of one checkpoint on one benchmark."""

    k: int
    passes: PassMetrics | None
    majority: Estimate | None
    best: BestOfN | None
    cost: CostPerPoint | None
    """Of pass@k over pass@1, tokens and scorings."""
    gaps: tuple[str, ...]
    """Why something is None, one sentence each."""


@dataclass(frozen=True, slots=True)
class BenchmarkOutcome:
    """One benchmark on both sides."""

    name: str
    cards: Mapping[str, str]
    """Side -> folder of its card, below the evaluation's."""
    protocols: Mapping[str, EvaluationProtocol]
    summaries: Mapping[str, CardSummary]
    attempts: Mapping[str, AttemptMetrics]
    """Empty with one attempt an item."""
    lost: tuple[ChangedItem, ...]
    """Items that the baseline solved and the checkpoint does not."""
    won: tuple[ChangedItem, ...]
    unknown: tuple[ChangedItem, ...]
    """Items that the baseline solved and for which the checkpoint has no score."""
    both_failed: tuple[ChangedItem, ...]
    """Items that neither side solves."""
    process: Mapping[str, ProcessReport]
    """Side -> how it worked; empty where every rollout is one message."""
    behaviour: CardBehaviour | None
    """What changed in the answers; None: the protocols of the two sides differ."""
    texts: Mapping[str, "ItemText"]
    """Of the items that a report lists and those of the examples of bad cases; empty where the items are hidden."""


@dataclass(frozen=True, slots=True)
class ItemText:
    """A visible item's question, and the answers to it."""

    question: str
    """The messages that the model was shown; with their roles where there are several."""
    last_message: str
    """The last of them, after instructions and examples."""
    reference: str | None
    """None: the item has no reference answer, or none was kept."""
    answers: Mapping[str, Mapping[int, str]]
    """Side -> attempt -> answer."""


@dataclass(frozen=True, slots=True)
class BadcaseExample:
    """Where a bad case can be looked at."""

    benchmark: str
    item_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class SuiteOutcome:
    """Everything that a report says."""

    suite: Suite
    identity: Identity
    evidence: Evidence
    decision: Decision
    benchmarks: tuple[BenchmarkOutcome, ...]
    skipped: tuple[str, ...]
    """One sentence for each benchmark that was not played."""
    examples: Mapping[str, tuple[BadcaseExample, ...]]
    """Class of bad cases -> rollouts of the checkpoint that show it."""
    failures: FailureReport
    """Of the checkpoint."""
    warnings: tuple[str, ...] = ()
    """What makes the numbers doubtful though the evaluation is complete, one sentence each."""
