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
    from agent2.arena.sweep_records import axis_effects, pair_effects, summarise_agents
    from agent2.cli.run import check_is_folder
    from agent2.cli.show import print_path, print_table, progress_bar, resumed_by_repeating
    from agent2.config import load_yaml
    from agent2.reports.sweep_pages import (
        AXIS_NAMES,
        agent_table,
        axis_rows,
        comparison_table,
        row_table,
        write_sweep_report,
    )

    spec = load_yaml(file, SweepSpec, set_ or [])
    if until_decided and spec.until_decided is None:
        spec = spec.model_copy(update={"until_decided": UntilDecided()})
    check_is_folder("--out", out)
    with progress_bar() as steps, resumed_by_repeating():
        root, failures = run_sweep(spec, out, steps)
    rows = sweep_rows(spec, root)
    comparisons = compare_agents(spec, root)
    effects = pair_effects(known_trials(spec, root), final_scores(spec, root))
    gains = item_gains(spec, root)
    written = write_sweep_report(rows, comparisons, root / "report", f"Sweep {spec.name}", effects, gains)
    print_table(*row_table(rows))
    print_table(*agent_table(summarise_agents(rows, gains)))
    if comparisons:
        print_table(*comparison_table(comparisons))
    if effects:
        print_table(AXIS_NAMES, axis_rows(axis_effects(effects)))
    decision = decide_sweep(spec, root)
    if decision is not None:
        typer.echo(str(decision))
    for failure in failures:
        typer.echo(f"agent2: {failure}", err=True)
    print_path("report", written.html)
    if failures:
        raise typer.Exit(1)
