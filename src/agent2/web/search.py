"""Search in the rollouts of every finished card of the folder at once.

Of hidden items only the id is searched and shown, unless the server shows them. A card that cannot be read is named and
hides no other.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from agent2.errors import Agent2Error
from agent2.records import HIDDEN_SPLITS
from agent2.reports.text import clean
from agent2.web.catalog import CatalogEntry, EntryKind
from agent2.web.page import Links, NoSuchPageError, PageAddress, PageContext
from agent2.web.rollouts import COLUMNS, TURNS_TEXT, CardFilter, RolloutLine, is_hidden_card, rollout_line

MOST_CARDS = 2_000
"""The newest ones are searched."""
CARDS_SHOWN, LINES_SHOWN = 20, 5
"""Cards on a page, and rollouts of each."""
AROUND = 60
"""Characters before what was found in a turn."""


@dataclass(frozen=True, slots=True)
class FoundOnCard:
    """What one card has of it."""

    entry: CatalogEntry
    title: str
    n: int
    lines: tuple[RolloutLine, ...]
    """The first ones."""


FoundLines = tuple[CatalogEntry, int, Sequence[int], Any]
"""A card, how many of its rollouts were found, the first lines of them, and the tables that they are in."""


def search_page(context: PageContext, route: PageAddress, links: Links) -> str:
    """Cards with rollouts that contain what was asked for, the one with most first."""
    if route.id:
        raise NoSuchPageError("the search is one page")
    asked = CardFilter.of(route.query)
    wanted = CardFilter(asked.search, everywhere=asked.everywhere, show=asked.show, page=asked.page)
    entries = sorted(
        (one for one in context.catalog.findings().entries.values() if one.kind is EntryKind.CARD),
        key=lambda one: (-one.changed, one.place),
    )
    cards = {one.id: card for one in entries if (card := context.card_file(one)) and card.state == "closed"}
    closed = [one for one in entries if one.id in cards]
    searched = closed[:MOST_CARDS]
    problems: list[str] = []
    counts: list[FoundLines] = []
    found: list[FoundOnCard] = []
    if wanted.search:
        counts = sorted(_everywhere(context, searched, wanted, problems), key=lambda one: (-one[1], one[0].place))
    n_pages = max(1, -(-len(counts) // CARDS_SHOWN))
    page = min(wanted.page, n_pages)
    shown = counts[(page - 1) * CARDS_SHOWN : page * CARDS_SHOWN]
    hidden = {entry.id for entry, *_ in shown if is_hidden_card(cards[entry.id]) and not context.shows_hidden}
    lines = _lines(context, shown, wanted, hidden)
    for entry, n, *_ in shown:
        title = clean(f"{cards[entry.id].header.checkpoint_name} on {cards[entry.id].header.protocol.benchmark}", 200)
        found.append(FoundOnCard(entry, title, n, tuple(lines.get(entry.id, ()))))
    query = wanted.query()

    def on_card(entry: CatalogEntry) -> str:
        """The address of a card's own list, filtered alike."""
        return links.to("card", entry.id, **{name: value for name, value in query.items() if name != "page"})

    return context.render(
        "search.html.j2", links, wanted=wanted, found=found, page=page, n_pages=n_pages, on_card=on_card, query=query,
        n_cards=len(counts), n_found=sum(one[1] for one in counts), n_searched=len(searched),
        n_left_out=len(closed) - len(searched), problems=problems,
    )  # fmt: skip


def _everywhere(
    context: PageContext, entries: Sequence[CatalogEntry], wanted: CardFilter, problems: list[str]
) -> list[FoundLines]:
    """Every card at once, or one by one where one of them cannot be read."""
    try:
        return _counts(context, entries, wanted) if entries else []
    except Agent2Error:
        found: list[FoundLines] = []
        for one in entries:
            try:
                found += _counts(context, [one], wanted)
            except Agent2Error as error:
                problems.append(f"{one.place}: {clean(error, 300)}")
        return found


def _queries(context: PageContext, entries: Sequence[CatalogEntry]) -> Any:
    """Tables of the cards, kept until one of them changes."""
    from agent2.cards.query import CardQueries  # loads duckdb

    key = ("tables", *((one.id, one.changed) for one in entries))
    return context.keep(key, lambda: CardQueries([one.path for one in entries]))


def _counts(context: PageContext, entries: Sequence[CatalogEntry], wanted: CardFilter) -> list[FoundLines]:
    where, values = wanted.condition(is_hidden=False)
    if not context.shows_hidden:
        ids, id_values = wanted.condition(is_hidden=True)
        splits = ", ".join(repr(split.value) for split in sorted(HIDDEN_SPLITS))
        seen, by_id = where.removeprefix("where "), ids.removeprefix("where ")
        where = f"where (split in ({splits}) and {by_id}) or (split not in ({splits}) and {seen})"
        values = [*id_values, *values]
    sql = f"select card, count(*), min(line, {LINES_SHOWN}) from rollouts {where} group by card"
    key = ("search", sql, *values, *((one.id, one.changed) for one in entries))
    tables = _queries(context, entries)
    rows = context.keep(key, lambda: tables.page(sql, 0, len(entries), values).rows)
    by_path = {str(one.path): one for one in entries}
    return [(by_path[card], int(n), lines, tables) for card, n, lines in rows]


def _lines(
    context: PageContext, shown: Sequence[FoundLines], wanted: CardFilter, hidden: Collection[str]
) -> dict[str, list[RolloutLine]]:
    """Card's id -> its rollouts as its list shows them; found in a turn, with the words around. hidden: ids, too."""
    text = TURNS_TEXT if wanted.search != wanted.search.lower() else f"lower({TURNS_TEXT})"
    around = f"substr({TURNS_TEXT}, greatest(1, strpos({text}, ?) - {AROUND}), {4 * AROUND})"
    columns = [around if name == "answer" and wanted.everywhere else name for name in COLUMNS]
    found: dict[str, list[RolloutLine]] = {}
    groups: dict[int, list[FoundLines]] = {}
    for one in shown:
        groups.setdefault(id(one[3]), []).append(one)
    for group in groups.values():
        places = " or ".join(f"(card = ? and line in ({', '.join(map(str, lines))}))" for _, _, lines, _ in group)
        values = [wanted.search] * wanted.everywhere + [str(entry.path) for entry, *_ in group]
        sql = f"select card, {', '.join(columns)} from rollouts where {places} order by card, line"
        by_path = {str(entry.path): entry.id for entry, *_ in group}
        for card, *row in group[0][3].page(sql, 0, CARDS_SHOWN * LINES_SHOWN, values).rows:
            key = by_path[card]
            line = rollout_line(dict(zip(COLUMNS, row, strict=True)), hides=key in hidden)
            found.setdefault(key, []).append(line)
    return found
