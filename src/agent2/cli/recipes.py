"""`agent2 recipes`: training options compared over seeds on one task."""

from pathlib import Path
from typing import Annotated

import typer

from agent2.cli.paths import check_is_folder
from agent2.cli.show import AsJson, print_json, print_path, print_table, progress_bar, resumed_by_repeating

recipes_app = typer.Typer(help="Training options compared over seeds.", no_args_is_help=True)


@recipes_app.callback()
def _group() -> None:
    """Keep `compare` a command of its own."""


@recipes_app.command("compare")
def compare(
    task: Annotated[str, typer.Argument(help="Name of a packaged task, or a .yaml file.")],
    option: Annotated[
        list[str] | None, typer.Option(help="Option to run; once for each. Default: all that fit.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each option, with seeds 0, 1, ...")] = 3,
    out: Annotated[Path, typer.Option(help="Folder of the runs; finished ones in it are not run again.")] = Path(
        "recipes"
    ),
    file: Annotated[Path | None, typer.Option(help="Table of options in place of the packaged one.")] = None,
    dev: Annotated[int, typer.Option(min=1, help="Dev items that base and checkpoints are measured on.")] = 200,
    as_json: AsJson = False,
) -> None:
    """Train a task's base model with one option changed at a time, over seeds, and print what each gained and cost.

    Options (group size, normalisation, clip, KL, masks, data size, SFT first, best-of-n ...) are rows of a YAML table;
    those that contradict each other are refused before anything runs. Only visible items are played. The same
    command resumes: a finished run is not run again.
    """
    import datasets

    from agent2.arena.recipe_comparison import TABLE, compare_recipes, resolve_options
    from agent2.arena.tasks import load_task
    from agent2.models.loading import no_progress_bars
    from agent2.reports.recipe_table import recipe_table

    check_is_folder("--out", out)
    spec = load_task(task)
    recipes = resolve_options(spec, option or [], file or TABLE)
    folder = out / spec.name
    n_dev = min(dev, spec.n_items.dev)
    datasets.disable_progress_bars()
    with progress_bar() as steps, resumed_by_repeating(), no_progress_bars():
        results = compare_recipes(spec, recipes, range(seeds), folder, n_dev, steps)
    if as_json:
        print_json({"task": spec.name, "folder": str(folder.resolve()), "n_dev": n_dev, "options": results})
        return
    base = next((run.base for result in results for run in result.runs if run.base is not None), None)
    if base is not None:
        typer.echo(f"base model: {100 * base:.1f}% of {n_dev} dev items")
    table = recipe_table(results)
    print_table(list(table.names), table.cells())
    for result in results:
        for run in result.runs:
            if run.problem:
                typer.echo(f"{run.option}, seed {run.seed}: {run.problem}")
    print_path("runs", folder)
