"""`agent2 decontaminate`: rows of a data set that share text with evaluation items."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agent2.integrity.decontaminate import Contamination
    from agent2.records import Item

MAX_ROWS = 20


def decontaminate(
    data: Annotated[Path, typer.Argument(help="File or folder: jsonl, json, csv, parquet, arrow, text, .gz, .zst.")],
    against: Annotated[
        str, typer.Option("--against", help="File of items, or BENCHMARK:SPLIT (mini_math:dev, ./FOLDER:dev).")
    ],
    n: Annotated[int, typer.Option("--n", min=5, help="Length of a shared run, in words.")] = 13,
    n_items: Annotated[int, typer.Option("--items", min=1, help="With BENCHMARK:SPLIT, number of items.")] = 500,
    retrieval: Annotated[
        bool, typer.Option("--retrieval", help="Also list rows that merely resemble an item.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the rows without overlap to this .jsonl file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON (docs/json-output.md).")] = False,
) -> None:
    """Find rows that share text with evaluation items; exit 1 if there are any or a file could not be searched."""
    from agent2.cli.show import print_path
    from agent2.integrity.decontaminate import find_contamination, write_clean

    found = find_contamination(data, _items(against, n_items), n=n, with_retrieval=retrieval)
    if as_json:
        _print_json(found)
    else:
        _print_tables(found)
    if out is not None:
        n_left_out = write_clean(data, found.dirty, out)
        typer.echo(f"{n_left_out} rows removed", err=True)
        print_path("clean data", out)
    if found.rows or found.unsearched:
        raise typer.Exit(1)


def _items(against: str, n_items: int) -> "list[Item]":
    from agent2 import installation
    from agent2.benchmarks import load_benchmark
    from agent2.errors import ConfigError, unknown_name
    from agent2.integrity.decontaminate import items_from
    from agent2.records import HIDDEN_SPLITS, Split

    name, colon, split_name = against.rpartition(":")
    if not colon or Path(against).exists():
        return items_from(Path(against))
    if split_name not in list(Split):
        raise unknown_name("split", split_name, list(Split), "--against")
    split = Split(split_name)
    benchmark = load_benchmark(name, where="--against")
    secret = installation.secret() if split in HIDDEN_SPLITS else None
    while True:
        try:
            return benchmark.items(split, n_items, secret)
        except ConfigError as error:
            if n_items <= 1:
                raise ConfigError(f"--against {against}: {error}") from error
            n_items //= 2  # the split may have fewer


def _print_tables(found: "Contamination") -> None:
    from agent2.cli.show import print_table
    from agent2.reports.text import clean

    for title, rows in (("shared text", found.rows), ("suspects (retrieval)", found.suspects)):
        if rows:
            shown = [[clean(row.row, 80), clean(row.item, 60), f"{row.share:.0%}", row.how] for row in rows[:MAX_ROWS]]
            more = f", the first {MAX_ROWS} shown" if len(rows) > MAX_ROWS else ""
            print_table(["row", "item", "share", "how"], shown, f"{title}: {len(rows)}{more}")
    typer.echo(
        f"{len(found.met)} of {found.n_items} items share text with {len(found.dirty)} rows; {found.n_short} items are "
        f"shorter than a run and were matched as a whole; searched: {clean(found.reading.words(), 400)}"
    )
    if found.unsearched:
        typer.echo(
            f"not searched in full: {found.unsearched} files that may contain text, so overlap cannot be ruled out"
        )


def _print_json(found: "Contamination") -> None:
    import msgspec

    record = {
        "rows": found.rows,
        "suspects": found.suspects,
        "n_items": found.n_items,
        "n_items_met": len(found.met),
        "n_short": found.n_short,
        "searched": found.reading.words(),
        "is_complete": not found.unsearched,
    }
    typer.echo(msgspec.json.format(msgspec.json.encode(record), indent=1).decode())
