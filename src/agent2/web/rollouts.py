"""The rollouts of one card: a list that is filtered, sorted and paged.

Lists come from the card's columns by SQL, so a million rollouts are filtered in one pass over a few columns. Rollouts
of a card that is still open are listed as they finished, without filters. What a model or an environment wrote is
cleaned and bounded here, and escaped by the templates.

Of hidden items only ids, scores and counts are shown, unless the caller says that they may be seen: neither texts nor
reasons, and neither can be searched.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent2.analysis.card_scores import PASSES_AT, QUESTION_TEXT
from agent2.cards import folder as card_folder
from agent2.cards.aggregate import counted_value, kinds_of, marks_of
from agent2.cards.card import CardFile, CardSummary
from agent2.cards.reader import TOLERANCE, CardPages, read_page
from agent2.cards.regrade import regrade
from agent2.errors import CardError
from agent2.records import HIDDEN_SPLITS
from agent2.reports.text import clean
from agent2.stats.estimates import Estimate, wilson
from agent2.web.shown_pictures import ShownPicture

PAGE_ROWS = 50
OPEN_CARDS = 4
"""Tables of cards that are open at the same time."""
CACHED_CARDS = 8
"""Cards of which the part read last is cached."""
CACHED_LINES = 8
"""Conditions whose lines are cached, eight bytes a line."""
MAX_TEXT = 20_000
"""Characters of one step of a page."""
MAX_SAVED_TEXT = 2_000_000
"""The same of a page that is saved as one file."""
MAX_QUERY = 200
LABELS_SHOWN = 30
MOST_REGRADED = 10_000
"""Rollouts of a card up to which every stored number is computed again for its page."""

SHOWN = {
    "all": "",
    "failed": f"counted < {PASSES_AT}",
    "passed": f"counted >= {PASSES_AT}",
    "missing": "counted is null",
}
"""Choice of rollouts -> its SQL condition."""
ANY_NOTE = "*"
SORTS = {
    "line": "line",
    "score": "counted",
    "turns": "n_turns",
    "tokens": "completion_tokens",
    "seconds": "seconds",
}
COLUMNS = (
    "line", "item_id", "attempt", "counted", "value", "status", "kinds", "fault", "labels", "n_turns",
    "prompt_tokens", "completion_tokens", "seconds", "reason", "answer", "extracted",
)  # fmt: skip


TURNS_TEXT = (
    "array_to_string(list_concat(json_extract_string(record, '$.rollout.prompt[*].content'), "
    "json_extract_string(record, '$.rollout.turns[*].action'), "
    "json_extract_string(record, '$.rollout.turns[*].thought.text'), "
    "json_extract_string(record, '$.rollout.turns[*].observation'), "
    "[json_extract_string(record, '$.rollout.answer'), json_extract_string(record, '$.score.reason'), item_id]), "
    "chr(10))"
)
"""SQL of the whole text of a rollout that a search in every turn looks at."""

MOST_QUESTIONS = 50_000
"""Rollouts of a card up to which a search looks into its questions, which are in the records."""

Key = tuple[object, ...]
Value = TypeVar("Value")


NO_COLUMNS = "none"
"""In an address: no field of the items' payloads is a column."""


class SqlTerm(NamedTuple):
    """A condition, and the values of its placeholders."""

    sql: str
    values: Sequence[str]


NO_TERM = SqlTerm("", ())


class BesideCard(NamedTuple):
    """What a filter goes by that is not on the card."""

    noted: Sequence[tuple[str, int]] = ()
    """(item, attempt) of the rollouts with the notes of its `note`."""
    by_field: SqlTerm = NO_TERM
    """Meets its search by fields of the items' payloads."""


NOTHING_BESIDE = BesideCard()


def _listed(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


@dataclass(frozen=True, slots=True)
class CardFilter:
    """Which rollouts of a card are listed and in which order, all of it from the address of the page."""

    search: str = ""
    """In ids, questions, answers and reasons; case-sensitive only if it has capitals."""
    everywhere: bool = False
    """Search every turn too."""
    show: str = "all"
    label: str = ""
    note: str = ""
    """A label of people's notes; `ANY_NOTE`: any note."""
    sort: str = "line"
    is_descending: bool = False
    page: int = 1
    columns: tuple[str, ...] | None = None
    """Fields of the items' payloads that are columns; None: those that are few and differ."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "CardFilter":
        """From the query of an address; what is not understood is left at its default."""
        page, columns = query.get("page", "1"), query.get("columns", "")[:1000]
        return cls(
            search=query.get("q", "")[:MAX_QUERY],
            everywhere=query.get("in") == "turns",
            show=query["show"] if query.get("show") in SHOWN else "all",
            label=query.get("label", "")[:MAX_QUERY],
            note=query.get("note", "")[:MAX_QUERY],
            sort=query["sort"] if query.get("sort") in SORTS else "line",
            is_descending=query.get("order") == "desc",
            page=max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 8 else 1,
            columns=None if not columns else () if columns == NO_COLUMNS else tuple(columns.split(",")),
        )

    def query(self) -> dict[str, str]:
        """For an address; defaults are left out."""
        parameters = {
            "q": self.search,
            "in": "turns" if self.everywhere else "",
            "show": self.show if self.show != "all" else "",
            "label": self.label,
            "note": self.note,
            "sort": self.sort if self.sort != "line" else "",
            "order": "desc" if self.is_descending else "",
            "page": str(self.page) if self.page > 1 else "",
            "columns": "" if self.columns is None else ",".join(self.columns) or NO_COLUMNS,
        }
        return {name: value for name, value in parameters.items() if value}

    def condition(
        self,
        *,
        is_hidden: bool,
        beside: BesideCard = NOTHING_BESIDE,
        in_questions: bool = False,
    ) -> tuple[str, list[str]]:
        """The WHERE clause, and the values of its placeholders."""
        conditions, values = [SHOWN[self.show]] if SHOWN[self.show] else [], []
        if self.note:
            conditions.append(
                f"concat(item_id, '#', attempt) in ({', '.join('?' * len(beside.noted))})" if beside.noted else "false"
            )
            values += [f"{item}#{attempt}" for item, attempt in beside.noted]
        if self.label:
            conditions.append("list_contains(labels, ?)")
            values.append(self.label)
        if self.search:
            parts, searched = self._search_terms(is_hidden=is_hidden, in_questions=in_questions)
            if beside.by_field.sql and not is_hidden:
                parts, searched = [*parts, beside.by_field.sql], [*searched, *beside.by_field.values]
            conditions.append(f"({' or '.join(parts)})")
            values += searched
        return (f"where {' and '.join(conditions)}" if conditions else ""), values

    def _search_terms(self, *, is_hidden: bool, in_questions: bool) -> tuple[list[str], list[str]]:
        """Conditions of which one has to hold, and the values of their placeholders."""
        exact = self.search != self.search.lower()

        def contains(column: str) -> str:
            return f"contains({column if exact else f'lower({column})'}, ?)"

        if is_hidden:
            return [contains("item_id")], [self.search]
        # the stored JSON first, which is fast; then the texts, since keys and numbers are no match
        encoded = msgspec.json.encode(self.search).decode()[1:-1]
        if self.everywhere:
            return [f"({contains('record')} and {contains(TURNS_TEXT)})"], [encoded, self.search]
        columns = ("item_id", "answer", "reason")
        parts, values = [contains(column) for column in columns], [self.search] * len(columns)
        if in_questions:
            parts.append(f"({contains('record')} and {contains(QUESTION_TEXT)})")
            values += [encoded, self.search]
        return parts, values

    def looked_in(self, *, is_hidden: bool, in_questions: bool, in_fields: bool = False) -> str:
        """Where a search looks, in words. in_fields: into fields of the items' payloads, too."""
        if is_hidden:
            return "item ids"
        fields = ["fields of the items"] if in_fields else []
        if self.everywhere:
            return _listed(["every turn", "question", "answer", "reason", *fields])
        questions = ["questions"] if in_questions else []
        return _listed(["item ids", *questions, "answers", "scorers' reasons", *fields])


@dataclass(frozen=True, slots=True)
class RolloutLine:
    """One row of a card's list."""

    line: int
    item_id: str
    attempt: int
    verdict: str
    """pass, fail or unknown."""
    score: str
    notes: str
    """Unusual ends, faults and labels."""
    n_turns: int
    tokens: str
    seconds: float
    answer: str
    """Empty for a hidden item."""
    question: str = ""
    """Empty for a hidden item, as are the next two, and where it was not read."""
    reference: str = ""
    """The expected answer, where one is kept."""
    place: str = ""
    """`data.csv:12`, the file and row that the item comes from."""
    fields: tuple[str, ...] = ()
    """Of its payload, in the order of the list's `columns`; empty where it has none."""
    thumbnail: ShownPicture | None = None
    """The first picture of its question; None for a hidden item, and where there is none."""


@dataclass(frozen=True, slots=True)
class CardListing:
    """A page of a card's rollouts."""

    lines: tuple[RolloutLine, ...]
    n_found: int
    """Rollouts that match the filter; of an open card those that have finished."""
    n_pages: int
    has_filters: bool
    labels: tuple[tuple[str, int], ...]
    """Labels of bad cases and how often each was given, the most frequent first."""
    columns: tuple[str, ...] = ()
    """Fields of the items' payloads that are columns."""
    all_columns: tuple[str, ...] = ()
    """Fields that may be."""


class CardTables:
    """The cards that were viewed last, open for queries; safe to use from several threads."""

    def __init__(self) -> None:
        self._open: OrderedDict[Key, Any] = OrderedDict()
        self._pages: OrderedDict[Key, CardPages] = OrderedDict()
        self._lines: OrderedDict[Key, NDArray[np.int64]] = OrderedDict()
        self._counts: OrderedDict[Key, tuple[tuple[Any, ...], ...]] = OrderedDict()
        self._problems: OrderedDict[Key, tuple[str, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def _cached(
        self, cache: OrderedDict[Key, Value], limit: int, make: Callable[[], Value], path: Path, *more: object
    ) -> Value:
        """The value of `make` for the current state of a card; the `limit` values used last are cached."""
        key = (path, _changed_ns(path), *more)
        with self._lock:
            if key in cache:
                cache.move_to_end(key)
                return cache[key]
        # outside the lock: a slow card must not block readers of others; at worst two threads make one value
        value = make()
        with self._lock:
            cache[key] = value
            while len(cache) > limit:
                cache.popitem(last=False)  # closed when the last query over it has ended
        return value

    def pages(self, path: Path) -> CardPages:
        """The rollouts of a card. Raises CardError if there is none."""
        return self._cached(self._pages, CACHED_CARDS, lambda: CardPages(path), path)

    def lines(self, path: Path, condition: str, parameters: Sequence[str] = ()) -> NDArray[np.int64]:
        """Lines, ascending, of a closed card's rollouts that meet a condition. Raises as `rows`."""

        def matching() -> NDArray[np.int64]:
            lines: NDArray[np.int64] = self._queries(path).lines(condition, parameters)
            return lines

        return self._cached(self._lines, CACHED_LINES, matching, path, condition, *parameters)

    def rows(
        self, path: Path, sql: str, parameters: Sequence[str] = (), start: int = 0, n: int = PAGE_ROWS
    ) -> tuple[tuple[Any, ...], ...]:
        """Rows of a query over one closed card. Raises CardError for a damaged card, ConfigError for a bad query."""
        rows: tuple[tuple[Any, ...], ...] = self._queries(path).page(sql, start, n, parameters).rows
        return rows

    def counts(self, path: Path, sql: str, parameters: Sequence[str] = ()) -> tuple[tuple[Any, ...], ...]:
        """As `rows`, cached for queries that are repeated while the card does not change."""
        return self._cached(self._counts, 256, lambda: self.rows(path, sql, parameters), path, sql, *parameters)

    def problems(self, path: Path, card: CardFile) -> tuple[str, ...]:
        """Where stored numbers of a closed card differ from those that its rollouts give, a sentence each."""
        return self._cached(self._problems, 256, lambda: tuple(self._find_problems(path, card)), path)

    def _find_problems(self, path: Path, card: CardFile) -> Iterator[str]:
        try:
            if card_folder.header_digests(path) != (card.header_digest, card.protocol_digest):
                yield "The checkpoint, the protocol or the reporting rule was changed after the card was written."
                return
            differing = self._differing(path, card)
        except CardError as error:
            yield f"The numbers cannot be checked: {clean(error, 400)}."
            return
        if differing:
            yield f"Stored numbers are not what the rollouts give: {', '.join(differing)}."

    def _differing(self, path: Path, card: CardFile) -> Sequence[str]:
        """Names of the stored numbers that the rollouts do not give.

        Of a large card those that its page shows; the interval only where every item passed or failed.
        """
        stored_summary = card.summary
        if stored_summary is None:
            return ["all (the card has none)"]
        if _n_rollouts(card) <= MOST_REGRADED:
            return regrade(path).differs_from_stored
        # in SQL, from here on: regrading reads every rollout
        sums = "count(*), count(counted), avg(counted), sum(counted), bool_and(counted in (0, 1)), max(attempt)"
        ((n, n_scored, mean, n_passed, is_binary, last),) = self.rows(path, f"select {sums} from rollouts")
        computed = {"n_rollouts": n, "n_missing": n - n_scored}
        rule = card.header.reporting
        if last == 0 and n_scored:
            computed |= {"score.n": n_scored, "score.n_missing": n - n_scored, "score.value": mean}
            if is_binary:
                interval = wilson(int(n_passed), n_scored, rule.confidence).interval
                computed |= {"score.low": interval[0], "score.high": interval[1]}
        elif rule.over_attempts == "mean":
            by_item = "select avg(counted) mean from rollouts group by item_id"
            ((n_items, mean),) = self.rows(path, f"select count(mean), avg(mean) from ({by_item})")
            computed |= {"score.n": n_items or None, "score.value": mean}
        return [name for name, value in computed.items() if not _is_close(_stored_number(stored_summary, name), value)]

    def _queries(self, path: Path) -> Any:
        from agent2.cards.query import CardQueries  # loads duckdb

        return self._cached(self._open, OPEN_CARDS, lambda: CardQueries([path]), path)


def _stored_number(summary: CardSummary, name: str) -> float | None:
    """A number of the summary; `score.low` is one of its score's."""
    owner: CardSummary | Estimate | None = summary.score if name.startswith("score.") else summary
    number: float | None = getattr(owner, name.removeprefix("score."), None)
    return number


def _is_close(stored: float | None, computed: float | None) -> bool:
    if stored is None or computed is None:
        return stored is computed
    return abs(stored - computed) <= TOLERANCE


def _changed_ns(path: Path) -> int:
    try:
        return (path / card_folder.CARD_JSON).stat().st_mtime_ns
    except OSError:
        return 0


def is_hidden_card(card: CardFile) -> bool:
    """Whether the card's items are of a hidden split."""
    return card.header.protocol.split in HIDDEN_SPLITS


def searches_questions(card: CardFile) -> bool:
    """Whether a search in the card looks into questions; of a large one they take too long to read."""
    return _n_rollouts(card) <= MOST_QUESTIONS


def list_card(
    tables: CardTables,
    path: Path,
    card: CardFile,
    card_filter: CardFilter,
    *,
    hides: bool,
    beside: BesideCard = NOTHING_BESIDE,
) -> CardListing:
    """One page of a card's list. hides: texts are left out. Raises CardError for a damaged card."""
    if card.state == "open":
        return _list_open(path, card, card_filter, hides=hides)
    in_questions = searches_questions(card)
    where, values = card_filter.condition(is_hidden=hides, beside=beside, in_questions=in_questions)
    total = tables.counts(path, f"select count(*) from rollouts {where}", values)[0][0]
    n_pages = max(1, -(-total // PAGE_ROWS))
    page = min(card_filter.page, n_pages)
    order = "desc" if card_filter.is_descending else "asc"
    sql = (
        f"select {', '.join(COLUMNS)} from rollouts {where} order by {SORTS[card_filter.sort]} {order} nulls last, line"
        if card_filter.sort != "line"
        else f"select {', '.join(COLUMNS)} from rollouts {where} order by line {order}"
    )
    start = (page - 1) * PAGE_ROWS
    if not where and card_filter.sort == "line" and not card_filter.is_descending:
        between = f"line between {start} and {start + PAGE_ROWS - 1}"  # reads one row group, where an offset reads all
        sql = f"select {', '.join(COLUMNS)} from rollouts where {between} order by line"
        start = 0
    rows = tables.rows(path, sql, values, start)
    labels = tables.counts(
        path,
        "select label, count(*) n from (select unnest(labels) as label from rollouts) group by all "
        f"order by n desc, label limit {LABELS_SHOWN}",
    )
    lines = tuple(rollout_line(dict(zip(COLUMNS, row, strict=True)), hides=hides) for row in rows)
    return CardListing(lines, total, n_pages, True, tuple((str(name), int(n)) for name, n in labels))


def _list_open(path: Path, card: CardFile, card_filter: CardFilter, *, hides: bool) -> CardListing:
    n_found = sum(1 for _ in card_folder.open_lines(path))
    n_pages = max(1, -(-n_found // PAGE_ROWS))
    start = (min(card_filter.page, n_pages) - 1) * PAGE_ROWS
    lines = []
    for number, record in enumerate(read_page(path, start, PAGE_ROWS), start=start):
        rollout, score, usage = record.rollout, record.score, record.rollout.usage
        row = {
            "line": number, "item_id": rollout.item_id, "attempt": rollout.attempt,
            "counted": counted_value(record, card.header.reporting), "value": score.value,
            "status": rollout.status.value, "kinds": kinds_of(marks_of(rollout)),
            "fault": (rollout.fault or score.fault), "labels": list(score.labels), "n_turns": len(rollout.turns),
            "prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens,
            "seconds": usage.seconds, "reason": score.reason, "answer": rollout.answer, "extracted": score.extracted,
        }  # fmt: skip
        lines.append(rollout_line(row, hides=hides))
    return CardListing(tuple(lines), n_found, n_pages, False, ())


def token_counts(prompt: int | None, completion: int | None) -> str:
    """Tokens read and written, as a page shows them; `?` where one is not known."""
    return " + ".join("?" if n is None else f"{n:,}" for n in (prompt, completion))


def token_words(prompt: int | None, completion: int | None) -> str:
    """The same in words."""
    n_read, n_written = ("an unknown number" if n is None else f"{n:,}" for n in (prompt, completion))
    return f"read {n_read}, wrote {n_written} tokens"


def verdict_of(counted: float | None) -> str:
    """pass, fail or unknown."""
    return "unknown" if counted is None else "pass" if counted >= PASSES_AT else "fail"


def rollout_line(row: Mapping[str, Any], *, hides: bool) -> RolloutLine:
    """A row of `COLUMNS` as a list shows it. hides: its text is left out."""
    counted = row["counted"]
    notes = [kind.replace("_", " ") for kind in row["kinds"]]
    notes += [f"fault: {row['fault']}"] if row["fault"] and counted is None else []
    notes += [clean(label, 60) for label in row["labels"]]
    return RolloutLine(
        line=int(row["line"]),
        item_id=clean(row["item_id"], 120),
        attempt=int(row["attempt"]),
        verdict=verdict_of(counted),
        score="missing" if counted is None else f"{counted:g}",
        notes=", ".join(dict.fromkeys(notes)),
        n_turns=int(row["n_turns"]),
        tokens=token_counts(row["prompt_tokens"], row["completion_tokens"]),
        seconds=float(row["seconds"]),
        answer="" if hides else _answer(row["extracted"], row["answer"] or row["reason"] or ""),
    )


def _answer(extracted: str | None, answer: str) -> str:
    """The beginning of an answer, after what the scorer read from it where that is further down."""
    beginning = clean(answer, 160)
    return f"{clean(extracted, 80)} ← {beginning}" if extracted and extracted not in beginning else beginning


def neighbours(
    tables: CardTables,
    path: Path,
    card: CardFile,
    line: int,
    card_filter: CardFilter,
    *,
    hides: bool,
    beside: BesideCard = NOTHING_BESIDE,
) -> dict[str, int | None]:
    """Lines of the rollouts before and after one in the list of the filter, and of the failures around it.

    `page`: the page of that list with the rollout, or the filter's own where the order is another one.
    Failures are rollouts that do not pass; those without a score are among them. In an open card only the lines
    themselves are known.
    """
    if card.state == "open":
        n_lines = sum(1 for _ in card_folder.open_lines(path))
        return {
            "previous": line - 1 if line else None,
            "next": line + 1 if line + 1 < n_lines else None,
            "previous_failure": None,
            "next_failure": None,
            "page": line // PAGE_ROWS + 1,
        }
    in_questions = searches_questions(card)
    where, values = card_filter.condition(is_hidden=hides, beside=beside, in_questions=in_questions)
    failed = tables.lines(path, f"counted is null or counted < {PASSES_AT}")
    listed = tables.lines(path, where.removeprefix("where "), values) if where else np.arange(_n_rollouts(card))
    place = int(np.searchsorted(listed, line))
    place = len(listed) - 1 - place if card_filter.is_descending else place
    is_by_line = card_filter.sort == "line" and line in listed
    lines_around: dict[str, int | None] = {"page": place // PAGE_ROWS + 1 if is_by_line else card_filter.page}
    for name, lines in (("", listed), ("_failure", failed)):
        before, after = np.searchsorted(lines, line, "left"), np.searchsorted(lines, line, "right")
        lines_around[f"previous{name}"] = int(lines[before - 1]) if before else None
        lines_around[f"next{name}"] = int(lines[after]) if after < len(lines) else None
    return lines_around


def _n_rollouts(card: CardFile) -> int:
    return sum(frame.n_rollouts for frame in card.frames)
