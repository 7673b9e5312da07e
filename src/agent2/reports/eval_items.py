"""Items of an evaluation in words: lost, won, and examples of bad cases; long questions and answers are folded.

Of hidden items only ids are shown: no question, reference or answer.
"""

from dataclasses import dataclass

from agent2.evaluation.outcome import BenchmarkOutcome, SuiteOutcome
from agent2.evaluation.suite_folder import BASELINE, SIDES
from agent2.records import HIDDEN_SPLITS, Split
from agent2.reports.text import clean, clean_lines

MAX_ITEMS = 20
MAX_TEXT = 3000
"""Characters of a question or an answer."""
FOLD_LINES, FOLD_CHARACTERS = 12, 600
"""What of a longer text is shown before it is unfolded."""
NO_ANSWER = "(no answer)"


@dataclass(frozen=True, slots=True)
class TextView:
    """A question, a reference or an answer."""

    name: str
    shown: str
    folded: str
    """What follows `shown` in a long text."""


@dataclass(frozen=True, slots=True)
class ItemView:
    """One item; a hidden one has no texts."""

    name: str
    texts: tuple[TextView, ...]


@dataclass(frozen=True, slots=True)
class ItemsView:
    """Items of one benchmark that were lost or won."""

    benchmark: str
    words: str
    n_lost: int
    n_won: int
    lost: tuple[ItemView, ...]
    """The first of them."""
    won: tuple[ItemView, ...]


@dataclass(frozen=True, slots=True)
class BadcaseExamples:
    """Items that show a class of bad cases."""

    label: str
    items: tuple[ItemView, ...]


def is_hidden(outcome: SuiteOutcome) -> bool:
    """Whether the evaluation played items that nobody may see."""
    return Split(outcome.identity.split) in HIDDEN_SPLITS


def items_note(outcome: SuiteOutcome) -> str:
    """What of the items is shown, and where the rest is."""
    shown = f"At most {MAX_ITEMS} lost and won items of each benchmark are shown; `agent2 regress` lists all."
    if is_hidden(outcome):
        return (
            f"{shown} The items are hidden ({outcome.identity.split}): their ids are shown, their questions, reference "
            "answers, the models' answers and the reasons of faults are left out."
        )
    return f"{shown} `agent2 cards show CARD --id ITEM` shows every turn of a rollout."


def items_of(one: BenchmarkOutcome) -> ItemsView:
    """The first items of a benchmark that were lost and won."""
    digests = {one.protocols[side].digest for side in SIDES}
    unknown = f", {len(one.unknown)} solved before and without a score now" if one.unknown else ""
    words = f"{len(one.lost)} lost, {len(one.won)} won, of {one.summaries[BASELINE].n_items} items{unknown}"
    return ItemsView(
        benchmark=one.name,
        words=words if len(digests) == 1 else "not compared: the protocols of the two sides differ",
        n_lost=len(one.lost),
        n_won=len(one.won),
        lost=tuple(
            _item(one, change.item_id, (change.old_answer, change.new_answer)) for change in one.lost[:MAX_ITEMS]
        ),
        won=tuple(_item(one, change.item_id, (change.old_answer, change.new_answer)) for change in one.won[:MAX_ITEMS]),
    )


def _item(one: BenchmarkOutcome, item_id: str, answers: tuple[str | None, str | None]) -> ItemView:
    """answers: of the baseline and of the checkpoint; shown only where the item's text may be."""
    text = one.texts.get(item_id)
    if text is None:
        return ItemView(clean(item_id), ())
    texts = (("question", text.question), ("reference answer", text.reference or "(none is kept for this item)"))
    answered = (("baseline answered", answers[0] or NO_ANSWER), ("checkpoint answered", answers[1] or NO_ANSWER))
    return ItemView(clean(item_id), tuple(_text(name, value) for name, value in (*texts, *answered)))


def _text(name: str, value: str) -> TextView:
    text = clean_lines(value, MAX_TEXT)
    lines = text.split("\n")
    if len(lines) <= FOLD_LINES and len(text) <= FOLD_CHARACTERS:
        return TextView(name, text, "")
    head = "\n".join(lines[:FOLD_LINES])[:FOLD_CHARACTERS]
    return TextView(name, head, text[len(head) :].removeprefix("\n"))


def examples_of(outcome: SuiteOutcome) -> tuple[BadcaseExamples, ...]:
    """Items that show each class of bad cases; empty where they are hidden."""
    if is_hidden(outcome):
        return ()
    benchmarks = {one.name: one for one in outcome.benchmarks}
    found = []
    for label, examples in outcome.examples.items():
        items = []
        for each in examples:
            one = benchmarks[each.benchmark]
            text = one.texts[each.item_id]
            baseline, checkpoint = (text.answers[side] for side in SIDES)
            answers = (baseline.get(each.attempt, ""), checkpoint.get(each.attempt, ""))
            items.append(_item(one, each.item_id, answers))
        found.append(BadcaseExamples(clean(label), tuple(items)))
    return tuple(found)
