"""The report of a sweep: every trial, every agent over its seeds, and every pair of agents on the same items.

Its files are sweep.json, sweep.md, sweep.html and forest.svg, all from one `SweepReport`. A trial in which nothing
usable was submitted counts with a gain of 0 and its reason; one without a gain is shown with its reason and is in no
average. Averages state their number of trials.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

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
from agent2.reports.style import standalone
from agent2.reports.text import (
    DASH,
    Column,
    Table,
    clean,
    dollars,
    duration,
    p_words,
    percent,
    points,
    render,
    score_words,
)
from agent2.reports.trial_view import sweep_type_table
from agent2.stats.estimates import PERCENT, POINTS, Estimate
from agent2.texts import counted

FORMAT = "agent2-sweep-2"
"""Version 1 had numbers with intervals as flat fields (`gain_points`, `low_points`, ...)."""
AXIS_WORDS = {Axis.DRIVER: "driver", Axis.SCAFFOLD: "agent system"}
TERMINAL_AGENT = ("stack", "trials", "mean gain [95%]", "when it submitted", "over", "verdict", "spread over seeds")
TERMINAL_COMPARISON = ("stacks", "difference, points", "95% interval", "over", "p", "verdict", "items", "seeds")
"""Columns of `agent_table` and `comparison_table` that a terminal has room for."""
ASSIGNMENT = "assignment"
"""Column of credit and verdict on assignments that ask for more than a checkpoint; only where there are any."""
T = TypeVar("T")


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
    """Values of the templates of a sweep's report."""
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


def _credit_words(credit: float | None, verdict: str) -> str:
    return f"{'no credit given' if credit is None else f'credit {credit:.2f}'}, {verdict}"


def _row_credit(row: SweepRow) -> str:
    if row.has_passed is None:
        return DASH
    return _credit_words(row.credit, "passed" if row.has_passed else "not passed")


def summary_credit(summary: AgentSummary) -> str:
    """Mean credit of the assignments that give a verdict, and how many passed."""
    if not summary.n_assigned:
        return DASH
    return _credit_words(summary.mean_credit, f"{summary.n_passed} of {summary.n_assigned} passed")


def with_assignment(names: Sequence[str], table: Table[T]) -> Table[T]:
    """These columns, and where the table has it that of assignments with a verdict of their own."""
    return table.of(*names, *(name for name in table.names if name == ASSIGNMENT))


def trial_table(rows: Sequence[SweepRow]) -> Table[SweepRow]:
    """Every trial with its scores, verdict, costs and state."""
    has_verdicts = any(row.has_passed is not None for row in rows)
    assignment = (Column[SweepRow](ASSIGNMENT, _row_credit),) if has_verdicts else ()

    def score(estimate: Estimate | None) -> str:
        return PERCENT.estimate(estimate, DASH)

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
            *assignment,
            Column("route", lambda row: clean(row.route) or DASH),
            Column("time", lambda row: duration(row.seconds)),
            Column("LLM tokens", lambda row: DASH if row.llm_tokens is None else f"{row.llm_tokens:,}"),
            Column("LLM cost", lambda row: DASH if row.llm_tokens is None else dollars(row.llm_dollars)),
            Column("state", _state_words),
        ),
        rows,
    )


def terminal_tables(report: SweepReport) -> Iterator[tuple[Sequence[str], Sequence[Sequence[str]]]]:
    """A sweep's tables for a terminal, the empty ones left out: the names of the columns, and the cells of each row."""
    for table in (
        narrow_trial_table(report.rows),
        with_assignment(TERMINAL_AGENT, agent_table(report.agents)),
        comparison_table(report.comparisons).of(*TERMINAL_COMPARISON),
        axis_table(report.effects),
    ):
        if table.records:
            yield table.names, table.cells()


def narrow_trial_table(rows: Sequence[SweepRow]) -> Table[SweepRow]:
    """The trials for a terminal: scores without their intervals, and a state in place of the route it prevented."""

    def score(estimate: Estimate | None) -> str:
        return percent(estimate.value if estimate is not None else None)

    names = ("stack", "seed", "gain, points (over items)", "noise band", "verdict")
    whole = with_assignment(names, trial_table(rows))
    scores = (
        Column[SweepRow]("base", lambda row: score(row.base)),
        Column[SweepRow]("public", lambda row: score(row.public)),
        Column[SweepRow]("private", lambda row: score(row.private)),
    )
    route = Column[SweepRow](
        "route", lambda row: (clean(row.route) or DASH) if row.state == FINISHED else _state_words(row)
    )
    return Table((*whole.columns[:2], *scores, *whole.columns[2:], route), rows)


def mean_gain_words(summary: AgentSummary) -> str:
    """The mean gain; without an interval where the base model is kept in every trial, so that it is 0 by rule."""
    gain = summary.mean_gain
    if gain is not None and summary.n_submitted == 0 and gain.value == gain.low == gain.high == 0.0:
        return f"{POINTS.number(0.0)}, the base is kept"
    return POINTS.estimate(gain, DASH)


def agent_table(summaries: Sequence[AgentSummary]) -> Table[AgentSummary]:
    """Every agent over its trials."""
    has_verdicts = any(summary.n_assigned for summary in summaries)
    assignment = (Column[AgentSummary](ASSIGNMENT, summary_credit),) if has_verdicts else ()
    return Table(
        (
            Column("stack", lambda summary: clean(f"{summary.agent} · {summary.task}")),
            Column("trials", lambda summary: f"{summary.n_finished} of {summary.n_trials}"),
            Column("with a gain", lambda summary: str(summary.n_with_gain)),
            Column("mean gain [95%]", mean_gain_words),
            Column("when it submitted", submitted_words),
            Column("over", lambda summary: summary.over or DASH),
            Column("verdict", lambda summary: summary.claim or DASH),
            *assignment,
            Column(
                "spread over seeds",
                lambda summary: DASH if summary.spread_points is None else f"±{summary.spread_points:.1f}",
            ),
            Column("min to max", _span_words),
            Column("better, by trial", lambda summary: f"{summary.n_better} of {summary.n_with_gain}"),
            Column(
                "routes", lambda summary: clean(", ".join(f"{name} ×{n}" for name, n in summary.routes.items())) or DASH
            ),
            Column("completed alone", lambda summary: score_words(summary.autonomy, DASH)),
            Column("failures recovered", lambda summary: score_words(summary.recovery, DASH)),
            Column("LLM cost", _cost_words),
        ),
        summaries,
    )


def comparison_table(comparisons: Sequence[AgentComparison]) -> Table[AgentComparison]:
    """Every pair of stacks on the same hidden items."""
    return Table(
        (
            Column("stacks", lambda pair: clean(f"{pair.agent_a} minus {pair.agent_b} · {pair.task}")),
            Column("difference, points", lambda pair: POINTS.number(pair.difference.change.value)),
            Column("95% interval", lambda pair: POINTS.interval(pair.difference.change, DASH)),
            Column("over", lambda pair: pair.difference.over),
            Column("p", lambda pair: p_words(pair.difference.p_value)),
            Column("verdict", lambda pair: pair.claim),
            Column("items", lambda pair: str(pair.difference.change.n)),
            Column("seeds", lambda pair: str(pair.n_seeds)),
            Column("method", lambda pair: clean(pair.difference.change.method) or DASH),
        ),
        comparisons,
    )


def axis_table(effects: Sequence[AxisEffect]) -> Table[AxisEffect]:
    """Effect of each part of a stack: the pair that is furthest apart in each family."""
    return Table(
        (
            Column("effect of the", lambda effect: AXIS_WORDS[effect.axis]),
            Column("on", lambda effect: _where(effect.fixed, effect.mode, effect.task)),
            Column("levels", lambda effect: str(effect.n_levels)),
            Column("furthest apart", lambda effect: clean(f"{effect.widest.level_a} minus {effect.widest.level_b}")),
            Column("points", lambda effect: POINTS.number(effect.widest.difference.change.value)),
            Column("95% interval", lambda effect: POINTS.interval(effect.widest.difference.change, DASH)),
            Column("over", lambda effect: effect.widest.difference.over),
            Column("over runs alone", lambda effect: POINTS.interval(effect.widest.over_runs, DASH)),
            Column("p, adjusted", lambda effect: p_words(effect.widest.p_adjusted)),
            Column("verdict", lambda effect: effect.widest.claim),
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
    again = f", run again: {row.reproduced}" if row.reproduced else ""
    mode = "" if row.mode_kept in {"", "pass"} else f", mode {row.mode}: {row.mode_kept}"
    return clean(row.state) + mode + again


def _span_words(summary: AgentSummary) -> str:
    low, high = summary.min_gain_points, summary.max_gain_points
    return DASH if low is None or high is None else f"{points(low)} to {points(high)}"


def submitted_words(summary: AgentSummary) -> str:
    """Mean gain over the runs that submitted something usable, where that is not all of them."""
    if not summary.n_with_gain:
        return DASH
    n = f"{summary.n_submitted} of {summary.n_with_gain} runs"
    if summary.n_submitted in {0, summary.n_with_gain}:
        return n
    return f"{POINTS.estimate(summary.gain_submitted, DASH)}, {n}"


def _cost_words(summary: AgentSummary) -> str:
    if summary.llm_tokens is None:
        return DASH
    cost = dollars(summary.llm_dollars)
    return f"{cost} + {counted(summary.n_unknown_cost, 'trial')} of unknown cost" if summary.n_unknown_cost else cost


def _subtitle(rows: Sequence[SweepRow]) -> str:
    n_finished = sum(row.state == FINISHED for row in rows)
    cut = f"; the figure shows the first {MAX_LINES}" if len(rows) > MAX_LINES else ""
    stacks, seeds = len({row.agent for row in rows}), len({row.seed for row in rows})
    drivers = len({row.driver for row in rows if row.driver is not None})
    driven = f", {drivers} drivers" if drivers else ""
    seeded = f"{seeds} seed{'s' * (seeds != 1)}"
    return f"{counted(len(rows), 'trial')} ({n_finished} finished), {counted(stacks, 'stack')}{driven}, {seeded}{cut}"
