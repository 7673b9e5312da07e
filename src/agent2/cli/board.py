"""`agent2 leaderboard` and `agent2 verify`: whose trials count, and why."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.paths import check_is_file
from agent2.cli.show import AsJson, print_json, print_path, print_table, progress_bar
from agent2.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from agent2.arena.analysis.leaderboard import Leaderboard

FORMATS = ("table", "html", "csv", "json", "markdown")
PAGES = ("html", "markdown")
SiteOption = Annotated[
    Path | None, typer.Option("--site", help="YAML file with title, text and logo of a published page.")
]


def leaderboard(
    folders: Annotated[list[Path], typer.Argument(help="Folders with sweeps, trials or published tables.")],
    format_: Annotated[str, typer.Option("--format", help="table, html, csv, json or markdown.")] = "table",
    out: Annotated[Path | None, typer.Option(help="File to write instead of printing.")] = None,
    exam: Annotated[list[str] | None, typer.Option(help="Exam of a task to show, TASK=KEY, as in arithmetic=100/200.")
                    ] = None,
    count_unmarked: Annotated[bool, typer.Option("--count-unmarked", help="Count trials without this installation's "
                                                 "mark beside those that have it.")] = False,
    site: SiteOption = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Pool comparable trials, verify them from their cards, and rank the stacks with intervals.

    Of each task one exam is shown, by default this installation's own; others are listed with their keys.
    """
    from agent2.arena.analysis.exams import ExamChoice
    from agent2.arena.analysis.leaderboard import make_leaderboard
    from agent2.arena.analysis.pool import read_pool
    from agent2.files import write_text
    from agent2.installation import own_secret_digest
    from agent2.reports.leaderboard_pages import leaderboard_csv, leaderboard_html, leaderboard_markdown
    from agent2.reports.masthead import read_masthead

    form = "json" if as_json else format_
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS, "--format")
    if out is not None and form == "table":
        raise ConfigError(f"--out {out}: tables are for the terminal; add --format html, csv, json or markdown")
    if out is not None:
        check_is_file("--out", out)
    if site is not None and form not in PAGES:
        raise ConfigError(f"--site {site}: is for pages, not for {form}; add --format html or markdown")
    masthead = read_masthead(site) if site is not None else None
    choice = ExamChoice(own_secret_digest(), _exam_keys(exam or ()), count_unmarked)
    with progress_bar() as steps:
        pool = read_pool(folders, steps)
        steps("ranks")
        board = make_leaderboard(pool.trials, pool.left_out, pool.published, pool.sources, choice)
    if form == "table":
        print_board(board)
        return
    if form == "json" and out is None:
        print_json(board)
        return
    if form in PAGES:
        written = {"html": leaderboard_html, "markdown": leaderboard_markdown}[form](board, masthead)
    else:
        written = leaderboard_csv(board) if form == "csv" else _as_json(board)
    if out is None:
        typer.echo(written.rstrip("\n"))
        return
    write_text(out, written)
    print_path("leaderboard", out)


def verify(
    trials: Annotated[list[Path], typer.Argument(help="Folders of trials, or of recordings shared --with-cards.")],
    as_json: AsJson = False,
) -> None:
    """Check what a trial reports against its cards and its mark, and say what cannot be checked here.

    Works on any machine, without the installation that played the trial. Exit 1 if one is not verified.
    """
    from agent2.arena.analysis.pool import find_trials, verify_trial

    folders = [folder for path in trials for folder in (find_trials(path) if path.is_dir() else [path])]
    if not folders:
        raise ConfigError(f"{trials[0]}: contains no trial; pass the folder of one, or a recording of agent2 share")
    reports = [verify_trial(folder) for folder in folders]
    if as_json:
        print_json(reports)
    for report in () if as_json else reports:
        verdict = "verified" if report.is_verified else "not verified"
        typer.echo(f"{report.trial}: {verdict}; {report.mark.reason}")
        for problem in report.problems:
            typer.echo(f"  problem: {problem}")
        for sentence in report.unchecked:
            typer.echo(f"  not checked here: {sentence}")
    if not all(report.is_verified for report in reports):
        raise typer.Exit(1)


def _exam_keys(chosen: Sequence[str]) -> dict[str, str]:
    keys = {}
    for text in chosen:
        task, equals, key = text.partition("=")
        if not (task and equals and key):
            raise ConfigError(f"--exam {text}: is not TASK=KEY; agent2 leaderboard lists the exams with their keys")
        keys[task] = key
    return keys


def _as_json(board: "Leaderboard") -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(board, enc_hook=str), indent=1).decode() + "\n"


def print_board(board: "Leaderboard") -> None:
    """The board as tables in the terminal."""
    from agent2.reports.leaderboard_pages import (
        NOT_OURS,
        exam_table,
        left_out_table,
        overall_table,
        overall_title,
        profiles_table,
        published_table,
        subtitle,
        task_title,
        terminal_standings,
    )
    from agent2.reports.sweep_pages import axis_table

    for overall in board.overall:
        table = overall_table(overall)
        print_table(table.names, table.cells(), overall_title(overall))
        for stack, missing in overall.lacking.items():
            typer.echo(f"{stack} has no place: no counted trial on {missing}")
        profiles = profiles_table(overall)
        if profiles.records:
            print_table(profiles.names, profiles.cells(), "Performance profiles: share of runs that came so far")
    for task in board.tasks:
        standings = terminal_standings(task)
        print_table(standings.names, standings.cells(), task_title(task))
    exams = exam_table(board.exams)
    if len(exams.records) > len(board.tasks):
        print_table(exams.names, exams.cells(), "Exams; another one: --exam TASK=KEY")
    effects = axis_table(board.effects)
    if effects.records:
        print_table(effects.names, effects.cells(), "What the driver and the agent system are worth")
    for source in board.published:
        rows = published_table(source)
        print_table(rows.names, rows.cells(), f"{source.title} ({source.source}; {NOT_OURS})")
    out = left_out_table(board.left_out)
    if out.records:
        print_table(out.names, out.cells(), "Left out")
    typer.echo(subtitle(board))
