"""`agent2 monitor`: danger signals and training gates of a suite, applied to a training log."""

import re
from pathlib import Path
from typing import Annotated

import typer


def monitor(
    log: Annotated[
        Path,
        typer.Argument(help="train_log.jsonl, trainer_state.json, W&B .wandb or .csv, trackio .db, folder of runs."),
    ],
    suite: Annotated[str, typer.Option(help="Suite whose metrics and gates apply: a name or a file.")],
    rollouts: Annotated[
        Path | None, typer.Option(help="Card or JSON lines with rewards, to find suspicious rollouts in.")
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="YAML with detector thresholds.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("monitor"),
) -> None:
    """Look for danger signals and apply the training gates; exit 1 if a danger was raised or a gate fired."""
    from agent2.cli.show import print_path, print_table
    from agent2.config import load_yaml
    from agent2.contract.gates import TrainingAction
    from agent2.contract.suite_files import load_suite
    from agent2.monitor.pulls import pull, read_rewarded
    from agent2.monitor.readers import read_logs
    from agent2.monitor.signals import MonitorSettings
    from agent2.monitor.watch import Rules, verdict, watch
    from agent2.reports.monitor_pages import signal_table, write_monitor_report

    contract = load_suite(suite)
    chosen = load_yaml(settings, MonitorSettings) if settings is not None else MonitorSettings()
    rules = Rules(contract.metrics, contract.gates, chosen)
    runs = read_logs(log, rules.names())
    pulled = pull(read_rewarded(rollouts)) if rollouts is not None else None
    is_quiet = True
    for run in runs:
        seen = watch(rules.watched(run))
        found = verdict(run, seen.signals, rules)
        if len(runs) > 1:
            typer.echo(f"run {run.name}")
        folder = out if len(runs) == 1 else out / re.sub(r"[^A-Za-z0-9._-]+", "-", run.name)
        paths = write_monitor_report(seen, found, pulled, contract.name, folder)
        signals = signal_table(seen)
        if signals.records:
            print_table(signals.names, signals.cells())
        for note in run.notes:
            typer.echo(f"note: {note}")
        for finding in found.findings:
            if finding.fired:
                typer.echo(f"gate {finding.gate} fired: {', '.join(finding.inputs)}; {finding.rule}")
        typer.echo(f"training action: {found.action.value}")
        for reason in found.reasons:
            typer.echo(f"  {reason}")
        print_path("report", paths.html)
        is_quiet &= not (seen.signals or any(finding.fired for finding in found.findings))
        is_quiet &= found.action is TrainingAction.CONTINUE
    if not is_quiet:
        raise typer.Exit(1)
