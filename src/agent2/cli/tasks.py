"""`agent2 tasks`: what an agent can be asked to improve a model on."""

from typing import Annotated

import typer

app = typer.Typer(help="Tasks of the arena.", no_args_is_help=True)


@app.command("list")
def list_tasks() -> None:
    """List the packaged tasks."""
    from agent2.arena.tasks import load_task, task_names
    from agent2.cli.show import print_table

    rows = []
    for name in task_names():
        task = load_task(name)
        size = "published" if task.published else "embedded"
        rows.append([name, str(task.level.value), f"{task.category.value} / {task.subcategory}", size, task.title])
    print_table(["task", "level", "category", "size", "what"], rows)


@app.command("show")
def show(task: Annotated[str, typer.Argument(help="Name of a packaged task, or a .yaml file.")]) -> None:
    """Show one task: level, requirement, splits, budget and two example items."""
    from agent2.arena.task_check import examples
    from agent2.arena.tasks import load_task
    from agent2.cli.show import print_table

    spec = load_task(task)
    rows = [[key, str(value).strip()] for key, value in spec.model_dump(mode="json").items()]
    rows += [[f"example {item.id}", f"{item.prompt} -> {item.reference}"] for item in examples(spec, 2)]
    print_table(["field", "value"], rows)


@app.command("check")
def check(task: Annotated[str, typer.Argument(help="Name of a packaged task, or a .yaml file.")]) -> None:
    """Prove that a task is sound: oracle scores 1, a null answer 0, splits are disjoint, replays agree."""
    from agent2.arena.task_check import check_task
    from agent2.arena.tasks import load_task
    from agent2.cli.show import print_table

    findings = check_task(load_task(task))
    print_table(["check", "verdict", "detail"], [[f.name, "ok" if f.ok else "FAILED", f.detail] for f in findings])
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
