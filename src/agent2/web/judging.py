"""Judges and people: what a judgement card says of its judge, who else judged the same answers, and spot checks.

A spot check here follows the rules of `evaluation.spot_check` and leaves the same records: the sample is drawn from the
cards, a rater sees neither verdicts nor, of two answers, whose is whose, and all raters get one sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2.cards.card import CardFile
from agent2.cards.judgement import BASELINE, JUDGEMENT, PairwiseJudgement, read_judgement
from agent2.contract.compare import PASSES_AT
from agent2.errors import Agent2Error, ConfigError, NotEnoughData
from agent2.reports.text import UNCUT, clean, clean_lines
from agent2.stats.estimates import Notation
from agent2.web.catalog import CatalogEntry, EntryKind
from agent2.web.page import Links, LiveLinks, NoSuchPageError, PageAddress, PageContext
from agent2.web.rollouts import CardTables

MOST_JUDGED = 100_000
"""Rollouts of a card up to which two judges are held against each other."""
MOST_SHOWN = 30
SHARE = Notation(".3f")
"""Agreement and kappa."""
DEFAULT_N, MOST_N = 30, 200
"""Rollouts of a spot check, unless somebody began one with another number."""
MAX_NOTE, MAX_RATER = 1_000, 80
"""Characters."""


@dataclass(frozen=True, slots=True)
class OtherJudge:
    """Another scorer of the same answers."""

    name: str
    n: int
    """Rollouts on which both have a verdict."""
    n_same: int
    kappa: str
    differing: tuple[tuple[str, int, str, str], ...]
    """(item, attempt, this verdict, the other's) of the first ones."""
    n_differing: int


def judge_name(card: CardFile) -> str:
    """The scorer of a card, with the model that it asks where it asks one."""
    told = card.header.lock.get(JUDGEMENT)
    settings = told.get("settings", {}) if isinstance(told, Mapping) else {}
    asked = settings.get("model") or settings.get("judge") if isinstance(settings, Mapping) else None
    return clean(card.header.protocol.scorer + (f" ({asked})" if asked else ""), 120)


def answers_of(card: CardFile) -> tuple[object, ...]:
    """Equal for cards on which the same answers are judged."""
    header, told = card.header, card.header.lock.get(JUDGEMENT)
    sides = (str(told.get("new")), str(told.get("old"))) if isinstance(told, Mapping) else ()
    protocol = header.protocol
    return (header.checkpoint_digest, protocol.benchmark, protocol.split, protocol.items_digest, header.seed, sides)


def other_judge(tables: CardTables, own: tuple[Path, CardFile], other: tuple[Path, CardFile]) -> OtherJudge:
    """Two judges side by side. Raises CardError for a damaged card."""
    from agent2.stats.quality import cohens_kappa

    is_pairwise = JUDGEMENT in own[1].header.lock
    columns: list[dict[tuple[str, int], str]] = []
    for path, _ in (own, other):
        sql = "select item_id, attempt, counted from rollouts where counted is not null order by item_id, attempt"
        rows = tables.rows(path, sql, n=MOST_JUDGED)
        columns.append({(item, attempt): _verdict(value, is_pairwise=is_pairwise) for item, attempt, value in rows})
    both = [key for key in columns[0] if key in columns[1]]
    pairs = [(columns[0][key], columns[1][key]) for key in both]
    try:
        kappa = SHARE.estimate(cohens_kappa([mine for mine, _ in pairs], [its for _, its in pairs]))
    except NotEnoughData:
        kappa = "not known"
    differing = [(*key, *pair) for key, pair in zip(both, pairs, strict=True) if pair[0] != pair[1]]
    return OtherJudge(
        judge_name(other[1]),
        len(both),
        len(both) - len(differing),
        kappa,
        tuple(differing[:MOST_SHOWN]),
        len(differing),
    )


def _verdict(value: float, *, is_pairwise: bool) -> str:
    if is_pairwise:
        return "tie" if value == BASELINE else "new wins" if value > BASELINE else "old wins"
    return "right" if value >= PASSES_AT else "wrong"


def position_words(judged: PairwiseJudgement) -> str:
    """What is known of a judge's liking for the place at which an answer is shown."""
    if judged.first_shown is None:
        return "Position bias: not known, the judge was asked about no comparison"
    n = judged.n_wins + judged.n_ties + judged.n_losses
    flips = f"; {judged.n_flips} of {n} verdicts turned with the order" if n else ""
    share = f"{100 * judged.first_shown:.1f}%"
    return f"Position bias: the answer shown first got {share} of the points (50% without bias){flips}"


def judges_of(
    context: PageContext, entry: CatalogEntry, card: CardFile, links: Links
) -> tuple[str, list[tuple[OtherJudge, str, Any]]]:
    """What is known of a judge, and (other judge of the same answers, its card's address, links to items)."""
    words = position_words(read_judgement(entry.path)) if JUDGEMENT in card.header.lock else ""
    found = []
    for one in context.catalog.findings().entries.values():
        other = context.card_file(one) if one.kind is EntryKind.CARD and one.id != entry.id else None
        if other is None or other.state == "open" or answers_of(other) != answers_of(card):
            continue
        if judge_name(other) != judge_name(card):
            told = other_judge(context.tables, (entry.path, card), (one.path, other))
            found.append((told, links.to("card", one.id), one))
    return words, found


def form_of(folder: Path, asked: Mapping[str, str]) -> tuple[Any, list[str]]:
    """The sample that people are asked about, and the names of those who have judged it.

    asked: `n` and `seed`, for the first rater; the others get the sample of the first. Raises ConfigError for a folder
    whose cards give none, CardError for a card that is not finished or damaged.
    """
    from agent2.evaluation.spot_check import sample_to_rate

    n = _number(asked, "n", DEFAULT_N)
    if n > MOST_N:
        raise ConfigError(f"n={n}: at most {MOST_N} rollouts fit on a page; use `agent2 spotcheck draw` for more")
    sample, forms = sample_to_rate(folder, n, _number(asked, "seed", 0))
    if len(sample.rollouts) > MOST_N:
        raise ConfigError(f"{folder}: the sample has {sample.n} rollouts, too many for a page; use `agent2 spotcheck`")
    return sample, [clean(form.rater, 80) for form in forms]


def _number(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name, "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConfigError(f"{name}={clean(text, 40)!r} is not a number of a spot check")
    return int(text) if text else default


def form_rows_shown(sample: Any) -> list[dict[str, Any]]:
    """What a rater sees of each rollout."""
    from agent2.evaluation.spot_check import form_rows

    return [{name: clean_lines(text, 25_000) if isinstance(text, str) else text for name, text in row.items()}
            for row in form_rows(sample)]  # fmt: skip


def record_ratings(folder: Path, given: Mapping[str, str]) -> Path:
    """Keep what a rater sent; returns where. Raises as `evaluation.spot_check.record_verdicts`."""
    from agent2.evaluation.spot_check import RecordedForm, record_verdicts

    verdicts = {name[1:]: value for name, value in given.items() if name[:1] == "v" and name[1:].isdigit() and value}
    notes = {
        name[4:]: clean_lines(value, UNCUT * len(value))
        for name, value in given.items()
        if name.startswith("note") and name[4:].isdigit() and value.strip()
    }
    if long := [f"{number} ({len(text):,})" for number, text in notes.items() if len(text) > MAX_NOTE]:
        raise ConfigError(f"notes have at most {MAX_NOTE:,} characters; shorten that of rollout {', '.join(long)}")
    n, seed = _number(given, "n", DEFAULT_N), _number(given, "seed", 0)
    rater = clean(given.get("rater", ""), MAX_NOTE)
    if len(rater) > MAX_RATER:
        raise ConfigError(f"your name has {len(rater)} characters, at most {MAX_RATER} are kept; shorten it")
    return record_verdicts(folder, RecordedForm(given.get("sample", ""), n, seed, rater, verdicts, notes))


def agreement_fields(folder: Path) -> tuple[list[str], Any, list[Sequence[str]]]:
    """Who has judged; from two people on also the report, and rows of (who, agreement, rollouts, kappa).

    Raises ConfigError for forms that are about other rollouts than the cards hold now.
    """
    from agent2.evaluation.spot_check import RATERS, agreement, recorded_forms

    raters = [clean(one.rater, 80) for one in recorded_forms(folder)]
    if len(raters) < RATERS:
        return raters, None, []
    found = agreement(folder)

    def row(what: str, one: Any) -> tuple[str, str, str, str]:
        n = str(one.agreement.n) if one.agreement is not None else "0"
        return clean(what, 160), SHARE.estimate(one.agreement), n, SHARE.estimate(one.kappa, "–")

    rows = [
        row(f"{rater} with the scorer ({found.n_unsure[rater]} unsure)", one) for rater, one in found.raters.items()
    ]
    rows.append(row("the first two raters with each other", found.between))
    rows.append(("all raters, Krippendorff's alpha", SHARE.estimate(found.alpha, "–"), "", ""))
    return raters, found, [*rows, row("all raters together with the scorer", found.people)]


def spot_check_page(
    context: PageContext, route: PageAddress, links: Links, given: Mapping[str, str] | None = None, problem: str = ""
) -> str:
    """The form of a spot check, or what it showed. given, problem: what a rater sent, and why it was not kept."""
    entry = _rated(context, route)
    if links.is_static:
        raise NoSuchPageError("people rate with the server, or with the file of `agent2 spotcheck draw`")
    summary = context.catalog.summary(entry)
    trail = [*context.trail(entry, links), (summary.title, links.to(entry.kind.value, entry.id))]
    fields: dict[str, Any] = {"entry": entry, "trail": trail, "summary": summary}
    if route.part == "agreement":
        raters, found, rows = agreement_fields(entry.path)
        cards = {card.path.name: card for card in context.catalog.children(entry, EntryKind.CARD)}

        def rollout(row: Mapping[str, Any]) -> str:
            card = entry if entry.kind is EntryKind.CARD else cards.get(row["card"])
            return links.to("rollout", card.id, "item", id=row["item"], attempt=row["attempt"]) if card else ""

        return context.render(
            "agreement.html.j2", links, raters=raters, found=found, rows=rows, rollout=rollout, **fields
        )
    if route.part:
        raise NoSuchPageError(f"a spot check has no page {clean(route.part, 40)}")
    sample, raters = form_of(entry.path, given or route.query)
    hides = sample.is_hidden and not context.shows_hidden
    shown = [] if hides else form_rows_shown(sample)
    return context.render(
        "spotcheck.html.j2", links, sample=sample, raters=raters, rows=shown, hides=hides, given=given or {},
        problem=problem, **fields,
    )  # fmt: skip


def _rated(context: PageContext, route: PageAddress) -> CatalogEntry:
    return context.catalog.get(route.id, EntryKind.EVALUATION) or context.entry(route, EntryKind.CARD)


def rate(context: PageContext, route: PageAddress, given: Mapping[str, str]) -> str | None:
    """Keep the verdicts of a rater; None, or the form again with the reason why they were not kept.

    Raises as `html`.
    """
    entry = _rated(context, route)
    try:
        sample, _ = form_of(entry.path, given)
        if sample.is_hidden and not context.shows_hidden:
            raise ConfigError("rating hidden items needs `agent2 view --show-hidden`")
        record_ratings(entry.path, given)
    except (Agent2Error, OSError) as error:
        words = clean(error, 600)
        return context.guarded(route, lambda: spot_check_page(context, route, LiveLinks(), given, words))
    return None
