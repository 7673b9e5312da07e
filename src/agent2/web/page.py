"""Base of all pages: addresses, links, templates, errors, and a cache over the folder behind them."""

import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from agent2.cards import folder as card_folder
from agent2.cards.card import CardFile
from agent2.errors import Agent2Error, CardError
from agent2.reports.masthead import Masthead
from agent2.reports.text import clean, duration, template_engine
from agent2.texts import counted
from agent2.web.catalog import Catalog
from agent2.web.entries import CatalogEntry, EntryKind, reason_of
from agent2.web.notes import NoteBook
from agent2.web.rollouts import CardTables
from agent2.web.shown_pictures import PictureShelf

logger = logging.getLogger(__name__)

MadeT = TypeVar("MadeT")
MAX_CACHED = 64
_NO_LINK = re.compile(r'<a\b[^>]*?\bhref=""[^>]*>(.*?)</a>', re.DOTALL)


@dataclass(frozen=True)
class PageAddress:
    """Kind, id, part and query of a requested page."""

    kind: str
    id: str = ""
    part: str = ""
    query: Mapping[str, str] = field(default_factory=dict)


class Links(Protocol):
    """Addresses for the links of one page."""

    @property
    def is_static(self) -> bool:
        """Whether there is no server, so neither forms nor filters nor live updates."""

    @property
    def is_single(self) -> bool:
        """Whether the page is one file, without links and with its style sheet inline."""

    def to(self, kind: str, entry: str = "", part: str | int = "", /, **query: str | int | None) -> str:
        """The address of a page; empty where there is none."""

    def save(self) -> str:
        """The address of the page itself as one file; empty where there is no server."""


class LiveLinks:
    """Addresses on the server."""

    is_static = False
    is_single = False

    def __init__(self, page: PageAddress | None = None) -> None:
        """page: the one with the links; None: one that cannot be downloaded."""
        self._page = page

    def save(self) -> str:
        """Its download; empty for a spot check, whose form needs the server."""
        page = self._page
        if page is None or page.kind == "spotcheck":
            return ""
        return self.to("download", page.kind, page.id, **{**page.query, "part": page.part})

    def to(self, kind: str, entry: str = "", part: str | int = "", /, **query: str | int | None) -> str:
        """Absolute within the host."""
        pieces = [str(piece) for piece in ("" if kind == "home" else kind, entry, part)]
        path = "/".join(quote(piece, safe="") for piece in pieces if piece)
        parameters = {name: str(value) for name, value in query.items() if value not in (None, "")}
        return f"/{path}" + (f"?{urlencode(parameters)}" if parameters else "")


class SingleLinks:
    """For a page that is one file."""

    is_static = True
    is_single = True

    def to(self, kind: str, entry: str = "", part: str | int = "", /, **query: str | int | None) -> str:
        """Empty: one file links nothing."""
        return ""

    def save(self) -> str:
        """Empty: it is one file already."""
        return ""


def without_dead_links(page: str) -> str:
    """The page with links that lead nowhere as plain text."""
    # only links of templates match: all other text is escaped
    return _NO_LINK.sub(r"<span>\1</span>", page)


def shelf_of(entry: CatalogEntry, links: Links) -> PictureShelf:
    """The pictures of a card, with addresses where there is a server."""
    if links.is_static:
        return PictureShelf(entry.path)
    return PictureShelf(
        entry.path,
        lambda name: links.to("picture", entry.id, name),
        lambda name: links.to("picture", entry.id, name, size="small"),
    )


class NoSuchPageError(Agent2Error):
    """There is no such result (any more)."""


class UnreadableResultError(Agent2Error):
    """A result exists and cannot be shown."""


class PageContext:
    """The folder behind the pages; safe to use from several threads."""

    def __init__(self, catalog: Catalog, *, shows_hidden: bool = False, masthead: Masthead | None = None) -> None:
        """shows_hidden: texts of hidden items are shown too. masthead: of home and leaderboard, where published."""
        self.catalog = catalog
        self.masthead = masthead
        self.tables = CardTables()
        self.shows_hidden = shows_hidden
        self.notes = NoteBook(catalog.root)
        self._engine = template_engine("agent2.web", "agent2.reports")
        self._engine.filters |= {"counted": counted, "source_link": _linked_source, "markdown": _markdown}
        self._engine.globals["left"] = time_left
        self._cache: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        self._making: dict[tuple[object, ...], threading.Lock] = {}
        self._card_files: dict[str, tuple[float, CardFile | None]] = {}
        self._lock = threading.Lock()

    def guarded(self, route: PageAddress, make: Callable[[], MadeT]) -> MadeT:
        """The value of `make`. Raises NoSuchPageError, and UnreadableResultError for anything else that it raises."""
        try:
            return make()
        except (NoSuchPageError, UnreadableResultError):
            raise
        except FileNotFoundError as error:
            raise NoSuchPageError(
                f"{clean(error.filename or 'the file', 200)} is gone since the folder was scanned"
            ) from error
        except Agent2Error as error:
            raise UnreadableResultError(clean(error, 600)) from error
        except Exception as error:  # boundary: a broken result is shown as such, and never breaks the server
            is_verbose = bool(os.environ.get("AGENT2_VERBOSE"))
            logger.error("%s %s cannot be shown: %s", route.kind, route.id, reason_of(error), exc_info=is_verbose)
            raise UnreadableResultError(reason_of(error)) from error

    def problem(self, title: str, reason: str, links: Links, written: str = "") -> str:
        """A page with the reason why the requested one is not shown. written: text of a form that would be lost."""
        return self.render("problem.html.j2", links, heading=title, reason=reason, written=written)

    def render(self, template: str, links: Links, **fields: Any) -> str:
        """A template filled in."""
        has_trials = any(entry.kind is EntryKind.TRIAL for entry in self.catalog.scan().entries.values())
        title = self.masthead.title if self.masthead is not None else ""
        root_name = title or clean(self.catalog.root.resolve().name or "/", 60)
        return self._engine.get_template(template).render(
            has_trials=has_trials, links=links, root_name=root_name, masthead=self.masthead, **fields
        )

    def template_names(self) -> list[str]:
        """Of every page and its parts."""
        return self._engine.list_templates(extensions=["j2"])

    def compile_template(self, template: str) -> None:
        """Compile a template, which its first page would otherwise wait for."""
        self._engine.get_template(template)

    def entry(self, route: PageAddress, kind: EntryKind) -> CatalogEntry:
        """The result of an address. Raises NoSuchPageError if there is none."""
        if not route.id:
            raise NoSuchPageError(f"the address names no {kind.value}; open one from the list of all results")
        entry = self.catalog.get(route.id, kind)
        if entry is None:
            raise NoSuchPageError(
                f"there is no {kind.value} {clean(route.id, 80)} in this folder; it may have been moved"
            )
        return entry

    def cached(self, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """The value of `make`, computed once for a key; threads that need it meanwhile wait."""
        # a lock for each key, so that a slow page holds up no other one
        with self._lock:
            key_lock = self._making.setdefault(key, threading.Lock())
        try:
            with key_lock:
                with self._lock:
                    if key in self._cache:
                        self._cache.move_to_end(key)
                        return self._cache[key]
                value = make()
                with self._lock:
                    self._cache[key] = value
                    while len(self._cache) > MAX_CACHED:
                        self._cache.popitem(last=False)
                return value
        finally:
            with self._lock:
                self._making.pop(key, None)

    def breadcrumbs(self, entry: CatalogEntry, links: Links) -> list[tuple[str, str]]:
        """(title, address) of the results that an entry is part of, the outermost first."""
        breadcrumbs: list[tuple[str, str]] = []
        entries = self.catalog.scan().entries
        parent = entries.get(entry.parent or "")
        while parent is not None:
            breadcrumbs.append((self.catalog.summary(parent).title, links.to(parent.kind.value, parent.id)))
            parent = entries.get(parent.parent or "")
        return breadcrumbs[::-1]

    def card_file(self, entry: CatalogEntry) -> CardFile | None:
        """`card.json` of a card, cached until it changes; None if it cannot be read."""
        cached = self._card_files.get(entry.id)
        if cached is None or cached[0] != entry.changed:
            try:
                cached = (entry.changed, card_folder.load_card(entry.path))
            except CardError:
                cached = (entry.changed, None)
            self._card_files[entry.id] = cached
        return cached[1]


@jinja2.pass_context
def _linked_source(context: jinja2.runtime.Context, where: str) -> str:
    """The source of a piece of evidence, as a link if the page has one for it."""
    href = context["evidence"](where) if "evidence" in context else ""
    return Markup('<a href="{}">{}</a>').format(href, where) if href else where


def _markdown(text: str) -> Markup:
    """A message's Markdown, or its text as it is."""
    from agent2.web.markdown import rendered  # few pages show one

    page = rendered(text)
    if page is None:
        return Markup('<div class="text">{}</div>').format(text)
    return Markup('<div class="markdown">{}</div>').format(page)


def time_left(deadline: float) -> str:
    """Time until `deadline` (Unix seconds), as text."""
    return duration(max(0.0, deadline - time.time()))


def file_stamp(path: Path) -> tuple[int, int] | None:
    """Size and modification time of a file, which differ once it was changed; None without it."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
