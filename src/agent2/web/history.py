"""The history of a suite, or of one benchmark: what was measured over time on the same items, and what fell last.

An evaluation's history is made of the finished evaluations of the same suite, role and split in the folder, a card's of
the finished cards of the same benchmark, split and scorer. Scores and intervals are those on the cards; of the two
newest runs the items are paired, and refused where their protocols differ.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from agent2.cards.card import CardFile
from agent2.cards.compare import CHECKPOINT
from agent2.contract.metrics import Unit
from agent2.errors import Agent2Error, CardError, ConfigError
from agent2.reports.text import clean
from agent2.stats.estimates import PERCENT, POINTS, Estimate
from agent2.web.catalog import Catalog, CatalogEntry, EntryKind, EntryState, ago, read_object
from agent2.web.page import Links, NoSuchPageError, PageAddress, PageContext
from agent2.web.plots import PlotPanel, PlotValue, panel

MOST_RUNS = 60
"""The newest ones are shown."""
MOST_LOST = 40
MOST_SERIES = 60
"""Of a training log, that are drawn."""


class StoredMetric(msgspec.Struct, frozen=True):
    """What a report keeps of one metric, as far as a history needs it."""

    new: float | None = None
    """Exact; rates 0 to 1."""
    unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class HistoryRun:
    """One evaluation, or one card."""

    entry: CatalogEntry
    title: str
    words: str
    """What its report decided."""
    at: float
    """Unix seconds at which its first rollout was asked for."""
    cards: dict[str, tuple[CatalogEntry, CardFile]]
    """Benchmark -> the checkpoint's card."""
    metrics: dict[str, tuple[float, bool]]
    """Reported metric -> value of the checkpoint, and whether it is a rate (then 0 to 1)."""


@dataclass(frozen=True, slots=True)
class LatestChange:
    """One benchmark in the newest run beside the run before."""

    benchmark: str
    words: str
    claim: str
    """better, worse, unclear; empty if they cannot be compared."""
    lost: tuple[str, ...]
    """Items that passed before and fail now."""
    n_lost: int
    n_won: int


Load = Callable[[CatalogEntry], CardFile | None]
"""The card of an entry; None if it cannot be read."""


def same_history(catalog: Catalog, entry: CatalogEntry, load: Load) -> list[CatalogEntry]:
    """Finished evaluations of an evaluation's suite, role and split; or finished cards of a card's question.

    Cards that are part of another result are in none: that result has a history, or is one.
    """
    entries = catalog.findings().entries.values()
    if entry.kind is EntryKind.EVALUATION:
        told = [catalog.summary(one) for one in entries if one.kind is EntryKind.EVALUATION]
        wanted = catalog.summary(entry).detail
        return [one.entry for one in told if one.detail == wanted and one.state is EntryState.FINISHED]
    own = load(entry)
    if own is None or entry.parent is not None:
        return []
    cards = [one for one in entries if one.kind is EntryKind.CARD and one.parent is None]
    return [one for one in cards if (card := load(one)) and card.summary and _question(card) == _question(own)]


def find_runs(catalog: Catalog, entry: CatalogEntry, load: Load) -> list[HistoryRun]:
    """Every run that an entry's history consists of, the oldest first."""
    found = []
    for one in same_history(catalog, entry, load):
        try:
            found.append(_run(catalog, one, load))
        except (Agent2Error, OSError):
            continue  # its own page says what is wrong with it
    return sorted(found, key=lambda run: (run.at, run.entry.place))


def _run(catalog: Catalog, entry: CatalogEntry, load: Load) -> HistoryRun:
    if entry.kind is EntryKind.EVALUATION:
        return _evaluation_run(catalog, entry, load)
    card = load(entry)
    if card is None:
        raise CardError(f"{entry.path}: cannot be read")
    header = card.header
    cards = {_benchmark(card): (entry, card)}
    return HistoryRun(entry, clean(header.checkpoint_name, 120), "", header.created_at, cards, {})


def _question(card: CardFile) -> tuple[str, str]:
    return _benchmark(card), card.header.protocol.scorer


def _benchmark(card: CardFile) -> str:
    protocol = card.header.protocol
    return f"{protocol.benchmark}, {protocol.split.value}"


def _evaluation_run(catalog: Catalog, entry: CatalogEntry, load: Load) -> HistoryRun:
    cards = {}
    for one in catalog.children(entry, EntryKind.CARD):
        card = load(one) if one.path.parent.name == CHECKPOINT else None
        if card is not None and card.summary is not None:
            cards[_benchmark(card)] = (one, card)
    report = read_object(entry.path / "report.json")
    try:
        stored = msgspec.convert(report.get("evidence", {}), dict[str, StoredMetric])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{entry.path / 'report.json'}: is damaged ({error}); run agent2 eval again") from error
    metrics = {}
    for name, told in stored.items():
        if told.new is not None:
            # a report of an earlier version names no unit, and shows a rate as `8.0% -> 12.3% (+4.3)`
            shown, _, _ = str(report.get(name, "")).partition(" (")
            is_rate = told.unit is Unit.RATE if told.unit is not None else shown.endswith("%")
            metrics[clean(name, 80)] = (told.new, is_rate)
    at = min((card.header.created_at for _, card in cards.values()), default=entry.changed)
    words = clean(f"release decision: {report.get('release_decision', 'not stated')}")
    return HistoryRun(entry, clean(catalog.summary(entry).title, 160), words, at, cards, metrics)


def history_panels(runs: Sequence[HistoryRun]) -> tuple[list[PlotPanel], list[PlotPanel]]:
    """Scores of each benchmark with their intervals, and other reported metrics, over runs numbered from 1."""
    span = (1.0, float(max(len(runs), 2)))
    scores = []
    shown: set[tuple[int, str]] = set()
    for name in dict.fromkeys(key for run in runs for key in run.cards):
        newest = next(run.cards[name][1] for run in reversed(runs) if name in run.cards)
        values = []
        for number, run in enumerate(runs, start=1):
            card = run.cards[name][1] if name in run.cards else None
            score = card.summary.score if card is not None and card.summary is not None else None
            if card is None or score is None:
                values.append(PlotValue(number, None))
                continue
            shown.add((number, f"{score.value:.6f}"))
            is_other = card.protocol_digest != newest.protocol_digest
            words = f"{number}: {run.title}: {PERCENT.estimate(score)}" + (", another protocol" if is_other else "")
            values.append(PlotValue(number, score.value, _ends(score), words, is_other))
        scores.append(panel(clean(name, 60), values, x_range=span, is_percent=True))
    others = []
    for name in dict.fromkeys(key for run in runs for key in run.metrics):
        if all(
            (number, f"{run.metrics[name][0]:.6f}") in shown
            for number, run in enumerate(runs, 1)
            if name in run.metrics
        ):
            continue  # a score that is drawn with its interval already
        told = [
            PlotValue(number, run.metrics[name][0] if name in run.metrics else None)
            for number, run in enumerate(runs, 1)
        ]
        others.append(
            panel(name, told, x_range=span, is_percent=any(run.metrics[name][1] for run in runs if name in run.metrics))
        )
    return scores, others


def latest_changes(old: HistoryRun, new: HistoryRun) -> list[LatestChange]:
    """What the newest run lost and won, by benchmark; reads the rollouts of both."""
    from agent2.cards.compare import find_cards
    from agent2.contract.compare import compare, regress

    found = []
    for name in new.cards.keys() & old.cards.keys():
        before, after = (find_cards(run.cards[name][0].path) for run in (old, new))
        try:
            row: Any = compare(before, [after]).rows[0]
            items = regress(before, after)
        except Agent2Error as error:
            found.append(LatestChange(name, f"cannot be compared: {clean(error, 300)}", "", (), 0, 0))
            continue
        pair = row.score.paired
        words = f"{POINTS.estimate(pair.change)} points" if pair is not None else clean(row.why, 200)
        lost = tuple(item.item_id for item in items.lost)
        found.append(LatestChange(name, words, row.outcome.value, lost[:MOST_LOST], len(lost), len(items.won)))
    return sorted(found, key=lambda one: ({"worse": 0, "unclear": 1}.get(one.claim, 2), one.benchmark))


def run_scores(run: HistoryRun) -> list[tuple[str, str]]:
    """(benchmark, score with its interval) of a run."""
    told = ((name, card.summary.score) for name, (_, card) in run.cards.items() if card.summary is not None)
    return [(name, PERCENT.estimate(score, "no score")) for name, score in told]


def _ends(score: Estimate) -> tuple[float, float] | None:
    return None if score.low is None else score.interval


_STEP = re.compile(r"(?:checkpoint|step|iter)[-_ ]?(\d{1,9})$", re.IGNORECASE)


def checkpoint_scores(catalog: Catalog, training: CatalogEntry, load: Load) -> dict[str, list[PlotValue]]:
    """Benchmark -> scores with intervals of the run's checkpoints, by step.

    Those are finished cards below the folder that the training report is in, of checkpoints whose names end in a step,
    such as `checkpoint-500` or `step_500`.
    """
    top = training.path.parent
    found: dict[str, list[PlotValue]] = {}
    for entry in catalog.findings().entries.values():
        card = load(entry) if entry.kind is EntryKind.CARD and entry.path.is_relative_to(top) else None
        step = _STEP.search(card.header.checkpoint_name) if card is not None else None
        score = card.summary.score if card is not None and card.summary is not None else None
        if card is None or step is None or score is None:
            continue
        words = f"step {step[1]}: {clean(card.header.checkpoint_name, 80)}: {PERCENT.estimate(score)}"
        found.setdefault(clean(_benchmark(card), 60), []).append(
            PlotValue(float(step[1]), score.value, _ends(score), words)
        )
    return {name: sorted(values, key=lambda one: one.x) for name, values in sorted(found.items())}


def training_panels(report: Mapping[str, Any], scores: Mapping[str, Sequence[PlotValue]]) -> list[PlotPanel]:
    """Evaluations first, then the benchmarks and metrics of the log, all on one axis of steps, dangers marked."""
    series = {
        name: [PlotValue(float(step), value) for step, value in one.get("points", ())]
        for name, one in report["series"].items()
    }
    signals = report.get("signals") or []
    steps = [one.x for values in (*series.values(), *scores.values()) for one in values]
    span = (min(steps), max(steps)) if steps else None
    panels = [panel(name, values, x_range=span, is_percent=True) for name, values in scores.items()]
    watched = {name for one in signals for name in one.get("series", ())}

    def order(name: str) -> tuple[bool, bool, str]:
        return not report["series"][name].get("is_benchmark"), name not in watched, name

    for name in sorted((name for name, values in series.items() if values), key=order)[:MOST_SERIES]:
        marks = [
            (float(one["step"]), clean(f"{one['step']}: {one['danger']}".replace("_", " "), 60))
            for one in signals
            if name in one.get("series", ())
        ]
        panels.append(panel(clean(name, 60), series[name], x_range=span, marks=marks))
    return panels


def history_page(context: PageContext, route: PageAddress, links: Links) -> str:
    """The history that an evaluation or a card is part of."""
    entry = context.catalog.get(route.id, EntryKind.EVALUATION) or context.entry(route, EntryKind.CARD)
    every = find_runs(context.catalog, entry, context.card_file)
    runs = every[-MOST_RUNS:]
    if not runs:
        raise NoSuchPageError("this result is part of another one, or not finished, so it has no history of its own")
    changes = []
    if len(runs) > 1:
        old, new = runs[-2:]
        key = ("latest", old.entry.id, new.entry.id, old.entry.changed, new.entry.changed)
        changes = context.keep(key, lambda: latest_changes(old, new))

    def rollout(benchmark: str, item: str) -> str:
        new, old = runs[-1].cards[benchmark][0], runs[-2].cards[benchmark][0]
        return links.to("rollout", new.id, "item", id=item, beside=old.id)

    panels, others = history_panels(runs)
    name = context.catalog.summary(entry).detail if entry.kind is EntryKind.EVALUATION else ", ".join(runs[0].cards)
    return context.render(
        "history.html.j2", links, entry=entry, trail=context.trail(entry, links), name=name, runs=runs,
        n_older=len(every) - len(runs), panels=panels, others=others,
        changes=changes, rollout=rollout, scores=run_scores, ago=ago,
    )  # fmt: skip


def history_of(context: PageContext, entry: CatalogEntry, links: Links) -> tuple[str, int]:
    """Address of the page with an entry's history, the same for all entries of it, and how many runs it has."""
    found = same_history(context.catalog, entry, context.card_file)
    return (links.to("history", min(one.id for one in found)), len(found)) if len(found) > 1 else ("", len(found))


def training_page(context: PageContext, route: PageAddress, links: Links) -> str:
    """What `agent2 monitor` found in a training log, and the scores of the checkpoints that were saved meanwhile."""
    entry = context.entry(route, EntryKind.TRAINING)
    report = read_object(entry.path / "monitor.json")
    return context.render(
        "training.html.j2",
        links,
        entry=entry,
        trail=context.trail(entry, links),
        summary=context.catalog.summary(entry),
        report=report,
        panels=training_panels(report, checkpoint_scores(context.catalog, entry, context.card_file)),
    )
