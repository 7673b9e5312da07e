"""`agent2 benchmarks`: sources of items."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent2.cli.benchmark_files import allow_data, plain_name, write_example
from agent2.cli.masked_options import mask_benchmark
from agent2.cli.named_benchmarks import (
    get_files,
    install_bridge_command,
    list_bridges,
    list_named,
    named_record,
    print_named,
)
from agent2.cli.paths import check_data, check_is_folder
from agent2.cli.show import AsJson, print_json, print_path, print_table, progress_bar
from agent2.cli.tasks import finding_verdict
from agent2.errors import Agent2Error, ConfigError, unknown_name
from agent2.texts import counted, printable

if TYPE_CHECKING:
    from agent2.benchmarks.detection import ColumnHints
    from agent2.records import Benchmark


DATA_SUFFIXES = frozenset({".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".tsv", ".txt"})
"""No folder for an example is called so: the path is wrong."""
MAX_ROWS = 20


benchmarks_app = typer.Typer(help="Benchmarks: packaged, installed, or your own.", no_args_is_help=True)
Named = Annotated[
    str, typer.Argument(help="Name, BRIDGE:NAME, folder with benchmark.yaml, that file, FILE.py:NAME or MODULE:NAME.")
]


@benchmarks_app.command("list")
def list_benchmarks(
    named: Annotated[
        bool, typer.Option("--named", help="List the benchmarks that people quote, and what agent2 does with each.")
    ] = False,
    type_name: Annotated[
        str | None, typer.Option("--type", help="With --named: only this type, such as math or 'web agent'.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(help="With --named: native, 'from a package', bridge, 'own files' or 'recorded only'."),
    ] = None,
    bridges: Annotated[
        bool, typer.Option("--bridges", help="List the bridges to other packages, and whether each is installed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List packaged benchmarks and those of installed packages, with the reason for any that cannot be loaded."""
    from agent2.benchmarks import BENCHMARKS, load_benchmark
    from agent2.plugins import find, known_names

    if bridges:
        list_bridges(as_json=as_json)
        return
    if named or type_name is not None or status is not None:
        list_named(type_name, status, as_json=as_json)
        return
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
        print_json(records)
        return
    rows = [[r["name"], r["version"] or "-", r["scorer"] or "-", r["from"], r["problem"] or ""] for r in records]
    print_table(["benchmark", "version", "scorer", "from", "problem"], rows)


@benchmarks_app.command("show")
def show_benchmark(benchmark: Named, as_json: AsJson = False) -> None:
    """Show a benchmark's settings and one visible item; of a named one its facts, and what to type to play it here."""
    from agent2.benchmarks import load_benchmark
    from agent2.benchmarks.named import PLAYED, find_named
    from agent2.benchmarks.named.setup import first_visible
    from agent2.reports.text import clean

    row = find_named(benchmark)
    facts = named_record(row) if row is not None else {}
    if row is not None:
        if not as_json:
            print_named(row)
        if row.status not in PLAYED or not facts["setup"]["is_ready"]:
            if as_json:
                print_json({"name": row.name, **facts})
            return
    loaded = load_benchmark(benchmark if row is None else row.benchmark or row.name)
    scorer, item = loaded.scorer(), first_visible(loaded)
    record: dict[str, Any] = {
        "name": loaded.name,
        "version": loaded.version,
        "description": getattr(loaded, "description", ""),
        "scorer": f"{scorer.name}-v{scorer.version}",
        "environment": loaded.environment_version(),
        "primary_metric": loaded.primary_metric,
        "sampling": asdict(loaded.sampling),
        "attempts": loaded.attempts,
        "max_turns": loaded.max_turns,
        "sha256": getattr(loaded, "all_digests", {}),
        "item": None,
        **facts,
    }
    if item is not None:
        messages = [
            {"role": message.role, "content": message.content} for message in loaded.environment().reset(item, 0)
        ]
        record["item"] = {"id": item.id, "split": item.split.value, "messages": messages, "reference": item.reference}
    if as_json:
        print_json(record)
        return
    rows = [
        [key, clean(str(value), 2000)]
        for key, value in record.items()
        if key not in ("item", *facts) and value not in ("", {})
    ]
    print_table(["field", "value"], rows)
    if item is None:
        typer.echo("no visible item")
        return
    for message in record["item"]["messages"]:
        typer.echo(f"--- {message['role']}\n{printable(str(message['content']))}")
    typer.echo(f"--- reference\n{printable(str(item.reference))}")


@benchmarks_app.command("check")
def check_named(
    benchmark: Named,
    as_json: AsJson = False,
    pin: Annotated[bool, typer.Option("--pin", help="Write the digests of the data into benchmark.yaml.")] = False,
    n_played: Annotated[
        int | None,
        typer.Option("--items", min=1, help="Most items to play; default: all, of a package's episodes 20."),
    ] = None,
) -> None:
    """Read every split, play reference answers and an empty one; exit 1 if a check failed."""
    from agent2.benchmarks import load_benchmark
    from agent2.evaluation.check import check_benchmark

    source = load_benchmark(benchmark)
    report = check_benchmark(source, benchmark, n_played)
    if as_json:
        checks = [
            {"name": check.name, "is_ok": check.ok, "detail": check.detail, "warning": bool(check.warning)}
            for check in report.checks
        ]
        print_json({**asdict(report), "checks": checks, "is_sound": report.is_sound})
    else:
        print_table(
            ["check", "verdict", "detail"],
            [[check.name, finding_verdict(check), check.detail] for check in report.checks],
        )
        typer.echo(f"items: {', '.join(f'{split} {count}' for split, count in report.counts.items())}")
        n_items = sum(report.counts.values())
        if report.n_played < n_items:
            typer.echo(
                f"played: {report.n_played} of {n_items}, spread evenly over the splits; --items {n_items} plays all"
            )
        typer.echo(f"--- first prompt\n{printable(report.example)}\n---")
        typer.echo(f"{report.benchmark} is {'sound' if report.is_sound else 'not sound'}")
    if pin:
        pinned = _pin(source)
        if not as_json:
            print_path("pinned", pinned)
    if not report.is_sound:
        raise typer.Exit(1)


@benchmarks_app.command("new")
def new_benchmark(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE... | FOLDER", help="Data files to describe, or a folder to create an example in."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="With data files: folder to create; default: named like the first.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Column of the question, or the prompt as text with {COLUMN}.")
    ] = None,
    answer: Annotated[str | None, typer.Option(help="Column of the right answer.")] = None,
    option_by: Annotated[
        str | None,
        typer.Option(help="What an answer says of an option: letter, label, text, place_from_0 or place_from_1."),
    ] = None,
    python: Annotated[bool, typer.Option("--python", help="Write a Python class instead of data files.")] = False,
) -> None:
    """Write benchmark.yaml for data files, whose columns are detected; for a folder, a small example that works."""
    from agent2.benchmarks.declaration import OptionBy
    from agent2.benchmarks.detection import ColumnHints

    if not any(path.is_file() for path in paths):
        names_data = paths[0].suffix in DATA_SUFFIXES and not paths[0].exists()
        if len(paths) > 1 or out is not None or prompt or answer or option_by or names_data:
            missing = next((path for path in paths if not path.exists()), paths[0])
            raise ConfigError(f"agent2 benchmarks new: {missing} is not a file; check the path")
        write_example(paths[0], python=python)
        return
    if python:
        raise ConfigError("agent2 benchmarks new: --python writes an example of a class, and reads no files; leave one")
    if option_by is not None and option_by not in list(OptionBy):
        raise unknown_name("reading", option_by, list(OptionBy), "--option-by")
    _write_draft(paths, out, ColumnHints(prompt, answer, OptionBy(option_by) if option_by is not None else None))


def _write_draft(files: Sequence[Path], out: Path | None, hints: "ColumnHints") -> None:
    """A benchmark.yaml for data files, checked by loading it, and what was detected."""
    from agent2 import installation
    from agent2.benchmarks import is_known, load_benchmark
    from agent2.benchmarks.declared import DeclaredBenchmark
    from agent2.benchmarks.detection import draft_benchmark
    from agent2.benchmarks.outside import allow
    from agent2.contract.gates import EvidenceNeeds
    from agent2.evaluation.item_checks import items_to_decide
    from agent2.evaluation.suite_draft import MARGIN
    from agent2.records import Split
    from agent2.reports.text import clean, clean_lines

    if missing := [path for path in files if not path.is_file()]:
        raise ConfigError(f"agent2 benchmarks new: {missing[0]} is not a file; check the path")
    folder = out or Path(files[0].name.partition(".")[0])
    target = folder / "benchmark.yaml"
    if target.exists():
        raise ConfigError(f"{target}: already exists; choose another folder with --out")
    name = plain_name(folder)
    n_needed = items_to_decide(MARGIN, EvidenceNeeds())
    draft = draft_benchmark(files, folder, f"my_{name}" if is_known(name) else name, n_needed, hints)
    location = str(folder) if folder.is_absolute() else f"./{folder}"
    check_is_folder("agent2 benchmarks new", folder)
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    target.write_text(draft.text, encoding="utf-8")
    try:
        allow(folder.resolve(), [file.resolve() for file in files])  # the user named them
        load_benchmark(location)
        benchmark = DeclaredBenchmark(folder)
    except ConfigError:  # a file that cannot be loaded is not left behind
        target.unlink()
        if is_new:
            folder.rmdir()
        raise
    print_table(["part", "detected"], [[part, clean(text, 200)] for part, text in draft.detected.items()])
    typer.echo(f"--- first prompt\n{clean_lines(draft.example.prompt, 2000)}")
    typer.echo(f"--- reference\n{clean_lines(draft.example.reference, 2000)}\n---")
    secret = installation.secret()
    counts = {split.value: benchmark.count(split, secret) for split in Split}
    sizes = ", ".join(f"{split} {n}" for split, n in counts.items() if n)
    typer.echo(
        f"{counted(draft.n_rows, 'item')}: {sizes}; a decision needs about {n_needed} in {Split.TEST_PUBLIC.value}"
    )
    typer.echo(f"next: agent2 benchmarks check {location}")
    typer.echo(f"then: agent2 eval {location} --role nightly --checkpoint FOLDER --baseline FOLDER")
    print_path("benchmark", target)


benchmarks_app.command("allow")(allow_data)
benchmarks_app.command("get")(get_files)
benchmarks_app.command("install")(install_bridge_command)
benchmarks_app.command("mask")(mask_benchmark)


@benchmarks_app.command("record")
def record_benchmark(
    benchmark: Named,
    data: Annotated[
        Path, typer.Option(help="Folder with the official file and a search.yaml that names a live back end.")
    ],
    model: Annotated[
        str,
        typer.Option(
            help="Also play every question with this model, to record its searches: FOLDER or http://HOST/v1#MODEL."
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Record a live search back end's answers to the questions of a benchmark, and to the searches of a model.

    Run it again to resume: recorded questions are skipped. Exit 1 if a question could not be recorded.
    """
    from agent2.benchmarks import load_benchmark
    from agent2.benchmarks.home import ProvidesRecordings
    from agent2.evaluation.search_recording import record_questions
    from agent2.models.sources import find_checkpoint

    loaded = load_benchmark(benchmark, check_data(data))
    if not isinstance(loaded, ProvidesRecordings):
        raise ConfigError(f"benchmarks record: {benchmark} has no searches to record; see docs/search.md")
    source = find_checkpoint(model) if model else None
    with progress_bar() as steps:
        recording = record_questions(loaded, source, lambda number, total: steps("questions", number, total))
    if as_json:
        print_json(asdict(recording))
    else:
        typer.echo(
            f"recorded {recording.n_recorded}, recorded before {recording.n_before}, failed {len(recording.failed)}"
        )
        for name, reason in list(recording.failed.items())[:5]:
            typer.echo(f"{name}: {reason}")
        typer.echo(
            "run it again" if recording.failed else "next: remove search.yaml, so that the recordings are played"
        )
    if recording.failed:
        raise typer.Exit(1)


@benchmarks_app.command("serve")
def serve_benchmark(
    benchmark: Named,
    split: Annotated[str, typer.Option(help="train or dev; hidden items are never served.")] = "train",
    items: Annotated[int, typer.Option(min=1, help="Number of items, from the first of the split.")] = 100,
    data: Annotated[
        Path | None, typer.Option(help="Folder of official data, for a benchmark that reads files.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; there is no login, every client can play.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 picks a free one.")] = 8000,
    sessions: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent episodes.")] = 64,
) -> None:
    """Serve a benchmark's environment to trainers that speak OpenEnv (extra `openenv`), until Ctrl-C."""
    from agent2.benchmarks import load_benchmark
    from agent2.installation import install_hint
    from agent2.records import Split

    try:
        from agent2.evaluation.openenv_server import openenv_app, run_server
    except ModuleNotFoundError as error:
        raise ConfigError(f"benchmarks serve needs {error.name}; {install_hint('openenv')}") from error
    if split not in list(Split):
        raise unknown_name("split", split, list(Split), "--split")
    app = openenv_app(load_benchmark(benchmark, check_data(data)), Split(split), items, sessions)
    run_server(
        app, host, port, lambda url: typer.echo(f"serving {counted(items, 'item')} of {benchmark} ({split}) at {url}")
    )


def _pin(benchmark: "Benchmark") -> Path:
    from agent2.benchmarks.declared import DeclaredBenchmark

    if not isinstance(benchmark, DeclaredBenchmark) or benchmark.is_packaged:
        raise ConfigError(f"--pin: only data of a benchmark.yaml of yours can be pinned, and {benchmark.name} has none")
    if benchmark.spec.sha256:
        raise ConfigError(
            f"--pin: {benchmark.path} is already pinned, and its pins match; remove 'sha256' to pin again"
        )
    text = benchmark.path.read_text(encoding="utf-8")
    lines = "".join(f"  {key}: {digest}\n" for key, digest in benchmark.all_digests.items())
    benchmark.path.write_text(f"{text.rstrip()}\nsha256:\n{lines}", encoding="utf-8")
    return benchmark.path
