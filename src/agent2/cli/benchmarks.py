"""`agent2 benchmarks`: where items come from; the packaged ones, those of installed packages, and your own."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from agent2.records import Benchmark, Item

app = typer.Typer(help="Benchmarks: packaged, installed, or your own.", no_args_is_help=True)
Named = Annotated[str, typer.Argument(help="Name, folder with benchmark.yaml, that file, FILE.py:NAME or MODULE:NAME.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


@app.command("list")
def list_benchmarks(as_json: AsJson = False) -> None:
    """List packaged benchmarks and those of installed packages; one that cannot be loaded says why."""
    from agent2.benchmarks import BENCHMARKS, load_benchmark
    from agent2.cli.show import print_table
    from agent2.errors import Agent2Error
    from agent2.plugins import find, known_names

    records: list[dict[str, Any]] = []
    for name in known_names("benchmark", BENCHMARKS):
        record: dict[str, Any] = {"name": name, "version": None, "scorer": None, "from": "agent2", "problem": None}
        try:
            record["from"] = find("benchmark", name, BENCHMARKS).package or "agent2"
            benchmark = load_benchmark(name)
            record |= {"version": benchmark.version, "scorer": benchmark.scorer().name}
        except Agent2Error as error:
            record["problem"] = str(error)
        records.append(record)
    if as_json:
        _print_json(records)
        return
    rows = [[r["name"], r["version"] or "-", r["scorer"] or "-", r["from"], r["problem"] or ""] for r in records]
    print_table(["benchmark", "version", "scorer", "from", "problem"], rows)


@app.command("show")
def show(benchmark: Named, as_json: AsJson = False) -> None:
    """Show a benchmark's settings and one visible item as the model is asked."""
    from dataclasses import asdict

    from agent2.benchmarks import load_benchmark
    from agent2.cli.show import print_table
    from agent2.reports.text import clean

    found = load_benchmark(benchmark)
    scorer, item = found.scorer(), _first_visible(found)
    record: dict[str, Any] = {
        "name": found.name,
        "version": found.version,
        "description": getattr(found, "description", ""),
        "scorer": f"{scorer.name}-v{scorer.version}",
        "environment": found.environment_version(),
        "primary_metric": found.primary_metric,
        "sampling": asdict(found.sampling),
        "attempts": found.attempts,
        "max_turns": found.max_turns,
        "sha256": {str(portion): digest for portion, digest in getattr(found, "digests", {}).items()},
        "item": None,
    }
    if item is not None:
        messages = [{"role": one.role, "content": one.content} for one in found.environment().reset(item, 0)]
        record["item"] = {"id": item.id, "split": item.split.value, "messages": messages, "reference": item.reference}
    if as_json:
        _print_json(record)
        return
    rows = [[key, clean(str(value), 2000)] for key, value in record.items() if key != "item" and value not in ("", {})]
    print_table(["field", "value"], rows)
    if item is None:
        typer.echo("no visible item")
        return
    for message in record["item"]["messages"]:
        typer.echo(f"--- {message['role']}\n{message['content']}")
    typer.echo(f"--- reference\n{item.reference}")


@app.command("check")
def check(
    benchmark: Named,
    as_json: AsJson = False,
    pin: Annotated[bool, typer.Option("--pin", help="Write the digests of the data into benchmark.yaml.")] = False,
) -> None:
    """Read every split, play reference answers and an empty one; exit 1 if a check failed."""
    from dataclasses import asdict

    from agent2.benchmarks import load_benchmark
    from agent2.cli.show import print_path, print_table
    from agent2.evaluation.benchmark_check import check_benchmark

    source = load_benchmark(benchmark)
    found = check_benchmark(source)
    if as_json:
        _print_json({**asdict(found), "is_sound": found.is_sound})
    else:
        words = {True: "ok", False: "FAILED", None: "not checked"}
        print_table(["check", "verdict", "detail"], [[one.name, words[one.is_ok], one.detail] for one in found.checks])
        typer.echo(f"items: {', '.join(f'{split} {count}' for split, count in found.counts.items())}")
        typer.echo(f"--- first prompt\n{found.example}\n---")
        typer.echo(f"{found.benchmark} is {'sound' if found.is_sound else 'not sound'}")
    if pin:
        print_path("pinned", _pin(source))
    if not found.is_sound:
        raise typer.Exit(1)


@app.command("new")
def new(
    folder: Annotated[Path, typer.Argument(help="Folder to make.")],
    python: Annotated[bool, typer.Option("--python", help="A Python class in place of data files.")] = False,
) -> None:
    """Write a small benchmark that works, to be changed: benchmark.yaml with data, or a Python file."""
    from importlib import resources

    from agent2.cli.show import print_path
    from agent2.errors import ConfigError

    name = "".join(letter if letter.isalnum() else "_" for letter in folder.resolve().name).strip("_") or "mine"
    templates = resources.files("agent2.benchmarks") / "templates"
    if python:
        texts = {f"{name}.py": (templates / "benchmark.py.txt").read_text(encoding="utf-8")}
    else:
        texts = {"benchmark.yaml": (templates / "benchmark.yaml").read_text(encoding="utf-8"), **_products()}
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        try:
            with (folder / file).open("x", encoding="utf-8") as target:
                target.write(text.replace("NAME", name))
        except FileExistsError as error:
            raise ConfigError(f"{folder / file}: exists already; name another folder") from error
    first = next(iter(texts))
    typer.echo(f"next: agent2 benchmarks check {folder / first}{':Products' if python else ''}")
    print_path("benchmark", folder / first)


def _products() -> dict[str, str]:
    """Data files of the example: products of two numbers, no two the same question."""
    import json

    pairs = [(a, b) for a in range(11, 31) for b in range(a, 31)]
    rows = [json.dumps({"question": f"What is {a} * {b}?", "answer": str(a * b)}) + "\n" for a, b in pairs]
    return {"train.jsonl": "".join(rows[::2]), "test.jsonl": "".join(rows[1::2])}


def _first_visible(benchmark: "Benchmark") -> "Item | None":
    from agent2.errors import ConfigError
    from agent2.records import Split

    for split in (Split.TRAIN, Split.DEV):
        try:
            return benchmark.items(split, 1, None)[0]
        except ConfigError as error:
            problem = error
    if getattr(benchmark, "spec", None) is None:
        raise problem
    return None


def _pin(benchmark: "Benchmark") -> Path:
    from agent2.benchmarks.data import DataBenchmark
    from agent2.errors import ConfigError

    if not isinstance(benchmark, DataBenchmark):
        raise ConfigError(f"--pin: {benchmark.name} is code; only data of a benchmark.yaml can be pinned")
    if benchmark.spec.sha256:
        raise ConfigError(f"--pin: {benchmark.path} has pins already, and they hold; remove 'sha256' to pin anew")
    text = benchmark.path.read_text(encoding="utf-8")
    lines = "".join(f"  {portion.value}: {digest}\n" for portion, digest in benchmark.digests.items())
    benchmark.path.write_text(f"{text.rstrip()}\nsha256:\n{lines}", encoding="utf-8")
    return benchmark.path


def _print_json(record: object) -> None:
    import msgspec

    typer.echo(msgspec.json.format(msgspec.json.encode(record), indent=1).decode())
