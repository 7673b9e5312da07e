"""Figures of a leaderboard: gains, performance profiles, cost against gain, effects of drivers and agent systems.

Each figure is a `Plot`: the drawing and the numbers behind it as a table, so that no figure exists without them. They
are made of typed records, not of folders. Figures of single runs: `agent2.reports.run_figures`.

Promises: an interval is drawn where there is one, and its width is never guessed; a trial without a result is counted
in a note, never drawn at 0; more series than a reader can tell apart are refused, with advice.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agent2.arena.analysis.leaderboard import Leaderboard, OverallStandings, TaskStandings
from agent2.arena.sweep_records import PairEffect, SweepRow
from agent2.errors import ConfigError, NotEnoughData
from agent2.files import write_text
from agent2.records import derive_seed
from agent2.reports.style import (
    BLUE,
    DASHES,
    GREEN,
    INK,
    MARKERS,
    MUTED,
    ORANGE,
    SERIES_COLOURS,
    arms,
    as_svg,
    drawing,
    save_figure,
)
from agent2.reports.text import clean, csv_cell
from agent2.stats.aggregates import PerformanceProfile, iqm, mean_over_tasks, median_over_tasks, optimality_gap
from agent2.stats.comparisons import Claim
from agent2.stats.estimates import Estimate
from agent2.stats.gains import gap_closed, held_out_gain, normalised_score, seed_spread
from agent2.texts import counted

MAX_SERIES = 8
"""Lines in one panel that a reader can tell apart."""
MAX_ROWS = 120
N_REPLICATES = 5_000
ROW_INCHES = 0.3
CLAIM_LOOKS: Mapping[str, tuple[str, str]] = {
    Claim.BETTER.value: (GREEN, "^"),
    Claim.WORSE.value: (ORANGE, "v"),
    Claim.UNCLEAR.value: (MUTED, "o"),
    "no interval": (BLUE, "s"),
}
CLAIM_WORDS = {name: name if name == "no interval" else f"{name} than the base" for name in CLAIM_LOOKS} | {
    Claim.UNCLEAR.value: "unclear"
}
"""Claim -> label in a legend."""
COSTS: Mapping[str, tuple[str, Callable[[SweepRow], float | None]]] = {
    "dollars": ("LLM cost of a trial, US dollars", lambda row: row.llm_dollars),
    "tokens": ("LLM tokens of a trial", lambda row: row.llm_tokens),
    "minutes": ("agent's phase, minutes", lambda row: None if row.seconds is None else row.seconds / 60),
    "submissions": ("submissions of a trial", lambda row: row.n_submissions),
}
"""Cost that a figure can show -> its label, and the cost of a trial."""
Profiles = Mapping[str, PerformanceProfile]
"""Stack -> profile."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure and the numbers behind it."""

    name: str
    """Of its files."""
    size: tuple[float, float]
    """Inches."""
    draw: Callable[[Figure], None]
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    """Rates, scores and gains 0 to 1; None: missing."""
    notes: Sequence[str] = ()
    """What the figure leaves out, with the reason, a sentence each."""


def write_plot(plot: Plot, out: Path, formats: Sequence[str]) -> list[Path]:
    """Write the figure in each format, and its numbers as CSV, into a folder; returns the paths, figures first."""
    out.mkdir(parents=True, exist_ok=True)
    with drawing(*plot.size, is_file=True) as figure:
        plot.draw(figure)
        written = save_figure(figure, out / plot.name, formats)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(plot.columns)
    writer.writerows([csv_cell(cell) for cell in row] for row in plot.rows)
    table = out / f"{plot.name}.csv"
    write_text(table, text.getvalue())
    return [*written, table]


def check_series(names: Sequence[str]) -> None:
    """Raise ConfigError for more lines than a reader can tell apart."""
    if len(names) > MAX_SERIES:
        raise ConfigError(
            f"{len(names)} agents hide each other in one figure; choose at most {MAX_SERIES} with --only, or draw "
            "agent2 chart gains, which has a row for each"
        )


def series_style(number: int) -> dict[str, Any]:
    """Colour, marker and dash of a line."""
    return {
        "color": SERIES_COLOURS[number % len(SERIES_COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[number % len(DASHES)],
        "linewidth": 1.8,
    }


def add_grid(axes: Axes, grid: str = "both") -> None:
    """Grid lines below what is drawn. grid: x, y or both."""
    axes.grid(axis=grid)  # type: ignore[arg-type]
    axes.set_axisbelow(True)


def _counted(board: Leaderboard, stack: str, task: str) -> list[SweepRow]:
    return [t.row for t in board.trials if t.is_counted and t.row.agent == stack and t.row.task == task]


def gains_plot(board: Leaderboard) -> Plot:
    """A forest of gains: each stack's mean with its interval, each run as a tick, task by task.

    The table adds spread over seeds, share of the possible gain and, for stacks with several tasks, the mean
    over tasks. Raises ConfigError for more rows than a page holds.
    """
    n_rows = sum(len(task.standings) for task in board.tasks)
    if n_rows > MAX_ROWS:
        raise ConfigError(f"{n_rows} rows do not fit on a page; choose agents with --only, or draw fewer folders")
    rows: list[list[object]] = []
    for task in board.tasks:
        for standing in task.standings:
            counted = _counted(board, standing.stack, task.task)
            gains = [row.gain.value for row in counted if row.gain is not None]
            mean, low, high = ends_of(standing.summary.mean_gain)
            spread = seed_spread(gains) if len(gains) > 1 else None
            is_known = standing.base is not None and standing.final is not None and standing.base < 1.0
            closed = gap_closed(standing.base or 0.0, standing.final or 0.0, 1.0) if is_known else None
            rows.append(
                [
                    task.task, standing.stack, len(gains), mean, low, high, standing.summary.over,
                    standing.summary.claim,
                    *((spread.std, spread.lowest, spread.highest, spread.share_positive) if spread else [None] * 4),
                    closed,
                ]
            )  # fmt: skip
    for stack in dict.fromkeys(trial.row.agent for trial in board.trials):
        tasks = [
            (t.task, standing)
            for t in board.tasks
            for standing in t.standings
            if standing.stack == stack and standing.n_counted
        ]
        if len(tasks) > 1:
            over = held_out_gain(
                {task: standing.base for task, standing in tasks}, {task: standing.final for task, standing in tasks}
            )
            rows.append(["mean over tasks", stack, len(tasks), *ends_of(over), "tasks", "", *[None] * 5])
    columns = (
        "task", "agent", "n", "mean_gain", "low", "high", "over", "claim", "std", "lowest", "highest",
        "share_positive", "gap_closed",
    )  # fmt: skip
    lacking = [f"no counted trial: {row[1]} on {row[0]}" for row in rows if not row[2]]
    height = 1.3 + ROW_INCHES * (n_rows + 0.8 * len(board.tasks))
    return Plot("gains", (8.2, height), lambda figure: _draw_gains(figure, board), columns, rows, lacking)


def ends_of(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """Value and interval as cells of a table."""
    return (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)


def _draw_gains(figure: Figure, board: Leaderboard) -> None:
    axes = figure.subplots()
    axes.axvline(0, color=MUTED, linewidth=1.2, linestyle=(0, (5, 3)))
    height, ticks, labels = 0.0, [], []
    kinds: set[str] = set()
    for task in board.tasks:
        axes.annotate(
            clean(task.task, 60), (0, height), xycoords=("axes fraction", "data"), xytext=(-8, 0),
            textcoords="offset points", ha="right", va="center", fontweight="bold",
        )  # fmt: skip
        for standing in task.standings:
            height -= 1.0
            ticks.append(height)
            labels.append(clean(standing.stack, 48))
            gains = [100 * row.gain.value for row in _counted(board, standing.stack, task.task) if row.gain is not None]
            mean = standing.summary.mean_gain
            if mean is None or not gains:
                axes.annotate("no counted trial", (0, height), xytext=(6, 0), textcoords="offset points", va="center",
                              color=MUTED, fontsize=9)  # fmt: skip
                continue
            kind = standing.summary.claim or "no interval"
            colour, marker = CLAIM_LOOKS[kind]
            axes.plot(gains, [height - 0.28] * len(gains), "|", color=MUTED, markersize=5)
            percent = mean.scaled(100)
            error = None if percent.low is None else [[arm] for arm in arms(percent)]
            label = "_" if kind in kinds else CLAIM_WORDS[kind]
            kinds.add(kind)
            axes.errorbar(
                [percent.value], [height], xerr=error, fmt=marker, color=colour, capsize=3, markersize=6.5, label=label
            )
        height -= 1.4
    axes.set_yticks(ticks, labels)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_ylim(height + 0.6, 0.7)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("mean gain on private items, points, with its 95% interval; ticks: single runs")
    axes.margins(x=0.06)
    add_grid(axes, "x")
    handles, legend_labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, legend_labels, loc="outside upper left", ncols=4, fontsize=9)


def profiles_plot(board: Leaderboard) -> Plot:
    """Performance profiles: the share of runs that reached each share of the possible gain.

    One panel for each kind of tasks (interactive, static). The table has IQM, mean, median and optimality gap as well.
    Raises NotEnoughData where no stack has two runs on a task.
    """
    panels: list[tuple[str, Profiles]] = []
    rows: list[list[object]] = []
    notes: list[str] = []
    for kind in board.overall:
        tasks = [task for task in board.tasks if task.task in kind.tasks]
        check_series([standing.stack for standing in kind.standings])
        profiles = _profiles(kind)
        for stack, profile in profiles.items():
            rows += _profile_rows(stack, _closed(board, stack, tasks), profile)
        notes += [
            f"{standing.stack} has no profile: one run per task"
            for standing in kind.standings
            if standing.profile is None
        ]
        notes += [f"{stack} has no profile: no counted trial on {lacks}" for stack, lacks in kind.lacking.items()]
        if profiles:
            panels.append((", ".join(kind.tasks), profiles))
    if not panels:
        raise NotEnoughData("no agent has two counted trials on a task, so there is no profile; run more seeds")
    columns = ("agent", "measure", "threshold", "value", "low", "high", "n_runs", "warning")
    size = (8.2, 3.6 * len(panels))
    return Plot("profiles", size, lambda figure: _draw_profiles(figure, panels), columns, rows, notes)


def profiles_svg(kind: OverallStandings) -> str:
    """The panel of one kind of tasks for a page: the first `MAX_SERIES` stacks; empty where none has a profile."""
    profiles = dict(list(_profiles(kind).items())[:MAX_SERIES])
    if not profiles:
        return ""
    description = f"Performance profiles of {len(profiles)} stacks on {_kind_words(kind)} tasks"
    with drawing(8.2, 3.6) as figure:
        _draw_profiles(figure, [(", ".join(kind.tasks), profiles)])
        return as_svg(figure, f"profiles-{_kind_words(kind)}", description)


def _profiles(kind: OverallStandings) -> Profiles:
    return {standing.stack: standing.profile for standing in kind.standings if standing.profile is not None}


def _kind_words(kind: OverallStandings) -> str:
    return "interactive" if kind.is_interactive else "static"


def chart_rng(*parts: str) -> np.random.Generator:
    """A generator seeded by these names, so that equal numbers give equal files."""
    return np.random.default_rng(derive_seed("chart", *parts))


def _closed(board: Leaderboard, stack: str, tasks: Sequence[TaskStandings]) -> list[list[float]]:
    """closed_RT: share of the way from the base model to a perfect score; NaN where a task has fewer runs."""
    columns = []
    for task in tasks:
        scores = [
            (row.base.value, row.gain.value)
            for row in _counted(board, stack, task.task)
            if row.base is not None and row.gain is not None and row.base.value < 1.0
        ]
        columns.append([float(normalised_score(base + gain, base, 1.0)) for base, gain in scores])
    n_runs = max(map(len, columns))
    return [[column[run] if run < len(column) else math.nan for column in columns] for run in range(n_runs)]


def _profile_rows(stack: str, closed: Sequence[Sequence[float]], profile: PerformanceProfile) -> list[list[object]]:
    shares = zip(profile.thresholds, profile.share, strict=True)
    rows: list[list[object]] = [
        [stack, "share_above", tau, *ends_of(share), share.n, profile.warning] for tau, share in shares
    ]
    for name, measure in (
        ("iqm", iqm), ("mean", mean_over_tasks), ("median", median_over_tasks), ("optimality_gap", optimality_gap),
    ):  # fmt: skip
        aggregate = measure(closed, chart_rng(name, stack), N_REPLICATES)
        rows.append([stack, name, None, *ends_of(aggregate.estimate), aggregate.estimate.n, aggregate.warning])
    return rows


def _draw_profiles(figure: Figure, panels: Sequence[tuple[str, Profiles]]) -> None:
    all_axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, (title, profiles) in zip(all_axes, panels, strict=True):
        for stack, profile in profiles.items():
            number = sorted(profiles).index(stack)
            taus = [100 * tau for tau in profile.thresholds]
            style = series_style(number) | {"markevery": 4, "markersize": 5}
            label = clean(stack, 40) + (" (few runs)" if profile.warning else "")
            axes.plot(taus, [100 * share.value for share in profile.share], label=label, **style)
            low, high = zip(*(share.scaled(100).interval for share in profile.share), strict=True)
            axes.fill_between(taus, low, high, color=style["color"], alpha=0.12, linewidth=0)
        axes.axvline(0, color=MUTED, linewidth=1.0, linestyle=(0, (5, 3)))
        axes.patch.set_alpha(0)
        axes.set_title(clean(title, 90), fontsize=10, loc="left")
        axes.set_ylabel("runs above, %")
        axes.set_ylim(-2, 102)
        axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
        add_grid(axes)
    all_axes[-1].set_xlabel("way from the base model (0) to a perfect score (100), %; 95% band over runs")


def cost_plot(board: Leaderboard, cost: str) -> Plot:
    """Cost of trials against their gains: a point for each trial, a large one for each stack's means.

    cost: a key of `COSTS`. A trial whose cost is not known is left out and counted. Raises NotEnoughData if none is.
    """
    label, cost_of = COSTS[cost]
    points: dict[str, list[tuple[float, float]]] = {}
    rows: list[list[object]] = []
    unknown: Counter[str] = Counter()
    for trial in board.trials:
        row = trial.row
        if not trial.is_counted or row.gain is None:
            continue
        spent = cost_of(row)
        rows.append([row.agent, row.task, row.seed, spent, *ends_of(row.gain)])
        if spent is None:
            unknown[row.agent] += 1
            continue
        points.setdefault(f"{row.agent} · {row.task}" if len(board.tasks) > 1 else row.agent, []).append(
            (float(spent), 100 * row.gain.value)
        )
    if not points:
        alternatives = ", ".join(name for name in COSTS if name != cost)
        raise NotEnoughData(f"no counted trial has a known cost in {cost}; try --cost with one of: {alternatives}")
    if len(points) > MAX_ROWS:
        raise ConfigError(f"{len(points)} agents and tasks do not fit in one figure; choose agents with --only")
    notes = [f"{name}: {counted(n, 'trial')} whose {cost} are not known" for name, n in unknown.items()]
    columns = ("agent", "task", "seed", cost, "gain", "low", "high")
    size = (8.2 + 1.6 * (math.ceil(len(points) / 24) - 1), 4.6)
    return Plot(f"cost-{cost}", size, lambda figure: _draw_cost(figure, points, label), columns, rows, notes)


def _draw_cost(figure: Figure, points: Mapping[str, Sequence[tuple[float, float]]], label: str) -> None:
    axes = figure.subplots()
    axes.axhline(0, color=MUTED, linewidth=1.0, linestyle=(0, (5, 3)))
    means = {
        name: (float(np.mean([x for x, _ in trials])), float(np.mean([y for _, y in trials])))
        for name, trials in points.items()
    }
    for number, (name, trials) in enumerate(points.items()):
        style: dict[str, Any] = {
            "color": SERIES_COLOURS[number % 4],
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": "none",
        }
        axes.plot(*zip(*trials, strict=True), markersize=4, alpha=0.5, **style)
        axes.plot(*means[name], markersize=9, markeredgecolor=INK, label=f"{number + 1}  {clean(name, 40)}", **style)
        axes.annotate(str(number + 1), means[name], xytext=(6, 5), textcoords="offset points", fontsize=9)
    best = -math.inf
    front = []
    for x, y in sorted(means.values(), key=lambda mean: (mean[0], -mean[1])):
        if y > best:
            front.append((x, y))
            best = y
    if len(front) > 1:
        axes.plot(*zip(*front, strict=True), color=INK, linewidth=1.0, linestyle=":", drawstyle="steps-post", zorder=1,
                  label="best mean for the cost")  # fmt: skip
    axes.set_xlabel(label)
    axes.set_ylabel("gain on private items, points")
    axes.set_xlim(left=0)
    axes.margins(y=0.1)
    add_grid(axes)
    figure.legend(loc="outside right upper", fontsize=8, ncols=math.ceil(len(points) / 24))


def effects_plot(board: Leaderboard) -> Plot:
    """Effects of drivers and agent systems: pairs of stacks that differ in one part only.

    Raises NotEnoughData where there are none.
    """
    effects = board.pair_effects
    if not effects:
        raise NotEnoughData(
            "no two agents differ in the driver or the agent system alone; a sweep over several drivers is needed"
        )
    if len(effects) > MAX_ROWS:
        raise ConfigError(f"{len(effects)} pairs do not fit on a page; choose agents with --only")
    rows = [
        [e.axis.value, e.task, e.mode, e.fixed, e.level_a, e.level_b, *ends_of(e.difference.change), e.p_adjusted,
         e.difference.over, e.n_seeds, e.claim]
        for e in effects
    ]  # fmt: skip
    columns = ("axis", "task", "mode", "fixed", "a", "b", "a_minus_b", "low", "high", "p_adjusted", "over", "n_seeds",
               "claim")  # fmt: skip
    size = (8.2, 1.4 + ROW_INCHES * len(effects) + 0.5 * len(_families(effects)))
    return Plot("effects", size, lambda figure: _draw_effects(figure, effects), columns, rows)


def _families(effects: Sequence[PairEffect]) -> dict[str, list[PairEffect]]:
    families: dict[str, list[PairEffect]] = {}
    for effect in effects:
        families.setdefault(f"{effect.axis.value}, with {effect.fixed} on {effect.task}", []).append(effect)
    return families


def _draw_effects(figure: Figure, effects: Sequence[PairEffect]) -> None:
    axes = figure.subplots()
    axes.axvline(0, color=MUTED, linewidth=1.2, linestyle=(0, (5, 3)))
    height, ticks, labels = 0.0, [], []
    for name, members in _families(effects).items():
        axes.annotate(
            clean(name, 70), (0, height), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", ha="left", va="center", fontweight="bold", fontsize=9,
        )  # fmt: skip
        for effect in members:
            height -= 1.0
            ticks.append(height)
            labels.append(clean(f"{effect.level_a} − {effect.level_b}", 60))
            percent = effect.difference.change.scaled(100)
            colour, marker = CLAIM_LOOKS[effect.claim]
            error = None if percent.low is None else [[arm] for arm in arms(percent)]
            axes.errorbar([percent.value], [height], xerr=error, fmt=marker, color=colour, capsize=3, markersize=6.5)
        height -= 1.6
    axes.set_yticks(ticks, labels)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_ylim(height + 0.8, 0.8)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("difference of private scores, points; intervals hold for all pairs of a group at once")
    axes.margins(x=0.08)
    add_grid(axes, "x")
