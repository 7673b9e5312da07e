"""What lists say of an item beside its id: its question, its reference answer, its place in the data.

The question is on the card; reference answers and places are in the folder of the evaluation, which has neither for
hidden items. Where a page hides its items nothing of this is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from agent2.cards.card import CardFile
from agent2.errors import Agent2Error
from agent2.evaluation.suite_folder import (
    PAYLOADS_FILE,
    PLACES_FILE,
    REFERENCES_FILE,
    read_payloads,
    read_places,
    read_references,
)
from agent2.records import ScoredRollout
from agent2.reports.text import clean
from agent2.web.entries import CatalogEntry, EntryKind
from agent2.web.page import Links, PageContext, file_stamp, shelf_of
from agent2.web.rollouts import NO_COLUMNS, NO_TERM, CardFilter, CardListing, RolloutLine, SqlTerm

KeyT = TypeVar("KeyT")

QUESTION_CHARACTERS, REFERENCE_CHARACTERS, FIELD_CHARACTERS = 200, 160, 80
DEFAULT_COLUMNS = 2
"""Fields of payloads that a list shows unless its address names others."""
MOST_VALUES = 50
"""Different values of a field that is shown without being asked for."""
MOST_MATCHES = 20_000
"""Items that a search finds by their fields."""
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
    payloads: Mapping[str, Mapping[str, str]]
    """Item -> field -> text."""

    def columns(self) -> tuple[str, ...]:
        """The fields that some item has, in the order of the payloads."""
        return tuple(dict.fromkeys(name for fields in self.payloads.values() for name in fields))

    def few_columns(self) -> tuple[str, ...]:
        """The fields that sort the items: with several values that come more than once, such as a subject."""
        sorting = []
        for name in self.columns():
            values = [fields[name] for fields in self.payloads.values() if name in fields]
            if 1 < len(set(values)) <= min(MOST_VALUES, len(values) // 2):
                sorting.append(name)
        return tuple(sorting[:DEFAULT_COLUMNS])

    def matching(self, search: str) -> list[str]:
        """Items with a field that contains the text; `subject: algebra` means this field alone."""
        is_exact = search != search.lower()
        field_name, _, field_text = search.partition(": ")
        return [
            item
            for item, fields in self.payloads.items()
            if any(
                search in (text if is_exact else text.lower())
                or (
                    bool(field_text)
                    and name.lower() == field_name.lower()
                    and field_text in (text if is_exact else text.lower())
                )
                for name, text in fields.items()
            )
        ][:MOST_MATCHES]


ByItem = Mapping[str, Mapping[str, str]]
"""Benchmark -> item -> text."""
NOTHING_STORED = StoredItems({}, {}, {})


def stored_items(context: PageContext, entry: CatalogEntry, card: CardFile) -> StoredItems:
    """The references, places and payloads of a card's items; empty for a card that is no part of an evaluation."""
    parent = context.catalog.scan().entries.get(entry.parent or "")
    if parent is None or parent.kind is not EntryKind.EVALUATION:
        return NOTHING_STORED

    def read() -> tuple[ByItem, ByItem, Mapping[str, Mapping[str, Mapping[str, str]]]]:
        try:
            return read_references(parent.path), read_places(parent.path), read_payloads(parent.path)
        except Agent2Error:  # a damaged file hides no answer; the evaluation's own page names it
            return {}, {}, {}

    stamps = [file_stamp(parent.path / name) for name in (REFERENCES_FILE, PLACES_FILE, PAYLOADS_FILE)]
    references, places, payloads = context.cached(("stored items", parent.id, *stamps), read)
    # a card's folder is named after the suite's entry, as in the files; its protocol has the version as well
    benchmark = entry.path.name.removesuffix(f"-{card.header.protocol.split.value}")
    return StoredItems(
        dict(references.get(benchmark, {})), dict(places.get(benchmark, {})), payloads.get(benchmark, {})
    )


def found_by_field(stored: StoredItems, search: str) -> SqlTerm:
    """A card's rollouts whose items have a field that contains the text."""
    items = stored.matching(search) if search else []
    return SqlTerm(f"item_id in ({', '.join('?' * len(items))})", items) if items else NO_TERM


def question_of(record: ScoredRollout) -> str:
    """The last message of the prompt, which follows instructions and examples."""
    return record.rollout.prompt[-1].text if record.rollout.prompt else ""


def records_on(context: PageContext, entry: CatalogEntry, lines: Iterable[int]) -> Mapping[int, ScoredRollout]:
    """Line -> rollout; of a large card only those that a few of its parts hold."""
    return context.tables.pages(entry.path).at(lines, MOST_FRAMES)


def questions_on(context: PageContext, entry: CatalogEntry, lines: Iterable[int]) -> dict[int, str]:
    """Line -> question, of those."""
    return {line: question_of(record) for line, record in records_on(context, entry, lines).items()}


def shown_questions(questions: Mapping[KeyT, str], search: str = "") -> dict[KeyT, str]:
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
    context: PageContext,
    entry: CatalogEntry,
    card: CardFile,
    lines: Sequence[RolloutLine],
    links: Links,
    search: str = "",
    columns: Sequence[str] = (),
) -> tuple[RolloutLine, ...]:
    """Lines of a card whose items are not hidden, with what is known of the items. columns: fields of payloads."""
    stored, shelf = stored_items(context, entry, card), shelf_of(entry, links)
    records = records_on(context, entry, [line.line for line in lines])
    questions = shown_questions({line: question_of(record) for line, record in records.items()}, search)
    thumbnails = {line: shelf.in_list(record.rollout.prompt) for line, record in records.items()}
    return tuple(
        replace(
            line,
            question=questions.get(line.line, ""),
            reference=clean(stored.references.get(line.item_id, ""), REFERENCE_CHARACTERS),
            place=clean(stored.places.get(line.item_id, ""), 120),
            fields=_fields_of(stored, line.item_id, columns),
            thumbnail=thumbnails.get(line.line),
        )
        for line in lines
    )


def _fields_of(stored: StoredItems, item: str, columns: Sequence[str]) -> tuple[str, ...]:
    fields = stored.payloads.get(item, {})
    return tuple(clean(fields.get(name, ""), FIELD_CHARACTERS) for name in columns)


def toggled(name: str, listing: CardListing) -> str:
    """The columns of a list with one more or one less, as an address has them."""
    columns = [column for column in listing.all_columns if (column in listing.columns) != (column == name)]
    return ",".join(columns) or NO_COLUMNS


def with_listed_items(
    context: PageContext,
    entry: CatalogEntry,
    card: CardFile,
    listing: CardListing,
    card_filter: CardFilter,
    links: Links,
) -> CardListing:
    """A card's list with what is known of its items, which are not hidden."""
    stored = stored_items(context, entry, card)
    all_columns = stored.columns()
    named = stored.few_columns() if card_filter.columns is None else card_filter.columns
    columns = tuple(name for name in all_columns if name in named)
    lines = with_items(context, entry, card, listing.lines, links, card_filter.search, columns)
    return replace(listing, lines=lines, columns=columns, all_columns=all_columns)
