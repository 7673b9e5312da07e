"""Tables and progress of the terminal, in one style for all commands."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

WIDTH_OF_A_FILE = 160


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print rows to stdout; cells are plain text, never markup."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _stdout().print(table)


def print_path(label: str, path: object) -> None:
    """The last line of a command: where the result is, on one line whatever the width."""
    _stdout().print(Text(f"{label}: {path}"), soft_wrap=True)


def _stdout() -> Console:
    """As wide as the terminal; a pipe or file gets room enough for paths."""
    return Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)


class Steps(Protocol):
    """What long work calls to say where it is."""

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        """Say the present phase; done and total where it can be counted."""


@contextmanager
def progress_bar() -> Iterator[Steps]:
    """One line on stderr: spinner, phase, bar and elapsed time."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    with bar:
        current: list[tuple[str, TaskID]] = []

        def step(message: str, done: int | None = None, total: int | None = None) -> None:
            if not current or current[-1][0] != message:
                if current:
                    bar.update(current[-1][1], total=1, completed=1, count="")
                current.append((message, bar.add_task(message, total=total, count="")))
            count = f"{done}/{total}" if done is not None and total is not None else ""
            bar.update(current[-1][1], completed=done or 0, total=total, count=count)

        yield step
        if current:
            bar.update(current[-1][1], total=1, completed=1, count="")
