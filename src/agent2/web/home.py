"""The home page: what is running, and every result as a row of a table.

Kind, search, order and columns are in the address, so that a link shows what its sender saw. A result's colour says
whether the model is better: a finished evaluation whose decision is a block is not green.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agent2.reports.text import DASH, clean, duration
from agent2.web.curves import first_curve
from agent2.web.entries import CatalogEntry, EntryKind, EntryState, EntrySummary, ago
from agent2.web.page import Links, PageAddress, PageContext
from agent2.web.plots import spark

LIVE_KINDS = (EntryKind.TRIAL, EntryKind.EVALUATION, EntryKind.SWEEP)
"""What may be running."""
LISTED = 40
"""Results on one page of a list."""
MOST_RUNNING = 12
MOST_SELECTED = 40
"""Results that an address keeps selected."""
DESCENDING_FIRST = frozenset({"result", "LLM cost", "time", "changed"})
"""Columns of which the largest comes first."""


@dataclass(frozen=True)
class HomeColumn:
    """One column of the table of results."""

    name: str
    text: Callable[[EntrySummary], str]
    key: Callable[[EntrySummary], Any]
    """What it is sorted by; None comes last in either order."""
    is_number: bool = False
    is_default: bool = True


COLUMNS = (
    HomeColumn("kind", lambda summary: summary.entry.kind.value, lambda summary: summary.entry.kind.value),
    HomeColumn("task or suite", lambda summary: summary.subject, lambda summary: summary.subject.casefold() or None,
               is_default=False),
    HomeColumn("agent or model", lambda summary: summary.player, lambda summary: summary.player.casefold() or None,
               is_default=False),
    HomeColumn("result", lambda summary: summary.result, lambda summary: summary.value),
    HomeColumn("interval", lambda summary: summary.interval, lambda summary: summary.value, is_number=True),
    HomeColumn("details", lambda summary: summary.detail, lambda summary: summary.detail or None),
    HomeColumn("trend", lambda summary: "", lambda summary: None),
    HomeColumn("LLM cost", lambda summary: summary.cost_text, lambda summary: summary.dollars, is_number=True),
    HomeColumn("time", lambda summary: duration(summary.seconds).replace(DASH, ""), lambda summary: summary.seconds,
               is_number=True),
    HomeColumn("changed", lambda summary: ago(summary.entry.changed), lambda summary: summary.entry.changed,
               is_number=True),
    HomeColumn("folder", lambda summary: summary.entry.display_path, lambda summary: summary.entry.display_path,
               is_default=False),
)  # fmt: skip
MAY_BE_EMPTY = frozenset({"trend", "LLM cost", "time"})
"""Columns that are left out where no listed result has a value, unless the address names them."""
BY_NAME = {column.name: column for column in COLUMNS}


@dataclass(frozen=True, slots=True)
class HomeFilter:
    """Which results are listed, in which order and with which columns, all of it from the address of the page."""

    kind: str = ""
    search: str = ""
    state: str = ""
    """`troubled`: only what stopped or failed."""
    sort: str = "changed"
    is_reversed: bool = False
    columns: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.is_default)
    names_columns: bool = False
    """The address names its columns: each is shown, even if it is empty."""
    page: int = 1
    selected: tuple[str, ...] = ()
    """Ids of the results that are selected, on whatever page of the list."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "HomeFilter":
        """From the query of an address; what is not understood is left at its default."""
        page, names = query.get("page", "1"), query.get("columns", "").split(",")
        return cls(
            kind=query["kind"] if query.get("kind") in set(EntryKind) else "",
            search=query.get("q", "")[:200],
            state="troubled" if query.get("state") == "troubled" else "",
            sort=query["sort"] if query.get("sort") in BY_NAME else "changed",
            is_reversed=query.get("order") == "reversed",
            columns=tuple(column.name for column in COLUMNS if column.name in names) or cls().columns,
            names_columns=any(column.name in names for column in COLUMNS),
            page=max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 8 else 1,
            selected=tuple(dict.fromkeys(filter(None, query.get("run", "").split(","))))[:MOST_SELECTED],
        )

    def query(self) -> dict[str, str]:
        """For an address; defaults and the page are left out."""
        parameters = {
            "kind": self.kind,
            "q": self.search,
            "state": self.state,
            "sort": self.sort if self.sort != "changed" else "",
            "order": "reversed" if self.is_reversed else "",
            "columns": ",".join(self.columns) if self.names_columns or self.columns != HomeFilter().columns else "",
            "run": ",".join(self.selected),
        }
        return {name: text for name, text in parameters.items() if text}

    def toggled(self, name: str) -> str:
        """The columns with one more or one less, as an address has them."""
        columns = [column.name for column in COLUMNS if (column.name in self.columns) != (column.name == name)]
        return ",".join(columns)


def home_page(context: PageContext, route: PageAddress, links: Links) -> str:
    """What is running, and the other results as a table."""
    catalog, home_filter = context.catalog, HomeFilter.of(route.query)
    scan = catalog.scan()
    outer = [entry for entry in scan.entries.values() if entry.parent is None or entry.kind is EntryKind.TRIAL]
    outer = [entry for entry in outer if entry.kind is not EntryKind.CARD or entry.parent is None]
    live = [catalog.summary(entry) for entry in outer if entry.kind in LIVE_KINDS]
    running = [summary for summary in live if summary.state is EntryState.RUNNING]
    troubled = {summary.entry.id for summary in live if summary.state in (EntryState.STOPPED, EntryState.FAILED)}
    is_plain = not (home_filter.kind or home_filter.search or home_filter.state)
    left_out = {summary.entry.id for summary in running} if is_plain else set()
    listed = [entry for entry in outer if entry.id not in left_out and _is_listed(context, entry, home_filter)]
    if home_filter.state:
        listed = [entry for entry in listed if entry.id in troubled]
    ordered = _ordered(context, listed, home_filter)
    pages = max(1, -(-len(ordered) // LISTED))
    page = min(home_filter.page, pages)
    query = home_filter.query()
    lines = [catalog.summary(entry) for entry in ordered[(page - 1) * LISTED : page * LISTED]]
    trends = _trends(context, [summary.entry for summary in lines]) if "trend" in home_filter.columns else {}
    columns = _filled_columns(home_filter, lines, trends)
    listed_ids = {summary.entry.id for summary in lines}

    def at(**changes: str | int) -> str:
        """The address of this page with other choices, at its first page unless `page` is changed."""
        return links.to("home", **(query | changes))

    toggled = replace(home_filter, columns=tuple(column.name for column in columns)).toggled
    return context.render(
        "home.html.j2",
        links,
        counts={kind.value: n for kind in EntryKind if (n := sum(entry.kind is kind for entry in outer))},
        n_all=len(outer),
        n_troubled=len(troubled),
        home_filter=home_filter,
        is_plain=is_plain,
        running=sorted(running, key=lambda summary: -summary.entry.changed),
        most_running=MOST_RUNNING,
        lines=lines,
        trends=trends,
        selected_elsewhere=[run_id for run_id in home_filter.selected if run_id not in listed_ids],
        columns=[column for column in columns if not (links.is_static and column.name == "changed")],
        all_columns=[(column.name, at(columns=toggled(column.name)), column in columns) for column in COLUMNS],
        sorted_by=lambda name: at(sort=name, order=_next_order(home_filter, name)),
        is_descending=(home_filter.sort in DESCENDING_FIRST) != home_filter.is_reversed,
        at=at,
        page=page,
        pages=pages,
        problems=scan.problems,
        ago=ago,
        root=clean(catalog.root.resolve(), 300),
    )


def _filled_columns(
    home_filter: HomeFilter, lines: Sequence[EntrySummary], trends: Mapping[str, str]
) -> list[HomeColumn]:
    """The columns of the address; where it names none, without trend, cost and time if no listed result has any."""
    columns = [BY_NAME[name] for name in home_filter.columns]
    if home_filter.names_columns:
        return columns
    empty = {column.name for column in columns if column.name in MAY_BE_EMPTY and not any(map(column.text, lines))}
    empty -= {"trend"} if any(trends.values()) else set()
    return [column for column in columns if column.name not in empty]


def _trends(context: PageContext, entries: list[CatalogEntry]) -> dict[str, str]:
    """Id -> the sparkline of a result; empty where it has no course: reward of a training, scores of submissions."""
    return {
        entry.id: context.cached(("trend", entry.id, context.catalog.stamp(entry)), partial(_trend, entry))
        for entry in entries
    }


def _trend(entry: CatalogEntry) -> str:
    return spark(first_curve(entry)[1])


def _is_listed(context: PageContext, entry: CatalogEntry, home_filter: HomeFilter) -> bool:
    if home_filter.kind not in ("", entry.kind.value):
        return False
    search = home_filter.search.casefold()
    if not search or search in entry.display_path.casefold():
        return True
    summary = context.catalog.summary(entry)
    return search in summary.title.casefold() or search in summary.result.casefold()


def _ordered(context: PageContext, listed: list[CatalogEntry], home_filter: HomeFilter) -> list[CatalogEntry]:
    """In the order that the address asks for; results of one key the newest first, those without one at the end."""
    newest_first = sorted(listed, key=lambda entry: (-entry.changed, entry.display_path))
    is_descending = (home_filter.sort in DESCENDING_FIRST) != home_filter.is_reversed
    if home_filter.sort == "changed":  # reads no summary, of which there may be thousands
        return newest_first if is_descending else newest_first[::-1]
    key = BY_NAME[home_filter.sort].key
    keys = {entry.id: key(context.catalog.summary(entry)) for entry in newest_first}
    with_key = [entry for entry in newest_first if keys[entry.id] is not None]
    without_key = [entry for entry in newest_first if keys[entry.id] is None]
    return sorted(with_key, key=lambda entry: keys[entry.id], reverse=is_descending) + without_key


def _next_order(home_filter: HomeFilter, name: str) -> str:
    """The order that a click on a column's name leads to."""
    return "reversed" if home_filter.sort == name and not home_filter.is_reversed else ""
