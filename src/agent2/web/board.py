"""The leaderboard as a page of the web app: built in the background, filtered, grouped and sorted by its address.

The ranking is that of `agent2.arena.analysis.leaderboard`; this module only selects what of it is shown. Ranks are
those among all stacks of a task, whatever is filtered. A trial is verified once, and again when its files change.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent2.arena.analysis.exams import Exam, ExamChoice
from agent2.arena.analysis.leaderboard import (
    DEFAULT_CHOICE,
    Leaderboard,
    Standing,
    TaskStandings,
    compare_stacks,
    make_leaderboard,
)
from agent2.arena.analysis.pool import published_boards, trial_or_reason
from agent2.arena.analysis.pooled import ExcludedFolder, PooledTrial
from agent2.arena.analysis.published import PUBLISHED_FILES, PublishedBoard, PublishedRow, is_published
from agent2.arena.sweep_records import AxisEffect
from agent2.cards.folder import CARD_JSON, TABLE
from agent2.errors import Agent2Error
from agent2.installation import own_secret_digest
from agent2.reports.text import DASH, Table, clean, p_words
from agent2.stats.comparisons import Claim, judge
from agent2.stats.estimates import POINTS
from agent2.web.catalog import Catalog
from agent2.web.entries import CatalogEntry, EntryKind, EntryState

if TYPE_CHECKING:  # it loads matplotlib, without which the server starts faster
    from agent2.reports.leaderboard_pages import OverallView

NO_DRIVER = "no driver"
GROUPS = ("task", "driver", "agent system")
SORTS = ("gain", "rank", "stack", "runs", "cost")
SHORT = (
    "stack", "rank", "tier", "runs", "base -> final", "mean gain [95%]", "when it submitted", "verdict", "routes",
    "LLM cost", "marks",
)  # fmt: skip
"""Columns that are shown unless all are asked for."""
MAY_BE_EMPTY = frozenset({"LLM cost", "marks"})
"""Columns that are left out where they say nothing of any stack, unless all are asked for."""
MAX_VALUE = 200
MAX_BOARDS = 20
"""With other exams than the default ones, kept in memory."""
VERIFIED_FROM = (
    "lock.json", "trial.json", "grader.db", "submissions.json", "integrity.json", "mark.json", "agent.log",
    "events/trial.jsonl", "events/reproductions.jsonl", "events/processes.jsonl", "events/revisions.jsonl",
    "events/metrics.jsonl", "events/interventions.jsonl", "events/commands.jsonl", "llm/exchanges.jsonl",
)  # fmt: skip
"""Files of a trial, beside its cards, that its verification reads."""

BoardLine = tuple[TaskStandings, Standing, Table[Standing]]
Stamp = tuple[object, ...]
"""Of files: differs when they may have changed."""


@dataclass(frozen=True, slots=True)
class BoardSnapshot:
    """The leaderboard of the files as they were at one time, and what is needed to compare two of its rows."""

    stamp: Stamp
    board: Leaderboard
    pool: Sequence[PooledTrial]
    trial_ids: Mapping[str, str]
    """Folder of a trial, as the board has it -> id of its page."""
    overall: "Sequence[OverallView]" = ()
    """Drawn once, not for every reader."""
    choice: ExamChoice = DEFAULT_CHOICE
    """What decides which exams are shown."""
    unread: Sequence[ExcludedFolder] = ()
    """Folders that could not be read."""


@dataclass(frozen=True, slots=True)
class BoardProgress:
    """Trials are being verified."""

    n_done: int
    n_trials: int


def _change_stamp(path: Path) -> tuple[int, int] | None:
    """Size and ctime of a file, which differ once it was written; None without it."""
    try:
        # ctime: unlike mtime, a program cannot set it back
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_ctime_ns


class BoardCache:
    """The leaderboard of a catalog; safe to use from several threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._trials: dict[Stamp, PooledTrial | ExcludedFolder] = {}
        """Trial and state of its files -> the trial, or the reason why it is left out."""
        self._snapshot: BoardSnapshot | None = None
        self._other_exams: dict[tuple[str, ...], BoardSnapshot] = {}
        """Of the present snapshot: chosen exams -> the board that shows them."""
        self._worker: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._progress = BoardProgress(0, 0)

    def board(self, wait_s: float) -> BoardSnapshot | BoardProgress:
        """The board of the current files, or its progress where it takes longer than `wait_s`.

        Raises the exception that ended the build.
        """
        keys = self._trial_keys()
        tables = self._published_stamps()
        stamp = (*(key for key, _ in keys), *tables.items())
        end = time.monotonic() + wait_s
        while True:
            with self._lock:
                if self._snapshot is not None and self._snapshot.stamp == stamp:
                    return self._snapshot
                if self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure
                if self._worker is None:
                    self._progress = BoardProgress(0, len(keys))
                    self._worker = threading.Thread(target=self._build, args=(stamp, keys, tables), daemon=True)
                    self._worker.start()
                worker = self._worker
            # not under the lock, which the worker needs to publish its board
            worker.join(max(0.0, min(end - time.monotonic(), 3600.0)))
            if worker.is_alive():
                return self._progress
            # the build that ended may have been one of older files: then the next turn starts another one

    def with_exams(
        self, snapshot: BoardSnapshot, exams: tuple[str, ...], *, counts_unmarked: bool = False
    ) -> BoardSnapshot:
        """The board with the exams that a reader chose, each as `TASK=KEY`; those that do not exist are ignored.

        counts_unmarked: trials without this installation's mark count beside those that have it.
        """
        from agent2.reports.leaderboard_pages import overall_views

        names = {f"{exam.task}={exam.key}": exam for exam in snapshot.board.exams}
        keys = {names[name].task: names[name].key for name in exams if name in names}
        if not counts_unmarked and all(exam.is_shown for name in exams if (exam := names.get(name))):
            return snapshot
        cache_key = (
            *sorted(f"{task}={key}" for task, key in keys.items()),
            *(("unmarked",) if counts_unmarked else ()),
        )
        with self._lock:
            cached = self._other_exams.get(cache_key)
            if cached is not None and cached.stamp == snapshot.stamp:
                return cached
        choice = replace(snapshot.choice, keys=keys, counts_unmarked=counts_unmarked)
        board = make_leaderboard(snapshot.pool, snapshot.unread, snapshot.board.published, choice=choice)
        chosen = replace(snapshot, board=board, choice=choice, overall=overall_views(board))
        with self._lock:
            if len(self._other_exams) >= MAX_BOARDS:
                self._other_exams.clear()
            self._other_exams[cache_key] = chosen
        return chosen

    def _trial_keys(self) -> list[tuple[Stamp, CatalogEntry]]:
        """(state of the files that verification reads, trial) of every trial."""
        entries = [entry for entry in self._catalog.scan().entries.values() if entry.kind is EntryKind.TRIAL]
        keys: list[tuple[Stamp, CatalogEntry]] = []
        for entry in sorted(entries, key=lambda entry: entry.display_path):
            files = [entry.path / name for name in VERIFIED_FROM]
            for card in self._catalog.children(entry, EntryKind.CARD):
                files += [card.path / CARD_JSON, card.path / TABLE]
            keys.append(((entry.id, self._catalog.stamp(entry), *map(_change_stamp, files)), entry))
        return keys

    def _published_stamps(self) -> dict[Path, int]:
        """Folder with published figures -> when it changed."""
        stamps = {}
        for path in self._catalog.scan().published:
            with contextlib.suppress(OSError):  # it may have vanished since
                if is_published(path):
                    stamps[path] = max(
                        file.stat().st_mtime_ns for file in path.iterdir() if file.name in PUBLISHED_FILES
                    )
        return stamps

    def _build(self, stamp: Stamp, keys: Sequence[tuple[Stamp, CatalogEntry]], tables: Iterable[Path]) -> None:
        from agent2.reports.leaderboard_pages import overall_views

        try:
            verified: dict[Stamp, PooledTrial | ExcludedFolder] = {}
            for done, (key, entry) in enumerate(keys):
                self._progress = BoardProgress(done, len(keys))
                # verifying a trial reads all its cards, so only trials whose files changed are verified again
                verified[key] = self._trials[key] if key in self._trials else self._read(entry)
            pool = [trial for trial in verified.values() if isinstance(trial, PooledTrial)]
            published, refused = published_boards(tables, [trial.conditions.task for trial in pool])
            left_out = [trial for trial in verified.values() if isinstance(trial, ExcludedFolder)]
            unread, choice = [*left_out, *refused], ExamChoice(own_secret_digest())
            board = make_leaderboard(pool, unread, published, choice=choice)
            trial_ids = {entry.display_path: entry.id for _, entry in keys}
            snapshot = BoardSnapshot(stamp, board, pool, trial_ids, overall_views(board), choice, unread)
            with self._lock:
                self._trials, self._snapshot = verified, snapshot
                self._other_exams.clear()
        except Exception as error:  # boundary: shown on the page instead of ending a thread unseen
            with self._lock:
                self._failure = error
        finally:
            with self._lock:
                self._worker = None

    def _read(self, entry: CatalogEntry) -> PooledTrial | ExcludedFolder:
        summary = self._catalog.summary(entry)
        if summary.state in (EntryState.RUNNING, EntryState.STOPPED):
            return ExcludedFolder(entry.display_path, f"not finished: {summary.message}")
        return trial_or_reason(entry.path, entry.display_path)


@dataclass(frozen=True, slots=True)
class BoardFilter:
    """Which rows and columns of the board are shown, all of it from the address of the page."""

    task: str = ""
    driver: str = ""
    system: str = ""
    group: str = GROUPS[0]
    sort: str = SORTS[0]
    has_all_columns: bool = False
    pins: tuple[str, ...] = ()
    """Columns beside the stack that stay in view while the others are scrolled."""
    first: str = ""
    """Row that is compared, as `TASK / STACK`; `one` in the address."""
    second: str = ""
    """Row that it is compared with; `other` in the address."""
    exams: tuple[str, ...] = ()
    """Exams that are shown in place of the default ones, each as `TASK=KEY`."""
    counts_unmarked: bool = False
    """Trials without this installation's mark count; `unmarked=count` in the address."""

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
            first=query.get("one", "")[: 2 * MAX_VALUE],
            second=query.get("other", "")[: 2 * MAX_VALUE],
            exams=tuple(dict.fromkeys(name for name in query.get("exam", "")[: 10 * MAX_VALUE].split(",") if name)),
            counts_unmarked=query.get("unmarked") == "count",
        )


@dataclass(frozen=True, slots=True)
class BoardRow:
    """One stack on one task."""

    cells: Sequence[str]
    trials: Sequence[tuple[str, str]]
    """(id of the trial's page, its seed)."""
    tie: str
    """The stacks of the same tier, as text; empty without one."""
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
    """The first columns, which stay in view."""
    rows: Sequence[BoardRow]


@dataclass(frozen=True, slots=True)
class BoardPage:
    """What the page shows."""

    subtitle: str
    options: Mapping[str, Sequence[str]]
    """Filter -> its possible values."""
    groups: Sequence[BoardGroup]
    rows: Sequence[str]
    """`TASK / STACK` of each row, for the choice of two that are compared."""
    comparison: "ComparisonView | None"
    overall: "Sequence[OverallView]"
    effects: Table[AxisEffect]
    published: Sequence[tuple[PublishedBoard, Table[PublishedRow]]]
    exams: Sequence[tuple[Exam, str]]
    """All exams, where a task has several; and what the address says to show each (`exam`)."""
    left_out: Table[ExcludedFolder]
    not_ours: str
    n_unmarked: int
    """Trials that this installation did not mark, on exams where it marked others."""
    group_names: Sequence[str] = GROUPS
    sort_names: Sequence[str] = SORTS


def board_page(snapshot: BoardSnapshot, board_filter: BoardFilter) -> BoardPage:
    """The page of a board."""
    from agent2.reports.leaderboard_pages import NOT_OURS, left_out_table, published_table, subtitle
    from agent2.reports.sweep_pages import axis_table

    board = snapshot.board
    return BoardPage(
        subtitle=subtitle(board),
        options=filter_options(board),
        groups=board_groups(snapshot, board_filter),
        rows=stack_names(board),
        comparison=compare_rows(snapshot, board_filter.first, board_filter.second)
        if board_filter.first and board_filter.second
        else None,
        overall=snapshot.overall,
        effects=axis_table(board.effects),
        published=[(figures, published_table(figures)) for figures in board.published],
        exams=exam_choices(board),
        left_out=left_out_table(board.left_out),
        not_ours=NOT_OURS,
        n_unmarked=sum(exam.n_trials - exam.n_marked for exam in board.exams if exam.n_marked),
    )


def exam_choices(board: Leaderboard) -> list[tuple[Exam, str]]:
    """The exams of a board on which some task has several, each with the choice of exams that shows it, too."""
    if len(board.exams) <= len(board.tasks):
        return []
    shown_keys = {exam.task: exam.key for exam in board.exams if exam.is_shown}
    n_exams = Counter(exam.task for exam in board.exams)
    choices = []
    for exam in board.exams:
        keys = {task: key for task, key in shown_keys.items() if n_exams[task] > 1} | {exam.task: exam.key}
        choices.append((exam, ",".join(f"{task}={key}" for task, key in sorted(keys.items()))))
    return choices


def filter_options(board: Leaderboard) -> dict[str, list[str]]:
    """Filter -> its possible values."""
    standings = [(task.task, standing) for task in board.tasks for standing in task.standings]
    return {
        "task": sorted({task for task, _ in standings}),
        "driver": sorted({standing.driver or NO_DRIVER for _, standing in standings}),
        "system": sorted({standing.scaffold for _, standing in standings}),
    }


def board_groups(snapshot: BoardSnapshot, board_filter: BoardFilter) -> list[BoardGroup]:
    """The rows that pass the filter, in its groups and order."""
    from agent2.reports.leaderboard_pages import exam_sentence, standing_table, task_title

    lines: list[BoardLine] = []
    for task in snapshot.board.tasks:
        table = standing_table(task)
        table = table.of(*columns_of(table.names, board_filter))
        lines += [(task, standing, table) for standing in task.standings if _passes(task.task, standing, board_filter)]
    groups: dict[str, list[BoardLine]] = {}
    by: dict[str, Callable[[TaskStandings, Standing], str]] = {
        "task": lambda task, standing: task_title(task),
        "driver": lambda task, standing: clean(standing.driver or NO_DRIVER),
        "agent system": lambda task, standing: clean(standing.scaffold),
    }
    for line in lines:
        groups.setdefault(by[board_filter.group](*line[:2]), []).append(line)
    is_by_task = board_filter.group == "task"
    sections = []
    for title, members in groups.items():
        members.sort(key=lambda line: _order(line[1], board_filter.sort))
        rows = []
        last_tier: int | None = None
        for task, standing, table in members:
            cells = replace(table, records=[standing]).cells()[0]
            tier = standing.place.tier if standing.place is not None else None
            begins_tier = is_by_task and board_filter.sort in ("gain", "rank") and last_tier not in (None, tier)
            last_tier = tier
            cells = cells if is_by_task else [clean(task.task), *cells]
            trials = trials_of(snapshot, task.task, standing.stack)
            rows.append(BoardRow(cells, trials, _tie(task, standing), begins_tier))
        names = members[0][2].names if is_by_task else ["task", *members[0][2].names]
        if not board_filter.has_all_columns:
            names, rows = _without_empty(names, rows, board_filter.pins)
        note = exam_sentence(snapshot.board, members[0][0])
        n_pinned = names.index("stack") + 1 + sum(name in names for name in board_filter.pins if name != "stack")
        sections.append(BoardGroup(title, note if is_by_task else "", names, n_pinned, rows))
    return sections


def _without_empty(names: list[str], rows: list[BoardRow], pins: Sequence[str]) -> tuple[list[str], list[BoardRow]]:
    """Columns and rows without those that say nothing of any stack; pinned ones stay."""
    if any(len(row.cells) != len(names) for row in rows):  # of two tasks, one of which has a column more
        return names, rows
    places = [
        place
        for place, name in enumerate(names)
        if name not in MAY_BE_EMPTY or name in pins or any(row.cells[place] != DASH for row in rows)
    ]
    return [names[place] for place in places], [
        replace(row, cells=[row.cells[place] for place in places]) for row in rows
    ]


def columns_of(names: Sequence[str], board_filter: BoardFilter) -> list[str]:
    """The columns that are shown: first the stack, then the pinned ones, each once."""
    from agent2.reports.sweep_pages import ASSIGNMENT

    pinned = [name for name in board_filter.pins if name in names]
    short = (*SHORT, *(name for name in names if name == ASSIGNMENT))
    return list(dict.fromkeys(["stack", *pinned, *(names if board_filter.has_all_columns else short)]))


def _passes(task: str, standing: Standing, board_filter: BoardFilter) -> bool:
    return (
        board_filter.task in ("", task)
        and board_filter.driver in ("", standing.driver or NO_DRIVER)
        and board_filter.system in ("", standing.scaffold)
    )


def _order(standing: Standing, sort: str) -> tuple[object, ...]:
    """Sort key; rows without a value come last."""
    gain, place, cost = standing.summary.mean_gain, standing.place, standing.summary.llm_dollars
    keys: dict[str, tuple[object, ...]] = {
        "gain": (gain is None, -gain.value if gain is not None else 0.0),
        "rank": (place is None, place.best_rank if place else 0, place.worst_rank if place else 0),
        "stack": (),
        "runs": (-standing.n_counted,),
        "cost": (cost is None, cost or 0.0),
    }
    return (*keys[sort], standing.stack)


def _tie(task: TaskStandings, standing: Standing) -> str:
    if standing.place is None:
        return ""
    same = [
        clean(rival.stack, 60)
        for rival in task.standings
        if rival is not standing and rival.place is not None and rival.place.tier == standing.place.tier
    ]
    if not same:
        return ""
    if len(same) > 1 and len(same) + 1 == sum(rival.place is not None for rival in task.standings):
        return "tied with all others"
    more = f" and {len(same) - 3} more" if len(same) > 3 else ""
    return f"tied with {', '.join(same[:3])}{more}"


def trials_of(snapshot: BoardSnapshot, task: str, stack: str) -> list[tuple[str, str]]:
    """(id of its page, seed) of every trial of a stack on a task."""
    rows = [trial for trial in snapshot.board.trials if (trial.row.task, trial.row.agent) == (task, stack)]
    return [
        (snapshot.trial_ids[trial.folder], str(trial.row.seed)) for trial in rows if trial.folder in snapshot.trial_ids
    ]


def stack_names(board: Leaderboard) -> list[str]:
    """`TASK / STACK` of each row, for the choice of two that are compared."""
    return [f"{task.task} / {standing.stack}" for task in board.tasks for standing in task.standings]


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """Two rows side by side, or the reason why they cannot be compared."""

    title: str
    verdict: str
    lines: Sequence[tuple[str, str]]


def compare_rows(snapshot: BoardSnapshot, first: str, second: str) -> ComparisonView:
    """Two rows of the board, each as `stack_names` gives it."""
    title = clean(f"{first} against {second}", 300)
    (task, _, stack), (other_task, _, other_stack) = first.partition(" / "), second.partition(" / ")
    if task != other_task:
        return ComparisonView(title, "Two tasks: their scores are not comparable. Choose two rows of one task.", ())
    if stack == other_stack:
        return ComparisonView(title, "That is the same row twice. Choose another one.", ())
    try:
        pair = compare_stacks(snapshot.pool, task, stack, other_stack, snapshot.choice)
    except Agent2Error as error:
        return ComparisonView(title, clean(error, 400), ())
    lines = [
        ("runs that count", f"{pair.n_runs} and {pair.n_runs_other}"),
        ("items", f"{pair.n_won} won, {pair.n_lost} lost, {pair.n_same} the same (mean over runs)"),
    ]
    if pair.difference is None:
        return ComparisonView(title, "No difference can be computed: too few items have scores of both.", lines)
    change = pair.difference.change
    lines = [
        ("difference of private scores", f"{POINTS.estimate(change)} points"),
        ("p", p_words(pair.difference.p_value)),
        ("over", pair.difference.over),
        *lines,
    ]
    claim = judge(pair.difference).claim
    verdict = "not shown to differ" if claim is Claim.UNCLEAR else f"{clean(stack, 80)} is {claim.value}"
    return ComparisonView(title, f"{verdict}, this pair on its own.", lines)
