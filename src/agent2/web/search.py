"""Search in the rollouts of every finished card of the folder at once.

Of hidden items only the id is searched and shown, unless the server shows them. A card that cannot be read is named and
hides no other.
"""

from collections.abc import Sequence
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


FoundLines = tuple[CatalogEntry, int, Sequence[int]]
"""A card, how many of its rollouts were found, and the first lines of them."""


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
    for entry, n, lines in counts[(page - 1) * CARDS_SHOWN : page * CARDS_SHOWN]:
        title = clean(f"{cards[entry.id].header.checkpoint_name} on {cards[entry.id].header.protocol.benchmark}", 200)
        hides = is_hidden_card(cards[entry.id]) and not context.shows_hidden
        found.append(FoundOnCard(entry, title, n, _lines(context, entry, lines, wanted, hides=hides)))
    query = wanted.query()

    def on_card(entry: CatalogEntry) -> str:
        """The address of a card's own list, filtered alike."""
        return links.to("card", entry.id, **{name: value for name, value in query.items() if name != "page"})

    return context.render(
        "search.html.j2", links, wanted=wanted, found=found, page=page, n_pages=n_pages, on_card=on_card, query=query,
        n_cards=len(counts), n_found=sum(n for _, n, _ in counts), n_searched=len(searched),
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
    rows = context.keep(key, lambda: _queries(context, entries).page(sql, 0, len(entries), values).rows)
    by_path = {str(one.path): one for one in entries}
    return [(by_path[card], int(n), lines) for card, n, lines in rows]


def _lines(
    context: PageContext, entry: CatalogEntry, lines: Sequence[int], wanted: CardFilter, *, hides: bool
) -> tuple[RolloutLine, ...]:
    """Rollouts of one card as its list shows them; found in a turn, with the words around."""
    exact = wanted.search != wanted.search.lower()
    text = TURNS_TEXT if exact else f"lower({TURNS_TEXT})"
    answer = f"substr({TURNS_TEXT}, greatest(1, strpos({text}, ?) - {AROUND}), {4 * AROUND})"
    in_turns = wanted.everywhere and not hides
    columns = [answer if name == "answer" and in_turns else name for name in COLUMNS]
    numbers = ", ".join(str(int(line)) for line in lines)
    sql = f"select {', '.join(columns)} from rollouts where line in ({numbers}) order by line"
    rows = context.tables.rows(entry.path, sql, [wanted.search] if in_turns else [])
    return tuple(rollout_line(dict(zip(COLUMNS, row, strict=True)), hides=hides) for row in rows)
