"""`agent2 history`: the evaluations below a folder by suite and training step."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.show import AsJson, one_line, print_json, print_path, print_table
from agent2.errors import ConfigError

if TYPE_CHECKING:
    from agent2.analysis.history import EvaluationRow, SuiteHistory

DEFAULT_FOLDER = Path("evaluations")
DIGEST = 12
"""Characters of a digest that are shown."""
MAX_CELL = 60


def history(
    suite: Annotated[
        str | None, typer.Argument(help="Suite: its name, name-vX.Y or the beginning of its digest; default: all.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--in", help="Folder of evaluations, searched with its subfolders; default: evaluations/, else ."),
    ] = None,
    role: Annotated[str | None, typer.Option(help="Only evaluations of the role dev, nightly or candidate.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write a page with charts, and the JSON, into it.")] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Check the cards of every evaluation, not only of those that are or were the best."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List evaluations by suite, checkpoint and training step, with score, interval and decision; `*` marks the best.

    Only values under one contract and protocol are in one table. Evaluations that are unfinished or damaged are named.
    """
    from agent2.analysis.history import find_evaluations, history_record, make_history

    top = folder or (DEFAULT_FOLDER if DEFAULT_FOLDER.is_dir() else Path())
    try:
        evaluations = make_history(find_evaluations(top), suite, role, checks_all=check)
    except ConfigError as error:
        if folder is None and suite is not None and Path(suite).is_dir():
            raise ConfigError(f"{error}; {suite} is a folder: agent2 history --in {suite}") from error
        raise
    if out is not None:
        from agent2.reports.history_pages import write_history_page  # draws: slow to import

        path = write_history_page(evaluations, top, out)
    if as_json:
        print_json(history_record(evaluations, top))
        return
    for group in evaluations.groups:
        print_table(_columns(group), [_cells(row, group, top) for row in group.rows], _title(group.rows[-1]))
        typer.echo(_checked(group))
    for row in evaluations.unread:
        typer.echo(one_line(f"{row.state.value}: {row.folder.relative_to(top)}: {row.problem}"))
    if not evaluations.groups:
        typer.echo(f"no decided evaluation in {top}")
    if out is not None:
        print_path("page", path)


def _title(row: "EvaluationRow") -> str:
    return (
        f"{row.suite}, {row.role} on {row.split}: {row.metric} (contract {row.suite_digest[:DIGEST]}, protocol "
        f"{row.protocol_digest[:DIGEST]})"
    )


def _checked(group: "SuiteHistory") -> str:
    n_rows = len(group.rows)
    if group.n_checked == n_rows:
        return f"cards checked: all {n_rows}"
    return f"cards checked: {group.n_checked} of {n_rows} (the best and every earlier best); --check checks all"


def _columns(group: "SuiteHistory") -> list[str]:
    return [
        "step" if group.has_steps else "#",
        "checkpoint",
        "against",
        "score [95%]",
        "",
        "decision",
        "training",
        "in",
    ]


def _cells(row: "EvaluationRow", group: "SuiteHistory", top: Path) -> list[str]:
    number = row.step if group.has_steps else group.rows.index(row) + 1
    return [
        str(number),
        row.checkpoint[:MAX_CELL],
        row.baseline[:MAX_CELL],
        _score(row),
        "*" if row is group.best else "",
        (row.outcome or row.release)[:MAX_CELL],
        row.training_action[:MAX_CELL],
        str(row.folder.relative_to(top)),
    ]


def _score(row: "EvaluationRow") -> str:
    from agent2.stats.estimates import PERCENT

    if row.score is not None:
        return PERCENT.estimate(row.score)
    return "none" if row.value is None else f"{row.value:.4g}"
