"""`agent2 benchmarks mask`: a benchmark that asks for wrong options by heart, as a check of contamination."""

from pathlib import Path
from typing import Annotated

import typer

from agent2.cli.show import AsJson, one_line, print_json, print_path
from agent2.errors import ConfigError
from agent2.texts import counted


def mask_benchmark(
    name: Annotated[str, typer.Argument(help="A benchmark of multiple choice: a name, or ./FOLDER.")],
    out: Annotated[Path, typer.Option(help="Folder of the new benchmark.")],
    complete: Annotated[
        bool, typer.Option("--complete", help="For base models: the question up to the option, to be continued.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most N items of each split.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a benchmark that asks for a masked wrong option of each question: who writes it has seen the item.

    Its score is the share of options that a model writes word for word. Private items are not read.
    """
    from agent2 import installation
    from agent2.benchmarks import load_benchmark
    from agent2.benchmarks.home import ProvidesCount
    from agent2.integrity.masked_options import Form, mask_options, write_masked
    from agent2.records import Split

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out}: already exists; choose another folder")
    benchmark = load_benchmark(name)
    if not isinstance(benchmark, ProvidesCount):
        raise ConfigError(f"{name}: its items are made without end, so that nobody can have seen them; nothing to ask")
    secret, form = installation.secret(), Form.COMPLETE if complete else Form.MASK
    masked = mask_options(benchmark, secret, lambda split: benchmark.count(split, secret), form=form, limit=limit)
    write_masked(out, benchmark, masked)
    sizes = {split.value: len(rows) for split, rows in masked.rows.items()}
    if as_json:
        print_json({"benchmark": str(out), "form": form.value, "items": sizes, "left_out": masked.left_out})
        return
    listed = ", ".join(f"{split} {n_items}" for split, n_items in sizes.items())
    typer.echo(f"{counted(masked.n_items, 'item')}: {listed}")
    for reason, n_items in masked.left_out.items():
        typer.echo(one_line(f"left out: {n_items}: {reason}"))
    role = "nightly" if Split.TEST_PUBLIC in masked.rows else "dev"
    location = str(out) if out.is_absolute() else f"./{out}"
    typer.echo(f"next: agent2 eval {location} --role {role} --limit 200 --checkpoint FOLDER")
    print_path("benchmark", out / "benchmark.yaml")
