"""Two cards of the same questions, item by item: what one lost and won against the other, in whatever results they are.

Items are paired by id and attempt. The claim (better, worse, unclear) is that of `agent2 compare`; it is left out, with
the reason, where the cards' protocols differ or there are too many rollouts to compute it for a page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent2.cards.card import CardFile
from agent2.contract.compare import PASSES_AT
from agent2.errors import Agent2Error
from agent2.reports.text import clean
from agent2.stats.estimates import POINTS
from agent2.web.catalog import CatalogEntry, EntryKind
from agent2.web.page import Links, NoSuchPageError, PageAddress, PageContext
from agent2.web.rollouts import PAGE_ROWS, CardFilter, is_hidden_card, verdict_of

MOST_PAIRED = 50_000
"""Rollouts of both cards up to which the difference is computed with its interval."""
MOST_CHOICES = 60

KINDS = {
    "lost": f"old >= {PASSES_AT} and new < {PASSES_AT}",
    "won": f"old < {PASSES_AT} and new >= {PASSES_AT}",
    "both failed": f"old < {PASSES_AT} and new < {PASSES_AT}",
    "both passed": f"old >= {PASSES_AT} and new >= {PASSES_AT}",
    "no score": "old is null or new is null",
}
"""What can be listed -> the condition. A rollout that one card lacks has no score there."""
PAIRED = (
    "select coalesce(a.item_id, b.item_id) item_id, coalesce(a.attempt, b.attempt) attempt, a.line line, "
    "a.counted new, b.counted old, a.answer new_answer, b.answer old_answer "
    "from (select * from rollouts where card = ?) a "
    "full join (select * from rollouts where card = ?) b on a.item_id = b.item_id and a.attempt = b.attempt"
)


@dataclass(frozen=True, slots=True)
class PairedLine:
    """One item of both."""

    item_id: str
    attempt: int
    href: str
    """The rollout of the first card beside the other's; empty where the first has none."""
    verdicts: tuple[str, str]
    scores: tuple[str, str]
    answers: tuple[str, str]


def comparable(context: PageContext, entry: CatalogEntry, card: CardFile) -> list[tuple[str, str]]:
    """(id, name) of cards of the same benchmark and split, those of the same result first."""
    matches = []
    for candidate in context.catalog.scan().entries.values():
        if candidate.kind is not EntryKind.CARD or candidate.id == entry.id:
            continue
        other_card = context.card_file(candidate)
        if other_card is not None and _item_source(other_card) == _item_source(card):
            name = f"{other_card.header.checkpoint_name} ({candidate.path.parent.name}/{candidate.path.name})"
            matches.append((candidate.parent != entry.parent, candidate.display_path, candidate.id, clean(name, 120)))
    return [(card_id, name) for _, _, card_id, name in sorted(matches)[:MOST_CHOICES]]


def _item_source(card: CardFile) -> tuple[str, str]:
    """Benchmark and split."""
    return card.header.protocol.benchmark, card.header.protocol.split


def compare_page(context: PageContext, route: PageAddress, links: Links) -> str:
    """Every item of one card with its verdict here and on another card; `with` in the address names that one."""
    new = context.entry(route, EntryKind.CARD)
    old = context.catalog.get(route.query.get("with", ""), EntryKind.CARD)
    if old is None:
        raise NoSuchPageError("there is no such card to compare with; it may have been moved")
    sides = [new, old]
    cards = [context.tables.pages(side.path).card for side in sides]
    if any(card.state == "open" for card in cards):
        raise NoSuchPageError("a card is not finished; it can be compared when it is")
    if _item_source(cards[0]) != _item_source(cards[1]):
        raise NoSuchPageError("the cards are of two benchmarks or splits, so they have no item in common")
    names = [clean(card.header.checkpoint_name, 80) for card in cards]
    card_filter = CardFilter.of(route.query)
    kind = route.query.get("kind", "")
    kind = kind if kind in KINDS else ""
    hides = [is_hidden_card(card) and not context.shows_hidden for card in cards]
    counts = _counts(context, new, old)
    conditions, values = ([f"({KINDS[kind]})"] if kind else []), []
    if card_filter.search:
        columns = ["item_id", *(() if hides[0] else ("new_answer",)), *(() if hides[1] else ("old_answer",))]
        if card_filter.search == card_filter.search.lower():
            columns = [f"lower({column})" for column in columns]
        conditions.append(f"({' or '.join(f'contains({column}, ?)' for column in columns)})")
        values = [card_filter.search] * len(columns)
    where = f"where {' and '.join(conditions)}" if conditions else ""
    n_found = _rows(context, new, old, f"select count(*) from ({PAIRED}) {where}", values)[0][0]
    n_pages = max(1, -(-n_found // PAGE_ROWS))
    page = min(card_filter.page, n_pages)
    columns_sql = "item_id, attempt, line, new, old, new_answer, old_answer"
    sql = f"select {columns_sql} from ({PAIRED}) {where} order by line nulls last, item_id, attempt"
    rows = _rows(context, new, old, sql, values, (page - 1) * PAGE_ROWS)

    def line(row: Sequence[Any]) -> PairedLine:
        item_id, attempt, number, *scored = row
        scores, answers = scored[:2], scored[2:]
        return PairedLine(
            clean(item_id, 120),
            int(attempt),
            "" if number is None else links.to("rollout", new.id, int(number), beside=old.id),
            (verdict_of(scores[0]), verdict_of(scores[1])),
            tuple("no score" if score is None else f"{score:g}" for score in scores),  # type: ignore[arg-type]
            tuple("" if hidden else clean(answer or "", 120) for answer, hidden in zip(answers, hides, strict=True)),  # type: ignore[arg-type]
        )

    query = {"with": old.id, "kind": kind, "q": card_filter.search}
    return context.render(
        "compare.html.j2", links, new=new, old=old, names=names, cards=cards, counts=counts, kind=kind,
        card_filter=card_filter, lines=[line(row) for row in rows], n_found=n_found, page=page, n_pages=n_pages,
        hides=any(hides),
        claim=_claim(context, new, old, cards), breadcrumbs=context.breadcrumbs(new, links),
        at=lambda **changes: links.to("compare", new.id, **(query | changes)),
        swapped=links.to("compare", old.id, **(query | {"with": new.id, "kind": ""})),
    )  # fmt: skip


def _rows(
    context: PageContext, new: CatalogEntry, old: CatalogEntry, sql: str, values: Sequence[str], start: int = 0
) -> tuple[tuple[Any, ...], ...]:
    from agent2.cards.query import CardQueries  # loads duckdb

    key = ("pair tables", new.id, new.changed, old.id, old.changed)
    tables = context.cached(key, lambda: CardQueries([new.path, old.path]))
    rows: tuple[tuple[Any, ...], ...] = tables.page(sql, start, PAGE_ROWS, [str(new.path), str(old.path), *values]).rows
    return rows


def _counts(context: PageContext, new: CatalogEntry, old: CatalogEntry) -> Mapping[str, int]:
    """How many rollouts are of each kind, and of all."""
    parts = ", ".join(f"count(*) filter (where {condition})" for condition in KINDS.values())
    sql = f"select {parts}, count(*) from ({PAIRED})"
    key = ("pair counts", new.id, new.changed, old.id, old.changed)
    row = context.cached(key, lambda: _rows(context, new, old, sql, ())[0])
    return dict(zip((*KINDS, ""), row, strict=True))


def _claim(context: PageContext, new: CatalogEntry, old: CatalogEntry, cards: Sequence[CardFile]) -> tuple[str, str]:
    """(better, worse or unclear; the difference as text), or an empty claim and the reason why there is none."""
    n = sum(card.summary.n_rollouts for card in cards if card.summary is not None)
    if n > MOST_PAIRED:
        return "", f"{n:,} rollouts are too many to compute the interval here; `agent2 compare` does"

    def compare_cards() -> tuple[str, str]:
        from agent2.cards.compare import find_cards
        from agent2.contract.compare import compare

        try:
            row = compare(find_cards(old.path), [find_cards(new.path)]).rows[0]
        except Agent2Error as error:
            return "", f"no difference is computed: {clean(error, 400)}"
        pair = row.score.paired
        difference = f"{POINTS.estimate(pair.change)} points" if pair is not None else clean(row.why, 300)
        return row.outcome.value, difference

    claim: tuple[str, str] = context.cached(("pair", new.id, new.changed, old.id, old.changed), compare_cards)
    return claim
