"""A leaderboard as tables for the terminal, Markdown, CSV and one HTML page; its JSON is the record itself.

Ranks are shown as intervals (`2-4` where the data cannot tell), the stacks of one tier have one number, and a stack
without a counted trial has none. Published figures of other people have tables of their own, labelled as published and
not ours.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent2.arena.analysis.exams import Exam, budget_words
from agent2.arena.analysis.leaderboard import (
    Leaderboard,
    OverallStanding,
    OverallStandings,
    Standing,
    TaskStandings,
)
from agent2.arena.analysis.pooled import ExcludedFolder, LeaderboardTrial
from agent2.arena.analysis.published import PublishedBoard, PublishedRow
from agent2.reports.masthead import Masthead
from agent2.reports.sweep_pages import (
    ASSIGNMENT,
    axis_table,
    mean_gain_words,
    pair_table,
    submitted_words,
    summary_credit,
    with_assignment,
)
from agent2.reports.text import (
    DASH,
    Column,
    Table,
    clean,
    dollars,
    duration,
    percent,
    render,
)
from agent2.stats.agent_metrics import ToSuccess
from agent2.stats.aggregates import PerformanceProfile
from agent2.stats.estimates import PERCENT, POINTS, Estimate, Notation
from agent2.texts import as_csv_cell, counted

NOT_OURS = "published by others, not ours: no rollouts behind it, never compared with the trials above"
SCORE = Notation(".3f", 100.0)
"""Percent with the digits that published tables have."""
TERMINAL = (
    "rank", "tier", "stack", "runs", "mean gain [95%]", "when it submitted", "within noise", "routes", "LLM cost",
    "marks",
)  # fmt: skip
"""Columns of `standing_table` that a terminal has room for."""


def standing_table(board: TaskStandings) -> Table[Standing]:
    """Every stack on one task."""

    def time(to_success: ToSuccess | None) -> str:
        return DASH if to_success is None else duration(to_success.spent.value)

    has_verdicts = any(standing.summary.n_assigned for standing in board.standings)
    credit = Column[Standing](ASSIGNMENT, lambda standing: summary_credit(standing.summary))
    assignment = (credit,) if has_verdicts else ()
    return Table(
        (
            Column("rank", lambda standing: standing.place.text if standing.place is not None else DASH),
            Column("tier", lambda standing: str(standing.place.tier) if standing.place is not None else DASH),
            Column("stack", lambda standing: clean(standing.stack)),
            Column("runs", lambda standing: f"{standing.n_counted} of {standing.summary.n_trials}"),
            Column("base -> final", lambda standing: f"{percent(standing.base)} -> {percent(standing.final)}"),
            Column("mean gain [95%]", lambda standing: mean_gain_words(standing.summary)),
            Column("when it submitted", lambda standing: submitted_words(standing.summary)),
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
    return with_assignment(TERMINAL, standing_table(board))


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


def left_out_table(left_out: Sequence[ExcludedFolder]) -> Table[ExcludedFolder]:
    """Folders that are not on the board, with the reasons."""
    return Table(
        (Column("left out", lambda trial: clean(trial.folder)), Column("why", lambda trial: clean(trial.why))), left_out
    )


def task_title(board: TaskStandings) -> str:
    """Name of the task, and whether an item is one answer or an episode."""
    kind = "an item is an episode" if board.is_interactive else "one answer an item"
    over = f"; ranks hold for all at once, over {board.over}" if board.over else ""
    return clean(f"{board.task} ({kind}{over})")


def overall_title(board: OverallStandings) -> str:
    """The kind of tasks, and which they are."""
    kind = "episodes" if board.is_interactive else "one answer an item"
    return clean(f"Over all tasks with {kind}: {', '.join(board.tasks)}")


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
