"""What lists say of an item beside its id: its question, its reference answer, its place in the data.

The question is on the card; reference answers and places are in the folder of the evaluation, which has neither for
hidden items. Where a page hides its items nothing of this is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent2.cards.card import CardFile
from agent2.errors import Agent2Error
from agent2.evaluation.suite_folder import PLACES_FILE, REFERENCES_FILE, read_places, read_references
from agent2.records import ScoredRollout
from agent2.reports.text import clean
from agent2.web.entries import CatalogEntry, EntryKind
from agent2.web.page import PageContext, file_stamp
from agent2.web.rollouts import CardListing, RolloutLine

QUESTION_CHARACTERS, REFERENCE_CHARACTERS = 200, 160
BEFORE_MATCH = 60
"""Characters of a question before the text that was searched for."""
MOST_FRAMES = 16
"""Parts of a card that a page reads for its questions; rows of others are listed without."""
LEAST_SHARED = 24
"""Characters with which all questions of a page begin, from which on they are left out."""


@dataclass(frozen=True, slots=True)
class StoredItems:
    """What an evaluation keeps about the items of one benchmark."""

    references: dict[str, str]
    places: dict[str, str]
    """Item -> `data.csv:12`."""


ByItem = Mapping[str, Mapping[str, str]]
"""Benchmark -> item -> text."""
NOTHING_STORED = StoredItems({}, {})


def stored_items(context: PageContext, entry: CatalogEntry, card: CardFile) -> StoredItems:
    """The references and places of a card's items; empty for a card that is no part of an evaluation."""
    parent = context.catalog.scan().entries.get(entry.parent or "")
    if parent is None or parent.kind is not EntryKind.EVALUATION:
        return NOTHING_STORED

    def read() -> tuple[ByItem, ByItem]:
        try:
            return read_references(parent.path), read_places(parent.path)
        except Agent2Error:  # a damaged file hides no answer; the evaluation's own page names it
            return {}, {}

    stamps = [file_stamp(parent.path / name) for name in (REFERENCES_FILE, PLACES_FILE)]
    references, places = context.cached(("stored items", parent.id, *stamps), read)
    # a card's folder is named after the suite's entry, as in the files; its protocol has the version as well
    benchmark = entry.path.name.removesuffix(f"-{card.header.protocol.split.value}")
    return StoredItems(dict(references.get(benchmark, {})), dict(places.get(benchmark, {})))


def question_of(record: ScoredRollout) -> str:
    """The last message of the prompt, which follows instructions and examples."""
    return record.rollout.prompt[-1].text if record.rollout.prompt else ""


def questions_on(context: PageContext, entry: CatalogEntry, lines: Iterable[int]) -> dict[int, str]:
    """Line -> question; of a large card only those that a few of its parts hold."""
    records = context.tables.pages(entry.path).at(lines, MOST_FRAMES)
    return {line: question_of(record) for line, record in records.items()}


def shown_questions(questions: Mapping[int, str], search: str = "") -> dict[int, str]:
    """The questions as a list shows them: one line each, without an instruction with which all of them begin."""
    texts = dict(zip(questions, _without_shared_beginning(list(questions.values())), strict=True))
    return {line: clean(_from_match(text, search), QUESTION_CHARACTERS) for line, text in texts.items()}


def _without_shared_beginning(texts: Sequence[str]) -> list[str]:
    first, last = min(texts, default=""), max(texts, default="")
    # what the first and the last of sorted texts have in common all of them have
    n_shared = next((place for place, letter in enumerate(first) if letter != last[place : place + 1]), len(first))
    shared = first[:n_shared] if first != last else ""
    end = max(shared.rfind(mark) + len(mark) for mark in ("\n", ". ", ": ", "? ")) if shared else 0
    if end < LEAST_SHARED or not all(text[end:].strip() for text in texts):
        return list(texts)
    return [f"… {text[end:].lstrip()}" for text in texts]


def _from_match(text: str, search: str) -> str:
    """The text from a little before what was searched for, where that is too far down to be shown."""
    start = text.find(search) if search != search.lower() else text.lower().find(search)
    return text if not search or start < QUESTION_CHARACTERS - BEFORE_MATCH else f"… {text[start - BEFORE_MATCH :]}"


def with_items(
    context: PageContext, entry: CatalogEntry, card: CardFile, lines: Sequence[RolloutLine], search: str = ""
) -> tuple[RolloutLine, ...]:
    """Lines of a card whose items are not hidden, with what is known of the items."""
    stored = stored_items(context, entry, card)
    questions = shown_questions(questions_on(context, entry, [line.line for line in lines]), search)
    return tuple(
        replace(
            line,
            question=questions.get(line.line, ""),
            reference=clean(stored.references.get(line.item_id, ""), REFERENCE_CHARACTERS),
            place=clean(stored.places.get(line.item_id, ""), 120),
        )
        for line in lines
    )


def with_listed_items(
    context: PageContext, entry: CatalogEntry, card: CardFile, listing: CardListing, search: str
) -> CardListing:
    """A card's list with what is known of its items, which are not hidden."""
    return replace(listing, lines=with_items(context, entry, card, listing.lines, search))
