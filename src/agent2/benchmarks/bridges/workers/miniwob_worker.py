"""Episodes of MiniWoB++: small web pages in Chromium, acted on by calls, judged by the reward of the page itself.

An item is a task and a seed. What the agent sees is the accessibility tree of the page as Playwright writes it, with a
reference for each element; its calls are `click`, `type`, `select`, `press` and `scroll`. The reward is the page's own
without the discount for time, cut to 0 to 1.

Every request carries all moves; a page that has seen all but the last is kept, so nothing is lost where this process is
started again. The page's clock stands still but for a set time after each call, so that the same moves give the same
page, however busy the machine is.

The page is served from the package's files by the interception of requests; any other request is refused. Windows that
it opens are closed, its dialogs dismissed, its downloads refused, service workers blocked.
"""

import hashlib
import json
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from episode_store import package_folder, require_prompt
from miniwob_players import PLAYERS, Outline
from unchanged import require_unchanged

PACKAGE_SHA256 = "0f8bb3d23d9b332720d5ca363795511a472844aed042543fbb11599f72739008"
TASKS = tuple(PLAYERS)
ALL = "twenty"
"""The set of all tasks that have a player."""
N_SEEDS = {"train": 40, "dev": 40, "test": 120}
"""Of one task."""
N_SEEDS_OF_ALL = {"train": 2, "dev": 2, "test": 6}
"""Of each task in `ALL`."""
FIRST_SEED = {"train": 1_000, "dev": 2_000, "test": 3_000}
MAX_MESSAGES = 15
MAX_TREE_CHARACTERS = 12_000
MAX_TEXT_CHARACTERS = 1_000
KEPT = 8
"""Pages that are kept open."""
ADDRESS = "http://miniwob.invalid/"
STARTED_AT_S = 1_700_000_000
LOADED_AT_S = STARTED_AT_S + 3600
"""On the page's clock: later than any load takes."""
SETTLE_MS = 600
"""What passes on the page's clock after a call; the longest animation of the tasks takes 500 ms."""
TIMEOUT_MS = 5_000
LOAD_TIMEOUT_MS = 45_000
SYNC = "core.EPISODE_MAX_TIME = 1e9; Math.seedrandom(SEED); core.startEpisodeReal(); core.hideDisplay();"
STATE = "[WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL]"
PROGRAMS = (
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
)
FLAGS = (
    "--no-sandbox",  # this process is in a sandbox already, which allows no further namespaces
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--js-flags=--max-old-space-size=512",
)
SYSTEM = (
    "You operate a web page. You see its accessibility tree, in which [ref=...] names an element. Carry out the task "
    "by calling functions; after each message with calls you see the page again. The episode ends when the page says "
    "so. Words alone do nothing."
)
KEYS = (
    *("Enter", "Tab", "Escape", "Backspace", "Delete", "Space", "Home", "End", "PageUp", "PageDown"),
    *("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Control+A", "Control+C", "Control+V"),
)


def _function(name: str, description: str, **parameters: dict[str, Any]) -> dict[str, Any]:
    required = [key for key, schema in parameters.items() if "default" not in schema]
    schema = {"type": "object", "properties": parameters, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


REF = {"type": "string", "description": "the element, as e7"}
TEXT = {"type": "string"}
TOOLS = [
    _function("click", "Click on the middle of an element.", ref=REF),
    _function("type", "Click on a field, and replace what is in it by a text.", ref=REF, text=TEXT),
    _function("select", "Choose an option of a list by its text.", ref=REF, option=TEXT),
    _function("press", "Press a key.", key={"type": "string", "enum": list(KEYS)}),
    _function(
        "scroll",
        "Turn the mouse's wheel over an element by about a page.",
        ref=REF,
        direction={"type": "string", "enum": ["up", "down"]},
    ),
]


def _package() -> Path:
    return Path(package_folder("miniwob"))


def _program() -> str:
    path = next((path for path in PROGRAMS if os.access(path, os.X_OK)), None)
    if path is None:
        raise RuntimeError("no Chromium below /usr; apt-get install chromium")
    return path


@cache
def _browser() -> Any:
    """The browser, for as long as this process lives."""
    from playwright.sync_api import sync_playwright

    require_unchanged(_package(), PACKAGE_SHA256)
    folder = tempfile.mkdtemp()
    fonts = Path(folder, "fonts.conf")  # the sandbox has no /etc/fonts
    fonts.write_text(f"<fontconfig><dir>/usr/share/fonts</dir><cachedir>{folder}/fonts</cachedir></fontconfig>")
    playwright = sync_playwright().start()
    return playwright.chromium.launch(
        executable_path=_program(),
        args=list(FLAGS),
        env={"FONTCONFIG_FILE": str(fonts), "HOME": folder, "PATH": "/usr/bin:/bin"},
        timeout=120_000,
    )


class PageEpisode:
    """One page, from its seed to its reward."""

    def __init__(self, task: str, seed: int) -> None:
        self.n_words = 0
        self.is_over = False
        self.reward = 0.0
        self._root = _package() / "html"
        self._context = _browser().new_context(
            viewport={"width": 500, "height": 500},
            locale="en-US",
            timezone_id="UTC",
            accept_downloads=False,
            service_workers="block",
        )
        self._context.route("**/*", self._serve)
        self._context.route_web_socket("**", lambda web_socket: web_socket.close())
        self._page = self._context.new_page()
        self._context.on("page", lambda window: window.close())
        self._page.set_default_timeout(TIMEOUT_MS)
        self._page.clock.install(time=STARTED_AT_S)
        self._page.goto(f"{ADDRESS}miniwob/{task}.html", timeout=LOAD_TIMEOUT_MS)
        self._page.clock.pause_at(LOADED_AT_S)
        self._page.evaluate(SYNC.replace("SEED", str(seed)))
        self._settle()
        self.utterance = str(self._page.evaluate("core.getUtterance()"))
        self.opening = self.tree()
        """Elements have references from here on."""

    def _serve(self, route: Any) -> None:
        """Answer a request from the package's files, or refuse it."""
        url = route.request.url.partition("?")[0].partition("#")[0]
        path = (self._root / url.removeprefix(ADDRESS)).resolve()
        if url.startswith(ADDRESS) and path.is_relative_to(self._root) and path.is_file():
            route.fulfill(path=path)
        else:
            route.abort()

    def _settle(self) -> None:
        self._page.clock.run_for(SETTLE_MS)
        self.is_over, reward = self._page.evaluate(STATE)
        self.reward = min(1.0, max(0.0, float(reward))) if self.is_over else 0.0

    def tree(self) -> str:
        """The accessibility tree of the page."""
        text = str(self._page.locator("body").aria_snapshot(mode="ai", timeout=TIMEOUT_MS))
        return text if len(text) <= MAX_TREE_CHARACTERS else f"{text[:MAX_TREE_CHARACTERS]}\n(the tree goes on)"

    def apply(self, move: dict[str, Any]) -> dict[str, Any]:
        """What comes back for a message."""
        if self.is_over:
            raise ValueError("the episode is over")
        if "words" in move:
            self.n_words += 1
            self.is_over = self.n_words > 1
            reply = "Call a function; words alone do nothing, and a second time they end the episode."
            return {"results": None, "user": None if self.is_over else reply, "tools": None, "is_over": self.is_over}
        self.n_words = 0
        results = []
        for call in move["calls"]:
            results.append("the episode is over" if self.is_over else self._result(call["name"], call["arguments"]))
        if not self.is_over:
            results[-1] = f"{results[-1]}\n\n{self.tree()}"
        return {"results": results, "user": None, "tools": None, "is_over": self.is_over}

    def _result(self, name: str, arguments: dict[str, Any]) -> str:
        """Carry out a call. What the agent got wrong comes back as words."""
        from playwright.sync_api import Error

        if name not in ACTIONS:
            return f"error: there is no function {name!r}; there are {', '.join(ACTIONS)}"
        schema = next(tool["function"]["parameters"] for tool in TOOLS if tool["function"]["name"] == name)
        texts = {key: str(value)[:MAX_TEXT_CHARACTERS] for key, value in arguments.items()}
        if texts.keys() != schema["properties"].keys():
            return f"error: {name} takes {', '.join(schema['properties'])}"
        for key, text in texts.items():
            if text not in schema["properties"][key].get("enum", (text,)):
                return f"error: {key} is one of {', '.join(schema['properties'][key]['enum'])}"
        try:
            ACTIONS[name](self, **texts)
        except Error as error:
            self._settle()  # raises where it is the page that failed
            return f"error: {str(error).splitlines()[0][:200]}"
        self._settle()
        return "done"

    def _element(self, ref: str) -> Any:
        return self._page.locator(f"aria-ref={ref.strip().strip('[]').removeprefix('ref=')}")

    def click(self, ref: str) -> None:
        """Click on the middle of an element."""
        self._element(ref).click(timeout=TIMEOUT_MS, force=True)

    def type(self, ref: str, text: str) -> None:
        """Replace what is in a field."""
        self._element(ref).click(timeout=TIMEOUT_MS, force=True)
        self._page.keyboard.press("Control+A")
        self._page.keyboard.press("Delete")
        self._page.keyboard.type(text)

    def select(self, ref: str, option: str) -> None:
        """Choose an option of a list."""
        self._element(ref).select_option(label=option, timeout=TIMEOUT_MS, force=True)

    def press(self, key: str) -> None:
        """Press a key."""
        self._page.keyboard.press(key)

    def scroll(self, ref: str, direction: str) -> None:
        """Turn the wheel over an element."""
        self._element(ref).hover(timeout=TIMEOUT_MS, force=True)
        self._page.mouse.wheel(0, 200 if direction == "down" else -200)

    def close(self) -> None:
        """Close the page."""
        self._context.close()


ACTIONS: Mapping[str, Callable[..., None]] = {
    "click": PageEpisode.click,
    "type": PageEpisode.type,
    "select": PageEpisode.select,
    "press": PageEpisode.press,
    "scroll": PageEpisode.scroll,
}
_kept: "OrderedDict[str, PageEpisode]" = OrderedDict()


def _place(name: str, portion: str, number: int) -> tuple[str, int]:
    """Task and seed of an item."""
    if name != ALL:
        return name, FIRST_SEED[portion] + number
    return TASKS[number % len(TASKS)], FIRST_SEED[portion] + number // len(TASKS)


def _prompt(task: str, seed: int) -> str:
    return f"{task}, seed {seed}"


def describe() -> dict[str, Any]:
    """The tasks, and the set of all of them."""
    return {"names": [ALL, *TASKS], "browser": _browser().version}


def open_set(name: str) -> dict[str, Any]:
    """How many items it has, and how long an episode may be."""
    n_seeds, n_tasks = (N_SEEDS_OF_ALL, len(TASKS)) if name == ALL else (N_SEEDS, 1)
    portions = {portion: n * n_tasks for portion, n in n_seeds.items()}
    limits = {"max_tokens": 256, "max_turns": MAX_MESSAGES, "floor": 0.05}
    engine = f"chromium-{_browser().version}"
    return {"compares": False, "is_chat": True, **limits, "portions": portions, "engine": engine}


def items(name: str, portion: str, start: int) -> list[dict[str, Any]]:
    """All items from there on; their pages are opened when they are played."""
    last = open_set(name)["portions"][portion]
    places = [_place(name, portion, number) for number in range(start, last)]
    common = {"messages": [{"role": "system", "content": SYSTEM}], "tools": TOOLS, "reference": None, "opens": 1}
    return [{"prompt": _prompt(*place), **common} for place in places]


def open_episode(name: str, portion: str, number: int) -> list[dict[str, str]]:
    """The first messages of an episode; its page is kept."""
    task, seed = _place(name, portion, number)
    episode = PageEpisode(task, seed)
    _keep(_key(task, seed, []), episode)
    text = f"Task: {episode.utterance}\nPage: {task}\n\n{episode.opening}"
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]


def expect(name: str, portion: str, number: int) -> list[str]:
    """Messages of the task's player, from the page's start to its reward."""
    task, seed = _place(name, portion, number)
    episode = PageEpisode(task, seed)
    messages: list[str] = []
    try:
        for tool, arguments in PLAYERS[task](episode.utterance, lambda: Outline(episode.tree())):
            call = {"name": tool, "arguments": arguments}
            episode.apply({"calls": [call]})
            messages.append(json.dumps(call))
            if episode.is_over or len(messages) == MAX_MESSAGES:
                break
    finally:
        episode.close()
    return messages


def _key(task: str, seed: int, moves: list[Any]) -> str:
    return hashlib.sha256(json.dumps([task, seed, moves]).encode()).hexdigest()


def _episode(task: str, seed: int, moves: list[Any]) -> PageEpisode:
    """The page after these moves, taken from those that are kept or played again."""
    episode = _kept.pop(_key(task, seed, moves), None)
    if episode is None:
        episode = PageEpisode(task, seed)
        for move in moves:
            episode.apply(move)
    return episode


def _keep(key: str, episode: PageEpisode) -> None:
    _kept[key] = episode
    while len(_kept) > KEPT:
        _, oldest = _kept.popitem(last=False)
        oldest.close()


def advance(name: str, portion: str, number: int, moves: list[dict[str, Any]]) -> dict[str, Any]:
    """What comes back for the last of these moves."""
    place = _place(name, portion, number)
    episode = _episode(*place, moves[:-1])
    try:
        reply = episode.apply(moves[-1])
    except BaseException:
        episode.close()
        raise
    _keep(_key(*place, moves), episode)
    return reply


def score(name: str, portion: str, number: int, prompt_sha256: str, moves: list[dict[str, Any]]) -> dict[str, Any]:
    """The page's reward, from 0 to 1."""
    place = _place(name, portion, number)
    require_prompt(name, _prompt(*place), prompt_sha256)
    episode = _episode(*place, moves)
    episode.close()
    if not episode.is_over:
        return {"value": 0.0, "reason": f"the page gave no reward within {len(moves)} messages"}
    return {
        "value": episode.reward,
        "reason": f"the page's reward, without its discount for time, is {episode.reward:g}",
    }


METHODS = {
    "describe": describe,
    "open_set": open_set,
    "items": items,
    "open": open_episode,
    "expect": expect,
    "advance": advance,
    "score": score,
}
