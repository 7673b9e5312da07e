"""Judges and raters: what a judgement card shows of its judge, other judges of the same answers, and spot checks.

A spot check here follows the rules of `analysis.spot_check` and writes the same records: the sample is drawn from the
cards, all raters get one sample, and a rater sees neither verdicts nor which model gave which of two answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2.analysis.card_scores import PASSES_AT
from agent2.cards.card import CardFile
from agent2.cards.judgement import BASELINE, JUDGEMENT, PairwiseJudgement, read_judgement
from agent2.errors import Agent2Error, ConfigError, NotEnoughData
from agent2.reports.text import UNCUT, clean, clean_lines
from agent2.stats.estimates import PERCENT, Notation
from agent2.web.entries import CatalogEntry, EntryKind
from agent2.web.page import Links, LiveLinks, NoSuchPageError, PageAddress, PageContext
from agent2.web.rollouts import CardTables

MOST_JUDGED = 100_000
"""Rollouts of a card up to which two judges are compared."""
MOST_SHOWN = 30
KAPPA = Notation(".3f")
DEFAULT_N, MOST_N = 30, 200
"""Rollouts of a spot check, unless its first rater took another number."""
MAX_NOTE, MAX_RATER, MAX_SHOWN_TEXT = 1_000, 80, 25_000
"""Characters."""


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """A judge's verdicts compared with those of another judge on the same answers."""

    name: str
    """Of the other judge."""
    n: int
    """Rollouts with a verdict of both."""
    n_same: int
    kappa: str
    differing: tuple[tuple[str, int, str, str], ...]
    """(item, attempt, verdict, the other judge's verdict) of the first ones."""
    n_differing: int


def judge_name(card: CardFile) -> str:
    """The scorer of a card, with its model where it has one."""
    judgement = card.header.lock.get(JUDGEMENT)
    settings = judgement.get("settings", {}) if isinstance(judgement, Mapping) else {}
    model = settings.get("model") or settings.get("judge") if isinstance(settings, Mapping) else None
    return clean(card.header.protocol.scorer + (f" ({model})" if model else ""), 120)


def answers_key(card: CardFile) -> tuple[object, ...]:
    """Equal for cards on which the same answers are judged."""
    header, judgement = card.header, card.header.lock.get(JUDGEMENT)
    sides = (str(judgement.get("new")), str(judgement.get("old"))) if isinstance(judgement, Mapping) else ()
    protocol = header.protocol
    return (header.checkpoint_digest, protocol.benchmark, protocol.split, protocol.items_digest, header.seed, sides)


def compare_judges(tables: CardTables, first: tuple[Path, CardFile], second: tuple[Path, CardFile]) -> JudgeAgreement:
    """The verdicts of two cards of the same answers. Raises CardError for a damaged card."""
    from agent2.stats.quality import cohens_kappa

    is_pairwise = JUDGEMENT in first[1].header.lock
    columns: list[dict[tuple[str, int], str]] = []
    for path, _ in (first, second):
        sql = "select item_id, attempt, counted from rollouts where counted is not null order by item_id, attempt"
        rows = tables.rows(path, sql, n=MOST_JUDGED)
        columns.append({(item, attempt): _verdict(value, is_pairwise=is_pairwise) for item, attempt, value in rows})
    common = [key for key in columns[0] if key in columns[1]]
    pairs = [(columns[0][key], columns[1][key]) for key in common]
    try:
        kappa = KAPPA.estimate(cohens_kappa([verdict for verdict, _ in pairs], [verdict for _, verdict in pairs]))
    except NotEnoughData:
        kappa = "not known"
    differing = [(*key, *pair) for key, pair in zip(common, pairs, strict=True) if pair[0] != pair[1]]
    return JudgeAgreement(
        judge_name(second[1]),
        len(common),
        len(common) - len(differing),
        kappa,
        tuple(differing[:MOST_SHOWN]),
        len(differing),
    )


def _verdict(value: float, *, is_pairwise: bool) -> str:
    if is_pairwise:
        return "tie" if value == BASELINE else "new wins" if value > BASELINE else "old wins"
    return "right" if value >= PASSES_AT else "wrong"


def position_words(judged: PairwiseJudgement) -> str:
    """A judge's preference for the answer that is shown first, as text."""
    if judged.first_shown is None:
        return "Position bias: not known, the judge was asked about no comparison"
    n = judged.n_wins + judged.n_ties + judged.n_losses
    flips = f"; {judged.n_flips} of {n} verdicts turned with the order" if n else ""
    share = f"{100 * judged.first_shown:.1f}%"
    return f"Position bias: the answer shown first got {share} of the points (50% without bias){flips}"


def judges_of(
    context: PageContext, entry: CatalogEntry, card: CardFile, links: Links
) -> tuple[str, list[tuple[JudgeAgreement, str, CatalogEntry]]]:
    """Position bias of a card's judge, and (comparison, address of its card, card) of other judges of the answers."""
    position_bias = position_words(read_judgement(entry.path)) if JUDGEMENT in card.header.lock else ""
    comparisons = []
    for other_entry in context.catalog.scan().entries.values():
        if other_entry.kind is not EntryKind.CARD or other_entry.id == entry.id:
            continue
        other_card = context.card_file(other_entry)
        if other_card is None or other_card.state == "open" or answers_key(other_card) != answers_key(card):
            continue
        if judge_name(other_card) != judge_name(card):
            comparison = compare_judges(context.tables, (entry.path, card), (other_entry.path, other_card))
            comparisons.append((comparison, links.to("card", other_entry.id), other_entry))
    return position_bias, comparisons


def sample_of(folder: Path, parameters: Mapping[str, str]) -> tuple[Any, list[str]]:
    """The sample that people rate, and the names of those who have rated it.

    parameters: `n` and `seed`, for the first rater; later raters get the same sample. Raises ConfigError for a folder
    whose cards give none, CardError for a card that is not finished or damaged.
    """
    from agent2.analysis.spot_check import sample_to_rate

    n = _number(parameters, "n", DEFAULT_N)
    if n > MOST_N:
        raise ConfigError(f"n={n}: at most {MOST_N} rollouts fit on a page; use `agent2 spotcheck draw` for more")
    sample, forms = sample_to_rate(folder, n, _number(parameters, "seed", 0))
    if len(sample.rollouts) > MOST_N:
        raise ConfigError(f"{folder}: the sample has {sample.n} rollouts, too many for a page; use `agent2 spotcheck`")
    return sample, [clean(form.rater, 80) for form in forms]


def _number(parameters: Mapping[str, str], name: str, default: int) -> int:
    text = parameters.get(name, "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConfigError(f"{name}={clean(text, 40)!r} is not a number of a spot check")
    return int(text) if text else default


def record_ratings(folder: Path, form: Mapping[str, str]) -> Path:
    """Store the form that a rater sent; returns its file. Raises as `analysis.spot_check.record_verdicts`."""
    from agent2.analysis.spot_check import RecordedForm, record_verdicts

    verdicts = {name[1:]: value for name, value in form.items() if name[:1] == "v" and name[1:].isdigit() and value}
    notes = {
        name[4:]: clean_lines(value, UNCUT * len(value))
        for name, value in form.items()
        if name.startswith("note") and name[4:].isdigit() and value.strip()
    }
    if long := [f"{number} ({len(text):,})" for number, text in notes.items() if len(text) > MAX_NOTE]:
        raise ConfigError(f"notes have at most {MAX_NOTE:,} characters; shorten that of rollout {', '.join(long)}")
    n, seed = _number(form, "n", DEFAULT_N), _number(form, "seed", 0)
    rater = clean(form.get("rater", ""), MAX_NOTE)
    if len(rater) > MAX_RATER:
        raise ConfigError(f"your name has {len(rater)} characters, at most {MAX_RATER} are kept; shorten it")
    return record_verdicts(folder, RecordedForm(form.get("sample", ""), n, seed, rater, verdicts, notes))


def agreement_fields(folder: Path) -> tuple[list[str], Any, list[Sequence[str]]]:
    """The raters; from two on also the report, and rows of (pair of judges, agreement, rollouts, kappa).

    Raises ConfigError for forms about other rollouts than those now on the cards.
    """
    from agent2.analysis.spot_check import MIN_RATERS, agreement, recorded_forms

    raters = [clean(form.rater, 80) for form in recorded_forms(folder)]
    if len(raters) < MIN_RATERS:
        return raters, None, []
    report = agreement(folder)

    def row(label: str, pair: Any) -> tuple[str, str, str, str]:
        n = str(pair.agreement.n) if pair.agreement is not None else "0"
        return clean(label, 160), PERCENT.estimate(pair.agreement), n, KAPPA.estimate(pair.kappa, "–")

    rows = [
        row(f"{rater} with the scorer ({report.n_unsure[rater]} unsure)", pair) for rater, pair in report.raters.items()
    ]
    rows.append(row("the first two raters with each other", report.between))
    rows.append(("all raters, Krippendorff's alpha", KAPPA.estimate(report.alpha, "–"), "", ""))
    return raters, report, [*rows, row("all raters together with the scorer", report.people)]


def spot_check_page(
    context: PageContext, route: PageAddress, links: Links, form: Mapping[str, str] | None = None, problem: str = ""
) -> str:
    """The form of a spot check, or its results. form, problem: what a rater sent, and why it was not saved."""
    from agent2.analysis.spot_check import form_rows

    entry = _rated_entry(context, route)
    if links.is_static:
        raise NoSuchPageError("people rate with the server, or with the file of `agent2 spotcheck draw`")
    summary = context.catalog.summary(entry)
    breadcrumbs = [*context.breadcrumbs(entry, links), (summary.title, links.to(entry.kind.value, entry.id))]
    fields: dict[str, Any] = {"entry": entry, "breadcrumbs": breadcrumbs, "summary": summary}
    if route.part == "agreement":
        raters, report, rows = agreement_fields(entry.path)
        cards = {card.path.name: card for card in context.catalog.children(entry, EntryKind.CARD)}

        def rollout(row: Mapping[str, Any]) -> str:
            card = entry if entry.kind is EntryKind.CARD else cards.get(row["card"])
            return links.to("rollout", card.id, "item", id=row["item"], attempt=row["attempt"]) if card else ""

        return context.render(
            "agreement.html.j2", links, raters=raters, report=report, rows=rows, rollout=rollout, **fields
        )
    if route.part:
        raise NoSuchPageError(f"a spot check has no page {clean(route.part, 40)}")
    sample, raters = sample_of(entry.path, form or route.query)
    hides = sample.is_hidden and not context.shows_hidden
    form_lines = [
        {name: clean_lines(text, MAX_SHOWN_TEXT) if isinstance(text, str) else text for name, text in row.items()}
        for row in ([] if hides else form_rows(sample))
    ]
    return context.render(
        "spotcheck.html.j2", links, sample=sample, raters=raters, rows=form_lines, hides=hides, form=form or {},
        problem=problem, **fields,
    )  # fmt: skip


def _rated_entry(context: PageContext, route: PageAddress) -> CatalogEntry:
    return context.catalog.get(route.id, EntryKind.EVALUATION) or context.entry(route, EntryKind.CARD)


def rate(context: PageContext, route: PageAddress, form: Mapping[str, str]) -> str | None:
    """Store the verdicts of a rater; returns the form again with the reason if they were not stored, otherwise None.

    Raises as `html`.
    """
    entry = _rated_entry(context, route)
    try:
        sample, _ = sample_of(entry.path, form)
        if sample.is_hidden and not context.shows_hidden:
            raise ConfigError("rating hidden items needs `agent2 view --show-hidden`")
        record_ratings(entry.path, form)
    except (Agent2Error, OSError) as error:
        reason = clean(error, 600)
        return context.guarded(route, lambda: spot_check_page(context, route, LiveLinks(), form, reason))
    return None
