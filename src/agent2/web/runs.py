"""Runs side by side: their results in one table and one figure, what differs in their settings, their curves overlaid.

The runs are those of the address (`/runs?run=ID,ID`), chosen on the home page; the first one is what the others are
compared with item by item. Nothing is decided here: a difference with an interval is on the page of two cards.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agent2.arena.trial_folder import TrialPaths
from agent2.cards.comparability import CHECKPOINT
from agent2.errors import Agent2Error
from agent2.evaluation.suite_folder import read_identity
from agent2.records import Split
from agent2.reports.text import clean
from agent2.stats.estimates import PERCENT
from agent2.web.curves import LEADING, PUBLIC_SCORE, Curves, curves_of, series_group
from agent2.web.entries import CatalogEntry, EntryKind, EntrySummary, read_object, reason_of
from agent2.web.home import COLUMNS
from agent2.web.page import Links, NoSuchPageError, PageAddress, PageContext
from agent2.web.plots import PlotPanel, PlotValue, overlay

MOST_RUNS = 8
"""Side by side: as many as there are tones to tell them apart."""
MOST_SERIES = 80
MOST_SETTINGS = 60
SHOWN_COLUMNS = ("result", "interval", "LLM cost", "time", "changed", "folder")
UNTOLD_SETTINGS = frozenset({"trial_id", "llm_key", "driver_record", "packages", "prices", "judge_draw"})
"""Of a trial: its name, and what is long or says nothing to a reader."""


@dataclass(frozen=True, slots=True)
class ShownRun:
    """One of the runs."""

    number: int
    """From 1; names it in figures."""
    entry: CatalogEntry
    summary: EntrySummary
    without: str
    """Address of the page without this run."""

    @property
    def name(self) -> str:
        """Number and title, which tells two runs of one title apart."""
        return f"{self.number} {self.summary.title}"


@dataclass(frozen=True, slots=True)
class SharedScore:
    """The score of one run on a benchmark that another of the runs has played, too."""

    score: str
    href: str
    pair_href: str
    """Its items beside those of the first run with the benchmark; empty for that one."""


def chosen_ids(query: Mapping[str, str]) -> list[str]:
    """Ids of the runs in an address, each once, in order."""
    return list(dict.fromkeys(filter(None, query.get("run", "").split(","))))


def runs_page(context: PageContext, route: PageAddress, links: Links) -> str:
    """The runs of the address side by side. Raises NoSuchPageError if none of them exists."""
    if route.id:
        raise NoSuchPageError("runs side by side are one page; their ids are in the address: /runs?run=ID,ID")
    ids = chosen_ids(route.query)
    entries = [entry for run_id in ids if (entry := context.catalog.scan().entries.get(run_id)) is not None]
    if not entries:
        raise NoSuchPageError("select two or more results on the home page, then Side by side")
    compared = entries[:MOST_RUNS]
    runs = [
        ShownRun(
            number,
            entry,
            context.catalog.summary(entry),
            links.to("runs", run=",".join(run.id for run in compared if run.id != entry.id)),
        )
        for number, entry in enumerate(compared, 1)
    ]
    curves, problems = _curves(context, runs)
    search = route.query.get("series", "")[:100]
    leading, others, n_found = _figures(runs, curves, search)
    return context.render(
        "runs.html.j2",
        links,
        runs=runs,
        columns=[
            column
            for column in COLUMNS
            if column.name in SHOWN_COLUMNS and any(column.text(run.summary) for run in runs)
        ],
        n_missing=len(ids) - len(entries),
        n_left_out=len(entries) - len(compared),
        problems=problems,
        settings=different_settings(runs),
        results=result_figures(runs),
        scores=shared_scores(context, runs, links),
        leading=leading,
        others=others,
        search=search,
        n_found=n_found,
        choice=",".join(run.entry.id for run in runs),
    )


def _curves(context: PageContext, runs: Sequence[ShownRun]) -> tuple[list[Curves], list[str]]:
    """The curves of each run, and why some have none."""
    curves, problems = [], []
    for run in runs:
        try:
            curves.append(
                context.cached(
                    ("curves", run.entry.id, context.catalog.stamp(run.entry)), partial(curves_of, run.entry)
                )
            )
        except Exception as error:  # boundary: a damaged run hides no other
            curves.append({})
            problems.append(f"{run.name}: its curves cannot be read: {reason_of(error)}")
    return curves, problems


def _figures(
    runs: Sequence[ShownRun], curves: Sequence[Curves], search: str
) -> tuple[list[PlotPanel], list[tuple[str, list[PlotPanel]]], int]:
    """Series that are looked at first; the others by group; number of the others that the search finds."""
    names = list(dict.fromkeys(name for run_curves in curves for name in run_curves))
    shared = {name: sum(name in run_curves for run_curves in curves) for name in names}
    # what several runs have comes before what one alone has
    names.sort(key=lambda name: (_rank(name), -shared[name], name))
    steps = [
        point.x
        for run_curves in curves
        for name, values in run_curves.items()
        if name != PUBLIC_SCORE
        for point in values
    ]
    span = (min(steps), max(steps)) if steps else None
    longest = max((point.x for run_curves in curves for point in run_curves.get(PUBLIC_SCORE, ())), default=1.0)
    leading: list[PlotPanel] = []
    groups: dict[str, list[PlotPanel]] = {}
    matching = [name for name in names if _rank(name) == len(LEADING) and search.casefold() in name.casefold()]
    for name in [name for name in names if _rank(name) < len(LEADING)] + matching[:MOST_SERIES]:
        is_leading = _rank(name) < len(LEADING)
        drawing = overlay(
            name,
            {run.name: run_curves.get(name, ()) for run, run_curves in zip(runs, curves, strict=True)},
            x_range=(0.0, longest) if name == PUBLIC_SCORE else span,
            is_percent=name == PUBLIC_SCORE,
            is_wide=is_leading,
        )
        if is_leading:
            leading.append(drawing)
        else:
            groups.setdefault(series_group(name), []).append(drawing)
    return leading, sorted(groups.items(), key=lambda group: (not group[0], group[0])), len(matching)


def _rank(name: str) -> int:
    """Place of a series among those that are looked at first; `len(LEADING)` for others."""
    return -1 if name == PUBLIC_SCORE else LEADING.index(name) if name in LEADING else len(LEADING)


def result_figures(runs: Sequence[ShownRun]) -> list[PlotPanel]:
    """Results with their intervals, a figure for each kind and subject that two runs or more share."""
    titles = {
        EntryKind.TRIAL: "gain on private items of {}, points",
        EntryKind.EVALUATION: "change of the primary metric of {}, points",
        EntryKind.CARD: "score on {}, percent",
    }
    groups: dict[tuple[EntryKind, str], list[ShownRun]] = {}
    for run in runs:
        if run.entry.kind in titles and run.summary.estimate is not None:
            groups.setdefault((run.entry.kind, run.summary.subject), []).append(run)
    figures = []
    for (kind, subject), members in groups.items():
        if len(members) < 2:
            continue
        points = {run.name: [_result_point(run)] if run in members else [] for run in runs}
        title = titles[kind].format(subject or "no name")
        figures.append(overlay(title, points, x_range=(0.5, len(runs) + 0.5)))
    return figures


def _result_point(run: ShownRun) -> PlotValue:
    estimate = run.summary.estimate
    assert estimate is not None
    interval = None if estimate.low is None else (100 * estimate.interval[0], 100 * estimate.interval[1])
    return PlotValue(float(run.number), 100 * estimate.value, interval, f"{run.name}: {PERCENT.estimate(estimate)}")


def different_settings(runs: Sequence[ShownRun]) -> list[tuple[str, list[str]]]:
    """(setting, its value in each run) where two runs or more that have it differ; empty: a run has no such setting."""
    settings = []
    for run in runs:
        try:
            settings.append(dict(_settings(run.entry)))
        except (Agent2Error, OSError, LookupError, TypeError, ValueError):
            settings.append({})  # the table of results says that it cannot be read
    names = dict.fromkeys(name for values in settings for name in values)
    rows = [(name, [values.get(name, "") for values in settings]) for name in names]
    # what one run alone has says nothing about the others
    present = {name: [text for text in texts if text] for name, texts in rows}
    return [(name, texts) for name, texts in rows if len(present[name]) > 1 and len(set(present[name])) > 1][
        :MOST_SETTINGS
    ]


def _settings(entry: CatalogEntry) -> Iterator[tuple[str, str]]:
    """(name, value) of what a run was started with."""
    if entry.kind is EntryKind.TRIAL:
        config = read_object(entry.path / "trial.json")
        yield from _leaves({name: value for name, value in config.items() if name not in UNTOLD_SETTINGS})
    elif entry.kind is EntryKind.EVALUATION:
        identity = read_identity(entry.path)
        yield from _leaves(
            {"suite": identity.suite, "role": identity.role, "split": identity.split, "seed": identity.seed}
        )
        yield from ((side, clean(model.name, 120)) for side, model in identity.sides.items())
    elif entry.kind is EntryKind.CARD:
        header = read_object(entry.path / "card.json").get("header", {})
        yield from _leaves({"checkpoint": header.get("checkpoint_name"), "protocol": header.get("protocol")})


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, member in value.items():
            if key not in ("description", "title", "digest"):
                yield from _leaves(member, clean(f"{name}.{key}" if name else key, 80))
    else:
        yield name, "none" if value is None else clean(value, 120)


def shared_scores(
    context: PageContext, runs: Sequence[ShownRun], links: Links
) -> list[tuple[str, list[SharedScore | None]]]:
    """(benchmark and split, each run's score) of the benchmarks that two runs or more have a finished card of."""
    cards_by_run = [_result_cards(context, run.entry) for run in runs]
    names = dict.fromkeys(name for cards in cards_by_run for name in cards)
    rows = []
    for name in names:
        cards = [run_cards.get(name) for run_cards in cards_by_run]
        first = next(card for card in cards if card is not None)
        if sum(card is not None for card in cards) < 2:
            continue
        rows.append((name, [None if card is None else _shared_score(context, card, first, links) for card in cards]))
    return rows


def _shared_score(context: PageContext, card: CatalogEntry, first: CatalogEntry, links: Links) -> SharedScore:
    pair_href = "" if card.id == first.id else links.to("compare", card.id, **{"with": first.id})
    card_file = context.card_file(card)
    score = card_file.summary.score if card_file is not None and card_file.summary is not None else None
    return SharedScore(PERCENT.estimate(score, "no score"), links.to("card", card.id), pair_href)


def _result_cards(context: PageContext, entry: CatalogEntry) -> dict[str, CatalogEntry]:
    """Benchmark and split -> the card with a run's own result on it."""
    if entry.kind is EntryKind.CARD:
        cards = [entry]
    elif entry.kind is EntryKind.EVALUATION:
        children = context.catalog.children(entry, EntryKind.CARD)
        cards = [card for card in children if card.path.parent.name == CHECKPOINT]
    elif entry.kind is EntryKind.TRIAL:
        final = context.catalog.at(TrialPaths(entry.path).card("final", Split.TEST_PRIVATE))
        cards = [final] if final is not None else []
    else:
        cards = []
    by_name = {}
    for card in cards:
        card_file = context.card_file(card)
        if card_file is not None and card_file.state == "closed":
            protocol = card_file.header.protocol
            by_name[clean(f"{protocol.benchmark}, {protocol.split.value}", 120)] = card
    return by_name
