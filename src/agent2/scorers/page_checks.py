"""The scorer of web pages: each is opened in the system's Chromium, inside a sandbox without network.

    payload: {"parts": ["#email", "#send"],        # what has to be seen on a page that was just loaded
              "checks": [{"name": "an empty form is refused",
                          "steps": [["click", "#send"], ["expect_text", "#error", "Enter an e-mail"]]}],
              "reference": {"index.html": ..., "style.css": ..., "script.js": ...}}   # optional: how it should look

The page is in the answer's blocks: the last ```html is index.html, which may load style.css (```css) and script.js
(```js). The score is 1.0 if every check of its function holds. Six views, 0 to 1, stand side by side and are never
added up:

- `function`: share of the checks that hold;
- `visual`: likeness to the reference at 1280 pixels (`page_runner.likeness`); not known where there is no reference;
- `code`: share of the checks of its source (`page_code.CHECKS`), of its scripts' errors and of missing files;
- `responsive`: share of the widths 390, 768 and 1280 at which it is laid out in that width, nothing is wider or cut
  off, and every part is seen;
- `accessibility`: share of axe's rules that apply and hold; not known where axe could not be loaded, 0 where the page
  keeps it from looking;
- `performance`: share of three budgets that it keeps: bytes, elements, and processor time until it is loaded.

A page that shows nothing has 0 in all of them: nothing is responsive, accessible or light that is not there. What a
page does to its browser is its own doing: one that never answers, crashes the browser or opens windows without end
loses what was not measured until then, is named so by a label, and the next page gets a fresh sandbox.

Does NOT judge taste: `visual` says how near a picture is, and a page may be good that looks otherwise.
"""

import base64
import hashlib
import importlib.util
import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from agent2.errors import ConfigError, Fault, quoted
from agent2.records import Item, Rollout, Score, ScorerOutput, ScoringMode, ScoringWork
from agent2.sandbox.backends import ContainedEnd, EndedBy, run_contained
from agent2.sandbox.spec import HOST_DISK, Limits
from agent2.scorers.code_blocks import code_blocks
from agent2.scorers.page_code import CHECKS, INDEX, SCRIPT, STYLE, code_faults
from agent2.scorers.page_runner import PATIENCE, PROGRAMS
from agent2.scorers.sandboxed import SandboxRunner

VIEWS = ("function", "visual", "code", "responsive", "accessibility", "performance")
WIDTHS = (390, 768, 1280)
MAX_PAGE_BYTES = 500_000
WEIGHT_BUDGET_BYTES = 100_000
ELEMENTS_BUDGET = 1_500
BUSY_BUDGET_MS = 500.0
"""Processor time of the page's own thread until it is loaded."""
BROWSER_CHECKS = ("script errors", "missing files")
"""Of the view `code`, beside those of the source."""
LIMITS = Limits(memory_gib=4.0, processes=1024, file_size_gib=0.25, disk_gib=0.5, tmp_gib=0.5, log_mib=1.0)
START_S = 240.0
"""For a sandbox with its browser to start on a machine that is busy."""
OUTPUT_BYTES = 16 * 2**20
"""Of what is written about one page."""
PNG = b"\x89PNG\r\n\x1a\n"
DIGEST_SIGN = "~"
NO_PAGE = "page_missing"
"""Label of an answer without a page, whose reason names no check."""
REFERENCE = "reference"
MAX_STARTS = 2
"""Sandboxes without a browser after which a page gets no verdict."""
FILES = {"html": INDEX, "htm": INDEX, "css": STYLE, "js": SCRIPT, "javascript": SCRIPT}
"""Language of a block -> file."""


@dataclass(slots=True)
class PageMeasures:
    """What the runner wrote about one page."""

    is_begun: bool = False
    """The page was opened, so that what follows is its own doing."""
    is_complete: bool = False
    widths: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    load: Mapping[str, Any] | None = None
    likeness: float | None = None
    reference: str | None = None
    """Base64 of a picture of the reference, where pictures were asked for."""
    axe: Mapping[str, Any] | None = None
    unmet: dict[int, str | None] = field(default_factory=dict)
    """Number of a check -> why it fails; None: it holds."""
    trouble: str = ""
    """Why it was not measured to its end; empty: nothing is known of a reason."""
    is_hung: bool = False
    is_crashed: bool = False
    n_windows: int = 0
    n_downloads: int = 0
    refused: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def add(self, line: Mapping[str, Any]) -> None:
        """Take in one line."""
        kind, self.is_begun = line["kind"], True
        if kind == "width":
            self.widths[int(line["width"])] = line
        elif kind == "load":
            self.load = line
        elif kind == "visual":
            self.likeness, self.reference = float(line["likeness"]), line.get("reference")
        elif kind == "axe":
            self.axe = line
        elif kind == "check":
            self.unmet[int(line["number"])] = line["unmet"]
        elif kind == "trouble":
            self.trouble, self.is_hung = line["reason"], self.is_hung or line["is_hung"]
        self.is_complete = self.is_complete or kind == "end"
        if kind == "conduct":
            self.is_crashed = self.is_crashed or line["is_crashed"]
            self.n_windows += line["n_windows"]
            self.n_downloads += line["n_downloads"]
            for name in ("refused", "missing", "errors"):
                getattr(self, name).extend(line[name])

    @property
    def is_blank(self) -> bool:
        """Whether it shows nothing where it was loaded."""
        return bool(self.widths) and not any(line["n_shown"] for line in self.widths.values())


class PageChecksScorer:
    """1.0 if every check of the page's function holds; five further views beside it."""

    name = "page_checks"
    version = "1.1"
    emits = ScorerOutput(
        views=frozenset({*VIEWS, "weight_bytes", "load_ms"}),
        labels=frozenset(
            {
                "page_missing",
                "page_blank",
                "page_hangs",
                "page_crashes",
                "page_opens_windows",
                "page_asks_for_downloads",
                "page_calls_out",
                "page_check_failed",
                "page_overflows",
                "page_inaccessible",
                "page_heavy",
                "page_code_faults",
            }
        ),
    )
    expects = "index.html in a block that begins with ```html, style.css and script.js in blocks ```css and ```js"

    def __init__(self, processor_s: float = 45.0, batch: int = 8, screenshots: str | Path | None = None) -> None:
        """processor_s: of one page with all its checks, in all processes of the browser. batch: pages of one browser.

        screenshots: folder for pictures of each page at each width and of its reference, ITEM-ATTEMPT-WIDTH.png; None:
        none are kept.

        Raises ConfigError for a setting that is not positive.
        """
        if isinstance(processor_s, bool) or not processor_s > 0:
            raise ConfigError(f"scorer page_checks: processor_s is {processor_s!r}; give a number above 0")
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise ConfigError(f"scorer page_checks: batch is {batch!r}; give a whole number above 0")
        self._processor_s = float(processor_s)
        self._screenshots = None if screenshots is None else Path(screenshots).expanduser()
        self.work = ScoringWork(ScoringMode.SANDBOX, batch_size=batch, concurrency=1)

    def score(self, item: Item, rollout: Rollout) -> Score:
        """No verdict: it needs a sandbox, which the scoring stage gives it."""
        return Score(None, "page_checks opens pages and needs the scoring stage (evaluate, rescore)", Fault.JUDGE)

    def score_on(self, runner: SandboxRunner, item: Item, rollout: Rollout) -> Score:
        """The verdict on one page; see `score_batch_on`."""
        return self.score_batch_on(runner, [(item, rollout)])[0]

    def score_batch_on(self, runner: SandboxRunner, batch: Sequence[tuple[Item, Rollout]]) -> list[Score]:
        """As `score_pages`, of the pages in answers. Raises SandboxError."""
        pages = [(item, page_of(rollout.answer or ""), rollout.attempt) for item, rollout in batch]
        return self.score_pages(runner, pages)

    def score_pages(self, runner: SandboxRunner, pages: Sequence[tuple[Item, Mapping[str, str], int]]) -> list[Score]:
        """A verdict on each page; missing where there is no browser, or an item has no checks. Raises SandboxError.

        pages: item, files by name, attempt.
        """
        if problem := missing_program():
            return [Score(None, problem, Fault.INFRASTRUCTURE)] * len(pages)
        scores: dict[int, Score] = {}
        works: dict[int, dict[str, Any]] = {}
        for place, (item, files, _) in enumerate(pages):
            if not item.payload.get("checks"):
                scores[place] = Score(None, f"item {item.id}: payload.checks is empty; correct it", Fault.JUDGE)
            elif INDEX not in files or not files[INDEX].strip():
                scores[place] = _without_page(f"there is no {INDEX} (in an answer: no block ```html) with a page")
            elif (n_bytes := sum(len(text.encode("utf-8", "replace")) for text in files.values())) > MAX_PAGE_BYTES:
                scores[place] = _without_page(f"the page has {n_bytes} bytes, at most {MAX_PAGE_BYTES} are opened")
            else:
                works[place] = work_on(item, files, screenshots=self._screenshots is not None)
        measured = self.measure(runner, list(works.values()))
        for (place, work), outcome in zip(works.items(), measured, strict=True):
            scores[place] = outcome if isinstance(outcome, Score) else verdict(work, outcome)
            if self._screenshots is not None and isinstance(outcome, PageMeasures):
                item, _, attempt = pages[place]
                write_screenshots(self._screenshots, item.id, attempt, outcome)
        return [scores[place] for place in range(len(pages))]

    def measure(self, runner: SandboxRunner, works: Sequence[Mapping[str, Any]]) -> list[PageMeasures | Score]:
        """What was measured of each page; a missing score where there was no browser for it. Raises SandboxError."""
        outcomes: list[PageMeasures | Score] = []
        n_starts = 0
        opened_twice: int | None = None
        while len(outcomes) < len(works):
            pending = works[len(outcomes) :]
            end, pages = self._open_pages(runner, pending)
            if end.ended_by is EndedBy.STOP:
                stopped = Score(None, "the scoring was stopped", Fault.INFRASTRUCTURE)
                return outcomes + [stopped] * len(pending)
            opened = [page for page in pages if page.is_begun]
            if opened and not opened[-1].is_complete and not opened[-1].trouble:
                last = len(outcomes) + len(opened) - 1
                if _was_killed_by_another(end) and opened_twice != last:
                    opened_twice = last
                    outcomes += opened[:-1]
                    continue
                opened[-1].trouble, opened[-1].is_hung = end.reason, end.ended_by is EndedBy.TIMEOUT
                opened[-1].is_crashed = not opened[-1].is_hung
            if end.broke == HOST_DISK:
                opened = [page for page in opened if page.is_complete]
            outcomes += opened
            n_starts = 0 if opened else n_starts + 1
            if n_starts == MAX_STARTS:
                lost = Score(None, f"no browser opened the page: {end.reason}", Fault.INFRASTRUCTURE)
                return outcomes + [lost] * (len(works) - len(outcomes))
        return outcomes

    def _open_pages(
        self, runner: SandboxRunner, works: Sequence[Mapping[str, Any]]
    ) -> tuple[ContainedEnd, list[PageMeasures]]:
        """One sandbox, with a browser that opens one page after another until one makes trouble."""
        settings = {"processor_s": self._processor_s, "pages": list(works)}
        command = ("python", "-I", "-B", "-c", runner_source())
        with runner.request(command, LIMITS) as request:
            request.scratch.mkdir(parents=True, exist_ok=True)
            request = replace(request, stdin=json.dumps(settings).encode(), stdout_bytes=OUTPUT_BYTES * len(works))
            timeout_s = START_S + PATIENCE * self._processor_s * len(works)
            end = run_contained(request, runner.sandbox, timeout_s=timeout_s, stop=runner.stop)
        pages = [PageMeasures() for _ in works]
        for text in end.stdout.split(b"\n"):
            try:
                line = json.loads(text)
            except ValueError:
                continue  # the last one, of a sandbox that was ended
            if line["page"] is not None:
                pages[line["page"]].add(line)
        return end, pages


def write_screenshots(folder: Path, item_id: str, attempt: int, page: PageMeasures) -> None:
    """Write the pictures of a page, and of the reference. Raises ConfigError for a folder that cannot be written."""
    pictures = {str(width): layout["screenshot"] for width, layout in page.widths.items()}
    for name, encoded in {**pictures, REFERENCE: page.reference}.items():
        picture = base64.b64decode(encoded or "")
        if not picture.startswith(PNG):
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / screenshot_name(item_id, attempt, name)).write_bytes(picture)
        except OSError as error:
            raise ConfigError(
                f"scorer page_checks: screenshots: {folder} cannot be written ({error.strerror})"
            ) from error


def screenshot_name(item_id: str, attempt: int, width: str) -> str:
    """File of a picture of a page, another one for each item. width: in pixels, or `REFERENCE` for the reference.

    An id that cannot be in a name as it is has a digest of it there, too, behind a sign that no other name has.
    """
    item = re.sub(r"[^A-Za-z0-9_.-]", "_", item_id)[:100]
    if item != item_id:
        item = f"{item}{DIGEST_SIGN}{hashlib.sha256(item_id.encode()).hexdigest()[:16]}"
    return f"{item}-{attempt}-{width}.png"


def missing_program() -> str:
    """Why no page can be opened on this machine; empty: nothing is missing."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed; install it with: pip install 'agent2[pages]'"
    if not any(os.access(path, os.X_OK) for path in PROGRAMS):
        return "there is no Chromium below /usr; install it with: apt-get install chromium"
    return ""


@cache
def runner_source() -> str:
    """The program that the sandbox runs."""
    return resources.files("agent2.scorers").joinpath("page_runner.py").read_text("utf-8")


def page_of(answer: str) -> dict[str, str]:
    """The files of an answer: the last block of each kind; an answer without fences that begins as HTML is a page."""
    blocks, before = code_blocks(answer)
    if not blocks and before is None:
        return {INDEX: answer} if answer.lstrip().startswith("<") else {}
    return {FILES[block.language]: block.code for block in blocks if block.language in FILES}


def work_on(item: Item, files: Mapping[str, str], *, screenshots: bool = False) -> dict[str, Any]:
    """What the runner does with a page."""
    return {
        "files": dict(files),
        "parts": list(item.payload.get("parts") or ()),
        "checks": list(item.payload["checks"]),
        "widths": list(WIDTHS),
        "reference": item.payload.get("reference"),
        "screenshots": screenshots,
    }


def _was_killed_by_another(end: ContainedEnd) -> bool:
    """Whether the browser ended by a kill, but at none of its limits: the machine's memory, say, which others used."""
    return end.ended_by is EndedBy.ITSELF and end.code == 128 + signal.SIGKILL and end.broke is None


def _without_page(reason: str) -> Score:
    return Score(0.0, reason, views=dict.fromkeys(VIEWS, 0.0), labels=(NO_PAGE,))


def verdict(work: Mapping[str, Any], page: PageMeasures) -> Score:
    """The score of a page from what was measured of it."""
    n_checks = len(work["checks"])
    failed = [number for number in range(n_checks) if page.unmet.get(number, "it was not reached") is not None]
    faults = code_faults(work["files"])
    faults |= {name: quoted(texts[0]) for name, texts in _of_browser(page) if texts}
    misfits = {width: reason for width in WIDTHS if (reason := _misfit(page, width))}
    wasted = _wasted(page)
    has_reference = bool(work.get("reference"))
    views: dict[str, float | None] = {
        "function": 1.0 - len(failed) / n_checks,
        "visual": (page.likeness or 0.0) if has_reference else None,
        "code": 1.0 - len(faults) / (len(CHECKS) + len(BROWSER_CHECKS)),
        "responsive": 1.0 - len(misfits) / len(WIDTHS),
        "accessibility": _accessible(page),
        "performance": 1.0 - len(wasted) / 3,
    }
    if page.is_blank:
        views |= {name: 0.0 for name, value in views.items() if value is not None}
    if page.load is not None:
        views |= {"weight_bytes": float(page.load["n_bytes"]), "load_ms": float(page.load["load_ms"])}
    violations = (page.axe or {}).get("violations") or []
    signs = {
        "page_blank": page.is_blank,
        "page_hangs": page.is_hung,
        "page_crashes": page.is_crashed,
        "page_opens_windows": page.n_windows > 0,
        "page_asks_for_downloads": page.n_downloads > 0,
        "page_calls_out": bool(page.refused),
        "page_check_failed": bool(failed),
        "page_overflows": bool(misfits) and bool(page.widths),
        "page_inaccessible": bool(violations) or bool((page.axe or {}).get("is_of_page")),
        "page_heavy": bool(wasted) and page.load is not None,
        "page_code_faults": bool(faults),
    }
    parts = [f"{n_checks - len(failed)} of {n_checks} checks hold", *_troubles(page)]
    if failed:
        name = work["checks"][failed[0]].get("name", f"check {failed[0] + 1}")
        parts.append(f"not: {name} ({_shown(page.unmet.get(failed[0]) or 'it was not reached')})")
    parts += [f"{width} pixels: {reason}" for width, reason in list(misfits.items())[:1]]
    if violations:
        parts.append("axe: " + ", ".join(str(violation["id"]) for violation in violations[:3]))
    elif page.axe is not None and "error" in page.axe:
        parts.append(f"accessibility was not measured ({_shown(page.axe['error'])})")
    parts += [f"code: {name}, {place}" for name, place in list(faults.items())[:1]] + wasted[:1]
    labels = tuple(label for label, applies in signs.items() if applies)
    return Score(float(not failed), "; ".join(parts), views=views, labels=labels)


def _of_browser(page: PageMeasures) -> list[tuple[str, list[str]]]:
    return list(zip(BROWSER_CHECKS, (page.errors, page.missing), strict=True))


def _misfit(page: PageMeasures, width: int) -> str:
    """What is wrong with the layout at a width, in one clause; empty: nothing."""
    layout = page.widths.get(width)
    if layout is None:
        return "it was not reached"
    if layout["laid_out"] > width + 1:
        return f"it is laid out in {layout['laid_out']:g} pixels"
    if layout["content"] > width + 1:
        return f"its content is {layout['content']:g} pixels wide"
    if layout["n_cut"]:
        return f"{layout['n_cut']} elements are cut off"
    unseen = [place for place in layout["placed"] if place]
    return f"{len(unseen)} of {len(layout['placed'])} parts are {unseen[0]}" if unseen else ""


def _accessible(page: PageMeasures) -> float | None:
    """Share of the rules that apply and hold; None: axe could not look, 0: the page did not let it."""
    if page.axe is None:
        return 0.0
    if "error" in page.axe:
        return 0.0 if page.axe.get("is_of_page") else None
    n_rules = len(page.axe["passes"]) + len(page.axe["violations"])
    return len(page.axe["passes"]) / n_rules if n_rules else 0.0


def _wasted(page: PageMeasures) -> list[str]:
    """The budgets that were not kept, a clause each; all three where the page was not loaded."""
    if page.load is None or WIDTHS[-1] not in page.widths:
        return ["it was not loaded"] * 3
    spent = (
        (page.load["n_bytes"], WEIGHT_BUDGET_BYTES, "bytes"),
        (page.widths[WIDTHS[-1]]["n_elements"], ELEMENTS_BUDGET, "elements"),
        (page.load["busy_ms"], BUSY_BUDGET_MS, "ms of processor time to load"),
    )
    return [f"{amount:.0f} {unit}, more than {budget:.0f}" for amount, budget, unit in spent if amount > budget]


def _troubles(page: PageMeasures) -> list[str]:
    """What the page did to its browser, a clause each."""
    clauses = []
    if page.trouble:
        clauses.append(f"it was not looked at to its end: {_shown(page.trouble)}")
    if page.n_windows:
        clauses.append(f"it opened {page.n_windows} windows, which were closed")
    if page.n_downloads:
        clauses.append(f"it asked for {page.n_downloads} downloads, which were refused")
    if page.refused:
        clauses.append(f"it asked for {quoted(page.refused[0])}, which was refused")
    return clauses


def _shown(text: object) -> str:
    """A clause of the runner, which may quote the page, made safe for a message."""
    line = " ".join(str(text).split())
    return "".join(character if character.isprintable() else "?" for character in line)[:200]
