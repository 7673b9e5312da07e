"""The command line: every command parses its options, calls one library function and prints the result or its path.

Exit codes are those of `EXIT_CODES`. Progress goes to stderr, results to stdout; the last line is the path of the
output. Command bodies import what they need, so that `--help` stays fast.
"""

import copy
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from agent2 import __version__
from agent2.cli import (
    answers,
    bench,
    board,
    cards,
    data,
    decide,
    decontamination,
    engines,
    export,
    failures,
    history,
    judge,
    look,
    models,
    prune,
    readiness,
    recipes,
    rewards,
    run,
    setup,
    skill,
    sweep,
    tasks,
    watch,
)
from agent2.cli import eval as evaluation
from agent2.cli import flywheel as next_round
from agent2.errors import Agent2Error, is_machine_failure
from agent2.plugins import failing_line, noted_row
from agent2.texts import printable

EXIT_BAD_INPUT = 2
EXIT_OUR_BUG = 3
EXIT_MACHINE_FAILED = 4
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
EXIT_CODES = (
    "Exit codes: 0 ok; 1 a gate or check failed; 2 bad input; 3 a bug in agent2 (the message gives the file with the "
    "traceback); 4 the machine failed or lacks something (disk, memory, sandbox, GPU), or an endpoint does not "
    "respond: fix it, then repeat or resume; 130 interrupted."
)

ARENA, EVALUATE, DECIDE, DATA, LOOK, SET_UP = "Arena", "Evaluate", "Decide", "Data", "Look", "Set up"
"""Panels of `agent2 --help`."""

app = typer.Typer(
    name="agent2",
    help="Agent² RL-Bench: can an LLM agent engineer RL post-training that really improves a model?",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("demo", rich_help_panel=ARENA)(run.demo)
app.command("run", rich_help_panel=ARENA)(run.run)
app.command("resume", rich_help_panel=ARENA)(run.resume)
app.command("repeat", rich_help_panel=ARENA)(run.repeat)
app.command("replay", rich_help_panel=ARENA)(run.replay)
app.command("reproduce", rich_help_panel=ARENA)(run.reproduce)
app.command("scale", rich_help_panel=ARENA)(run.scale)
app.command("retention", rich_help_panel=ARENA)(run.retention)
app.command("sweep", rich_help_panel=ARENA)(sweep.sweep)
app.command("intervene", rich_help_panel=ARENA)(run.intervene)
app.command("share", rich_help_panel=ARENA)(run.share)
app.command("prune", rich_help_panel=ARENA)(prune.prune)
app.command("eval", rich_help_panel=EVALUATE)(evaluation.evaluate_suite)
app.command("part", hidden=True, rich_help_panel=EVALUATE)(evaluation.part)
app.command("watch", rich_help_panel=EVALUATE)(watch.watch)
app.command("score", rich_help_panel=EVALUATE)(answers.score)
app.command("readiness", rich_help_panel=EVALUATE)(readiness.readiness)
app.add_typer(recipes.recipes_app, name="recipes", rich_help_panel=EVALUATE)
app.add_typer(evaluation.suite_app, name="suite", rich_help_panel=EVALUATE)
app.add_typer(judge.app, name="judge", rich_help_panel=EVALUATE)
app.add_typer(judge.spotcheck_app, name="spotcheck", rich_help_panel=EVALUATE)
app.command("decide", rich_help_panel=DECIDE)(decide.decide)
app.command("compare", rich_help_panel=DECIDE)(decide.compare)
app.command("history", rich_help_panel=DECIDE)(history.history)
app.command("regress", rich_help_panel=DECIDE)(decide.regress)
app.command("failures", rich_help_panel=DECIDE)(failures.failures)
app.command("monitor", rich_help_panel=DECIDE)(decide.monitor)
app.command("flywheel", rich_help_panel=DECIDE)(next_round.flywheel)
app.add_typer(tasks.tasks_app, name="tasks", rich_help_panel=DATA)
app.add_typer(data.benchmarks_app, name="benchmarks", rich_help_panel=DATA)
app.add_typer(bench.app, name="bench", rich_help_panel=DATA)
app.command("decontaminate", rich_help_panel=DATA)(decontamination.decontaminate)
app.command("leaderboard", rich_help_panel=LOOK)(board.leaderboard)
app.command("verify", rich_help_panel=LOOK)(board.verify)
app.command("show", rich_help_panel=LOOK)(look.show)
app.add_typer(look.chart_app, name="chart", rich_help_panel=LOOK)
cards.cards_app.command("rewards")(rewards.rewards)
app.add_typer(cards.cards_app, name="cards", rich_help_panel=LOOK)
app.command("export", rich_help_panel=LOOK)(export.export)
app.command("view", rich_help_panel=LOOK)(look.view)
app.command("access", rich_help_panel=LOOK)(look.access)
app.command("doctor", rich_help_panel=SET_UP)(setup.doctor)
app.command("node", rich_help_panel=SET_UP)(setup.node)
app.add_typer(setup.agents_app, name="agents", rich_help_panel=SET_UP)
app.add_typer(models.models_app, name="models", rich_help_panel=SET_UP)
app.add_typer(engines.engines_app, name="engines", rich_help_panel=SET_UP)
app.command("skill", rich_help_panel=SET_UP)(skill.skill)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if verbose:
        os.environ["AGENT2_VERBOSE"] = "1"


def _with_only(arguments: Sequence[str]) -> typer.Typer:
    """The command line with nothing but the command that the arguments name; whole where they name none.

    Typer reads the signatures of all commands before it runs one, which takes longer than many commands do.
    """
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    few = copy.copy(app)
    few.registered_commands = [command for command in app.registered_commands if command.name == name]
    few.registered_groups = [group for group in app.registered_groups if group.name == name]
    return few if few.registered_commands or few.registered_groups else app


def main() -> None:
    """Run the command line; an error is one line on stderr with an exit code of `EXIT_CODES`."""
    try:
        code = _with_only(sys.argv[1:])(standalone_mode=False)
    except typer.TyperException as error:
        usage = getattr(error, "ctx", None)
        if usage is not None and not error.format_message():
            sys.exit(EXIT_BAD_INPUT)  # no arguments: the help has been shown
        where = usage.command_path if usage is not None else app.info.name
        _exit_with(f"{error.format_message().rstrip('.')}; see {where} --help", EXIT_BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except SystemExit as exit_error:
        if not isinstance(exit_error.__context__, BrokenPipeError):
            raise
        code = EXIT_BROKEN_PIPE  # typer and rich would exit with 1, the code of a failed gate
    except Exception as error:  # boundary: the user gets one line and the right exit code
        _report_error(error)
    if code == EXIT_INTERRUPTED:
        typer.echo("agent2: interrupted", err=True)
    sys.exit(code)


def _report_error(error: Exception) -> NoReturn:
    """Report an error in one line; the traceback is shown with -v, and saved to a file if it is a bug of ours."""
    is_verbose = bool(os.environ.get("AGENT2_VERBOSE"))
    if is_verbose:
        traceback.print_exception(error)
    has_failed = is_machine_failure(error)
    code = EXIT_MACHINE_FAILED if has_failed else EXIT_BAD_INPUT
    if isinstance(error, Agent2Error):
        _exit_with(str(error), code)
    if isinstance(error, OSError) and error.strerror is not None:
        where = f"{error.filename}: " if error.filename else ""
        _exit_with(f"{where}{error.strerror}; check the path, its permissions and the free disk space", code)
    if isinstance(error, RuntimeError) and "Symlink loop" in str(error):  # before Python 3.13 no OSError
        _exit_with(f"{error}; pass another path", EXIT_BAD_INPUT)
    if has_failed:
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _exit_with(
            f"{cause}; the machine ran out of disk space or memory, or limits a file's size (ulimit -f): free some or "
            "raise the limit, and repeat the command",
            code,
        )
    if (line := failing_line(error)) is not None:
        cause = f"{type(error).__name__}: {str(error)[:300]}" if str(error) else type(error).__name__
        where = f"{line[0]}:{line[1]}: in {line[2]}"
        _exit_with(f"{where}: {cause}{noted_row(error)}; fix this code (agent2 -v shows the traceback)", code)
    location = "shown above" if is_verbose else _save_traceback(error)
    _exit_with(
        f"this is a bug in agent2: {type(error).__name__}: {str(error)[:300]}; its traceback is {location}",
        EXIT_OUR_BUG,
    )


def _save_traceback(error: Exception) -> str:
    """Write the traceback to a temporary file, independent of the command's folders; returns where, as a clause."""
    text = f"agent2 {__version__}: {' '.join(sys.argv)}\n{''.join(traceback.format_exception(error))}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="agent2-bug-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(text)
    except OSError:
        return "shown by agent2 -v (no temporary file could be written)"
    return f"in {file.name}"


def _exit_with(sentence: str, code: int) -> NoReturn:
    text = sentence.encode("utf-8", "backslashreplace").decode()  # a file's name need not be UTF-8
    typer.echo(f"agent2: {' '.join(printable(text).split())}", err=True)
    sys.exit(code)
