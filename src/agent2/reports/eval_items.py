"""Items on the pages of an evaluation: lost, won, failed on both sides, and examples of bad cases, with their texts.

Texts of models and of other people's files pass `clean`. Of hidden items only ids are shown: no question, reference or
answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent2.analysis.outcome_records import BenchmarkOutcome, SuiteOutcome
from agent2.analysis.regress import ChangedItem
from agent2.evaluation.suite_folder import BASELINE, SIDES
from agent2.records import HIDDEN_SPLITS, Split
from agent2.reports.text import clean, clean_lines, example_id
from agent2.texts import counted

MAX_ITEMS = 20
MAX_TEXT = 3000
"""Characters of a question or an answer."""
FOLD_LINES, FOLD_CHARACTERS = 12, 600
"""Length of the head of a longer text, the part that is not folded."""
NO_ANSWER = "(no answer)"


@dataclass(frozen=True, slots=True)
class TextView:
    """A question, a reference or an answer."""

    name: str
    head: str
    tail: str
    """Folded; empty for a short text."""


@dataclass(frozen=True, slots=True)
class ItemView:
    """One item; without texts if it is hidden."""

    name: str
    texts: tuple[TextView, ...]


@dataclass(frozen=True, slots=True)
class ItemsView:
    """Items of one benchmark that were lost, won, or failed on both sides."""

    benchmark: str
    summary: str
    """How many there are of each kind, or why they are not compared."""
    n_lost: int
    n_won: int
    lost: tuple[ItemView, ...]
    """The first of them."""
    won: tuple[ItemView, ...]
    n_both_failed: int
    both_failed: tuple[ItemView, ...]


@dataclass(frozen=True, slots=True)
class BadcaseExamples:
    """Example items of a class of bad cases."""

    label: str
    anchor: str
    items: tuple[ItemView, ...]


def is_hidden(outcome: SuiteOutcome) -> bool:
    """Whether the evaluation played items of a hidden split."""
    return Split(outcome.identity.split) in HIDDEN_SPLITS


def items_note(outcome: SuiteOutcome) -> str:
    """Which items the page shows, and the command that shows the others."""
    note = f"At most {MAX_ITEMS} items of each kind are shown; `agent2 regress --json` lists all."
    if is_hidden(outcome):
        return (
            f"{note} The items are hidden ({outcome.identity.split}): their ids are shown, their questions, reference "
            "answers, the models' answers and the reasons of faults are left out."
        )
    return f"{note} `agent2 cards show CARD --id ITEM` shows every turn of a rollout."


def items_of(benchmark: BenchmarkOutcome) -> ItemsView:
    """The first items of a benchmark that were lost, won, or failed on both sides."""
    digests = {benchmark.protocols[side].digest for side in SIDES}
    unknown = f", {len(benchmark.unknown)} solved before and without a score now" if benchmark.unknown else ""

    def views(changes: Sequence[ChangedItem]) -> tuple[ItemView, ...]:
        return tuple(
            _item(benchmark, change.item_id, (change.old_answer, change.new_answer)) for change in changes[:MAX_ITEMS]
        )

    n_items = benchmark.summaries[BASELINE].n_items
    totals = (
        f"{len(benchmark.lost)} lost, {len(benchmark.won)} won, {len(benchmark.both_failed)} failed on both sides, of "
        f"{counted(n_items, 'item')}{unknown}"
    )
    return ItemsView(
        benchmark=benchmark.name,
        summary=totals if len(digests) == 1 else "not compared: the protocols of the two sides differ",
        n_lost=len(benchmark.lost),
        n_won=len(benchmark.won),
        lost=views(benchmark.lost),
        won=views(benchmark.won),
        n_both_failed=len(benchmark.both_failed),
        both_failed=views(benchmark.both_failed),
    )


def _item(benchmark: BenchmarkOutcome, item_id: str, answers: tuple[str | None, str | None]) -> ItemView:
    """answers: of the baseline and of the checkpoint; left out for a hidden item."""
    text = benchmark.texts.get(item_id)
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
    """Example items of each class of bad cases; empty where they are hidden."""
    if is_hidden(outcome):
        return ()
    benchmarks = {benchmark.name: benchmark for benchmark in outcome.benchmarks}
    by_label = []
    for label, examples in outcome.examples.items():
        items = []
        for example in examples:
            benchmark = benchmarks[example.benchmark]
            text = benchmark.texts[example.item_id]
            baseline, checkpoint = (text.answers[side] for side in SIDES)
            answers = (baseline.get(example.attempt, ""), checkpoint.get(example.attempt, ""))
            items.append(_item(benchmark, example.item_id, answers))
        by_label.append(BadcaseExamples(clean(label), example_id(label), tuple(items)))
    return tuple(by_label)
