"""`agent2 models`: base models made by a recipe, and checkpoints in general."""

from pathlib import Path
from typing import Annotated

import typer

from agent2.benchmarks import DEMO_TASK

app = typer.Typer(help="Base models and checkpoints.", no_args_is_help=True)


@app.command("list")
def list_models() -> None:
    """List the base models that a recipe makes, and which are cached."""
    from agent2.arena.base_models import BASE_MODELS, cached_path
    from agent2.cli.show import print_table

    rows = []
    for name in sorted(BASE_MODELS):
        path = cached_path(name)
        rows.append([name, str(path) if path else "not built yet"])
    print_table(["base model", "cached at"], rows)


@app.command("build")
def build(
    kind: Annotated[str, typer.Argument(help="Recipe family; `tiny` makes a small model from scratch.")],
    task: Annotated[str, typer.Option(help="Task that the model is made for.")] = DEMO_TASK,
) -> None:
    """Build (or find in the cache) the base model of a task."""
    from agent2.arena.base_models import BASE_MODELS, ensure_base_model
    from agent2.cli.show import print_path, progress_bar
    from agent2.errors import unknown_name

    name = f"{kind}-{task}"
    if name not in BASE_MODELS:
        raise unknown_name("base model", name, BASE_MODELS, "agent2 models build KIND --task TASK")
    with progress_bar() as steps:
        path = ensure_base_model(name, lambda message: steps(message))
    print_path("model", path)


@app.command("check")
def check(folder: Annotated[Path, typer.Argument(help="Checkpoint in Hugging Face layout.")]) -> None:
    """Check a checkpoint as the grader would: layout, safetensors, no custom code; print its digests."""
    from agent2.cli.show import print_table
    from agent2.models.checkpoint import inspect_checkpoint

    info = inspect_checkpoint(folder)
    rows = [
        ["architecture", info.architecture],
        ["tensors", str(len(info.tensors))],
        ["weights digest", info.weights_digest],
        ["content digest", info.content_digest],
        ["chat template digest", info.chat_template_digest],
        *(["note", note] for note in info.notes),
    ]
    print_table(["field", "value"], rows)
