"""Pages that compare agents: the report of a sweep, and a leaderboard.

A sweep's report shows every trial, every agent over its seeds, every pair of agents on the same items: sweep.json,
sweep.md, sweep.html and forest.svg, all from one `SweepReport`. A trial without a gain is shown by its reason and
enters no average; averages say over how many trials they are.

A leaderboard is given as tables for the terminal, Markdown, CSV and one HTML page; its JSON is the record itself. Ranks
are shown as intervals (`2-4` where the data leave it open), stacks of one tier have one number, and a stack without a
counted trial has none. Figures of others are in tables of their own, labelled as published and not ours.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent2.arena.analysis.leaderboard import (
    Leaderboard,
    LeaderboardTrial,
    LeftOut,
    OverallStanding,
    OverallStandings,
    Standing,
    TaskStandings,
)
from agent2.arena.analysis.published import PublishedBoard, PublishedRow
from agent2.arena.analysis.verdicts import IntegrityState
from agent2.arena.sweep_records import (
    FINISHED,
    AgentComparison,
    AgentSummary,
    Axis,
    AxisEffect,
    BySeed,
    PairEffect,
    SweepRow,
    axis_effects,
    summarise_agents,
)
from agent2.files import write_json, write_text
from agent2.reports.charts import MAX_LINES, forest_svg
from agent2.reports.pages import render
from agent2.reports.style import standalone
from agent2.reports.text import (
    DASH,
    Column,
    Table,
    clean,
    counted,
    dollars,
    duration,
    p_words,
    percent,
    points,
    score_words,
)
from agent2.reports.trial_view import sweep_type_table
from agent2.stats.agent_metrics import ToSuccess
from agent2.stats.aggregates import PerformanceProfile
from agent2.stats.estimates import PERCENT, POINTS, Estimate, Notation

FORMAT = "agent2-sweep-2"
"""Version 1 had numbers with intervals as flat fields (`gain_points`, `low_points`, ...)."""
AXIS_WORDS = {Axis.DRIVER: "driver", Axis.SCAFFOLD: "agent system"}


@dataclass(frozen=True, slots=True)
class SweepReport:
    """All of `sweep.json`; the pages show the same."""

    format: str
    title: str
    rows: Sequence[SweepRow]
    agents: Sequence[AgentSummary]
    comparisons: Sequence[AgentComparison]
    effects: Sequence[AxisEffect]
    """Of drivers and agent systems, where the sweep has several: the widest pair of each family."""
    pair_effects: Sequence[PairEffect]


@dataclass(frozen=True, slots=True)
class SweepReportPaths:
    """The files of a sweep's report."""

    json: Path
    markdown: Path
    html: Path
    figure: Path


def sweep_report(
    rows: Sequence[SweepRow],
    comparisons: Sequence[AgentComparison],
    title: str = "Sweep",
    effects: Sequence[PairEffect] = (),
    gains: Mapping[tuple[str, str], BySeed] | None = None,
) -> SweepReport:
    """The report of these records. gains: (task, stack) -> seed -> item -> gain, for intervals of mean gains."""
    return SweepReport(FORMAT, title, rows, summarise_agents(rows, gains), comparisons, axis_effects(effects), effects)


def sweep_fields(report: SweepReport) -> dict[str, Any]:
    """What the templates of a sweep's report are filled with."""
    return {
        "title": clean(report.title),
        "subtitle": _subtitle(report.rows),
        "figure": forest_svg(report.rows, report.agents),
        "rows": trial_table(report.rows),
        "agents": agent_table(report.agents),
        "types": sweep_type_table(report.rows),
        "comparisons": comparison_table(report.comparisons),
        "effects": axis_table(report.effects),
        "pairs": pair_table(report.pair_effects),
    }


def write_sweep_report(report: SweepReport, out_dir: Path) -> SweepReportPaths:
    """Write all files of the report into `out_dir` (made if missing); existing ones are replaced."""
    out_dir.mkdir(parents=True, exist_ok=True)
    fields = sweep_fields(report)
    paths = SweepReportPaths(*(out_dir / name for name in ("sweep.json", "sweep.md", "sweep.html", "forest.svg")))
    write_text(paths.figure, standalone(fields["figure"]))
    write_json(paths.json, report)
    write_text(paths.markdown, render("sweep.md.j2", fields))
    write_text(paths.html, render("sweep.html.j2", fields))
    return paths


def trial_table(rows: Sequence[SweepRow]) -> Table[SweepRow]:
    """Every trial, with all that is known of it."""

    def score(which: Estimate | None) -> str:
        return PERCENT.estimate(which, DASH)

    return Table(
        (
            Column("stack", lambda row: clean(f"{row.agent} · {row.task}")),
            Column("seed", lambda row: str(row.seed)),
            Column("base, private", lambda row: score(row.base)),
            Column("best public", lambda row: score(row.public)),
            Column("final private", lambda row: score(row.private)),
            Column("gain, points (over items)", _gain_words),
            Column("noise band", lambda row: DASH if row.noise is None else f"±{100 * row.noise:.1f}"),
            Column("verdict", lambda row: row.claim or DASH),
            Column("route", lambda row: clean(row.route) or DASH),
            Column("time", lambda row: duration(row.seconds)),
            Column("LLM tokens", lambda row: DASH if row.llm_tokens is None else f"{row.llm_tokens:,}"),
            Column("LLM cost", lambda row: DASH if row.llm_tokens is None else dollars(row.llm_dollars)),
            Column("state", _state_words),
        ),
        rows,
    )


def narrow_trial_table(rows: Sequence[SweepRow]) -> Table[SweepRow]:
    """The trials for a terminal: scores without their intervals, and a state in place of the route it prevented."""

    def score(which: Estimate | None) -> str:
        return percent(which.value if which is not None else None)

    whole = trial_table(rows).of("stack", "seed", "gain, points (over items)", "noise band", "verdict")
    scores = (
        Column[SweepRow]("base", lambda row: score(row.base)),
        Column[SweepRow]("public", lambda row: score(row.public)),
        Column[SweepRow]("private", lambda row: score(row.private)),
    )
    route = Column[SweepRow](
        "route", lambda row: (clean(row.route) or DASH) if row.state == FINISHED else _state_words(row)
    )
    return Table((*whole.columns[:2], *scores, *whole.columns[2:], route), rows)


def agent_table(summaries: Sequence[AgentSummary]) -> Table[AgentSummary]:
    """Every agent over its trials."""
    return Table(
        (
            Column("stack", lambda one: clean(f"{one.agent} · {one.task}")),
            Column("trials", lambda one: f"{one.n_finished} of {one.n_trials}"),
            Column("with a gain", lambda one: str(one.n_with_gain)),
            Column("mean gain [95%]", lambda one: POINTS.estimate(one.mean_gain, DASH)),
            Column("over", lambda one: one.over or DASH),
            Column("verdict", lambda one: one.claim or DASH),
            Column("spread over seeds", lambda one: DASH if one.spread_points is None else f"±{one.spread_points:.1f}"),
            Column("min to max", _span_words),
            Column("better, by trial", lambda one: f"{one.n_better} of {one.n_with_gain}"),
            Column("routes", lambda one: clean(", ".join(f"{name} ×{n}" for name, n in one.routes.items())) or DASH),
            Column("completed alone", lambda one: score_words(one.autonomy, DASH)),
            Column("failures recovered", lambda one: score_words(one.recovery, DASH)),
            Column("LLM cost", _cost_words),
        ),
        summaries,
    )


TERMINAL_AGENT = ("stack", "trials", "mean gain [95%]", "over", "verdict", "spread over seeds")
TERMINAL_COMPARISON = ("stacks", "difference, points", "95% interval", "over", "p", "verdict", "items", "seeds")
"""Columns that a terminal has room for."""


def comparison_table(comparisons: Sequence[AgentComparison]) -> Table[AgentComparison]:
    """Every pair of stacks on the same hidden items."""
    return Table(
        (
            Column("stacks", lambda one: clean(f"{one.agent_a} minus {one.agent_b} · {one.task}")),
            Column("difference, points", lambda one: POINTS.number(one.difference.change.value)),
            Column("95% interval", lambda one: POINTS.interval(one.difference.change, DASH)),
            Column("over", lambda one: one.difference.over),
            Column("p", lambda one: p_words(one.difference.p_value)),
            Column("verdict", lambda one: one.claim),
            Column("items", lambda one: str(one.difference.change.n)),
            Column("seeds", lambda one: str(one.n_seeds)),
            Column("method", lambda one: clean(one.difference.change.method) or DASH),
        ),
        comparisons,
    )


def axis_table(effects: Sequence[AxisEffect]) -> Table[AxisEffect]:
    """How much each part matters: the pair that is furthest apart in each family."""
    return Table(
        (
            Column("effect of the", lambda one: AXIS_WORDS[one.axis]),
            Column("on", lambda one: _where(one.fixed, one.mode, one.task)),
            Column("levels", lambda one: str(one.n_levels)),
            Column("furthest apart", lambda one: clean(f"{one.widest.level_a} minus {one.widest.level_b}")),
            Column("points", lambda one: POINTS.number(one.widest.difference.change.value)),
            Column("95% interval", lambda one: POINTS.interval(one.widest.difference.change, DASH)),
            Column("over", lambda one: one.widest.difference.over),
            Column("over runs alone", lambda one: POINTS.interval(one.widest.over_runs, DASH)),
            Column("p, adjusted", lambda one: p_words(one.widest.p_adjusted)),
            Column("verdict", lambda one: one.widest.claim),
        ),
        effects,
    )


def pair_table(pairs: Sequence[PairEffect]) -> Table[PairEffect]:
    """Every pair of stacks that differ in one part."""
    return Table(
        (
            Column("effect of the", lambda pair: AXIS_WORDS[pair.axis]),
            Column("on", lambda pair: _where(pair.fixed, pair.mode, pair.task)),
            Column("pair", lambda pair: clean(f"{pair.level_a} minus {pair.level_b}")),
            Column("difference, points", lambda pair: POINTS.number(pair.difference.change.value)),
            Column("interval", lambda pair: POINTS.interval(pair.difference.change, DASH)),
            Column("over", lambda pair: pair.difference.over),
            Column("interval over runs alone", lambda pair: POINTS.interval(pair.over_runs, DASH)),
            Column("p, adjusted", lambda pair: p_words(pair.p_adjusted)),
            Column("verdict", lambda pair: pair.claim),
            Column("items", lambda pair: str(pair.difference.change.n)),
            Column("seeds", lambda pair: str(pair.n_seeds)),
            Column("missing", lambda pair: str(pair.n_missing)),
            Column("method", lambda pair: clean(pair.difference.change.method)),
        ),
        pairs,
    )


def _where(fixed: str, mode: str, task: str) -> str:
    return clean(f"{fixed} · {task}" + (f" · {mode}" if mode != "free" else ""))


def _gain_words(row: SweepRow) -> str:
    why = row.result.replace("_", " ")
    if row.gain is None:
        return why or DASH
    if row.gain.low is None:
        return f"{POINTS.number(row.gain.value)} ({why})"
    mark = ", flagged" if row.integrity == IntegrityState.FLAGGED.value else ""
    return f"{POINTS.estimate(row.gain)}{mark}"


def _state_words(row: SweepRow) -> str:
    return clean(row.state) + ("" if row.mode_kept in {"", "pass"} else f", mode {row.mode}: {row.mode_kept}")


def _span_words(summary: AgentSummary) -> str:
    low, high = summary.min_gain_points, summary.max_gain_points
    return DASH if low is None or high is None else f"{points(low)} to {points(high)}"


def _cost_words(summary: AgentSummary) -> str:
    if summary.llm_tokens is None:
        return DASH
    known = dollars(summary.llm_dollars)
    return f"{known} + {summary.n_unknown_cost} trials unknown" if summary.n_unknown_cost else known


def _subtitle(rows: Sequence[SweepRow]) -> str:
    n_finished = sum(row.state == FINISHED for row in rows)
    cut = f"; the figure shows the first {MAX_LINES}" if len(rows) > MAX_LINES else ""
    stacks, seeds = len({row.agent for row in rows}), len({row.seed for row in rows})
    drivers = len({row.driver for row in rows if row.driver is not None})
    driven = f", {drivers} drivers" if drivers else ""
    seeded = f"{seeds} seed{'s' * (seeds != 1)}"
    return f"{counted(len(rows), 'trial')} ({n_finished} finished), {counted(stacks, 'stack')}{driven}, {seeded}{cut}"


NOT_OURS = "published by others, not ours: no rollouts behind it, never compared with the trials above"
SCORE = Notation(".3f", 100.0)
"""Percent with the digits that published tables have."""
TERMINAL = ("rank", "tier", "stack", "runs", "mean gain [95%]", "within noise", "routes", "LLM cost", "marks")
"""Columns of `standing_table` that a terminal has room for."""


def standing_table(board: TaskStandings) -> Table[Standing]:
    """Every stack on one task."""

    def ours(which: ToSuccess | None) -> str:
        return DASH if which is None else duration(which.spent.value)

    return Table(
        (
            Column("rank", lambda one: one.place.text if one.place is not None else DASH),
            Column("tier", lambda one: str(one.place.tier) if one.place is not None else DASH),
            Column("stack", lambda one: clean(one.stack)),
            Column("runs", lambda one: f"{one.n_counted} of {one.summary.n_trials}"),
            Column("base -> final", lambda one: f"{percent(one.base)} -> {percent(one.final)}"),
            Column("mean gain [95%]", lambda one: POINTS.estimate(one.summary.mean_gain, DASH)),
            Column("over", lambda one: one.summary.over or DASH),
            Column("verdict", lambda one: one.summary.claim or DASH),
            Column("within noise", lambda one: f"{one.n_within_noise} of {one.n_counted}" if one.n_counted else DASH),
            Column("spread over runs", lambda one: _spread(one.summary.spread_points)),
            Column("routes", lambda one: clean(", ".join(f"{n} x{k}" for n, k in one.summary.routes.items())) or DASH),
            Column("better than base", lambda one: _rate(one.spend.task_success)),
            Column("failures recovered", lambda one: _rate(one.spend.recovery_rate)),
            Column("time to success", lambda one: ours(one.spend.seconds_to_success)),
            Column("LLM cost", lambda one: _cost(one)),
            Column("cost of a success", lambda one: _price(one.dollars_per_success)),
            Column("seeds", lambda one: ", ".join(map(str, one.seeds)) or DASH),
            Column("marks", lambda one: clean("; ".join(one.marks)) or DASH),
        ),
        board.standings,
    )


def overall_table(board: OverallStandings) -> Table[OverallStanding]:
    """Every stack over all tasks of a kind."""
    return Table(
        (
            Column("rank", lambda one: one.place.text),
            Column("tier", lambda one: str(one.place.tier)),
            Column("stack", lambda one: clean(one.stack)),
            Column("IQM of the way to 100% [95%]", lambda one: PERCENT.estimate(one.iqm.estimate)),
            Column("mean gain [95%], points", lambda one: POINTS.estimate(one.mean_gain)),
            Column("beats the next in", lambda one: _rate(one.beats_next.estimate if one.beats_next else None)),
            Column("note", lambda one: one.iqm.warning or DASH),
        ),
        board.standings,
    )


@dataclass(frozen=True, slots=True)
class OverallView:
    """All tasks of a kind, as pages show them."""

    title: str
    table: Table[OverallStanding]
    lacking: Mapping[str, str]
    """Stack -> tasks for which it has no counted trial."""
    profiles_svg: str
    """Empty where no stack has two runs on a task."""
    profiles: Table[OverallStanding]
    """The numbers of the figure."""
    n_drawn: int


def overall_views(board: Leaderboard) -> list[OverallView]:
    """The boards over all tasks of a kind, with their performance profiles drawn."""
    from agent2.reports.figures import MAX_SERIES, profiles_svg

    views = []
    for one in board.overall:
        table = profiles_table(one)
        n_drawn = min(MAX_SERIES, len(table.records))
        views.append(
            OverallView(overall_title(one), overall_table(one), one.lacking, profiles_svg(one), table, n_drawn)
        )
    return views


def profiles_table(board: OverallStandings) -> Table[OverallStanding]:
    """Share of each stack's runs above the base model and above quarters of the way to a perfect score."""

    def share_above(way: float) -> Column[OverallStanding]:
        name = "above the base [95%]" if way == 0 else f"above {way:.0%} of the way [95%]"
        return Column(name, lambda one: _rate(_share(one.profile, way)))

    ways = [share_above(way) for way in (0.0, 0.25, 0.5, 0.75)]
    standings = [one for one in board.standings if one.profile is not None]
    return Table((Column("stack", lambda one: clean(one.stack)), *ways), standings)


def _share(profile: PerformanceProfile | None, way: float) -> Estimate | None:
    return None if profile is None else profile.share[profile.thresholds.index(way)]


def published_table(board: PublishedBoard) -> Table[PublishedRow]:
    """The figures of one source."""
    return Table(
        (
            Column("as published", lambda one: clean(one.name) + ("" if one.is_agent else " (reference)")),
            Column("score, %", lambda one: SCORE.number(one.score.value)),
            Column("95% interval", lambda one: SCORE.interval(one.score, DASH)),
            Column("runs", lambda one: one.runs),
            Column("base, %", lambda one: DASH if one.base is None else SCORE.number(one.base)),
            Column("rank among several runs", lambda one: one.place.text if one.place is not None else DASH),
            Column("tier", lambda one: str(one.place.tier) if one.place is not None else DASH),
            Column("note", lambda one: clean(one.note) or DASH),
        ),
        board.rows,
    )


def pooled_table(trials: Sequence[LeaderboardTrial]) -> Table[LeaderboardTrial]:
    """Every trial of the pool, with where it is."""
    return Table(
        (
            Column("trial", lambda one: clean(one.row.trial)),
            Column("stack", lambda one: clean(f"{one.row.agent} · {one.row.task}")),
            Column("seed", lambda one: str(one.row.seed)),
            Column("gain, points", lambda one: POINTS.estimate(one.row.gain, one.row.result.replace("_", " ") or DASH)),
            Column("counts", lambda one: "yes" if one.is_counted else "no"),
            Column("marks", lambda one: clean("; ".join(one.marks)) or DASH),
            Column("folder", lambda one: clean(one.folder)),
        ),
        trials,
    )


def left_out_table(left_out: Sequence[LeftOut]) -> Table[LeftOut]:
    """What is not on the board, and why."""
    return Table(
        (Column("left out", lambda one: clean(one.folder)), Column("why", lambda one: clean(one.why))), left_out
    )


def task_title(board: TaskStandings) -> str:
    """Name of the task, and whether episodes are played."""
    kind = "interactive" if board.is_interactive else "static"
    over = f"; ranks hold for all at once, over {board.over}" if board.over else ""
    return clean(f"{board.task} ({kind}{over})")


def overall_title(board: OverallStandings) -> str:
    """The kind of tasks, and which they are."""
    kind = "interactive" if board.is_interactive else "static"
    return clean(f"Over all {kind} tasks: {', '.join(board.tasks)}")


def subtitle(board: Leaderboard) -> str:
    """How much is on the board, and how much is not."""
    n_counted = sum(trial.is_counted for trial in board.trials)
    stacks = len({trial.row.agent for trial in board.trials})
    unverified = sum(not trial.is_verified for trial in board.trials)
    parts = [f"{counted(len(board.trials), 'trial')}, {n_counted} of them count"]
    parts += [counted(stacks, "stack"), counted(len(board.tasks), "task")]
    parts += [f"{unverified} not verified"] if unverified else []
    parts += [f"{len(board.left_out)} left out"] if board.left_out else []
    return ", ".join(parts)


def leaderboard_csv(board: Leaderboard) -> str:
    """One row for each stack on each task, then one for each published figure; rates 0-1, gains too, empty: unknown."""
    columns = (
        "origin", "task", "kind", "stack", "scaffold", "driver", "mode", "best_rank", "worst_rank", "tier", "n_trials",
        "n_counted", "base", "final", "gain", "gain_low", "gain_high", "over", "claim", "n_within_noise", "llm_dollars",
        "marks",
    )  # fmt: skip
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in _csv_rows(board):
        writer.writerow({name: _cell(row.get(name)) for name in columns})
    return text.getvalue()


def _csv_rows(board: Leaderboard) -> Iterator[dict[str, object]]:
    for task in board.tasks:
        for one in task.standings:
            gain = one.summary.mean_gain
            yield {
                "origin": "ours", "task": task.task, "kind": "interactive" if task.is_interactive else "static",
                "stack": one.stack, "scaffold": one.scaffold, "driver": one.driver, "mode": one.mode,
                "best_rank": one.place and one.place.best_rank, "worst_rank": one.place and one.place.worst_rank,
                "tier": one.place and one.place.tier, "n_trials": one.summary.n_trials, "n_counted": one.n_counted,
                "base": one.base, "final": one.final, "gain": gain and gain.value, "gain_low": gain and gain.low,
                "gain_high": gain and gain.high, "over": one.summary.over, "claim": one.summary.claim,
                "n_within_noise": one.n_within_noise, "llm_dollars": one.summary.llm_dollars,
                "marks": "; ".join(one.marks),
            }  # fmt: skip
    for source in board.published:
        for row in source.rows:
            yield {
                "origin": f"published, not ours: {source.source}", "task": source.title, "stack": row.name,
                "best_rank": row.place and row.place.best_rank, "worst_rank": row.place and row.place.worst_rank,
                "tier": row.place and row.place.tier, "n_trials": row.score.n, "base": row.base,
                "final": row.score.value, "marks": row.note,
            }  # fmt: skip


def _cell(value: object) -> object:
    """Numbers as they are; text that a spreadsheet would take for a formula is made text."""
    if not isinstance(value, str):
        return value
    shown = clean(value)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def leaderboard_html(board: Leaderboard) -> str:
    """The whole board as one page that loads nothing."""
    return render("leaderboard.html.j2", _fields(board))


def leaderboard_markdown(board: Leaderboard) -> str:
    """The whole board as Markdown."""
    return render("leaderboard.md.j2", _fields(board))


def _fields(board: Leaderboard) -> dict[str, object]:
    return {
        "title": "Leaderboard",
        "subtitle": subtitle(board),
        "overall": overall_views(board),
        "tasks": [(task_title(one), standing_table(one), one.exam) for one in board.tasks],
        "effects": axis_table(board.effects),
        "pairs": pair_table(board.pair_effects),
        "published": [(one, published_table(one)) for one in board.published],
        "not_ours": NOT_OURS,
        "trials": pooled_table(board.trials),
        "left_out": left_out_table(board.left_out),
    }


def _spread(spread: float | None) -> str:
    return DASH if spread is None else f"±{spread:.1f}"


def _rate(rate: Estimate | None) -> str:
    return DASH if rate is None else PERCENT.estimate(rate)


def _cost(one: Standing) -> str:
    if one.summary.llm_tokens is None:
        return DASH
    unknown = f" + {one.summary.n_unknown_cost} unknown" if one.summary.n_unknown_cost else ""
    return f"{dollars(one.summary.llm_dollars)}{unknown}"


def _price(price: Estimate | None) -> str:
    return DASH if price is None else dollars(price.value)
