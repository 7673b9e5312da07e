"""Recovery from injected faults, over a card, and what faults cost: the transfer gap between two cards of one model.

Promises: a fault that the model had no turn left to answer (`cut_off`) is counted and left out of the recovery rate; a
missing score is left out and counted, never zero; the gap is paired item by item where both cards played the same
items, and split into items that met a fault and those that did not, which should show none.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent2.cards.card import CardHeader
from agent2.cards.reader import iter_rollouts
from agent2.environments.faults import FaultEvent, FaultOutcome, fault_events
from agent2.errors import ConfigError, NotEnoughData
from agent2.evaluation.rescoring import finished_header
from agent2.records import RolloutStatus
from agent2.stats.comparisons import paired_evidence
from agent2.stats.estimates import UNIT, Estimate, PairedDifference, measure_by_item


@dataclass(frozen=True, slots=True)
class FaultKindResult:
    """What became of the faults of one kind."""

    kind: str
    n: int
    n_recovered: int
    n_gave_up: int
    n_not_recovered: int
    n_cut_off: int
    turns: Estimate | None
    """Messages until the call succeeded, over recovered faults; None: none recovered."""
    score: Estimate | None
    """Of the rollouts that met one, over items; None: none has a score."""


@dataclass(frozen=True, slots=True)
class TransferGap:
    """Scores with faults minus scores without."""

    against: str
    """The other card."""
    n_faults_there: int
    """Faults that its rollouts met, too; the gap is that of all faults where there are none."""
    with_faults: Estimate | None
    without: Estimate | None
    change: PairedDifference | None
    """Over the items on both cards; None: they share none."""
    difference: Estimate | None
    """Of the two means, where the cards share no items."""
    on_met: PairedDifference | None
    """Over shared items that met a fault."""
    on_spared: PairedDifference | None
    """Over shared items that met none: noise, and what the setting changes apart from its faults."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Faults and recovery on one card."""

    card: str
    n_rollouts: int
    n_failed: int
    n_unrecorded: int
    """Rollouts of worlds that record no faults."""
    n_met: int
    """Rollouts that met a fault."""
    kinds: tuple[FaultKindResult, ...]
    recovery_rate: Estimate | None
    """Faults recovered over faults that could be answered; over items. None: there were none."""
    turns: Estimate | None
    score_met: Estimate | None
    score_spared: Estimate | None
    """Of rollouts without a fault; other items, so the difference is no gap."""
    gap: TransferGap | None = None


@dataclass(slots=True)
class _FaultRow:
    item: str
    score: float | None
    events: list[FaultEvent]


def recovery_of(card: Path, against: Path | None = None) -> RecoveryReport:
    """What became of the faults on a finished card, and the gap to a card of the same checkpoint.

    Raises CardError for a card that is open or damaged; ConfigError for a card whose worlds record no faults, and for
    cards of two checkpoints or splits.
    """
    header = finished_header(card)
    rows, n, n_failed, n_unrecorded = _rows(card)
    if not rows:
        raise ConfigError(
            f"{card}: its world ({header.protocol.environment}) records no faults; play a benchmark of a world with "
            "tools or commands, such as mini_apis, search or household, or NAME-faulty"
        )
    events = [(row.item, event) for row in rows for event in row.events]
    kinds = sorted({event.kind for _, event in events})
    gap = None if against is None else _gap(rows, header, card, against)
    return RecoveryReport(
        card=str(card),
        n_rollouts=n,
        n_failed=n_failed,
        n_unrecorded=n_unrecorded,
        n_met=sum(bool(row.events) for row in rows),
        kinds=tuple(_kind_result(kind, rows) for kind in kinds),
        recovery_rate=_rate(events),
        turns=_turns(events),
        score_met=_score(row for row in rows if row.events),
        score_spared=_score(row for row in rows if not row.events),
        gap=gap,
    )


def _rows(card: Path) -> tuple[list[_FaultRow], int, int, int]:
    """Rollouts with what they met, and how many there are, failed, and record nothing."""
    rows, n, n_failed, n_unrecorded = [], 0, 0, 0
    for record in iter_rollouts(card):
        n += 1
        if record.rollout.status is RolloutStatus.FAILED:
            n_failed += 1
        elif (events := fault_events(record.rollout)) is None:
            n_unrecorded += 1
        else:
            rows.append(_FaultRow(record.rollout.item_id, record.score.value, events))
    return rows, n, n_failed, n_unrecorded


def _kind_result(kind: str, rows: Sequence[_FaultRow]) -> FaultKindResult:
    own = [(row.item, event) for row in rows for event in row.events if event.kind == kind]

    def count(outcome: FaultOutcome) -> int:
        return sum(event.outcome is outcome for _, event in own)

    return FaultKindResult(
        kind,
        len(own),
        count(FaultOutcome.RECOVERED),
        count(FaultOutcome.GAVE_UP),
        count(FaultOutcome.NOT_RECOVERED),
        count(FaultOutcome.CUT_OFF),
        _turns(own),
        _score(row for row in rows if any(event.kind == kind for event in row.events)),
    )


def _rate(events: Sequence[tuple[str, FaultEvent]]) -> Estimate | None:
    own = [(item, event) for item, event in events if event.outcome is not FaultOutcome.CUT_OFF]
    values = [float(event.outcome is FaultOutcome.RECOVERED) for _, event in own]
    return _mean(values, [item for item, _ in own], "recovery_rate", is_share=True)


def _turns(events: Sequence[tuple[str, FaultEvent]]) -> Estimate | None:
    own = [(item, float(event.n_turns)) for item, event in events if event.n_turns is not None]
    return _mean([n for _, n in own], [item for item, _ in own], "turns to recovery", is_share=False)


def _score(rows: Iterable[_FaultRow]) -> Estimate | None:
    chosen = list(rows)
    return _mean([row.score for row in chosen], [row.item for row in chosen], "score", is_share=True)


def _mean(values: Sequence[float | None], items: Sequence[str], what: str, *, is_share: bool) -> Estimate | None:
    try:
        return measure_by_item(values, items, what, UNIT if is_share else None)
    except NotEnoughData:
        return None


def _plain_name(benchmark: str) -> str:
    """A benchmark's name without its version and without what says how its tools fail."""
    return re.sub(r"[-_](?:faulty|steady)$", "", benchmark.rpartition("-v")[0] or benchmark)


def _gap(rows: Sequence[_FaultRow], header: CardHeader, card: Path, against: Path) -> TransferGap:
    other = finished_header(against)
    if other.checkpoint_digest != header.checkpoint_digest:
        raise ConfigError(
            f"--against {against}: is of checkpoint {other.checkpoint_name}, and {card} of {header.checkpoint_name}; "
            "the gap is that of one checkpoint with and without faults"
        )
    if other.protocol.split != header.protocol.split:
        raise ConfigError(
            f"--against {against}: played {other.protocol.split.value}, and {card} {header.protocol.split.value}; play "
            "the same split"
        )
    if _plain_name(other.protocol.benchmark) != _plain_name(header.protocol.benchmark):
        raise ConfigError(
            f"--against {against}: is of {other.protocol.benchmark}, {card} of {header.protocol.benchmark}; the gap "
            "is between variants of one benchmark (NAME, NAME-faulty, NAME-steady)"
        )
    steady, n_faults = [], 0
    for record in iter_rollouts(against):
        if record.rollout.status is not RolloutStatus.FAILED:
            events = fault_events(record.rollout) or []
            n_faults += len(events)
            steady.append(_FaultRow(record.rollout.item_id, record.score.value, events))
    before, after = _by_item(steady), _by_item(rows)
    met = {row.item for row in rows if row.events}
    shared = before.keys() & after.keys()
    with_faults, without = _score(rows), _score(steady)
    return TransferGap(
        against=str(against),
        n_faults_there=n_faults,
        with_faults=with_faults,
        without=without,
        change=paired_evidence(before, after) if shared else None,
        difference=None if shared else _welch(list(after.values()), list(before.values())),
        on_met=_paired(before, after, shared & met),
        on_spared=_paired(before, after, shared - met),
    )


def _paired(before: Mapping[str, float], after: Mapping[str, float], items: set[str]) -> PairedDifference | None:
    if not items:
        return None
    return paired_evidence({one: before[one] for one in items}, {one: after[one] for one in items})


def _by_item(rows: Sequence[_FaultRow]) -> dict[str, float]:
    """The mean score of each item that has one."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.score is not None:
            found.setdefault(row.item, []).append(row.score)
    return {item: sum(values) / len(values) for item, values in found.items()}


def _welch(after: Sequence[float], before: Sequence[float]) -> Estimate | None:
    """Difference of the means of two sets of items, with Welch's interval; None with fewer than two items on a side."""
    from scipy import stats

    if min(len(after), len(before)) < 2:
        return None
    found = stats.ttest_ind(np.array(after), np.array(before), equal_var=False)
    value, ends = float(np.mean(after) - np.mean(before)), found.confidence_interval(0.95)
    low, high = (float(end) if np.isfinite(end) else None for end in (ends.low, ends.high))
    return Estimate(value, low, high, min(len(after), len(before)), method="Welch t, other items on each side")
