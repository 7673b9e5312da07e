"""`agent2 decontaminate`: whether training data contain evaluation items, and which rows of own data repeat others."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.show import AsJson, print_json, print_path, print_table, progress_bar
from agent2.errors import ConfigError, unknown_name
from agent2.texts import counted

if TYPE_CHECKING:
    from agent2.integrity.decontaminate import Contamination, SharedRow
    from agent2.integrity.meaning import MeaningSearch
    from agent2.records import Benchmark, Item, Split

MAX_ROWS = 20


def decontaminate(  # noqa: PLR0913 - one option of the command line each
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]DATA...", help="Files or folders: jsonl, json, csv, parquet, arrow, text, .gz, .zst."
        ),
    ],
    against: Annotated[
        str, typer.Option("--against", help="File of items, or BENCHMARK:SPLIT (mini_math:dev, ./FOLDER:dev).")
    ],
    n: Annotated[int, typer.Option("--n", min=5, help="Length of a shared run, in words.")] = 13,
    n_items: Annotated[int, typer.Option("--items", min=1, help="With BENCHMARK:SPLIT, number of items.")] = 500,
    retrieval: Annotated[
        bool, typer.Option("--retrieval", help="Also list rows that merely resemble an item.")
    ] = False,
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="Also list rows near an item in meaning (`agent2 models get minilm`).")
    ] = False,
    unrelated: Annotated[
        Path | None, typer.Option(help="With --embeddings: clean data; 1% of the items are as near to these by chance.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the rows without overlap to this .jsonl file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find rows that share text with evaluation items; exit 1 if there are any or a file could not be searched."""
    from agent2.integrity.decontaminate import find_contamination, write_clean

    if unrelated is not None and not embeddings:
        raise ConfigError("decontaminate: --unrelated sets the threshold of --embeddings; add that, or leave it out")
    sources = _sources(data)
    if out is not None and len(sources) > 1:
        raise ConfigError(f"--out {out}: is for the rows of one file, and {len(sources)} are named; clean each alone")
    items = _requested_items(against, n_items)
    results: dict[str, tuple[Contamination, MeaningSearch | None]] = {}
    for name, path in sources.items():
        is_own_data = Path(against).exists() and Path(against).resolve() == path.resolve()
        search = _meaning_search(path, items, unrelated, is_own_data=is_own_data) if embeddings else None
        contamination = find_contamination(path, items, n=n, with_retrieval=retrieval, is_own_data=is_own_data)
        results[name] = (contamination, search)
    _print_results(results, as_json=as_json)
    if out is not None:
        ((name, (contamination, _)),) = results.items()
        n_left_out = write_clean(sources[name], contamination.contaminated_rows, out)
        typer.echo(f"{counted(n_left_out, 'row')} removed", err=True)
        if not as_json:
            print_path("clean data", out)
    if any(contamination.rows or contamination.n_unsearched for contamination, _ in results.values()):
        raise typer.Exit(1)


def _sources(texts: Sequence[str]) -> dict[str, Path]:
    """Name -> path. Raises ConfigError for a name that comes twice."""
    sources: dict[str, Path] = {}
    for text in texts:
        name, sign, path = text.partition("=")
        is_named = bool(sign and name and path) and not Path(text).exists()
        source = Path(path) if is_named else Path(text)
        key = name if is_named else text
        if key in sources:
            raise ConfigError(f"decontaminate: {key!r} is named twice; write NAME={source} with another name")
        sources[key] = source
    return sources


def _print_results(results: "Mapping[str, tuple[Contamination, MeaningSearch | None]]", *, as_json: bool) -> None:
    """One report: that of the only source, or of each one and all together."""
    from agent2.reports.text import clean

    if len(results) == 1:
        ((contamination, search),) = results.values()
        if as_json:
            print_json(_contamination_record(contamination, search))
        else:
            _print_overlaps(contamination, search)
        return
    found_in = {name: contamination.contaminated_items for name, (contamination, _) in results.items()}
    n_met = len(set().union(*found_in.values()))
    n_items = next(iter(results.values()))[0].n_items
    if as_json:
        records = [{"source": name, **_contamination_record(*result)} for name, result in results.items()]
        print_json({"sources": records, "n_items": n_items, "n_items_met": n_met})
        return
    for name, (contamination, search) in results.items():
        typer.echo(f"--- {clean(name, 200)}")
        _print_overlaps(contamination, search)
    rows = [
        [
            clean(name, 60),
            str(len(contamination.contaminated_items)),
            str(len(contamination.contaminated_rows)),
            str(len({row.item for row in (*contamination.suspects, *_only_near(contamination, search))})),
            "no" if contamination.n_unsearched else "yes",
        ]
        for name, (contamination, search) in results.items()
    ]
    print_table(["source", "items met", "rows", "suspected items", "searched in full"], rows)
    typer.echo(f"{n_met} of {counted(n_items, 'item')} in one of the sources or more")


def _meaning_search(
    data: Path, items: "Sequence[Item]", unrelated: Path | None, *, is_own_data: bool
) -> "MeaningSearch":
    from agent2.integrity.meaning import near_in_meaning
    from agent2.models.embeddings import open_encoder

    with progress_bar() as steps:
        return near_in_meaning(data, items, open_encoder(), unrelated=unrelated, is_own_data=is_own_data, on_rows=steps)


def _only_near(contamination: "Contamination", search: "MeaningSearch | None") -> "list[SharedRow]":
    """What is near in meaning and shares no text."""
    shared = {(row.row, row.item) for row in contamination.rows}
    return [row for row in search.rows if (row.row, row.item) not in shared] if search is not None else []


def _requested_items(against: str, n_items: int) -> "list[Item]":
    from agent2 import installation
    from agent2.benchmarks import load_benchmark
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
    return _without_template(_items_of(benchmark, split, n_items, secret, against), benchmark, split, secret)


def _items_of(benchmark: "Benchmark", split: "Split", n_items: int, secret: bytes | None, against: str) -> "list[Item]":
    """The first n items of a split, or all that it has."""
    try:
        return list(benchmark.items(split, n_items, secret))
    except ConfigError:  # the split may have fewer items: find the largest number by bisection
        fewer, more = 0, n_items
    while more - fewer > 1:
        middle = (fewer + more) // 2
        try:
            benchmark.items(split, middle, secret)
            fewer = middle
        except ConfigError:
            more = middle
    try:
        return list(benchmark.items(split, max(fewer, 1), secret))
    except ConfigError as error:
        raise ConfigError(f"--against {against}: {error}") from error


def _without_template(
    items: "list[Item]", benchmark: "Benchmark", split: "Split", secret: bytes | None
) -> "list[Item]":
    """The items with the field of the file in place of a prompt that is one field inside a template.

    Training data hold the question, not the instruction around it: a short question would have no run of words in
    common with its prompt. What has options keeps its prompt, since many questions read alike without them.
    """
    from agent2.benchmarks.home import ProvidesNamedSet

    if not isinstance(benchmark, ProvidesNamedSet):
        return items
    alone = {named.item.id: named.prompts[-1] for named in benchmark.named_set(split, secret).items}
    return [
        replace(item, prompt=alone.get(item.id) or item.prompt) if "options" not in item.payload else item
        for item in items
    ]


def _print_overlaps(contamination: "Contamination", search: "MeaningSearch | None") -> None:
    from agent2.reports.text import clean

    near = _only_near(contamination, search)
    for title, rows in (
        ("shared text", contamination.rows),
        ("suspects (retrieval)", contamination.suspects),
        ("suspects (meaning)", near),
    ):
        if rows:
            cells = [[clean(row.row, 80), clean(row.item, 60), f"{row.share:.0%}", row.how] for row in rows[:MAX_ROWS]]
            more = f", the first {MAX_ROWS} shown" if len(rows) > MAX_ROWS else ""
            print_table(["row", "item", "share", "how"], cells, f"{title}: {len(rows)}{more}")
    if any(row.how == "part" for row in contamination.rows):
        typer.echo("part: the row has other words in place of the rest of the item; look whether it asks the same")
    n_items, n_rows = len(contamination.contaminated_items), len(contamination.contaminated_rows)
    typer.echo(
        f"{n_items} of {counted(contamination.n_items, 'item')} {'shares' if n_items == 1 else 'share'} text with "
        f"{counted(n_rows, 'row')}; "
        f"shorter than a run and so matched as a whole: {counted(contamination.n_short, 'item')}; "
        f"searched: {clean(contamination.reading.summary(), 400)}"
    )
    if contamination.templates:
        n_template = max(contamination.templates.values())
        n_sharing = counted(len(contamination.templates), "item")
        typer.echo(
            f"wording shared by {n_sharing} with up to {counted(n_template, 'row')} around different "
            "words: a template of the data, neither listed nor removed"
        )
    if search is not None:
        n_near = len({row.item for row in near})
        typer.echo(f"near in meaning to rows that share no text: {counted(n_near, 'item')}; {search.sentence}")
    if contamination.n_unsearched:
        typer.echo(
            f"not searched in full: {counted(contamination.n_unsearched, 'file')} that may contain text, "
            "so overlap cannot be ruled out"
        )


def _contamination_record(contamination: "Contamination", search: "MeaningSearch | None") -> dict[str, object]:
    return {
        "rows": contamination.rows,
        "suspects": [*contamination.suspects, *_only_near(contamination, search)],
        "meaning": None if search is None else {"n_rows": search.n_rows, **asdict(search.threshold)},
        "n_items": contamination.n_items,
        "n_items_met": len(contamination.contaminated_items),
        "templates": contamination.templates,
        "n_short": contamination.n_short,
        "searched": contamination.reading.summary(),
        "is_complete": not contamination.n_unsearched,
    }
