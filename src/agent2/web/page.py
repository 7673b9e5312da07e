"""What every page is made with: its address, the addresses that it links, and what is kept of the folder behind it."""

import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from agent2.cards import folder as card_folder
from agent2.cards.card import CardFile
from agent2.errors import Agent2Error, CardError
from agent2.reports.text import clean, counted, duration, template_engine
from agent2.web.catalog import Catalog, CatalogEntry, EntryKind, reason_of
from agent2.web.notes import NoteBook
from agent2.web.rollouts import CardTables

logger = logging.getLogger(__name__)

KEPT_PAGES = 64


@dataclass(frozen=True)
class PageAddress:
    """Which page is asked for."""

    kind: str
    id: str = ""
    part: str = ""
    query: Mapping[str, str] = field(default_factory=dict)


class Links(Protocol):
    """Addresses for the links of one page."""

    @property
    def is_static(self) -> bool:
        """Nothing that needs a server works: forms, filters, live updates."""

    @property
    def is_single(self) -> bool:
        """The page is one file that links nothing and brings its style with it."""

    def to(self, kind: str, entry: str = "", part: str | int = "", /, **query: str | int | None) -> str:
        """The address of a page; empty where there is none."""

    def save(self) -> str:
        """Where the page itself comes as one file; empty where there is no server."""


class LiveLinks:
    """Addresses on the server."""

    is_static = False
    is_single = False

    def __init__(self, here: PageAddress | None = None) -> None:
        """here: the page that the links are for; None: one that cannot be downloaded."""
        self._here = here

    def save(self) -> str:
        """As one file."""
        here = self._here
        if here is None or here.kind == "spotcheck":
            return ""
        return self.to("download", here.kind, here.id, **{**here.query, "part": here.part})

    def to(self, kind: str, entry: str = "", part: str | int = "", /, **query: str | int | None) -> str:
        """Absolute within the host."""
        pieces = [str(piece) for piece in ("" if kind == "home" else kind, entry, part)]
        path = "/".join(quote(piece, safe="") for piece in pieces if piece)
        asked = {name: str(value) for name, value in query.items() if value not in (None, "")}
        return f"/{path}" + (f"?{urlencode(asked)}" if asked else "")


class SingleLinks:
    """For a page that is one file."""

    is_static = True
    is_single = True

    def to(self, kind: str, entry: str = "", part: str | int = "", /, **query: str | int | None) -> str:
        """Nowhere."""
        return ""

    def save(self) -> str:
        """It is one file already."""
        return ""


_NO_LINK = re.compile(r'<a\b[^>]*?\bhref=""[^>]*>(.*?)</a>', re.DOTALL)


def without_dead_links(page: str) -> str:
    """Links that lead nowhere as plain text; what is not from a template is escaped and never looks like a link."""
    return _NO_LINK.sub(r"<span>\1</span>", page)


class NoSuchPageError(Agent2Error):
    """There is no such result, or it is gone."""


class Unreadable(Agent2Error):
    """A result is there and cannot be shown."""


class PageContext:
    """The folder behind the pages; safe to use from several threads."""

    def __init__(self, catalog: Catalog, *, shows_hidden: bool = False) -> None:
        """shows_hidden: texts of hidden items are shown too."""
        self.catalog = catalog
        self.tables = CardTables()
        self.shows_hidden = shows_hidden
        self.notes = NoteBook(catalog.root)
        self._engine = template_engine("agent2.web", "agent2.reports")
        self._engine.filters |= {"clean": clean, "counted": counted, "place": _linked_place}
        self._engine.globals["left"] = time_left
        self._kept: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        self._making: dict[tuple[object, ...], threading.Lock] = {}
        self._card_files: dict[str, tuple[float, CardFile | None]] = {}
        self._lock = threading.Lock()

    def guarded(self, route: PageAddress, make: Callable[[], str]) -> str:
        """What `make` gives. Raises NoSuchPageError, and Unreadable for whatever else it raises."""
        try:
            return make()
        except (NoSuchPageError, Unreadable):
            raise
        except FileNotFoundError as error:
            raise NoSuchPageError(
                f"{clean(error.filename or 'the file', 200)} is gone since the folder was looked at"
            ) from error
        except Agent2Error as error:
            raise Unreadable(clean(error, 600)) from error
        except Exception as error:  # boundary: a broken result is shown as such, and never breaks the server
            is_verbose = bool(os.environ.get("AGENT2_VERBOSE"))
            logger.error("%s %s cannot be shown: %s", route.kind, route.id, reason_of(error), exc_info=is_verbose)
            raise Unreadable(reason_of(error)) from error

    def problem(self, title: str, words: str, links: Links, written: str = "") -> str:
        """A page that says why there is no other. written: what a reader wrote and would lose."""
        return self.render("problem.html.j2", links, heading=title, words=words, written=written)

    def render(self, template: str, links: Links, **fields: Any) -> str:
        """A template filled in."""
        return self._engine.get_template(template).render(
            links=links, root_name=clean(self.catalog.root.resolve().name or "/", 60), **fields
        )

    def entry(self, route: PageAddress, kind: EntryKind) -> CatalogEntry:
        """The result that an address names. Raises NoSuchPageError if there is none."""
        entry = self.catalog.get(route.id, kind)
        if entry is None:
            raise NoSuchPageError(
                f"there is no {kind.value} {clean(route.id, 80)} in this folder; it may have been moved"
            )
        return entry

    def keep(self, key: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """The value of `make`, made once for a key: who asks meanwhile waits for it."""
        with self._lock:
            waited = self._making.setdefault(key, threading.Lock())
        try:
            with waited:
                with self._lock:
                    if key in self._kept:
                        self._kept.move_to_end(key)
                        return self._kept[key]
                value = make()
                with self._lock:
                    self._kept[key] = value
                    while len(self._kept) > KEPT_PAGES:
                        self._kept.popitem(last=False)
                return value
        finally:
            with self._lock:
                self._making.pop(key, None)

    def trail(self, entry: CatalogEntry, links: Links) -> list[tuple[str, str]]:
        """(words, address) of the results that an entry is part of, the outermost first."""
        found: list[tuple[str, str]] = []
        entries = self.catalog.findings().entries
        parent = entries.get(entry.parent or "")
        while parent is not None:
            found.append((self.catalog.summary(parent).title, links.to(parent.kind.value, parent.id)))
            parent = entries.get(parent.parent or "")
        return found[::-1]

    def card_file(self, entry: CatalogEntry) -> CardFile | None:
        """`card.json` of a card, kept until it changes; None if it cannot be read."""
        known = self._card_files.get(entry.id)
        if known is None or known[0] != entry.changed:
            try:
                known = (entry.changed, card_folder.load_card(entry.path))
            except CardError:
                known = (entry.changed, None)
            self._card_files[entry.id] = known
        return known[1]


@jinja2.pass_context
def _linked_place(context: jinja2.runtime.Context, where: str) -> str:
    """Where evidence is found, as a link where the page knows one."""
    href = context["evidence"](where) if "evidence" in context else ""
    return Markup('<a href="{}">{}</a>').format(href, where) if href else where


def time_left(deadline: float) -> str:
    """Until a moment (Unix seconds), in words."""
    return duration(max(0.0, deadline - time.time()))


def size_of(path: Path) -> tuple[int, int] | None:
    """Changes when the file does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
