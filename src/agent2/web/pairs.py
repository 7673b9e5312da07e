"""Two cards of the same questions, item by item: what one lost and won against the other, in whatever results they are.

Items are paired by id and attempt. The claim (better, worse, unclear) is that of `agent2 compare`; it is left out, with
the reason, where the cards' protocols differ or there are too many rollouts to compute it for a page.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent2.cards.card import CardFile
from agent2.errors import Agent2Error
from agent2.reports.text import clean
from agent2.stats.estimates import POINTS
from agent2.web.entries import CatalogEntry, EntryKind
from agent2.web.items import REFERENCE_CHARACTERS, questions_on, shown_questions, stored_items
from agent2.web.page import Links, NoSuchPageError, PageAddress, PageContext
from agent2.web.rollouts import PAGE_ROWS, CardFilter, is_hidden_card, searches_questions, verdict_of

if TYPE_CHECKING:
    from agent2.analysis.pairs import PairedRollouts, RolloutPairs

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
    line: int | None
    """Of the first card."""
    question: str = ""
    """Empty for a hidden item, as are the next two."""
    reference: str = ""
    place: str = ""

    @property
    def has_answer(self) -> bool:
        """Whether there is an answer to be shown on either side."""
        return any(self.answers)


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
    in_questions = not any(hides) and all(map(searches_questions, cards))
    pair_filter = PairFilter(
        kind, card_filter.search, in_new_answers=not hides[0], in_old_answers=not hides[1], in_questions=in_questions
    )
    n_found = pairs.count(pair_filter)
    n_pages = max(1, -(-n_found // PAGE_ROWS))
    page = min(card_filter.page, n_pages)

    here = {"beside": old.id, "kind": kind, "pairs": page if page > 1 else ""}

    def line(pair: PairedRollouts) -> PairedLine:
        return PairedLine(
            clean(pair.item_id, 120),
            pair.attempt,
            "" if pair.line is None else links.to("rollout", new.id, pair.line, **here),
            (verdict_of(pair.scores[0]), verdict_of(pair.scores[1])),
            tuple("no score" if score is None else f"{score:g}" for score in pair.scores),  # type: ignore[arg-type]
            tuple(
                "" if hidden else clean(answer or "", 120) for answer, hidden in zip(pair.answers, hides, strict=True)
            ),  # type: ignore[arg-type]
            pair.line,
        )

    pairs_here = pairs.page(pair_filter, (page - 1) * PAGE_ROWS, PAGE_ROWS)
    lines = [line(pair) for pair in pairs_here]
    if not any(hides):
        lines = _with_items(context, (new, old), cards[0], pairs_here, lines, card_filter.search)
    query = {"with": old.id, "kind": kind, "q": card_filter.search}
    return context.render(
        "compare.html.j2", links, new=new, old=old, names=names, cards=cards, counts=counts, kind=kind,
        card_filter=card_filter, lines=lines, n_found=n_found, page=page, n_pages=n_pages,
        hides=any(hides), looked_in=_looked_in(any(hides), in_questions=in_questions),
        claim=_claim(context, new, old, cards), breadcrumbs=context.breadcrumbs(new, links),
        at=lambda **changes: links.to("compare", new.id, **(query | changes)),
        swapped=links.to("compare", old.id, **(query | {"with": new.id, "kind": ""})),
    )  # fmt: skip


def _looked_in(hides: bool, *, in_questions: bool) -> str:
    """Where the search of a comparison looks, in words."""
    return "item ids" if hides else f"item ids, {'questions, ' if in_questions else ''}answers of both"


def _with_items(
    context: PageContext,
    sides: tuple[CatalogEntry, CatalogEntry],
    card: CardFile,
    pairs: Sequence["PairedRollouts"],
    lines: Sequence[PairedLine],
    search: str,
) -> list[PairedLine]:
    """The lines with what is stored of the items, which are not hidden: of the first card, else of the other."""
    stored = [stored_items(context, side, card) for side in sides]
    on_new = questions_on(context, sides[0], [pair.line for pair in pairs if pair.line is not None])
    only_old = [pair.old_line for pair in pairs if pair.line is None and pair.old_line is not None]
    on_old = questions_on(context, sides[1], only_old)
    questions = {
        number: on_old.get(pair.old_line or 0, "") if pair.line is None else on_new.get(pair.line, "")
        for number, pair in enumerate(pairs)
    }
    question_texts = shown_questions(questions, search)
    references = stored[1].references | stored[0].references
    places = stored[1].places | stored[0].places
    return [
        replace(
            line,
            question=question_texts[number],
            reference=clean(references.get(pair.item_id, ""), REFERENCE_CHARACTERS),
            place=clean(places.get(pair.item_id, ""), 120),
        )
        for number, (pair, line) in enumerate(zip(pairs, lines, strict=True))
    ]


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
        from agent2.analysis.compare import Outcome, compare
        from agent2.cards.comparability import find_cards

        try:
            row = compare(find_cards(old.path), [find_cards(new.path)]).rows[0]
        except Agent2Error as error:
            return "", f"no difference is computed: {clean(error, 400)}"
        pair = row.score.paired
        difference = f"{POINTS.estimate(pair.change)} points" if pair is not None else clean(row.why, 300)
        if pair is not None and row.outcome is Outcome.UNCLEAR:
            difference += f"; {clean(row.why, 300)}"
        return row.outcome.value, difference

    claim: tuple[str, str] = context.cached(("pair", new.id, new.changed, old.id, old.changed), compare_cards)
    return claim
