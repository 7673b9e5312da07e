"""`agent2 intervene` and `agent2 share`: what people add to a trial's record, and what they give away of it."""

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
