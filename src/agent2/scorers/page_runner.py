"""The program that opens pages in Chromium, inside a sandbox, and writes what it measured, a line of JSON each.

It is sent as text, imports nothing of agent2, and reads its work from standard input:

    {"processor_s": 45, "pages": [{"files": {"index.html": ...}, "parts": ["#email"], "widths": [390, 768, 1280],
     "checks": [{"name": ..., "steps": [["click", "#go"]]}], "reference": {"index.html": ...}, "screenshots": false}]}

The page is served by interception from its own files; any other request is refused and counted. Windows that it opens
are closed, dialogs dismissed, downloads refused, service workers blocked. What is measured is read in worlds of
JavaScript of their own, so that a page can't answer for itself by changing what its functions do.

Each look and each check begins with the page loaded anew and nothing kept, not even the name of its window, and checks
come in an order of chance: a page that counts how often it was loaded learns nothing of what it is asked. Its clock
stands still but for a set time after each step, so what it shows doesn't depend on how busy the machine is. The first
page that makes trouble (it uses up its processor time, never answers, crashes, loads itself, opens windows or asks for
downloads without end) ends this program, and with it the sandbox: the next page begins in a fresh one. Lines that were
written until then count.
"""

import base64
import importlib.util
import io
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

ADDRESS = "http://page.invalid/"
HEIGHT = 900
MOBILE_BELOW = 600
"""Pixels of width below which the browser behaves as that of a phone: without a viewport tag it lays out 980 pixels."""
WIDEST = 1280
"""Pixels of width in which functions are checked and pictures compared."""
LOAD_TIMEOUT_MS = 60_000
STEP_TIMEOUT_MS = 15_000
SETTLE_MS = 600
"""What passes on the page's clock after each step."""
QUIET_MS = 200
"""After the page was loaded, before it is measured."""
STARTED_AT_S = 1_700_000_000
LOADED_AT_S = STARTED_AT_S + 3600
"""On the page's clock, where it stands still when checks begin."""
MAX_REFUSED = 20
MAX_NUISANCES = 20
"""Windows, downloads and loads of one visit after which a page is not looked at any further."""
PATIENCE = 8.0
"""Seconds on the clock for each second of processor time that a page may use."""
STALL_S, STALL_PROCESSOR_S = 90.0, 1.0
"""Seconds on the clock without an end of a step, and the processor time used in them, below which nothing is at work
any more: a page can keep its browser waiting without using any. Fifty programs on two cores get more than that."""
WATCH_S = 0.5
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MAX_SHOWN = 60
"""Characters of the page's own text in a sentence."""
GRID = (64, 45)
"""Fields of width and height whose mean colours are compared."""
FLAGS = (
    "--no-sandbox",  # this process is in a sandbox already, which allows no further namespaces
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--js-flags=--max-old-space-size=512",
)
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
LAYOUT = """((parts, width) => {
  const isShown = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const fits = (box) => box.width > 0 && box.height > 0 && box.left >= -1 && box.right <= width + 1;
  const scrolls = (element) => {
    for (let above = element.parentElement; above && above !== document.body; above = above.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(above).overflowX)) return true;
    return false;
  };
  const all = [...document.querySelectorAll("body *")];
  const controls = ["INPUT", "SELECT", "TEXTAREA", "BUTTON", "IMG", "CANVAS", "SVG"];
  const speaks = (element) => controls.includes(element.tagName)
    || [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const shown = all.filter((element) => !["SCRIPT", "STYLE"].includes(element.tagName) && speaks(element)
    && isShown(element) && element.getBoundingClientRect().width > 1);
  const cut = shown.filter((element) => !fits(element.getBoundingClientRect()) && !scrolls(element));
  const placed = parts.map((part) => {
    const element = document.querySelector(part);
    if (!element || !isShown(element)) return "missing";
    return fits(element.getBoundingClientRect()) || scrolls(element) ? "" : "outside";
  });
  return {n_shown: shown.length, n_cut: cut.length, placed, n_elements: document.querySelectorAll("*").length};
})"""
AXE = """axe.run(document, {resultTypes: ["violations"]}).then((results) => ({
  passes: results.passes.map((rule) => rule.id),
  violations: results.violations.map((rule) => ({id: rule.id, impact: rule.impact, n: rule.nodes.length})),
}))"""
FORGET = "window.name = ''; try { sessionStorage.clear(); localStorage.clear() } catch {}"
LOAD_MS = "performance.getEntriesByType('navigation')[0].loadEventEnd"
PROGRAMS = (
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
)


class Unmet(Exception):
    """A step could not be made, or an expectation does not hold; says so in one clause."""


class Visit:
    """The page in a window of its own, from its load on."""

    def __init__(self, browser: Any, files: Mapping[str, str], width: int, report: "Report | None" = None) -> None:
        self._report = report
        self.refused: list[str] = []
        self.missing: list[str] = []
        self.errors: list[str] = []
        self.n_bytes = self.n_loads = self.n_windows = self.n_downloads = 0
        self.is_crashed = False
        self._files = files
        self.context = browser.new_context(
            viewport={"width": width, "height": HEIGHT},
            is_mobile=width < MOBILE_BELOW,
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
            accept_downloads=False,
            service_workers="block",
        )
        self.context.route("**/*", self._serve)
        self.context.route_web_socket("**", self._refuse_socket)
        self.page = self.context.new_page()
        self.page.set_default_timeout(STEP_TIMEOUT_MS)
        self.context.on("page", self._close_window)
        self.page.on("download", self._count_download)
        self.page.on("crash", self._crashed)
        self.page.on("dialog", _answer_dialog)
        self.page.on("pageerror", lambda error: _add(self.errors, str(error)))
        self.session = self.context.new_cdp_session(self.page)
        self.session.send("Page.enable")
        self.page.clock.install(time=STARTED_AT_S)
        self.page.clock.pause_at(LOADED_AT_S)

    def load(self) -> None:
        """Open the page's first file with nothing kept from before, and let some time pass on its clock."""
        self.n_loads = 0
        self.page.goto("about:blank")  # what the page does as it is left is done before its traces are removed
        self.session.send("Page.resetNavigationHistory")
        self.session.send("Storage.clearDataForOrigin", {"origin": ADDRESS, "storageTypes": "all"})
        begin = {"source": FORGET, "worldName": "forget"}
        script = self.session.send("Page.addScriptToEvaluateOnNewDocument", begin)["identifier"]
        self.page.goto(ADDRESS, timeout=LOAD_TIMEOUT_MS)
        self.session.send("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})
        self.settle()

    def settle(self) -> None:
        """Let some time pass on its clock."""
        self.page.clock.run_for(SETTLE_MS)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in a world of its own, where the page's changes to functions are not seen."""
        frame = self.session.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
        world = self.session.send("Page.createIsolatedWorld", {"frameId": frame})["executionContextId"]
        answer = self.session.send(
            "Runtime.evaluate",
            {"expression": expression, "contextId": world, "returnByValue": True, "awaitPromise": True},
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"].get("exception", {}).get("description"))[:MAX_SHOWN])
        return answer["result"].get("value")

    def is_alive(self) -> bool:
        """Whether it still answers."""
        try:
            self.page.wait_for_selector("html", state="attached")
        except Exception:
            return False
        return not self.is_crashed

    def close(self) -> None:
        """Close its window, and report what it did."""
        if self._report is not None:
            self._report.write("conduct", **self.conduct())
        self.context.close()

    def give_up(self, reason: str, *, is_hung: bool = False) -> None:
        """Report what it did and why it is not looked at any further, and end everything."""
        if self._report is not None:
            self._report.write("conduct", **self.conduct())
            self._report.give_up(reason, is_hung=is_hung)

    def conduct(self) -> dict[str, Any]:
        """What the page did that it should not."""
        return {
            "refused": self.refused,
            "missing": self.missing,
            "errors": self.errors[:MAX_REFUSED],
            "n_windows": self.n_windows,
            "n_downloads": self.n_downloads,
            "is_crashed": self.is_crashed,
        }

    def _serve(self, route: Any) -> None:
        """Answer a request from the page's files, or refuse it."""
        url = route.request.url.partition("?")[0].partition("#")[0]
        name = url.removeprefix(ADDRESS) or "index.html"
        if route.request.is_navigation_request():
            self.n_loads += 1
            if self.n_loads > MAX_NUISANCES:
                self.give_up("it loads itself again and again", is_hung=True)
        if url.startswith(ADDRESS) and name in self._files:
            body = self._files[name].encode("utf-8", "replace")
            self.n_bytes += len(body)
            kind = TYPES.get(Path(name).suffix, "text/plain")
            route.fulfill(body=body, content_type=f"{kind}; charset=utf-8")
        elif url.startswith(ADDRESS):
            if name != "favicon.ico":
                _add(self.missing, name)
            route.fulfill(status=404, body="")
        else:
            _add(self.refused, url)
            route.abort()

    def _refuse_socket(self, web_socket: Any) -> None:
        _add(self.refused, web_socket.url)
        web_socket.close()

    def reason(self, error: Exception) -> str:
        """Why something failed on it, in one clause."""
        return "the page crashed" if self.is_crashed else _in_words(error)

    def _close_window(self, window: Any) -> None:
        self.n_windows += 1
        window.close()
        self._limit("windows", self.n_windows)

    def _count_download(self, download: Any) -> None:
        self.n_downloads += 1
        self._limit("downloads", self.n_downloads)

    def _limit(self, name: str, n: int) -> None:
        if n > MAX_NUISANCES:
            self.give_up(f"it asked for more than {MAX_NUISANCES} {name}")

    def _crashed(self, page: Any) -> None:
        self.is_crashed = True


def _answer_dialog(dialog: Any) -> None:
    """Let a page be left; any other question is answered with no."""
    if dialog.type == "beforeunload":
        dialog.accept()
    else:
        dialog.dismiss()


def _add(texts: list[str], text: str) -> None:
    if len(texts) < MAX_REFUSED:
        texts.append(text[:MAX_SHOWN])


class Report:
    """The lines about one page after the other; the main thread and the watch write them."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._lock = threading.Lock()
        self.page: int | None = None
        self.begun_at = self.begun_with_s = 0.0
        self.n_steps = 0

    def begin(self, page: int) -> None:
        """What follows is about this page."""
        self.begun_at, self.begun_with_s, self.page = time.monotonic(), processor_seconds(), page
        self.write("begin")

    def write(self, kind: str, **measured: Any) -> None:
        """Write a line."""
        self.step()
        with self._lock:
            self._output.write(json.dumps({"page": self.page, "kind": kind, **measured}) + "\n")
            self._output.flush()

    def give_up(self, reason: str, *, is_hung: bool = False) -> None:
        """Write why the page is not looked at any further, and end everything."""
        self.write("trouble", reason=reason, is_hung=is_hung)
        os._exit(0)

    def step(self) -> None:
        """Something ended: the page does not keep its browser waiting."""
        self.n_steps += 1

    def watch(self, processor_s: float) -> None:
        """End everything once the page has used more than its time, or nothing is at work any more."""
        last_step, last_at, last_with_s = -1, 0.0, 0.0
        while True:
            time.sleep(WATCH_S)
            if self.page is None:
                continue
            now, used_s = time.monotonic(), processor_seconds()
            if used_s - self.begun_with_s > processor_s:
                self.give_up(f"it used {processor_s:g} s of processor time", is_hung=True)
            if now - self.begun_at > PATIENCE * processor_s:
                self.give_up(f"it took {PATIENCE * processor_s:g} s", is_hung=True)
            if self.n_steps != last_step or used_s - last_with_s > STALL_PROCESSOR_S:
                last_step, last_at, last_with_s = self.n_steps, now, used_s
            elif now - last_at > STALL_S:
                self.give_up(f"it kept its browser waiting for {STALL_S:g} s", is_hung=True)


def processor_seconds() -> float:
    """Used so far by this process and all below it, as far as they live or were waited for."""
    used: dict[int, float] = {}
    above: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if folder.name.isdigit():
            used[int(folder.name)] = sum(map(int, fields[11:15])) / TICKS_PER_S
            above[int(folder.name)] = int(fields[1])
    total = 0.0
    for process in used:
        ancestor = process
        while ancestor not in (0, 1, os.getpid()) and ancestor in above:
            ancestor = above[ancestor]
        total += used[process] if ancestor == os.getpid() else 0.0
    return total


def main() -> None:
    """Measure one page after another until all were, or one makes trouble."""
    from playwright.sync_api import sync_playwright

    report = Report(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # what others print is no line of ours
    work = json.load(sys.stdin)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_program(), args=list(FLAGS), env=_environment(), timeout=120_000
        )
        browser.new_page().goto("about:blank")
        report.write("ready", version=browser.version)
        threading.Thread(target=report.watch, args=(work["processor_s"],), daemon=True).start()
        for number, page in enumerate(work["pages"]):
            sample = picture_of(browser, page["reference"]) if page.get("reference") else None
            report.begin(number)
            measure(browser, page, sample, report)
            report.write("end")
            report.page = None
        os._exit(0)


def measure(browser: Any, page: Mapping[str, Any], sample: bytes | None, report: Report) -> None:
    """Everything about one page: its looks in wide windows and its checks in one, its looks on a phone in another."""
    wide = Visit(browser, page["files"], WIDEST, report)
    for width in sorted(page["widths"], reverse=True):
        visit = wide if width >= MOBILE_BELOW else Visit(browser, page["files"], width, report)
        try:
            look(visit, width, page, sample if width == WIDEST else None, report)
        except Exception as error:
            visit.give_up(f"at {width} pixels: {visit.reason(error)}", is_hung=_is_timeout(error))
        if visit is not wide:
            visit.close()
    wide.page.set_viewport_size({"width": WIDEST, "height": HEIGHT})
    numbers = list(range(len(page["checks"])))
    random.SystemRandom().shuffle(numbers)
    for number in numbers:
        unmet, is_late = play(wide, page["checks"][number]["steps"], report)
        report.write("check", number=number, unmet=unmet)
        if wide.is_crashed or (is_late and not wide.is_alive()):
            wide.give_up("the page crashed" if wide.is_crashed else "it does not answer", is_hung=not wide.is_crashed)
    wide.close()


def look(visit: Visit, width: int, page: Mapping[str, Any], sample: bytes | None, report: Report) -> None:
    """How the page loads, looks and fits a width; at the widest, also what it weighs and what axe says of it."""
    is_widest = width == WIDEST
    if is_widest:
        visit.session.send("Performance.enable", {"timeDomain": "threadTicks"})
    visit.page.set_viewport_size({"width": width, "height": HEIGHT})
    visit.load()
    visit.page.wait_for_timeout(QUIET_MS)
    sizes = visit.session.send("Page.getLayoutMetrics")
    layout = visit.evaluate(f"{LAYOUT}({json.dumps(page['parts'])}, {width})")
    shot = visit.page.screenshot(animations="disabled", timeout=LOAD_TIMEOUT_MS)
    report.write(
        "width",
        width=width,
        laid_out=sizes["cssLayoutViewport"]["clientWidth"],
        content=sizes["cssContentSize"]["width"],
        screenshot=base64.b64encode(shot).decode() if page.get("screenshots") else None,
        **layout,
    )
    if not is_widest:
        return
    metrics = {row["name"]: row["value"] for row in visit.session.send("Performance.getMetrics")["metrics"]}
    busy_ms = 1000 * metrics["TaskDuration"]
    report.write("load", n_bytes=visit.n_bytes, load_ms=float(visit.evaluate(LOAD_MS) or 0.0), busy_ms=busy_ms)
    if sample is not None:
        picture = base64.b64encode(sample).decode() if page.get("screenshots") else None
        report.write("visual", likeness=likeness(shot, sample), reference=picture)
    report.write("axe", **accessibility(visit))


def accessibility(visit: Visit) -> dict[str, Any]:
    """What axe finds; `error` where it could not look, and whether that is the page's doing."""
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        return {"error": "axe is not installed", "is_of_page": False}
    source = Path(package.origin).with_name("axe.min.js").read_text("utf-8")
    try:
        return dict(visit.evaluate(f"{source};{AXE}"))
    except Exception as error:  # elements named as the document's own functions hide them, for instance
        return {"error": _in_words(error), "is_of_page": True}


def play(visit: Visit, steps: Sequence[Sequence[Any]], report: Report) -> tuple[str | None, bool]:
    """Play a check on a fresh page; returns why it fails (None: it holds) and whether a step took too long."""
    place = "the page"
    try:
        visit.load()
        for name, *arguments in steps:
            report.step()
            place = f"{name} {arguments[0]}"
            STEPS[name](visit.page, *arguments)
            if name in ACTIONS:
                visit.settle()
    except Unmet as error:
        return f"{place}: {error}", False
    except Exception as error:
        return f"{place}: {visit.reason(error)}", _is_timeout(error)
    return None, False


def _element(page: Any, selector: str) -> Any:
    """The one visible element of a selector."""
    locator = page.locator(selector)
    n_elements = locator.count()
    if n_elements != 1:
        raise Unmet(f"there {'is no' if not n_elements else f'are {n_elements}'} such element")
    if not locator.is_visible():
        raise Unmet("it is not visible")
    return locator


def _same(actual: Any, expected: Any) -> None:
    if actual != expected:
        raise Unmet(f"it is {_brief(actual)}, not {_brief(expected)}")


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _plain(text: str) -> str:
    return " ".join(text.split())


def _expect_hidden(page: Any, selector: str) -> None:
    if any(locator.is_visible() and _plain(locator.inner_text()) for locator in page.locator(selector).all()):
        raise Unmet("it is shown")


def _expect_texts(page: Any, selector: str, expected: Sequence[str]) -> None:
    visible = [locator for locator in page.locator(selector).all() if locator.is_visible()]
    _same([_plain(locator.inner_text()) for locator in visible], list(expected))


ACTIONS: Mapping[str, Callable[..., None]] = {
    "fill": lambda page, selector, text: _element(page, selector).fill(text),
    "click": lambda page, selector: _element(page, selector).click(),
    "press": lambda page, selector, key: _element(page, selector).press(key),
    "select": lambda page, selector, option: _element(page, selector).select_option(label=option),
}
STEPS: Mapping[str, Callable[..., None]] = {
    **ACTIONS,
    "expect_visible": lambda page, selector: _element(page, selector) and None,
    "expect_hidden": _expect_hidden,
    "expect_text": lambda page, selector, text: _same(_plain(_element(page, selector).inner_text()), text),
    "expect_value": lambda page, selector, text: _same(_element(page, selector).input_value(), text),
    "expect_attribute": lambda page, selector, name, text: _same(_element(page, selector).get_attribute(name), text),
    "expect_texts": _expect_texts,
}
"""The steps of a check by name. Texts are compared without line breaks and doubled blanks."""


def picture_of(browser: Any, files: Mapping[str, str]) -> bytes:
    """A page as it looks once it is loaded."""
    visit = Visit(browser, files, WIDEST)
    visit.load()
    visit.page.wait_for_timeout(QUIET_MS)
    shot = bytes(visit.page.screenshot(animations="disabled", timeout=LOAD_TIMEOUT_MS))
    visit.close()
    return shot


def likeness(shot: bytes, sample: bytes) -> float:
    """1: the same picture; 0: no nearer to the sample than an empty sheet of its background, or farther away.

    Mean difference of colours over a grid of fields, so that a shift by a few pixels changes little.
    """
    import numpy as np
    from PIL import Image

    def fields(picture: Image.Image) -> Any:
        return np.asarray(picture.resize(GRID, Image.Resampling.BOX), float)

    ours, theirs = (Image.open(io.BytesIO(png)).convert("RGB") for png in (shot, sample))
    colours = theirs.getcolors(theirs.width * theirs.height) or [(1, (255, 255, 255))]
    sheet = np.asarray(max(colours)[1], float)
    distance = np.abs(fields(ours) - fields(theirs)).mean()
    of_sheet = np.abs(sheet - fields(theirs)).mean()
    return float(max(0.0, 1.0 - distance / of_sheet)) if of_sheet else float(distance == 0)


SAID_PLAINLY = (
    (("Execution context was destroyed", "Cannot find context", "No frame", "interrupted by another navigation"),
     "it went to another page while it was looked at"),
    (("has been closed", "Target closed", "Connection closed", "Target crashed"), "the browser ended"),
    (("intercepts pointer events", "not stable"), "it can't be reached: something covers it, or it never stands still"),
)  # fmt: skip
"""What a message of the browser's protocol has in it -> the same in plain words."""


def _in_words(error: Exception) -> str:
    """What went wrong in the browser, in one clause."""
    text = str(error)
    plain = next((reason for signs, reason in SAID_PLAINLY if any(sign in text for sign in signs)), None)
    return plain or ("it did not answer in time" if _is_timeout(error) else _clause(error))


def _is_timeout(error: Exception) -> bool:
    return type(error).__name__ == "TimeoutError"


def _clause(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _program() -> str:
    return next(path for path in PROGRAMS if os.access(path, os.X_OK))


def _environment() -> dict[str, str | float | bool]:
    folder = tempfile.mkdtemp()
    fonts = Path(folder, "fonts.conf")  # the sandbox has no /etc/fonts
    fonts.write_text(f"<fontconfig><dir>/usr/share/fonts</dir><cachedir>{folder}/fonts</cachedir></fontconfig>")
    return {"FONTCONFIG_FILE": str(fonts), "HOME": folder, "PATH": "/usr/bin:/bin"}


if __name__ == "__main__":
    main()
