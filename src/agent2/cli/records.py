"""`agent2 intervene`, `agent2 share`, `agent2 access`: what people add to a trial, share of it, and saw."""

from pathlib import Path
from typing import Annotated

import typer


def intervene(
    trial: Annotated[Path, typer.Argument(help="Folder of the trial that is running.")],
    note: Annotated[str, typer.Option(help="What you did to it, or told the agent.")],
    by: Annotated[str, typer.Option(help="Who did it.")] = "",
) -> None:
    """Record that a person stepped in while an agent works; its report and the autonomy metric count it."""
    from agent2.arena.paths import TrialPaths
    from agent2.arena.recorder.interventions import record_intervention
    from agent2.cli.show import print_path

    paths = TrialPaths(trial)
    record_intervention(paths, note, by)
    print_path("interventions", paths.interventions_log)


def share(
    trial: Annotated[Path, typer.Argument(help="Folder of a finished trial.")],
    out: Annotated[Path, typer.Argument(help="New folder for the recording.")],
) -> None:
    """Write a recording of a trial that others can read and replay: no keys, no hidden items, no checkpoints."""
    from agent2.arena.recording import share_trial
    from agent2.cli.show import print_path
    from agent2.cli.trial_result import write_trial_report

    shared = share_trial(trial, out)
    write_trial_report(shared)
    print_path("recording", shared)


def access(
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries and problems as JSON.")] = False,
) -> None:
    """List who asked for private items, and check that no entry was changed or removed; exit 1 if one was."""
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
        typer.echo(f"{len(entries)} entries, {'the chain is whole' if not problems else f'{len(problems)} problems'}")
        print_path("access log", log)
    if problems:
        raise typer.Exit(1)
