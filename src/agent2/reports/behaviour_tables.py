"""What changed beside the score, as tables: on the pages of an evaluation and on the terminal."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent2.analysis.behaviour import SECONDS, BehaviourGroup, BehaviourMeasure, CardBehaviour
from agent2.analysis.outcome_records import SuiteOutcome
from agent2.contract.metrics import Unit
from agent2.reports.text import DASH, Column, Table, clean, p_words
from agent2.stats.estimates import PERCENT, POINTS, Estimate, Notation, PairedDifference

LENGTH, LENGTH_CHANGE = Notation(".1f"), Notation("+.1f")
SMALL, SMALL_CHANGE = Notation(".3g"), Notation("+.3g")
LONG = 400


@dataclass(frozen=True, slots=True)
class BehaviourView:
    """One benchmark."""

    title: str
    measures: Table[BehaviourMeasure]
    groups: Table["GroupLine"]
    """The measures by difficulty and by class of the baseline's failures; empty with one attempt an item."""
    note: str


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One measure on one group of items."""

    measure: BehaviourMeasure
    group: BehaviourGroup


def behaviour_views(outcome: SuiteOutcome) -> tuple[BehaviourView, ...]:
    """Of every benchmark whose sides may be compared."""
    return tuple(
        behaviour_view(benchmark.behaviour) for benchmark in outcome.benchmarks if benchmark.behaviour is not None
    )


def behaviour_view(behaviour: CardBehaviour) -> BehaviourView:
    """One benchmark's measures as tables."""
    note = behaviour.groups_problem and f"not sorted by difficulty and class: {behaviour.groups_problem}"
    return BehaviourView(
        title=clean(behaviour.benchmark),
        measures=Table(
            (
                Column("", lambda line: line.name),
                Column("baseline", lambda line: _value(line, line.old)),
                Column("checkpoint", lambda line: _value(line, line.new)),
                Column("difference [95%]", _difference),
                Column("p", lambda line: p_words(None if line.change is None else line.change.p_value)),
            ),
            behaviour.measures,
        ),
        groups=Table(
            (
                Column("", lambda line: line.measure.name),
                Column("items", lambda line: clean(line.group.name)),
                Column("n", lambda line: str(line.group.n_items)),
                Column(
                    "difference [95%]",
                    lambda line: _change(line.measure, line.group.change) or "too few items",
                ),
            ),
            tuple(_group_lines(behaviour)),
        ),
        note=clean(note, LONG),
    )


def _group_lines(behaviour: CardBehaviour) -> Iterator[GroupLine]:
    for measure in behaviour.measures:
        for group in (*measure.by_difficulty, *measure.by_class):
            if group.n_items:
                yield GroupLine(measure, group)


def _value(line: BehaviourMeasure, estimate: Estimate | None) -> str:
    return _notation(line).estimate(estimate, DASH)


def _notation(line: BehaviourMeasure) -> Notation:
    return PERCENT if line.unit is Unit.RATE else SMALL if line.name == SECONDS else LENGTH


def _difference(line: BehaviourMeasure) -> str:
    if line.problem:
        return f"not measured: {clean(line.problem, LONG)}"
    text = _change(line, line.change) or "too few items"
    if line.unit is Unit.RATE or line.old is None or line.new is None or not line.old.value:
        return text
    return f"{text}, {line.new.value / line.old.value - 1:+.0%}"


def _change(line: BehaviourMeasure, change: PairedDifference | None) -> str:
    if change is None:
        return ""
    missing = f", {change.change.n_missing} missing" if change.change.n_missing else ""
    text = (POINTS if line.unit is Unit.RATE else SMALL_CHANGE if line.name == SECONDS else LENGTH_CHANGE).estimate(
        change.change
    )
    return f"{text}{' points' if line.unit is Unit.RATE else ''}{missing}"
