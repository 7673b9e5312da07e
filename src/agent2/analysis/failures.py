"""Failures by class: how many there are of each, why, what follows, who says so, and rollouts that show it.

A failure is a rollout whose counted score is below 1; one without a score (infrastructure, a judge that failed) is
missing and no failure. A rollout may have several classes: the labels of its scorer, what detectors read in its text,
`capability_lost` where the baseline solved the item, and those that people gave it (`analysis.person_classes`). Each
failure is *counted first* under one of them, the one that `contract/failures.yaml` lists first, so that these counts
add up. Passing rollouts with a class are counted too: the pass rate of a class says how much it costs.

Promises: nothing of an item but its id is kept, so hidden items stay hidden; every failure is counted, and so is every
rollout without a score; a class that nobody knows is listed without a cause. Memory grows with failures.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from agent2.analysis.call_classes import call_classes
from agent2.analysis.card_scores import PASSES_AT, read_scores
from agent2.analysis.person_classes import PersonClasses, PersonReport, read_person_rows
from agent2.cards.aggregate import counted_value
from agent2.cards.card import CardHeader
from agent2.cards.comparability import BASELINE, CHECKPOINT, find_cards, is_evaluation
from agent2.cards.reader import finished_header, iter_rollouts
from agent2.contract.causes import (
    UNLABELLED,
    Cause,
    ClassRow,
    FailureJudge,
    Taxonomy,
    class_row,
    failure_of,
    rank_of,
    todays_label,
)
from agent2.contract.measure_rules import SUCCESS
from agent2.contract.suite import Suite
from agent2.errors import ConfigError
from agent2.foreign_files import read_limited
from agent2.records import ScoredRollout
from agent2.scorers import asks_model, labels_by_older_name
from agent2.scorers.failure_detectors import DETECTORS, detected

EXAMPLES = 3
"""Rollouts named for each class."""
CAPABILITY_LOST = "capability_lost"
NO_TAXONOMY: Taxonomy = {}


@dataclass(frozen=True, slots=True)
class FailedRollout:
    """One failure."""

    benchmark: str
    """As in the cards' folder: `arithmetic`, without version."""
    item_id: str
    attempt: int
    score: float
    """As counted by the card's reporting rule; below 1."""
    classes: tuple[str, ...]
    """The one it is counted first under first; empty: nobody says why it failed."""

    @property
    def first_class(self) -> str:
        """The class that it is counted first under."""
        return self.classes[0] if self.classes else UNLABELLED


@dataclass(frozen=True, slots=True)
class FailureClass:
    """One class of bad cases among the rollouts of a checkpoint."""

    label: str
    group: str
    """Kind of failure, as the table calls it; the label where it is unknown."""
    cause: Cause | None
    """None: neither the suite nor the table knows the class."""
    why: str
    action: str
    judge: FailureJudge
    is_generic: bool
    """It says that a rollout failed, not why."""
    n: int
    """Failures with the class."""
    n_first: int
    """Of these, counted first under it."""
    share: float | None
    """`n` over all failures; None: there are none."""
    n_rollouts: int
    """Rollouts with the class and a score."""
    pass_rate: float | None
    """Of those; None: none has a score."""
    n_items: int
    """Different items among the failures."""
    n_by_person: int
    """Of the rollouts with the class and a score, those to which a person gives it."""
    examples: tuple[FailedRollout, ...]

    @property
    def found_by(self) -> str:
        """Who found it; with people beside the program where both did."""
        is_both = self.n_by_person and self.judge is not FailureJudge.PERSON
        return f"{self.judge.value}, {FailureJudge.PERSON.value}" if is_both else self.judge.value


@dataclass(frozen=True, slots=True)
class FailureReport:
    """The failures of one checkpoint."""

    n_rollouts: int
    n_missing: int
    """Rollouts without a score."""
    n_failures: int
    n_unlabelled: int
    """Failures without any class."""
    n_generic: int
    """Failures whose classes all say that they failed, not why."""
    classes: tuple[FailureClass, ...]
    """Of failures, the most frequent first; then those that only passing rollouts have."""
    failures: tuple[FailedRollout, ...]
    """By benchmark, item and attempt."""
    people: PersonReport | None = None
    """What people say of the rollouts; None: no file of theirs was read."""

    def as_record(self) -> dict[str, Any]:
        """As plain data, without the list of all failures."""
        record: dict[str, Any] = msgspec.to_builtins(self)
        del record["failures"]
        if self.people is None:
            del record["people"]
        return record

    def of_class(self, label: str) -> tuple[FailedRollout, ...]:
        """The failures that are counted first under a class; `unlabelled` for those without one."""
        return tuple(failure for failure in self.failures if failure.first_class == label)


@dataclass(slots=True)
class _ClassTally:
    n: int = 0
    n_first: int = 0
    n_scored: int = 0
    n_passed: int = 0
    n_by_person: int = 0
    n_by_program: int = 0
    """By a scorer, a detector or the comparison with the baseline."""
    items: set[tuple[str, str]] = field(default_factory=set)
    examples: list[FailedRollout] = field(default_factory=list)


class FailureTally:
    """Takes rollouts one at a time; `report` gives what they come to."""

    def __init__(self, taxonomy: Taxonomy = NO_TAXONOMY, people: PersonClasses | None = None) -> None:
        self._taxonomy = taxonomy
        self._people = PersonClasses() if people is None else people
        self._rows: dict[str, ClassRow | None] = {}
        self._tallies: dict[str, _ClassTally] = {}
        self._judges: dict[str, FailureJudge] = {}
        self._detected: set[str] = set()
        self._failures: list[FailedRollout] = []
        self._n_rollouts = self._n_missing = self._n_unlabelled = self._n_generic = 0

    def add_card(
        self, benchmark: str, header: CardHeader, records: Iterable[ScoredRollout], lost: Iterable[str] = ()
    ) -> None:
        """Count the rollouts of one card. lost: items that the baseline solved and the checkpoint does not."""
        renamed, lost_items = labels_by_older_name(header.protocol), frozenset(lost)
        is_judged = asks_model(header.protocol.scorer)
        for record in records:
            self._n_rollouts += 1
            score = counted_value(record, header.reporting)
            if score is None:
                self._n_missing += 1
                continue
            scored_labels = {todays_label(renamed.get(label, label)) for label in record.score.labels}
            for label in scored_labels:
                self._judges.setdefault(label, FailureJudge.JUDGE if is_judged else self._usual_judge(label))
            # A scorer may give a detector's class itself; then the scorer found it.
            detected_labels = {*detected(record), *call_classes(record)}
            self._detected |= detected_labels
            labels = scored_labels | detected_labels
            if score < SUCCESS and record.rollout.item_id in lost_items:
                labels.add(CAPABILITY_LOST)
            self._add(benchmark, record, score, labels | self._labels_of_people(benchmark, record, labels))

    def _labels_of_people(self, benchmark: str, record: ScoredRollout, labels: Collection[str]) -> set[str]:
        """People's classes, under the name that the scorer gave the class where it did; each is counted."""
        by_people = self._people.of((benchmark, record.rollout.item_id, record.rollout.attempt))
        for label in labels:
            self._tallies.setdefault(label, _ClassTally()).n_by_program += 1
        if by_people is None:
            return set()
        self._people.count(by_people, labels)
        names = {failure_of(label): label for label in labels}
        shown_labels = {names.get(failure_of(label), label) for label in by_people}
        for label in shown_labels:
            self._tallies.setdefault(label, _ClassTally()).n_by_person += 1
        return shown_labels

    def _add(self, benchmark: str, record: ScoredRollout, score: float, classes: Collection[str]) -> None:
        has_failed, labels = score < SUCCESS, sorted(classes, key=self._rank)
        for label in labels:
            tally = self._tallies.setdefault(label, _ClassTally())
            tally.n_scored += 1
            tally.n_passed += not has_failed
        if not has_failed:
            return
        rollout = record.rollout
        failure = FailedRollout(benchmark, rollout.item_id, rollout.attempt, score, tuple(labels))
        self._failures.append(failure)
        self._n_unlabelled += not labels
        self._n_generic += bool(labels) and all(self._is_generic(label) for label in labels)
        for place, label in enumerate(labels):
            tally = self._tallies[label]
            tally.n += 1
            tally.n_first += place == 0
            key = (benchmark, rollout.item_id)
            if key not in tally.items:
                tally.items.add(key)
                # An item once: several attempts at it would show the same thing.
                if len(tally.examples) < EXAMPLES:
                    tally.examples.append(failure)

    def _row(self, label: str) -> ClassRow | None:
        if label not in self._rows:
            self._rows[label] = class_row(label, self._taxonomy)
        return self._rows[label]

    def _rank(self, label: str) -> tuple[int, str]:
        return rank_of(label, self._row(label))

    def _is_generic(self, label: str) -> bool:
        row = self._row(label)
        return row is not None and row.is_generic

    def _usual_judge(self, label: str) -> FailureJudge:
        row = self._row(label)
        is_of_scorer = row is None or row.judge in (FailureJudge.DETECTOR, FailureJudge.BASELINE)
        return FailureJudge.RULE if row is None or is_of_scorer else row.judge

    def report(self) -> FailureReport:
        """What was counted so far."""
        classes = [self._class(label, tally) for label, tally in self._tallies.items()]
        return FailureReport(
            n_rollouts=self._n_rollouts,
            n_missing=self._n_missing,
            n_failures=len(self._failures),
            n_unlabelled=self._n_unlabelled,
            n_generic=self._n_generic,
            classes=tuple(sorted(classes, key=lambda failure: (-failure.n, -failure.n_rollouts, failure.label))),
            failures=tuple(
                sorted(self._failures, key=lambda failure: (failure.benchmark, failure.item_id, failure.attempt))
            ),
            people=self._people.report(),
        )

    def _class(self, label: str, tally: _ClassTally) -> FailureClass:
        row = self._row(label)
        usual = FailureJudge.DETECTOR if label in self._detected or label in DETECTORS else FailureJudge.BASELINE
        usual = usual if tally.n_by_program else FailureJudge.PERSON
        return FailureClass(
            label=label,
            group=label if row is None else row.group,
            cause=None if row is None else row.cause,
            why="" if row is None else row.why,
            action="" if row is None else row.action,
            judge=self._judges.get(label, usual),
            is_generic=self._is_generic(label),
            n=tally.n,
            n_first=tally.n_first,
            share=tally.n / len(self._failures) if self._failures else None,
            n_rollouts=tally.n_scored,
            pass_rate=tally.n_passed / tally.n_scored if tally.n_scored else None,
            n_items=len(tally.items),
            n_by_person=tally.n_by_person,
            examples=tuple(tally.examples),
        )


def failures_of(folder: Path, taxonomy: Taxonomy | None = None, labels: Path | None = None) -> FailureReport:
    """The failures of an evaluation's checkpoint, or of the cards in a folder, by class.

    taxonomy: a suite's `failure_taxonomy`; None: that of the evaluation's own suite. labels: a file with people's
    classes. Raises ConfigError for a folder without cards and a file that cannot be read, CardError for a card that is
    open or damaged.
    """
    cards = find_cards(folder, CHECKPOINT)
    people = None if labels is None else PersonClasses(read_person_rows(labels), str(labels))
    tally = FailureTally(_own_taxonomy(folder) if taxonomy is None else taxonomy, people)
    lost = _lost_items(folder)
    for key, path in cards.cards.items():
        header = finished_header(path)
        tally.add_card(header.protocol.benchmark_name, header, iter_rollouts(path), lost.get(key, ()))
    return tally.report()


def _own_taxonomy(folder: Path) -> Taxonomy:
    file = folder / "suite.json"
    if not is_evaluation(folder) or not file.is_file():
        return NO_TAXONOMY
    try:
        return Suite.model_validate_json(read_limited(file, follow=True)).failure_taxonomy
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); run the evaluation again") from error


def _lost_items(folder: Path) -> dict[str, frozenset[str]]:
    """Card of the checkpoint -> items that the baseline solved and it does not; empty without a baseline.

    Cards of other protocols are left out: their items are not known to be lost.
    """
    if not is_evaluation(folder):
        return {}
    try:
        baseline, checkpoint = find_cards(folder, BASELINE), find_cards(folder, CHECKPOINT)
    except ConfigError:
        return {}
    lost = {}
    for key in baseline.cards.keys() & checkpoint.cards.keys():
        before, after = baseline.headers[key], checkpoint.headers[key]
        if before.protocol.digest == after.protocol.digest and before.reporting == after.reporting:
            passed = _passed(baseline.cards[key])
            lost[key] = frozenset(passed - _passed(checkpoint.cards[key])) if passed else frozenset()
    return lost


def _passed(card: Path) -> set[str]:
    items = read_scores(card).items
    return {item_id for item_id, item in items.items() if item.mean is not None and item.mean >= PASSES_AT}
