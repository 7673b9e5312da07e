"""Search in the rollouts of every finished card of the folder at once.

Of hidden items only the id is searched and shown, unless the server shows them. A card that cannot be read is named and
hides no other.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent2.cards.card import CardFile
from agent2.errors import Agent2Error
from agent2.records import HIDDEN_SPLITS
from agent2.reports.text import clean
from agent2.web.entries import CatalogEntry, EntryKind
from agent2.web.items import MOST_MATCHES, stored_items, with_items
from agent2.web.page import Links, NoSuchPageError, PageAddress, PageContext
from agent2.web.rollouts import (
    COLUMNS,
    NO_TERM,
    TURNS_TEXT,
    BesideCard,
    CardFilter,
    RolloutLine,
    SqlTerm,
    is_hidden_card,
    rollout_line,
    searches_questions,
)

MOST_ROLLOUTS = 200_000
"""Of the cards whose questions a search looks into."""
MOST_CARDS = 2_000
"""The newest ones are searched."""
CARDS_SHOWN, LINES_SHOWN = 20, 5
"""Cards on a page, and rollouts of each."""
AROUND = 60
"""Characters before a match in a turn."""


@dataclass(frozen=True, slots=True)
class CardMatches:
    """One card's section of the page."""

    entry: CatalogEntry
    title: str
    n: int
    """Of its rollouts that match."""
    lines: tuple[RolloutLine, ...]
    """The first of them."""


class CardHits(NamedTuple):
    """The matching rollouts of one card, before their texts are read."""

    entry: CatalogEntry
    n: int
    lines: Sequence[int]
    """Numbers of the first of them."""
    tables: Any
    """The `CardQueries` that answered; several cards share one."""


def search_page(context: PageContext, route: PageAddress, links: Links) -> str:
    """Cards with rollouts that contain the text searched for, the one with most first; withheld texts come last."""
    if route.id:
        raise NoSuchPageError("the search is one page")
    requested = CardFilter.of(route.query)
    card_filter = CardFilter(
        requested.search, everywhere=requested.everywhere, show=requested.show, page=requested.page
    )
    entries = sorted(
        (entry for entry in context.catalog.scan().entries.values() if entry.kind is EntryKind.CARD),
        key=lambda entry: (-entry.changed, entry.display_path),
    )
    cards = {entry.id: card for entry in entries if (card := context.card_file(entry)) and card.state == "closed"}
    closed = [entry for entry in entries if entry.id in cards]
    searched = closed[:MOST_CARDS]
    problems: list[str] = []
    counts: list[CardHits] = []
    sections: list[CardMatches] = []
    has_hidden = not context.shows_hidden and any(is_hidden_card(cards[entry.id]) for entry in searched)
    questioned = _with_questions(searched, cards)
    fields = _by_field(context, searched, cards, card_filter.search) if card_filter.search else {}
    if card_filter.search:
        found_hits = _everywhere(context, questioned, card_filter, fields, problems, in_questions=True)
        others = [entry for entry in searched if entry not in questioned]
        found_hits += _everywhere(context, others, card_filter, fields, problems, in_questions=False)
        withheld = {entry.id for entry in searched if is_hidden_card(cards[entry.id]) and not context.shows_hidden}
        # of hidden items only ids are found, in which a number is there by chance
        counts = sorted(found_hits, key=lambda hits: (hits.entry.id in withheld, -hits.n, hits.entry.display_path))
    n_pages = max(1, -(-len(counts) // CARDS_SHOWN))
    page = min(card_filter.page, n_pages)
    hits_on_page = counts[(page - 1) * CARDS_SHOWN : page * CARDS_SHOWN]
    on_page = [hits.entry for hits in hits_on_page]
    hidden = {entry.id for entry in on_page if is_hidden_card(cards[entry.id]) and not context.shows_hidden}
    lines = _lines(context, hits_on_page, card_filter, hidden)
    for hits in hits_on_page:
        entry, header = hits.entry, cards[hits.entry.id].header
        title = clean(f"{header.checkpoint_name} on {header.protocol.benchmark}", 200)
        card_lines = tuple(lines.get(entry.id, ()))
        if entry.id not in hidden:
            card_lines = with_items(context, entry, cards[entry.id], card_lines, links, card_filter.search)
        sections.append(CardMatches(entry, title, hits.n, card_lines))
    query = card_filter.query()

    def on_card(entry: CatalogEntry) -> str:
        """The address of a card's own list, filtered alike."""
        return links.to("card", entry.id, **{name: value for name, value in query.items() if name != "page"})

    return context.render(
        "search.html.j2", links, card_filter=card_filter, sections=sections, page=page, n_pages=n_pages,
        on_card=on_card, query=query, n_cards=len(counts), n_found=sum(hits.n for hits in counts),
        looked_in=card_filter.looked_in(is_hidden=False, in_questions=bool(questioned), in_fields=bool(fields)),
        n_unquestioned=len(searched) - len(questioned), has_hidden=has_hidden,
        n_searched=len(searched), n_left_out=len(closed) - len(searched), problems=problems,
    )  # fmt: skip


def _with_questions(entries: Sequence[CatalogEntry], cards: Mapping[str, CardFile]) -> list[CatalogEntry]:
    """The cards whose questions are searched too: no large ones, and the newest up to `MOST_ROLLOUTS` together."""
    questioned, n = [], 0
    for entry in entries:
        n += sum(frame.n_rollouts for frame in cards[entry.id].frames) if searches_questions(cards[entry.id]) else 0
        if n <= MOST_ROLLOUTS and searches_questions(cards[entry.id]):
            questioned.append(entry)
    return questioned


ItemsByCard = Mapping[str, Sequence[str]]
"""Card's id -> items that a search finds by fields of their payloads, of the cards that have such fields."""


def _by_field(
    context: PageContext, entries: Sequence[CatalogEntry], cards: Mapping[str, CardFile], search: str
) -> ItemsByCard:
    items_by_card: dict[str, Sequence[str]] = {}
    for entry in entries:
        if context.shows_hidden or not is_hidden_card(cards[entry.id]):
            stored = stored_items(context, entry, cards[entry.id])
            if stored.payloads:
                n_left = MOST_MATCHES - sum(map(len, items_by_card.values()))
                items_by_card[entry.id] = stored.matching(search)[:n_left]
    return items_by_card


def _on_cards(entries: Sequence[CatalogEntry], fields: ItemsByCard) -> SqlTerm:
    """The rollouts of several cards whose items are found by fields of their payloads."""
    parts, values = [], []
    for entry in entries:
        if items := fields.get(entry.id):
            parts.append(f"(card = ? and item_id in ({', '.join('?' * len(items))}))")
            values += [str(entry.path), *items]
    return SqlTerm(f"({' or '.join(parts)})", values) if parts else NO_TERM


def _everywhere(
    context: PageContext,
    entries: Sequence[CatalogEntry],
    card_filter: CardFilter,
    fields: ItemsByCard,
    problems: list[str],
    *,
    in_questions: bool,
) -> list[CardHits]:
    """Every card at once, or one by one where one of them cannot be read."""
    try:
        return _counts(context, entries, card_filter, fields, in_questions=in_questions) if entries else []
    except Agent2Error:
        hits: list[CardHits] = []
        for entry in entries:
            try:
                hits += _counts(context, [entry], card_filter, fields, in_questions=in_questions)
            except Agent2Error as error:
                problems.append(f"{entry.display_path}: {clean(error, 300)}")
        return hits


def _queries(context: PageContext, entries: Sequence[CatalogEntry]) -> Any:
    """Tables of the cards, cached until one of them changes."""
    from agent2.cards.query import CardQueries  # loads duckdb

    key = ("tables", *((entry.id, entry.changed) for entry in entries))
    return context.cached(key, lambda: CardQueries([entry.path for entry in entries]))


def _counts(
    context: PageContext,
    entries: Sequence[CatalogEntry],
    card_filter: CardFilter,
    fields: ItemsByCard,
    *,
    in_questions: bool,
) -> list[CardHits]:
    beside = BesideCard(by_field=_on_cards(entries, fields))
    where, values = card_filter.condition(is_hidden=False, in_questions=in_questions, beside=beside)
    if not context.shows_hidden:
        # a match in a hidden text, even if only counted, would tell what the text contains
        ids, id_values = card_filter.condition(is_hidden=True)
        splits = ", ".join(repr(split.value) for split in sorted(HIDDEN_SPLITS))
        by_text, by_id = where.removeprefix("where "), ids.removeprefix("where ")
        where = f"where (split in ({splits}) and {by_id}) or (split not in ({splits}) and {by_text})"
        values = [*id_values, *values]
    sql = f"select card, count(*), min(line, {LINES_SHOWN}) from rollouts {where} group by card"
    key = ("search", sql, *values, *((entry.id, entry.changed) for entry in entries))
    tables = _queries(context, entries)
    rows = context.cached(key, lambda: tables.page(sql, 0, len(entries), values).rows)
    by_path = {str(entry.path): entry for entry in entries}
    return [CardHits(by_path[card], int(n), lines, tables) for card, n, lines in rows]


def _lines(
    context: PageContext, hits: Sequence[CardHits], card_filter: CardFilter, hidden: Collection[str]
) -> dict[str, list[RolloutLine]]:
    """Card's id -> its rollouts as its list shows them; a match in a turn with the text around it. hidden: card ids."""
    text = TURNS_TEXT if card_filter.search != card_filter.search.lower() else f"lower({TURNS_TEXT})"
    around = f"substr({TURNS_TEXT}, greatest(1, strpos({text}, ?) - {AROUND}), {4 * AROUND})"
    columns = [around if name == "answer" and card_filter.everywhere else name for name in COLUMNS]
    lines_by_card: dict[str, list[RolloutLine]] = {}
    groups: dict[int, list[CardHits]] = {}
    for card_hits in hits:
        groups.setdefault(id(card_hits.tables), []).append(card_hits)
    for group in groups.values():
        chosen = " or ".join(f"(card = ? and line in ({', '.join(map(str, card_hits.lines))}))" for card_hits in group)
        values = [card_filter.search] * card_filter.everywhere + [str(card_hits.entry.path) for card_hits in group]
        sql = f"select card, {', '.join(columns)} from rollouts where {chosen} order by card, line"
        by_path = {str(card_hits.entry.path): card_hits.entry.id for card_hits in group}
        for card, *row in group[0].tables.page(sql, 0, CARDS_SHOWN * LINES_SHOWN, values).rows:
            key = by_path[card]
            line = rollout_line(dict(zip(COLUMNS, row, strict=True)), hides=key in hidden)
            lines_by_card.setdefault(key, []).append(line)
    return lines_by_card
