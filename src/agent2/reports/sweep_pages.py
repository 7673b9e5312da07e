"""The report of a sweep: every trial, every agent over its seeds, every pair of agents on the same items.

Writes sweep.json, sweep.md, sweep.html and forest.svg. A trial without a gain is shown by its reason and
enters no average; averages say over how many trials they are.

The tables of driver and scaffold effects on a sweep's page and in the terminal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

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
from agent2.reports.charts import MAX_LINES, forest_svg, standalone
from agent2.reports.pages import render, write_json, write_text
from agent2.reports.text import DASH, clean, dollars, duration, p_words, percent, points, score_words
from agent2.reports.trial_view import SWEEP_TYPE_NAMES, sweep_type_rows
from agent2.stats.estimates import Estimate

AXIS_NAMES = (
    "effect of the", "on", "levels", "furthest apart", "points", "95% interval", "over", "over runs alone",
    "p, adjusted", "verdict",
)  # fmt: skip
PAIR_NAMES = (
    "effect of the", "on", "pair", "difference, points", "interval", "over", "interval over runs alone", "p, adjusted",
    "verdict", "items", "seeds", "missing", "method",
)  # fmt: skip
WORDS = {Axis.DRIVER: "driver", Axis.SCAFFOLD: "agent system"}

Row = tuple[str, ...]


def axis_rows(effects: Sequence[AxisEffect]) -> list[Row]:
    """How much each part matters: the pair that is furthest apart in each family."""
    return [
        (
            WORDS[effect.axis],
            _where(effect.fixed, effect.mode, effect.task),
            str(effect.n_levels),
            clean(f"{effect.widest.level_a} minus {effect.widest.level_b}"),
            points(effect.widest.delta_points),
            _interval(effect.widest.low_points, effect.widest.high_points),
            effect.widest.over,
            _interval(effect.widest.seed_low_points, effect.widest.seed_high_points),
            p_words(effect.widest.p_adjusted),
            effect.widest.claim,
        )
        for effect in effects
    ]


def pair_rows(pairs: Sequence[PairEffect]) -> list[Row]:
    """Every pair."""
    return [
        (
            WORDS[pair.axis],
            _where(pair.fixed, pair.mode, pair.task),
            clean(f"{pair.level_a} minus {pair.level_b}"),
            points(pair.delta_points),
            _interval(pair.low_points, pair.high_points),
            pair.over,
            _interval(pair.seed_low_points, pair.seed_high_points),
            p_words(pair.p_adjusted),
            pair.claim,
            str(pair.n_items),
            str(pair.n_seeds),
            str(pair.n_missing),
            clean(pair.method),
        )
        for pair in pairs
    ]


def _where(fixed: str, mode: str, task: str) -> str:
    return clean(f"{fixed} · {task}" + (f" · {mode}" if mode != "free" else ""))


def _interval(low: float | None, high: float | None) -> str:
    return DASH if low is None or high is None else f"[{low:+.1f}, {high:+.1f}]"


FORMAT = "agent2-sweep-1"
ROW_NAMES = (
    "stack",
    "seed",
    "base, private",
    "best public",
    "final private",
    "gain, points (over items)",
    "verdict",
    "route",
    "time",
    "LLM tokens",
    "LLM cost",
    "state",
)
AGENT_NAMES = (
    "stack",
    "trials",
    "with a gain",
    "mean gain [95%]",
    "over",
    "verdict",
    "spread over seeds",
    "min to max",
    "better, by trial",
    "routes",
    "completed alone",
    "failures recovered",
    "LLM cost",
)
COMPARISON_NAMES = ("stacks", "difference, points", "95% interval", "over", "p", "verdict", "items", "seeds", "method")


@dataclass(frozen=True, slots=True)
class SweepReportPaths:
    """The files of a sweep's report."""

    json: Path
    markdown: Path
    html: Path
    figure: Path


def write_sweep_report(
    rows: Sequence[SweepRow],
    comparisons: Sequence[AgentComparison],
    out_dir: Path,
    title: str = "Sweep",
    effects: Sequence[PairEffect] = (),
    gains: Mapping[tuple[str, str], BySeed] | None = None,
) -> SweepReportPaths:
    """Write all files of the report into `out_dir` (made if missing); existing ones are replaced.

    effects: of drivers and agent systems, where the sweep has several. gains: (task, stack) -> seed -> item -> gain,
    for the intervals of the mean gains.
    """
    widest = axis_effects(effects)
    out_dir.mkdir(parents=True, exist_ok=True)
    summaries = summarise_agents(rows, gains)
    figure = forest_svg(rows, summaries)
    fields = {
        "title": clean(title),
        "subtitle": _subtitle(rows),
        "figure": figure,
        "rows": (ROW_NAMES, [row_cells(row) for row in rows]),
        "agents": (AGENT_NAMES, [_agent_cells(summary) for summary in summaries]),
        "types": (SWEEP_TYPE_NAMES, sweep_type_rows(rows)),
        "comparisons": (COMPARISON_NAMES, [_comparison_cells(comparison) for comparison in comparisons]),
        "effects": (AXIS_NAMES, axis_rows(widest)),
        "pairs": (PAIR_NAMES, pair_rows(effects)),
    }
    paths = SweepReportPaths(*(out_dir / name for name in ("sweep.json", "sweep.md", "sweep.html", "forest.svg")))
    record = {
        "format": FORMAT,
        "title": title,
        "rows": [asdict(row) for row in rows],
        "agents": [asdict(summary) for summary in summaries],
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "effects": [asdict(effect) for effect in widest],
        "pair_effects": [asdict(pair) for pair in effects],
    }
    write_text(paths.figure, standalone(figure))
    write_json(paths.json, record)
    write_text(paths.markdown, render("sweep.md.j2", fields))
    write_text(paths.html, render("sweep.html.j2", fields))
    return paths


Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Column names and rows of cells."""


def row_table(rows: Sequence[SweepRow]) -> Table:
    """The trials for a terminal: narrow, scores without their intervals."""
    names = ("stack", "seed", "base", "public", "private", "gain, points (over items)", "verdict", "route")
    return names, [_narrow_cells(row) for row in rows]


def agent_table(summaries: Sequence[AgentSummary]) -> Table:
    """The agents for a terminal: the mean gains with their intervals."""
    keep = (0, 1, 3, 4, 5, 6)
    rows = [_agent_cells(summary) for summary in summaries]
    return tuple(AGENT_NAMES[i] for i in keep), [tuple(row[i] for i in keep) for row in rows]


def comparison_table(comparisons: Sequence[AgentComparison]) -> Table:
    """The comparisons for a terminal."""
    return COMPARISON_NAMES[:-1], [_comparison_cells(comparison)[:-1] for comparison in comparisons]


def row_cells(row: SweepRow) -> tuple[str, ...]:
    """One trial in words, in the order of `ROW_NAMES`; also for a table in the terminal."""
    return (
        clean(f"{row.agent} · {row.task}"),
        str(row.seed),
        *(score_words(score, DASH).partition(" (n")[0] for score in (row.base, row.public, row.private)),
        _gain_words(row),
        row.claim or DASH,
        clean(row.route) or DASH,
        duration(row.seconds),
        DASH if row.llm_tokens is None else f"{row.llm_tokens:,}",
        DASH if row.llm_tokens is None else dollars(row.llm_dollars),
        clean(row.state) + ("" if row.mode_kept in {"", "pass"} else f", mode {row.mode}: {row.mode_kept}"),
    )


def _narrow_cells(row: SweepRow) -> tuple[str, ...]:
    agent, seed, _, _, _, gain, claim, route, _, _, _, state = row_cells(row)
    scores = (percent(score.value if score is not None else None) for score in (row.base, row.public, row.private))
    return (agent, seed, *scores, gain, claim, route if row.state == FINISHED else state)


def _gain_words(row: SweepRow) -> str:
    why = row.result.replace("_", " ")
    if row.gain_points is None:
        return why or DASH
    if row.low_points is None or row.high_points is None:
        return f"{points(row.gain_points)} ({why})"
    mark = ", flagged" if row.integrity == IntegrityState.FLAGGED.value else ""
    return f"{points(row.gain_points)} [{row.low_points:+.1f}, {row.high_points:+.1f}]{mark}"


def _agent_cells(summary: AgentSummary) -> tuple[str, ...]:
    low, high = summary.min_gain_points, summary.max_gain_points
    span = f"{points(low)} to {points(high)}" if low is not None and high is not None else DASH
    routes = ", ".join(f"{route} ×{n}" for route, n in summary.routes.items())
    return (
        clean(f"{summary.agent} · {summary.task}"),
        f"{summary.n_finished} of {summary.n_trials}",
        str(summary.n_with_gain),
        points(summary.mean_gain_points) + _span(summary.low_points, summary.high_points),
        summary.over or DASH,
        summary.claim or DASH,
        f"±{summary.spread_points:.1f}" if summary.spread_points is not None else DASH,
        span,
        f"{summary.n_better} of {summary.n_with_gain}",
        clean(routes) or DASH,
        _share(summary.autonomy),
        _share(summary.recovery),
        _cost(summary),
    )


def _span(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{low:+.1f}, {high:+.1f}]"


def _share(share: Estimate | None) -> str:
    if share is None:
        return DASH
    span = f" [{percent(share.low)}, {percent(share.high)}]" if share.low is not None else ""
    return f"{percent(share.value)}{span} (n = {share.n})"


def _cost(summary: AgentSummary) -> str:
    if summary.llm_tokens is None:
        return DASH
    known = dollars(summary.llm_dollars)
    return f"{known} + {summary.n_unknown_cost} trials unknown" if summary.n_unknown_cost else known


def _comparison_cells(comparison: AgentComparison) -> tuple[str, ...]:
    return (
        clean(f"{comparison.agent_a} minus {comparison.agent_b} · {comparison.task}"),
        points(comparison.delta_points),
        _span(comparison.low_points, comparison.high_points).strip(),
        comparison.over,
        p_words(comparison.p_value),
        comparison.claim,
        str(comparison.n_items),
        str(comparison.n_seeds),
        clean(comparison.method) or DASH,
    )


def _subtitle(rows: Sequence[SweepRow]) -> str:
    n_finished = sum(row.state == FINISHED for row in rows)
    cut = f"; the figure shows the first {MAX_LINES}" if len(rows) > MAX_LINES else ""
    stacks, seeds = len({row.agent for row in rows}), len({row.seed for row in rows})
    drivers = len({row.driver for row in rows if row.driver is not None})
    driven = f", {drivers} drivers" if drivers else ""
    return f"{len(rows)} trials ({n_finished} finished), {stacks} stacks{driven}, {seeds} seeds{cut}"
