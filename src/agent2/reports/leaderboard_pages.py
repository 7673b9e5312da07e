"""A leaderboard as tables for the terminal, Markdown, CSV and one HTML page; the JSON is the record itself.

Ranks are shown as intervals (`2-4` where the data leave it open), stacks of one tier have one number, and a stack
without a counted trial has none. Figures of others are in tables of their own, labelled as published and not ours.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from agent2.reports.pages import render
from agent2.reports.sweep_pages import axis_table, pair_table
from agent2.reports.text import DASH, Column, Table, clean, counted, dollars, duration, percent
from agent2.stats.agent_metrics import ToSuccess
from agent2.stats.aggregates import PerformanceProfile
from agent2.stats.estimates import PERCENT, POINTS, Estimate, Notation

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
            Column("rank", lambda one: one.place.words if one.place is not None else DASH),
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
            Column("rank", lambda one: one.place.words),
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
            Column("rank among several runs", lambda one: one.place.words if one.place is not None else DASH),
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


def leaderboard_html(board: Leaderboard, title: str = "Leaderboard") -> str:
    """The whole board as one page that loads nothing."""
    return render("leaderboard.html.j2", _fields(board, title))


def leaderboard_markdown(board: Leaderboard, title: str = "Leaderboard") -> str:
    """The whole board as Markdown."""
    return render("leaderboard.md.j2", _fields(board, title))


def _fields(board: Leaderboard, title: str) -> dict[str, object]:
    return {
        "title": clean(title),
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
