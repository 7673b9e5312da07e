"""`agent2 prune`: free the disk space of finished trials' weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.show import AsJson, print_json, print_table
from agent2.errors import ConfigError
from agent2.files import why_no_folder

if TYPE_CHECKING:
    from agent2.arena.pruning import Pruned, PrunePlan

USUAL_FOLDERS = (Path("trials"), Path("sweeps"))


def prune(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Trials, sweeps, or folders of them; by default ./trials and ./sweeps.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Drop what is listed; without it nothing is changed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop the weights of finished trials, and keep what reports, boards, share and reproduce read.

    Lists what it frees and what can no longer be done. Exit 1 if something could not be removed.
    """
    from agent2.arena.analysis.pool import find_trials
    from agent2.arena.pruning import KEPT, LOST, plan_pruning
    from agent2.arena.pruning import prune as prune_trial

    chosen = folders or [folder for folder in USUAL_FOLDERS if folder.is_dir()]
    if not chosen:
        raise ConfigError("no ./trials and no ./sweeps here; pass the folders with trials to prune")
    for folder in chosen:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: {why_no_folder(folder)}; pass folders with trials or sweeps")
    roots = list(dict.fromkeys(root.resolve() for folder in chosen for root in find_trials(folder)))
    if not roots:
        raise ConfigError(f"{', '.join(map(str, chosen))}: contains no trial; pass folders with trials or sweeps")
    plans = plan_pruning(roots)
    droppable = [plan for plan in plans if plan.n_files]
    if not as_json:
        _print_plans(plans)
        for label, sentences in (("no longer possible", LOST), ("still possible", KEPT)):
            for sentence in sentences if droppable else ():
                typer.echo(f"{label}: {sentence}")
    pruned = [prune_trial(plan) for plan in droppable] if yes else []
    problems = [problem for result in pruned for problem in result.problems]
    if as_json:
        print_json({**_document(plans, pruned), "no_longer_possible": LOST, "still_possible": KEPT})
    else:
        dry = "nothing was changed; repeat with --yes to drop this" if droppable else "nothing to drop"
        typer.echo(f"freed {_size(sum(result.n_bytes for result in pruned))}" if yes else dry)
    for problem in problems:
        typer.echo(f"agent2: {problem}", err=True)
    if problems:
        raise typer.Exit(1)


def _print_plans(plans: "Sequence[PrunePlan]") -> None:
    rows = [
        [str(plan.root), (plan.left_alone and f"left alone: {plan.left_alone}") or _parts(plan), _size(plan.n_bytes)]
        for plan in plans
        if plan.left_alone or plan.n_files
    ]
    n_empty = len(plans) - len(rows)
    if rows:
        print_table(["trial", "to drop", "frees"], rows)
    if n_empty:
        typer.echo(f"{n_empty} of {len(plans)} trials have nothing to drop")
    typer.echo(f"in all: {_size(sum(plan.n_bytes for plan in plans))}")


def _parts(plan: "PrunePlan") -> str:
    return ", ".join(f"{part.kind} ({part.n_files} files, {_size(part.n_bytes)})" for part in plan.parts)


def _size(n_bytes: int) -> str:
    if n_bytes >= 1 << 30:
        return f"{n_bytes / (1 << 30):,.1f} GiB"
    return f"{n_bytes / (1 << 20):,.1f} MiB"


def _document(plans: "Sequence[PrunePlan]", pruned: "Sequence[Pruned]") -> dict[str, object]:
    done = {result.root: result for result in pruned}
    trials = [
        {
            "path": str(plan.root),
            "left_alone": plan.left_alone or None,
            "parts": plan.parts,
            "frees_bytes": plan.n_bytes,
            "freed_bytes": done[plan.root].n_bytes if plan.root in done else 0,
            "problems": done[plan.root].problems if plan.root in done else (),
        }
        for plan in plans
    ]
    return {
        "trials": trials,
        "frees_bytes": sum(plan.n_bytes for plan in plans),
        "freed_bytes": sum(result.n_bytes for result in pruned),
    }
