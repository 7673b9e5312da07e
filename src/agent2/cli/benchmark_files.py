"""Files of a benchmark of one's own: an example to begin with, and leave to read data outside its folder."""

import re
from pathlib import Path
from typing import Annotated

import typer

from agent2.cli.paths import check_is_folder
from agent2.cli.show import AsJson, print_json, print_path, print_table
from agent2.errors import ConfigError


def plain_name(folder: Path) -> str:
    """A name for the benchmark in a folder."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", folder.resolve().name).strip("_") or "mine"


def write_example(folder: Path, *, python: bool) -> None:
    """Write a small benchmark that works into a folder. Raises ConfigError if one of its files exists."""
    from importlib import resources

    name = plain_name(folder)
    templates = resources.files("agent2.benchmarks") / "templates"
    if python:
        texts = {f"{name}.py": (templates / "benchmark.py.txt").read_text(encoding="utf-8")}
    else:
        texts = {"benchmark.yaml": (templates / "benchmark.yaml").read_text(encoding="utf-8"), **_example_data()}
    check_is_folder("agent2 benchmarks new", folder)
    for file in texts:
        if (folder / file).exists():
            raise ConfigError(f"{folder / file}: already exists; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        with (folder / file).open("x", encoding="utf-8") as target:
            target.write(text.replace("NAME", name))
    first = next(iter(texts))
    typer.echo(f"next: agent2 benchmarks check {folder / first}{':Products' if python else ''}")
    print_path("benchmark", folder / first)


def _example_data() -> dict[str, str]:
    """Data files of the example: products of two numbers, all questions distinct."""
    import json

    pairs = [(a, b) for a in range(11, 31) for b in range(a, 31)]
    rows = [json.dumps({"question": f"What is {a} * {b}?", "answer": str(a * b)}) + "\n" for a, b in pairs]
    return {"train.jsonl": "".join(rows[::2]), "test.jsonl": "".join(rows[1::2])}


def allow_data(
    benchmark: Annotated[Path, typer.Argument(help="Folder with benchmark.yaml, or that file.")],
    as_json: AsJson = False,
) -> None:
    """Let a benchmark.yaml read the data that it names outside its folder, on this machine; say which they are."""
    from agent2.benchmarks.declaration import FILE, DataSpec
    from agent2.benchmarks.outside import allow, outside_data
    from agent2.config import load_yaml, read_yaml

    path = benchmark / FILE if benchmark.is_dir() else benchmark
    folder = path.resolve().parent
    outside = outside_data(load_yaml(path, DataSpec), read_yaml(path), folder)
    allow(folder, [data.path for data in outside])
    if as_json:
        print_json({"benchmark": str(folder), "allowed": [str(data.path) for data in outside]})
        return
    print_table(["named in", "allowed"], [[data.spot, str(data.path)] for data in outside])
    typer.echo(f"{len(outside)} {'path' if len(outside) == 1 else 'paths'} allowed for this benchmark")
