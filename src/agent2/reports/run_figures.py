"""Figures of runs (planned and taken routes, learning curves, time to a target, trajectories) and of judged pairs.

They are made of the evidence of trials and of judgement cards. A trial without a score is counted in a note, never
drawn at 0.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from agent2.arena.analysis.process import scored_submissions
from agent2.arena.analysis.route import combined_route
from agent2.arena.analysis.stages import read_design
from agent2.arena.analysis.verdicts import ROUTE_WORDS, Analysis
from agent2.arena.evidence import TrialEvidence
from agent2.errors import ConfigError, NotEnoughData
from agent2.reports.charts import draw_trajectory, time_unit
from agent2.reports.figures import N_REPLICATES, Plot, add_grid, chart_rng, check_series, ends_of, series_style
from agent2.reports.style import BLUE, INK, MUTED, arms
from agent2.reports.text import clean
from agent2.stats.estimates import UNIT, Estimate
from agent2.stats.gains import IncumbentCurve, compare_times, incumbent_curve, mean_incumbent_curve, time_to_target
from agent2.stats.ranking import bradley_terry_bootstrap, collect_matches, win_rates_against
from agent2.texts import counted

MAX_PANELS = 12
GRID_POINTS = 120
NO_PLAN, UNNAMED = "no plan", "plan names no known method"


@dataclass(frozen=True, slots=True)
class TrialRun:
    """One finished trial with its evidence and analysis."""

    stack: str
    task: str
    seed: int
    evidence: TrialEvidence
    analysis: Analysis


@dataclass(frozen=True, slots=True)
class JudgedMatch:
    """One comparison of a judgement card."""

    new: str
    """Name of a side."""
    old: str
    item: str
    points: float | None
    """Of the new side, a tie as one half; None: not judged."""


def routes_plot(runs: Sequence[TrialRun]) -> Plot:
    """Which route trials planned (output/design.json) against the one that their evidence shows."""
    counts = Counter((_planned(run.evidence), ROUTE_WORDS[run.analysis.route.route]) for run in runs)
    routes = list(ROUTE_WORDS.values())
    planned = [route for route in [*routes, UNNAMED, NO_PLAN] if any(pair[0] == route for pair in counts)]
    taken = [route for route in routes if any(pair[1] == route for pair in counts)]
    rows = [[plan, route, counts[plan, route]] for plan in planned for route in taken if counts[plan, route]]
    size = (2.6 + 1.25 * len(taken), 1.9 + 0.55 * len(planned))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        highest = max(counts.values())
        for down, plan in enumerate(planned):
            for across, route in enumerate(taken):
                n = counts[plan, route]
                shade = 0.12 + 0.6 * n / highest if n else 0.0
                axes.fill_between([across - 0.48, across + 0.48], down - 0.46, down + 0.46, color=BLUE, alpha=shade,
                                  linewidth=0)  # fmt: skip
                is_same = plan == route
                axes.text(across, down, str(n) if n else "·", ha="center", va="center",
                          fontweight="bold" if is_same else "normal")  # fmt: skip
        axes.set_xticks(range(len(taken)), [word.replace(" ", "\n", 1) for word in taken], fontsize=9)
        axes.set_yticks(range(len(planned)), planned, fontsize=9)
        axes.set_xlim(-0.6, len(taken) - 0.4)
        axes.set_ylim(len(planned) - 0.4, -0.6)
        axes.tick_params(length=0, labelcolor=INK)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel("route taken, as logs, programs and code show it; bold: as planned")
        axes.set_ylabel("route planned")

    return Plot("routes", size, draw, ("planned", "taken", "trials"), rows)


def _planned(evidence: TrialEvidence) -> str:
    design, _ = read_design(evidence.design)
    if design is None:
        return NO_PLAN
    methods = list(dict.fromkeys(algorithm.method for algorithm in design.named_algorithms()))
    return ROUTE_WORDS[combined_route(methods)] if methods else UNNAMED


def learning_plot(runs: Sequence[TrialRun]) -> Plot:
    """Best public score so far over the agent's time, mean over runs with a 95% interval; a panel for each task.

    A run starts at the base model's score, and keeps its best score after its end.
    """
    panels: dict[str, dict[str, list[TrialRun]]] = {}
    for run in runs:
        panels.setdefault(run.task, {}).setdefault(run.stack, []).append(run)
    if len(panels) > MAX_PANELS // 2:
        raise ConfigError(f"{len(panels)} tasks do not fit on a page; pass folders with at most {MAX_PANELS // 2}")
    curves: dict[str, dict[str, list[Estimate]]] = {}
    grids: dict[str, list[float]] = {}
    rows: list[list[object]] = []
    for task, stacks in panels.items():
        check_series(list(stacks))
        longest = max(
            run.evidence.ended_at - run.evidence.started_at for stack_runs in stacks.values() for run in stack_runs
        )
        grids[task] = [float(t) for t in np.linspace(0.0, longest, GRID_POINTS)]
        curves[task] = {}
        for stack, stack_runs in stacks.items():
            mean = mean_incumbent_curve([_incumbent(run) for run in stack_runs], grids[task], UNIT)
            curves[task][stack] = mean
            rows += [
                [task, stack, t, *ends_of(estimate), estimate.n] for t, estimate in zip(grids[task], mean, strict=True)
            ]

    def draw(figure: Figure) -> None:
        all_axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, task in zip(all_axes, panels, strict=True):
            unit, name = time_unit(grids[task][-1])
            times = [t / unit for t in grids[task]]
            for number, (stack, mean) in enumerate(sorted(curves[task].items())):
                style = series_style(number) | {"markevery": 20, "markersize": 5}
                label = f"{clean(stack, 40)} (n = {mean[0].n})"
                axes.plot(times, [100 * estimate.value for estimate in mean], label=label, **style)
                banded = [
                    estimate
                    if estimate.low is not None
                    else Estimate(estimate.value, estimate.value, estimate.value, estimate.n)
                    for estimate in mean
                ]
                low, high = zip(*(estimate.scaled(100).interval for estimate in banded), strict=True)
                axes.fill_between(times, low, high, color=style["color"], alpha=0.12, linewidth=0)
            axes.set_title(clean(task, 60), fontsize=10, loc="left")
            axes.set_ylabel("best public score, %")
            axes.set_xlabel(f"{name} since the agent started; 95% band over runs")
            axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
            add_grid(axes)

    columns = ("task", "agent", "seconds", "best_public", "low", "high", "n_runs")
    return Plot("learning", (8.2, 3.4 * len(panels)), draw, columns, rows)


def _incumbent(run: TrialRun) -> IncumbentCurve:
    """The best public score after each scored submission; before the first one, the base model's."""
    scored = [s for s in scored_submissions(run.evidence) if s.score is not None]
    times = [0.0, *(max(0.0, s.received_at - run.evidence.started_at) for s in scored)]
    scores = [run.evidence.base_public.value, *(s.score.value for s in scored if s.score is not None)]
    return incumbent_curve(np.diff(times), scores[1:], start=scores[0])


def times_plot(runs: Sequence[TrialRun], target: float) -> Plot:
    """Time in which each stack reached a share of the way from base to perfect score, relative to the fastest.

    target: that share, above 0 and at most 1. A run counts only if its private score reached it as well. Runs of a
    task are numbered; a stack with fewer runs than another on a task limits both. Raises NotEnoughData without a task
    that all stacks have run.
    """
    if not 0.0 < target <= 1.0:
        raise ConfigError(f"--target {target}: give a share of the possible gain, above 0 and at most 1")
    grouped: dict[str, dict[str, list[TrialRun]]] = {}
    for run in runs:
        grouped.setdefault(run.stack, {}).setdefault(run.task, []).append(run)
    stacks = sorted(grouped)
    check_series(stacks)
    tasks = [task for task in dict.fromkeys(run.task for run in runs) if all(task in grouped[s] for s in stacks)]
    n_runs = {task: min(len(grouped[stack][task]) for stack in stacks) for task in tasks}
    workloads = [(task, number) for task in tasks for number in range(n_runs[task])]
    if not workloads:
        raise NotEnoughData("there is no task that all agents have run; choose agents with --only")
    public = [[_time_to(grouped[s][task][number], target) for task, number in workloads] for s in stacks]
    private = [[_held(grouped[s][task][number], target) for task, number in workloads] for s in stacks]
    comparison = compare_times(stacks, public, private)
    ratios = np.linspace(1.0, comparison.max_ratio, GRID_POINTS)
    rows: list[list[object]] = []
    for row_index, stack in enumerate(stacks):
        for column, (task, number) in enumerate(workloads):
            seconds = public[row_index][column] if math.isfinite(private[row_index][column]) else math.inf
            rows.append([stack, task, number, None if math.isinf(seconds) else seconds, *[None] * 3])
        rows.append([stack, "area under the profile", None, None, *ends_of(comparison.scores[row_index])])

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        shares = np.array([comparison.profile(float(ratio)) for ratio in ratios])
        for number, stack in enumerate(stacks):
            style = series_style(number) | {"markevery": 20, "markersize": 5, "drawstyle": "steps-post"}
            label = f"{clean(stack, 40)} ({100 * comparison.scores[number].value:.0f})"
            axes.plot(ratios, 100 * shares[:, number], label=label, **style)
        axes.set_xlabel("time relative to the fastest agent of the run")
        axes.set_ylabel("runs that reached it, %")
        axes.set_ylim(-2, 102)
        axes.set_title(f"{target:.0%} of the possible gain, public and private", fontsize=10, loc="left")
        axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5), title="area, %", title_fontsize=9)
        add_grid(axes)

    columns = ("agent", "task", "run", "seconds", "area", "low", "high")
    notes = [f"runs compared: {n} of {task}" for task, n in n_runs.items()]
    return Plot("times", (8.2, 3.8), draw, columns, rows, notes)


def _score_at(base: float, target: float) -> float:
    return base + target * (1.0 - base)


def _time_to(run: TrialRun, target: float) -> float:
    """Seconds to the public target; infinity if it was not reached."""
    by_time = {max(s.received_at - run.evidence.started_at, 1e-3): s for s in scored_submissions(run.evidence)}
    scored = sorted((t, s.score.value) for t, s in by_time.items() if s.score is not None)
    if not scored:
        return math.inf
    times, scores = zip(*scored, strict=True)
    return time_to_target(times, scores, _score_at(run.evidence.base_public.value, target))


def _held(run: TrialRun, target: float) -> float:
    """1 if the private score of the result reached the target, else infinity."""
    base, gain = run.evidence.base_private, run.analysis.result.gain
    if base is None or gain is None:
        return math.inf
    return 1.0 if base.value + gain.value >= _score_at(base.value, target) else math.inf


def trajectories_plot(runs: Sequence[TrialRun]) -> Plot:
    """Public scores over time with their intervals, the base model's and the final one: a panel for each trial."""
    if len(runs) > MAX_PANELS:
        raise ConfigError(
            f"{len(runs)} trials do not fit on a page; pass at most {MAX_PANELS}, or draw agent2 chart learning"
        )
    rows: list[list[object]] = []
    for run in runs:
        evidence, trial = run.evidence, [run.task, run.stack, run.seed]
        rows.append([*trial, "base, public", 0.0, "", *ends_of(evidence.base_public)])
        for submission in evidence.submissions:
            seconds = submission.received_at - evidence.started_at
            rows.append([*trial, submission.number, seconds, submission.state.value, *ends_of(submission.score)])
        rows.append([*trial, "base, private", None, "", *ends_of(evidence.base_private)])
        rows.append([*trial, "final, private", None, "", *ends_of(evidence.final_private)])
    columns = ("task", "agent", "seed", "submission", "seconds", "state", "score", "low", "high")
    across = 1 if len(runs) == 1 else 2
    down = math.ceil(len(runs) / across)

    def draw(figure: Figure) -> None:
        panels = np.ravel(figure.subfigures(down, across, squeeze=False))
        for panel, run in zip(panels, runs, strict=False):
            draw_trajectory(panel, run.evidence)
            if len(runs) > 1:
                title = clean(f"{run.stack} on {run.task}, seed {run.seed}", 60)
                panel.axes[0].set_title(title, fontsize=10, loc="left", fontweight="bold")

    return Plot("trajectory", (8.2 * across, 3.9 * down), draw, columns, rows)


def strengths_plot(pairs: Sequence[JudgedMatch], baseline: str | None = None) -> Plot:
    """Bradley-Terry strengths of checkpoints from judged comparisons, with intervals over items.

    baseline: the checkpoint of expected win rates; default: the weakest. Raises ConfigError for an unknown baseline,
    NotEnoughData if the comparisons do not determine the strengths.
    """
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.old, pair.new)))
    if baseline is not None and baseline not in names:
        raise ConfigError(f"--baseline {baseline!r}: is not one of {', '.join(names)}")
    matches = collect_matches(
        [names.index(pair.new) for pair in pairs],
        [names.index(pair.old) for pair in pairs],
        [math.nan if pair.points is None else pair.points for pair in pairs],
        len(names),
        [pair.item for pair in pairs],
    )
    ranking = bradley_terry_bootstrap(matches, chart_rng("strengths", *names), N_REPLICATES // 5)
    against = names.index(baseline) if baseline is not None else ranking.order[-1]
    rates = win_rates_against(ranking, against)
    rows = [
        [names[checkpoint], *ends_of(ranking.strength[checkpoint]), rates[checkpoint], names[against]]
        for checkpoint in ranking.order
    ]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for row, checkpoint in enumerate(ranking.order):
            strength = ranking.strength[checkpoint]
            axes.errorbar(
                [strength.value], [-row], xerr=[[arm] for arm in arms(strength)], fmt="o", color=BLUE, capsize=3
            )
            label = "baseline" if checkpoint == against else f"wins {rates[checkpoint]:.0%}"
            axes.annotate(label, (1.0, -row), xycoords=("axes fraction", "data"), xytext=(6, 0),
                          textcoords="offset points", va="center", fontsize=9, color=MUTED)  # fmt: skip
        axes.set_yticks(
            [-row for row in range(len(names))], [clean(names[checkpoint], 40) for checkpoint in ranking.order]
        )
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(-len(names) + 0.4, 0.6)
        axes.set_xlabel(f"strength, log-odds; 95% interval over items; win rates expected against {names[against]}")
        add_grid(axes, "x")

    missing = [f"{counted(ranking.n_missing, 'comparison')} without a verdict left out"] if ranking.n_missing else []
    notes = [*missing, *([ranking.warning] if ranking.warning else [])]
    columns = ("checkpoint", "strength", "low", "high", "win_rate", "against")
    return Plot("strengths", (7.6, 1.2 + 0.4 * len(names)), draw, columns, rows, notes)
