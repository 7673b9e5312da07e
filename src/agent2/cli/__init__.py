"""The command line: every command parses, calls one library function and prints where the result is.

Exit codes: 0 ok, 1 a gate or check said no, 2 bad input. Progress goes to stderr, results to stdout, the
path of what was written comes last. Command bodies import what they need, so that `--help` stays fast.
"""

import os
import sys
from typing import Annotated

import typer

from agent2 import __version__
from agent2.cli import agents, cards, demo, doctor, models, run, sweep, tasks
from agent2.errors import Agent2Error

app = typer.Typer(
    name="agent2",
    help="Agent² RL-Bench: can an LLM agent engineer RL post-training that really improves a model?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("sweep")(sweep.sweep)
app.add_typer(tasks.app, name="tasks")
app.add_typer(agents.app, name="agents")
app.add_typer(models.app, name="models")
app.add_typer(cards.app, name="cards")
app.command("doctor")(doctor.doctor)

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the trace of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    if verbose:
        os.environ["AGENT2_VERBOSE"] = "1"


def main() -> None:
    """Run the command line; an error that a user can act on is one line on stderr."""
    try:
        app()
    except Agent2Error as error:
        if os.environ.get("AGENT2_VERBOSE"):
            raise
        typer.echo(f"agent2: {error}", err=True)
        sys.exit(EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        typer.echo("agent2: interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
