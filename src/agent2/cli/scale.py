"""`agent2 scale`: the recorded pipeline of a trial on other base models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.paths import check_is_folder
from agent2.cli.show import AsJson, print_json, print_path, print_table
from agent2.errors import MachineError

if TYPE_CHECKING:
    from agent2.arena.scale_rows import ScaleRow
    from agent2.arena.scaling import ScaleModel
    from agent2.models.checkpoint import CheckpointInfo


def scale(
    trial: Annotated[Path, typer.Argument(help="Folder of a finished trial.")],
    model: Annotated[list[str], typer.Option(help="Base model, by name or folder; once for each.")],
    out: Annotated[Path, typer.Option(help="Folder in which the new trials are created.")] = Path("trials"),
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="What the program may reach or use: sandbox=none, network=packages."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the recorded program of a trial again on other base models and show on which it works.

    Same task, hidden items, budget and seed; each base is its own control. Prints gain, time and memory, what differs
    between the bases besides their size, and why a model was refused. Exit 0 if it works on every model named.
    """
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.reproduction import obstacle_to
    from agent2.arena.scale_rows import ScaleVerdict
    from agent2.arena.scaling import recorded_row, refused_row, resolve_models
    from agent2.cli.live import live_trial
    from agent2.errors import ConfigError
    from agent2.reports.scale_table import scale_table

    check_is_folder("--out", out)
    source = trial.resolve()
    if (obstacle := obstacle_to(source, read_evidence(source))) is not None:
        raise ConfigError(f"{trial}: cannot be run again: {obstacle}")
    with live_trial(source) as steps:
        first, recorded = recorded_row(source, steps)
        models = resolve_models(model, steps)
    rows = [
        first,
        *(
            refused_row(scaled) if scaled.info is None else _play_on(source, scaled, recorded, out, set_ or [])
            for scaled in models
        ),
    ]
    if as_json:
        print_json({"trial": str(source), "rows": rows})
    else:
        table = scale_table(rows)
        print_table(list(table.names), table.cells())
        for row in rows[1:]:
            typer.echo(f"{row.model}: {row.verdict.value}: {row.reason}")
            if row.trial is not None:
                print_path("report", out / row.trial / "report" / "report.html")
    if any(row.verdict is not ScaleVerdict.WORKS for row in rows[1:]):
        raise typer.Exit(1)


def _play_on(
    source: Path, model: "ScaleModel", recorded: "CheckpointInfo", out: Path, overrides: list[str]
) -> "ScaleRow":
    """Run the program on one base model; what the machine or the sandbox fails is a row without a result."""
    from agent2.arena.grader.evaluator import EvaluationFailed
    from agent2.arena.plan import copy_trial
    from agent2.arena.reproduction import reproduction_config
    from agent2.arena.scaling import lost_row, measured_row, scaled_config
    from agent2.arena.trial import TrialStopped
    from agent2.cli.run import play_folder, write_trial_report
    from agent2.errors import CheckpointError, NotEnoughData

    config = scaled_config(reproduction_config(source, None, overrides), model)
    try:
        root = play_folder(copy_trial(source, config, out))
    except (CheckpointError, EvaluationFailed, MachineError, NotEnoughData, TrialStopped) as error:
        return lost_row(model, recorded, str(error))
    write_trial_report(root)
    return measured_row(root, model, recorded)
