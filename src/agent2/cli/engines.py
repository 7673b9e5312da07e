"""`agent2 engines`: inference engines, each in a Python environment of its own."""

from pathlib import Path
from typing import Annotated

import typer

from agent2.cli.show import AsJson, print_json, print_path, print_table, progress_bar
from agent2.errors import ConfigError

engines_app = typer.Typer(help="Install, list and check inference engines for local models.", no_args_is_help=True)
EngineName = Annotated[str, typer.Argument(help="An engine: see `agent2 engines list`.")]


@engines_app.command("list")
def list_engines(as_json: AsJson = False) -> None:
    """List the engines and which are installed; `hf` is the sampler of agent2's own process."""
    from agent2.engines.catalogue import ENGINES
    from agent2.engines.environments import installed_engine, pins_digest

    rows = []
    for name, engine in ENGINES.items():
        ready = installed_engine(engine)
        is_current = ready is not None and ready.pins_digest == pins_digest(engine)
        state = "ready" if is_current else f"agent2 engines install {name}"
        folder = None if ready is None else str(ready.folder)
        rows.append({"engine": name, "version": ready.version if ready else None, "state": state, "folder": folder})
    if as_json:
        print_json(rows)
        return
    columns = ["engine", "version", "state", "folder"]
    print_table(columns, [[row[column] or "-" for column in columns] for row in rows])


@engines_app.command("install")
def install(name: EngineName, as_json: AsJson = False) -> None:
    """Make the environment of an engine from pinned packages, below the installation's home."""
    from agent2.engines.catalogue import find_engine
    from agent2.engines.environments import environment_facts, install_engine

    engine = find_engine(name, "agent2 engines install")
    with progress_bar() as steps:
        ready = install_engine(engine, lambda message: steps(message))
    if as_json:
        print_json(environment_facts(ready))
        return
    typer.echo(f"{engine.name} {ready.version}")
    print_path("environment", ready.folder)


@engines_app.command("check")
def check(
    name: EngineName,
    model: Annotated[
        str, typer.Option(help="FOLDER of a model, FILE.gguf, or a published model's name, to ask.")
    ] = "smollm2-135m",
    as_json: AsJson = False,
) -> None:
    """Start an engine on a model, ask one question greedily, and stop it; exit 4 if it does not answer."""
    import time

    from agent2.engines.catalogue import find_engine
    from agent2.engines.environments import require_engine
    from agent2.errors import EndpointFailed
    from agent2.models.sources import LoadSettings, SourceKind, find_checkpoint
    from agent2.records import Message, SamplingSettings

    engine = find_engine(name, "agent2 engines check")
    require_engine(engine, "agent2 engines check")  # before the model, which may have to be fetched
    source = find_checkpoint(model, LoadSettings(engine=engine.name, max_in_flight=1))
    if source.kind is not SourceKind.ENGINE:
        raise ConfigError(f"--model {model}: an engine serves the FOLDER of a model")
    started = time.monotonic()
    sampler = source.open()
    try:
        ready_s = time.monotonic() - started
        question = [Message("user", "What is the capital of France?")]
        sampler.submit(0, question, SamplingSettings(temperature=0.0, max_tokens=24))
        ((_, answer),) = sampler.collect()
        answered_s = time.monotonic() - started - ready_s
    finally:
        sampler.close()
    if answer.fault is not None:
        raise EndpointFailed(f"engine {name}: {answer.reason}")
    facts = {
        "engine": engine.name,
        "precision": source.dtype,
        "model": str((source.folder or Path(source.spec)).resolve()),
        "ready_s": round(ready_s, 1),
        "answered_s": round(answered_s, 1),
        "tokens": answer.completion_tokens,
        "logprobs": answer.logprobs is not None,
        "answer": answer.text,
    }
    if as_json:
        print_json(facts)
        return
    print_table(["field", "value"], [[key.replace("_", " "), str(value)] for key, value in facts.items()])
