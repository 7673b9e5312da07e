"""`agent2 models`: base models and checkpoints."""

from pathlib import Path
from typing import Annotated

import typer

from agent2.cli.show import AsJson

app = typer.Typer(help="List, build and check base models and checkpoints.", no_args_is_help=True)


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the packaged base models and which of them are cached."""
    from agent2.arena.base_models import BASE_MODELS, cached_path
    from agent2.cli.show import print_json, print_table

    paths = {name: cached_path(name) for name in sorted(BASE_MODELS)}
    if as_json:
        print_json(paths)
        return
    print_table(["base model", "cached at"], [[name, str(path or "not built yet")] for name, path in paths.items()])


@app.command("build")
def build(
    kind: Annotated[str, typer.Argument(help="Recipe family; `tiny` trains a small model from scratch.")],
    task: Annotated[str, typer.Option(help="Task that the model is for; the demo's by default.")] = "",
) -> None:
    """Build the base model of a task, or find it in the cache."""
    from agent2.arena.base_models import BASE_MODELS, ensure_base_model
    from agent2.benchmarks import DEMO_TASK
    from agent2.cli.show import print_path, progress_bar
    from agent2.errors import unknown_name

    name = f"{kind}-{task or DEMO_TASK}"
    if name not in BASE_MODELS:
        raise unknown_name("base model", name, BASE_MODELS, "agent2 models build KIND --task TASK")
    with progress_bar() as steps:
        path = ensure_base_model(name, lambda message: steps(message))
    print_path("model", path)


@app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(help="Checkpoint in Hugging Face layout.")], as_json: AsJson = False
) -> None:
    """Check a checkpoint as the grader would: layout, safetensors, no custom code; print its digests."""
    from agent2.cli.show import print_json, print_table
    from agent2.models.checkpoint import inspect_checkpoint

    info = inspect_checkpoint(folder)
    if as_json:
        names = ("architecture", "weights_digest", "content_digest", "chat_template_digest", "notes")
        print_json({name: getattr(info, name) for name in names} | {"n_tensors": len(info.tensors)})
        return
    rows = [
        ["architecture", info.architecture],
        ["tensors", str(len(info.tensors))],
        ["weights digest", info.weights_digest],
        ["content digest", info.content_digest],
        ["chat template digest", info.chat_template_digest],
        *(["note", note] for note in info.notes),
    ]
    print_table(["field", "value"], rows)
