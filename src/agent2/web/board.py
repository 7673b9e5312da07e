"""The leaderboard as a page of the web app: made in the background, filtered, grouped and sorted by its address.

The ranking is `agent2.arena.analysis.leaderboard`; here nothing is computed but what of it is shown. Ranks are those
among all stacks of a task, whatever is filtered. A trial is verified once, and again when its files change.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent2.arena.analysis.leaderboard import (
    Leaderboard,
    LeftOut,
    PooledTrial,
    Standing,
    TaskStandings,
    compare_stacks,
    make_leaderboard,
)
from agent2.arena.analysis.pool import published_boards, trial_or_reason
from agent2.arena.analysis.published import PUBLISHED_FILES, PublishedBoard, PublishedRow, is_published
from agent2.arena.sweep_records import AxisEffect
from agent2.cards.folder import CARD_JSON, TABLE
from agent2.errors import Agent2Error
from agent2.reports.text import Table, clean, p_words
from agent2.stats.comparisons import Claim, judge
from agent2.stats.estimates import POINTS
from agent2.web.catalog import Catalog, CatalogEntry, EntryKind, EntryState

if TYPE_CHECKING:  # it loads matplotlib, and the server starts without
    from agent2.reports.comparison_pages import OverallView

GROUPS = ("task", "driver", "agent system")
SORTS = ("gain", "rank", "stack", "runs", "cost")
SHORT = (
    "stack", "rank", "tier", "runs", "base -> final", "mean gain [95%]", "verdict", "routes", "LLM cost", "marks",
)  # fmt: skip
"""Columns that are shown unless all are asked for."""
MAX_VALUE = 200
VERIFIED_FROM = (
    "lock.json", "trial.json", "grader.db", "submissions.json", "integrity.json", "events/trial.jsonl",
)  # fmt: skip
"""Files of a trial, beside its cards, that its verification reads."""

Stamp = tuple[object, ...]
"""Of files: another one where they may have changed."""


@dataclass(frozen=True, slots=True)
class MadeBoard:
    """A leaderboard, with what is needed to compare two of its rows."""

    stamp: Stamp
    board: Leaderboard
    pool: Sequence[PooledTrial]
    places: Mapping[str, str]
    """Folder of a trial, as the board has it -> id of its page."""
    overall: "Sequence[OverallView]" = ()
    """Drawn once, not for every reader."""


@dataclass(frozen=True, slots=True)
class BoardProgress:
    """Trials are being verified."""

    n_done: int
    n_trials: int


def _touched(path: Path) -> tuple[int, int] | None:
    """Another one once the file was written; unlike the time of the last change, nobody can set this one back."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_ctime_ns


class BoardKeeper:
    """The leaderboard of a catalog; safe to use from several threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._trials: dict[Stamp, PooledTrial | LeftOut] = {}
        """Trial and state of its files -> the trial, or why it is left out."""
        self._made: MadeBoard | None = None
        self._worker: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._progress = BoardProgress(0, 0)

    def board(self, wait_s: float) -> MadeBoard | BoardProgress:
        """The board of what is there now, or how far it is after waiting that long. Raises what broke it."""
        keys = self._keys()
        tables = self._tables()
        stamp = (*(key for key, _ in keys), *tables.items())
        end = time.monotonic() + wait_s
        while True:
            with self._lock:
                if self._made is not None and self._made.stamp == stamp:
                    return self._made
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                if self._worker is None:
                    self._progress = BoardProgress(0, len(keys))
                    self._worker = threading.Thread(target=self._make, args=(stamp, keys, tables), daemon=True)
                    self._worker.start()
                worker = self._worker
            worker.join(max(0.0, min(end - time.monotonic(), 3600.0)))
            if worker.is_alive():
                return self._progress

    def _keys(self) -> list[tuple[Stamp, CatalogEntry]]:
        """Every trial with the state of the files that it is verified from."""
        entries = [one for one in self._catalog.findings().entries.values() if one.kind is EntryKind.TRIAL]
        return [(self._key(one), one) for one in sorted(entries, key=lambda one: one.place)]

    def _key(self, entry: CatalogEntry) -> Stamp:
        files = [entry.path / name for name in VERIFIED_FROM]
        for card in self._catalog.children(entry, EntryKind.CARD):
            files += [card.path / CARD_JSON, card.path / TABLE]
        return entry.id, self._catalog.stamp(entry), *map(_touched, files)

    def _tables(self) -> dict[Path, int]:
        """Folders with published figures, and when they changed."""
        found = {}
        for path in self._catalog.findings().published:
            with contextlib.suppress(OSError):  # it may have vanished since
                if is_published(path):
                    found[path] = max(
                        file.stat().st_mtime_ns for file in path.iterdir() if file.name in PUBLISHED_FILES
                    )
        return found

    def _make(self, stamp: Stamp, keys: Sequence[tuple[Stamp, CatalogEntry]], tables: Iterable[Path]) -> None:
        from agent2.reports.comparison_pages import overall_views

        try:
            found: dict[Stamp, PooledTrial | LeftOut] = {}
            for done, (key, entry) in enumerate(keys):
                self._progress = BoardProgress(done, len(keys))
                found[key] = self._trials[key] if key in self._trials else self._read(entry)
            pool = [one for one in found.values() if isinstance(one, PooledTrial)]
            published, refused = published_boards(tables, [one.exam.task for one in pool])
            out = [one for one in found.values() if isinstance(one, LeftOut)]
            board = make_leaderboard(pool, [*out, *refused], published)
            places = {entry.place: entry.id for _, entry in keys}
            made = MadeBoard(stamp, board, pool, places, overall_views(board))
            with self._lock:
                self._trials, self._made = found, made
        except Exception as error:  # boundary: shown on the page instead of ending a thread unseen
            with self._lock:
                self._failure = error
        finally:
            with self._lock:
                self._worker = None

    def _read(self, entry: CatalogEntry) -> PooledTrial | LeftOut:
        summary = self._catalog.summary(entry)
        if summary.state in (EntryState.RUNNING, EntryState.STOPPED):
            return LeftOut(entry.place, f"not finished: {summary.words}")
        return trial_or_reason(entry.path, entry.place)


@dataclass(frozen=True, slots=True)
class BoardFilter:
    """What of the board is shown; everything of it is in the address of the page."""

    task: str = ""
    driver: str = ""
    system: str = ""
    group: str = GROUPS[0]
    sort: str = SORTS[0]
    has_all_columns: bool = False
    pins: tuple[str, ...] = ()
    """Columns that stand beside the stack and stay in view while the others are scrolled."""
    one: str = ""
    """Stack that is compared, and the task: `TASK / STACK`."""
    other: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "BoardFilter":
        """From the query of an address; what is not understood is left at its default."""
        return cls(
            task=query.get("task", "")[:MAX_VALUE],
            driver=query.get("driver", "")[:MAX_VALUE],
            system=query.get("system", "")[:MAX_VALUE],
            group=query["group"] if query.get("group") in GROUPS else GROUPS[0],
            sort=query["sort"] if query.get("sort") in SORTS else SORTS[0],
            has_all_columns=query.get("columns") == "all",
            pins=tuple(dict.fromkeys(name for name in query.get("pin", "")[:MAX_VALUE].split(",") if name)),
            one=query.get("one", "")[: 2 * MAX_VALUE],
            other=query.get("other", "")[: 2 * MAX_VALUE],
        )


@dataclass(frozen=True, slots=True)
class BoardRow:
    """One stack on one task."""

    cells: Sequence[str]
    trials: Sequence[tuple[str, str]]
    """(id of the trial's page, its seed)."""
    tie: str
    """Who shares its tier, in words; empty for nobody."""
    begins_tier: bool
    """Whether a line is drawn above it: the row before is of another tier of the same task."""


@dataclass(frozen=True, slots=True)
class BoardGroup:
    """Rows under one heading."""

    title: str
    note: str
    names: Sequence[str]
    """Of the columns."""
    n_pinned: int
    """The first ones, which stay in view."""
    rows: Sequence[BoardRow]


NO_DRIVER = "no driver"


@dataclass(frozen=True, slots=True)
class BoardPage:
    """What the page shows."""

    subtitle: str
    options: Mapping[str, Sequence[str]]
    """Filter -> values that it can have."""
    groups: Sequence[BoardGroup]
    rows: Sequence[str]
    """`TASK / STACK` of each row, for the choice of two that are compared."""
    comparison: "ComparisonView | None"
    overall: "Sequence[OverallView]"
    effects: Table[AxisEffect]
    published: Sequence[tuple[PublishedBoard, Table[PublishedRow]]]
    left_out: Table[LeftOut]
    not_ours: str
    group_names: Sequence[str] = GROUPS
    sort_names: Sequence[str] = SORTS


def board_page(made: MadeBoard, wanted: BoardFilter) -> BoardPage:
    """The page of a board."""
    from agent2.reports.comparison_pages import NOT_OURS, axis_table, left_out_table, published_table, subtitle

    board = made.board
    return BoardPage(
        subtitle=subtitle(board),
        options=choices(board),
        groups=board_groups(made, wanted),
        rows=stack_names(board),
        comparison=compare_rows(made, wanted.one, wanted.other) if wanted.one and wanted.other else None,
        overall=made.overall,
        effects=axis_table(board.effects),
        published=[(one, published_table(one)) for one in board.published],
        left_out=left_out_table(board.left_out),
        not_ours=NOT_OURS,
    )


def choices(board: Leaderboard) -> dict[str, list[str]]:
    """Values that each filter can have."""
    found = [(task.task, one) for task in board.tasks for one in task.standings]
    return {
        "task": sorted({task for task, _ in found}),
        "driver": sorted({one.driver or NO_DRIVER for _, one in found}),
        "system": sorted({one.scaffold for _, one in found}),
    }


BoardLine = tuple[TaskStandings, Standing, Table[Standing]]


def board_groups(made: MadeBoard, wanted: BoardFilter) -> list[BoardGroup]:
    """What the filter lets through, in its groups and order."""
    from agent2.reports.comparison_pages import standing_table, task_title

    lines: list[BoardLine] = []
    for task in made.board.tasks:
        table = standing_table(task)
        table = table.of(*columns_of(table.names, wanted))
        lines += [(task, one, table) for one in task.standings if _is_wanted(task.task, one, wanted)]
    groups: dict[str, list[BoardLine]] = {}
    by: dict[str, Callable[[TaskStandings, Standing], str]] = {
        "task": lambda task, one: task_title(task),
        "driver": lambda task, one: clean(one.driver or NO_DRIVER),
        "agent system": lambda task, one: clean(one.scaffold),
    }
    for line in lines:
        groups.setdefault(by[wanted.group](*line[:2]), []).append(line)
    found = []
    for title, members in groups.items():
        members.sort(key=lambda line: _order(line[1], wanted.sort))
        rows = []
        before: int | None = None
        for task, one, table in members:
            cells = replace(table, records=[one]).cells()[0]
            tier = one.place.tier if one.place is not None else None
            starts = (
                before is not None and wanted.group == "task" and before != tier and wanted.sort in ("gain", "rank")
            )
            before = tier
            cells = cells if wanted.group == "task" else [clean(task.task), *cells]
            rows.append(BoardRow(cells, trials_of(made, task.task, one.stack), _tie(task, one), starts))
        names = members[0][2].names if wanted.group == "task" else ["task", *members[0][2].names]
        note = _exam_words(members[0][0]) if wanted.group == "task" else ""
        n_pinned = names.index("stack") + 1 + sum(name in names for name in wanted.pins if name != "stack")
        found.append(BoardGroup(title, note, names, n_pinned, rows))
    return found


def columns_of(names: Sequence[str], wanted: BoardFilter) -> list[str]:
    """The columns that are shown: the stack first, then those that are pinned, each once."""
    pinned = [name for name in wanted.pins if name in names]
    return list(dict.fromkeys(["stack", *pinned, *(names if wanted.has_all_columns else SHORT)]))


def _is_wanted(task: str, one: Standing, wanted: BoardFilter) -> bool:
    return (
        wanted.task in ("", task)
        and wanted.driver in ("", one.driver or NO_DRIVER)
        and wanted.system in ("", one.scaffold)
    )


def _order(one: Standing, sort: str) -> tuple[object, ...]:
    """Sorts what has no value to the end."""
    gain, place, cost = one.summary.mean_gain, one.place, one.summary.llm_dollars
    keys: dict[str, tuple[object, ...]] = {
        "gain": (gain is None, -gain.value if gain is not None else 0.0),
        "rank": (place is None, place.best_rank if place else 0, place.worst_rank if place else 0),
        "stack": (),
        "runs": (-one.n_counted,),
        "cost": (cost is None, cost or 0.0),
    }
    return (*keys[sort], one.stack)


def _tie(task: TaskStandings, one: Standing) -> str:
    if one.place is None:
        return ""
    same = [
        clean(each.stack, 60)
        for each in task.standings
        if each is not one and each.place is not None and each.place.tier == one.place.tier
    ]
    if not same:
        return ""
    if len(same) > 1 and len(same) + 1 == sum(each.place is not None for each in task.standings):
        return "tied with all others"
    more = f" and {len(same) - 3} more" if len(same) > 3 else ""
    return f"tied with {', '.join(same[:3])}{more}"


def trials_of(made: MadeBoard, task: str, stack: str) -> list[tuple[str, str]]:
    """(id of its page, seed) of every trial of a stack on a task."""
    rows = [one for one in made.board.trials if (one.row.task, one.row.agent) == (task, stack)]
    return [(made.places[one.folder], str(one.row.seed)) for one in rows if one.folder in made.places]


def _exam_words(task: TaskStandings) -> str:
    exam = task.exam
    return clean(f"Exam: {exam.benchmark}, base model {exam.base_model}, secret {exam.secret}; {exam.budget}.", 600)


def stack_names(board: Leaderboard) -> list[str]:
    """`TASK / STACK` of each row, for the choice of two that are compared."""
    return [f"{task.task} / {one.stack}" for task in board.tasks for one in task.standings]


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """Two rows side by side, or why they cannot be."""

    title: str
    verdict: str
    lines: Sequence[tuple[str, str]]


def compare_rows(made: MadeBoard, one: str, other: str) -> ComparisonView:
    """Two rows of the board, each as `stack_names` gives it."""
    title = clean(f"{one} against {other}", 300)
    (task, _, stack), (other_task, _, other_stack) = one.partition(" / "), other.partition(" / ")
    if task != other_task:
        return ComparisonView(title, "Two tasks: their scores are not comparable. Choose two rows of one task.", ())
    if stack == other_stack:
        return ComparisonView(title, "That is the same row twice. Choose another one.", ())
    try:
        found = compare_stacks(made.pool, task, stack, other_stack)
    except Agent2Error as error:
        return ComparisonView(title, clean(error, 400), ())
    lines = [
        ("runs that count", f"{found.n_runs} and {found.n_runs_other}"),
        ("items", f"{found.n_won} won, {found.n_lost} lost, {found.n_same} the same (mean over runs)"),
    ]
    if found.difference is None:
        return ComparisonView(title, "No difference can be computed: too few items have scores of both.", lines)
    change = found.difference.change
    lines = [
        ("difference of private scores", f"{POINTS.estimate(change)} points"),
        ("p", p_words(found.difference.p_value)),
        ("over", found.difference.over),
        *lines,
    ]
    claim = judge(found.difference).claim
    words = "not shown to differ" if claim is Claim.UNCLEAR else f"{clean(stack, 80)} is {claim.value}"
    return ComparisonView(title, f"{words}, this pair on its own.", lines)
