"""The report of a sweep: every trial, every agent over its seeds, every pair of agents on the same items.

Writes sweep.json, sweep.md, sweep.html and forest.svg, all from one `SweepReport`. A trial without a gain is shown by
its reason and enters no average; averages say over how many trials they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from agent2.stats.estimates import PERCENT, POINTS, Estimate

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
