"""`agent2 chart`: figures from results, as PNG, SVG and PDF, with the numbers beside them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from agent2.arena.analysis.leaderboard import Leaderboard
    from agent2.reports.figures import Plot
    from agent2.reports.run_figures import TrialRun

Folders = Annotated[list[Path], typer.Argument(help="Folders with sweeps or trials.")]
chart_app = typer.Typer(help="Draw figures as PNG, SVG and PDF, with the raw numbers as CSV.", no_args_is_help=True)
FigureFolder = Annotated[Path, typer.Option(help="Folder for the files.")]
Formats = Annotated[list[str] | None, typer.Option("--format", help="png, svg or pdf; repeatable; default: all three.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Draw this series or agent only; repeatable.")]


@chart_app.command("radar")
def radar(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Radar file (YAML, JSON), CSV table, leaderboard's JSON, mmbench or agentbench; or folders of "
            "evaluations, or of cards."
        ),
    ],
    out: FigureFolder = Path("charts"),
    format_: Formats = None,
    only: Only = None,
    beside: Annotated[
        str | None, typer.Option(help="Another radar of the same axes, drawn on the left (a published one).")
    ] = None,
) -> None:
    """Draw a radar chart on axes of 0 to 100, with its table and what its shape suggests to do next."""
    from agent2.reports.radar import actions_of, scaled
    from agent2.reports.radar import only as chosen_from
    from agent2.reports.radar_figure import write_radar
    from agent2.reports.radar_sources import read_radar
    from agent2.reports.style import check_formats

    formats = check_formats(format_ or [])
    found = chosen_from(read_radar(*sources), only or [])
    other = read_radar(beside) if beside is not None else None
    _check_out(out)
    written = write_radar(found, out, formats, other)
    on_axes = scaled(found)
    for note in on_axes.notes:
        typer.echo(note)
    for action in actions_of(on_axes):
        typer.echo(f"{action.series} ({action.why}): {action.do}")
    _print_written(written)


@chart_app.command("trajectory")
def trajectory(
    folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None
) -> None:
    """Draw the public scores of a trial over time, with base, deadline and final score; of several in panels."""
    from agent2.reports.run_figures import trajectories_plot

    _draw_runs(folders, out, format_, only, trajectories_plot, needs_same_exam=False)


@chart_app.command("gains")
def gains(folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None) -> None:
    """Draw a forest plot: each agent's mean gain on private items with its interval, task by task."""
    from agent2.reports.figures import gains_plot

    _draw_board(folders, out, format_, only, gains_plot)


@chart_app.command("profiles")
def profiles(folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None) -> None:
    """Draw performance profiles: the share of an agent's runs that came how far from base to perfect score."""
    from agent2.reports.figures import profiles_plot

    _draw_board(folders, out, format_, only, profiles_plot)


@chart_app.command("cost")
def cost(
    folders: Folders,
    of: Annotated[str, typer.Option("--cost", help="dollars, tokens, minutes or submissions.")] = "dollars",
    out: FigureFolder = Path("charts"),
    format_: Formats = None,
    only: Only = None,
) -> None:
    """Draw what trials cost against what they gained."""
    from agent2.reports.figures import COSTS, cost_plot

    if of not in COSTS:
        raise unknown_name("cost", of, COSTS, "--cost")
    _draw_board(folders, out, format_, only, lambda board: cost_plot(board, of))


@chart_app.command("effects")
def effects(folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None) -> None:
    """Draw what the driver, and the agent system, is worth: pairs of agents that differ in one of them."""
    from agent2.reports.figures import effects_plot

    _draw_board(folders, out, format_, only, effects_plot)


@chart_app.command("routes")
def routes(folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None) -> None:
    """Draw which training route trials planned against the one that they took."""
    from agent2.reports.run_figures import routes_plot

    _draw_runs(folders, out, format_, only, routes_plot, needs_same_exam=False)


@chart_app.command("learning")
def learning(folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None) -> None:
    """Draw the best public score so far over the agent's time: the mean over runs with its interval."""
    from agent2.reports.run_figures import learning_plot

    _draw_runs(folders, out, format_, only, learning_plot)


@chart_app.command("times")
def times(
    folders: Folders,
    target: Annotated[float, typer.Option(help="Share of the way from base to perfect score that is reached.")] = 0.25,
    out: FigureFolder = Path("charts"),
    format_: Formats = None,
    only: Only = None,
) -> None:
    """Draw how soon agents reached a score, relative to the fastest one, over all runs."""
    from agent2.reports.run_figures import times_plot

    _draw_runs(folders, out, format_, only, lambda runs: times_plot(runs, target))


@chart_app.command("strengths")
def strengths(
    cards: Annotated[list[Path], typer.Argument(help="Judgement cards (agent2 cards judge).")],
    baseline: Annotated[str | None, typer.Option(help="Checkpoint that win rates are against.")] = None,
    out: FigureFolder = Path("charts"),
    format_: Formats = None,
) -> None:
    """Draw Bradley-Terry strengths of checkpoints from judged comparisons of their answers."""
    from agent2.cards.judgement import judged_pairs
    from agent2.reports.run_figures import JudgedMatch, strengths_plot

    pairs = [JudgedMatch(*found) for found in judged_pairs(cards)]
    _write(strengths_plot(pairs, baseline), out, format_)


def _draw_board(
    folders: Sequence[Path],
    out: Path,
    formats: Sequence[str] | None,
    only: Sequence[str] | None,
    make: "Callable[[Leaderboard], Plot]",
) -> None:
    from agent2.reports.style import check_formats

    check_formats(formats or [])
    _check_out(out)
    _write(make(_board(folders, only or [])), out, formats)


def _board(folders: Sequence[Path], only: Sequence[str]) -> "Leaderboard":
    """The leaderboard of the folders, or of some of its agents; what is left out is told on stderr."""
    from agent2.arena.analysis.leaderboard import make_leaderboard
    from agent2.arena.analysis.pool import read_pool
    from agent2.cli.show import progress_bar

    with progress_bar() as steps:
        pool = read_pool(folders, steps)
    trials = pool.trials
    if only:
        _check_only(only, [one.trial.row.agent for one in trials])
        trials = [one for one in trials if one.trial.row.agent in only]
    board = make_leaderboard(trials, pool.left_out, sources=[str(folder) for folder in folders])
    for out in board.left_out:
        typer.echo(f"agent2: {out.folder}: left out: {out.why}", err=True)
    for one in board.trials:
        if not one.is_counted:
            why = "; ".join(one.marks) or one.row.result.replace("_", " ")
            typer.echo(f"agent2: {one.folder}: does not count: {why}", err=True)
    if not board.trials:
        raise ConfigError(f"{', '.join(map(str, folders))}: no finished trial is left to draw; see what was left out")
    return board


def _check_only(only: Sequence[str], names: Sequence[str]) -> None:
    for name in only:
        if name not in names:
            raise unknown_name("agent", name, sorted(set(names)), "--only")


def _draw_runs(
    folders: Sequence[Path],
    out: Path,
    formats: Sequence[str] | None,
    only: Sequence[str] | None,
    make: "Callable[[Sequence[TrialRun]], Plot]",
    *,
    needs_same_exam: bool = True,
) -> None:
    """needs_same_exam: trials are compared with each other, so those of another exam are left out."""
    from agent2.arena.analysis.pool import find_trials
    from agent2.reports.style import check_formats

    check_formats(formats or [])
    _check_out(out)
    if needs_same_exam:
        places = [Path(one.folder) for one in _board(folders, only or []).trials]
    else:
        for folder in folders:
            if not folder.is_dir():
                raise ConfigError(f"{folder}: is not a directory; pass folders with sweeps or trials")
        places = list(dict.fromkeys(place for folder in folders for place in find_trials(folder.resolve())))
    runs = _read_runs(places)
    if only and not needs_same_exam:
        _check_only(only, [run.stack for run in runs])
        runs = [run for run in runs if run.stack in only]
    if not runs:
        raise ConfigError(f"{', '.join(map(str, folders))}: contains no finished trial; pass a folder with one")
    _write(make(runs), out, formats)


def _read_runs(places: Sequence[Path]) -> "list[TrialRun]":
    """Finished trials; what cannot be read is told on stderr and left out."""
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.analysis.result import analyse
    from agent2.arena.sweep_records import stack_name
    from agent2.cli.show import progress_bar
    from agent2.errors import Agent2Error
    from agent2.reports.run_figures import TrialRun

    runs = []
    with progress_bar() as steps:
        for done, place in enumerate(places, start=1):
            try:
                found = read_evidence(place)
            except (Agent2Error, OSError, KeyError, TypeError, ValueError) as error:
                # a foreign folder may hold anything; whatever is wrong with one trial hides no other
                why = str(error) if isinstance(error, Agent2Error) else f"cannot be read ({type(error).__name__})"
                typer.echo(f"agent2: {place}: left out: {why}", err=True)
                continue
            stack = stack_name(found.agent, found.driver, found.mode)
            runs.append(TrialRun(stack, found.task.name, found.seed, found, analyse(found)))
            steps("trials", done, len(places))
    return runs


def _write(plot: "Plot", out: Path, formats: Sequence[str] | None) -> None:
    from agent2.reports.figures import write_plot
    from agent2.reports.style import check_formats

    wanted = check_formats(formats or [])
    _check_out(out)
    written = write_plot(plot, out, wanted)
    for note in plot.notes:
        typer.echo(note)
    _print_written(written)


def _check_out(out: Path) -> None:
    from agent2.cli.run import check_is_folder

    check_is_folder("--out", out)


def _print_written(written: Sequence[Path]) -> None:
    from agent2.cli.show import print_path

    for path in written[1:]:
        print_path(path.suffix.removeprefix("."), path)
    print_path("figure", written[0])
