"""`agent2 sweep`: agents x tasks x seeds, compared."""

from pathlib import Path
from typing import Annotated

import typer


def sweep(
    file: Annotated[Path, typer.Argument(help="YAML file with tasks, agents, drivers and seeds.")],
    out: Annotated[Path, typer.Option(help="Folder in which the sweep's folder is created.")] = Path("sweeps"),
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Add seeds until the agents can be ranked (AdaStop).")
    ] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a value of the file: parallel=2.")] = None,
) -> None:
    """Run many trials, or resume an interrupted sweep, and compare the agents pair by pair.

    Exit 1 if a trial could not be finished.
    """
    from agent2.arena.sweep import (
        SweepSpec,
        UntilDecided,
        compare_agents,
        decide_sweep,
        final_scores,
        item_gains,
        known_trials,
        run_sweep,
        sweep_rows,
    )
    from agent2.arena.sweep_records import pair_effects
    from agent2.cli.run import check_is_folder
    from agent2.cli.show import print_path, print_table, progress_bar, resumed_by_repeating
    from agent2.config import load_yaml
    from agent2.reports.sweep_pages import (
        TERMINAL_AGENT,
        TERMINAL_COMPARISON,
        agent_table,
        axis_table,
        comparison_table,
        narrow_trial_table,
        sweep_report,
        write_sweep_report,
    )

    spec = load_yaml(file, SweepSpec, set_ or [])
    if until_decided and spec.until_decided is None:
        spec = spec.model_copy(update={"until_decided": UntilDecided()})
    check_is_folder("--out", out)
    with progress_bar() as steps, resumed_by_repeating():
        root, failures = run_sweep(spec, out, steps)
    effects = pair_effects(known_trials(spec, root), final_scores(spec, root))
    rows, comparisons, gains = sweep_rows(spec, root), compare_agents(spec, root), item_gains(spec, root)
    report = sweep_report(rows, comparisons, f"Sweep {spec.name}", effects, gains)
    written = write_sweep_report(report, root / "report")
    tables = (
        narrow_trial_table(report.rows),
        agent_table(report.agents).of(*TERMINAL_AGENT),
        comparison_table(report.comparisons).of(*TERMINAL_COMPARISON),
        axis_table(report.effects),
    )
    for table in tables:
        if table.records:
            print_table(table.names, table.cells())
    decision = decide_sweep(spec, root)
    if decision is not None:
        typer.echo(str(decision))
    for failure in failures:
        typer.echo(f"agent2: {failure}", err=True)
    print_path("report", written.html)
    if failures:
        raise typer.Exit(1)
