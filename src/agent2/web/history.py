"""The history of a suite or of one benchmark: scores over time on the same items, and what the newest run lost.

An evaluation's history consists of the finished evaluations of the same suite, role and split in the folder, a card's
of the finished cards of the same benchmark, split and scorer. Scores and intervals are those on the cards. The items of
the two newest runs are paired, unless their protocols differ.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from agent2.analysis.history import training_step
from agent2.cards.card import CardFile
from agent2.cards.comparability import CHECKPOINT
from agent2.contract.metrics import Unit
from agent2.errors import Agent2Error, CardError, ConfigError
from agent2.reports.text import clean
from agent2.stats.estimates import PERCENT, POINTS, Estimate
from agent2.web.catalog import Catalog
from agent2.web.curves import leads, series_group, training_series
from agent2.web.entries import CatalogEntry, EntryKind, EntryState, ago, read_object
from agent2.web.page import Links, NoSuchPageError, PageAddress, PageContext
from agent2.web.plots import PlotPanel, PlotValue, panel
from agent2.web.summaries import stated_outcome

MOST_RUNS = 60
"""The newest ones are shown."""
MOST_LOST = 40
MOST_OVERLAID = 4
"""Training runs that the link of one of them overlays; the home page selects any."""
MOST_SERIES = 60
"""Series of a training log that are drawn after the first ones."""
Load = Callable[[CatalogEntry], CardFile | None]
"""The card of an entry; None if it cannot be read."""


class StoredMetric(msgspec.Struct, frozen=True):
    """The part of a report's metric that a history needs."""

    new: float | None = None
    """Exact; rates 0 to 1."""
    unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class HistoryRun:
    """One evaluation, or one card."""

    entry: CatalogEntry
    title: str
    decision: str
    """Release decision of its report; empty for a card."""
    at: float
    """Unix seconds at which its first card was created."""
    cards: dict[str, tuple[CatalogEntry, CardFile]]
    """Benchmark -> the checkpoint's card."""
    metrics: dict[str, tuple[float, bool]]
    """Reported metric -> value of the checkpoint, and whether it is a rate (then 0 to 1)."""
    step: int | None = None
    """Training step, where the checkpoint's name has one."""


@dataclass(frozen=True, slots=True)
class LatestChange:
    """One benchmark in the newest run compared with the run before."""

    benchmark: str
    difference: str
    """With its interval, or the reason why there is none."""
    claim: str
    """better, worse, unclear; empty if they cannot be compared."""
    lost: tuple[str, ...]
    """Items that passed before and fail now."""
    n_lost: int
    n_won: int


def same_history(catalog: Catalog, entry: CatalogEntry, load: Load) -> list[CatalogEntry]:
    """Finished evaluations of the same suite, role and split, or finished cards of the same benchmark and scorer.

    Cards that are part of another result have no history of their own: the result has one.
    """
    entries = catalog.scan().entries.values()
    if entry.kind is EntryKind.EVALUATION:
        summaries = [catalog.summary(evaluation) for evaluation in entries if evaluation.kind is EntryKind.EVALUATION]
        suite = catalog.summary(entry).detail
        return [
            summary.entry for summary in summaries if summary.detail == suite and summary.state is EntryState.FINISHED
        ]
    own_card = load(entry)
    if own_card is None or entry.parent is not None:
        return []
    question = _question(own_card)
    cards = [candidate for candidate in entries if candidate.kind is EntryKind.CARD and candidate.parent is None]
    return [
        candidate for candidate in cards
        if (card := load(candidate)) and card.summary and _question(card) == question
    ]  # fmt: skip


def find_runs(catalog: Catalog, entry: CatalogEntry, load: Load) -> list[HistoryRun]:
    """The runs of an entry's history, the oldest first."""
    runs = []
    for member in same_history(catalog, entry, load):
        try:
            runs.append(_run(catalog, member, load))
        except (Agent2Error, OSError):
            continue  # its own page shows the error
    return sorted(runs, key=lambda run: (run.at, run.entry.display_path))


def _run(catalog: Catalog, entry: CatalogEntry, load: Load) -> HistoryRun:
    if entry.kind is EntryKind.EVALUATION:
        return _evaluation_run(catalog, entry, load)
    card = load(entry)
    if card is None:
        raise CardError(f"{entry.path}: cannot be read")
    header = card.header
    cards = {_benchmark(card): (entry, card)}
    step = training_step(header.checkpoint_name)
    return HistoryRun(entry, clean(header.checkpoint_name, 120), "", header.created_at, cards, {}, step)


def _question(card: CardFile) -> tuple[str, str]:
    """Benchmark, split and scorer."""
    return _benchmark(card), card.header.protocol.scorer


def _benchmark(card: CardFile) -> str:
    protocol = card.header.protocol
    return f"{protocol.benchmark}, {protocol.split.value}"


def _evaluation_run(catalog: Catalog, entry: CatalogEntry, load: Load) -> HistoryRun:
    cards = {}
    for child in catalog.children(entry, EntryKind.CARD):
        card = load(child) if child.path.parent.name == CHECKPOINT else None
        if card is not None and card.summary is not None:
            cards[_benchmark(card)] = (child, card)
    report = read_object(entry.path / "report.json")
    try:
        stored = msgspec.convert(report.get("evidence", {}), dict[str, StoredMetric])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{entry.path / 'report.json'}: is damaged ({error}); run agent2 eval again") from error
    metrics = {}
    for name, metric in stored.items():
        if metric.new is not None:
            # a report of an earlier version names no unit, and shows a rate as `8.0% -> 12.3% (+4.3)`
            new_text, _, _ = str(report.get(name, "")).partition(" (")
            is_rate = metric.unit is Unit.RATE if metric.unit is not None else new_text.endswith("%")
            metrics[clean(name, 80)] = (metric.new, is_rate)
    at = min((card.header.created_at for _, card in cards.values()), default=entry.changed)
    decision = clean(f"release decision: {stated_outcome(report)}")
    step = training_step(_checkpoint_name(entry, cards))
    return HistoryRun(entry, clean(catalog.summary(entry).title, 160), decision, at, cards, metrics, step)


def _checkpoint_name(entry: CatalogEntry, cards: Mapping[str, tuple[CatalogEntry, CardFile]]) -> str:
    names = [card.header.checkpoint_name for _, card in cards.values()]
    return names[0] if names else entry.path.name


def positions(runs: Sequence[HistoryRun]) -> list[float]:
    """Where each run is on the axis: at its training step if all have one, else at its number by age."""
    steps = [run.step for run in runs if run.step is not None]
    return [float(step) for step in (steps if len(steps) == len(runs) else range(1, len(runs) + 1))]


def history_panels(runs: Sequence[HistoryRun]) -> tuple[list[PlotPanel], list[PlotPanel]]:
    """Scores of each benchmark with their intervals, and other reported metrics, over training steps, else by age."""
    places = positions(runs)
    span = (min(places, default=1.0), max(places, default=2.0))
    order = sorted(range(len(runs)), key=lambda index: places[index])
    scores = []
    drawn_scores: set[tuple[int, str]] = set()
    for name in dict.fromkeys(key for run in runs for key in run.cards):
        newest = next(run.cards[name][1] for run in reversed(runs) if name in run.cards)
        values = []
        for index in order:
            run, number, place = runs[index], index + 1, places[index]
            card = run.cards[name][1] if name in run.cards else None
            score = card.summary.score if card is not None and card.summary is not None else None
            if card is None or score is None:
                values.append(PlotValue(place, None))
                continue
            drawn_scores.add((number, f"{score.value:.6f}"))
            is_other = card.protocol_digest != newest.protocol_digest
            tooltip = f"{number}: {run.title}: {PERCENT.estimate(score)}" + (", another protocol" if is_other else "")
            values.append(PlotValue(place, score.value, _ends(score), tooltip, is_other))
        scores.append(panel(clean(name, 60), values, x_range=span, is_percent=True, is_wide=True))
    others = []
    for name in dict.fromkeys(key for run in runs for key in run.metrics):
        if all(
            (number, f"{run.metrics[name][0]:.6f}") in drawn_scores
            for number, run in enumerate(runs, 1)
            if name in run.metrics
        ):
            continue  # a score that is drawn with its interval already
        metric_values = [
            PlotValue(places[index], runs[index].metrics[name][0] if name in runs[index].metrics else None)
            for index in order
        ]
        others.append(
            panel(
                name,
                metric_values,
                x_range=span,
                is_percent=any(run.metrics[name][1] for run in runs if name in run.metrics),
            )
        )
    return scores, others


def latest_changes(old: HistoryRun, new: HistoryRun) -> list[LatestChange]:
    """Changes by benchmark from the run before to the newest one; reads the rollouts of both."""
    from agent2.analysis.compare import compare
    from agent2.analysis.regress import regress
    from agent2.cards.comparability import find_cards

    changes = []
    for name in new.cards.keys() & old.cards.keys():
        before, after = (find_cards(run.cards[name][0].path) for run in (old, new))
        try:
            row: Any = compare(before, [after]).rows[0]
            items = regress(before, after)
        except Agent2Error as error:
            changes.append(LatestChange(name, f"cannot be compared: {clean(error, 300)}", "", (), 0, 0))
            continue
        pair = row.score.paired
        difference = f"{POINTS.estimate(pair.change)} points" if pair is not None else clean(row.why, 200)
        lost = tuple(item.item_id for item in items.lost)
        changes.append(LatestChange(name, difference, row.outcome.value, lost[:MOST_LOST], len(lost), len(items.won)))
    return sorted(changes, key=lambda change: ({"worse": 0, "unclear": 1}.get(change.claim, 2), change.benchmark))


def run_scores(run: HistoryRun) -> list[tuple[str, str]]:
    """(benchmark, score with its interval) of a run."""
    scores = ((name, card.summary.score) for name, (_, card) in run.cards.items() if card.summary is not None)
    return [(name, PERCENT.estimate(score, "no score")) for name, score in scores]


def _ends(score: Estimate) -> tuple[float, float] | None:
    return None if score.low is None else score.interval


def checkpoint_scores(catalog: Catalog, training: CatalogEntry, load: Load) -> dict[str, list[PlotValue]]:
    """Benchmark -> scores with intervals of the run's checkpoints, by step.

    Those are finished cards below the folder that the training report is in, of checkpoints whose names end in a step,
    such as `checkpoint-500` or `step_500`.
    """
    top = training.path.parent
    values_by_benchmark: dict[str, list[PlotValue]] = {}
    for entry in catalog.scan().entries.values():
        card = load(entry) if entry.kind is EntryKind.CARD and entry.path.is_relative_to(top) else None
        step = training_step(card.header.checkpoint_name) if card is not None else None
        score = card.summary.score if card is not None and card.summary is not None else None
        if card is None or step is None or score is None:
            continue
        tooltip = f"step {step}: {clean(card.header.checkpoint_name, 80)}: {PERCENT.estimate(score)}"
        values_by_benchmark.setdefault(clean(_benchmark(card), 60), []).append(
            PlotValue(float(step), score.value, _ends(score), tooltip)
        )
    return {name: sorted(values, key=lambda value: value.x) for name, values in sorted(values_by_benchmark.items())}


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The figures of a training run, all on one axis of steps, dangers marked."""

    leading: list[PlotPanel]
    """Evaluations of its checkpoints, then benchmarks, reward, KL, entropy, length and what a danger was seen in."""
    groups: list[tuple[str, list[PlotPanel]]]
    """(first part of their names, figures) of the other series; the empty name last."""
    n_found: int
    """Other series that the search finds."""


def training_figures(
    report: Mapping[str, Any], scores: Mapping[str, Sequence[PlotValue]], search: str = ""
) -> RunFigures:
    """The figures of a training report. search: part of the name of the series that are shown after the first ones."""
    series = training_series(report)
    steps = [value.x for values in (*series.values(), *scores.values()) for value in values]
    span = (min(steps), max(steps)) if steps else None
    leading = [panel(name, values, x_range=span, is_percent=True, is_wide=True) for name, values in scores.items()]
    leading += [
        _series_panel(report, name, values, span, is_wide=True)
        for name, values in series.items()
        if leads(report, name)
    ]
    matching = [name for name in series if not leads(report, name) and search.casefold() in name.casefold()]
    groups: dict[str, list[PlotPanel]] = {}
    for name in matching[:MOST_SERIES]:
        drawing = _series_panel(report, name, series[name], span, is_wide=False)
        groups.setdefault(clean(series_group(name), 60), []).append(drawing)
    return RunFigures(leading, sorted(groups.items(), key=lambda group: (not group[0], group[0])), len(matching))


def _series_panel(
    report: Mapping[str, Any],
    name: str,
    values: Sequence[PlotValue],
    span: tuple[float, float] | None,
    *,
    is_wide: bool,
) -> PlotPanel:
    marks = [
        (float(signal["step"]), clean(f"{signal['step']}: {signal['danger']}".replace("_", " "), 60))
        for signal in report.get("signals") or []
        if name in signal.get("series", ())
    ]
    return panel(clean(name, 60), values, x_range=span, marks=marks, is_wide=is_wide)


def history_page(context: PageContext, route: PageAddress, links: Links) -> str:
    """The history that an evaluation or a card is part of."""
    entry = context.catalog.get(route.id, EntryKind.EVALUATION) or context.entry(route, EntryKind.CARD)
    all_runs = find_runs(context.catalog, entry, context.card_file)
    runs = all_runs[-MOST_RUNS:]
    if not runs:
        raise NoSuchPageError("this result is part of another one, or not finished, so it has no history of its own")
    changes = []
    if len(runs) > 1:
        old, new = runs[-2:]
        key = ("latest", old.entry.id, new.entry.id, old.entry.changed, new.entry.changed)
        changes = context.cached(key, lambda: latest_changes(old, new))

    def rollout(benchmark: str, item: str) -> str:
        new, old = runs[-1].cards[benchmark][0], runs[-2].cards[benchmark][0]
        return links.to("rollout", new.id, "item", id=item, beside=old.id)

    panels, others = history_panels(runs)
    name = context.catalog.summary(entry).detail if entry.kind is EntryKind.EVALUATION else ", ".join(runs[0].cards)
    return context.render(
        "history.html.j2", links, entry=entry, breadcrumbs=context.breadcrumbs(entry, links), name=name, runs=runs,
        n_older=len(all_runs) - len(runs), panels=panels, others=others,
        changes=changes, rollout=rollout, scores=run_scores, ago=ago,
        has_steps=all(run.step is not None for run in runs),
    )  # fmt: skip


def history_of(context: PageContext, entry: CatalogEntry, links: Links) -> tuple[str, int]:
    """(address of an entry's history, number of its runs); the address is empty for a single run."""
    members = same_history(context.catalog, entry, context.card_file)
    if len(members) < 2:
        return "", len(members)
    # one address for all members, so that the history has one page
    return links.to("history", min(member.id for member in members)), len(members)


def training_page(context: PageContext, route: PageAddress, links: Links) -> str:
    """The report of `agent2 monitor` on a training log, and the scores of the run's checkpoints."""
    entry = context.entry(route, EntryKind.TRAINING)
    report = read_object(entry.path / "monitor.json")
    search = "" if links.is_static else route.query.get("series", "")[:100]
    return context.render(
        "training.html.j2",
        links,
        entry=entry,
        breadcrumbs=context.breadcrumbs(entry, links),
        summary=context.catalog.summary(entry),
        report=report,
        figures=training_figures(report, checkpoint_scores(context.catalog, entry, context.card_file), search),
        search=search,
        overlaid=_overlaid(context, entry, links),
    )


def _overlaid(context: PageContext, entry: CatalogEntry, links: Links) -> str:
    """The address of a training run overlaid with the newest others; empty where there is no other."""
    entries = context.catalog.scan().entries.values()
    others = [run for run in entries if run.kind is EntryKind.TRAINING and run.id != entry.id]
    newest = sorted(others, key=lambda run: (-run.changed, run.display_path))[: MOST_OVERLAID - 1]
    return links.to("runs", run=",".join([entry.id, *(run.id for run in newest)])) if newest else ""
