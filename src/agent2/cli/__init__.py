"""The command line: every command parses, calls one library function and prints where the result is.

Exit codes are those of `EXIT_CODES`. Progress goes to stderr, results to stdout, the path of what was written comes
last. Command bodies import what they need, so that `--help` stays fast.
"""

import os
import sys
import tempfile
import traceback
from typing import Annotated, NoReturn

import typer

from agent2 import __version__
from agent2.cli import (
    agents,
    benchmarks,
    cards,
    compare,
    decide,
    decontaminate,
    demo,
    doctor,
    models,
    monitor,
    records,
    regress,
    run,
    suite,
    sweep,
    tasks,
)
from agent2.cli import eval as eval_command
from agent2.errors import Agent2Error, is_machine_failure

EXIT_BAD_INPUT = 2
EXIT_OUR_BUG = 3
EXIT_MACHINE_FAILED = 4
EXIT_INTERRUPTED = 130
EXIT_NOBODY_READS = 141
EXIT_CODES = (
    "Exit codes: 0 ok; 1 a gate or check said no; 2 bad input; 3 a bug of agent2 (the trace is in a file that is "
    "named); 4 the machine failed, or lacks what is needed (disk, memory, sandbox, GPU), or an endpoint does not "
    "answer: fix it, then repeat or resume; 130 interrupted."
)

app = typer.Typer(
    name="agent2",
    help="Agent² RL-Bench: can an LLM agent engineer RL post-training that really improves a model?",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("sweep")(sweep.sweep)
app.command("intervene")(records.intervene)
app.command("share")(records.share)
app.command("access")(records.access)
app.add_typer(tasks.app, name="tasks")
app.add_typer(agents.app, name="agents")
app.add_typer(benchmarks.app, name="benchmarks")
app.add_typer(models.app, name="models")
app.add_typer(cards.app, name="cards")
app.command("eval")(eval_command.evaluate_suite)
app.add_typer(suite.app, name="suite")
app.command("monitor")(monitor.monitor)
app.command("decide")(decide.decide)
app.command("compare")(compare.compare)
app.command("regress")(regress.regress)
app.command("decontaminate")(decontaminate.decontaminate)
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the trace of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if verbose:
        os.environ["AGENT2_VERBOSE"] = "1"


def main() -> None:
    """Run the command line; an error is one line on stderr, and its exit code says whose it is (`EXIT_CODES`)."""
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        usage = getattr(error, "ctx", None)
        if usage is not None and not error.format_message():
            sys.exit(EXIT_BAD_INPUT)  # no arguments: the help has been shown
        where = usage.command_path if usage is not None else app.info.name
        _give_up(f"{error.format_message().rstrip('.')}; see {where} --help", EXIT_BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except SystemExit as left:
        if not isinstance(left.__context__, BrokenPipeError):
            raise
        code = EXIT_NOBODY_READS  # typer and rich would exit with 1, which is a gate's no
    except Exception as error:  # boundary: whatever it is, the user gets one line and the right exit code
        _tell(error)
    if code == EXIT_INTERRUPTED:
        typer.echo("agent2: interrupted", err=True)
    sys.exit(code)


def _tell(error: Exception) -> NoReturn:
    """One line on who has to do what; the trace follows with -v, and is kept in a file for a bug of ours."""
    is_verbose = bool(os.environ.get("AGENT2_VERBOSE"))
    if is_verbose:
        traceback.print_exception(error)
    has_failed = is_machine_failure(error)
    code = EXIT_MACHINE_FAILED if has_failed else EXIT_BAD_INPUT
    if isinstance(error, Agent2Error):
        _give_up(str(error), code)
    if isinstance(error, OSError) and error.strerror is not None:
        where = f"{error.filename}: " if error.filename else ""
        _give_up(f"{where}{error.strerror}; check the path, its rights and the space on its disk", code)
    if isinstance(error, RuntimeError) and "Symlink loop" in str(error):  # before Python 3.13 no OSError
        _give_up(f"{error}; pass another path", EXIT_BAD_INPUT)
    if has_failed:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _give_up(f"{what}; the machine ran out of disk space or memory: make room and repeat the command", code)
    kept = "shown above" if is_verbose else _keep_trace(error)
    _give_up(f"this is a bug of agent2: {type(error).__name__}: {str(error)[:300]}; its trace is {kept}", EXIT_OUR_BUG)


def _keep_trace(error: Exception) -> str:
    """Write the trace to a file that does not depend on the folders of the command; says where it is."""
    text = f"agent2 {__version__}: {' '.join(sys.argv)}\n{''.join(traceback.format_exception(error))}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="agent2-bug-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(text)
    except OSError:
        return "shown by agent2 -v (no temporary file could be written)"
    return f"in {file.name}"


def _give_up(sentence: str, code: int) -> NoReturn:
    typer.echo(f"agent2: {' '.join(sentence.split())}", err=True)
    sys.exit(code)
