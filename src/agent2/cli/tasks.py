"""`agent2 tasks`: the tasks of the arena."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.show import AsJson

if TYPE_CHECKING:
    from agent2.arena.task_check import TaskFinding
    from agent2.arena.tasks import TaskSpec
    from agent2.records import Benchmark, Item

app = typer.Typer(help="List, show and check the tasks of the arena.", no_args_is_help=True)


@app.command("list")
def list_tasks(as_json: AsJson = False) -> None:
    """List the packaged tasks."""
    from agent2.arena.tasks import load_task, task_names
    from agent2.cli.show import print_json, print_table

    if as_json:
        print_json([load_task(name).model_dump(mode="json") for name in task_names()])
        return
    rows = []
    for name in task_names():
        task = load_task(name)
        size = "published" if task.published else "embedded"
        rows.append([name, str(task.level.value), f"{task.category.value} / {task.subcategory}", size, task.title])
    print_table(["task", "level", "category", "size", "what"], rows)


@app.command("show")
def show(
    task: Annotated[str, typer.Argument(help="Name of a packaged task, or a .yaml file.")], as_json: AsJson = False
) -> None:
    """Show one task: level, requirement, splits, budget and two example items."""
    from agent2.arena.task_check import examples
    from agent2.arena.tasks import load_task
    from agent2.cli.show import print_json, print_table
    from agent2.errors import ConfigError

    spec = load_task(task)
    if as_json:
        print_json(spec.model_dump(mode="json"))
        return
    rows = [[key, str(value).strip()] for key, value in spec.model_dump(mode="json").items()]
    try:
        rows += [[f"example {item.id}", _shown(item)] for item in examples(spec, 2)]
    except ConfigError as error:  # official data that is not on this machine; the task itself can still be shown
        rows.append(["examples", str(error)])
    print_table(["field", "value"], rows)


def _shown(item: "Item") -> str:
    return item.prompt if item.reference is None else f"{item.prompt} -> {item.reference}"


@app.command("check")
def check(
    task: Annotated[str, typer.Argument(help="Name of a packaged task, or a .yaml file.")],
    model: Annotated[
        str, typer.Option(help="Base model to score instead of the task's: a folder or a name; 'none' to skip it.")
    ] = "",
    data: Annotated[
        Path | None, typer.Option(help="Folder of official data, for a task that reads files (alfworld).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that a task is sound: floor, ceiling, determinism, disjoint splits, its level's requirement, noise band.

    Exit 1 if a check failed. A warning (the base model gives RL no signal) leaves the exit code at 0.
    """
    from agent2.arena.base_models import require_base_model
    from agent2.arena.task_check import check_task
    from agent2.arena.tasks import load_task
    from agent2.benchmarks import load_benchmark
    from agent2.cli.run import check_data
    from agent2.cli.show import print_json, print_table

    spec = load_task(task)
    if model and model != NO_MODEL:
        require_base_model(model)
    benchmark = load_benchmark(spec.benchmark, check_data(data))
    findings = [*check_task(spec, benchmark), *_base_findings(spec, benchmark, model)]
    if as_json:
        print_json(findings)
    else:
        rows = [[f.name, _verdict(f), f"{f.seconds:.1f}", f.detail] for f in findings]
        print_table(["check", "verdict", "seconds", "detail"], rows)
        for finding in findings:
            if finding.warning:
                typer.echo(f"warning: {finding.warning}")
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)


def _verdict(finding: "TaskFinding") -> str:
    if finding.ok is None:
        return "not checked"
    return "FAILED" if not finding.ok else "warning" if finding.warning else "ok"


NO_MODEL = "none"


def _base_findings(spec: "TaskSpec", benchmark: "Benchmark", model: str) -> "list[TaskFinding]":
    """The base model's part; not checked if the model is not on this machine and none was given."""
    from agent2.arena.base_models import BASE_MODELS
    from agent2.arena.task_check import TaskFinding

    name = "headroom and noise band of the base model"
    if model == NO_MODEL:
        return [TaskFinding(name, None, "skipped by --model none")]
    if not model and spec.base_model not in BASE_MODELS and not Path(spec.base_model).is_dir():
        return [TaskFinding(name, None, f"{spec.base_model} is not on this machine; choose a model with --model")]
    from agent2.arena.task_check import check_base
    from agent2.cli.show import progress_bar

    folder = str(Path(model).expanduser().resolve()) if model and Path(model).expanduser().is_dir() else model
    with progress_bar() as steps:
        return check_base(spec, benchmark, folder or None, lambda done, total: steps("base model", done, total))
