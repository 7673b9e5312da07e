"""Pages that compare agents: the report of a sweep, and a leaderboard.

A sweep's report shows every trial, every agent over its seeds, and every pair of agents on the same items: sweep.json,
sweep.md, sweep.html and forest.svg, all from one `SweepReport`. A trial in which nothing usable was submitted counts
with a gain of 0 and its reason; one without a gain is shown with its reason and is in no average. Averages state their
number of trials.

A leaderboard becomes tables for the terminal, Markdown, CSV and one HTML page; its JSON is the record itself. Ranks are
shown as intervals (`2-4` where the data cannot tell), the stacks of one tier have one number, and a stack without a
counted trial has none. Published figures of other people have tables of their own, labelled as published and not ours.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agent2.arena.analysis.exams import Exam
from agent2.arena.analysis.leaderboard import (
    Leaderboard,
    OverallStanding,
    OverallStandings,
    Standing,
    TaskStandings,
)
from agent2.arena.analysis.pooled import ExcludedFolder, LeaderboardTrial
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
from agent2.reports.masthead import Masthead
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
from agent2.stats.agent_metrics import ToSuccess
from agent2.stats.aggregates import PerformanceProfile
from agent2.stats.estimates import PERCENT, POINTS, Estimate, Notation
from agent2.texts import as_csv_cell, counted

FORMAT = "agent2-sweep-2"
"""Version 1 had numbers with intervals as flat fields (`gain_points`, `low_points`, ...)."""
AXIS_WORDS = {Axis.DRIVER: "driver", Axis.SCAFFOLD: "agent system"}
NOT_OURS = "published by others, not ours: no rollouts behind it, never compared with the trials above"
SCORE = Notation(".3f", 100.0)
"""Percent with the digits that published tables have."""
TERMINAL_AGENT = ("stack", "trials", "mean gain [95%]", "when it submitted", "over", "verdict", "spread over seeds")
TERMINAL_COMPARISON = ("stacks", "difference, points", "95% interval", "over", "p", "verdict", "items", "seeds")
TERMINAL = (
    "rank", "tier", "stack", "runs", "mean gain [95%]", "when it submitted", "within noise", "routes", "LLM cost",
    "marks",
)  # fmt: skip
"""Columns of `agent_table`, `comparison_table` and `standing_table` that a terminal has room for."""
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


def _summary_credit(summary: AgentSummary) -> str:
    if not summary.n_assigned:
        return DASH
    return _credit_words(summary.mean_credit, f"{summary.n_passed} of {summary.n_assigned} passed")


def _with_assignment(names: Sequence[str], table: Table[T]) -> Table[T]:
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
        _with_assignment(TERMINAL_AGENT, agent_table(report.agents)),
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
    whole = _with_assignment(names, trial_table(rows))
    scores = (
        Column[SweepRow]("base", lambda row: score(row.base)),
        Column[SweepRow]("public", lambda row: score(row.public)),
        Column[SweepRow]("private", lambda row: score(row.private)),
    )
    route = Column[SweepRow](
        "route", lambda row: (clean(row.route) or DASH) if row.state == FINISHED else _state_words(row)
    )
    return Table((*whole.columns[:2], *scores, *whole.columns[2:], route), rows)


def _mean_gain_words(summary: AgentSummary) -> str:
    """The mean gain; without an interval where the base model is kept in every trial, so that it is 0 by rule."""
    gain = summary.mean_gain
    if gain is not None and summary.n_submitted == 0 and gain.value == gain.low == gain.high == 0.0:
        return f"{POINTS.number(0.0)}, the base is kept"
    return POINTS.estimate(gain, DASH)


def agent_table(summaries: Sequence[AgentSummary]) -> Table[AgentSummary]:
    """Every agent over its trials."""
    has_verdicts = any(summary.n_assigned for summary in summaries)
    assignment = (Column[AgentSummary](ASSIGNMENT, _summary_credit),) if has_verdicts else ()
    return Table(
        (
            Column("stack", lambda summary: clean(f"{summary.agent} · {summary.task}")),
            Column("trials", lambda summary: f"{summary.n_finished} of {summary.n_trials}"),
            Column("with a gain", lambda summary: str(summary.n_with_gain)),
            Column("mean gain [95%]", _mean_gain_words),
            Column("when it submitted", _submitted_words),
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


def _submitted_words(summary: AgentSummary) -> str:
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


def standing_table(board: TaskStandings) -> Table[Standing]:
    """Every stack on one task."""

    def time(to_success: ToSuccess | None) -> str:
        return DASH if to_success is None else duration(to_success.spent.value)

    has_verdicts = any(standing.summary.n_assigned for standing in board.standings)
    credit = Column[Standing](ASSIGNMENT, lambda standing: _summary_credit(standing.summary))
    assignment = (credit,) if has_verdicts else ()
    return Table(
        (
            Column("rank", lambda standing: standing.place.text if standing.place is not None else DASH),
            Column("tier", lambda standing: str(standing.place.tier) if standing.place is not None else DASH),
            Column("stack", lambda standing: clean(standing.stack)),
            Column("runs", lambda standing: f"{standing.n_counted} of {standing.summary.n_trials}"),
            Column("base -> final", lambda standing: f"{percent(standing.base)} -> {percent(standing.final)}"),
            Column("mean gain [95%]", lambda standing: _mean_gain_words(standing.summary)),
            Column("when it submitted", lambda standing: _submitted_words(standing.summary)),
            Column("over", lambda standing: standing.summary.over or DASH),
            Column("verdict", lambda standing: standing.summary.claim or DASH),
            *assignment,
            Column(
                "within noise",
                lambda standing: f"{standing.n_within_noise} of {standing.n_counted}" if standing.n_counted else DASH,
            ),
            Column(
                "spread over runs",
                lambda standing: (
                    DASH if standing.summary.spread_points is None else f"±{standing.summary.spread_points:.1f}"
                ),
            ),
            Column(
                "routes",
                lambda standing: clean(", ".join(f"{n} x{k}" for n, k in standing.summary.routes.items())) or DASH,
            ),
            Column("better than base", lambda standing: _rate(standing.spend.task_success)),
            Column("failures recovered", lambda standing: _rate(standing.spend.recovery_rate)),
            Column("time to success", lambda standing: time(standing.spend.seconds_to_success)),
            Column("LLM cost", lambda standing: _cost(standing)),
            Column(
                "cost of a success",
                lambda standing: DASH if (price := standing.dollars_per_success) is None else dollars(price.value),
            ),
            Column("seeds", lambda standing: ", ".join(map(str, standing.seeds)) or DASH),
            Column("marks", lambda standing: clean("; ".join(standing.marks)) or DASH),
        ),
        board.standings,
    )


def terminal_standings(board: TaskStandings) -> Table[Standing]:
    """The columns of `standing_table` that a terminal has room for."""
    return _with_assignment(TERMINAL, standing_table(board))


def _other_columns(board: TaskStandings) -> Table[Standing]:
    """The columns of `standing_table` that `terminal_standings` leaves out, beside the stack."""
    table = standing_table(board)
    return table.of("stack", *(name for name in table.names if name not in terminal_standings(board).names))


def overall_table(board: OverallStandings) -> Table[OverallStanding]:
    """Every stack over all tasks of a kind."""
    return Table(
        (
            Column("rank", lambda standing: standing.place.text),
            Column("tier", lambda standing: str(standing.place.tier)),
            Column("stack", lambda standing: clean(standing.stack)),
            Column("share of possible gain, IQM [95%]", lambda standing: PERCENT.estimate(standing.iqm.estimate)),
            Column("mean gain [95%], points", lambda standing: POINTS.estimate(standing.mean_gain)),
            Column(
                "beats the next with probability",
                lambda standing: _rate(standing.beats_next.estimate if standing.beats_next else None),
            ),
            Column("note", lambda standing: standing.iqm.warning or DASH),
        ),
        board.standings,
    )


@dataclass(frozen=True, slots=True)
class OverallView:
    """The board over all tasks of a kind, as pages show it."""

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
    for standings in board.overall:
        table = profiles_table(standings)
        n_drawn = min(MAX_SERIES, len(table.records))
        views.append(
            OverallView(
                overall_title(standings),
                overall_table(standings),
                standings.lacking,
                profiles_svg(standings),
                table,
                n_drawn,
            )
        )
    return views


def profiles_table(board: OverallStandings) -> Table[OverallStanding]:
    """Share of each stack's runs above the base model and above quarters of the possible gain."""

    def share_above(threshold: float) -> Column[OverallStanding]:
        name = "above the base [95%]" if threshold == 0 else f"above {threshold:.0%} of the possible gain [95%]"
        return Column(name, lambda standing: _rate(_share(standing.profile, threshold)))

    shares = [share_above(threshold) for threshold in (0.0, 0.25, 0.5, 0.75)]
    standings = [standing for standing in board.standings if standing.profile is not None]
    return Table((Column("stack", lambda standing: clean(standing.stack)), *shares), standings)


def _share(profile: PerformanceProfile | None, threshold: float) -> Estimate | None:
    return None if profile is None else profile.share[profile.thresholds.index(threshold)]


def published_table(board: PublishedBoard) -> Table[PublishedRow]:
    """The figures of one source."""
    return Table(
        (
            Column("as published", lambda row: clean(row.name) + ("" if row.is_agent else " (reference)")),
            Column("score, %", lambda row: SCORE.number(row.score.value)),
            Column("95% interval", lambda row: SCORE.interval(row.score, DASH)),
            Column("runs", lambda row: row.runs),
            Column("base, %", lambda row: DASH if row.base is None else SCORE.number(row.base)),
            Column("rank among several runs", lambda row: row.place.text if row.place is not None else DASH),
            Column("tier", lambda row: str(row.place.tier) if row.place is not None else DASH),
            Column("note", lambda row: clean(row.note) or DASH),
        ),
        board.rows,
    )


def pooled_table(trials: Sequence[LeaderboardTrial]) -> Table[LeaderboardTrial]:
    """Every trial of the pool with its folder."""
    return Table(
        (
            Column("trial", lambda trial: clean(trial.row.trial)),
            Column("stack", lambda trial: clean(f"{trial.row.agent} · {trial.row.task}")),
            Column("seed", lambda trial: str(trial.row.seed)),
            Column(
                "gain, points",
                lambda trial: POINTS.estimate(trial.row.gain, trial.row.result.replace("_", " ") or DASH),
            ),
            Column("counts", lambda trial: "yes" if trial.is_counted else "no"),
            Column("marks", lambda trial: clean("; ".join(trial.marks)) or DASH),
            Column("folder", lambda trial: clean(trial.folder)),
        ),
        trials,
    )


def exam_table(exams: Sequence[Exam]) -> Table[Exam]:
    """The exams of every task; of each the shown one first."""
    return Table(
        (
            Column("task", lambda exam: clean(exam.task)),
            Column("exam", lambda exam: clean(exam.label, 400)),
            Column("trials", lambda exam: f"{exam.n_counted} of {exam.n_trials} count"),
            Column("marked by this installation", lambda exam: str(exam.n_marked)),
            Column("shown", lambda exam: "yes" if exam.is_shown else "no"),
            Column("key", lambda exam: exam.key),
        ),
        exams,
    )


def exam_sentence(board: Leaderboard, task: TaskStandings) -> str:
    """Under which conditions the trials of a task's board were played."""
    exam, conditions = board.exam_of(task.task), task.exam
    label = exam.label if exam is not None else "unknown"
    base = conditions.base_name or "unknown"
    sentence = f"Exam: {label}. {conditions.benchmark}, base model {base}, budget {budget_words(conditions.budget)}."
    return clean(sentence, 600)


def budget_words(budget: str) -> str:
    """A budget as it is stored (`submissions=10, wall_clock_s=300.0`), for readers."""
    parts = []
    for part in budget.split(", ") if budget else ():
        name, _, value = part.partition("=")
        if name == "wall_clock_s" and _is_number(value):
            parts.append(duration(float(value)))
        elif name == "submissions" and value.isdecimal():
            parts.append(counted(int(value), "submission"))
        else:
            parts.append(part)
    return ", ".join(parts) or "none"


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(?:\.\d+)?", text) is not None


def left_out_table(left_out: Sequence[ExcludedFolder]) -> Table[ExcludedFolder]:
    """Folders that are not on the board, with the reasons."""
    return Table(
        (Column("left out", lambda trial: clean(trial.folder)), Column("why", lambda trial: clean(trial.why))), left_out
    )


def task_title(board: TaskStandings) -> str:
    """Name of the task, and whether it is interactive."""
    kind = "interactive" if board.is_interactive else "static"
    over = f"; ranks hold for all at once, over {board.over}" if board.over else ""
    return clean(f"{board.task} ({kind}{over})")


def overall_title(board: OverallStandings) -> str:
    """The kind of tasks, and which they are."""
    kind = "interactive" if board.is_interactive else "static"
    return clean(f"Over all {kind} tasks: {', '.join(board.tasks)}")


def subtitle(board: Leaderboard) -> str:
    """Numbers of trials, stacks and tasks on the board, and of those left out."""
    n_counted = sum(trial.is_counted for trial in board.trials)
    stacks = len({trial.row.agent for trial in board.trials})
    unverified = sum(not trial.is_verified for trial in board.trials)
    parts = [f"{counted(len(board.trials), 'trial')}, {n_counted} {'counts' if n_counted == 1 else 'count'}"]
    parts += [counted(stacks, "stack"), counted(len(board.tasks), "task")]
    parts += [f"{unverified} not verified"] if unverified else []
    parts += [f"{len(board.left_out)} left out"] if board.left_out else []
    return ", ".join(parts)


def leaderboard_csv(board: Leaderboard) -> str:
    """One row for each stack on each task, then one for each published figure; rates 0-1, gains too, empty: unknown."""
    columns = (
        "origin", "task", "kind", "stack", "scaffold", "driver", "mode", "best_rank", "worst_rank", "tier", "n_trials",
        "n_counted", "base", "final", "gain", "gain_low", "gain_high", "over", "claim", "n_within_noise", "llm_dollars",
        "n_submitted", "gain_submitted", "credit", "n_passed", "marks",
    )  # fmt: skip
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in _csv_rows(board):
        writer.writerow({name: _cell(row.get(name)) for name in columns})
    return text.getvalue()


def _csv_rows(board: Leaderboard) -> Iterator[dict[str, object]]:
    for task in board.tasks:
        for standing in task.standings:
            summary, place, gain = standing.summary, standing.place, standing.summary.mean_gain
            yield {
                "origin": "ours", "task": task.task, "kind": "interactive" if task.is_interactive else "static",
                "stack": standing.stack, "scaffold": standing.scaffold, "driver": standing.driver,
                "mode": standing.mode, "best_rank": place and place.best_rank, "worst_rank": place and place.worst_rank,
                "tier": place and place.tier, "n_trials": summary.n_trials, "n_counted": standing.n_counted,
                "base": standing.base, "final": standing.final, "gain": gain and gain.value,
                "gain_low": gain and gain.low, "gain_high": gain and gain.high, "over": summary.over,
                "claim": summary.claim, "n_within_noise": standing.n_within_noise,
                "llm_dollars": summary.llm_dollars, "n_submitted": summary.n_submitted,
                "gain_submitted": summary.gain_submitted and summary.gain_submitted.value,
                "credit": summary.mean_credit, "n_passed": summary.n_passed if summary.n_assigned else None,
                "marks": "; ".join(standing.marks),
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
    return as_csv_cell(clean(value)) if isinstance(value, str) else value


def leaderboard_html(board: Leaderboard, masthead: Masthead | None = None) -> str:
    """The whole board as one page that loads nothing."""
    tasks = [
        (task_title(task), terminal_standings(task), _other_columns(task), exam_sentence(board, task))
        for task in board.tasks
    ]
    return render("leaderboard.html.j2", _fields(board) | {"masthead": masthead, "tasks": tasks})


def leaderboard_markdown(board: Leaderboard, masthead: Masthead | None = None) -> str:
    """The whole board as Markdown, under the title and text of its publisher."""
    return render("leaderboard.md.j2", _fields(board) | {"masthead": masthead})


def _fields(board: Leaderboard) -> dict[str, object]:
    return {
        "title": "Leaderboard",
        "subtitle": subtitle(board),
        "overall": overall_views(board),
        "tasks": [(task_title(task), standing_table(task), exam_sentence(board, task)) for task in board.tasks],
        "exams": exam_table(board.exams),
        "effects": axis_table(board.effects),
        "pairs": pair_table(board.pair_effects),
        "published": [(source, published_table(source)) for source in board.published],
        "not_ours": NOT_OURS,
        "trials": pooled_table(board.trials),
        "left_out": left_out_table(board.left_out),
    }


def _rate(rate: Estimate | None) -> str:
    return DASH if rate is None else PERCENT.estimate(rate)


def _cost(standing: Standing) -> str:
    if standing.summary.llm_tokens is None:
        return DASH
    if standing.summary.llm_dollars is None:
        return dollars(None)
    unknown = f" + {standing.summary.n_unknown_cost} unknown" if standing.summary.n_unknown_cost else ""
    return f"{dollars(standing.summary.llm_dollars)}{unknown}"
