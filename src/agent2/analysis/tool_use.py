"""How the model of a card used its tools: recovery from injected faults, and grounding of its statements.

Recovery, and what faults cost: the transfer gap between two cards of one model. Promises: a fault that the model had no
turn left to answer (`cut_off`) is counted and left out of the recovery rate; a missing score is left out and counted,
never zero; the gap is paired item by item where both cards played the same items, and split into items that met a fault
and those that did not, which should show none.

Grounding: how many rollouts fail each of the detectors' checks, and their scores. Promises: every rollout is counted
once, as checked, failed, or without tools; a detector that needs the items is listed as not checked where they are not
available; scores are the stored ones, missing ones left out and counted. A finding is a reason to look at a rollout: it
changes no score and no decision.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from agent2.cards.card import IMPORTED, CardHeader
from agent2.cards.reader import finished_header, iter_rollouts
from agent2.environments.faults import FaultEvent, FaultOutcome, fault_events
from agent2.errors import ConfigError, NotEnoughData, unknown_name
from agent2.evaluation.rescoring import benchmark_of, items_of
from agent2.records import Item, RolloutStatus
from agent2.scorers.grounding import JUDGED, GroundingJudge
from agent2.scorers.grounding.detectors import CONDUCT, DETECTORS, admits_failure, conduct_of, findings_of
from agent2.scorers.grounding.episodes import ToolEpisode, read_episode
from agent2.scorers.grounding.measured import recall_note
from agent2.scorers.grounding.tool_results import GroundingFinding
from agent2.stats.comparisons import paired_evidence
from agent2.stats.estimates import UNIT, Estimate, PairedDifference, measure_by_item
from agent2.texts import counted

BATCH = 64
"""Episodes that a judge is given at once."""
ALL_DETECTORS = {**DETECTORS, **CONDUCT}
MADE_UP = frozenset(
    {
        "invented_number",
        "invented_name",
        "invented_term",
        "contradicted_result",
        "claimed_action",
        "hidden_failure",
        JUDGED,
    }
)
"""Findings about the model's final statements."""


@dataclass(frozen=True, slots=True)
class FaultKindResult:
    """How the faults of one kind ended."""

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
    """Faults that its rollouts met; with none, the gap is that of all faults."""
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
    """How the faults on a finished card ended, and the gap to a card of the same checkpoint.

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
    events = [(row.item, event) for row in rows for event in row.events if event.kind == kind]

    def count(outcome: FaultOutcome) -> int:
        return sum(event.outcome is outcome for _, event in events)

    return FaultKindResult(
        kind,
        len(events),
        count(FaultOutcome.RECOVERED),
        count(FaultOutcome.GAVE_UP),
        count(FaultOutcome.NOT_RECOVERED),
        count(FaultOutcome.CUT_OFF),
        _turns(events),
        _score(row for row in rows if any(event.kind == kind for event in row.events)),
    )


def _rate(events: Sequence[tuple[str, FaultEvent]]) -> Estimate | None:
    answerable = [(item, event) for item, event in events if event.outcome is not FaultOutcome.CUT_OFF]
    values = [float(event.outcome is FaultOutcome.RECOVERED) for _, event in answerable]
    return _mean(values, [item for item, _ in answerable], "recovery_rate", is_share=True)


def _turns(events: Sequence[tuple[str, FaultEvent]]) -> Estimate | None:
    turns = [(item, float(event.n_turns)) for item, event in events if event.n_turns is not None]
    return _mean([n for _, n in turns], [item for item, _ in turns], "turns to recovery", is_share=False)


def _score(rows: Iterable[_FaultRow]) -> Estimate | None:
    chosen = list(rows)
    return _mean([row.score for row in chosen], [row.item for row in chosen], "score", is_share=True)


def _mean(values: Sequence[float | None], items: Sequence[str], name: str, *, is_share: bool) -> Estimate | None:
    try:
        return measure_by_item(values, items, name, UNIT if is_share else None)
    except NotEnoughData:
        return None


def _plain_name(benchmark: str) -> str:
    """A benchmark's name without its version and without the suffix that says how its tools fail."""
    return re.sub(r"[-_](?:faulty|steady)$", "", benchmark.rpartition("-v")[0] or benchmark)


def _gap(rows: Sequence[_FaultRow], header: CardHeader, card: Path, against: Path) -> TransferGap:
    steady = finished_header(against)
    if steady.checkpoint_digest != header.checkpoint_digest:
        raise ConfigError(
            f"--against {against}: is of checkpoint {steady.checkpoint_name}, and {card} of {header.checkpoint_name}; "
            "the gap is that of one checkpoint with and without faults"
        )
    if steady.protocol.split != header.protocol.split:
        raise ConfigError(
            f"--against {against}: played {steady.protocol.split.value}, and {card} {header.protocol.split.value}; "
            "play the same split"
        )
    if _plain_name(steady.protocol.benchmark) != _plain_name(header.protocol.benchmark):
        raise ConfigError(
            f"--against {against}: is of {steady.protocol.benchmark}, {card} of {header.protocol.benchmark}; the gap "
            "is between variants of one benchmark (NAME, NAME-faulty, NAME-steady)"
        )
    # Other than in `_rows`, rollouts of worlds that record no faults count: this side may have none.
    against_rows = [
        _FaultRow(record.rollout.item_id, record.score.value, fault_events(record.rollout) or [])
        for record in iter_rollouts(against)
        if record.rollout.status is not RolloutStatus.FAILED
    ]
    before, after = _by_item(against_rows), _by_item(rows)
    met = {row.item for row in rows if row.events}
    shared = before.keys() & after.keys()
    with_faults, without = _score(rows), _score(against_rows)
    return TransferGap(
        against=str(against),
        n_faults_there=sum(len(row.events) for row in against_rows),
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
    return paired_evidence({item: before[item] for item in items}, {item: after[item] for item in items})


def _by_item(rows: Sequence[_FaultRow]) -> dict[str, float]:
    """The mean score of each item that has one."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        if row.score is not None:
            scores.setdefault(row.item, []).append(row.score)
    return {item: sum(values) / len(values) for item, values in scores.items()}


def _welch(after: Sequence[float], before: Sequence[float]) -> Estimate | None:
    """Difference of the means of two sets of items, with Welch's interval; None with fewer than two items on a side."""
    from scipy import stats  # slow to import, and few reports need it

    if min(len(after), len(before)) < 2:
        return None
    interval = stats.ttest_ind(np.array(after), np.array(before), equal_var=False).confidence_interval(0.95)
    value = float(np.mean(after) - np.mean(before))
    # Not finite where the scores of neither side vary.
    low, high = (float(end) if np.isfinite(end) else None for end in (interval.low, interval.high))
    return Estimate(value, low, high, min(len(after), len(before)), method="Welch t, other items on each side")


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    """One finding and its rollout."""

    item: str
    attempt: int
    score: float | None
    finding: GroundingFinding


@dataclass(frozen=True, slots=True)
class MeanScore:
    """The stored scores of some rollouts."""

    n: int
    n_missing: int
    mean: float | None
    """0 to 1; None: none of them has a score."""


@dataclass(frozen=True, slots=True)
class DetectorResult:
    """One check over a card."""

    name: str
    kind: str
    meaning: str
    n_rollouts: int | None
    """Rollouts with a finding; None: not checked."""
    found: MeanScore
    """Scores of those."""


@dataclass(frozen=True, slots=True)
class GroundingReport:
    """What the detectors find on one card."""

    card: str
    n_rollouts: int
    n_checked: int
    n_without_tools: int
    n_failed: int
    """Rollouts that failed, so not checked."""
    n_clean: int
    """Checked rollouts without a finding; those of conduct are none."""
    detectors: tuple[DetectorResult, ...]
    clean: MeanScore
    made_up: MeanScore
    """Rollouts whose conclusion lacks ground; see `admitted`."""
    admitted: MeanScore
    """Rollouts that say that something failed or is not known, and make nothing up. Where their mean is below that of
    `made_up`, the score rewards invention."""
    notes: tuple[str, ...]
    findings: tuple[LocatedFinding, ...]


def ground_card(
    card: Path,
    judge: GroundingJudge | None = None,
    only: Sequence[str] = (),
    on_progress: Callable[[int], None] | None = None,
) -> GroundingReport:
    """Check every rollout of a finished card.

    only: names of detectors; empty: all. Raises CardError for a card that is open or damaged, ConfigError for an
    unknown detector and for a card on which no rollout has tool calls.
    """
    for name in only:
        if name not in ALL_DETECTORS:
            raise unknown_name("detector", name, ALL_DETECTORS, "--detector")
    header = finished_header(card)
    items, notes = _items(card, only)
    checked = _CheckedEpisodes()
    for record in iter_rollouts(card):
        checked.n_rollouts += 1
        if record.rollout.status is RolloutStatus.FAILED:
            checked.n_failed += 1
        elif (episode := read_episode(record.rollout)) is not None:
            checked.keys.append((record.rollout.item_id, record.rollout.attempt))
            checked.episodes.append(episode)
            checked.scores.append(record.score.value)
    if not checked.episodes:
        raise ConfigError(
            f"{card}: no rollout has tool calls (environment {header.protocol.environment}); grounding is checked on "
            "cards of worlds with tools, such as mini_apis or search"
        )
    for number, ((item_id, _), episode) in enumerate(zip(checked.keys, checked.episodes, strict=True), 1):
        findings = findings_of(episode, items.get(item_id)) + conduct_of(episode)
        checked.findings.append([finding for finding in findings if not only or finding.detector in only])
        if on_progress is not None:
            on_progress(number)
    if judge is not None:
        notes += _add_judged(judge, checked.episodes, checked.findings)
    names = [name for name in ALL_DETECTORS if not only or name in only]
    notes += [note] if (note := recall_note(names)) else []
    skipped = set() if items else {name for name in names if ALL_DETECTORS[name].needs_item}
    results = [_result(name, checked, is_skipped=name in skipped) for name in names]
    if judge is not None:
        results.append(_result(JUDGED, checked, is_skipped=False))
    return _report(card, checked, results, notes)


@dataclass(slots=True)
class _CheckedEpisodes:
    """Episodes with the findings in each; the lists have one entry an episode."""

    n_rollouts: int = 0
    n_failed: int = 0
    keys: list[tuple[str, int]] = field(default_factory=list)
    """Item and attempt."""
    episodes: list[ToolEpisode] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    findings: list[list[GroundingFinding]] = field(default_factory=list)

    def scores_where(self, is_selected: Callable[[frozenset[str], ToolEpisode], bool]) -> MeanScore:
        """Scores of selected episodes. is_selected: by the names of the detectors with a finding, and the episode."""
        selected = [
            score
            for score, findings, episode in zip(self.scores, self.findings, self.episodes, strict=True)
            if is_selected(frozenset(finding.detector for finding in findings), episode)
        ]
        values = [score for score in selected if score is not None]
        return MeanScore(len(selected), len(selected) - len(values), sum(values) / len(values) if values else None)


def _items(card: Path, only: Sequence[str]) -> tuple[dict[str, Item], list[str]]:
    """The items by id, and why there are none."""
    by_item = [name for name, detector in DETECTORS.items() if detector.needs_item and (not only or name in only)]
    if not by_item:
        return {}, []
    header = finished_header(card)
    try:
        return items_of(card, header, benchmark_of(card, header)), []
    except ConfigError as error:
        reason = "an imported card brings no items" if IMPORTED in header.lock else str(error)
        return {}, [f"not checked without the items: {', '.join(by_item)} ({reason})"]


def _add_judged(
    judge: GroundingJudge, episodes: Sequence[ToolEpisode], findings: list[list[GroundingFinding]]
) -> list[str]:
    """Add a judge's findings to those of each episode; returns how many got no verdict, as notes."""
    problems = []
    for start in range(0, len(episodes), BATCH):
        for number, judged in enumerate(judge.findings(episodes[start : start + BATCH]), start):
            if isinstance(judged, str):
                problems.append(judged)
            else:
                findings[number] = findings[number] + judged
    return (
        [f"{counted(len(problems), 'rollout')} got no verdict of the judge, the first: {problems[0]}"]
        if problems
        else []
    )


def _result(name: str, checked: _CheckedEpisodes, *, is_skipped: bool) -> DetectorResult:
    scores = checked.scores_where(lambda names, _: name in names)
    detector = ALL_DETECTORS.get(name)
    kind = "result" if detector is None else detector.kind.value
    meaning = "A model finds the answer unsupported." if detector is None else detector.meaning
    return DetectorResult(name, kind, meaning, None if is_skipped else scores.n, scores)


def _report(
    card: Path, checked: _CheckedEpisodes, results: Sequence[DetectorResult], notes: Sequence[str]
) -> GroundingReport:
    return GroundingReport(
        card=str(card),
        n_rollouts=checked.n_rollouts,
        n_checked=len(checked.episodes),
        n_without_tools=checked.n_rollouts - checked.n_failed - len(checked.episodes),
        n_failed=checked.n_failed,
        n_clean=sum(all(finding.detector in CONDUCT for finding in findings) for findings in checked.findings),
        detectors=tuple(results),
        clean=checked.scores_where(lambda names, _: names <= set(CONDUCT)),
        made_up=checked.scores_where(lambda names, _: bool(names & MADE_UP)),
        admitted=checked.scores_where(lambda names, episode: not names & MADE_UP and admits_failure(episode)),
        notes=tuple(notes),
        findings=tuple(
            LocatedFinding(item, attempt, score, finding)
            for (item, attempt), score, findings in zip(checked.keys, checked.scores, checked.findings, strict=True)
            for finding in findings
        ),
    )
