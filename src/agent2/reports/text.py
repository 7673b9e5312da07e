"""Text for reports: tables of typed records, untrusted text made safe to show, and numbers as text.

A `Table` has the records and the text of each column: pages and terminal print its cells, JSON its records.

Text that agents wrote is cleaned: no control characters, no direction tricks, a bounded length. This is not HTML
escaping; templates escape on top of it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import jinja2
from markupsafe import Markup

from agent2.stats.estimates import PERCENT, Estimate, Notation
from agent2.texts import as_csv_cell, visible, without_escapes

T = TypeVar("T")

DASH = "–"
SIGNED = Notation("+.1f")
SYMBOLS = {"pass": "✓", "partial": "◐", "fail": "✗", "unknown": "?"}
MAX_CHARACTERS = 400
UNCUT = 4
"""Characters that one character of `clean_lines` becomes, at most."""
_MARKDOWN = re.compile(
    r"(?P<interval>\[[+-]?[\d.]+%?, [+-]?[\d.]+%?\](?![(\[:]))"  # begins no link and no definition of one
    r"|[\\`*\[\]|<~]"
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # within a word it marks nothing
    r"|&(?=#?\w+;)"
    r"|^[>#]|^[+-](?!\d)"  # a signed number begins no list
)
_LONG_WORD = re.compile(r"\S{17,}")
_JOINT = re.compile(r"(?<=[_/.:=@])(?=[^\s_/.:=@])(?<!\d\.(?=\d))")  # a number stays in one piece
_PIECE = 28
_BARE_LINK = re.compile(r"(?:https?|ftp)(?=://)|www(?=\.)", re.IGNORECASE)


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table, or one line of a field table."""

    name: str
    text: Callable[[T], str]
    """The record's cell; cleaned, where it is text of an agent."""


@dataclass(frozen=True)
class Table(Generic[T]):
    """Records and the columns that show them, one row a record."""

    columns: Sequence[Column[T]]
    records: Sequence[T]

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return [column.name for column in self.columns]

    def cells(self) -> list[list[str]]:
        """Rows of texts."""
        return [[column.text(record) for column in self.columns] for record in self.records]

    def of(self, *names: str) -> "Table[T]":
        """These columns alone, in this order. Raises KeyError for an unknown column."""
        by_name = {column.name: column for column in self.columns}
        return Table([by_name[name] for name in names], self.records)


@dataclass(frozen=True)
class FieldTable(Generic[T]):
    """One record, one line a column; columns with an empty text are left out."""

    columns: Sequence[Column[T]]
    record: T

    def lines(self) -> dict[str, str]:
        """Name -> text."""
        texts = {column.name: column.text(self.record) for column in self.columns}
        return {name: text for name, text in texts.items() if text}


@dataclass(frozen=True, slots=True)
class Tile:
    """One large number at the head of a page."""

    name: str
    value: str
    detail: str


def clean(value: object, limit: int = MAX_CHARACTERS) -> str:
    """One line of harmless text; beyond `limit` characters it is cut, and ends with the number of those left out."""
    # cut before the patterns run, so that a long hostile text costs no time
    text = visible(without_escapes(str(value)[: 20 * limit])).strip()
    return text if len(text) <= limit else f"{text[:limit]}… ({len(str(value)) - limit} more characters)"


def clean_lines(value: object, limit: int = MAX_CHARACTERS) -> str:
    """Harmless text with its line ends and indentation; a tab becomes four spaces. Cut as `clean` cuts.

    Never cut where `limit` is `UNCUT * len(value)` or more.
    """
    text = without_escapes(str(value)[: 20 * limit])
    text = "\n".join(visible(line.replace("\t", "    ")).rstrip() for line in text.splitlines()).strip("\n")
    return text if len(text) <= limit else f"{text[:limit]}… ({len(str(value)) - limit} more characters)"


def clean_piece(value: object) -> str:
    """A token of a text, harmless, with its blanks; line ends and tabs become visible signs."""
    return visible(str(value).replace("\n", "↵").replace("\t", "⇥"))


def breakable(value: object) -> Markup:
    """HTML of a text in which a long word may be broken where a reader expects it: after `_`, `/`, `.`, `:`.

    The style sheet breaks no word of a cell otherwise, so that `finished` stays in one piece.
    """
    text = str(value).replace("\0", " ").replace(" -> ", " → ")

    def broken(match: re.Match[str]) -> str:
        parts = [
            part[start : start + _PIECE] for part in _JOINT.split(match[0]) for start in range(0, len(part), _PIECE)
        ]
        return "\0".join(parts)

    return Markup("<wbr>").join(_LONG_WORD.sub(broken, text).split("\0"))


def csv_cell(value: object) -> object:
    """A cell of a CSV file, cleaned; a text that a spreadsheet would take for a formula gets an apostrophe."""
    return as_csv_cell(clean(value, len(value) + 1)) if isinstance(value, str) else value


def markdown_lines(value: object, indent: int = 0) -> str:
    """Harmless text of several lines in Markdown, each ended by a hard break, below a list item."""
    lines = [markdown(line, 10_000) for line in str(value).split("\n")]
    # a no-break space in empty lines: an empty line would end the list item
    return ("\\\n" + " " * indent).join(line or "\u00a0" for line in lines)


def markdown(value: object, limit: int = MAX_CHARACTERS) -> str:
    """Harmless text for a Markdown cell or sentence: marks are escaped, so nothing is rendered or linked."""
    # renderers link bare addresses too; a backslash before `:` or `.` stops that and is not shown
    escaped = _MARKDOWN.sub(lambda mark: mark["interval"] or f"\\{mark[0]}", clean(value, limit))
    return _BARE_LINK.sub(r"\g<0>\\", escaped)


def template_engine(*packages: str) -> jinja2.Environment:
    """The engine for the templates of these packages; of two with one name the earlier package's is taken.

    HTML is escaped by the engine, Markdown by the `md` filter. The filter `source_link` gets the source of a piece of
    evidence, which a web page links.
    """
    engine = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package, "templates") for package in packages]),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",), default=False),
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    engine.filters |= {"clean": clean, "md": markdown, "md_lines": markdown_lines, "soft": breakable}
    engine.filters["source_link"] = str
    engine.globals["symbols"] = SYMBOLS
    return engine


def render(template: str, fields: dict[str, Any]) -> str:
    """A packaged template filled in; HTML is escaped by the engine, Markdown by the `md` filter."""
    return template_engine("agent2.reports").get_template(template).render(fields)


def percent(value: float | None) -> str:
    """A rate of 0 to 1 as percent with one decimal."""
    return DASH if value is None else PERCENT.number(value)


def score_words(score: Estimate | None, missing: str = "not measured") -> str:
    """A score with its 95% interval and its number of items."""
    if score is None:
        return missing
    lost = f", {score.n_missing} missing" if score.n_missing else ""
    return f"{PERCENT.estimate(score)} (n = {score.n}{lost})"


def points(value: float | None) -> str:
    """Percentage points with sign."""
    return DASH if value is None else SIGNED.number(value)


def attempt_words(attempt: int, n_attempts: int | None = None) -> str:
    """Which attempt at an item, counted from 1. attempt: as cards number it, from 0. n_attempts: None if not known."""
    if n_attempts is None or attempt >= n_attempts:  # others of its item may be missing
        return f"attempt {attempt + 1:,}"
    return "only attempt" if n_attempts == 1 else f"attempt {attempt + 1:,} of {n_attempts:,}"


def duration(seconds: float | None) -> str:
    """A time in seconds, minutes or hours, whichever suits its length."""
    if seconds is None:
        return DASH
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def size(n_bytes: float | None) -> str:
    """Bytes in MiB or GiB."""
    if n_bytes is None:
        return DASH
    return f"{n_bytes / 2**30:.2f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.0f} MiB"


def p_words(p_value: float | None) -> str:
    """A p-value; tiny ones as a bound."""
    if p_value is None:
        return DASH
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.4f}" if p_value < 0.01 else f"p = {p_value:.2f}"


def ratio(value: float | None) -> str:
    """A share of 0 to 1 with two decimals."""
    return DASH if value is None else f"{value:.2f}"


def count(value: int | None) -> str:
    """A whole number, or a dash."""
    return DASH if value is None else str(value)


def example_id(label: str) -> str:
    """The name of a class of bad cases as an anchor of its examples."""
    return "examples-" + "".join(letter if letter.isalnum() else "-" for letter in label)


def dollars(value: float | None) -> str:
    """US dollars, small amounts with four decimals; None is "unknown", never a zero."""
    if value is None:
        return "unknown"
    return f"${value:,.2f}" if value >= 10 else f"${value:.4f}"
