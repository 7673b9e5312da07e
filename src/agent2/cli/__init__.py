"""The command line: every command parses its options, calls one library function and prints the result or its path.

Exit codes are those of `EXIT_CODES`. Progress goes to stderr, results to stdout; the last line is the path of the
output. Command bodies import what they need, so that `--help` stays fast.
"""

import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from functools import cache
from typing import Annotated, NamedTuple, NoReturn

import typer

from agent2 import __version__
from agent2.errors import Agent2Error, is_machine_failure
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

NAME = "agent2"


class Command(NamedTuple):
    """A command, or a group of commands: where its code is, and the panel of `agent2 --help` it is in."""

    name: str
    place: str
    """`module:attribute` below `agent2.cli`; a group's attribute is a `typer.Typer`."""
    panel: str
    is_hidden: bool = False


COMMANDS = (
    Command("demo", "run:demo", ARENA),
    Command("run", "run:run", ARENA),
    Command("resume", "run:resume", ARENA),
    Command("repeat", "run:repeat", ARENA),
    Command("replay", "run:replay", ARENA),
    Command("reproduce", "run:reproduce", ARENA),
    Command("scale", "run:scale", ARENA),
    Command("retention", "run:retention", ARENA),
    Command("sweep", "sweep:sweep", ARENA),
    Command("intervene", "run:intervene", ARENA),
    Command("share", "run:share", ARENA),
    Command("prune", "prune:prune", ARENA),
    Command("eval", "eval:evaluate_suite", EVALUATE),
    Command("part", "eval:part", EVALUATE, is_hidden=True),
    Command("watch", "watch:watch", EVALUATE),
    Command("score", "answers:score", EVALUATE),
    Command("readiness", "readiness:readiness", EVALUATE),
    Command("recipes", "recipes:recipes_app", EVALUATE),
    Command("suite", "eval:suite_app", EVALUATE),
    Command("judge", "judge:app", EVALUATE),
    Command("spotcheck", "judge:spotcheck_app", EVALUATE),
    Command("decide", "decide:decide", DECIDE),
    Command("compare", "decide:compare", DECIDE),
    Command("history", "history:history", DECIDE),
    Command("regress", "decide:regress", DECIDE),
    Command("failures", "failures:failures", DECIDE),
    Command("monitor", "decide:monitor", DECIDE),
    Command("flywheel", "flywheel:flywheel", DECIDE),
    Command("tasks", "tasks:tasks_app", DATA),
    Command("benchmarks", "data:benchmarks_app", DATA),
    Command("bench", "bench:app", DATA),
    Command("decontaminate", "decontamination:decontaminate", DATA),
    Command("leaderboard", "board:leaderboard", LOOK),
    Command("verify", "board:verify", LOOK),
    Command("show", "look:show", LOOK),
    Command("chart", "look:chart_app", LOOK),
    Command("cards", "cards:cards_app", LOOK),
    Command("export", "export:export", LOOK),
    Command("view", "look:view", LOOK),
    Command("access", "look:access", LOOK),
    Command("doctor", "setup:doctor", SET_UP),
    Command("node", "setup:node", SET_UP),
    Command("agents", "setup:agents_app", SET_UP),
    Command("models", "models:models_app", SET_UP),
    Command("engines", "engines:engines_app", SET_UP),
    Command("skill", "skill:skill", SET_UP),
)
"""In the order in which `agent2 --help` shows them."""


@cache
def command_line(only: str) -> typer.Typer:
    """The one command of this name (empty: all of them); only what is in it is imported.

    Typer reads the signatures of all its commands before it runs one, and their modules have to be imported for that:
    together a fifth of a second, more than many commands take.
    """
    line = typer.Typer(
        name=NAME,
        help="Agent² RL-Bench: can an LLM agent engineer RL post-training that really improves a model?",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    line.callback()(_options)
    for command in COMMANDS:
        if only in ("", command.name):
            module, attribute = command.place.split(":")
            part = getattr(importlib.import_module(f"agent2.cli.{module}"), attribute)
            if isinstance(part, typer.Typer):
                line.add_typer(part, name=command.name, rich_help_panel=command.panel)
            else:
                line.command(command.name, hidden=command.is_hidden, rich_help_panel=command.panel)(part)
    return line


def __getattr__(name: str) -> typer.Typer:
    """`app`: all commands in one, for a process that plays several; they are imported when it is asked for."""
    if name == "app":
        return command_line("")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(__version__)
        raise typer.Exit


def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if verbose:
        os.environ["AGENT2_VERBOSE"] = "1"


def _asked(arguments: Sequence[str]) -> typer.Typer:
    """The command line with nothing but the command that the arguments name; whole where they name none."""
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    return command_line(name if name in {command.name for command in COMMANDS} else "")


def main() -> None:
    """Run the command line; an error is one line on stderr with an exit code of `EXIT_CODES`."""
    try:
        code = _asked(sys.argv[1:])(standalone_mode=False)
    except typer.TyperException as error:
        usage = getattr(error, "ctx", None)
        if usage is not None and not error.format_message():
            sys.exit(EXIT_BAD_INPUT)  # no arguments: the help has been shown
        where = usage.command_path if usage is not None else NAME
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
    from agent2.plugins import failing_line, noted_row  # loads the packages' metadata

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
