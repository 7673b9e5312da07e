"""The whole site as files for a web host or an artifact store, which need no server.

Promises: every link of an exported page leads to an exported page, or is plain text; texts of hidden items are never
exported with a site, nor are folders of this machine; the folder of results is only read. Bounded: of a large card the
first rollouts and those that an evaluation's page links are exported, and each such card says so.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent2.errors import ConfigError
from agent2.files import write_text
from agent2.web.page import Links, NoSuchPageError, PageAddress, UnreadableResultError, without_dead_links
from agent2.web.rollouts import PAGE_ROWS
from agent2.web.site import ASSETS, Site, read_asset

MOST_ROLLOUTS = 1_000
"""Of one card, that are exported by their number; an evaluation's lost and won items and bad cases always are."""
KINDS = frozenset({"home", "leaderboard", "trial", "evaluation", "sweep", "training", "card", "rollout", "history"})
CARD_QUERY = frozenset({"show", "label", "page"})
"""Parts of a card's address that lead to an exported list; sorting and searching need a server."""


class FileLinks:
    """Addresses within exported files, as seen from one of them; notes which pages are needed."""

    is_static = True
    is_single = False

    def __init__(self, needed: Callable[[PageAddress], None], prefix: str) -> None:
        """needed: called with each page that is linked. prefix: from the linking file to the top."""
        self._needed, self._prefix = needed, prefix

    def save(self) -> str:
        """Empty: there is no server that would make it."""
        return ""

    def to(self, kind: str, entry: str = "", part: str | int = "", /, **query: str | int | None) -> str:
        """Relative to the linking page; empty for what is not exported."""
        if kind == "static":
            return f"{self._prefix}static/{entry}"
        parameters = {name: str(value) for name, value in query.items() if value not in (None, "")}
        address = _exported_address(PageAddress(kind, entry, str(part), parameters))
        if address is None:
            return ""
        self._needed(address)
        return self._prefix + file_of(address)


def _exported_address(address: PageAddress) -> PageAddress | None:
    """The page that is exported for an address; None if there is none."""
    query = dict(address.query)
    if address.kind not in KINDS:
        return None
    if address.kind == "home":
        return PageAddress("home", query={"page": query["page"]} if query.get("page", "1") != "1" else {})
    if address.kind == "card":
        kept_query = {
            name: value for name, value in query.items() if name in CARD_QUERY and (name, value) != ("page", "1")
        }
        if int(kept_query.get("page", "1")) > -(-MOST_ROLLOUTS // PAGE_ROWS):
            return None
        return PageAddress("card", address.id, query=kept_query)
    if address.kind == "rollout":
        if address.part != "item" and int(address.part) >= MOST_ROLLOUTS:
            return None
        kept_query = {name: value for name, value in query.items() if name in ("id", "attempt", "beside")}
        return PageAddress("rollout", address.id, address.part, kept_query)
    return PageAddress(address.kind, address.id, address.part)


def file_of(address: PageAddress) -> str:
    """Path of a page below the exported folder."""
    query = "&".join(f"{name}={value}" for name, value in sorted(address.query.items()) if value)
    # a digest, since item ids may contain anything and be longer than a file name
    suffix = f"-{hashlib.sha256(query.encode()).hexdigest()[:10]}" if query else ""
    if address.kind in ("home", "leaderboard"):
        return f"{'index' if address.kind == 'home' else address.kind}{suffix}.html"
    return f"{address.kind}/{address.id}{f'-{address.part}' if address.part else ''}{suffix}.html"


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The files that were written."""

    index: Path
    n_pages: int
    n_bytes: int
    problems: tuple[str, ...]
    """Results that cannot be shown, a message each; their pages say so too."""


def export_site(site: Site, out: Path, on_page: Callable[[int, int], None] = lambda done, total: None) -> ExportReport:
    """Write every page that can be reached from the home page into a new folder, whose `index.html` is the home page.

    on_page: called with the number of pages written and of those linked so far. Raises ConfigError if the folder exists
    and is not empty, or cannot be written to.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: exists already and is not an empty folder; choose another one")
    first = PageAddress("home")
    queue, files = deque([first]), {file_of(first)}
    problems: list[str] = []
    n_bytes = n_pages = 0

    def needed(address: PageAddress) -> None:
        if (file := file_of(address)) not in files:
            files.add(file)
            queue.append(address)

    try:
        (out / "static").mkdir(parents=True, exist_ok=True)
        for name in ASSETS:
            write_text(out / "static" / name, read_asset(name))
        while queue:
            address = queue.popleft()
            file = file_of(address)
            # relative links, so that the site works below any path and from disk
            links: Links = FileLinks(needed, "../" * file.count("/"))
            try:
                page = site.html(address, links)
            except (NoSuchPageError, UnreadableResultError) as error:
                problems.append(f"{file}: {error}")
                page = site.without_host_folders(site.problem("This cannot be shown", str(error), links))
            page = without_dead_links(page)
            (out / file).parent.mkdir(exist_ok=True)
            write_text(out / file, page)
            n_pages, n_bytes = n_pages + 1, n_bytes + len(page.encode("utf-8", errors="replace"))
            on_page(n_pages, len(files))
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written to ({error.strerror}); choose another folder") from error
    return ExportReport(out / "index.html", n_pages, n_bytes, tuple(problems))
