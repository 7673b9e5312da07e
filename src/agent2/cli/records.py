"""`agent2 intervene`, `agent2 share` and `agent2 access`."""

from pathlib import Path
from typing import Annotated

import typer


def intervene(
    trial: Annotated[Path, typer.Argument(help="Folder of the running trial.")],
    note: Annotated[str, typer.Option(help="What you did, or told the agent.")],
    by: Annotated[str, typer.Option(help="Who did it.")] = "",
) -> None:
    """Record that a person intervened in a running trial; its report and the autonomy metric count it."""
    from agent2.arena.eventlog import record_intervention
    from agent2.arena.paths import TrialPaths
    from agent2.cli.show import print_path

    paths = TrialPaths(trial)
    record_intervention(paths, note, by)
    print_path("interventions", paths.interventions_log)


def share(
    trial: Annotated[Path, typer.Argument(help="Folder of a finished trial.")],
    out: Annotated[Path, typer.Argument(help="New folder for the recording.")],
) -> None:
    """Write a recording of a trial for others to read and replay, without keys, hidden items or checkpoints."""
    from agent2.arena.recording import share_trial
    from agent2.cli.run import write_trial_report
    from agent2.cli.show import print_path

    shared = share_trial(trial, out)
    write_trial_report(shared)
    print_path("recording", shared)


def access(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the entries and problems as JSON (docs/json-output.md).")
    ] = False,
) -> None:
    """List accesses to private items and check that no entry was changed or removed; exit 1 if one was."""
    import json

    from agent2.cli.show import print_path, print_table
    from agent2.installation import access_log, check_access_log, read_access_log

    log = access_log()
    entries, problems = read_access_log(log), check_access_log(log)
    if as_json:
        typer.echo(json.dumps({"log": str(log), "entries": entries, "problems": problems}, indent=1))
    else:
        columns = ("at", "user", "is_granted", "role", "suite", "checkpoint", "out")
        print_table(list(columns), [[entry.get(name, "") for name in columns] for entry in entries])
        for problem in problems:
            typer.echo(problem)
        typer.echo(f"{len(entries)} entries, {'the chain is intact' if not problems else f'{len(problems)} problems'}")
        print_path("access log", log)
    if problems:
        raise typer.Exit(1)
