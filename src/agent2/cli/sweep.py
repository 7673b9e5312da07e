"""`agent2 sweep`: many trials, and with --dry-run what they will take, each figure with where it comes from."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.paths import check_is_folder
from agent2.cli.show import AsJson, print_file, print_json, print_path, print_table, resumed_by_repeating
from agent2.errors import Agent2Error, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent2.arena.costs import Cost, SweepToRun
    from agent2.arena.sweep import SweepSpec

TRIALS = Path("trials")
"""Where `agent2 run` puts trials, which are measured as well."""


def sweep(  # noqa: PLR0913 - one option of the command line each
    file: Annotated[Path, typer.Argument(help="YAML file with tasks, agents, drivers and seeds.")],
    out: Annotated[Path, typer.Option(help="Folder in which the sweep's folder is created.")] = Path("sweeps"),
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Add seeds until the agents can be ranked (AdaStop).")
    ] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a value of the file: parallel=2.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run nothing; print trials, time, GPU hours, disk space and dollars.")
    ] = False,
    gpu_price: Annotated[
        float | None, typer.Option("--gpu-price", min=0.0, help="With --dry-run: dollars for one GPU for an hour.")
    ] = None,
    executor: Annotated[str, typer.Option(help="Where trials run: local, ray or slurm (docs/clusters.md).")] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="Ray cluster, HOST:PORT; default: the one that this machine is in. Slurm: `local` for a test."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run many trials, or resume an interrupted sweep, and compare the agents pair by pair.

    Exit 1 if a trial could not be finished.
    """
    from agent2.arena.sweep import (
        SweepSpec,
        UntilDecided,
        all_trials,
        at_folder,
        compare_agents,
        decide_sweep,
        final_scores,
        item_gains,
        run_sweep,
        sweep_rows,
    )
    from agent2.arena.sweep_records import pair_effects
    from agent2.cli.live import live_sweep
    from agent2.config import load_yaml
    from agent2.executors import LOCAL, require_executor
    from agent2.reports.sweep_pages import sweep_report, terminal_tables, write_sweep_report

    _refuse_settings_of_trials(set_ or [], file)
    # a pipe, `<(...)`, is in no folder of the user's
    spec = at_folder(load_yaml(file, SweepSpec, set_ or []), file.parent if file.is_file() else Path())
    if until_decided and spec.until_decided is None:
        spec = spec.model_copy(update={"until_decided": UntilDecided()})
    if dry_run:
        _print_costs(spec, out, gpu_price, as_json=as_json)
        return
    if gpu_price is not None:
        raise ConfigError("--gpu-price: is for the estimate; add --dry-run")
    check_is_folder("--out", out)
    require_executor(executor)
    if executor == LOCAL and address is not None:
        raise ConfigError("--address: is of a cluster; add --executor ray or --executor slurm")
    with live_sweep(out / spec.name) as steps, resumed_by_repeating():
        root, failures = run_sweep(spec, out, steps, executor, address)
    effects = pair_effects(all_trials(spec, root), final_scores(spec, root))
    rows, comparisons, gains = sweep_rows(spec, root), compare_agents(spec, root), item_gains(spec, root)
    report = sweep_report(rows, comparisons, f"Sweep {spec.name}", effects, gains)
    written = write_sweep_report(report, root / "report")
    for failure in failures:
        typer.echo(f"agent2: {failure}", err=True)
    if as_json:
        print_file(written.json)
    else:
        for names, cells in terminal_tables(report):
            print_table(names, cells)
        decision = decide_sweep(spec, root)
        if decision is not None:
            typer.echo(str(decision))
        print_path("report", written.html)
    if failures:
        raise typer.Exit(1)


def _refuse_settings_of_trials(overrides: "Sequence[str]", file: Path) -> None:
    """Refuse `--set budget.wall_clock_s=90`, which `agent2 run` takes: in a sweep it is an entry of the list `set`.

    Raises ConfigError naming the override and where it belongs.
    """
    from agent2.arena.spec import TrialConfig
    from agent2.arena.sweep import SweepSpec

    for override in overrides:
        top = override.partition("=")[0].split(".")[0]
        if top in TrialConfig.model_fields and top not in SweepSpec.model_fields:
            raise ConfigError(
                f"--set {override}: a setting of the trials, not of the sweep; add it to the list `set` of {file}: "
                f'set: ["{override}"]'
            )


def _print_costs(spec: "SweepSpec", out: Path, gpu_price: float | None, *, as_json: bool) -> None:
    """Estimate the sweep of a file from the trials in --out and ./trials, and print it. Runs and writes nothing."""
    from agent2.arena.costs import estimate_sweep, read_earlier
    from agent2.reports.text import duration, size

    folders = list(dict.fromkeys(folder for folder in (out, TRIALS) if folder.is_dir()))
    estimate = estimate_sweep(_to_run(spec, (out / spec.name).resolve()), read_earlier(folders), gpu_price)
    if as_json:
        print_json(estimate)
        return
    columns = (
        ("agent", "agent_s", duration),
        ("scoring and audit", "grading_s", duration),
        ("disk space", "disk_bytes", size),
    )
    rows = [
        [cell.task, cell.stack, str(cell.n_trials)]
        + [_value_and_origin(getattr(cell, field), text) for _, field, text in columns]
        for cell in estimate.cells
    ]
    sources: dict[str, None] = {}
    names = [name for name, _, _ in columns]
    print_table(["task", "agent", "trials left", *names], rows, "For each trial")
    for name, field, _ in columns:
        for cost in dict.fromkeys(getattr(cell, field) for cell in estimate.cells):
            kind = "unknown" if cost.value is None else _origin(cost)
            sources[f"{name}, {kind}: {cost.source}"] = None
    for source in sources:
        typer.echo(source)
    typer.echo("")
    sums = [
        ["trials", f"{estimate.n_trials - estimate.n_finished} to run, {estimate.n_finished} finished", ""],
        ["time", _bound(estimate.seconds, duration), _from(estimate.seconds)],
        ["GPU hours", _value(estimate.gpu_hours, "{:,.2f}".format), _from(estimate.gpu_hours)]
        if estimate.gpus
        else ["GPUs", "none named", "by the sweep, its tasks or their scoring: gpus=[0], scoring.gpu=0"],
        ["disk space", _value(estimate.disk_bytes, size), _from(estimate.disk_bytes)],
    ]
    for label, cost in (("GPU dollars", estimate.gpu_dollars), ("LLM dollars", estimate.llm_dollars)):
        if cost is not None:
            sums.append([label, _value(cost, "${:,.2f}".format), _from(cost)])
    print_table(["", "", ""], sums, f"Sweep {estimate.name}")
    where = f" in {', '.join(map(str, folders))}" if folders else ""
    typer.echo(
        f"earlier trials{where}: {estimate.n_earlier} with the same task, items, base model and scoring machine, "
        f"{estimate.n_others} of these tasks with others, which were not used"
    )
    for note in estimate.notes:
        typer.echo(f"note: {note}")


def _to_run(spec: "SweepSpec", root: Path) -> "SweepToRun":
    from agent2.arena.costs import SweepToRun
    from agent2.arena.sweep import all_trials, check_trials, shared_gpus

    planned = all_trials(spec, root)
    obstacle, plan = "", spec.until_decided
    try:
        check_trials(spec, planned)
    except Agent2Error as error:  # the estimate is for another machine as well
        obstacle = str(error)
    shared: tuple[int, ...] = ()
    at_once = spec.parallel
    with suppress(Agent2Error):  # a file for a cluster may ask for more than this machine has
        shared = shared_gpus(spec, planned)
    if shared:
        at_once = min(spec.parallel, len(shared) // spec.resources.gpus)
    n_cells = len({(trial.task_name, trial.stack) for trial in planned})
    return SweepToRun(
        name=spec.name,
        root=root,
        trials=planned,
        overrides=[f"sandbox={spec.sandbox}", *spec.set],
        parallel=at_once,
        shared_gpus=shared[: at_once * spec.resources.gpus],
        reproduces_best=spec.reproduce is not None,
        most_trials=n_cells * (plan.max_seeds + plan.max_missing) if plan is not None else None,
        obstacle=obstacle,
    )


def _value(cost: "Cost", text: "Callable[[float], str]") -> str:
    return "unknown" if cost.value is None else text(cost.value)


def _bound(cost: "Cost", text: "Callable[[float], str]") -> str:
    """A figure that limits give is what it takes at most, usually far less."""
    return _value(cost, text) if cost.is_measured or cost.value is None else f"at most {text(cost.value)}"


def _value_and_origin(cost: "Cost", text: "Callable[[float], str]") -> str:
    return "unknown" if cost.value is None else f"{text(cost.value)}, {_origin(cost)}"


def _origin(cost: "Cost") -> str:
    return "measured" if cost.is_measured else "estimated"


def _from(cost: "Cost") -> str:
    return cost.source if cost.value is None else f"{_origin(cost)}: {cost.source}"
