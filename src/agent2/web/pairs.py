"""Two cards of the same questions, item by item: what one lost and won against the other, in whatever results they are.

Items are paired by id and attempt. The claim (better, worse, unclear) is that of `agent2 compare`; it is left out, with
the reason, where the cards' protocols differ or there are too many rollouts to compute it for a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent2.cards.card import CardFile
from agent2.errors import Agent2Error
from agent2.reports.text import clean
from agent2.stats.estimates import POINTS
from agent2.web.catalog import CatalogEntry, EntryKind
from agent2.web.page import Links, NoSuchPageError, PageAddress, PageContext
from agent2.web.rollouts import PAGE_ROWS, CardFilter, is_hidden_card, verdict_of

if TYPE_CHECKING:
    from agent2.analysis.pairs import RolloutPairs

MOST_PAIRED = 50_000
"""Rollouts of both cards up to which the difference is computed with its interval."""
MOST_CHOICES = 60


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
    from agent2.analysis.pairs import ALL, KINDS, PairedRollouts, PairFilter  # loads duckdb

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
    kind = kind if kind in KINDS else ALL
    hides = [is_hidden_card(card) and not context.shows_hidden for card in cards]
    pairs = _pairs(context, new, old)
    counts = context.cached(("pair counts", new.id, new.changed, old.id, old.changed), pairs.counts)
    pair_filter = PairFilter(kind, card_filter.search, in_new_answers=not hides[0], in_old_answers=not hides[1])
    n_found = pairs.count(pair_filter)
    n_pages = max(1, -(-n_found // PAGE_ROWS))
    page = min(card_filter.page, n_pages)

    def line(pair: PairedRollouts) -> PairedLine:
        return PairedLine(
            clean(pair.item_id, 120),
            pair.attempt,
            "" if pair.line is None else links.to("rollout", new.id, pair.line, beside=old.id),
            (verdict_of(pair.scores[0]), verdict_of(pair.scores[1])),
            tuple("no score" if score is None else f"{score:g}" for score in pair.scores),  # type: ignore[arg-type]
            tuple(
                "" if hidden else clean(answer or "", 120) for answer, hidden in zip(pair.answers, hides, strict=True)
            ),  # type: ignore[arg-type]
        )

    lines = [line(pair) for pair in pairs.page(pair_filter, (page - 1) * PAGE_ROWS, PAGE_ROWS)]
    query = {"with": old.id, "kind": kind, "q": card_filter.search}
    return context.render(
        "compare.html.j2", links, new=new, old=old, names=names, cards=cards, counts=counts, kind=kind,
        card_filter=card_filter, lines=lines, n_found=n_found, page=page, n_pages=n_pages,
        hides=any(hides),
        claim=_claim(context, new, old, cards), breadcrumbs=context.breadcrumbs(new, links),
        at=lambda **changes: links.to("compare", new.id, **(query | changes)),
        swapped=links.to("compare", old.id, **(query | {"with": new.id, "kind": ""})),
    )  # fmt: skip


def _pairs(context: PageContext, new: CatalogEntry, old: CatalogEntry) -> "RolloutPairs":
    from agent2.analysis.pairs import RolloutPairs  # loads duckdb

    key = ("pair tables", new.id, new.changed, old.id, old.changed)
    pairs: RolloutPairs = context.cached(key, lambda: RolloutPairs(new.path, old.path))
    return pairs


def _claim(context: PageContext, new: CatalogEntry, old: CatalogEntry, cards: Sequence[CardFile]) -> tuple[str, str]:
    """(better, worse or unclear; the difference as text), or an empty claim and the reason why there is none."""
    n = sum(card.summary.n_rollouts for card in cards if card.summary is not None)
    if n > MOST_PAIRED:
        return "", f"{n:,} rollouts are too many to compute the interval here; `agent2 compare` does"

    def compare_cards() -> tuple[str, str]:
        from agent2.analysis.compare import compare
        from agent2.cards.comparability import find_cards

        try:
            row = compare(find_cards(old.path), [find_cards(new.path)]).rows[0]
        except Agent2Error as error:
            return "", f"no difference is computed: {clean(error, 400)}"
        pair = row.score.paired
        difference = f"{POINTS.estimate(pair.change)} points" if pair is not None else clean(row.why, 300)
        return row.outcome.value, difference

    claim: tuple[str, str] = context.cached(("pair", new.id, new.changed, old.id, old.changed), compare_cards)
    return claim
