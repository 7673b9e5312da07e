"""`agent2 bench`: a benchmark of one's benchmark, from a capability matrix over a pilot to frozen versions."""

import datetime
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent2.cli.show import AsJson, one_line, print_json, print_path, print_table, progress_bar
from agent2.errors import ConfigError
from agent2.texts import counted

if TYPE_CHECKING:
    from agent2.authoring.card_faults import CardFault
    from agent2.authoring.own_benchmark import OwnBenchmark

SHOWN = 20
"""Items of a list in the terminal."""

app = typer.Typer(
    help="Build a benchmark of your benchmark: matrix, cards, pilot, freeze, refresh.", no_args_is_help=True
)
Folder = Annotated[Path, typer.Argument(help="Folder with bench.yaml.")]


@app.command("new")
def new(
    folder: Annotated[Path, typer.Argument(help="Folder to make.")],
    matrix: Annotated[
        Path, typer.Option(help="YAML: a row a task type, as in 'bug fix: 30/40/20' (easy/medium/hard).")
    ],
    name: Annotated[str | None, typer.Option(help="Of the benchmark; default: that of the folder.")] = None,
    cards: Annotated[
        Path | None, typer.Option(help="Task cards to copy: .jsonl, .yaml, .json, or a folder of them, Harbor's too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the folder of a benchmark from its capability matrix, and print how many cards each cell lacks."""
    from agent2.authoring.own_benchmark import new_own
    from agent2.cli.benchmark_files import plain_name

    benchmark = new_own(folder, matrix, name or plain_name(folder), cards)
    if as_json:
        print_json({"folder": str(folder), "name": benchmark.spec.name, **_cells(benchmark)})
        return
    _print_cells(benchmark)
    typer.echo(f"next: put task cards into {folder / 'cards'}, then agent2 bench check {folder}")
    print_path("benchmark", folder / "bench.yaml")


@app.command("check")
def check(folder: Folder, as_json: AsJson = False) -> None:
    """Check the cards without a model: deficits, leaked answers, duplicates, shortcuts, verifiers that pass on nothing.

    Exit 1 if a card is broken. Verifiers that run commands are run in a sandbox.
    """
    from agent2.authoring.card_faults import static_faults
    from agent2.authoring.own_benchmark import read_own
    from agent2.authoring.pilot import DROPPED
    from agent2.authoring.versions import frozen_versions

    benchmark = read_own(folder)
    frozen_versions(benchmark)
    faults = [*static_faults(benchmark.cards), *_played(benchmark)]
    if as_json:
        print_json({**_cells(benchmark), "n_cards": len(benchmark.cards), "faults": faults})
    else:
        _print_cells(benchmark)
        _print_faults(faults)
    if any(fault.kind in DROPPED for fault in faults):
        raise typer.Exit(1)


@app.command("pilot")
def pilot(
    folder: Folder,
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="weak=, previous= and strong= (sft= for weak): a card of the draft, or a checkpoint to play."
        ),
    ] = None,
    main: Annotated[str, typer.Option(help="The role that should score 40 to 80%.")] = "previous",
    limit: Annotated[int | None, typer.Option(min=1, help="Play the first N cards by a hash of their ids.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the pilot; default: pilots/1, 2, ... of FOLDER.")] = None,
    as_json: AsJson = False,
) -> None:
    """Play three roles on the draft; say whether it is calibrated, what each item tells, and which to drop.

    Exit 1 unless the verdict is healthy. A pilot that was interrupted is resumed with the same --out.
    """
    import msgspec

    from agent2.authoring.own_benchmark import read_own, write_benchmark
    from agent2.authoring.pilot import analyse_pilot, play_role, require_draft, require_roles
    from agent2.cards.folder import card_exists
    from agent2.files import atomic_write

    benchmark = read_own(folder)
    if not benchmark.cards:
        raise ConfigError(f"{folder / 'cards'}: contains no task card; add some, see docs/how-to/build-a-benchmark.md")
    sources = _sources(role or [])
    require_roles(list(sources))
    if main not in sources:
        raise ConfigError(f"--main {main!r}: is not among the roles {', '.join(sources)}")
    pilots = folder / "pilots"
    out = out or pilots / str(1 + sum(path.is_dir() for path in pilots.iterdir()) if pilots.is_dir() else 1)
    draft = out / "draft"
    write_benchmark(draft, benchmark.spec, "draft", benchmark.cards, by_split=False)
    cards = {}
    with progress_bar() as progress:
        for name, source in sources.items():
            is_card = card_exists(Path(source))
            cards[name] = Path(source) if is_card else play_role(benchmark, draft, source, out / name, limit, progress)
    require_draft(cards, draft)
    result = analyse_pilot(benchmark, cards, main, _played(benchmark))
    record = {**result.record(), "digests": {card.id: card.digest for card in benchmark.cards}}
    atomic_write(out / "pilot.json", msgspec.json.format(msgspec.json.encode(record), indent=1))
    if as_json:
        print_json(record)
    else:
        _print_pilot(record)
        print_path("pilot", out / "pilot.json")
    if not record["healthy"]:
        raise typer.Exit(1)


@app.command("freeze")
def freeze(
    folder: Folder,
    pilot: Annotated[Path | None, typer.Option(help="A pilot's folder; default: the last below pilots/.")] = None,
    version: Annotated[str | None, typer.Option(help="As 3.2; default: the next minor one.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="Id of an item that stays although the pilot drops it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Freeze the cards that the pilot kept as version NAME-v3.2, with digests, changelog, anchors and their drift."""
    from agent2.authoring.own_benchmark import read_own
    from agent2.authoring.versions import freeze as freeze_version
    from agent2.authoring.versions import read_pilot

    benchmark = read_own(folder)
    result = freeze_version(
        benchmark, read_pilot(pilot or _last_pilot(folder)), datetime.date.today(), version, keep or ()
    )
    frozen = result.frozen
    if as_json:
        print_json(
            {
                "version": f"{benchmark.spec.name}-v{frozen.version}",
                "folder": str(frozen.folder),
                "n_items": len(frozen.digests),
                "anchors": frozen.anchors,
                "added": result.added,
                "changed": result.changed,
                "removed": result.removed,
                "dropped": result.dropped,
                "drift": result.drift,
            }
        )
        return
    typer.echo(
        f"{benchmark.spec.name}-v{frozen.version}: {counted(len(frozen.digests), 'item')}, "
        f"{len(frozen.anchors)} anchors; "
        f"{len(result.added)} added, {len(result.changed)} changed, {len(result.removed)} removed, "
        f"{len(result.dropped)} left out"
    )
    for drift in result.drift:
        same = "the same checkpoint" if drift.is_same_checkpoint else "another checkpoint"
        typer.echo(f"anchors, {drift.role} ({same}): {drift.difference}")
    print_path("benchmark", frozen.folder)


@app.command("refresh")
def refresh(
    folder: Folder,
    cutoff: Annotated[str | None, typer.Option(help="A date (2026-06-30): which items are newer.")] = None,
    out: Annotated[Path | None, typer.Option(help="With --cutoff: write the newer items as a benchmark.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say when the next version is due, which dated items are too old, and which are newer than a cutoff.

    Exit 1 if a version is due or items are too old.
    """
    from agent2.authoring.own_benchmark import read_own
    from agent2.authoring.versions import plan_refresh, write_after_cutoff

    day = _date(cutoff)
    if out is not None and day is None:
        raise ConfigError("--out: is for the items after a --cutoff; give one")
    benchmark = read_own(folder)
    plan = plan_refresh(benchmark, datetime.date.today(), day)
    if out is not None and day is not None:
        write_after_cutoff(benchmark, out, day)
    if as_json:
        print_json(plan)
    else:
        state = "due" if plan.is_due else "not due"
        typer.echo(f"last frozen: {plan.last_frozen or 'never'}; next: {plan.next_due or 'after the first'} ({state})")
        rows = [[month, str(n_items)] for month, n_items in plan.n_by_month.items()]
        print_table(["month", "items"], [*rows, ["undated", str(plan.n_undated)]])
        typer.echo(f"{counted(len(plan.to_replace), 'item')} to replace: {_some(plan.to_replace)}")
        if plan.after_cutoff is not None:
            typer.echo(f"after {cutoff}: {counted(len(plan.after_cutoff), 'item')}")
        if out is not None:
            print_path("benchmark", out)
    if plan.is_due or plan.to_replace:
        raise typer.Exit(1)


@app.command("draft")
def draft(
    folder: Annotated[Path, typer.Argument(help="An evaluation, a card, or a folder of cards.")],
    out: Annotated[Path, typer.Option(help="File of task cards to write, .jsonl; those without a key beside it.")],
    label: Annotated[
        str | None, typer.Option("--class", help="Only failures counted first under this class (agent2 failures).")
    ] = None,
    redact: Annotated[
        Path | None, typer.Option(help="File with regular expressions, one a line, of what else is taken out.")
    ] = None,
    split: Annotated[str, typer.Option(help="Of the drafts: train, dev, public_trend or private_release.")] = "dev",
    limit: Annotated[int | None, typer.Option(min=1, help="Draft at most N items.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draft task cards from the items that a checkpoint failed, without personal data and keys.

    Drafts are for a person to read: whether a failure is worth an item, and whether the question is still the same.
    """
    from agent2.authoring.drafts import draft_cards
    from agent2.authoring.redaction import read_patterns
    from agent2.authoring.task_cards import write_cards
    from agent2.files import write_text

    unanswered = out.with_name(f"{out.stem}.unanswered.jsonl")
    if out.suffix != ".jsonl":
        raise ConfigError(f"--out {out}: name a file of task cards that ends in .jsonl")
    for file in (out, unanswered):
        if file.exists():
            raise ConfigError(f"--out {file}: already exists; choose another file")
    patterns = [] if redact is None else read_patterns(redact)
    drafts = draft_cards(folder, label=label, patterns=patterns, split=split, limit=limit)
    if drafts.cards:
        write_cards(out, drafts.cards)
    if drafts.unanswered:
        write_text(unanswered, "".join(json.dumps(row) + "\n" for row in drafts.unanswered))
    if as_json:
        print_json(
            {
                "n_failed": drafts.n_failed,
                "n_cards": len(drafts.cards),
                "n_unanswered": len(drafts.unanswered),
                "left_out": drafts.left_out,
                "redacted": drafts.redacted,
            }
        )
        return
    typer.echo(
        f"{counted(drafts.n_failed, 'failed item')}: {counted(len(drafts.cards), 'draft')}, "
        f"{len(drafts.unanswered)} without a key, {sum(drafts.left_out.values())} left out"
    )
    for reason, n_items in drafts.left_out.items():
        typer.echo(one_line(f"left out: {n_items}: {reason}"))
    redacted = ", ".join(f"{kind} {n_values}" for kind, n_values in drafts.redacted.items())
    typer.echo(f"taken out: {redacted or 'nothing'}; read every draft before it joins a benchmark")
    if drafts.unanswered:
        print_path("fill in answer", unanswered)
    if drafts.cards:
        print_path("task cards", out)


@app.command("results")
def results(
    card: Annotated[Path, typer.Argument(help="Folder with card.json: of a pilot's role, or of an evaluation.")],
    as_json: AsJson = False,
) -> None:
    """List one record an attempt: task, passed or not, turns, tool calls, final answer."""
    from agent2.cards.reader import iter_rollouts
    from agent2.scorers.task_set import task_results

    records = task_results(iter_rollouts(card))
    if as_json:
        print_json(records)
        return
    verdicts = {True: "yes", False: "no", None: "unknown"}
    rows = [
        [
            record.task_id,
            verdicts[record.passed],
            str(record.turns),
            str(record.tool_calls or ""),
            one_line(record.reason),
        ]
        for record in records
    ]
    print_table(["task", "passed", "turns", "tool calls", "reason"], rows)


def _date(text: str | None) -> datetime.date | None:
    try:
        return None if text is None else datetime.date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"--cutoff {text!r}: is no date; write it as 2026-06-30") from error


def _last_pilot(folder: Path) -> Path:
    pilots = [path for path in (folder / "pilots").glob("*") if (path / "pilot.json").is_file()]
    if not pilots:
        raise ConfigError(f"{folder}: no pilot was made; run agent2 bench pilot {folder} --role weak=... first")
    return max(pilots, key=lambda path: (path / "pilot.json").stat().st_mtime_ns)


def _sources(roles: Sequence[str]) -> dict[str, str]:
    sources: dict[str, str] = {}
    for text in roles:
        name, sign, source = text.partition("=")
        if not sign or not source:
            raise ConfigError(f"--role {text!r}: write it as weak=CARD_OR_CHECKPOINT")
        if name in sources:
            raise ConfigError(f"--role {name}: is given twice")
        sources[name] = source
    return sources


def _played(benchmark: "OwnBenchmark") -> "list[CardFault]":
    if not any(card.runs_command for card in benchmark.cards):
        return []
    from agent2.authoring.card_faults import played_faults
    from agent2.evaluation.scoring import ScoringResources

    with progress_bar() as progress:
        return played_faults(
            benchmark.cards, ScoringResources(), lambda n_played, total: progress("verifiers", n_played, total)
        )


def _cells(benchmark: "OwnBenchmark") -> dict[str, Any]:
    cells = benchmark.matrix.cells(benchmark.cards)
    rows = [
        {"task_type": cell.task_type, "difficulty": cell.difficulty, "target": cell.target, "n_cards": cell.n_cards}
        | {"deficit": cell.deficit}
        for cell in cells
    ]
    return {"cells": rows, "target": benchmark.matrix.total, "deficit": sum(cell.deficit for cell in cells)}


def _print_cells(benchmark: "OwnBenchmark") -> None:
    rows: dict[str, list[str]] = {}
    for cell in benchmark.matrix.cells(benchmark.cards):
        lacks = f" (lacks {cell.deficit})" if cell.deficit else ""
        rows.setdefault(cell.task_type, [cell.task_type]).append(f"{cell.n_cards} of {cell.target}{lacks}")
    print_table(["task type", "easy", "medium", "hard"], list(rows.values()))
    totals = _cells(benchmark)
    typer.echo(f"{counted(len(benchmark.cards), 'card')} for {totals['target']} targets, {totals['deficit']} lacking")


def _print_faults(faults: "Sequence[CardFault]") -> None:
    counts = Counter(fault.kind.value for fault in faults)
    print_table(["card", "fault", "reason"], [[fault.item, fault.kind.value, fault.reason] for fault in faults[:SHOWN]])
    summary = ", ".join(f"{kind} {n}" for kind, n in counts.items()) or "no fault found"
    typer.echo(summary + (f"; {SHOWN} of {len(faults)} shown" if len(faults) > SHOWN else ""))


def _print_pilot(record: dict[str, Any]) -> None:
    typer.echo(f"verdict: {record['verdict']}")
    print_table(["role", "score"], [[role, str(side["rate"])] for role, side in record["roles"].items()])
    noise = record["signal_to_noise"]
    ratio = f"{noise:.3g} ({record['noise_note']})" if noise is not None else f"unknown ({record['noise_note']})"
    typer.echo(f"separability {record['separability']:.2f}; signal to noise {ratio}")
    order = {True: "yes", False: "no", None: "unknown"}[record["labels_in_order"]]
    typer.echo(f"harder labels are harder for {record['main']}: {order}")
    rows = [
        [
            row["player"],
            f"{row['n_right']} of {row['n_guessed']}",
            f"{row['expected']:.1f}",
            "yes" if row["wins"] else "no",
        ]
        for row in record["shortcuts"]
        if row["n_guessed"]
    ]
    print_table(["shortcut player", "right", "by chance", "wins"], rows)
    for title in ("drop", "review"):
        listed = record[title]
        reasons = [[row["id"], row["reasons"][0]["kind"], row["reasons"][0]["reason"]] for row in listed[:SHOWN]]
        if reasons:
            print_table([title, "fault", "reason"], reasons)
        more = f", {SHOWN} shown" if len(listed) > SHOWN else ""
        typer.echo(f"{title}: {counted(len(listed), 'item')} of {record['n_items']}{more}")
    typer.echo(
        f"kept: {len(record['capability_set'])} for capability, {len(record['regression_set'])} for regression "
        "(every role solves them)"
    )


def _some(items: Sequence[str]) -> str:
    return ", ".join(items[:SHOWN]) + (", ..." if len(items) > SHOWN else "") if items else "none"
